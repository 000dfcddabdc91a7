package operate

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rutter/cmd/rutter/confine"
	"rutter/integration/pages"
	"rutter/integration/tinyguest"
)

const vmsPath = "../../docs/vms.md"

// TestVMsDocument runs each command of docs/vms.md word for word, on a cluster with TLS and two
// compute nodes which the commands of docs/deploy.md have made. So the first VM is made on a node
// that has its own certificate and nothing else, and a VM of each source reaches it from the other
// node. What this machine has not, a processor for KVM and disks with an image, is replaced, and
// only that (replaced).
func TestVMsDocument(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("machines with mounts and cgroups of their own: run as root")
	}
	built := os.Getenv(builtEnv)
	if built == "" {
		built = t.TempDir()
		buildCNITool(t, built)
	}
	guest := tinyguest.Build(t, t.TempDir(), "libvirtd", "virsh", "curl", "ping", "unshare", "nsenter", "setpriv", "ip")
	if !inSpaces(t, built) {
		return
	}
	s := newSpaces(t, "s1", "s2", "s3", "cn1", "cn2", "admin")
	s.deploy()
	s.prepare(guest)
	blocks := steps(t, vmsPath)
	if len(blocks) < 20 {
		t.Fatalf("%d blocks found in %s", len(blocks), vmsPath)
	}
	for _, b := range blocks {
		for _, name := range b.Hosts {
			script := b.Script
			for old, now := range replaced(guest) {
				script = strings.ReplaceAll(script, old, now)
			}
			s.checks(b, name, s.must(name, script))
		}
	}
	s.unitsAndRights("cn1")
	// Each VM of the page was deleted, with its NICs in the log.
	s.must("admin", `for i in $(seq 600); do nics=$(rutter nic list); [[ $nics == *" zone "* ]] || exit 0; sleep 0.1; done; echo "$nics"; exit 1`)
}

// unitsAndRights compares the capabilities of the agent and of its helper with those that each
// needs: with these the page was done.
func (s *spaces) unitsAndRights(name string) {
	s.t.Helper()
	for unit, want := range map[string]confine.Set{
		"rutter-agent": confine.NetAdmin | confine.NetBroadcast | confine.NetRaw | confine.SysAdmin,
		"rutter-vms":   confine.Helper,
	} {
		out := s.must(name, "grep -E '^(CapPrm|CapEff|NoNewPrivs)' /proc/$(cat /run/units/"+unit+")/status")
		if set := fmt.Sprintf("%016x", uint64(want)); strings.Count(out, set) != 2 || !strings.Contains(out, "NoNewPrivs:\t1") {
			s.t.Errorf("%s has, and needs %s:\n%s", unit, set, out)
		}
	}
}

// buildCNITool makes cnitool, in the version of scripts/tools.mod.
func buildCNITool(t *testing.T, folder string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-modfile=scripts/tools.mod", "-o", filepath.Join(folder, "cnitool"), "github.com/containernetworking/cni/cnitool")
	cmd.Dir = "../.."
	if out, err := output(cmd); err != nil {
		t.Skipf("cnitool cannot be built here (it needs the Go module proxy once): %v\n%s", err, out)
	}
}

// deploy makes the cluster by the commands of docs/deploy.md. The second node joins as the first.
func (s *spaces) deploy() {
	s.t.Helper()
	second := strings.NewReplacer("7ed01", "7ed02", "10.0.0.11", "10.0.0.12")
	var node []pages.Step
	for _, b := range steps(s.t, docPath) {
		if !deployed[b.Section] {
			continue
		}
		if b.Section == "A compute node" {
			node = append(node, b)
		}
		for _, name := range b.Hosts {
			s.must(name, b.Script)
		}
	}
	for _, b := range node {
		for _, name := range b.Hosts {
			s.must(strings.Replace(name, "cn1", "cn2", 1), second.Replace(b.Script))
		}
	}
}

// replaced is what a machine without KVM and without images of disks needs: emulation, and a small
// guest that is booted directly.
func replaced(g tinyguest.Guest) map[string]string {
	words := tinyguest.Append + " " + tinyguest.Peer + "10.7.0.11"
	all := map[string]string{
		"brand=kvm ram=1024 vcpus=2": "brand=kvm accel=tcg ram=96 vcpus=1 kernel=" + g.Kernel + " initrd=" + g.Initrd + " append='" + words + "'",
		"<domain type='kvm'>":        "<domain type='qemu'>",
		"<memory unit='MiB'>1024":    "<memory unit='MiB'>96",
		"<type arch='x86_64'>hvm":    "<type arch='x86_64' machine='pc'>hvm",
		"</type>\n  </os>":           "</type>\n    <kernel>" + g.Kernel + "</kernel>\n    <initrd>" + g.Initrd + "</initrd>\n    <cmdline>" + words + "</cmdline>\n  </os>",
		"do sleep 1; done":           "do sleep 0.1; done",
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		all["systemd-analyze verify "] = "true "
	}
	return all
}

// prepare puts onto the nodes what the page takes for given: the files of a VM, disks, and a
// libvirtd that needs no systemd.
func (s *spaces) prepare(g tinyguest.Guest) {
	s.t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		s.t.Fatal(err)
	}
	disk := filepath.Join(s.dir, "disk")
	if err := os.WriteFile(disk, emptyQCOW2(), 0o600); err != nil {
		s.t.Fatal(err)
	}
	for name, id := range map[string]string{"cn1": nodeID, "cn2": strings.Replace(nodeID, "7ed01", "7ed02", 1)} {
		s.must(name, strings.NewReplacer("BUSYBOX", busybox, "DISK", disk, "LIBVIRTD", strings.Replace(libvirtdConf, "HOSTUUID", id, 1), "QEMU", qemuConf).Replace(`
mkdir -p files/usr/sbin /var/lib/libvirt/images /etc/libvirt /var/log/libvirt/qemu
cp BUSYBOX files/usr/sbin/httpd
tar -C files -cf web0.tar .
cp DISK /var/lib/rutter-vms/db0.qcow2
cp DISK /var/lib/libvirt/images/db1.qcow2
cat >/etc/libvirt/libvirtd.conf <<'END'
LIBVIRTDEND
cat >/etc/libvirt/qemu.conf <<'END'
QEMUEND
`))
	}
}

// libvirtdConf has libvirtd need no polkit, and qemuConf has QEMU run as root and without cgroups.
const (
	libvirtdConf = `auth_unix_rw = "none"
auth_unix_ro = "none"
unix_sock_group = "root"
host_uuid = "HOSTUUID"
log_outputs = "3:stderr"
`
	qemuConf = `security_driver = "none"
cgroup_controllers = []
namespaces = []
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
stdio_handler = "file"
`
)

// checks is what a block's commands must have shown, besides their success, by the words of the
// block.
func (s *spaces) checks(b pages.Step, name, out string) {
	s.t.Helper()
	wants := map[string][]string{
		"rutter agent status --wait 1m\n": {"port security enforced", "compute node  " + nodeID[:35]},
		"zonename=web1":                   {"inet 10.7.0.11/24", "mtu 1400"},
		"ping -c 1 ":                      {" 0% packet loss"},
		"web2 ip address":                 {"inet 10.7.0.", "mtu 1400", `"state":"attached"`},
		"cnitool check":                   {"inet 10.7.0.", "mtu 1400"},
		"stat -c '%G %a'":                 {"operators 660"},
		"rutter vms status":               {"helper     version", "VM helper     /run/rutter-vms/vms.sock, version"},
		"rutter vm lookup":                {"5595d88c-6e4d-4bda-b58e-97dd02e30000"},
		"virsh start db1":                 {"Domain 'db1' started"},
		"rutter vminfo vms --human\n":     {"running"},
	}
	for words, list := range wants {
		if !strings.Contains(b.Script, words) || name == "cn1" && words == "rutter vminfo vms --human\n" {
			continue
		}
		for _, want := range list {
			if !strings.Contains(strings.ReplaceAll(out, `": "`, `":"`), want) {
				s.t.Errorf("%s:%d on %s: what its commands print lacks %q", b.Path, b.Line, name, want)
			}
		}
	}
	if i := slices.Index(b.Hosts, name); strings.Contains(b.Script, "systemctl restart rutter-server") && i >= 0 {
		s.must("admin", "rutter cluster status --wait 2m")
	}
}

// emptyQCOW2 is an image of 64 MiB without data, in clusters of 64 KiB: header, table of counts,
// counts, and the table of clusters (docs/interop/qcow2.txt of QEMU).
func emptyQCOW2() []byte {
	image := make([]byte, 4<<16)
	put := binary.BigEndian
	copy(image, "QFI\xfb")
	put.PutUint32(image[4:], 2)         // version
	put.PutUint32(image[20:], 16)       // bits of a cluster
	put.PutUint64(image[24:], 64<<20)   // size
	put.PutUint32(image[36:], 1)        // entries of the table of clusters
	put.PutUint64(image[40:], 3<<16)    // its place
	put.PutUint64(image[48:], 1<<16)    // place of the table of counts
	put.PutUint32(image[56:], 1)        // clusters of it
	put.PutUint64(image[1<<16:], 2<<16) // place of the counts
	for i := range 4 {
		put.PutUint16(image[2<<16+2*i:], 1)
	}
	return image
}
