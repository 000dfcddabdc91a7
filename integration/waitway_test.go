package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/log"
)

// patientWait is the time of a barrier that must be done, and briefWait that of one that
// must not.
const (
	patientWait = time.Minute
	briefWait   = 300 * time.Millisecond
)

// writer returns a client whose writes wait for the kernels, and the texts of what was not
// there after its last write.
func (w *wholeWay) writer(t *testing.T, await time.Duration) (api *client.Client, absent func() string) {
	t.Helper()
	var texts []string
	api, err := client.New(client.Config{Servers: w.c.Client.Servers(), Await: await, Absent: func(list []string) { texts = list }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	return api, func() string {
		defer func() { texts = nil }()
		return strings.Join(texts, "\n")
	}
}

// vmOn are the operations that make a VM of the agent's node with a NIC on a network.
func (w *wholeWay) vmOn(vm, network log.UUID, state string) []log.Op {
	nic := w.nic(w.local, vm)
	nic.Object.(*log.NIC).NetworkUUID = network
	return []log.Op{
		{Action: log.Create, Kind: log.KindVM, Set: strings.Fields("owner_uuid server_uuid state uuid"), Object: &log.VM{UUID: vm, OwnerUUID: w.owner, ServerUUID: w.local, State: state}},
		nic,
	}
}

// ownNetwork makes a network on a vnet on which only the agent's node will have NICs.
func (w *wholeWay) ownNetwork(t *testing.T, vnet uint32) log.UUID {
	t.Helper()
	id, at := client.NewChangeID(), byte(vnet)
	if _, err := w.c.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{{
		Action: log.Create, Kind: log.KindNetwork, Set: strings.Fields("fabric mtu name nic_tag owner_uuids provision_end_ip provision_start_ip subnet uuid vnet_id"),
		Object: &log.Network{
			UUID: id, Name: fmt.Sprint("own", vnet), NICTag: "u", Fabric: true, VNetID: vnet, MTU: 1400, OwnerUUIDs: []log.UUID{w.owner},
			Subnet:         netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16 + at%16, 0, 0}), 16),
			ProvisionStart: netip.AddrFrom4([4]byte{172, 16 + at%16, 0, 5}), ProvisionEnd: netip.AddrFrom4([4]byte{172, 16 + at%16, 250, 0}),
		},
	}}}); err != nil {
		t.Fatal(err)
	}
	return id
}

// TestBarrierWaitsForItsOwn: on a node with a VM that is made and not started, one whose
// namespace is late, one with a stale file of mode 000, a vnet whose number and port
// another program's device has, and a foreign link with the name of a device of ours, a
// write with wait=fabric waits for what it concerns only. One that concerns what is not
// there gives up with the VM, or the vnet, and the cause on that node; that of the VM that
// is not to run is done, and says what is not there.
func TestBarrierWaitsForItsOwn(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("no ip here: %v", err)
	}
	if !enterLab(t) {
		return
	}
	w := newWholeWay(t)
	own, blocked, foreign := w.ownNetwork(t, 8), w.ownNetwork(t, 9), w.ownNetwork(t, 10)
	for _, args := range []string{"link add other0 type vxlan id 9 local 192.0.2.1 dstport 4789", "link add sdcvxl10 type bridge"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	patient, absent := w.writer(t, patientWait)
	brief, _ := w.writer(t, briefWait)
	submit := func(api *client.Client, ops ...log.Op) error {
		_, err := api.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: ops})
		return err
	}
	stopped, late, stale, onBlocked, onForeign, good := client.NewChangeID(), client.NewChangeID(), client.NewChangeID(), client.NewChangeID(), client.NewChangeID(), client.NewChangeID()
	if err := os.WriteFile(filepath.Join(w.netns, stale.String()), nil, 0); err != nil {
		t.Fatal(err)
	}
	for _, vm := range []log.UUID{onBlocked, onForeign, good} {
		w.namespaceOf(t, vm)
	}

	// The VM that is not started: done, and it is said what is not there.
	if err := submit(patient, w.vmOn(stopped, own, "stopped")...); err != nil {
		t.Errorf("VM that is not started: %v", err)
	}
	if got := absent(); !strings.Contains(got, stopped.String()) || !strings.Contains(got, "not to run") || !strings.Contains(got, w.local.String()) {
		t.Errorf("VM that is not started: absent %q, want it, its node and why", got)
	}
	// Each that is held up by itself gives up with its own cause.
	for name, c := range map[string]struct {
		ops   []log.Op
		wants []string
	}{
		"late namespace":        {w.vmOn(late, own, "running"), []string{late.String(), "no such network namespace"}},
		"stale namespace":       {w.vmOn(stale, own, "running"), []string{stale.String(), "is a plain file of mode 0000"}},
		"vnet of another":       {w.vmOn(onBlocked, blocked, "running"), []string{"sdcvxl9", "file exists"}},
		"foreign link in a way": {w.vmOn(onForeign, foreign, "running"), []string{"sdcvxl10", "not ours"}},
	} {
		err := submit(brief, c.ops...)
		var pending *client.PendingError
		if !errors.As(err, &pending) {
			t.Fatalf("%s: got %v, want that it is written and missing", name, err)
		}
		var v client.Verdict
		w.until(t, name, func() (bool, string) { // the first answer may be from before the pass
			v, err = w.c.Client.Wait(t.Context(), client.Barrier{Seq: pending.Verdict.Seq, Timeout: briefWait})
			return err != nil || v.Done || len(v.Missing) == 1 && len(v.Missing[0].Objects) > 0, v.Missing[0].Reason
		})
		if err != nil || v.Done {
			t.Fatalf("%s: got %+v, %v, want that it is missing", name, v, err)
		}
		said := v.Missing[0].Reason
		for _, o := range v.Missing[0].Objects {
			said += "\n" + o.Object
		}
		for _, want := range c.wants {
			if !strings.Contains(said, want) {
				t.Errorf("%s: %q lacks %q", name, said, want)
			}
		}
		if v.Missing[0].CN != w.local {
			t.Errorf("%s: CN %s is missing, want %s", name, v.Missing[0].CN, w.local)
		}
	}
	// Nothing of these holds up another: a VM, a NIC more, an update of one, a network.
	if err := submit(patient, w.vmOn(good, own, "running")...); err != nil {
		t.Fatalf("VM beside them: %v", err)
	}
	if _, is := w.fabric(t, good.String()); !is {
		t.Error("the barrier was done, and the link is not there")
	}
	more := w.nic(w.local, good)
	more.Object.(*log.NIC).NetworkUUID = own
	if err := submit(patient, more); err != nil {
		t.Errorf("NIC more beside them: %v", err)
	}
	if got := absent(); got != "" {
		t.Errorf("another VM's links are named: %q", got)
	}
	// All of the node is another matter: what is missing is named.
	v, err := w.c.Client.Wait(t.Context(), client.Barrier{Scopes: []log.Scope{log.CNScope(w.local)}, Timeout: briefWait})
	if err != nil || v.Done || v.Total != 1 || v.Missing[0].Waiting < 4 {
		t.Errorf("all of the node: got %+v, %v, want four that are missing", v, err)
	}
	// A VM that is started is waited for, and done when its namespace is there.
	_, err = brief.Update(t.Context(), "/vms/"+stopped.String(), []byte(`{"state":"running"}`), "")
	var pending *client.PendingError
	if !errors.As(err, &pending) {
		t.Fatalf("VM that is started: %v, want that it is missing", err)
	}
	seq := pending.Verdict.Seq
	if v, err := w.c.Client.Wait(t.Context(), client.Barrier{Seq: seq, Timeout: briefWait}); err != nil || v.Done || !strings.Contains(v.Missing[0].Reason, stopped.String()) {
		t.Errorf("VM that is started: %+v, %v", v, err)
	}
	w.namespaceOf(t, stopped)
	if v, err := w.c.Client.Wait(t.Context(), client.Barrier{Seq: seq, Timeout: patientWait}); err != nil || !v.Done || len(v.Absent) != 0 {
		t.Errorf("VM that is started, with its namespace: %+v, %v", v, err)
	}
	if _, is := w.fabric(t, stopped.String()); !is {
		t.Error("the barrier was done, and the link of the started VM is not there")
	}
	w.shown(t)
}

// shown checks what the node's agent and its server show of the objects that wait.
func (w *wholeWay) shown(t *testing.T) {
	t.Helper()
	k := w.statusOf(t).Kernel
	if k.Waiting < 4 || len(k.Waits) != k.Waiting+k.Idle {
		t.Errorf("agent's status: %d waiting, %d listed, want at least four, and all listed", k.Waiting, len(k.Waits))
	}
	sessions, err := w.c.Client.EverySession(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sessions {
		if s.CN == w.local && (s.Waiting != k.Waiting || s.Reached <= s.Programmed || len(s.Waits) != s.Waiting+s.Idle) {
			t.Errorf("server's view: %d waiting, %d listed, reached %d, programmed %d, want %d", s.Waiting, len(s.Waits), s.Reached, s.Programmed, k.Waiting)
		}
	}
}

// notStarted: a VM that is made and not started is waited for where it can be seen, the
// neighbours of the other node; the result says what is not there. Started, its links are
// there when the command returns.
func (n *vmNode) notStarted() {
	n.t.Helper()
	out := n.must("vm", "create", "alias=later", "owner_uuid="+n.owner.String(), "max_physical_memory=64",
		fmt.Sprintf(`nics=[{"network_uuid":%q}]`, n.network), "--wait=fabric", "-o", "json")
	var done struct {
		UUID   log.UUID
		CNs    int
		Absent []client.Waiting
	}
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &done); err != nil || done.CNs != 2 || len(done.Absent) != 1 {
		n.t.Fatalf("vm create without --start said %s (%v), want two nodes, and one link that is not there", out, err)
	}
	if a := done.Absent[0]; a.VM != done.UUID || a.CN != n.cn || !a.Idle || !strings.Contains(a.Object, "not to run") {
		n.t.Errorf("absent: %+v, want the link of VM %s on %s", a, done.UUID, n.cn)
	}
	out = n.must("vm", "start", done.UUID.String(), "--wait=fabric", "-o", "json")
	if strings.Contains(out, "absent") {
		n.t.Errorf("vm start said %s, want nothing that is not there", out)
	}
	n.must("vm", "delete", done.UUID.String(), "--wait=fabric")
}
