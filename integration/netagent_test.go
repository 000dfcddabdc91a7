package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/log"
)

// netAgent is the world of the cases: VMs of one compute node, whose agent does
// what net-agent does (spec/net-agent.md §2.6).
type netAgent struct {
	*vmNode
	whole *testing.T // the test whose end the agent lives to see
	admin log.UUID   // network
	vm    log.UUID
	macs  int
}

// TestNetAgent: the acceptance cases of net-agent by their numbers, and those
// worth having from its history, with three servers and an agent as processes.
func TestNetAgent(t *testing.T) {
	t.Parallel()
	if !enterVMLab(t) {
		return
	}
	w := newVMWorld(t)
	a := &netAgent{vmNode: w.nodes[0], whole: t, admin: client.NewChangeID()}
	a.submit(
		log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"mtu", "name"}, Object: &log.NICTag{Name: "admin", MTU: 1500}},
		log.Op{
			Action: log.Create, Kind: log.KindNetwork, Set: strings.Fields("mtu name nic_tag provision_end_ip provision_start_ip subnet uuid"),
			Object: &log.Network{UUID: a.admin, Name: "admin", NICTag: "admin", MTU: 1500, Subnet: netip.MustParsePrefix("10.1.0.0/24"), ProvisionStart: netip.MustParseAddr("10.1.0.5"), ProvisionEnd: netip.MustParseAddr("10.1.0.200")},
		})
	for _, c := range []struct {
		name string
		run  func(*netAgent, *testing.T)
	}{
		{"02 admin NICs get the admin network", (*netAgent).adminNIC},
		{"03 a NIC that the log does not know", (*netAgent).unknownNIC},
		{"04 spoofing in the log", (*netAgent).spoofing},
		{"05 06 07 gateway, resolvers and routes of the network", (*netAgent).network},
		{"08 09 a VM stops, and its NIC is said to be elsewhere", (*netAgent).stops},
		{"10 another owner", (*netAgent).owner},
		{"11 12 13 NICs come, are primary, and go", (*netAgent).localNICs},
		{"14 a NIC is deleted in the log", (*netAgent).remoteDelete},
		{"a restarted agent changes nothing", (*netAgent).restart},
		{"do_not_inventory, provisioning and no_nic_resolvers", (*netAgent).handsOff},
		{"a MAC that belongs to another VM", (*netAgent).duplicate},
		{"the rule of updates on the command line", (*netAgent).rule},
		{"01 a node's own NICs", (*netAgent).host},
		{"01 bonds", (*netAgent).bonds},
		{"NIC PUT 404", (*netAgent).goneMeanwhile},
		{"release during refresh", (*netAgent).releasedMeanwhile},
		{"model loop, networks always changing", (*netAgent).quietModel},
		{"refresh storms", (*netAgent).storms},
		{"VMs as vminfod of SmartOS shows them", (*netAgent).smartOSForm},
		{"VMs by tasks", (*netAgent).tasks},
		{"VMs whose networks are given", (*netAgent).networksGiven},
		{"VMs that VMAPI makes", (*netAgent).madeByVMAPI},
		{"commands by tasks", (*netAgent).commands},
		{"15 a VM is deleted", (*netAgent).deleteVM},
	} {
		if !t.Run(c.name, func(t *testing.T) {
			outer := w.t
			defer func() { w.t = outer }()
			w.t = t
			c.run(a, t)
		}) {
			break
		}
	}
}

func (a *netAgent) submit(ops ...log.Op) {
	a.t.Helper()
	if _, err := a.c.Client.Submit(a.t.Context(), &log.Change{ID: client.NewChangeID(), Ops: ops}); err != nil {
		a.t.Fatal(err)
	}
}

func (a *netAgent) newMAC() string {
	a.macs++
	return fmt.Sprintf("90:b8:d0:00:01:%02x", a.macs)
}

// manifest reads a VM's manifest.
func (a *netAgent) manifest(vm log.UUID) (m struct {
	Resolvers []string
	Routes    map[string]string
	NICs      []map[string]any
},
) {
	text, err := os.ReadFile(filepath.Join(a.dir, "vms", vm.String()+".json"))
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return m
}

// local is a field of a NIC in its VM's manifest; "" if it is not there.
func (a *netAgent) local(vm log.UUID, mac, field string) string {
	for _, nic := range a.manifest(vm).NICs {
		if nic["mac"] == mac && nic[field] != nil {
			return fmt.Sprint(nic[field])
		}
	}
	return ""
}

// logged waits until the log has fields of a NIC so, at a server.
func (a *netAgent) logged(mac string, want map[string]string) {
	a.t.Helper()
	path := "/nics/" + strings.ReplaceAll(mac, ":", "")
	for name, value := range want {
		a.awaits("NIC "+mac+": "+name, value, func() string { return a.value(path, name) })
	}
}

func (a *netAgent) hasLocal(vm log.UUID, mac string, want map[string]string) {
	a.t.Helper()
	for name, value := range want {
		a.awaits("manifest: NIC "+mac+": "+name, value, func() string { return a.local(vm, mac, name) })
	}
}

func (a *netAgent) awaits(what, want string, get func() string) {
	a.t.Helper()
	got := get()
	for end := time.Now().Add(vmPatience); got != want; got = get() {
		if time.Now().After(end) {
			out, _ := a.rutter("agent", "status")
			a.t.Fatalf("%s: got %q, want %q\n%s", what, got, want, out)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (a *netAgent) put(path, body string) {
	a.t.Helper()
	if _, err := a.c.Client.Raw(a.t.Context(), "PUT", path, []byte(body)); err != nil {
		a.t.Fatalf("PUT %s: %v", path, err)
	}
}

func (a *netAgent) adminNIC(*testing.T) {
	mac := a.newMAC()
	vm := a.plain("admin0", fmt.Sprintf(`nics=[{"mac":%q,"nic_tag":"admin","ips":["10.1.0.20/24"]}]`, mac))
	a.logged(mac, map[string]string{"network_uuid": a.admin.String(), "cn_uuid": a.cn.String(), "belongs_to_uuid": vm.String(), "ip": "10.1.0.20"})
	a.hasLocal(vm, mac, map[string]string{"network_uuid": a.admin.String(), "mtu": "1500", "netmask": "255.255.255.0"})
	// The network is on no fabric, so there is no link of it to wait for.
	a.must("vm", "start", vm.String(), "--wait=cluster")
	a.visibleEverywhere(vm, "running")
	a.must("vm", "delete", vm.String())
}

func (a *netAgent) unknownNIC(*testing.T) {
	mac := a.newMAC()
	a.vm = a.plain("web0", fmt.Sprintf(`nics=[{"mac":%q,"nic_tag":"u/7","vlan_id":0,"ip":"10.0.0.50","primary":true}]`, mac))
	a.must("vm", "start", a.vm.String())
	a.logged(mac, map[string]string{
		"belongs_to_type": "zone", "belongs_to_uuid": a.vm.String(), "owner_uuid": a.vmNode.vmWorld.owner.String(), "cn_uuid": a.cn.String(),
		"state": "running", "network_uuid": a.vmNode.vmWorld.network.String(), "nic_tag": "u/7", "ip": "10.0.0.50", "primary": "true",
	})
	a.hasLocal(a.vm, mac, map[string]string{"network_uuid": a.vmNode.vmWorld.network.String(), "mtu": "1400", "netmask": "255.255.255.0"})
}

// first is the MAC of the VM's first NIC.
func (a *netAgent) first() string { return fmt.Sprint(a.manifest(a.vm).NICs[0]["mac"]) }

func (a *netAgent) spoofing(*testing.T) {
	mac := a.first()
	a.put("/nics/"+mac, `{"allow_ip_spoofing":true,"allow_mac_spoofing":true}`)
	a.hasLocal(a.vm, mac, map[string]string{"allow_ip_spoofing": "true", "allow_mac_spoofing": "true"})
	a.put("/nics/"+mac, `{"allow_ip_spoofing":false}`)
	a.hasLocal(a.vm, mac, map[string]string{"allow_ip_spoofing": "false", "allow_mac_spoofing": "true"})
}

func (a *netAgent) network(*testing.T) {
	mac := a.first()
	a.put("/networks/"+a.vmNode.vmWorld.network.String(), `{"gateway":"10.0.0.1"}`)
	a.hasLocal(a.vm, mac, map[string]string{"gateway": "10.0.0.1", "gateways": "[10.0.0.1]"})
	a.put("/networks/"+a.vmNode.vmWorld.network.String(), `{"resolvers":["10.0.0.2","10.0.0.3"]}`)
	a.awaits("resolvers of the VM", "[10.0.0.2 10.0.0.3]", func() string { return fmt.Sprint(a.manifest(a.vm).Resolvers) })
	a.put("/networks/"+a.vmNode.vmWorld.network.String(), `{"routes":{"10.9.0.0/16":"10.0.0.4"}}`)
	a.awaits("routes of the VM", "map[10.9.0.0/16:10.0.0.4]", func() string { return fmt.Sprint(a.manifest(a.vm).Routes) })
	a.put("/networks/"+a.vmNode.vmWorld.network.String(), `{"routes":null}`)
	a.awaits("routes of the VM", "map[]", func() string { return fmt.Sprint(a.manifest(a.vm).Routes) })
}

func (a *netAgent) stops(*testing.T) {
	mac := a.first()
	a.must("vm", "stop", a.vm.String())
	a.logged(mac, map[string]string{"state": "stopped"})
	a.put("/nics/"+mac, fmt.Sprintf(`{"cn_uuid":%q}`, a.nodes[1].cn))
	a.must("vm", "start", a.vm.String())
	a.logged(mac, map[string]string{"state": "running", "cn_uuid": a.cn.String()})
}

func (a *netAgent) owner(*testing.T) {
	mac, owner := a.first(), client.NewChangeID()
	a.must("vm", "update", a.vm.String(), "owner_uuid="+owner.String())
	a.logged(mac, map[string]string{"owner_uuid": owner.String()})
	a.must("vm", "update", a.vm.String(), "owner_uuid="+a.vmNode.vmWorld.owner.String())
	a.logged(mac, map[string]string{"owner_uuid": a.vmNode.vmWorld.owner.String()})
}

// setNICs writes the list of the VM's NICs anew.
func (a *netAgent) setNICs(change func(nics []map[string]any) []map[string]any) {
	a.t.Helper()
	text, err := json.Marshal(change(a.manifest(a.vm).NICs))
	if err != nil {
		a.t.Fatal(err)
	}
	a.must("vm", "update", a.vm.String(), "nics="+string(text))
}

func (a *netAgent) localNICs(*testing.T) {
	old, mac := a.first(), a.newMAC()
	a.setNICs(func(nics []map[string]any) []map[string]any {
		return append(nics, map[string]any{"mac": mac, "nic_tag": "u/7", "ips": []string{"10.0.0.51/24"}})
	})
	a.logged(mac, map[string]string{"state": "running", "network_uuid": a.vmNode.vmWorld.network.String(), "primary": "false"})
	a.setNICs(func(nics []map[string]any) []map[string]any {
		nics[0]["primary"], nics[1]["primary"] = false, true
		return nics
	})
	a.logged(mac, map[string]string{"primary": "true"})
	a.logged(old, map[string]string{"primary": "false"})
	a.setNICs(func(nics []map[string]any) []map[string]any {
		nics[0]["primary"] = true
		return nics[:1]
	})
	a.awaits("the NIC that was removed", "true", func() string { return fmt.Sprint(strings.Contains(a.value("/nics/"+mac, "mac"), "nic not found")) })
	a.logged(old, map[string]string{"primary": "true"})
}

func (a *netAgent) remoteDelete(t *testing.T) {
	old, mac := a.first(), a.newMAC()
	a.setNICs(func(nics []map[string]any) []map[string]any {
		return append(nics, map[string]any{"mac": mac, "nic_tag": "u/7", "ips": []string{"10.0.0.52/24"}})
	})
	a.logged(mac, map[string]string{"state": "running"})
	a.hasLocal(a.vm, mac, map[string]string{"mtu": "1400"})
	a.await("the second NIC has its address", func() bool { return a.inKernel("10.0.0.52/24") })
	before := a.pid(a.vm)
	if _, err := a.c.Client.Raw(t.Context(), "DELETE", "/nics/"+old, nil); err != nil {
		t.Fatal(err)
	}
	a.awaits("NICs in the manifest", mac, func() string {
		var macs []string
		for _, nic := range a.manifest(a.vm).NICs {
			macs = append(macs, fmt.Sprint(nic["mac"]))
		}
		return strings.Join(macs, " ")
	})
	a.hasLocal(a.vm, mac, map[string]string{"primary": "true"})
	a.logged(mac, map[string]string{"primary": "true", "state": "running"})
	a.await("the VM is rebooted", func() bool {
		out, err := a.rutter("vm", "list", "state=running", "-o", "json")
		pid, gone := os.ReadFile(filepath.Join(a.dir, "run", a.vm.String()+".pid")) // while it is rebooted there is none
		return errors.Join(err, gone) == nil && strings.Contains(out, a.vm.String()) && strings.TrimSpace(string(pid)) != fmt.Sprint(before)
	})
	if got := a.value("/nics/"+old, "mac"); !strings.Contains(got, "nic not found") {
		t.Errorf("the NIC that was deleted is there again: %s", got)
	}
}

func (a *netAgent) await(what string, ok func() bool) {
	a.t.Helper()
	a.awaits(what, "true", func() string { return fmt.Sprint(ok()) })
}

// leaderHead is the leader's; an error while there is none.
func (a *netAgent) leaderHead() (log.Seq, error) {
	status, err := a.c.Client.Status(a.t.Context())
	if err != nil {
		return 0, err
	}
	for _, s := range a.c.Servers {
		if s.ID == status.LeaderID {
			status, err = a.c.Client.StatusOf(a.t.Context(), s.URL)
			return status.Head.Seq, err
		}
	}
	return 0, fmt.Errorf("nobody leads: %q", status.LeaderID)
}

// head is the log's, once nothing comes any more for a while.
func (a *netAgent) head() (seq log.Seq) {
	end := time.Now().Add(vmPatience)
	for quiet := 0; quiet < 25; quiet++ {
		now, err := a.leaderHead()
		switch {
		case time.Now().After(end):
			a.t.Fatalf("the log has no quiet head: %v", err)
		case err != nil || now != seq:
			seq, quiet = now, 0
		}
		time.Sleep(20 * time.Millisecond)
	}
	return seq
}

func (a *netAgent) restart(t *testing.T) {
	path := filepath.Join(a.dir, "vms", a.vm.String()+".json")
	a.head()
	nic := "/nics/" + a.first()
	modified := a.value(nic, "modified_timestamp")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	a.stopAgent()
	a.vmWorld.t = a.whole
	a.startAgent()
	a.vmWorld.t = t
	a.await("the agent has compared", func() bool {
		out, err := a.rutter("agent", "status", "-o", "json")
		return err == nil && strings.Contains(strings.ReplaceAll(out, " ", ""), `"settled":true`)
	})
	a.head()
	if after, err := os.Stat(path); err != nil || after.ModTime() != before.ModTime() {
		t.Errorf("the manifest was written at %s, then %s (%v) by an agent that had nothing to do", before.ModTime(), after.ModTime(), err)
	}
	if again := a.value(nic, "modified_timestamp"); again != modified {
		t.Errorf("the NIC was modified at %s, then %s, by an agent that had nothing to do", modified, again)
	}
}

func (a *netAgent) handsOff(t *testing.T) {
	mac := a.newMAC()
	vm := a.plain("moving0", fmt.Sprintf(`nics=[{"mac":%q,"nic_tag":"u/7","ips":["10.0.0.60/24"]}]`, mac), `internal_metadata={"no_nic_resolvers":true}`, `resolvers=["8.8.8.8"]`)
	a.logged(mac, map[string]string{"state": "stopped"})
	a.hasLocal(vm, mac, map[string]string{"mtu": "1400"})
	if got := a.manifest(vm).Resolvers; !slices.Equal(got, []string{"8.8.8.8"}) {
		t.Errorf("no_nic_resolvers: got resolvers %v", got)
	}
	a.must("vm", "update", vm.String(), "do_not_inventory=true")
	a.head()
	a.put("/nics/"+mac, `{"allow_ip_spoofing":true}`)
	a.head()
	if got := a.local(vm, mac, "allow_ip_spoofing"); got == "true" {
		t.Error("a VM with do_not_inventory was edited")
	}
	// Its manifest goes, as at the end of a migration: the NIC is not released.
	if err := os.Remove(filepath.Join(a.dir, "vms", vm.String()+".json")); err != nil {
		t.Fatal(err)
	}
	a.head()
	if got := a.value("/nics/"+mac, "belongs_to_uuid"); got != vm.String() {
		t.Errorf("the NIC of a VM that moved: %s", got)
	}
	making, other := client.NewChangeID(), a.newMAC()
	text := fmt.Sprintf(`{"uuid":%q,"owner_uuid":%q,"state":"provisioning","nics":[{"mac":%q,"nic_tag":"u/7","ips":["10.0.0.61/24"]}]}`, making, a.vmNode.vmWorld.owner, other)
	name := filepath.Join(a.dir, "vms", making.String()+".json")
	if err := errors.Join(os.WriteFile(name+".new", []byte(text), 0o600), os.Rename(name+".new", name)); err != nil {
		t.Fatal(err)
	}
	a.head()
	if got := a.value("/nics/"+other, "mac"); !strings.Contains(got, "nic not found") {
		t.Errorf("the NIC of a VM that is being made: %s", got)
	}
	if now, err := os.ReadFile(name); err != nil || string(now) != text {
		t.Errorf("the manifest of a VM that is being made: %s, %v", now, err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
}

func (a *netAgent) duplicate(t *testing.T) {
	mac := a.newMAC()
	theirs := client.NewChangeID()
	a.submit(
		log.Op{Action: log.Create, Kind: log.KindVM, Set: strings.Fields("owner_uuid server_uuid uuid"), Object: &log.VM{UUID: theirs, OwnerUUID: a.vmNode.vmWorld.owner, ServerUUID: a.nodes[1].cn}},
		log.Op{
			Action: log.Create, Kind: log.KindNIC, Set: strings.Fields("belongs_to_type belongs_to_uuid cn_uuid ip mac network_uuid owner_uuid state"),
			Object: &log.NIC{MAC: parseMAC(t, mac), BelongsToType: "zone", BelongsToUUID: theirs, CNUUID: a.nodes[1].cn, OwnerUUID: a.vmNode.vmWorld.owner, NetworkUUID: a.vmNode.vmWorld.network, IP: netip.MustParseAddr("10.0.0.70"), State: "running"},
		})
	vm := a.plain("double0", fmt.Sprintf(`nics=[{"mac":%q,"nic_tag":"u/7","ips":["10.0.0.71/24"]}]`, mac))
	a.await("the NIC is taken from the VM that took its MAC", func() bool { return len(a.manifest(vm).NICs) == 0 })
	a.logged(mac, map[string]string{"belongs_to_uuid": theirs.String(), "cn_uuid": a.nodes[1].cn.String(), "ip": "10.0.0.70"})
	a.must("vm", "delete", vm.String())
}

func parseMAC(t *testing.T, text string) log.MAC {
	mac, err := log.ParseMAC(text)
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

func (a *netAgent) rule(t *testing.T) {
	mac := a.first()
	for _, field := range []string{"netmask", "vlan_id", "nic_tag", "gateways"} {
		out, err := a.rutter("vm", "update", a.vm.String(), fmt.Sprintf(`update_nics=[{"mac":%q,%q:"9"}]`, mac, field))
		if err == nil || !strings.Contains(out, "update_nics.0."+field) || !strings.Contains(out, "PUT /networks/"+a.vmNode.vmWorld.network.String()) {
			t.Errorf("update of %s: %v, %s", field, err, out)
		}
	}
	for _, field := range []string{`resolvers=["8.8.8.8"]`, `routes={"10.7.0.0/16":"10.0.0.9"}`} {
		if out, err := a.rutter("vm", "update", a.vm.String(), field); err == nil || !strings.Contains(out, "PUT /networks/") {
			t.Errorf("update of %s: %v, %s", field, err, out)
		}
	}
	var status *client.Error
	for _, path := range []string{"/vms/" + a.vm.String(), "/vmapi/vms/" + a.vm.String() + "?action=update"} {
		if _, err := a.c.Client.Raw(t.Context(), "POST", path, fmt.Appendf(nil, `{"nics":[{"mac":%q,"netmask":"255.0.0.0"}]}`, mac)); err == nil || errors.As(err, &status) && status.Status != 409 || !strings.Contains(err.Error(), "nics.0.netmask") {
			t.Errorf("POST %s: %v", path, err)
		}
	}
	a.must("vm", "update", a.vm.String(), fmt.Sprintf(`update_nics=[{"mac":%q,"ips":["10.0.0.80/24"]}]`, mac))
	a.logged(mac, map[string]string{"ip": "10.0.0.80"})
	a.hasLocal(a.vm, mac, map[string]string{"ip": "10.0.0.80", "ips": "[10.0.0.80/24]"})
	if _, err := a.c.Client.Raw(t.Context(), "POST", "/vmapi/vms/"+a.vm.String()+"?action=update_nics", fmt.Appendf(nil, `{"nics":[{"mac":%q,"ips":["10.0.0.81"]}]}`, mac)); err != nil {
		t.Fatal(err)
	}
	a.hasLocal(a.vm, mac, map[string]string{"ip": "10.0.0.81", "ips": "[10.0.0.81/24]"})
	a.await("the kernel has the address", func() bool { return a.inKernel("10.0.0.81/24") })
}

func (a *netAgent) deleteVM(t *testing.T) {
	mac := a.first()
	a.must("vm", "stop", a.vm.String())
	if err := os.Remove(filepath.Join(a.dir, "vms", a.vm.String()+".json")); err != nil {
		t.Fatal(err)
	}
	a.await("its NIC is gone", func() bool { return strings.Contains(a.value("/nics/"+mac, "mac"), "nic not found") })
	a.await("the VM is gone, or said to be", func() bool {
		got := a.value("/vms/"+a.vm.String(), "state")
		return got == "destroyed" || strings.Contains(got, "vm not found")
	})
}
