package vmscmd

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"rutter/agent/vminfo/vmhelper"
)

// TestWatched: ready with the first answer, asked every askEvery, stuck when no answer came
// for answeredWithin, and no longer when one comes. That it is busy is an answer.
func TestWatched(t *testing.T) {
	began := time.Now()
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	silent := fmt.Errorf("%w: nobody is there", vmhelper.ErrNoHelper)
	var fails error
	asked, answer := 0, vmhelper.Report{Done: 3, Failed: 1}
	w := watched{ask: func(context.Context) (*vmhelper.Report, error) {
		asked++
		return &answer, fails
	}}
	for _, c := range []struct {
		second int
		fails  error
		asked  int
		ready  bool
		stuck  bool
		status string
	}{
		{0, silent, 1, false, false, "does not answer at its socket: " + silent.Error()},
		{1, nil, 2, true, false, "runs VMs for the agent; requests: 0 now, 3 done, 1 failed"},
		{4, silent, 2, true, false, "runs VMs for the agent; requests: 0 now, 3 done, 1 failed"},
		{6, silent, 3, true, false, "does not answer at its socket: " + silent.Error()},
		{60, silent, 4, true, false, "does not answer at its socket: " + silent.Error()},
		{65, silent, 5, true, true, "does not answer at its socket: " + silent.Error()},
		{70, vmhelper.ErrBusy, 6, true, false, "as many clients are connected as may be"},
		{75, nil, 7, true, false, "runs VMs for the agent; requests: 0 now, 3 done, 1 failed"},
	} {
		fails = c.fails
		r := w.report(at(c.second))
		if asked != c.asked || r.Ready != c.ready || (r.Stuck != "") != c.stuck || r.Status != c.status {
			t.Errorf("at %d s: asked %d times, %+v", c.second, asked, r)
		}
	}
	answer.Trouble = []string{"it can start no VM: no cgroup"}
	fails = nil
	if r := w.report(at(90)); r.Status != answer.Trouble[0] {
		t.Errorf("with a trouble: %+v", r)
	}
	// One that never answers is stuck too.
	w = watched{ask: func(context.Context) (*vmhelper.Report, error) { return nil, errors.New("no socket") }}
	if first, later := w.report(at(0)), w.report(at(61)); first.Stuck != "" || later.Stuck == "" || later.Ready {
		t.Errorf("never: %+v, then %+v", first, later)
	}
}
