package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"rutter/api/client"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/rig"
	"rutter/log"
)

// netHost is a compute node whose own NICs its agent keeps in step with the log.
type netHost struct {
	*netAgent
	admin log.UUID // who owns them
	tags  string   // the file of nic tags
}

// host: case 1, what a node itself has stands in the log and follows it there;
// and what is worth having from net-agent's history about it.
func (a *netAgent) host(t *testing.T) {
	n := a.newNode(5)
	h := &netHost{netAgent: &netAgent{vmNode: n, whole: a.whole}, admin: client.NewChangeID(), tags: filepath.Join(n.dir, "tags")}
	create := func(set string, o log.Object) log.Op {
		return log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o}
	}
	a.submit(create("hostname uuid", &log.Server{UUID: n.cn, Hostname: "cn5"}), create("mtu name", &log.NICTag{Name: "ext", MTU: 1500}),
		// Booter's placeholder for a node that it does not know yet.
		create("belongs_to_type belongs_to_uuid mac owner_uuid", &log.NIC{MAC: log.MAC{0, 0, 0x5e, 0, 0x54, 5}, BelongsToType: "other", BelongsToUUID: h.admin, OwnerUUID: h.admin}),
		// This one is a VM's, wherever that is.
		create("belongs_to_type belongs_to_uuid mac owner_uuid", &log.NIC{MAC: log.MAC{0, 0, 0x5e, 0, 0x55, 5}, BelongsToType: "zone", BelongsToUUID: client.NewChangeID(), OwnerUUID: a.vmWorld.owner}))
	h.ip("link", "add", "link", "e0", "name", "u0", "address", "00:00:5e:00:56:05", "type", "macvlan")
	h.ip("address", "add", "192.0.2.105/24", "dev", "u0")
	for name, mac := range map[string]string{"e1": "00:00:5e:00:54:05", "e2": "00:00:5e:00:55:05"} {
		h.ip("link", "add", name, "address", mac, "type", "veth", "peer", "name", "veth"+name)
		h.ip("link", "set", "veth"+name, "up")
	}
	h.tag("admin_tag=u\nu_nic=e0\n")
	h.startHost(t)
	h.logged("00:00:5e:00:53:05", map[string]string{
		"belongs_to_type": "server", "belongs_to_uuid": n.cn.String(), "cn_uuid": n.cn.String(), "owner_uuid": h.admin.String(),
		"state": "running", "nic_tags_provided": "[u]", "ip": "192.0.2.5", "nic_tag": "u",
	})
	h.logged("00:00:5e:00:56:05", map[string]string{"belongs_to_type": "server", "belongs_to_uuid": n.cn.String(), "ip": "192.0.2.105", "nic_tag": "u", "state": "stopped"})
	h.logged("00:00:5e:00:54:05", map[string]string{"belongs_to_type": "server", "belongs_to_uuid": n.cn.String(), "state": "stopped"})
	// A link, an address or the file of tags that changes is told at once: the
	// periodic look comes once a minute.
	h.ip("link", "set", "e1", "up")
	h.ip("link", "set", "u0", "up")
	h.logged("00:00:5e:00:54:05", map[string]string{"state": "running"})
	h.logged("00:00:5e:00:56:05", map[string]string{"state": "running"})
	h.tag("admin_tag=u\nu_nic=e0\next_nic=00:00:5e:00:54:05\n")
	h.logged("00:00:5e:00:54:05", map[string]string{"nic_tags_provided": "[ext]"})
	h.logged("00:00:5e:00:55:05", map[string]string{"belongs_to_type": "zone"})
	h.notPushedDown(t)
}

func (h *netHost) ip(args ...string) string {
	h.t.Helper()
	var out []byte
	err := h.ns.Do(func() (err error) {
		out, err = exec.Command("ip", args...).CombinedOutput()
		return err
	})
	if err != nil {
		h.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (h *netHost) tag(text string) {
	h.t.Helper()
	if err := os.WriteFile(h.tags+".new", []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(h.tags+".new", h.tags); err != nil {
		h.t.Fatal(err)
	}
}

// startHost starts the agent with a /sys of its namespace.
func (h *netHost) startHost(t *testing.T) {
	own := `mkdir "$KEPT" && mount --rbind /sys/fs/cgroup "$KEPT" && mount -t sysfs sysfs /sys && mount --rbind "$KEPT" /sys/fs/cgroup && exec "$0" "$@"`
	h.agent = &subprocess.Process{
		Name: "the agent of the host", Program: "/usr/bin/unshare", LogFile: filepath.Join(h.dir, "host.log"),
		Args: []string{
			"-m", "sh", "-c", own, program, "agent", "--cn", h.cn.String(), "--data", filepath.Join(h.dir, "agent"), "--svp", "off",
			"--servers", strings.Join(h.c.Client.Servers(), ","), "--admin-uuid", h.admin.String(), "--nic-tags", h.tags,
		},
		Env:    append(h.command().Env, "KEPT="+filepath.Join(h.dir, "cgroup")),
		Launch: func(cmd *exec.Cmd) error { return h.ns.Do(cmd.Start) },
	}
	rig.Start(t, h.agent)
}

// notPushedDown: what the log says of a node's own NICs changes nothing there;
// and one that is deleted there comes back.
func (h *netHost) notPushedDown(t *testing.T) {
	before := h.ip("-4", "-o", "address", "show", "dev", "u0")
	h.put("/nics/00:00:5e:00:56:05", `{"ip":"192.0.2.106","allow_ip_spoofing":true}`)
	if _, err := h.c.Client.Raw(t.Context(), "DELETE", "/nics/00:00:5e:00:54:05", nil); err != nil {
		t.Fatal(err)
	}
	h.logged("00:00:5e:00:54:05", map[string]string{"belongs_to_type": "server", "state": "running", "nic_tags_provided": "[ext]"})
	h.settled()
	h.logged("00:00:5e:00:56:05", map[string]string{"ip": "192.0.2.106"})
	if after := h.ip("-4", "-o", "address", "show", "dev", "u0"); after != before {
		t.Errorf("the node's addresses were %s, and are %s", before, after)
	}
	if s := h.nics(); s.Edits != 0 || s.Removed != 0 || !slices.ContainsFunc(s.Notes, func(note string) bool { return strings.Contains(note, "00:00:5e:00:55:05") }) {
		t.Errorf("the agent says %+v", s)
	}
}

// bonds: a bond is an aggregation, and its links keep their own addresses.
func (a *netAgent) bonds(t *testing.T) {
	n := a.newNode(6)
	h := &netHost{netAgent: &netAgent{vmNode: n, whole: a.whole}, admin: client.NewChangeID(), tags: filepath.Join(n.dir, "tags")}
	if err := h.ns.Do(exec.Command("ip", "link", "add", "bond0", "type", "bond", "mode", "802.3ad").Run); err != nil {
		t.Skip("the kernel has no bonds: module bonding")
	}
	a.submit(log.Op{Action: log.Create, Kind: log.KindServer, Set: []string{"hostname", "uuid"}, Object: &log.Server{UUID: n.cn, Hostname: "cn6"}})
	for name, mac := range map[string]string{"e1": "00:00:5e:00:54:06", "e2": "00:00:5e:00:55:06"} {
		h.ip("link", "add", name, "address", mac, "type", "veth", "peer", "name", "veth"+name)
		h.ip("link", "set", name, "master", "bond0")
	}
	h.tag("u_nic=e1\next_nic=e2\n")
	h.startHost(t)
	path := "/aggregations/" + n.cn.String() + "-bond0"
	h.awaits("the bond's links", "[00:00:5e:00:54:06 00:00:5e:00:55:06]", func() string { return h.value(path, "macs") })
	h.awaits("its mode", "active", func() string { return h.value(path, "lacp_mode") })
}

// nicStatus is what an agent says of NICs.
type nicStatus struct {
	Passes, Reports, Changes, Edits, Removed uint64
	Held                                     int
	Settled                                  bool
	Notes                                    []string
}

func (a *netAgent) nics() (s nicStatus) {
	a.t.Helper()
	var status struct{ VMs struct{ NICs nicStatus } }
	out := a.must("agent", "status", "-o", "json")
	if err := json.Unmarshal([]byte(out[max(strings.Index(out, "{"), 0):]), &status); err != nil { // what is before it is for people
		a.t.Fatalf("%v: %s", err, out)
	}
	return status.VMs.NICs
}

// settled waits until the agent finds nothing to do, and nothing comes any more.
func (a *netAgent) settled() nicStatus {
	a.t.Helper()
	a.head()
	a.await("the agent has nothing to do", func() bool { return a.nics().Settled })
	return a.nics()
}

// storms: servers that go and come, an agent that does, and news of what is no
// NIC's business cost a bounded number of reports, and no edit.
func (a *netAgent) storms(t *testing.T) {
	var nics []string
	for i := range 12 {
		nics = append(nics, fmt.Sprintf(`{"mac":%q,"nic_tag":"u/7","ips":["10.0.0.%d/24"]}`, a.newMAC(), 100+i))
	}
	vm := a.plain("many0", "nics=["+strings.Join(nics, ",")+"]")
	for _, nic := range a.manifest(vm).NICs {
		a.hasLocal(vm, fmt.Sprint(nic["mac"]), map[string]string{"mtu": "1400"})
	}
	before := a.settled()
	if before.Held < len(nics) {
		t.Fatalf("%d NICs are held, want %d or more", before.Held, len(nics))
	}
	network := "/networks/" + a.vmWorld.network.String()
	for i := range 5 { // what no VM has of its network
		a.put(network, fmt.Sprintf(`{"description":"seen %d"}`, i))
	}
	if after := a.settled(); after.Edits != before.Edits || after.Changes != before.Changes || after.Reports != before.Reports {
		t.Errorf("news of a network that concern no VM: %+v, then %+v", before, after)
	}
	leader := a.c.leader()
	a.c.signal(leader, syscall.SIGKILL)
	after := a.settled()
	a.c.start(leader)
	a.c.waitReady(leader)
	if after = a.settled(); after.Edits != before.Edits || after.Changes != before.Changes || after.Reports > before.Reports+maxStorm {
		t.Errorf("a leader that died and came back: %+v, then %+v", before, after)
	}
	a.stopAgent()
	a.vmWorld.t = a.whole
	a.startAgent()
	a.vmWorld.t = t
	a.await("the agent has compared", func() bool { s := a.nics(); return s.Settled && s.Held >= len(nics) })
	if after = a.settled(); after.Edits != 0 || after.Changes != 0 || after.Reports > maxStorm {
		t.Errorf("an agent that is started again: %+v", after)
	}
	a.must("vm", "delete", vm.String())
	for _, nic := range nics {
		mac := nic[len(`{"mac":"`):][:len("90:b8:d0:00:01:01")]
		a.await("NIC "+mac+" is gone", func() bool { return strings.Contains(a.value("/nics/"+mac, "mac"), "nic not found") })
	}
}

// maxStorm is how many reports may be made when nothing was there to report: a
// look at what a server may know better, and at what it then knows.
const maxStorm = 4

// goneMeanwhile: a NIC that is deleted in the log while the agent, which has it to
// change, does not see it (TRITON-1316): it is taken from the VM, not made again.
func (a *netAgent) goneMeanwhile(t *testing.T) {
	mac := a.newMAC()
	vm := a.plain("gone0", fmt.Sprintf(`nics=[{"mac":%q,"nic_tag":"u/7","ips":["10.0.0.120/24"]}]`, mac))
	a.hasLocal(vm, mac, map[string]string{"mtu": "1400"})
	a.settled()
	a.stopAgent()
	if _, err := a.c.Client.Raw(t.Context(), "DELETE", "/nics/"+mac, nil); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(a.dir, "vms", vm.String()+".json")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), a.vmWorld.owner.String(), client.NewChangeID().String(), 1)
	if err := errors.Join(os.WriteFile(name+".new", []byte(changed), 0o600), os.Rename(name+".new", name)); err != nil {
		t.Fatal(err)
	}
	a.vmWorld.t = a.whole
	a.startAgent()
	a.vmWorld.t = t
	a.await("the NIC is taken from the VM", func() bool { return len(a.manifest(vm).NICs) == 0 })
	a.settled()
	if got := a.value("/nics/"+mac, "mac"); !strings.Contains(got, "nic not found") {
		t.Errorf("the NIC that was deleted is there again: %s", got)
	}
	a.must("vm", "delete", vm.String())
}

// releasedMeanwhile: a VM goes while its NICs are being compared anew, because
// their network changes (TRITON-1395): they go, and stay away.
func (a *netAgent) releasedMeanwhile(t *testing.T) {
	mac := a.newMAC()
	vm := a.plain("brief0", fmt.Sprintf(`nics=[{"mac":%q,"nic_tag":"u/7","ips":["10.0.0.121/24"]}]`, mac))
	a.logged(mac, map[string]string{"state": "stopped"})
	network := "/networks/" + a.vmWorld.network.String()
	a.put(network, `{"resolvers":["10.0.0.4"]}`)
	a.put("/nics/"+mac, `{"allow_mac_spoofing":true}`)
	if err := os.Remove(filepath.Join(a.dir, "vms", vm.String()+".json")); err != nil {
		t.Fatal(err)
	}
	a.put(network, `{"resolvers":["10.0.0.5"]}`)
	a.await("its NIC is gone", func() bool { return strings.Contains(a.value("/nics/"+mac, "mac"), "nic not found") })
	a.put(network, `{"resolvers":["10.0.0.2"]}`)
	a.settled()
	if got := a.value("/nics/"+mac, "mac"); !strings.Contains(got, "nic not found") {
		t.Errorf("the NIC of the VM that went is there again: %s", got)
	}
}

// quietModel: a NIC without a model, and one whose model the log has, are no
// endless edit (TRITON-1193), nor are networks without what others have (1653).
func (a *netAgent) quietModel(t *testing.T) {
	plain, modelled := a.newMAC(), a.newMAC()
	vm := a.plain("model0", fmt.Sprintf(`nics=[{"mac":%q,"nic_tag":"u/7","ips":["10.0.0.122/24"]},{"mac":%q,"nic_tag":"admin","model":"virtio","ips":["10.1.0.30/24"]}]`, plain, modelled))
	a.hasLocal(vm, plain, map[string]string{"mtu": "1400", "model": ""})
	a.hasLocal(vm, modelled, map[string]string{"mtu": "1500", "model": "virtio"})
	a.logged(modelled, map[string]string{"model": "virtio"})
	before := a.settled()
	a.must("vm", "update", vm.String(), "quota=9") // it is compared again
	a.put("/networks/"+a.admin.String(), `{"description":"no gateway, no resolvers, no routes"}`)
	if after := a.settled(); after.Edits != before.Edits || after.Changes != before.Changes || after.Passes > before.Passes+50 {
		t.Errorf("a NIC without a model: %+v, then %+v", before, after)
	}
	a.must("vm", "delete", vm.String())
}
