package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"rutter/log"
)

// listing answers GET /vms with objects, and notes what is put.
func (b *bed) listing(objects ...string) (puts func() map[string]map[string]any) {
	b.answerWith(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" && r.URL.Path == "/vms" {
			_, _ = io.WriteString(w, "["+strings.Join(objects, ",")+"]")
			return
		}
		old(nil)(w, r)
	})
	return func() map[string]map[string]any {
		b.mu.Lock()
		defer b.mu.Unlock()
		all := make(map[string]map[string]any)
		for _, r := range b.got {
			if r.method == "PUT" {
				var form map[string]any
				if err := json.Unmarshal([]byte(r.body), &form); err != nil {
					b.t.Error(err)
				}
				all[strings.TrimPrefix(r.uri, "/vms/")] = form
			}
		}
		return all
	}
}

// round is one comparison of an outflow.
func (o *outflow) round(t *testing.T) *sending {
	t.Helper()
	out, err := o.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// stepped is what is sent after changes of the log.
func (out *sending) stepped(t *testing.T) (whole bool) {
	t.Helper()
	whole, err := out.step(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

// TestNeverInTheLog: a VM of a node with Rutter's agent that the log never had, because the
// agent has not reported it yet or the log refuses it, is not destroyed in the old VMAPI.
// One that went while another server led is.
func TestNeverInTheLog(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	puts := b.listing(object(freshVM, newCN, "running", "2026-01-01T00:00:00.000Z"), object(newVM, newCN, "running", "2026-01-01T00:00:00.000Z"))
	o := newOutflow(b.g)
	o.note(o.of(), nil, true, time.Now()) // as watch does on each server
	b.propose(log.Op{Action: log.Delete, Kind: log.KindVM, ID: newVM})
	o.round(t)
	got := puts()
	if form, put := got[freshVM]; put {
		t.Errorf("a VM that the log never had: %v", form["state"])
	}
	if got[newVM]["state"] != "destroyed" {
		t.Errorf("a VM that is gone: %v", got[newVM])
	}
	o.note(nil, nil, true, time.Now())
	o.note(nil, nil, true, time.Now().Add(2*seenFor))
	if len(o.seen) != 0 {
		t.Errorf("%d VMs are remembered without end", len(o.seen))
	}
}

// TestKeepsTheirs: what the log cannot have of a VM, because the cluster is of before
// properties or because it is too large, stays in the old VMAPI when the VM is put.
func TestKeepsTheirs(t *testing.T) {
	theirs := object(newVM, newCN, "running", "2026-01-01T00:00:00.000Z",
		`"tags":{"a":1},"customer_metadata":{"user-script":"long","k":"old"},"billing_id":"`+owner+`","snapshots":[{"name":"s"}]`)
	for _, feature := range []uint32{log.FeatureTriton - 1, log.FeatureTriton} {
		b := newBed(t, VMAPI, nil)
		b.store.SetFeature(feature)
		update := &log.VM{State: "stopped", Properties: `{"customer_metadata":{"k":"new"},"rutter_left_out":["customer_metadata.user-script","snapshots"]}`}
		set := []string{"properties", "state"}
		if feature < log.FeatureTriton {
			set, update.Properties = set[1:], ""
		}
		b.propose(log.Op{Action: log.Update, Kind: log.KindVM, ID: newVM, Set: set, Object: update})
		puts := b.listing(theirs)
		o := newOutflow(b.g)
		o.round(t)
		form := puts()[newVM]
		metadata, _ := form["customer_metadata"].(map[string]any)
		tags, _ := form["tags"].(map[string]any)
		list, _ := form["snapshots"].([]any)
		if form["state"] != "stopped" || metadata["user-script"] != "long" || len(list) != 1 {
			t.Errorf("feature %d: %v", feature, form)
		}
		want := map[bool]string{true: "old", false: "new"}[feature < log.FeatureTriton]
		if metadata["k"] != want || (len(tags) == 1) != (feature < log.FeatureTriton) {
			t.Errorf("feature %d: metadata %v, tags %v", feature, metadata, tags)
		}
	}
}

// many makes n VMs on the node with Rutter's agent.
func (b *bed) many(n int) (ids []string) {
	b.t.Helper()
	cn, err := log.ParseUUID(newCN)
	if err != nil {
		b.t.Fatal(err)
	}
	var ops []log.Op
	for i := range n {
		vm := &log.VM{UUID: log.UUID{0xaa, 6: 0x40, 8: 0x80, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}, OwnerUUID: cn, ServerUUID: cn, State: "running"}
		ids = append(ids, vm.ID())
		ops = append(ops, log.Op{Action: log.Create, Kind: log.KindVM, Set: []string{"owner_uuid", "server_uuid", "state", "uuid"}, Object: vm})
		if len(ops) == 500 || i == n-1 {
			b.propose(ops...)
			ops = nil
		}
	}
	return ids
}

// TestOutflowCost: after a change, only the VMs that it concerns are looked at: with 10,000
// VMs in the log it takes no more than with 10.
func TestOutflowCost(t *testing.T) {
	cost := func(n int) float64 {
		b := newBed(t, VMAPI, nil)
		ids := b.many(n)
		puts := b.listing()
		out := newOutflow(b.g).round(t)
		if got := len(puts()); got != n+1 { // and that of the bed
			t.Fatalf("at the start %d VMs were put, want %d", got, n+1)
		}
		b.mu.Lock()
		b.got = nil
		b.mu.Unlock()
		i := 0
		allocations := testing.AllocsPerRun(20, func() {
			b.propose(log.Op{Action: log.Update, Kind: log.KindVM, ID: ids[i%10], Set: []string{"quota"}, Object: &log.VM{Quota: uint64(i + 1)}})
			i++
			if out.stepped(t) {
				t.Error("everything was to be compared again")
			}
		})
		if got := puts(); len(got) != 10 {
			t.Errorf("%d VMs changed, and %d were put", 10, len(got))
		}
		return allocations
	}
	few, all := cost(10), cost(10_000)
	t.Logf("allocations of a change: %.0f with 10 VMs, %.0f with 10,000", few, all)
	if all > 2*few {
		t.Errorf("a change took %.0f allocations with 10 VMs, and %.0f with 10,000", few, all)
	}
}

// TestOutflowFollows: what is sent follows each change of a VM, of its NICs and of where it
// is; and everything is compared when what changed is not known: after entries that the
// log has no more, and when a node gets Rutter's agent or loses it.
func TestOutflowFollows(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	puts := b.listing()
	out := newOutflow(b.g).round(t)
	cn := func(text string) log.UUID {
		id, err := log.ParseUUID(text)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	update := func(kind log.Kind, id, set string, o log.Object) {
		t.Helper()
		b.propose(log.Op{Action: log.Update, Kind: kind, ID: id, Set: strings.Fields(set), Object: o})
	}
	if whole := out.stepped(t); whole || len(puts()) != 1 {
		t.Fatalf("nothing changed: %v %v", whole, puts())
	}
	b.propose(log.Op{Action: log.Create, Kind: log.KindNIC, Set: strings.Fields("belongs_to_type belongs_to_uuid mac owner_uuid"), Object: &log.NIC{
		MAC: log.MAC{2, 5: 7}, BelongsToType: "zone", BelongsToUUID: cn(newVM), OwnerUUID: cn(owner),
	}})
	out.stepped(t)
	if nics, _ := puts()[newVM]["nics"].([]any); len(nics) != 1 {
		t.Errorf("a NIC of it: %v", puts()[newVM]["nics"])
	}
	update(log.KindVM, oldVM, "state", &log.VM{State: "stopped"})
	out.stepped(t)
	if _, put := puts()[oldVM]; put {
		t.Error("a VM of a node without our agent was put")
	}
	update(log.KindServer, oldCN, "sysinfo", &log.Server{Sysinfo: `{"Rutter Agent":"1.0","UUID":"` + oldCN + `"}`})
	if !out.stepped(t) {
		t.Error("a node has got the agent, and its VMs are not looked at")
	}
	out = out.round(t)
	if puts()[oldVM]["state"] != "stopped" {
		t.Errorf("its VM: %v", puts()[oldVM])
	}
	update(log.KindServer, oldCN, "sysinfo", &log.Server{Sysinfo: `{"Rutter Agent":"1.1","UUID":"` + oldCN + `"}`})
	if out.stepped(t) {
		t.Error("a sysinfo of a node that has the agent already has everything compared")
	}
	update(log.KindVM, oldVM, "state", &log.VM{State: "running"})
	b.store.Compact()
	if !out.stepped(t) {
		t.Error("entries that are not there any more were passed over")
	}
	out = out.round(t)
	b.propose(log.Op{Action: log.Delete, Kind: log.KindNIC, ID: oldNIC}, log.Op{Action: log.Delete, Kind: log.KindVM, ID: oldVM})
	out.stepped(t)
	if puts()[oldVM]["state"] != "destroyed" {
		t.Errorf("its end: %v", puts()[oldVM]["state"])
	}
	b.store.Replace(t, b.store.Cluster(), b.store.Head().Seq-2, 0)
	if !out.stepped(t) {
		t.Error("the log became another, and nothing is compared")
	}
}
