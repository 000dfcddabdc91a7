package vmrun

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
)

// ordinaryNetNS is where ip-netns(8) keeps named network namespaces.
const ordinaryNetNS = "/run/netns"

// ordinary reports whether the namespaces are in the folder of ip-netns(8).
func (r *Runner) ordinary() bool {
	return slices.Contains([]string{ordinaryNetNS, "/var" + ordinaryNetNS}, filepath.Clean(r.cfg.NetNS))
}

// enter is the command that runs another in a namespace: ip-netns(8), which also mounts
// the namespace's /etc/resolv.conf, or where that cannot be used, nsenter(1).
func (r *Runner) enter(zone string) []string {
	if r.ordinary() {
		return []string{"ip", "netns", "exec", zone}
	}
	return []string{"nsenter", "--net=" + filepath.Join(r.cfg.NetNS, zone)}
}

// hardwareBrands are the brands of VMs that have virtual hardware (vmadm(8)).
var hardwareBrands = []string{"kvm", "bhyve"}

// qemuNames are the names of QEMU for machines of this architecture.
var qemuNames = map[string]string{"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}

// QEMU returns the path of the QEMU that runs VMs with virtual hardware, or why there
// is none. Without it, the init process of the manifest runs instead.
func QEMU() (path string, err error) {
	name, ok := qemuNames[runtime.GOARCH]
	if !ok {
		return "", fmt.Errorf("no QEMU is known for %s", runtime.GOARCH)
	}
	return exec.LookPath(name)
}

// commandLine is the command that runs a VM: QEMU if the VM has virtual hardware and
// QEMU is installed, otherwise its init.
func commandLine(m system.Manifest) ([]string, error) {
	if slices.Contains(hardwareBrands, m.Value.Text("brand")) {
		if path, err := QEMU(); err == nil {
			return qemuLine(path, m)
		}
	}
	list, ok := m.Value.Get("init")
	if !ok {
		return []string{"sleep", "infinity"}, nil
	}
	line, err := words(list, "init")
	if err == nil && len(line) == 0 {
		err = errors.New("init is no list of strings with a program first")
	}
	return line, err
}

// words reads a list of strings.
func words(list vmdoc.Value, name string) ([]string, error) {
	var line []string
	for _, item := range list.Items() {
		word, isText := item.String()
		if !isText {
			return nil, fmt.Errorf("%s is no list of strings", name)
		}
		line = append(line, word)
	}
	return line, nil
}

// Defaults of a VM with virtual hardware, in MiB and CPUs; vmadm's.
const (
	defaultRAM   = 256
	defaultVCPUs = 1
)

// qemuLine is QEMU's command line for a manifest (qemu(1)): its ram, vcpus and disks,
// and the list of strings "qemu_extra_opts". Its NICs are those that qemu_extra_opts
// name.
func qemuLine(path string, m system.Manifest) ([]string, error) {
	line := []string{
		path, "-name", m.UUID.String(), "-uuid", m.UUID.String(), "-nodefaults", "-display", "none", "-accel", "kvm", "-accel", "tcg",
		"-m", strconv.FormatInt(m.Number("ram", defaultRAM), 10), "-smp", strconv.FormatInt(m.Number("vcpus", defaultVCPUs), 10),
	}
	disks, _ := m.Value.Get("disks")
	for i, disk := range disks.Items() {
		file := disk.Text("path")
		if file == "" || slices.Contains([]byte(file), ',') {
			return nil, fmt.Errorf("disks.%d.path %q: want the path of a raw image or device, without commas", i, file)
		}
		line = append(line, "-drive", "format=raw,if=virtio,file="+file)
	}
	extra, _ := m.Value.Get("qemu_extra_opts")
	more, err := words(extra, "qemu_extra_opts")
	return append(line, more...), err
}
