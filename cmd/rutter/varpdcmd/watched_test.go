package varpdcmd

import (
	"testing"
	"time"

	"rutter/agent/varpd"
)

// TestReport: ready when a server has answered, stuck when the kernel is not looked at.
func TestReport(t *testing.T) {
	ready, s := make(chan struct{}), varpd.Stats{Links: 2, Neighs: 3, Forwards: 4}
	w := watched{ready: ready, stats: func() varpd.Stats { return s }, servers: []string{"10.0.0.1:1296"}}
	begun := time.Now()
	if r := w.report(begun); r.Ready || r.Stuck != "" || r.Status != "waits for an answer of an SVP server: 10.0.0.1:1296" {
		t.Errorf("before: %+v", r)
	}
	close(ready)
	if r := w.report(begun.Add(time.Minute)); !r.Ready || r.Stuck != "" || r.Status != "resolves by 10.0.0.1:1296; links: 2; entries in the kernel: 7" {
		t.Errorf("ready: %+v", r)
	}
	if r := w.report(begun.Add(time.Minute + lookedWithin)); r.Stuck == "" {
		t.Errorf("no look for %v: %+v", lookedWithin, r)
	}
	s.Looks++
	if r := w.report(begun.Add(time.Hour)); r.Stuck != "" {
		t.Errorf("it looks again: %+v", r)
	}
}
