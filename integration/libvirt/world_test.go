package libvirt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/rig"
	"rutter/integration/tinyguest"
	"rutter/log"
)

// program is the binary under test.
var program string

func TestMain(m *testing.M) { os.Exit(rig.Run(m, &program)) }

// patience bounds each wait, of a machine that may be busy.
const patience = 3 * time.Minute

// world is a server and two compute nodes with an agent and a libvirtd each. The second
// node has a VM beside that, the peer.
type world struct {
	t       *testing.T
	dir     string
	secure  bool // servers and nodes have certificates
	cluster *bench.Cluster
	owner   log.UUID
	network log.UUID
	nodes   []*node
	peer    netlab.Namespace
	peerIP  netip.Addr
	guest   tinyguest.Guest
}

// node is one compute node.
type node struct {
	w       *world
	name    string
	cn      log.UUID
	ns      netlab.Namespace
	dir     string
	agent   *subprocess.Process
	libvirt *subprocess.Process // the first process of its libvirtd's namespaces
}

// needs skips the test where a part of it is missing, and makes the guest.
func needs(t *testing.T) tinyguest.Guest {
	t.Helper()
	if testing.Short() {
		t.Skip("starts libvirtd and QEMU: skipped with -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("libvirtd changes users and mounts: run as root")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skipf("no taps here: %v", err)
	}
	return tinyguest.Build(t, t.TempDir(), "libvirtd", "virsh", "unshare", "ip")
}

// inside runs the test again in namespaces of its own, and reports whether it is there.
func inside(t *testing.T) bool {
	t.Helper()
	if netlab.Inside() {
		if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
			t.Fatal(err)
		}
		return true
	}
	err := netlab.Enter("-test.run=^"+t.Name()+"$", "-test.v=true").Run()
	if netlab.Forbidden(err) {
		t.Skip(netlab.ErrForbidden)
	}
	if err != nil {
		t.Fatal(err)
	}
	return false
}

func newWorld(t *testing.T, guest tinyguest.Guest, secure bool) *world {
	t.Helper()
	w := &world{t: t, secure: secure, guest: guest, dir: t.TempDir(), owner: client.NewChangeID(), network: client.NewChangeID(), peerIP: netip.MustParseAddr("10.0.0.11")}
	server := netip.MustParsePrefix("192.0.2.254/24")
	w.must(errors.Join(netlab.AddBridge("underlay"), netlab.AddAddress("underlay", server)))
	flags := []string{"--log-level=error"}
	if !secure {
		flags = append(flags, "--insecure")
	}
	w.cluster = rig.Cluster(t, bench.Options{Program: program, Servers: 1, TLS: secure, Dir: filepath.Join(w.dir, "cluster"), Host: server.Addr().String(), Flags: flags})
	for i := range 2 {
		w.nodes = append(w.nodes, w.newNode(i))
	}
	w.submit(w.objects()...)
	for _, n := range w.nodes {
		n.startAgent()
		n.startLibvirt()
	}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// until waits for a condition.
func (w *world) until(what string, is func() error) {
	w.t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = is(); err == nil {
			return
		}
	}
	w.t.Fatalf("%s: %v", what, err)
}

func (w *world) submit(ops ...log.Op) {
	w.t.Helper()
	_, err := w.cluster.Client.Submit(w.t.Context(), &log.Change{ID: client.NewChangeID(), Ops: ops})
	w.must(err)
}

func create(set string, o log.Object) log.Op {
	return log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o}
}

// objects are the networks, the nodes, and the peer.
func (w *world) objects() []log.Op {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	underlay, peer := client.NewChangeID(), client.NewChangeID()
	ops := []log.Op{
		create("mtu name", &log.NICTag{Name: "u", MTU: 1600}),
		create("mtu name nic_tag provision_end_ip provision_start_ip subnet uuid", &log.Network{UUID: underlay, Name: "u", NICTag: "u", MTU: 1600, Subnet: prefix("192.0.2.0/24"), ProvisionStart: addr("192.0.2.1"), ProvisionEnd: addr("192.0.2.250")}),
		create("dhcp fabric mtu name nic_tag owner_uuids provision_end_ip provision_start_ip subnet self_provision uuid vnet_id", &log.Network{
			UUID: w.network, Name: "front", NICTag: "u", DHCP: true, Fabric: true, VNetID: 7, MTU: 1400, OwnerUUIDs: []log.UUID{w.owner}, SelfProvision: "any",
			Subnet: prefix("10.0.0.0/24"), ProvisionStart: addr("10.0.0.20"), ProvisionEnd: addr("10.0.0.200"),
		}),
	}
	for i, n := range w.nodes {
		ops = append(ops,
			create("hostname uuid", &log.Server{UUID: n.cn, Hostname: n.name}),
			create("belongs_to_type belongs_to_uuid cn_uuid ip mac network_uuid owner_uuid underlay", &log.NIC{MAC: n.mac(i), BelongsToType: "server", BelongsToUUID: n.cn, CNUUID: n.cn, OwnerUUID: w.owner, NetworkUUID: underlay, Underlay: true, IP: n.addr(i)}))
	}
	var err error
	w.peer, err = netlab.Create(filepath.Join(w.nodes[1].dir, "netns"), peer.String())
	w.must(err)
	w.t.Cleanup(func() { _ = w.peer.Delete() })
	return append(ops,
		create("owner_uuid server_uuid state uuid", &log.VM{UUID: peer, OwnerUUID: w.owner, ServerUUID: w.nodes[1].cn, State: "running"}),
		create("belongs_to_type belongs_to_uuid cn_uuid ip mac network_uuid owner_uuid", &log.NIC{MAC: log.MAC{2, 5: 9}, IP: w.peerIP, BelongsToType: "zone", BelongsToUUID: peer, CNUUID: w.nodes[1].cn, OwnerUUID: w.owner, NetworkUUID: w.network}))
}

func (n *node) mac(i int) log.MAC     { return log.MAC{0, 0, 0x5e, 0, 0x53, byte(i + 1)} }
func (n *node) addr(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}) }

// newNode makes the namespace of a node, with its link to the underlay.
func (w *world) newNode(i int) *node {
	name := fmt.Sprintf("cn%d", i)
	n := &node{w: w, name: name, cn: client.NewChangeID(), dir: filepath.Join(w.dir, name)}
	for _, folder := range []string{"netns", "socket", "libvirt/hooks", "run", "lib", "cache", "log/qemu"} {
		w.must(os.MkdirAll(filepath.Join(n.dir, folder), 0o700))
	}
	if w.secure {
		_, err := (tlsgate.Issuer{Folder: filepath.Join(w.dir, "cluster", "pki")}).Issue(filepath.Join(n.dir, "tls"), tlsgate.Grant{Identity: matrix.Identity{Role: matrix.CN, UUID: n.cn}, Life: pki.Life})
		w.must(err)
	}
	var err error
	n.ns, err = netlab.Create(n.dir, name)
	w.must(err)
	w.t.Cleanup(func() { _ = n.ns.Delete() })
	out := fmt.Sprintf("v%d", i)
	w.must(errors.Join(netlab.AddVeth(out, "e0", n.ns, 1600), netlab.SetMaster(out, "underlay"), netlab.SetUp(out, true), n.ns.Do(func() error {
		return errors.Join(netlab.SetMAC("e0", n.mac(i)), netlab.SetUp("e0", true), netlab.AddAddress("e0", netip.PrefixFrom(n.addr(i), 24)))
	})))
	return n
}

// socket is the agent's, as the hook sees it at /run/rutter/agent.sock.
func (n *node) socket() string { return filepath.Join(n.dir, "socket", "agent.sock") }

// uri is that of the node's libvirtd.
func (n *node) uri() string {
	return "qemu+unix:///system?socket=" + filepath.Join(n.dir, "run/libvirt-sock")
}

func (n *node) startAgent() {
	n.w.t.Helper()
	n.agent = &subprocess.Process{
		Name: "agent of " + n.name, Program: program, LogFile: filepath.Join(n.dir, "agent.log"),
		Launch: func(cmd *exec.Cmd) error { return n.ns.Do(cmd.Start) },
		Args: []string{
			"agent", "--cn", n.cn.String(), "--data", filepath.Join(n.dir, "data"), "--svp", "off", "--listen", "off", "--socket", n.socket(),
			"--servers", strings.Join(n.w.cluster.Client.Servers(), ","), "--netns", filepath.Join(n.dir, "netns"), "--etc-netns", filepath.Join(n.dir, "etc"),
			"--port-security", "on", "--require-port-security", "--underlay-interface", "e0", "--vminfod", "127.0.0.1:9090", "--manifests", "off",
			"--libvirt", n.uri(),
		},
	}
	if n.w.secure {
		n.agent.Args = append(n.agent.Args, "--tls-dir", filepath.Join(n.dir, "tls"))
	} else {
		n.agent.Args = append(n.agent.Args, "--insecure")
	}
	rig.Start(n.w.t, n.agent)
}

// libvirtConf has libvirtd listen in the test's folder.
const libvirtConf = `auth_unix_rw = "none"
auth_unix_ro = "none"
unix_sock_group = "root"
host_uuid = "%s"
log_outputs = "3:stderr"
`

// qemuConf has QEMU run as root and without cgroups, so that libvirtd needs no systemd.
const qemuConf = `security_driver = "none"
cgroup_controllers = []
namespaces = []
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
stdio_handler = "file"
`

// enterLibvirt is the first process of a process namespace, so that a QEMU outlives its
// libvirtd, and what ends is not left behind. It gives libvirtd the node's folders at the
// places that are compiled into it; the hook is run as it is installed. A libvirtd that ends
// is started again when the file "again" is there.
const enterLibvirt = `set -e
trap 'exit 0' TERM
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/libvirt /run/rutter
mount --bind "$1/run" /run/libvirt
mount --bind "$1/socket" /run/rutter
mount --bind "$1/libvirt" /etc/libvirt
mount --bind "$1/lib" /var/lib/libvirt
mount --bind "$1/cache" /var/cache/libvirt
mount --bind "$1/log" /var/log/libvirt
mount -t tmpfs tmpfs /usr/local/bin
ln -s "$2" /usr/local/bin/rutter
hostname "$3"
while :; do
	libvirtd &
	echo started >"$1/up"
	wait || :
	until [ -e "$1/again" ]; do sleep 0.1; done
	rm "$1/again"
done
`

// startLibvirt starts the node's libvirtd.
func (n *node) startLibvirt() {
	n.w.t.Helper()
	hook, err := os.ReadFile("../../scripts/libvirt/qemu-hook")
	// /usr/bin is this machine's.
	hook = bytes.Replace(hook, []byte("/usr/bin/rutter"), []byte("/usr/local/bin/rutter"), 1)
	n.w.must(errors.Join(err,
		os.WriteFile(filepath.Join(n.dir, "libvirt/libvirtd.conf"), fmt.Appendf(nil, libvirtConf, n.cn), 0o600),
		os.WriteFile(filepath.Join(n.dir, "libvirt/qemu.conf"), []byte(qemuConf), 0o600),
		os.WriteFile(filepath.Join(n.dir, "libvirt/hooks/qemu"), hook, 0o700)))
	n.libvirt = &subprocess.Process{
		Name: "libvirtd of " + n.name, Program: "unshare", LogFile: filepath.Join(n.dir, "libvirtd.log"),
		Launch: func(cmd *exec.Cmd) error { return n.ns.Do(cmd.Start) },
		Args:   []string{"--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", enterLibvirt, "sh", n.dir, program, n.name + ".test"},
	}
	n.w.must(n.libvirt.Start())
	n.w.t.Cleanup(func() {
		first, _ := childOf(n.libvirt.PID(), "sh") // 0: it did not begin
		if err := n.libvirt.Stop(syscall.SIGKILL); err != nil {
			n.w.t.Error(err)
		}
		// The first process of a process namespace is gone when all others are.
		for end := time.Now().Add(patience); first != 0 && lives(first); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				n.w.t.Errorf("process %d of %s is left", first, n.libvirt.Name)
				break
			}
		}
		if n.w.t.Failed() {
			n.w.t.Logf("%s said last:\n%s", n.libvirt.Name, n.libvirt.Tail())
		}
	})
}

// lives reports whether a process has not ended.
func lives(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && !strings.Contains(string(text), "\nState:\tZ")
}

// killLibvirt kills the node's libvirtd; its QEMUs go on.
func (n *node) killLibvirt() {
	n.w.t.Helper()
	first, err := childOf(n.libvirt.PID(), "sh")
	n.w.must(err)
	daemon, err := childOf(first, "libvirtd")
	n.w.must(errors.Join(err, syscall.Kill(daemon, syscall.SIGKILL)))
	n.w.until("libvirtd is dead", func() error {
		if text, err := n.try("uri"); err == nil {
			return errors.New(text)
		}
		return nil
	})
}

// childOf is the child of a process that runs a program.
func childOf(pid int, program string) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		return 0, err
	}
	for field := range strings.FieldsSeq(string(text)) {
		name, err := os.ReadFile("/proc/" + field + "/comm")
		if err == nil && strings.TrimSpace(string(name)) == program {
			return strconv.Atoi(field)
		}
	}
	return 0, fmt.Errorf("process %d has no child %s", pid, program)
}

// restartLibvirt starts the node's libvirtd again.
func (n *node) restartLibvirt() { n.w.must(os.WriteFile(filepath.Join(n.dir, "again"), nil, 0o600)) }

// answers waits until the node's libvirtd answers.
func (n *node) answers() {
	n.w.t.Helper()
	n.w.until("libvirtd of "+n.name, func() error {
		_, err := n.try("uri")
		return err
	})
}

// try runs virsh.
func (n *node) try(args ...string) (string, error) {
	cmd := exec.Command("virsh", append([]string{"--connect", n.uri()}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	text, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("virsh %s: %w: %s", strings.Join(args, " "), err, text)
	}
	return string(text), err
}

func (n *node) virsh(args ...string) string {
	n.w.t.Helper()
	text, err := n.try(args...)
	n.w.must(err)
	return text
}

// rutter runs a command on the node.
func (n *node) rutter(args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "RUTTER_AGENT_SOCKET="+n.socket())
	var text []byte
	err := n.ns.Do(func() (err error) {
		text, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		err = fmt.Errorf("rutter %s: %w: %s", strings.Join(args, " "), err, text)
	}
	return string(text), err
}

// domain is a domain with a NIC on the network, and its console.
type domain struct {
	w       *world
	id      log.UUID
	name    string
	console string
}

// domainXML is the form of docs/vms.md, with a guest of the test.
const domainXML = `<domain type='qemu'>
  <name>%[1]s</name>
  <uuid>%[2]s</uuid>
  <metadata>
    <rutter:vm xmlns:rutter='urn:rutter:libvirt:1' owner='%[3]s'>
      <rutter:nic dev='%[1]s' network='%[8]s'/>
    </rutter:vm>
  </metadata>
  <memory unit='MiB'>96</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
    <kernel>%[4]s</kernel>
    <initrd>%[5]s</initrd>
    <cmdline>%[6]s</cmdline>
  </os>
  <features><acpi/></features>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <interface type='ethernet'>
      <target dev='%[1]s' managed='no'/>
      <mtu size='1400'/>
      <model type='virtio'/>
      <rom enabled='no'/>
    </interface>
    <serial type='file'><source path='%[7]s'/></serial>
    <memballoon model='none'/>
  </devices>
</domain>
`

// define defines a domain on a node.
func (n *node) define(name string) *domain {
	n.w.t.Helper()
	d := &domain{w: n.w, id: client.NewChangeID(), name: name, console: filepath.Join(n.w.dir, name+".console")}
	text := fmt.Sprintf(domainXML, name, d.id, n.w.owner, n.w.guest.Kernel, n.w.guest.Initrd, tinyguest.Append+" "+tinyguest.Peer+n.w.peerIP.String(), d.console, n.w.network)
	file := filepath.Join(n.w.dir, name+".xml")
	n.w.must(os.WriteFile(file, []byte(text), 0o600))
	n.virsh("define", file)
	return d
}

// says waits until the guest has said something.
func (d *domain) says(what string) {
	d.w.t.Helper()
	d.w.until("the guest of "+d.name+" says "+what, func() error {
		text, err := os.ReadFile(d.console)
		if err == nil && !strings.Contains(string(text), what) {
			err = fmt.Errorf("it said %q", tail(string(text)))
		}
		return err
	})
}

func tail(text string) string { return text[max(0, len(text)-500):] }

// logged returns the VM and its NIC as the log has them.
func (d *domain) logged() (vm log.VM, nic log.NIC, err error) {
	if err := d.get("/vms/"+d.id.String(), &vm); err != nil {
		return vm, nic, err
	}
	var nics []log.NIC
	if err := d.get("/nics?belongs_to_uuid="+d.id.String(), &nics); err != nil {
		return vm, nic, err
	}
	if len(nics) != 1 {
		return vm, nic, fmt.Errorf("the log has %d NICs of %s, want 1", len(nics), d.name)
	}
	return vm, nics[0], nil
}

func (d *domain) get(path string, into any) error {
	text, err := d.w.cluster.Client.Raw(d.w.t.Context(), "GET", path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// is waits until the log has the VM in a state on a node.
func (d *domain) is(state string, n *node) (nic log.NIC) {
	d.w.t.Helper()
	d.w.until(fmt.Sprintf("%s is %s on %s", d.name, state, n.name), func() error {
		vm, its, err := d.logged()
		nic = its
		if err == nil && (vm.State != state || vm.ServerUUID != n.cn || its.CNUUID != n.cn) {
			err = fmt.Errorf("it is %s on %s, its NIC on %s", vm.State, vm.ServerUUID, its.CNUUID)
		}
		return err
	})
	return nic
}

// reached waits until the peer reaches an address.
func (w *world) reached(ip netip.Addr) {
	w.t.Helper()
	w.until("the peer reaches "+ip.String(), func() error {
		_, err := w.peer.Ping(ip, 56, time.Second)
		return err
	})
}

// placed makes a VMM of a domain on a node, which lets that node take it.
func (w *world) placed(d *domain, n *node) log.UUID {
	w.t.Helper()
	id := client.NewChangeID()
	w.submit(create("gen id instance_id sled_id state", &log.VMM{UUID: id, InstanceID: d.id, SledID: n.cn, State: "creating", Gen: 1}))
	return id
}

// run runs a program and returns what it prints.
func run(name string, args ...string) (string, error) {
	text, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, text)
	}
	return string(text), err
}
