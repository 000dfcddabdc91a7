package netreport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/report"
	"rutter/projections"
	"rutter/projections/rules"
)

// memory is a log of one server; the changes of a report are decided one by one.
type memory struct {
	state *projections.State
	seq   log.Seq
	done  map[log.UUID]log.Result // of accepted changes, as servers remember them
}

func (m *memory) Serving() error                              { return nil }
func (m *memory) Consistent(context.Context) (log.Seq, error) { return m.seq, nil }

func (m *memory) View(fn func(*projections.State, log.Cursor)) {
	fn(m.state, log.Cursor{Cluster: log.UUID{1}, Seq: m.seq})
}

func (m *memory) Propose(_ context.Context, c *log.Change) (log.Result, error) {
	if first, again := m.done[c.ID]; again {
		return first, nil
	}
	c.Time = log.Time(1e18)
	events, result := rules.Decide(m.state, c)
	for _, e := range events {
		m.seq++
		if _, err := m.state.Apply(m.seq, e); err != nil {
			return result, err
		}
	}
	result.Last = m.seq
	if result.Refusal == nil {
		if m.done == nil {
			m.done = make(map[log.UUID]log.Result)
		}
		m.done[c.ID] = result
	}
	return result, nil
}

var (
	ourCN, otherCN, ourVM = log.UUID{0xc, 15: 1}, log.UUID{0xc, 15: 2}, log.UUID{0xb, 15: 1}
	ourMAC, otherMAC      = log.MAC{2, 0, 0, 0, 0, 1}, log.MAC{2, 0, 0, 0, 0, 2}
)

func nicOn(mac log.MAC, cn log.UUID) log.Op {
	return log.Op{
		Action: log.Create, Kind: log.KindNIC, Set: []string{"belongs_to_type", "belongs_to_uuid", "cn_uuid", "mac", "owner_uuid", "state"},
		Object: &log.NIC{MAC: mac, BelongsToType: "zone", BelongsToUUID: ourVM, CNUUID: cn, OwnerUUID: log.UUID{0xa}, State: "running"},
	}
}

// TestReports: reports in order are done, older ones and those about others'
// NICs are not, and each change is answered alone.
func TestReports(t *testing.T) {
	s, err := New(Config{Store: &memory{state: projections.NewState()}})
	if err != nil {
		t.Fatal(err)
	}
	id := byte(0)
	send := func(incarnation, counter uint64, ops ...log.Op) (status int, a report.Answer) {
		t.Helper()
		m := report.Report{Incarnation: incarnation, Counter: counter, Look: []log.MAC{ourMAC, otherMAC}}
		for _, op := range ops {
			id++
			m.Changes = append(m.Changes, report.Change{Change: log.Change{ID: log.UUID{6: 0x70, 8: 0x80, 15: id}, Ops: []log.Op{op}}})
		}
		body, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/"+ourCN.String(), bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		s.Handler().ServeHTTP(w, r)
		if w.Code == http.StatusOK {
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
				t.Fatal(err)
			}
		}
		return w.Code, a
	}
	_, a := send(5, 2, nicOn(ourMAC, ourCN))
	if a.Stale || len(a.Outcomes) != 1 || a.Outcomes[0].Refusal != nil || a.Found[0].Object == nil || a.Found[0].Revision != 1 || a.Found[1].Object != nil {
		t.Fatalf("a creation: %+v", a)
	}
	for _, p := range []struct{ incarnation, counter uint64 }{{5, 1}, {4, 9}} {
		if _, a := send(p.incarnation, p.counter, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: ourMAC.String(), IfMatch: 1, IfSeq: a.Found[0].Seq}); !a.Stale || a.Incarnation != 5 || a.Counter != 2 {
			t.Errorf("an older report: %+v", a)
		}
	}
	if _, a = send(6, 1, nicOn(otherMAC, otherCN), log.Op{Action: log.Delete, Kind: log.KindNIC, ID: ourMAC.String()}); a.Outcomes[0].Refusal == nil || a.Outcomes[1].Refusal == nil || a.Found[0].Object == nil {
		t.Errorf("another's NIC, and a deletion of any revision: %+v", a)
	}
	if status, _ := send(6, 2, log.Op{Action: log.Delete, Kind: log.KindNetwork, ID: ourVM.String()}); status != http.StatusUnprocessableEntity {
		t.Errorf("a network in a report: %d, want 422", status)
	}
	if status, _ := send(0, 1); status != http.StatusUnprocessableEntity {
		t.Errorf("a report without an incarnation: %d, want 422", status)
	}
	if _, a = send(6, 3, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: ourMAC.String(), IfMatch: 1, IfSeq: a.Found[0].Seq}); a.Outcomes[0].Refusal != nil || a.Found[0].Object != nil {
		t.Errorf("a release: %+v", a)
	}
}

// TestAllowed: who may not speak for a compute node is refused before anything.
func TestAllowed(t *testing.T) {
	s, err := New(Config{Store: &memory{state: projections.NewState()}, Allowed: func(*http.Request, log.UUID) error { return http.ErrNotSupported }})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/" + ourCN.String(): http.StatusForbidden, "/x": http.StatusNotFound} {
		w := httptest.NewRecorder()
		if s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil)); w.Code != want {
			t.Errorf("POST %s: %d, want %d", path, w.Code, want)
		}
	}
}

// TestBoundReportsSeeTheirOwn: a compute node by its certificate sees NICs and networks
// that concern it, and others as if they were not there; what it may write the log says.
func TestBoundReportsSeeTheirOwn(t *testing.T) {
	m := &memory{state: projections.NewState()}
	write := func(by log.Author, ops ...log.Op) {
		t.Helper()
		if result, err := m.Propose(t.Context(), &log.Change{ID: log.UUID{byte(m.seq), 6: 0x70, 8: 0x80}, By: by, Ops: ops}); err != nil || result.Refusal != nil {
			t.Fatal(err, result.Refusal)
		}
	}
	other := nicOn(otherMAC, otherCN)
	other.Object.(*log.NIC).BelongsToUUID = log.UUID{0xb, 15: 2}
	write(log.Author{}, nicOn(ourMAC, ourCN), other)
	bound := log.Author{Role: log.RoleCN, CN: ourCN}
	s, err := New(Config{Store: authored{m, bound}, Bound: func(*http.Request) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	update := func(n byte, mac log.MAC) report.Change {
		return report.Change{Change: log.Change{ID: log.UUID{9, 6: 0x70, 8: 0x80, 15: n}, Ops: []log.Op{{
			Action: log.Update, Kind: log.KindNIC, ID: mac.String(), IfMatch: 1, IfSeq: 1, Set: []string{"state"}, Object: &log.NIC{State: "stopped"},
		}}}}
	}
	gone := log.MAC{2, 0, 0, 0, 0, 9}
	a, err := s.Take(t.Context(), ourCN, &report.Report{
		Incarnation: 1, Counter: 1, Look: []log.MAC{ourMAC, otherMAC, gone}, Changes: []report.Change{update(1, otherMAC), update(2, gone)},
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	if a.Found[0].Object == nil || a.Found[1].Object != nil || a.Found[1].Seq != 0 || a.Found[2].Object != nil {
		t.Errorf("found %+v, want its own NIC only", a.Found)
	}
	var texts []string
	for i, mac := range []log.MAC{otherMAC, gone} {
		if a.Outcomes[i].Refusal == nil {
			t.Fatalf("the update of %s is accepted", mac)
		}
		texts = append(texts, strings.ReplaceAll(a.Outcomes[i].Refusal.Error(), mac.String(), "MAC"))
	}
	if texts[0] != texts[1] {
		t.Errorf("another's NIC: %s\none that is not there: %s", texts[0], texts[1])
	}
}

// authored is a log whose changes have one author.
type authored struct {
	*memory
	by log.Author
}

func (a authored) Propose(ctx context.Context, c *log.Change) (log.Result, error) {
	c.By = a.by
	return a.memory.Propose(ctx, c)
}

// TestAnswersAreBounded: a report that is refused as often and as much as can be, and
// one that asks again and again for what is large, get no more than an answer may hold.
func TestAnswersAreBounded(t *testing.T) {
	refusal := &log.Refusal{Code: log.CodeInvalidParameters, Message: strings.Repeat("m", log.MaxMessageBytes)}
	for range 12 {
		refusal.Errors = append(refusal.Errors, log.FieldError{Field: "f", Message: strings.Repeat("<", log.MaxMessageBytes)})
	}
	outcomes := make([]report.Outcome, report.MaxChanges)
	for i := range outcomes {
		outcomes[i].Refusal = refusal
	}
	outcomes[0].Refusal = &log.Refusal{Code: log.CodeInUse, Errors: []log.FieldError{{Field: "first"}}}
	boundErrors(outcomes)
	text, err := json.Marshal(outcomes)
	if most := maxErrors + report.MaxChanges*(log.MaxMessageBytes+1024); err != nil || len(text) > most {
		t.Errorf("outcomes of %d bytes, over %d: %v", len(text), most, err)
	}
	if len(outcomes[0].Refusal.Errors) != 1 || len(refusal.Errors) != 12 || outcomes[127].Refusal.Message != refusal.Message {
		t.Errorf("%+v", outcomes[0].Refusal)
	}

	m := &memory{state: projections.NewState()}
	s, err := New(Config{Store: m})
	if err != nil {
		t.Fatal(err)
	}
	network := &log.Network{UUID: log.UUID{1}, Name: "large", NICTag: "large", Description: strings.Repeat("x", 2*maxFound/report.MaxLooks)}
	if _, err := m.state.Apply(1, &log.Event{Kind: log.KindNetwork, ID: network.ID(), Action: log.Create, Revision: 1, Object: network}); err != nil {
		t.Fatal(err)
	}
	ask := &report.Report{Incarnation: 1, Counter: 1}
	for n := range report.MaxLooks {
		ask.Networks = append(ask.Networks, "large")
		if n > 0 && n < 255 {
			continue
		}
		if a, err := s.Take(t.Context(), ourCN, ask, false); n == 0 && (err != nil || len(a.Found) != 1 || a.Found[0].Object == nil) || n == 255 && !errors.Is(err, report.ErrBounds) {
			t.Errorf("%d times: %v", n+1, err)
		}
	}
}

// TestReportedAgain: a change whose answer was lost is sent again, when the object is already
// what the change made of it. It gets its first result. A change that others overtook is
// refused by deciding.
func TestReportedAgain(t *testing.T) {
	store := &memory{state: projections.NewState()}
	s, err := New(Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	made := s.write(t.Context(), ourCN, &log.Change{ID: log.UUID{6: 0x70, 8: 0x80, 15: 1}, Ops: []log.Op{nicOn(ourMAC, ourCN)}}, false)
	update := func(id byte, state string) report.Outcome {
		return s.write(t.Context(), ourCN, &log.Change{ID: log.UUID{6: 0x70, 8: 0x80, 15: id}, Ops: []log.Op{{
			Action: log.Update, Kind: log.KindNIC, ID: ourMAC.String(), IfMatch: 1, IfSeq: made.Last, Set: []string{"state"}, Object: &log.NIC{State: state},
		}}}, false)
	}
	first := update(2, "stopped")
	if first.Refusal != nil || first.Unknown != "" || first.Last <= made.Last {
		t.Fatalf("an update: %+v", first)
	}
	if again := update(2, "stopped"); again.Refusal != nil || again.Last != first.Last {
		t.Errorf("the same again: %+v, want %+v", again, first)
	}
	if other := update(3, "running"); other.Refusal == nil || other.Refusal.Code != log.CodePreconditionFailed {
		t.Errorf("another update of what the object was: %+v", other)
	}
}

// undecided is a log whose cluster does not say what became of a change.
type undecided struct{ *memory }

func (undecided) Propose(context.Context, *log.Change) (log.Result, error) {
	return log.Result{}, errors.New("the leader is gone")
}

// TestUnknownOutcome: a change of which it is not known whether it is in the log is answered
// so, and not as done or refused: the node sends it again.
func TestUnknownOutcome(t *testing.T) {
	s, err := New(Config{Store: undecided{&memory{state: projections.NewState()}}})
	if err != nil {
		t.Fatal(err)
	}
	c := &log.Change{ID: log.UUID{6: 0x70, 8: 0x80}, Ops: []log.Op{nicOn(ourMAC, ourCN)}}
	if got := s.write(t.Context(), ourCN, c, false); got.Unknown != "the leader is gone" || got.Refusal != nil || got.Last != 0 {
		t.Errorf("got %+v, want an unknown outcome", got)
	}
}
