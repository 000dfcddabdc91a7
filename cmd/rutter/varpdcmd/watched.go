package varpdcmd

import (
	"fmt"
	"strings"
	"time"

	"rutter/agent/varpd"
	"rutter/cmd/rutter/sdnotify"
)

// lookedWithin is the time in which the daemon looks at the kernel, which it does once a
// minute if nothing else happens, even if a look takes long.
const lookedWithin = 5 * time.Minute

// watched is the daemon as its supervisor sees it.
type watched struct {
	ready   <-chan struct{} // closed when a server has answered and the links are known
	stats   func() varpd.Stats
	servers []string
	looks   sdnotify.Progress
}

// report says what the daemon does.
func (w *watched) report(now time.Time) (r sdnotify.Report) {
	names := strings.Join(w.servers, ", ")
	select {
	case <-w.ready:
	default:
		r.Status = "waits for an answer of an SVP server: " + names
		return r
	}
	s := w.stats()
	r.Ready, r.Status = true, fmt.Sprintf("resolves by %s; links: %d; entries in the kernel: %d", names, s.Links, s.Neighs+s.Forwards)
	if still := w.looks.Still(s.Looks, true, now); still >= lookedWithin {
		r.Stuck = fmt.Sprintf("the kernel was not looked at for %v", still.Round(time.Second))
	}
	return r
}
