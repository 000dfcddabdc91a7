package provision

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

var (
	cn      = log.UUID{0xc, 15: 1}
	network = log.UUID{0xe, 15: 1}
	owner   = log.UUID{0xa, 15: 1}
	vm      = log.UUID{0xb, 15: 1}
)

// bed is a log with one node and one network, of which each change is a second later.
type bed struct {
	t     *testing.T
	state *projections.State
	seq   log.Seq
	n     byte
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, state: projections.NewState()}
	b.do(&log.NICTag{Name: "ext", MTU: 1500}, "mtu name")
	b.do(&log.Network{
		UUID: network, Name: "net", NICTag: "ext", MTU: 1500, Subnet: netip.MustParsePrefix("10.0.0.0/24"),
		ProvisionStart: netip.MustParseAddr("10.0.0.10"), ProvisionEnd: netip.MustParseAddr("10.0.0.250"),
	}, "mtu name nic_tag provision_end_ip provision_start_ip subnet uuid vlan_id")
	b.do(&log.Server{UUID: cn, Hostname: "cn1"}, "hostname uuid")
	return b
}

func (b *bed) change(ops ...log.Op) log.Result {
	b.t.Helper()
	b.n++
	c := &log.Change{ID: log.UUID{0xd, 15: b.n}, Time: log.Time(1e18) + log.Time(b.n)*1e9, Ops: ops}
	events, result := rules.Decide(b.state, c)
	if result.Refusal != nil {
		b.t.Fatalf("%+v", result.Refusal)
	}
	for _, e := range events {
		b.seq++
		if _, err := b.state.Apply(b.seq, e); err != nil {
			b.t.Fatal(err)
		}
	}
	return result
}

func (b *bed) do(o log.Object, set string) {
	b.t.Helper()
	b.change(log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o})
}

// provisions writes NICs of the VM with a task, and the VM itself if it is new, as CNAPI
// and VMAPI do. It returns the task's id and the NICs' MACs.
func (b *bed) provisions(isNew bool) (task string, macs []string) {
	b.t.Helper()
	raw := json.RawMessage(`["` + network.String() + `"]`)
	networks, err := Networks(raw)
	if err != nil {
		b.t.Fatal(err)
	}
	nics, err := NICs(&log.VM{UUID: vm, OwnerUUID: owner, ServerUUID: cn}, networks, isNew)
	if err != nil {
		b.t.Fatal(err)
	}
	list, err := Draw(nics)
	if err != nil {
		b.t.Fatal(err)
	}
	params := map[string]any{"uuid": vm, "networks": raw, "add_nics": list}
	name, ops := UpdateTask, nics
	if isNew {
		name, params = CreateTask, map[string]any{"uuid": vm, "networks": raw, "nics": list}
		ops = append([]log.Op{{Action: log.Create, Kind: log.KindVM, Set: []string{"owner_uuid", "server_uuid", "state", "uuid"}, Object: &log.VM{UUID: vm, OwnerUUID: owner, ServerUUID: cn, State: Unmade}}}, nics...)
	}
	text, err := json.Marshal(params)
	if err != nil {
		b.t.Fatal(err)
	}
	ops = append(ops, log.Op{Action: log.Create, Kind: log.KindTask, Set: []string{"params", "server_uuid", "task"}, Object: &log.Task{Task: name, ServerUUID: cn, Params: string(text)}})
	result := b.change(ops...)
	for _, op := range nics {
		macs = append(macs, op.Object.ID())
	}
	return result.IDs[len(ops)-1], macs
}

func (b *bed) fails(task string) {
	b.t.Helper()
	b.change(log.Op{Action: log.Update, Kind: log.KindTask, ID: task, Set: []string{"failure", "status"}, Object: &log.Task{Status: log.TaskFailure, Failure: "no"}})
}

// free does what is to be freed, and wants so many changes.
func (b *bed) free(want int, why string) {
	b.t.Helper()
	list := Freed(b.state, 16)
	if len(list) != want {
		b.t.Fatalf("%s: %d are to be freed, want %d: %+v", why, len(list), want, list)
	}
	for _, one := range list {
		b.change(one.Ops...)
	}
}

func (b *bed) has(kind log.Kind, id string) bool {
	_, ok := b.state.Get(kind, id)
	return ok
}

// TestFreed: what was made for a task is freed when the task has failed;
// what the node has told of, and what is younger than the task, stays.
func TestFreed(t *testing.T) {
	b := newBed(t)
	task, macs := b.provisions(true)
	b.free(0, "the task is open")
	b.fails(task)
	b.free(1, "the task has failed")
	if b.has(log.KindVM, vm.String()) || b.has(log.KindNIC, macs[0]) {
		t.Error("the VM or its NIC is left")
	}
	b.free(0, "it is freed")
	// The same VM is asked for again: the failure before is not its own.
	task, macs = b.provisions(true)
	b.free(0, "the VM is another, of a task that is open")
	b.change(log.Op{Action: log.Update, Kind: log.KindVM, ID: vm.String(), Set: []string{"state"}, Object: &log.VM{State: "running"}})
	b.fails(task)
	b.free(0, "the node knows the VM")
	if !b.has(log.KindVM, vm.String()) || !b.has(log.KindNIC, macs[0]) {
		t.Error("a VM that runs is freed")
	}
}

// TestFreedNICs: the same of NICs that were added, and of NICs that were removed before
// their node told of them.
func TestFreedNICs(t *testing.T) {
	b := newBed(t)
	b.do(&log.VM{UUID: vm, OwnerUUID: owner, ServerUUID: cn, State: "running"}, "owner_uuid server_uuid state uuid")
	task, macs := b.provisions(false)
	_, others := b.provisions(false)
	b.fails(task)
	b.free(1, "the task has failed")
	if b.has(log.KindNIC, macs[0]) || !b.has(log.KindNIC, others[0]) || !b.has(log.KindVM, vm.String()) {
		t.Error("want the NIC of the task that failed freed, and nothing else")
	}
	task, macs = b.provisions(false)
	b.change(log.Op{Action: log.Update, Kind: log.KindNIC, ID: macs[0], Set: []string{"state"}, Object: &log.NIC{State: "running"}})
	b.fails(task)
	b.free(0, "the node has told of the NIC")
	for _, mac := range []string{macs[0], others[0]} {
		result := b.change(log.Op{Action: log.Create, Kind: log.KindTask, Set: []string{"params", "server_uuid", "task"}, Object: &log.Task{Task: UpdateTask, ServerUUID: cn, Params: `{"remove_nics":["` + mac + `"],"uuid":"` + vm.String() + `"}`}})
		b.change(log.Op{Action: log.Update, Kind: log.KindTask, ID: result.IDs[0], Set: []string{"claimed_by", "status"}, Object: &log.Task{ClaimedBy: 1, Status: log.TaskActive}})
		b.change(log.Op{Action: log.Update, Kind: log.KindTask, ID: result.IDs[0], Set: []string{"claimed_by", "status"}, Object: &log.Task{ClaimedBy: 1, Status: log.TaskComplete}})
	}
	b.free(1, "the NIC that no node has told of")
	if b.has(log.KindNIC, others[0]) || !b.has(log.KindNIC, macs[0]) {
		t.Error("want the node to delete the NIC that it has told of")
	}
}
