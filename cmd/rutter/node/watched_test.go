package node

import (
	"testing"
	"time"

	"rutter/agent"
	"rutter/log"
)

// TestAgentReport: ready with the first pass over the kernel, without any server, and in any
// case after half a minute; stuck when passes end to come.
func TestAgentReport(t *testing.T) {
	begun := time.Now()
	var s agent.Status
	w := Watched{status: func() agent.Status { return s }, opened: begun}
	at := func(d time.Duration) time.Time { return begun.Add(d) }
	if r := w.Report(at(time.Second)); r.Ready || r.Stuck != "" {
		t.Errorf("before the first pass: %+v", r)
	}
	if r := w.Report(at(firstPassWithin)); !r.Ready {
		t.Errorf("after %v: %+v", firstPassWithin, r)
	}
	s.Kernel.Passes, s.State, s.Failure = 1, agent.Waiting, "connection refused"
	if r := w.Report(at(40 * time.Second)); !r.Ready || r.Stuck != "" || r.Status != "waits for a server, and has no cache to go on from (connection refused); links: 0" {
		t.Errorf("after the first pass: %+v", r)
	}
	if r := w.Report(at(40*time.Second + passWithin)); r.Stuck == "" {
		t.Errorf("passes end to come: %+v", r)
	}
	s.Kernel.Took = time.Minute // a node whose passes take long has longer
	if r := w.Report(at(41*time.Second + passWithin)); r.Stuck != "" {
		t.Errorf("passes take a minute: %+v", r)
	}
	s.Kernel.Passes++
	if r := w.Report(at(time.Hour)); r.Stuck != "" {
		t.Errorf("passes go on: %+v", r)
	}
}

// TestAgentStatusLine: what systemctl status shows is what the agent does or waits for.
func TestAgentStatusLine(t *testing.T) {
	cached := log.Cursor{Seq: 9}
	for want, s := range map[string]agent.Status{
		"waits for a server, and has no cache to go on from; makes its links":                                   {},
		"goes on from its cache: no server is connected (refused); links: 4":                                    {State: agent.Waiting, Failure: "refused", Cursor: cached, Kernel: agent.KernelStatus{Passes: 1, Links: 4}},
		"follows https://10.0.0.1:7420; links: 4; cannot be made: 3; removals are held until rutter cn accept":  {State: agent.Following, Server: "https://10.0.0.1:7420", Cursor: cached, Hold: new(agent.Hold), Kernel: agent.KernelStatus{Passes: 1, Links: 4, Failing: 1, Blocked: 2}},
		"follows s; the kernel cannot be compared with the log: no right; troubles: 1, see rutter agent status": {State: agent.Following, Server: "s", Trouble: []string{"a"}, Kernel: agent.KernelStatus{Passes: 1, Failure: "no right"}},
	} {
		if got := statusLine(&s); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}
