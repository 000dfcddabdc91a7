package node

import (
	"fmt"
	"strings"
	"time"

	"rutter/agent"
	"rutter/cmd/rutter/sdnotify"
)

const (
	// firstPassWithin bounds how long the boot of a node waits until the links of the cache
	// are in the kernel: with ten thousand of them that takes seconds.
	firstPassWithin = 30 * time.Second
	// passWithin is the time in which an agent compares the kernel with the log again, which
	// it does each 30 s, unless comparing takes long: then, passTimes as long as the last.
	passWithin = 5 * time.Minute
	passTimes  = 20
)

// Watched is a compute node as its supervisor sees it.
type Watched struct {
	status func() agent.Status
	opened time.Time
	passes sdnotify.Progress
}

// Watched returns the node for its supervisor, which calls Report.
func (n *Node) Watched() *Watched { return &Watched{status: n.agent.Status, opened: time.Now()} }

// Report says what the node does. It is ready when the kernel was compared with what the
// cache or a server says, and all that could be made was made; a server need not answer for
// that. After firstPassWithin it is ready in any case: the boot of a node does not wait for
// its VMs' network without end.
func (w *Watched) Report(now time.Time) sdnotify.Report {
	s := w.status()
	k := &s.Kernel
	r := sdnotify.Report{Ready: k.Passes > 0 || now.Sub(w.opened) >= firstPassWithin, Status: statusLine(&s)}
	within := max(passWithin, passTimes*k.Took)
	if still := w.passes.Still(k.Passes+k.Applied, true, now); still >= within {
		r.Stuck = fmt.Sprintf("the kernel was not compared with the log for %v", still.Round(time.Second))
	}
	return r
}

// statusLine says what an agent does or waits for.
func statusLine(s *agent.Status) string {
	var parts []string
	k := &s.Kernel
	known := s.Cursor.Seq > 0
	switch {
	case s.State == agent.Following, s.State == agent.Resetting:
		parts = append(parts, "follows "+s.Server)
	case known:
		parts = append(parts, "goes on from its cache: no server is connected")
	default:
		parts = append(parts, "waits for a server, and has no cache to go on from")
	}
	if s.Failure != "" && s.State == agent.Waiting {
		parts[0] += " (" + s.Failure + ")"
	}
	switch {
	case k.Passes == 0:
		parts = append(parts, "makes its links")
	case k.Failure != "":
		parts = append(parts, "the kernel cannot be compared with the log: "+k.Failure)
	default:
		parts = append(parts, fmt.Sprintf("links: %d", k.Links))
	}
	if n := k.Failing + k.Blocked; n > 0 {
		parts = append(parts, fmt.Sprintf("cannot be made: %d", n))
	}
	if s.Hold != nil {
		parts = append(parts, "removals are held until rutter cn accept")
	}
	if n := len(s.Trouble); n > 0 {
		parts = append(parts, fmt.Sprintf("troubles: %d, see rutter agent status", n))
	}
	return strings.Join(parts, "; ")
}
