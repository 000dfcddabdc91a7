package qemu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/cmd/rutter/netlab"
	"rutter/integration/tinyguest"
)

// TestQEMU: a machine of a real QEMU that emulates its processor boots Linux, gets its
// address by DHCP from the log and its MTU from the tap, reaches a VM on another node, and
// sends only as itself. Its packets flow on, and its process is the same, while the agent is
// killed and started again, and while all servers are killed. Then QMP follows it again: it
// is stopped by its power button, it switches itself off, and a killed QEMU is a failure, at
// every server.
func TestQEMU(t *testing.T) {
	t.Parallel()
	g := tinyguest.Build(t, t.TempDir())
	if !enter(t) {
		return
	}
	w := newWorld(t)
	other := w.nodes[1].create("alias=web1", "max_physical_memory=64")
	m := w.nodes[0].machine(g)
	c := m.console()
	m.everywhere("running")
	m.configures(c)
	m.writes(c)
	m.reaches(c, other)
	m.sendsAsItself(c, other)
	m.survives(c, other)
	m.hangs(c, other)
	m.stops()
	m.isRefusedToAnother()
	m.panics()
	m.switchesItselfOff()
	m.isKilled()
}

// machine makes a VM that QEMU runs.
func (n *node) machine(g tinyguest.Guest) *vm {
	n.t.Helper()
	disk := filepath.Join(n.dir, "db0.qcow2")
	if err := os.WriteFile(disk, qcow2(64<<20), 0o600); err != nil {
		n.t.Fatal(err)
	}
	return n.create("alias=db0", "brand=kvm", "accel=tcg", "ram=96", "vcpus=1", fmt.Sprintf(`disks=[{"path":%q,"format":"qcow2","boot":true}]`, disk),
		"kernel="+g.Kernel, "initrd="+g.Initrd, "append="+tinyguest.Append)
}

// qcow2 is an empty disk of that many bytes, at most 512 MiB, in QEMU's form qcow2
// (docs/interop/qcow2.txt of QEMU): a header, a table and a block of counts of references,
// and the first table of its clusters.
func qcow2(size uint64) []byte {
	const cluster = 64 << 10
	image := make([]byte, 4*cluster)
	order := binary.BigEndian
	copy(image, "QFI\xfb")
	order.PutUint32(image[4:], 2)          // version
	order.PutUint32(image[20:], 16)        // bits of a cluster
	order.PutUint64(image[24:], size)      // of the disk
	order.PutUint32(image[36:], 1)         // entries of the first table
	order.PutUint64(image[40:], 3*cluster) // where it is
	order.PutUint64(image[48:], cluster)   // where the table of counts is
	order.PutUint32(image[56:], 1)         // its clusters
	order.PutUint64(image[cluster:], 2*cluster)
	for i := range 4 {
		order.PutUint16(image[2*cluster+2*i:], 1)
	}
	return image
}

// writes: the guest has the size of the disk in the file, and not that of the file.
func (v *vm) writes(c *tinyguest.Console) {
	v.t.Helper()
	if got := c.Run("cat /sys/class/block/vda/size"); got != "131072" {
		v.t.Errorf("its disk has %s sectors, want those of 64 MiB", got)
	}
	c.Run("echo kept-on-disk | dd of=/dev/vda bs=512 seek=100000 conv=fsync 2>/dev/null")
}

// keeps: what was written is on its disk.
func (v *vm) keeps(c *tinyguest.Console) {
	v.t.Helper()
	if got := c.Run("dd if=/dev/vda bs=512 skip=100000 count=1 2>/dev/null | head -c 12; echo"); got != "kept-on-disk" {
		v.t.Errorf("its disk has %q", got)
	}
}

// console opens the serial console of the VM, when its guest is there.
func (v *vm) console() *tinyguest.Console {
	v.t.Helper()
	socket := filepath.Join(system.QEMUFolder(filepath.Join(v.node.dir, "run"), v.id), system.QEMUConsole)
	if info, err := os.Stat(filepath.Dir(socket)); err != nil || info.Mode().Perm() != 0o700 {
		v.t.Errorf("the folder of its sockets: %v, %v, want mode 0700", info, err)
	}
	// A socket's address has 107 bytes.
	link := filepath.Join("/run", strconv.Itoa(v.pid()))
	if err := os.Symlink(filepath.Dir(socket), link); err != nil {
		v.t.Fatal(err)
	}
	return tinyguest.Open(v.t, filepath.Join(link, system.QEMUConsole))
}

// configures: what the guest has of its network is the log's.
func (v *vm) configures(c *tinyguest.Console) {
	v.t.Helper()
	if got := c.Run("cat /sys/class/net/eth0/address"); got != v.mac.String() {
		v.t.Errorf("its MAC is %s, want %s", got, v.mac)
	}
	if got := c.Run("cat /sys/class/net/eth0/mtu"); got != strconv.Itoa(mtu) {
		v.t.Errorf("its MTU is %s, want %d", got, mtu)
	}
	c.Run(tinyguest.Lease)
	if got := c.Run("ip -4 -o addr show eth0"); !strings.Contains(got, v.ip.String()+"/24") {
		v.t.Errorf("its address by DHCP: %s, want %s", got, v.ip)
	}
	nic := v.field("nics").([]any)[0].(map[string]any)
	attach, _ := nic["attach"].(map[string]any)
	if attach["kind"] != vmdoc.AttachTap || attach["device"] != vmdoc.TapName(v.mac) {
		v.t.Errorf("its NIC is attached at %v", attach)
	}
	if got := v.field("qemu_state"); got != "running" {
		v.t.Errorf("QEMU says that it is %v", got)
	}
}

// reaches: packets pass both ways, as large as the MTU allows.
func (v *vm) reaches(c *tinyguest.Console, other *vm) {
	v.t.Helper()
	c.Run(pingFrom(other.ip))
	c.Run(fmt.Sprintf("until ping -c 1 -W 2 -s %d %s >/dev/null; do :; done", mtu-28, other.ip))
	v.t.Log("the guest reaches a VM of another node")
}

// pingFrom is a command of the guest that pings until it is answered.
func pingFrom(to netip.Addr) string {
	return fmt.Sprintf("until ping -c 1 -W 1 %s >/dev/null; do sleep 0.1; done", to)
}

// drops are the frames that port security dropped on the node.
func (v *vm) drops() uint64 {
	v.t.Helper()
	sum := uint64(0)
	for line := range strings.Lines(v.metrics()) {
		if strings.HasPrefix(line, "rutter_agent_port_drops_total{") && strings.Contains(line, v.mac.String()) {
			number := strings.Fields(line)
			n, _ := strconv.ParseUint(number[len(number)-1], 10, 64)
			sum += n
		}
	}
	return sum
}

// sendsAsItself: frames with another address of IP or of Ethernet are dropped at its port.
func (v *vm) sendsAsItself(c *tinyguest.Console, other *vm) {
	v.t.Helper()
	before := v.drops()
	c.Run("ip addr add 10.0.0.177/24 dev eth0")
	c.Fails(fmt.Sprintf("ping -c 1 -W 1 -I 10.0.0.177 %s >/dev/null", other.ip))
	c.Run("ip addr del 10.0.0.177/24 dev eth0")
	v.until("a frame with another IP address is counted as dropped", func() bool { return v.drops() > before })
	before = v.drops()
	c.Run("ip link set eth0 down; ip link set eth0 address 02:00:00:00:00:99; ip link set eth0 up")
	c.Fails(fmt.Sprintf("ping -c 1 -W 1 %s >/dev/null", other.ip))
	v.until("a frame with another MAC is counted as dropped", func() bool { return v.drops() > before })
	c.Run("ip link set eth0 down; ip link set eth0 address " + v.mac.String() + "; ip link set eth0 up")
	c.Run(pingFrom(other.ip))
}

// flows pings the machine from another VM until it answered several times.
func (v *vm) flows(from *vm, when string) {
	v.t.Helper()
	zone := netlab.Namespace{Dir: "/run/netns", Name: from.id.String()}
	answered := 0
	v.until("packets flow "+when, func() bool {
		if _, err := zone.Ping(v.ip, 56, time.Second); err == nil {
			answered++
		}
		return answered == 5
	})
}

// survives: neither the agent nor the servers are needed for packets, and QEMU outlives
// them.
func (v *vm) survives(c *tinyguest.Console, other *vm) {
	v.t.Helper()
	pid := v.pid()
	v.flows(other, "before")
	if err := v.agent.Stop(syscall.SIGKILL); err != nil {
		v.t.Fatal(err)
	}
	v.flows(other, "without the agent")
	for _, s := range v.c.Servers {
		if err := s.Stop(syscall.SIGKILL); err != nil {
			v.t.Fatal(err)
		}
	}
	v.flows(other, "without agent and servers")
	v.startAgent()
	v.flows(other, "with the agent from its own disk")
	v.until("QMP is taken up again", func() bool { return v.field("qemu_state") == "running" })
	for _, s := range v.c.Servers {
		if err := s.Start(); err != nil {
			v.t.Fatal(err)
		}
	}
	v.everywhere("running")
	c.Run(pingFrom(other.ip))
	if now := v.pid(); now != pid || pid == 0 {
		v.t.Errorf("its process was %d and is %d", pid, now)
	}
}

// hangs: beside a QEMU that answers nothing, an agent that starts makes other VMs, and does not
// take the one that hangs for ended; when QEMU goes on, so does the VM.
func (v *vm) hangs(c *tinyguest.Console, other *vm) {
	v.t.Helper()
	pid := v.pid()
	if err := errors.Join(syscall.Kill(pid, syscall.SIGSTOP), v.agent.Stop(syscall.SIGKILL)); err != nil {
		v.t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	v.startAgent()
	beside := v.create("alias=beside", "max_physical_memory=64")
	beside.everywhere("running")
	beside.flows(other, "beside a QEMU that hangs")
	if got := v.field("qemu_state"); got != "unknown" || v.field("state") != "running" {
		v.t.Errorf("QEMU, which answers nothing, is %v, and its VM %v", got, v.field("state"))
	}
	v.everywhere("running")
	v.must("vm", "stop", beside.id.String(), "--force")
	v.must("vm", "delete", beside.id.String())
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		v.t.Fatal(err)
	}
	v.until("QMP is taken up again", func() bool { return v.field("qemu_state") == "running" })
	c.Run(pingFrom(other.ip))
	v.flows(other, "after QEMU hung")
}

// ended waits until each server has a VMM of the VM ended, with its reason.
func (v *vm) ended(id, state, reason string) {
	v.t.Helper()
	for _, s := range v.c.Servers {
		v.until(fmt.Sprintf("%s has VMM %s", s.ID, state), func() bool { return v.at(s, "/vmms/"+id, "state") == state })
		if got := v.at(s, "/vmms/"+id, "reason"); reason != "" && !strings.Contains(got, reason) {
			v.t.Errorf("%s has the reason %q, want %q", s.ID, got, reason)
		}
	}
	v.everywhere("stopped")
}

// active is the id of the VM's VMM that has not ended.
func (v *vm) active() (id string) {
	v.t.Helper()
	v.until("the VM has a VMM in the log", func() bool {
		vmms, err := v.c.Client.List(v.t.Context(), "/vmms", map[string][]string{"instance_id": {v.id.String()}})
		for _, vmm := range vmms {
			if state := vmm["state"]; err == nil && state != "failed" && state != "destroyed" {
				id = fmt.Sprint(vmm["id"])
			}
		}
		return id != ""
	})
	return id
}

// stops: the guest sees its power button.
func (v *vm) stops() {
	v.t.Helper()
	vmm := v.active()
	v.must("vm", "stop", v.id.String(), "--wait=cluster")
	v.ended(vmm, "destroyed", "")
	if got := v.field("exit_reason"); got != vmdoc.GuestShutdown {
		v.t.Errorf("it ended by %v, want %s", got, vmdoc.GuestShutdown)
	}
}

func (v *vm) start() *tinyguest.Console {
	v.t.Helper()
	v.must("vm", "start", v.id.String())
	return v.console()
}

// switchesItselfOff: that is not a failure.
func (v *vm) switchesItselfOff() {
	v.t.Helper()
	c := v.start()
	v.keeps(c)
	vmm := v.active()
	_, _ = c.Try("poweroff -f", time.Second) // it does not answer any more
	v.ended(vmm, "destroyed", "")
}

// panics: a guest's kernel that cannot go on is a failure, with QEMU's own word for it.
func (v *vm) panics() {
	v.t.Helper()
	c := v.start()
	vmm := v.active()
	c.Panic()
	v.ended(vmm, "failed", "")
	if got := v.field("exit_reason"); got != vmdoc.GuestPanic {
		v.t.Errorf("it ended by %v, want %s", got, vmdoc.GuestPanic)
	}
}

// isRefusedToAnother: a QEMU that is told to take the tap of another VM does not get it,
// also while no process has it open.
func (v *vm) isRefusedToAnother() {
	v.t.Helper()
	tap := vmdoc.TapName(v.mac)
	if err := v.node.ns.Do(func() error { _, err := net.InterfaceByName(tap); return err }); err != nil {
		v.t.Fatalf("the tap of the VM: %v", err)
	}
	out, err := v.rutter("vm", "create", "alias=thief", "owner_uuid="+v.owner.String(), "brand=kvm", "accel=tcg", "ram=64", "vcpus=1",
		fmt.Sprintf(`qemu_extra_opts=["-netdev","tap,id=a,ifname=%s,script=no,downscript=no","-device","virtio-net-pci,netdev=a"]`, tap), "--start", "--wait=here")
	if err == nil || !strings.Contains(out, "tun") {
		v.t.Errorf("a QEMU with the tap of another VM: %v\n%s\nwant it refused", err, out)
	}
}

// isKilled: that is one.
func (v *vm) isKilled() {
	v.t.Helper()
	v.must("vm", "start", v.id.String())
	vmm := v.active()
	v.everywhere("running")
	if err := syscall.Kill(v.pid(), syscall.SIGKILL); err != nil {
		v.t.Fatal(err)
	}
	v.ended(vmm, "failed", "ended")
}
