package applycmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rutter/api/client"
	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/documents"
	"rutter/projections/documents/source"
	"rutter/projections/rules"
)

// servers decide changes on a state, one after another, and remember results.
type servers struct {
	mu     sync.Mutex
	state  *projections.State
	seq    log.Seq
	events []*log.Event
	known  map[log.UUID]log.Result
	asked  int
	// before, if not nil, is asked before a change is decided, and after, after it was:
	// an error of theirs is what the client gets.
	before, after func(asked int, c *log.Change) error
}

func newServers() *servers {
	return &servers{state: projections.NewState(), known: map[log.UUID]log.Result{}}
}

func (f *servers) Submit(_ context.Context, c *log.Change) (log.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.before != nil {
		if err := f.before(f.asked, c); err != nil {
			return log.Result{}, err
		}
	}
	result, err := f.decide(c)
	if f.after != nil {
		if err := f.after(f.asked, c); err != nil {
			return log.Result{}, err
		}
	}
	return result, err
}

func (f *servers) decide(c *log.Change) (log.Result, error) {
	if result, known := f.known[c.ID]; known {
		if result.Refusal != nil {
			return result, result.Refusal
		}
		return result, nil
	}
	stamped := *c
	stamped.Time, stamped.Seed = f.state.Time()+1, uint64(f.seq)+1
	events, result := rules.Decide(f.state, &stamped)
	if result.Refusal == nil {
		result.First, result.Last = f.seq, f.seq
	}
	for i, e := range events {
		f.seq++
		if i == 0 {
			result.First = f.seq
		}
		result.Last = f.seq
		f.events = append(f.events, e)
		if _, err := f.state.Apply(f.seq, e); err != nil {
			return result, err
		}
	}
	f.known[c.ID] = result
	if result.Refusal != nil {
		return result, result.Refusal
	}
	return result, nil
}

// other is a change of another client.
func (f *servers) other(t changetest.Tester, texts ...string) {
	t.Helper()
	c := &log.Change{ID: client.NewChangeID(), Actor: "other"}
	for _, text := range texts {
		c.Ops = append(c.Ops, changetest.Op(t, text))
	}
	if _, err := f.decide(c); err != nil {
		t.Fatal(err)
	}
}

func (f *servers) cloud() *cloud { return &cloud{head: f.seq, state: f.state} }

func (f *servers) writer() *writer {
	return &writer{to: f, newID: client.NewChangeID, tell: func(int64, int64) {}}
}

func docsFrom(t changetest.Tester, text string) []documents.Document {
	t.Helper()
	docs, err := source.Read("test", []byte(changetest.Expand(text)))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return docs
}

func setOf(t changetest.Tester, f *servers, text string) *set {
	t.Helper()
	s, err := makeSet(f.cloud(), docsFrom(t, text), nil, time.Now())
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if n := s.outcome.Refusals(); n > 0 {
		t.Fatalf("refused: %s\n%s", refusedText(&s.outcome), text)
	}
	return s
}

// ground is what the documents of these tests stand on.
const ground = `
kind: nic_tag
name: overlay
uuid: "#90#"
spec: {mtu: 9000}
---
kind: server
name: cn1
uuid: "#11#"
---
kind: network
name: blue
spec: {nic_tag: overlay, vlan_id: 2, subnet: 10.0.0.0/16, gateway: 10.0.0.1, provision_start_ip: 10.0.1.0, provision_end_ip: 10.0.200.0, owner_uuids: ["#1#"], fabric: true, vnet_id: 10}
---
kind: vm
name: web
uuid: "#21#"
spec: {owner_uuid: "#1#", server: cn1}
`

// nicsOf are documents of n NICs, of which the first has the gateway's address.
func nicsOf(n int, spec string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "---\nkind: nic\nspec: {mac: \"02:00:00:00:%02x:%02x\", vm: web, network: blue, owner_uuid: \"#1#\", ip: 10.0.%d.%d%s}\n", i>>8, i&255, i/200, 1+i%200, spec)
	}
	return b.String()
}

// A set is written in as few changes as limits allow, a second run has nothing to do, and
// conditions hold across its changes, also where a change moves objects that it does not
// name: the first NIC that goes changes the network, which a later change deletes.
func TestApplyAcrossChanges(t *testing.T) {
	f := newServers()
	const n = 2 * log.MaxOps
	s := setOf(t, f, ground+nicsOf(n, ""))
	w := f.writer()
	if err := w.write(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if len(s.changes) != 3 || len(w.done.Changes) != 3 || w.done.First != 1 || w.done.Last != f.seq || int(w.done.Last-w.done.First)+1 != w.done.Events {
		t.Fatalf("%d changes, receipt %+v", len(s.changes), w.done)
	}
	if again := setOf(t, f, ground+nicsOf(n, "")); !again.empty() || len(again.changes) != 0 {
		t.Fatalf("a second run has %d changes: %+v", len(again.changes), again.outcome.Objects[:1])
	}
	owner := &documents.Selection{Owner: changetest.UUID(1)}
	s, err := makeSet(f.cloud(), nil, owner, time.Now())
	if err != nil || s.outcome.Refusals() > 0 {
		t.Fatalf("%v %s", err, refusedText(&s.outcome))
	}
	if s.prune.Deleted != s.prune.All || !s.prune.most() || len(s.changes) != 3 {
		t.Fatalf("%+v in %d changes", s.prune, len(s.changes))
	}
	before := f.seq
	w = f.writer()
	if err := w.write(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if f.state.Count(log.KindNIC) != 0 || f.state.Count(log.KindNetwork) != 0 || w.done.First != before+1 {
		t.Fatalf("%d NICs are left; %+v", f.state.Count(log.KindNIC), w.done)
	}
}

// What is foreseen is what is written, for random documents over what others before them
// made; and then there is nothing to do.
func TestPlanIsWhatApplyDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newServers()
		for round := range 3 {
			text := drawDocuments(t)
			s, err := makeSet(f.cloud(), docsFrom(t, text), nil, time.Now())
			if err != nil {
				continue // two documents of one name, or the like
			}
			if s.outcome.Refusals() > 0 {
				if accepted(s, 1, accepts{true, true}) == nil {
					t.Fatalf("a refused plan is accepted")
				}
				continue
			}
			before := len(f.events)
			w := f.writer()
			if err := w.write(t.Context(), s); err != nil {
				t.Fatalf("round %d: %v\n%s", round, err, text)
			}
			var foreseen []log.Line
			for i := range s.outcome.Changes {
				foreseen = append(foreseen, s.outcome.Changes[i].Events...)
			}
			if len(foreseen) != len(f.events)-before || w.done.Events != len(foreseen) {
				t.Fatalf("%d events, foreseen %d, receipt %+v", len(f.events)-before, len(foreseen), w.done)
			}
			for i, l := range foreseen {
				if got := f.events[before+i]; !same(l.Event, got) {
					t.Fatalf("foreseen %+v %+v, came %+v %+v", l.Event, l.Event.Object, got, got.Object)
				}
			}
			again, err := makeSet(f.cloud(), docsFrom(t, text), nil, time.Now())
			if err != nil || !again.empty() {
				t.Fatalf("a second run has to do: %v %+v %s\n%+v\n%s", err, again.outcome.Objects, refusedText(&again.outcome), again.changes, text)
			}
		}
	})
}

// same compares events without the time, and what is drawn of it.
func same(a, b *log.Event) bool {
	if a.Action != b.Action || a.Kind != b.Kind || a.ID != b.ID || a.Revision != b.Revision || a.More != b.More {
		return false
	}
	for _, changed := range log.Diff(a.Object, b.Object) {
		if !slices.Contains(log.TimeFields(), changed.Path) {
			return false
		}
	}
	return true
}

// drawDocuments draws documents of few objects.
func drawDocuments(t *rapid.T) string {
	pick := func(all ...string) string { return rapid.SampledFrom(all).Draw(t, "pick") }
	some := func(text string) string {
		if rapid.Bool().Draw(t, "some") {
			return text
		}
		return ""
	}
	var b strings.Builder
	b.WriteString("kind: nic_tag\nname: overlay\nuuid: \"#90#\"\nspec: {mtu: 9000}\n")
	for _, cn := range []string{"11", "12"} {
		fmt.Fprintf(&b, "---\nkind: server\nname: cn%s\nuuid: \"#%s#\"\n", cn, cn)
	}
	for i, net := range []string{"blue", "red"} {
		fmt.Fprintf(&b, "---\nkind: network\nname: %s\nspec: {nic_tag: overlay, vlan_id: %s, subnet: 10.%d.0.0/24, owner_uuids: [\"#1#\"], fabric: true, vnet_id: 10%s%s%s}\n",
			net, pick("2", "2", "2", "3"), i, some(fmt.Sprintf(", gateway: 10.%d.0.1", i)), some(", mtu: "+pick("1400", "1500")), some(`, resolvers: ["8.8.8.8"]`))
	}
	for _, vm := range []string{"21", "22"} {
		fmt.Fprintf(&b, "---\nkind: vm\nname: vm%s\nuuid: \"#%s#\"\nspec: {owner_uuid: \"#1#\", server: cn%s}\n", vm, vm, pick("11", "12"))
		for nic := range 2 {
			if text := some("nic"); text != "" {
				fmt.Fprintf(&b, "---\nkind: nic\nspec: {mac: \"02:00:00:00:%s:%02d\", vm: vm%s, network: %s, owner_uuid: \"#1#\"%s%s}\n", vm, nic, vm, pick("blue", "red"),
					some(", allow_ip_spoofing: "+pick("true", "false")), some(fmt.Sprintf(", ip: 10.%s.0.%s", pick("0", "1"), pick("1", "5", "9"))))
			}
		}
	}
	return b.String()
}

// The servers lose their leader while a change is under way: what was written is written
// once, and a second run goes on.
func TestUnknownOutcome(t *testing.T) {
	lost := fmt.Errorf("%w: the leader was lost", client.ErrUnavailable)
	for _, wrote := range []bool{false, true} {
		t.Run(fmt.Sprint("written ", wrote), func(t *testing.T) {
			f := newServers()
			lose := func(asked int, _ *log.Change) error {
				if asked == 2 {
					return lost
				}
				return nil
			}
			if wrote {
				f.after = lose
			} else {
				f.before = lose
			}
			text := ground + nicsOf(2*log.MaxOps, "")
			w := f.writer()
			err := w.write(t.Context(), setOf(t, f, text))
			if !errors.Is(err, client.ErrUnavailable) || !w.done.Unknown || w.done.Left != 2 || len(w.done.Changes) != 1 {
				t.Fatalf("%v, receipt %+v", err, w.done)
			}
			w = f.writer()
			if err := w.write(t.Context(), setOf(t, f, text)); err != nil {
				t.Fatal(err)
			}
			if n := f.state.Count(log.KindNIC); n != 2*log.MaxOps || !setOf(t, f, text).empty() {
				t.Fatalf("%d NICs", n)
			}
			creates := map[string]int{}
			for _, e := range f.events {
				if e.Action == log.Create {
					creates[e.Kind.String()+e.ID]++
				}
			}
			for id, n := range creates {
				if n != 1 {
					t.Errorf("%s was made %d times", id, n)
				}
			}
		})
	}
}

// A run that was killed while a change was under way, which the servers then wrote after
// the next run had read their state: the same is sent again under the same id.
func TestKilledWhileUnderWay(t *testing.T) {
	f := newServers()
	setOf(t, f, ground)
	if err := f.writer().write(t.Context(), setOf(t, f, ground)); err != nil {
		t.Fatal(err)
	}
	noMAC := ground + "---\nkind: nic\nspec: {vm: web, network: blue, owner_uuid: \"#1#\"}\n"
	killed, next := setOf(t, f, noMAC), setOf(t, f, noMAC)
	for _, s := range []*set{killed, next} {
		if err := f.writer().write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.state.Count(log.KindNIC); n != 1 {
		t.Fatalf("%d NICs", n)
	}
	// Taken away by another client, and asked for again within the hour: it is made again.
	for r := range f.state.List(log.KindNIC) {
		f.other(t, "delete nic "+r.Object.ID())
	}
	if err := f.writer().write(t.Context(), setOf(t, f, noMAC)); err != nil || f.state.Count(log.KindNIC) != 1 {
		t.Fatalf("%d NICs, %v", f.state.Count(log.KindNIC), err)
	}
}

// What another client changed between plan and apply is not overwritten, and is named.
func TestChangedMeanwhile(t *testing.T) {
	f := newServers()
	if err := f.writer().write(t.Context(), setOf(t, f, ground)); err != nil {
		t.Fatal(err)
	}
	s := setOf(t, f, strings.ReplaceAll(ground, "vnet_id: 10", "vnet_id: 10, mtu: 1400")+nicsOf(3, ""))
	blue := ""
	for r := range f.state.List(log.KindNetwork) {
		blue = r.Object.ID()
	}
	f.other(t, fmt.Sprintf(`update network %s {"description": "another's"}`, blue), `create nic {"mac": "02:00:00:00:00:01", "belongs_to_type": "other", "belongs_to_uuid": "#7#", "owner_uuid": "#1#"}`)
	before := f.seq
	w := f.writer()
	err := w.write(t.Context(), s)
	if refusal := new(log.Refusal); !errors.As(err, &refusal) || f.seq != before || w.done.Left != 1 || w.done.Unknown {
		t.Fatalf("%v, %d entries, %+v", err, f.seq-before, w.done)
	}
	texts := stale(f.state, s.changes)
	if len(texts) != 2 || !strings.Contains(texts[0], "network "+blue+" was changed meanwhile") || !strings.Contains(texts[1], "nic 02:00:00:00:00:01 was made meanwhile") {
		t.Errorf("named are %q", texts)
	}
}

// A replaced object is deleted and made again in one change, never without being accepted;
// one that others need is refused, and they are named.
func TestReplace(t *testing.T) {
	f := newServers()
	if err := f.writer().write(t.Context(), setOf(t, f, ground)); err != nil {
		t.Fatal(err)
	}
	moved := strings.ReplaceAll(ground, "vnet_id: 10", "vnet_id: 11")
	s := setOf(t, f, moved)
	if err := accepted(s, 4, accepts{}); err == nil || !strings.Contains(err.Error(), "blue") || !strings.Contains(err.Error(), "--replace") {
		t.Fatalf("%v", err)
	}
	if err := accepted(s, 4, accepts{replace: true}); err != nil {
		t.Fatal(err)
	}
	if err := f.writer().write(t.Context(), s); err != nil || !setOf(t, f, moved).empty() {
		t.Fatalf("%v", err)
	}
	f.other(t, fmt.Sprintf(`create nic {"mac": "02:00:00:00:00:01", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "%s"}`, s.replaced[0].ID))
	s, err := makeSet(f.cloud(), docsFrom(t, ground), nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := accepted(s, 4, accepts{replace: true}); err == nil || !strings.Contains(err.Error(), log.CodeInUse) {
		t.Fatalf("%v", err)
	}
	if errs := s.outcome.Changes[0].Refused[0].Refusal.Errors; len(errs) == 0 || errs[0].ID != "02:00:00:00:00:01" {
		t.Errorf("named are %+v", errs)
	}
}

// Pruning takes more than half of a set, or all of it because a folder is empty, only if
// that was accepted.
func TestPruneOfMost(t *testing.T) {
	for _, c := range []struct {
		p    pruned
		docs int
		want string
	}{
		{pruned{"set=web", 2, 4}, 2, ""},
		{pruned{"set=web", 3, 4}, 1, "more than half"},
		{pruned{"set=web", 1, 4}, 0, "no document"},
		{pruned{"set=web", 0, 0}, 0, ""},
		{pruned{}, 0, ""},
	} {
		s := &set{prune: c.p}
		err := accepted(s, c.docs, accepts{})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v of %d documents: %v", c.p, c.docs, err)
		}
		if err := accepted(s, c.docs, accepts{pruneMost: true}); err != nil {
			t.Errorf("%+v: %v", c.p, err)
		}
	}
}

// A saved plan is read as it was written, and hostile files are errors.
func TestSaved(t *testing.T) {
	f := newServers()
	s := setOf(t, f, ground+nicsOf(3, ""))
	name := filepath.Join(t.TempDir(), "plan")
	if err := save(name, changetest.UUID(5), 7, s.changes); err != nil {
		t.Fatal(err)
	}
	head, changes, err := load(name)
	if err != nil || head.Cluster != changetest.UUID(5) || head.Head != 7 || len(changes) != len(s.changes) {
		t.Fatalf("%+v %v", head, err)
	}
	for i := range changes {
		a, _ := log.NewEncoder().Change(changes[i])
		b, _ := log.NewEncoder().Change(s.changes[i])
		if !bytes.Equal(bytes.Clone(a), b) {
			t.Errorf("change %d is another one", i)
		}
	}
	for _, text := range []string{"", "kind: network\n", "{}", `{"rutter_plan": 2}`, `{"rutter_plan": 1, "changes": ["AAAA"]}`, "\x1b[31m"} {
		bad := filepath.Join(t.TempDir(), "bad")
		writeFile(t, bad, text)
		if _, _, err := load(bad); err == nil {
			t.Errorf("%q is a plan", text)
		}
	}
}

// Documents that name each other in a circle, or one thing twice, are an error or a refusal
// that names them.
func TestCircles(t *testing.T) {
	for _, text := range []string{
		"kind: network_pool\nname: a\nspec: {networks: [a]}\n",
		"kind: network_pool\nname: a\nspec: {networks: [b]}\n---\nkind: network_pool\nname: b\nspec: {networks: [a]}\n",
		"kind: nic_tag\nname: a\nspec: {mtu: 1500}\n---\nkind: nic_tag\nname: a\nspec: {mtu: 9000}\n",
	} {
		f := newServers()
		s, err := makeSet(f.cloud(), docsFrom(t, text), nil, time.Now())
		if err == nil {
			err = accepted(s, 2, accepts{true, true})
		}
		if err == nil || !strings.Contains(err.Error(), "a") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
