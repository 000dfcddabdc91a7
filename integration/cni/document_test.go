package cni

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rutter/api/auth/matrix"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

// documented is a node on which the commands of docs/vms.md are run as they are there, and the
// operator of its cluster.
type documented struct {
	*node
	t        *testing.T
	env      []string
	operator []string
}

// newDocumented makes two nodes, the first with the settings that the page takes for given, and a
// fabric by the page's commands.
func newDocumented(t *testing.T) (*documented, *node) {
	w := newWorldWith(t, func(n *node) {
		n.cn = log.UUID{0x56, 0x4d, 0x69, 0xb1, 0xa1, 0x78, 0x4f, 0xbe, 0xb3, 0x6f, 0x3f, 0x2b, 0x7f, 0xd7, 0xed, byte(n.i + 1)}
		n.w.fresh = true
		if n.i == 0 {
			n.zones, n.socket = "/run/netns", "/run/rutter/agent.sock"
		}
	}, log.UUID{0x93, 0x08, 0x96, 0xaf, 0xbf, 0x8c, 0x48, 0xd4, 0x88, 0x5c, 0x65, 0x73, 0xa9, 0x4b, 0x18, 0x53})
	n := w.nodes[0]
	bin := filepath.Join(n.dir, "usr/local/bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"rutter": program, "cnitool": os.Getenv(toolEnv)} {
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	ada := filepath.Join(w.dir, "ada")
	w.issue(ada, matrix.Identity{Role: matrix.Operator, Name: "ada"})
	d := &documented{
		node: n, t: t, env: []string{
			"PATH=" + bin + ":" + os.Getenv("PATH"), "NETCONFPATH=" + n.dir + "/etc/cni/net.d", "RUTTER_AGENT_SOCKET=" + n.socket,
			"RUTTER_NETNS=" + n.zones, "RUTTER_VM_RUN=/run/rutter/vms", "RUTTER_MANIFESTS=" + filepath.Join(n.dir, "manifests"),
		},
		operator: []string{"RUTTER_SERVER=" + w.cluster.Client.Servers()[0], "RUTTER_TLS_DIR=" + ada},
	}
	d.do(d.blocks("A fabric for VMs", 1)[0])
	return d, w.nodes[1]
}

// blocks are the blocks of commands of a section: where they are run, and a script.
func (d *documented) blocks(section string, n int) (all [][2]string) {
	d.t.Helper()
	text, err := os.ReadFile("../../docs/vms.md")
	if err != nil {
		d.t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n## "+section+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	pieces := strings.Split(rest, "\n```")
	if !found || len(pieces) != 2*n+1 {
		d.t.Fatalf("section %s: %d pieces, want %d blocks of commands", section, len(pieces), n)
	}
	for i := 1; i < len(pieces); i += 2 {
		kind, script, _ := strings.Cut(pieces[i], "\n")
		for _, path := range []string{"/usr/local/bin", "/opt/cni/bin", "/etc/cni/net.d"} {
			script = strings.ReplaceAll(script, path, d.dir+path)
		}
		all = append(all, [2]string{kind, script})
	}
	return all
}

// do runs one block. A node has its own certificate only, the operator another one.
func (d *documented) do(block [2]string) string {
	d.t.Helper()
	env := d.env
	switch block[0] {
	case "sh operator":
		env = slices.Concat(d.env, d.operator)
	case "sh node":
	default:
		d.t.Fatalf("a block of %q: it says where its commands are run", block[0])
	}
	return must[string](d.t)(d.run(d.t.Context(), env, "set -eu\n"+block[1], "sh"))
}

// open lets nodes make NICs on network web.
func (d *documented) open() {
	d.t.Helper()
	d.do([2]string{"sh operator", "rutter network update " + networks["web"].String() + opens})
}

const opens = " self_provision=any"

// TestContainersDocument runs each command of the section Containers of docs/vms.md, on a node
// that has its certificate and nothing else of the network.
func TestContainersDocument(t *testing.T) {
	t.Parallel()
	if !enter(t) {
		return
	}
	w, _ := newDocumented(t)
	w.conf("web", "")
	early := w.container("early")
	if _, err := w.tool("add", "web", early); err == nil || !strings.Contains(err.Error(), "rutter network update "+networks["web"].String()+opens) {
		t.Errorf("a network that is not open: got %v, want the command that opens it", err)
	}
	must[result](t)(w.tool("del", "web", early))
	for _, block := range w.blocks("Containers", 3) {
		out := w.do(block)
		if strings.Contains(block[1], "cnitool add") && (!strings.Contains(out, "mtu 1400") || !strings.Contains(out, "inet 10.0.0.")) {
			t.Errorf("the container's interface: got %s", out)
		}
	}
	w.none()
}

// TestRegisterDocument runs each command of the section about VMs that programs register, on such
// a node. A container of another node reaches the VM.
func TestRegisterDocument(t *testing.T) {
	t.Parallel()
	if !enter(t) {
		return
	}
	w, other := newDocumented(t)
	blocks := w.blocks("VMs that programs register", 3)
	w.do(blocks[0])
	out := w.do(blocks[1])
	address := regexp.MustCompile(`inet (10\.0\.0\.\d+)/24`).FindStringSubmatch(out)
	if address == nil || !strings.Contains(out, "mtu 1400") {
		t.Fatalf("the VM's interface: got %s", out)
	}
	var vms []struct{ NICs []struct{ State string } }
	if err := json.Unmarshal([]byte(out[strings.LastIndex(out, "\n[")+1:]), &vms); err != nil || len(vms) != 1 || vms[0].NICs[0].State != "attached" {
		t.Errorf("the list: got %s, %v", out, err)
	}
	other.conf("web", "")
	box := other.container("box")
	ip := must[result](t)(other.tool("add", "web", box)).ip(t)
	if _, err := (netlab.Namespace{Dir: "/run/netns", Name: "web1"}).Ping(ip, 56, patience); err != nil {
		t.Errorf("ping of %s from %s: %v", ip, address[1], err)
	}
	must[result](t)(other.tool("del", "web", box))
	w.do(blocks[2])
	w.none()
}

// TestLifeDocument runs each command of the section about a VM's life, with busybox as what runs.
// A container of another node reaches the VM as soon as create has returned.
func TestLifeDocument(t *testing.T) {
	t.Parallel()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skipf("no busybox here: %v; Debian has it as busybox-static (scripts/debian-packages.txt)", err)
	}
	if !enter(t) {
		return
	}
	w, other := newDocumented(t)
	w.open()
	root := "/var/lib/rutter-vms/web0"
	if err := errors.Join(os.MkdirAll("/var/lib/rutter-vms", 0o700), os.MkdirAll(root+"/usr/sbin", 0o755), copyProgram(busybox, root+"/usr/sbin/httpd")); err != nil {
		t.Fatal(err)
	}
	script := strings.ReplaceAll(w.blocks("A VM's life", 1)[0][1], "\\\n", "")
	id := ""
	for line := range strings.Lines(script) {
		if id != "" {
			line = regexp.MustCompile(`\bUUID\b`).ReplaceAllString(line, id)
		}
		out := w.do([2]string{"sh node", line})
		t.Logf("%s%s", line, out)
		if id != "" || !strings.Contains(line, " create ") {
			continue
		}
		id = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).FindString(out)
		nics := must[[]map[string]any](t)(w.w.cluster.Client.List(t.Context(), "/nics", map[string][]string{"belongs_to_uuid": {id}}))
		if len(nics) != 1 {
			t.Fatalf("the NICs of VM %q are %v: %s", id, nics, out)
		}
		other.conf("web", "")
		box := other.container("box")
		must[result](t)(other.tool("add", "web", box))
		if _, err := box.Ping(netip.MustParseAddr(nics[0]["ip"].(string)), 56, patience); err != nil {
			t.Errorf("ping of the VM: %v", err)
		}
	}
	w.none()
}

// TestMachineDocument runs the command of the section about machines of QEMU, with an empty disk
// and by emulation: QEMU opens the disk and the tap, and create returns when the tap is a port.
func TestMachineDocument(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skipf("no QEMU here: %v; Debian has it as qemu-system-x86 (scripts/debian-packages.txt)", err)
	}
	if !enter(t) {
		return
	}
	w, _ := newDocumented(t)
	w.open()
	disk := "/var/lib/rutter-vms/db0.qcow2"
	if err := errors.Join(os.Mkdir(filepath.Dir(disk), 0o700), os.WriteFile(disk, emptyQCOW2(), 0o600)); err != nil {
		t.Fatal(err)
	}
	script := strings.Replace(w.blocks("Machines of QEMU", 1)[0][1], "brand=kvm", "brand=kvm accel=tcg", 1)
	id := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).FindString(w.do([2]string{"sh node", script}))
	var vm struct {
		QEMUState string `json:"qemu_state"`
		NICs      []struct{ Attach struct{ Device string } }
	}
	w.until("QEMU runs", func() error {
		out, err := w.run(t.Context(), w.env, "rutter vm get "+id, "sh")
		if err = errors.Join(err, json.Unmarshal([]byte(out), &vm)); err == nil && vm.QEMUState != "running" {
			err = fmt.Errorf("got %s", out)
		}
		return err
	})
	if out := w.do([2]string{"sh node", "ip link show master br7v0 dev " + vm.NICs[0].Attach.Device}); !strings.Contains(out, "mtu 1400") {
		t.Errorf("the tap: got %s", out)
	}
	w.do([2]string{"sh node", "rutter vm stop --force " + id + "; rutter vm delete --wait=fabric " + id})
	w.none()
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
