package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/log"
)

// failuresOf are the failures of as many VMs whose namespaces cannot be read.
func failuresOf(vms int) []link.Failure {
	list := make([]link.Failure, 0, vms)
	for i := range vms {
		list = append(list, link.Failure{
			Object: plan.Object{Kind: plan.ObjectFabric, MAC: log.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}},
			Err:    fmt.Errorf("VM %d: %w: /run/netns/z%d is a plain file", i, plan.ErrBadNamespace, i),
		})
	}
	return list
}

// TestFailuresAreShown: what fails for one VM is in the status, with its cause, and in the
// metrics.
func TestFailuresAreShown(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, k := newServers(t), new(fakeKernel)
		k.answer = func(int) (link.Result, error) {
			return link.Result{Failures: failuresOf(2), Unread: 2, RetryAt: time.Now().Add(32 * time.Second)}, nil
		}
		a, stop := running(t, folder, s, k)
		defer stop()
		time.Sleep(time.Second)
		synctest.Wait()
		got := a.Status()
		if got.Kernel.Failing != 2 || got.Kernel.Unread != 2 || got.Kernel.Failure != "" || len(got.Kernel.Failures) != 2 || !strings.Contains(got.Kernel.Failures[1], "VM 1: link: network namespace cannot be used: /run/netns/z1 is a plain file") {
			t.Errorf("status: %+v", got.Kernel)
		}
		k.setAnswer(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := a.Status().Kernel; got.Unread != 0 || got.Failing != 0 {
			t.Errorf("after all is well: %d unread, %d failing", got.Unread, got.Failing)
		}
	})
}

// TestFailuresAreLoggedWithAPause: a failure that lasts, or comes and goes, is logged once
// in logAgain, and a pass logs at most maxLogLines.
func TestFailuresAreLoggedWithAPause(t *testing.T) {
	var out bytes.Buffer
	r := &reconciler{logger: slog.New(slog.NewTextHandler(&out, nil))}
	lines := func() int {
		n := strings.Count(out.String(), "\n")
		out.Reset()
		return n
	}
	now := time.Unix(1_000_000, 0)
	for range 100 {
		r.logFailures(failuresOf(1), now)
		r.logFailures(nil, now)
		now = now.Add(logAgain / 200)
	}
	if got := lines(); got != 1 {
		t.Errorf("one failure that comes and goes: %d lines, want 1", got)
	}
	r.logFailures(failuresOf(1), now.Add(logAgain))
	if got := lines(); got != 1 {
		t.Errorf("after logAgain: %d lines, want 1", got)
	}
	r.logged = nil
	r.logFailures(failuresOf(20), now)
	if got := lines(); got != maxLogLines {
		t.Errorf("20 failures in one pass: %d lines, want %d", got, maxLogLines)
	}
	for range 3 {
		r.logFailures(failuresOf(20), now)
	}
	if got := lines(); got != 20-maxLogLines {
		t.Errorf("the following passes: %d lines, want the other %d", got, 20-maxLogLines)
	}
	for range 1000 {
		r.logFailures(failuresOf(2*maxLogged), now)
	}
	if len(r.logged) != maxLogged {
		t.Errorf("%d failures are remembered, want %d", len(r.logged), maxLogged)
	}
	r.logFailures([]link.Failure{{Err: errors.New("x")}}, now)
	if lines(); len(r.logged) != maxLogged {
		t.Error("the bound does not hold")
	}
}

// TestWaitsAreShown: the status has each object that waits, with its cause and its next try,
// before those of VMs that are not to run, and counts both; only the first are failures, in
// the metrics and in the log. What a foreign link blocks is logged once.
func TestWaitsAreShown(t *testing.T) {
	var out bytes.Buffer
	r := &reconciler{logger: slog.New(slog.NewTextHandler(&out, nil))}
	again := time.Unix(1_700_000_000, 0)
	result := link.Result{Failures: failuresOf(3)}
	for i := range result.Failures {
		f := &result.Failures[i]
		f.RetryAt = again
		result.Pending = append(result.Pending, link.Pending{Failure: *f, Concern: link.ConcernNIC, NIC: f.Object.MAC, VM: vmID(i), VNet: 7, Idle: i == 0})
	}
	foreign := plan.Blocked{Object: plan.Object{Kind: plan.ObjectVXLAN, VNet: 9}, Err: plan.ErrForeign}
	result.Conflicts = []plan.Blocked{foreign}
	result.Pending = append(result.Pending, link.Pending{Failure: link.Failure{Object: foreign.Object, Err: foreign.Err}, Concern: link.ConcernVNet, VNet: 9})
	for range 3 {
		r.waits = waitsOf(result.Pending)
		r.note(wanted{}, result, nil, again)
	}
	k := r.last
	if k.Waiting != 3 || k.Idle != 1 || k.Failing != 2 || k.Blocked != 1 || len(k.Waits) != 4 || len(k.Failures) != 2 {
		t.Fatalf("%d waiting, %d idle, %d failing, %d listed: %+v", k.Waiting, k.Idle, k.Failing, len(k.Waits), k)
	}
	if w := k.Waits[0]; w.VM != vmID(1) || !w.RetryAt.Equal(again) || w.VNet != 7 || !strings.Contains(w.Object, "/run/netns/z1 is a plain file") || w.Idle {
		t.Errorf("first: %+v", w)
	}
	if w := k.Waits[3]; w.VM != vmID(0) || !w.Idle || !strings.Contains(w.Object, "not to run") {
		t.Errorf("last: %+v", w)
	}
	text := out.String()
	if strings.Count(text, "\n") != 3 || strings.Count(text, "sdcvxl9: link: foreign link in the way") != 1 || strings.Contains(text, "VM 0:") {
		t.Errorf("log:\n%s\nwant one line for each of three causes", text)
	}
}
