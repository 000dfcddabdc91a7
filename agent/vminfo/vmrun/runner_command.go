package vmrun

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmrun/internal/isolate"
)

// ordinaryNetNS is where ip-netns(8) keeps named network namespaces.
const ordinaryNetNS = "/run/netns"

// ordinary reports whether the namespaces are in the folder of ip-netns(8).
func (r *Runner) ordinary() bool {
	return slices.Contains([]string{ordinaryNetNS, "/var" + ordinaryNetNS}, filepath.Clean(r.cfg.NetNS))
}

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

// program is what runs as a VM.
type program struct {
	line []string
	// root is the folder that it runs in; "": it is a program of the node, which sees
	// the node's programs only.
	root string
	// disks are opened by the runner, because the program cannot open them.
	disks    []string
	hardware bool // it is QEMU
	idle     bool // it only holds the VM's namespace
}

// programOf is the program that runs a VM: QEMU if the VM has virtual hardware and QEMU
// is installed, otherwise its init, and without one a process that sleeps. Errors:
// ErrNoRoot, and about fields.
func programOf(m system.Manifest) (program, error) {
	if m.Value.Hardware() {
		if path, err := QEMU(); err == nil {
			return qemuProgram(path, m)
		}
	}
	list, ok := m.Value.Get("init")
	if !ok {
		return program{line: []string{"sleep", "infinity"}, idle: true}, nil
	}
	line, err := words(list, "init")
	if err == nil && len(line) == 0 {
		err = errors.New("init is no list of strings with a program first")
	}
	if err != nil {
		return program{}, err
	}
	root := m.Value.Text("root")
	if root == "" {
		example := filepath.Join(exampleRoots, m.UUID.String())
		return program{}, fmt.Errorf("%w: it runs in a folder of its own, and not in this node's files: put the VM's files into a folder, below one that only root can enter, and name it in the manifest, as in \"root\": %q", ErrNoRoot, example)
	}
	return program{line: line, root: root}, nil
}

// exampleRoots is the folder that a refusal suggests.
const exampleRoots = "/var/lib/rutter-vms"

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

// qemuSandbox are QEMU's own restrictions: its filter of system calls, which lets it
// start no program and change no user.
var qemuSandbox = []string{"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"}

// qemuOwn are the options that qemu_extra_opts may not have: they lift or move what
// confines QEMU.
var qemuOwn = []string{"sandbox", "runas", "chroot", "run-with", "daemonize", "add-fd"}

// qemuDevices are the names in /dev that QEMU may open.
var qemuDevices = []string{"kvm", "net/tun", "vhost-net"}

// qemuProgram is QEMU with its command line for a manifest (qemu(1)): its ram, vcpus and
// disks, and the list of strings "qemu_extra_opts". Its NICs are those that
// qemu_extra_opts name.
func qemuProgram(path string, m system.Manifest) (program, error) {
	p := program{hardware: true, line: []string{
		path, "-name", m.UUID.String(), "-uuid", m.UUID.String(), "-nodefaults", "-display", "none", "-accel", "kvm", "-accel", "tcg",
		"-m", strconv.FormatInt(m.Number("ram", vmdoc.DefaultRAM), 10), "-smp", strconv.FormatInt(m.Number("vcpus", vmdoc.DefaultVCPUs), 10),
	}}
	p.line = append(p.line, qemuSandbox...)
	disks, _ := m.Value.Get("disks")
	for i, disk := range disks.Items() {
		file := disk.Text("path")
		if !filepath.IsAbs(file) {
			return p, fmt.Errorf("disks.%d.path %q: want the path of a raw image or device, from / on", i, file)
		}
		p.disks = append(p.disks, file)
		set := strconv.Itoa(i + 1)
		p.line = append(p.line, "-add-fd", fmt.Sprintf("fd=%d,set=%s", isolate.FirstFile+i, set), "-drive", "format=raw,if=virtio,file=/dev/fdset/"+set)
	}
	extra, _ := m.Value.Get("qemu_extra_opts")
	more, err := words(extra, "qemu_extra_opts")
	for _, word := range more {
		if strings.HasPrefix(word, "-") && slices.Contains(qemuOwn, strings.TrimLeft(word, "-")) {
			err = fmt.Errorf("qemu_extra_opts: %s: QEMU is confined by the agent: leave it out", word)
		}
	}
	p.line = append(p.line, more...)
	return p, err
}

// openDisks opens the disks of a program. The caller closes them.
func (p *program) openDisks() (files []*os.File, err error) {
	for _, path := range p.disks {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("disk: %w", err)
		}
		files = append(files, file)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, file := range files {
		_ = file.Close()
	}
}

// deviceGroup is the group of this node's /dev/kvm, if only its members may use it.
func deviceGroup() uint32 {
	var st unix.Stat_t
	if unix.Stat("/dev/kvm", &st) != nil || st.Mode&0o006 == 0o006 || st.Mode&0o060 != 0o060 {
		return 0
	}
	return st.Gid
}
