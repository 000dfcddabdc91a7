package foresee_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/desired"
	"rutter/projections/foresee"
	"rutter/projections/internal/worldtest"
	"rutter/projections/rules"
)

// running is worldtest.Settled with CNs that run.
func running(t changetest.Tester) *worldtest.World {
	w := worldtest.Settled(t, rules.Decide)
	w.Must(`update server #11# {"status": "running"}`)
	w.Must(`update server #12# {"status": "running"}`)
	return w
}

func of(w *worldtest.World, changes ...[]string) foresee.Outcome {
	var all []*log.Change
	for _, texts := range changes {
		c := &log.Change{Actor: "planner"}
		for _, text := range texts {
			c.Ops = append(c.Ops, changetest.Op(w.T, text))
		}
		all = append(all, c)
	}
	return foresee.Of(w.State, log.Seq(len(w.Events)), all)
}

// Each change says what becomes of objects, kernels and reachability.
func TestOf(t *testing.T) {
	for _, c := range []struct {
		name  string
		ops   []string
		objs  []string // action, kind and name
		links []string // host, action, what
		pairs []string // change and code
	}{
		{
			name:  "a NIC is moved to another vnet",
			ops:   []string{`delete nic 00:00:00:00:02:01`, `create nic {"mac": "020000000008", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#2#", "cn_uuid": "#12#", "network_uuid": "#32#"}`},
			objs:  []string{"delete nic", "create nic"},
			links: []string{"cn1 delete fdb", "cn1 delete neigh", "cn2 create fabric", "cn2 delete fabric", "cn2 create filter", "cn2 delete filter"},
			pairs: []string{"lost other-vnet"},
		},
		{
			name:  "a port may send from everywhere",
			ops:   []string{`update nic 00:00:00:00:02:00 {"allow_ip_spoofing": true, "allowed_ips": []}`},
			objs:  []string{"update nic"},
			links: []string{"cn1 update fabric", "cn1 update filter"},
		},
		{
			name:  "the underlay address of a node goes",
			ops:   []string{`delete nic 00:00:00:00:01:01`},
			objs:  []string{"delete nic"},
			links: []string{"cn1 delete fdb", "cn1 delete neigh", "cn1 create problem", "cn2 delete fabric", "cn2 create problem"},
			pairs: []string{"lost no-underlay"},
		},
		{
			name:  "a VM is stopped",
			ops:   []string{`update vm #22# {"state": "stopped"}`},
			objs:  []string{"update vm"},
			pairs: []string{"lost vm-not-running"},
		},
		{
			name: "a description concerns no kernel",
			ops:  []string{`update network #31# {"description": "mine"}`},
			objs: []string{"update network one"},
		},
		{
			name: "made and deleted again is nothing",
			ops:  []string{`create nic_tag {"name": "third", "uuid": "#92#"}`, `delete nic_tag third`},
		},
		{
			name: "deleted and made again is replaced",
			ops:  []string{`delete nic 00:00:00:00:02:01`, `create nic {"mac": "00:00:00:00:02:01", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "network_uuid": "#31#", "ip": "10.0.0.77"}`},
			objs: []string{"replace nic"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := running(t)
			before := w.State.Dump()
			out := of(w, c.ops)
			if after := w.State.Dump(); !bytes.Equal(before, after) {
				t.Fatalf("the state became\n%s\nof\n%s", after, before)
			}
			if n := out.Refusals(); n != 0 {
				t.Fatalf("%d refused: %+v", n, out.Changes[0].Refused)
			}
			var objs, links, pairs []string
			for _, o := range out.Objects {
				if o.Kind != log.KindIP {
					objs = append(objs, strings.TrimSpace(fmt.Sprint(o.Action, " ", o.Kind, " ", onlyNetworks(o))))
				}
			}
			for _, n := range out.Nodes {
				for _, l := range n.Links {
					links = append(links, fmt.Sprint(n.Hostname, " ", l.Action, " ", l.What))
				}
			}
			for _, p := range out.Pairs {
				pairs = append(pairs, p.Change+" "+p.Code)
			}
			if !slices.Equal(sorted(objs), sorted(c.objs)) {
				t.Errorf("objects %q, want %q", objs, c.objs)
			}
			for _, want := range c.links {
				if !slices.Contains(links, want) {
					t.Errorf("no link %q among %q", want, links)
				}
			}
			if !slices.Equal(pairs, c.pairs) {
				t.Errorf("pairs %q, want %q", pairs, c.pairs)
			}
			if _, err := json.Marshal(out); err != nil {
				t.Error(err)
			}
		})
	}
}

func onlyNetworks(o foresee.Object) string {
	if o.Kind == log.KindNetwork {
		return o.Name
	}
	return ""
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// Every operation at fault is named, each once, with its place.
func TestRefused(t *testing.T) {
	w := running(t)
	out := of(w, []string{
		`create nic_tag {"name": "third", "uuid": "#92#"}`,
		`update network #39# {"mtu": 1400}`,
		`update network #31# {"mtu": 1400}`,
		`delete network #31#`,
	}, []string{`create nic_tag {"name": "fourth", "uuid": "#93#"}`}, []string{})
	if len(out.Changes) != 3 || out.Refusals() != 2 {
		t.Fatalf("%d changes, %d refused", len(out.Changes), out.Refusals())
	}
	var places []int
	for _, r := range out.Changes[0].Refused {
		places = append(places, r.Op)
	}
	if !slices.Equal(places, []int{1, 3}) || out.Changes[0].Refused[1].Name != "one" {
		t.Errorf("refused %+v", out.Changes[0].Refused)
	}
	if last := out.Changes[2].Refused; len(last) != 1 || last[0].Op != -1 {
		t.Errorf("a change without operations: %+v", last)
	}
	if len(out.Objects) != 1 || out.Objects[0].ID != "fourth" {
		t.Errorf("a refused change does nothing, and the next one what it says: %+v", out.Objects)
	}
}

// A condition that holds before a list of changes holds after those of them that changed
// the object, and no other one does.
func TestConditionsAcrossChanges(t *testing.T) {
	w := running(t)
	vm, _ := w.State.Get(log.KindVM, changetest.UUID(22).String())
	update := func(alias string, seq log.Seq) []string {
		return []string{fmt.Sprintf(`update vm #22# @%d-%d {"alias": %q}`, vm.Revision, seq, alias)}
	}
	if out := of(w, update("a", vm.Seq), update("b", vm.Seq)); out.Refusals() != 0 || out.Objects[0].Name != "b" {
		t.Errorf("%+v", out.Changes)
	}
	if out := of(w, update("a", vm.Seq), update("b", vm.Seq-1)); out.Refusals() != 1 {
		t.Errorf("another seq is taken: %+v", out.Changes)
	}
}

// What is foreseen is what then happens: events, links of every node, and the way between
// every two VMs that share a vnet or a network. The state is untouched.
func TestForeseenIsWhatHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := running(t)
		for range worldtest.Even(t, 12, "before") {
			w.Try(w.Change(worldtest.DrawOp(t)))
		}
		var changes []*log.Change
		for range 1 + worldtest.Even(t, 4, "changes") {
			c := w.Change()
			for range 1 + worldtest.Even(t, 4, "ops") {
				c.Ops = append(c.Ops, worldtest.DrawOp(t))
			}
			changes = append(changes, c)
		}
		dump, head := w.State.Dump(), log.Seq(len(w.Events))
		out := foresee.Of(w.State, head, changes)
		if !bytes.Equal(dump, w.State.Dump()) {
			t.Fatalf("the state is another one")
		}
		worldtest.SameAnswers(t, w.State, rebuilt(t, w))
		cns, vms := w.State.CNs(log.AllScope()), allVMs(w.State)
		links, ways := linksOf(w.State, cns), waysOf(w.State, vms)
		for i, c := range changes {
			result := w.Try(c)
			got := out.Changes[i]
			if fmt.Sprint(result.Refusal) != fmt.Sprint(got.Result.Refusal) || int(result.Events) != len(got.Events) {
				t.Fatalf("change %d: %+v, foreseen %+v", i, result, got.Result)
			}
			if result.Refusal != nil && (len(got.Refused) == 0 || fmt.Sprint(got.Refused[0].Refusal) != fmt.Sprint(result.Refusal)) {
				t.Fatalf("change %d is refused with %v, foreseen %+v", i, result.Refusal, got.Refused)
			}
		}
		at := head
		for i := range out.Changes {
			for _, l := range out.Changes[i].Events {
				want, _ := log.NewEncoder().Event(w.Events[at])
				is, _ := log.NewEncoder().Event(l.Event)
				if at++; l.Seq != at || !bytes.Equal(is, want) {
					t.Fatalf("seq %d: foreseen %+v, came %+v", at, l.Event, w.Events[at-1])
				}
			}
		}
		sameNodes(t, w.State, out, links)
		samePairs(t, w.State, out, vms, ways)
	})
}

// rebuilt is the state of the world's events.
func rebuilt(t changetest.Tester, w *worldtest.World) *projections.State {
	s := projections.NewState()
	for i, e := range w.Events {
		if _, err := s.Apply(log.Seq(i+1), e); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func allVMs(s *projections.State) map[log.UUID]bool {
	vms := map[log.UUID]bool{}
	for r := range s.List(log.KindVM) {
		vms[r.Object.(*log.VM).UUID] = true
	}
	for r := range s.List(log.KindNIC) {
		if nic := r.Object.(*log.NIC); nic.BelongsToType == "zone" {
			vms[nic.BelongsToUUID] = true
		}
	}
	return vms
}

func linksOf(s *projections.State, cns []log.UUID) map[log.UUID]desired.Links {
	all := map[log.UUID]desired.Links{}
	for _, cn := range cns {
		all[cn] = desired.Of(s, cn)
	}
	return all
}

// way is the verdict between two VMs; shared if they have NICs on one vnet or network.
type way struct {
	verdict string
	shared  bool
}

func waysOf(s *projections.State, vms map[log.UUID]bool) map[[2]log.UUID]way {
	scopes := func(vm log.UUID) (all []log.Scope) {
		for r := range s.NICsOf(vm) {
			if n := s.Network(r.Object.(*log.NIC).NetworkUUID); n != nil {
				all = append(all, log.ScopeOf(n))
			}
		}
		return all
	}
	ways := map[[2]log.UUID]way{}
	for a := range vms {
		for b := range vms {
			if a.Compare(b) < 0 {
				shared := slices.ContainsFunc(scopes(a), func(x log.Scope) bool { return slices.Contains(scopes(b), x) })
				ways[[2]log.UUID{a, b}] = way{desired.NewTrace(s, a.String(), b.String()).Verdict, shared}
			}
		}
	}
	return ways
}

func sameNodes(t *rapid.T, s *projections.State, out foresee.Outcome, before map[log.UUID]desired.Links) {
	foreseen := map[log.UUID]int{}
	for _, n := range out.Nodes {
		for _, l := range n.Links {
			if l.What != "filter" {
				foreseen[n.CN]++
			}
		}
	}
	for _, cn := range s.CNs(log.AllScope()) {
		if _, had := before[cn]; !had {
			before[cn] = desired.Links{}
		}
	}
	for cn, was := range before {
		if changes := desired.DiffLinks(was, desired.Of(s, cn)); len(changes) != foreseen[cn] {
			t.Fatalf("CN %s: foreseen %d differences, came %+v\n%+v", cn, foreseen[cn], changes, out.Nodes)
		}
	}
}

func samePairs(t *rapid.T, s *projections.State, out foresee.Outcome, vms map[log.UUID]bool, before map[[2]log.UUID]way) {
	for vm := range allVMs(s) {
		vms[vm] = true
	}
	after := waysOf(s, vms)
	foreseen := map[[2]log.UUID]string{}
	for _, p := range out.Pairs {
		foreseen[[2]log.UUID{p.From, p.To}] = p.Change
	}
	for pair, is := range after {
		was, had := before[pair]
		if !had {
			was.verdict = desired.Unreachable
		}
		if !was.shared && !is.shared {
			continue
		}
		want := ""
		switch {
		case was.verdict != desired.Unreachable && is.verdict == desired.Unreachable:
			want = foresee.Lost
		case was.verdict == desired.Unreachable && is.verdict != desired.Unreachable:
			want = foresee.Gained
		case was.verdict != desired.Doubtful && is.verdict == desired.Doubtful:
			want = foresee.Doubtful
		}
		if foreseen[pair] != want {
			t.Fatalf("%v: from %s to %s is foreseen as %q", pair, was.verdict, is.verdict, foreseen[pair])
		}
	}
}
