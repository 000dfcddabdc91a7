package importcmd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"rutter/api/client"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

// fakeServers decide changes on a state, one after another.
type fakeServers struct {
	mu    sync.Mutex
	state *projections.State
	seq   log.Seq
	asked int
	fail  func(asked int, c *log.Change) error // nil: none
}

func (f *fakeServers) Submit(_ context.Context, c *log.Change) (log.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.fail != nil {
		if err := f.fail(f.asked, c); err != nil {
			return log.Result{}, err
		}
	}
	events, result := rules.Decide(f.state, c)
	if result.Refusal != nil {
		return result, result.Refusal
	}
	for _, e := range events {
		f.seq++
		if _, err := f.state.Apply(f.seq, e); err != nil {
			return result, err
		}
	}
	return result, nil
}

func writerTo(f *fakeServers) *writer {
	return &writer{to: f, newID: client.NewChangeID, tell: func(string, int, int) {}}
}

// A change of another client meanwhile affects its own objects, and no others of their
// batch. A server that is overloaded is asked again.
func TestWriteBesidesOthers(t *testing.T) {
	p := makePlan(read(t, everything...), projections.NewState(), 0)
	f := &fakeServers{state: projections.NewState()}
	f.fail = func(asked int, c *log.Change) error {
		switch {
		case asked == 2:
			return client.ErrOverloaded
		case len(c.Ops) > 1 && c.Ops[0].Kind == log.KindNIC:
			return &log.Refusal{Code: log.CodeInvalidParameters, Message: "Invalid parameters"} // taken apart
		case c.Ops[0].Kind == log.KindNIC && c.Ops[0].Object.ID() == "90:b8:d0:00:00:01":
			return &log.Refusal{Code: log.CodeInvalidParameters, Errors: []log.FieldError{{Field: "mac", Message: "Already exists", Remedy: "choose another"}}}
		}
		return nil
	}
	w := writerTo(f)
	if err := w.write(t.Context(), p.steps); err != nil {
		t.Fatal(err)
	}
	if len(w.problems) != 1 || w.problems[0].ID != "90:b8:d0:00:00:01" || w.problems[0].Field != "mac" {
		t.Errorf("problems %+v, want one of the first NIC", w.problems)
	}
	if _, there := f.state.Get(log.KindNIC, "90:b8:d0:00:00:02"); !there || w.done != len(p.steps) {
		t.Errorf("%d of %d steps done, the other NIC is there: %t", w.done, len(p.steps), there)
	}
}

// An import that breaks off says so, and the next one goes on there.
func TestWriteGoesOn(t *testing.T) {
	f := &fakeServers{state: projections.NewState()}
	f.fail = func(asked int, _ *log.Change) error {
		if asked == 4 {
			return client.ErrUnavailable
		}
		return nil
	}
	w := writerTo(f)
	err := w.write(t.Context(), makePlan(read(t, everything...), projections.NewState(), 0).steps)
	if !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "run again to go on") {
		t.Fatalf("got %v, want %v and what to do", err, client.ErrUnavailable)
	}
	second := makePlan(read(t, everything...), stateCopy(t, f.state), 1<<40)
	if len(second.steps) == 0 || second.tallies[log.KindNICTag].Leave != 2 {
		t.Fatalf("the second plan has %d steps, and leaves %d tags", len(second.steps), second.tallies[log.KindNICTag].Leave)
	}
	if err := writerTo(f).write(t.Context(), second.steps); err != nil {
		t.Fatal(err)
	}
	twice(t, stateCopy(t, f.state), everything...)
}

// Batches are whole, in the order of the groups.
func TestBatches(t *testing.T) {
	var steps []step
	for i := range 250 {
		steps = append(steps, step{group: 1, op: log.Op{Kind: log.KindNIC, Object: &log.NIC{MAC: log.MAC{5: byte(i)}}}})
	}
	steps = append(steps, step{group: 2, op: log.Op{Kind: log.KindRouter, Object: &log.Router{}}})
	var sizes []int
	f := &fakeServers{state: projections.NewState()}
	f.fail = func(_ int, c *log.Change) error {
		sizes = append(sizes, len(c.Ops))
		if c.Ops[0].Kind == log.KindRouter && len(sizes) < 4 {
			t.Error("the router was written before the NICs")
		}
		return client.ErrBadChange
	}
	if err := writerTo(f).write(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	first := slices.Sorted(slices.Values(sizes[:3]))
	if !slices.Equal(first, []int{50, smallBatch, smallBatch}) || len(sizes) != 3+250+1 {
		t.Errorf("batches of %v and %d more, want 100, 100, 50, each alone, and the router", first, len(sizes)-3)
	}
}

func stateCopy(t *testing.T, s *projections.State) *projections.State {
	t.Helper()
	c := projections.NewState()
	for _, kind := range order {
		for r := range s.List(kind) {
			if err := c.Load(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	return c
}
