package undo_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/internal/worldtest"
	"rutter/projections/rules"
	"rutter/projections/undo"
)

// world is a world whose entries are known by their seqs.
type world struct {
	*worldtest.World
	ids uint64
}

func (w *world) head() log.Seq { return log.Seq(len(w.Events)) }

// do makes one change by an actor.
func (w *world) do(actor string, texts ...string) {
	w.T.Helper()
	ops := make([]log.Op, len(texts))
	for i, text := range texts {
		ops[i] = changetest.Op(w.T, text)
	}
	c := w.Change(ops...)
	if c.Actor = actor; strings.HasPrefix(actor, "cn:") {
		c.By = log.Author{Role: log.RoleCN, CN: uuid(w.T, actor[3:])}
	}
	if r := w.Try(c).Refusal; r != nil {
		w.T.Fatalf("%s: %v", texts, r)
	}
}

func uuid(t changetest.Tester, text string) log.UUID {
	u, err := log.ParseUUID(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// lines are the entries from a seq on.
func (w *world) lines(from log.Seq) (all []log.Line) {
	for i, e := range w.Events {
		if seq := log.Seq(i + 1); seq >= from {
			all = append(all, log.Line{Seq: seq, Event: e})
		}
	}
	return all
}

func (w *world) plan(take undo.Take, chosen func(log.Seq) bool) *undo.Plan {
	w.T.Helper()
	before := w.State.Dump()
	from := log.Seq(1)
	for from <= w.head() && !chosen(from) {
		from++
	}
	p, err := undo.Of(w.State, w.head(), w.lines(from), chosen, func(log.Kind, string) undo.Take { return take })
	if err != nil {
		w.T.Fatal(err)
	}
	if after := w.State.Dump(); !bytes.Equal(before, after) {
		w.T.Fatalf("planning changed the state from\n%s\nto\n%s", before, after)
	}
	return p
}

// write writes the plan's changes. Each must be accepted, as it was planned.
func (w *world) write(p *undo.Plan) {
	w.T.Helper()
	parts := p.Changes(func() log.UUID {
		w.ids++
		return log.UUID{0: 0xd0, 6: 0x70, 8: 0x80, 14: byte(w.ids >> 8), 15: byte(w.ids)}
	})
	for i := range parts {
		c := *parts[i].Change
		stamp := w.Change()
		c.Time, c.Seed, c.Actor = stamp.Time, stamp.Seed, "ada"
		first := w.head() + 1
		r := w.Try(&c)
		if r.Refusal != nil {
			w.T.Fatalf("the plan %+v is refused: %v", p, r.Refusal)
		}
		for _, l := range w.lines(first) {
			if l.Event.Reverts.String() != c.Reverts.String() {
				w.T.Fatalf("#%s reverts %q, its change %q", l.Seq, l.Event.Reverts, c.Reverts)
			}
		}
		if !undo.After(&parts[i], first, r.Events, parts[i+1:]) {
			w.T.Fatalf("%d events, and %d were planned", r.Events, len(parts[i].Touched))
		}
	}
}

// asked is what people set, as one text for each object.
func asked(s *projections.State) map[string]string {
	all := map[string]string{}
	for _, kind := range log.Kinds() {
		if kind.Describe().Final != "" {
			continue
		}
		for rec := range s.List(kind) {
			var b strings.Builder
			for _, d := range log.FieldDocs(kind) {
				if v, _ := log.Field(rec.Object, d.Name); d.By == log.SetByPeople {
					fmt.Fprintf(&b, " %s=%v", d.Name, v)
				}
			}
			all[kind.String()+" "+rec.Object.ID()] = b.String()
		}
	}
	return all
}

func same(t changetest.Tester, what string, got, want map[string]string) {
	t.Helper()
	for id := range maps.Keys(want) {
		if got[id] != want[id] {
			t.Fatalf("%s: %s is\n%s\nwant\n%s", what, id, got[id], want[id])
		}
	}
	for id := range maps.Keys(got) {
		if _, ok := want[id]; !ok {
			t.Fatalf("%s: %s is there", what, id)
		}
	}
}

func after(seq log.Seq) func(log.Seq) bool { return func(s log.Seq) bool { return s > seq } }

func between(first, last log.Seq) func(log.Seq) bool {
	return func(s log.Seq) bool { return first <= s && s <= last }
}

func settled(t changetest.Tester) *world { return &world{World: worldtest.Settled(t, rules.Decide)} }

// TestRevertOfASuffix: for random histories of operators' changes, and of nodes' reports
// between them, what takes back all since a place gives what operators had set there; and
// what takes that back gives what was there before.
func TestRevertOfASuffix(t *testing.T) {
	impossible, done := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		w := settled(rt)
		history(rt, w, 8)
		was, place := asked(w.State), w.head()
		history(rt, w, 8)
		is, middle := asked(w.State), w.head()
		p := w.plan("", after(place))
		if len(p.Conflicts) > 0 {
			rt.Fatalf("a suffix has conflicts: %+v", p.Conflicts)
		}
		if len(p.Impossible) > 0 {
			impossible++
			return
		}
		done++
		w.write(p)
		same(rt, "the revert", asked(w.State), was)
		back := w.plan("", after(middle))
		if len(back.Conflicts) > 0 {
			rt.Fatalf("%+v", back)
		}
		if len(back.Impossible) > 0 {
			impossible++
			return
		}
		w.write(back)
		same(rt, "the revert of the revert", asked(w.State), is)
	})
	if done == 0 || impossible > done/4 {
		t.Errorf("%d histories were taken back, and %d could not be", done, impossible)
	}
}

// history makes n changes: of operators mostly, else reports of nodes.
func history(rt *rapid.T, w *world, n int) {
	for range n {
		if worldtest.Even(rt, 4, "node") > 0 {
			w.Try(w.Change(worldtest.DrawOp(rt)))
			continue
		}
		vm := worldtest.DrawUUID(rt, 21, 3, "vm").String()
		rec, ok := w.State.Get(log.KindVM, vm)
		if !ok {
			continue
		}
		state := rapid.SampledFrom([]string{"running", "stopped", "failed"}).Draw(rt, "state")
		c := w.Change(log.Op{Action: log.Update, Kind: log.KindVM, ID: vm, Set: []string{"state", "zone_state"}, Object: &log.VM{State: state, ZoneState: state}})
		c.By = log.Author{Role: log.RoleCN, CN: rec.Object.(*log.VM).ServerUUID}
		c.Actor = "cn:" + c.By.CN.String()
		w.Try(c)
	}
}

// TestOf: what is taken back, what others changed since, and what cannot be.
func TestOf(t *testing.T) {
	const nic = "00:00:00:00:02:00"
	for _, c := range []struct {
		name   string
		bad    []string // what is taken back, by bob
		since  []string // by others; a line that begins with > is a node's
		steps  string   // action and kind of each
		meets  string   // the conflict
		cannot string   // why not
		skips  string
	}{
		{name: "an update gives the old value", bad: []string{`update network #31# {"description": "bad"}`}, steps: "update network"},
		{name: "a create is deleted", bad: []string{`create nic_tag {"name": "bad"}`}, steps: "delete nic_tag"},
		{name: "what was made and used is deleted in an order that references allow", bad: []string{`create nic_tag {"name": "bad"}`, `create network {"uuid": "#39#", "name": "n", "nic_tag": "bad", "subnet": "10.7.0.0/24"}`, `update network #39# {"description": "d"}`, `update nic_tag bad {"mtu": 9000}`}, steps: "delete network, delete nic_tag"},
		{name: "a delete is made again with its id", bad: []string{`delete nic ` + nic}, steps: "create nic"},
		{name: "another field is no conflict", bad: []string{`update network #31# {"description": "bad"}`}, since: []string{`update network #31# {"mtu": 1300}`}, steps: "update network"},
		{name: "the same field is one", bad: []string{`update network #31# {"description": "bad"}`}, since: []string{`update network #31# {"description": "mine"}`}, meets: "network description <nil> bad mine"},
		{name: "the old value is none", bad: []string{`update network #31# {"description": "bad"}`}, since: []string{`update network #31# {"description": ""}`}},
		{name: "made by the one, changed by the other", bad: []string{`create nic_tag {"name": "bad"}`}, since: []string{`update nic_tag bad {"mtu": 9000}`}, meets: "nic_tag not there, made, changed"},
		{name: "changed by the one, deleted by the other", bad: []string{`update nic ` + nic + ` {"allow_ip_spoofing": true}`}, since: []string{`delete nic ` + nic}, meets: "nic there, changed, deleted"},
		{name: "deleted by the one, made again by the other", bad: []string{`delete nic ` + nic}, since: []string{`create nic {"mac": "` + nic + `", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#"}`}, meets: "nic there, deleted, made again"},
		{name: "the MAC's address is another's meanwhile", bad: []string{`update nic 00:00:00:00:02:00 {"ip": "10.0.0.99"}`}, since: []string{`create nic {"mac": "00:00:00:00:02:77", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "network_uuid": "#31#", "ip": "OLD"}`}, cannot: "ip"},
		{name: "a network that has NICs of others now", bad: []string{`create network {"uuid": "#39#", "name": "n", "nic_tag": "external", "subnet": "10.7.0.0/24"}`}, since: []string{`create nic {"mac": "00:00:00:00:02:77", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "network_uuid": "#39#"}`}, cannot: "must have no NICs provisioned"},
		{name: "what servers compute is left", bad: []string{`update vm #21# {"state": "stopped"}`}, skips: "vm last_modified state"},
		{name: "a node's report since is no conflict", bad: []string{`update vm #21# {"alias": "bad"}`}, since: []string{`>update vm #21# {"state": "stopped"}`}, steps: "update vm"},
		{name: "a key stays revoked", bad: []string{`create grant {"subject": "reader:x", "owner_uuids": ["#1#"]}`}, steps: "delete grant"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := settled(t)
			old := ""
			if rec, ok := w.State.Get(log.KindNIC, nic); ok {
				old = rec.Object.(*log.NIC).IP.String()
			}
			was := asked(w.State)
			first := w.head() + 1
			for _, text := range c.bad {
				w.do("bob", text)
			}
			last := w.head()
			for _, text := range c.since {
				text = strings.ReplaceAll(text, "OLD", old)
				if report, is := strings.CutPrefix(text, ">"); is {
					w.do("cn:"+changetest.UUID(11).String(), report)
					continue
				}
				w.do("ada", text)
			}
			p := w.plan("", between(first, last))
			var steps, meets, cannot, skips []string
			for _, s := range p.Steps {
				for _, op := range s.Ops {
					steps = append(steps, op.Action.String()+" "+op.Kind.String())
				}
			}
			for _, m := range p.Conflicts {
				for _, f := range m.Fields {
					meets = append(meets, fmt.Sprint(m.Kind, " ", f.Path, " ", f.Was, " ", f.Then, " ", f.Now))
				}
				if m.Fields == nil {
					meets = append(meets, fmt.Sprintf("%s %s, %s, %s", m.Kind, m.Was, m.Then, m.Now))
				}
			}
			for _, i := range p.Impossible {
				cannot = append(cannot, i.Why)
			}
			for _, s := range p.Skipped {
				skips = append(skips, s.Kind.String()+" "+strings.Join(s.Fields, " "))
			}
			for _, x := range [][2]string{{strings.Join(steps, ", "), c.steps}, {strings.Join(meets, ", "), c.meets}} {
				if x[0] != x[1] {
					t.Errorf("got %q, want %q", x[0], x[1])
				}
			}
			if got := strings.Join(cannot, ", "); (got == "") != (c.cannot == "") || !strings.Contains(got, c.cannot) {
				t.Errorf("cannot be: %q, want %q", got, c.cannot)
			}
			if got := strings.Join(skips, ", "); c.skips != "" && !strings.Contains(got, c.skips) {
				t.Errorf("left: %q, want %q", got, c.skips)
			}
			if (p.Refused(false) != nil) != (c.meets != "" || c.cannot != "") || p.Refused(true) != nil && c.meets == "" {
				t.Errorf("refused: %v, %v", p.Refused(false), p.Refused(true))
			}
			if w.write(p); c.since == nil && c.skips == "" {
				same(t, "the revert", asked(w.State), was)
			}
		})
	}
}

// An address that goes with its network, after its router, is no obstacle: all is taken back.
func TestAddressesGoWithTheirNetworks(t *testing.T) {
	t.Parallel()
	w := settled(t)
	before, from := asked(w.State), w.head()
	w.do("ada", `create network {"uuid": "#80#", "name": "left", "fabric": true, "nic_tag": "overlay", "vlan_id": 11, "subnet": "10.11.0.0/24", "owner_uuids": ["#1#"], "vnet_id": 10}`)
	w.do("ada", `create network {"uuid": "#81#", "name": "right", "fabric": true, "nic_tag": "overlay", "vlan_id": 12, "subnet": "10.12.0.0/24", "owner_uuids": ["#1#"], "vnet_id": 10}`)
	w.do("ada", `create router {"uuid": "#82#", "name": "middle", "owner_uuid": "#1#", "networks": ["#80#", "#81#"]}`)
	p := w.plan("", after(from))
	if len(p.Impossible) > 0 {
		t.Fatalf("impossible: %+v", p.Impossible)
	}
	w.write(p)
	same(t, "taken back", asked(w.State), before)
}

// What was exchanged over a third value is taken back in several runs, and one run says so.
func TestExchangeIsNamed(t *testing.T) {
	t.Parallel()
	w := settled(t)
	w.do("ada", `create network {"uuid": "#80#", "name": "a", "nic_tag": "external", "subnet": "10.11.0.0/24"}`)
	w.do("ada", `create network {"uuid": "#81#", "name": "b", "nic_tag": "external", "subnet": "10.12.0.0/24"}`)
	before, from := asked(w.State), w.head()
	w.do("ada", `update network #80# {"name": "x"}`)
	w.do("ada", `update network #81# {"name": "a"}`)
	w.do("ada", `update network #80# {"name": "b"}`)
	p := w.plan("", after(from))
	if len(p.Impossible) != 2 || !strings.Contains(p.Impossible[0].Remedy, "the last ones first") {
		t.Fatalf("impossible: %+v", p.Impossible)
	}
	for seq := from + 3; seq > from; seq-- {
		w.write(w.plan("", between(seq, seq)))
	}
	same(t, "taken back", asked(w.State), before)
}

// TestTake: where others changed the same, what was or what is now can be taken.
func TestTake(t *testing.T) {
	for take, want := range map[undo.Take]string{undo.TakeWas: "", undo.TakeNow: "mine"} {
		w := settled(t)
		first := w.head() + 1
		w.do("bob", `update network #31# {"description": "bad"}`, `create nic_tag {"name": "bad"}`)
		last := w.head()
		w.do("ada", `update network #31# {"description": "mine"}`, `update nic_tag bad {"mtu": 9000}`)
		p := w.plan(take, between(first, last))
		if len(p.Conflicts) > 0 {
			t.Fatalf("%s: %+v", take, p.Conflicts)
		}
		w.write(p)
		rec, _ := w.State.Get(log.KindNetwork, changetest.UUID(31).String())
		if got := rec.Object.(*log.Network).Description; got != want {
			t.Errorf("%s: %q, want %q", take, got, want)
		}
		if _, there := w.State.Get(log.KindNICTag, "bad"); there != (take == undo.TakeNow) {
			t.Errorf("%s: the tag is there: %t", take, there)
		}
	}
}

// TestOthersBetween: of changes of one field by two people in turn, the last value of the
// one who is not taken back is what comes back.
func TestOthersBetween(t *testing.T) {
	w := settled(t)
	var bobs []log.Seq
	for i, actor := range []string{"bob", "ada", "bob"} {
		w.do(actor, fmt.Sprintf(`update network #31# {"description": "%d of %s"}`, i, actor))
		if actor == "bob" {
			bobs = append(bobs, w.head())
		}
	}
	w.write(w.plan("", func(s log.Seq) bool { return slices.Contains(bobs, s) }))
	rec, _ := w.State.Get(log.KindNetwork, changetest.UUID(31).String())
	if got := rec.Object.(*log.Network).Description; got != "1 of ada" {
		t.Errorf("got %q", got)
	}
}

// TestManyEntries: what does not fit one change becomes several, in an order that references
// allow, each with the entries that it takes back.
func TestManyEntries(t *testing.T) {
	w := settled(t)
	was, place := asked(w.State), w.head()
	w.do("bob", `create nic_tag {"name": "many"}`, `create network {"uuid": "#39#", "name": "many", "nic_tag": "many", "subnet": "10.64.0.0/16"}`)
	for n := 0; n < 2000; n += 500 {
		var texts []string
		for i := n; i < n+500; i++ {
			texts = append(texts, fmt.Sprintf(`create nic {"mac": "02:00:00:00:%02x:%02x", "belongs_to_type": "other", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "network_uuid": "#39#"}`, i>>8, i&255))
		}
		ops := make([]log.Op, len(texts))
		for i, text := range texts {
			ops[i] = changetest.Op(t, text)
		}
		if r := w.Try(w.Change(ops...)).Refusal; r != nil {
			t.Fatal(r)
		}
	}
	p := w.plan("", after(place))
	parts := p.Changes(func() log.UUID { return log.UUID{1} })
	if len(parts) != 2 || len(parts[0].Change.Ops) > log.MaxOps || p.Reverts().String() != fmt.Sprintf("#%d-#%d", place+1, w.head()) {
		t.Errorf("%d changes of %d operations revert %s", len(parts), len(parts[0].Change.Ops), p.Reverts())
	}
	w.write(p)
	same(t, "the revert", asked(w.State), was)
}

// TestReportsAreLeft: what a compute node says of its VM is a report, also of a field that
// people may set; and a revocation is not taken back by a wide choice.
func TestReportsAreLeft(t *testing.T) {
	w := settled(t)
	place := w.head()
	w.do("cn:"+changetest.UUID(11).String(), `update vm #21# {"alias": "reported"}`)
	p := w.plan("", after(place))
	if len(p.Steps) > 0 || len(p.Skipped) != 1 || p.Refused(false) != nil {
		t.Errorf("a report: %+v", p)
	}
	place = w.head()
	w.do("bob", `create revocation {"subject": "cn:00000000-0000-0000-0000-00000000000b"}`)
	p = w.plan("", after(place))
	if len(p.Steps) > 0 || len(p.Impossible) != 1 || p.Refused(false) == nil || p.Refused(true) != nil {
		t.Errorf("a revocation: %+v", p)
	}
}
