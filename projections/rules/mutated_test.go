package rules

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/internal/worldtest"
)

// bases are operations whose bytes are mutated.
var bases = []string{
	`create nic_tag {"name": "external5", "mtu": 9000}`,
	`create network {"name": "n5", "nic_tag": "external", "subnet": "10.1.0.0/16", "provision_start_ip": "10.1.0.5", "provision_end_ip": "10.1.0.50", "gateway": "10.1.0.1", "routes": {"10.2.0.0/24": "10.1.0.1"}, "resolvers": ["10.1.0.2"]}`,
	`create network {"name": "n6", "nic_tag": "overlay", "subnet": "fd00::/64", "fabric": true, "owner_uuids": ["#3#"], "vlan_id": 2}`,
	`create nic {"belongs_to_type": "other", "belongs_to_uuid": "#60#", "owner_uuid": "#1#", "cn_uuid": "#11#", "network_uuid": "#31#"}`,
	`create nic {"belongs_to_type": "server", "belongs_to_uuid": "#11#", "owner_uuid": "#1#", "nic_tags_provided": ["external"], "ip": "10.0.0.7"}`,
	`create server {"uuid": "#71#", "hostname": "h"}`,
	`update server #11# {"hostname": "h2"}`,
	`create vm {"uuid": "#72#", "owner_uuid": "#1#", "server_uuid": "#11#", "state": "running"}`,
	`create vmm {"instance_id": "#72#", "sled_id": "#11#", "state": "running"}`,
	`create migration {"instance_id": "#72#"}`,
	`delete network #31#`,
	`create ip {"network_uuid": "#31#", "ip": "10.0.0.9", "reserved": true}`,
	`create network_pool {"name": "p", "networks": ["#31#", "#32#"]}`,
	`create fabric_vlan {"owner_uuid": "#3#", "vlan_id": 2, "name": "v"}`,
	`create aggregation {"name": "aggr0", "lacp_mode": "active", "macs": ["00:00:00:00:01:00"], "belongs_to_uuid": "#11#"}`,
	`create router {"owner_uuid": "#3#", "networks": ["#31#", "#32#"]}`,
	`create task {"server_uuid": "#11#", "task": "nop", "params": "{}"}`,
	`create ticket {"server_uuid": "#11#", "scope": "s", "id": "x"}`,
	`create setting {"name": "napi.network_immutable", "value": "true"}`,
	`create grant {"subject": "reader:x", "owner_uuids": ["#1#"]}`,
}

// TestMutatedChanges decides mutated changes against a settled world, under either
// feature version. Whatever they are: nothing panics; what is accepted makes
// events that fit the state and are read as they were written; what is refused has a
// result that can be read; and the state loaded from its rows is the same.
func TestMutatedChanges(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	accepted, decided := 0, 0
	for round := range 4 {
		w := worldtest.Settled(t, Decide)
		w.State.SetFeature(uint32(log.FeatureFirst + round%2))
		var all [][]byte
		for _, text := range bases {
			c := w.Change(changetest.Op(t, text))
			c.By = log.Author{Role: log.RoleTrusted}
			b, err := log.NewEncoder().Change(c)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b)
		}
		seq := log.Seq(len(w.Events))
		for range 2500 {
			raw := changetest.Mutate(rng, all[rng.IntN(len(all))], all)
			c, err := log.DecodeChange(raw)
			if err != nil {
				continue
			}
			c.By = log.Author{Role: log.RoleTrusted}
			decided++
			n := follow(t, w.State, seq, c)
			seq += log.Seq(n)
			accepted += min(n, 1)
			if t.Failed() {
				t.Fatalf("round %d, change %x", round, raw)
			}
		}
		sameLoaded(t, w.State)
	}
	if accepted < decided/50 {
		t.Errorf("only %d of %d changes were accepted: the test sees too little", accepted, decided)
	}
}

// follow decides and applies a change, and returns how many events it made.
func follow(t *testing.T, s *projections.State, seq log.Seq, c *log.Change) int {
	t.Helper()
	encoder := log.NewEncoder()
	again, err := encoder.Change(c)
	if err != nil {
		return 0 // over a limit
	}
	if c, err = log.DecodeChange(again); err != nil {
		t.Errorf("what was read is written as something that cannot be read: %v", err)
		return 0
	}
	events, result := Decide(s, c)
	b, err := encoder.Result(&result)
	if err != nil {
		t.Error(err)
	}
	if _, err := log.DecodeResult(b); err != nil {
		t.Errorf("the result: %v", err)
	}
	if result.Refusal != nil {
		return 0
	}
	if err := s.Fits(seq+1, events); err != nil {
		t.Error(err)
		return 0
	}
	for _, e := range events {
		encoded, body, err := encoder.EventAndBody(e)
		if err != nil {
			t.Error(err)
			return 0
		}
		read, err := log.DecodeEvent(encoded)
		if err != nil {
			t.Errorf("event: %v", err)
			return 0
		}
		if back, err := encoder.Event(read); err != nil || !bytes.Equal(back, encoded) || !log.Equal(read.Object, e.Object) {
			t.Errorf("event %x is read as %+v and written as %x, %v", encoded, read, back, err)
		}
		if e.Action == log.Delete {
			body = nil
		}
		seq++
		if _, err := s.ApplyEncoded(seq, e, body); err != nil {
			t.Errorf("it fits, and is not applied: %v", err)
			return 0
		}
	}
	return len(events)
}

// sameLoaded: a state that is loaded from the rows of s has its digest.
func sameLoaded(t *testing.T, s *projections.State) {
	t.Helper()
	fresh, encoder := projections.NewState(), log.NewEncoder()
	for kind := range log.Kind(64) {
		for r := range s.List(kind) {
			b, err := encoder.Object(r.Object)
			if err != nil {
				t.Fatal(err)
			}
			o, err := log.DecodeObject(kind, r.Object.ID(), b)
			if err != nil {
				t.Fatalf("row of %s %s: %v", kind, r.Object.ID(), err)
			}
			if err := fresh.LoadEncoded(projections.Record{Object: o, Revision: r.Revision, Seq: r.Seq}, b[1:]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if fresh.Sum() != s.Sum() {
		t.Error("the state loaded from its rows has another digest")
	}
}

// TestFits: what Fits says of events is what their fold says.
func TestFits(t *testing.T) {
	t.Parallel()
	w := worldtest.Settled(t, Decide)
	event := func(action log.Action, revision log.Revision) *log.Event {
		tag := &log.NICTag{Name: "t", MTU: 1500}
		return &log.Event{Kind: log.KindNICTag, Action: action, ID: "t", Revision: revision, Object: tag}
	}
	create, update, remove := event(log.Create, 1), event(log.Update, 2), event(log.Delete, 3)
	other := event(log.Create, 1)
	other.ID = "u"
	for _, c := range []struct {
		what   string
		events []*log.Event
		fit    bool
	}{
		{"none", nil, true},
		{"made", []*log.Event{create}, true},
		{"made, changed, deleted, made", []*log.Event{create, update, remove, create}, true},
		{"made twice", []*log.Event{create, create}, false},
		{"changed, not there", []*log.Event{update}, false},
		{"changed after it was deleted", []*log.Event{create, event(log.Delete, 2), event(log.Update, 3)}, false},
		{"a revision left out", []*log.Event{create, event(log.Update, 3)}, false},
		{"of another id", []*log.Event{other}, false},
		{"no object", []*log.Event{{Kind: log.KindNICTag, Action: log.Create, ID: "t", Revision: 1}}, false},
	} {
		before := w.State.Sum()
		if err := w.State.Fits(1000, c.events); (err == nil) != c.fit || w.State.Sum() != before {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
