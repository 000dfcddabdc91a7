package serve

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"rutter/cmd/rutter/sdnotify"
	"rutter/raftstore"
)

const (
	// appliedWithin is the time in which a server applies one of the entries that wait for
	// it, whatever they are: an image of a million objects takes some ten seconds.
	appliedWithin = 2 * time.Minute
	// diskBusy is the age of an operation on disk from which entries wait for the disk. A
	// disk that hangs is not mended by a restart, and --disk-patience ends the server.
	diskBusy = time.Second
	// notRunning is Status.State before Run.
	notRunning = "Stopped"
)

// Watched is a server as its supervisor sees it.
type Watched struct {
	server  *Server
	applied sdnotify.Progress
}

// Watched returns the server for its supervisor, which calls Report.
func (s *Server) Watched() *Watched { return &Watched{server: s} }

// Report says what the server does. It is ready when its ports are open and its store runs: it
// answers then, says what it waits for, and takes part in the election of a leader. If it
// were ready only with a leader, the first server of a new cluster could not be started
// before the second.
func (w *Watched) Report(now time.Time) sdnotify.Report {
	st := w.server.store.Status()
	return sdnotify.Report{
		Ready:  st.State != notRunning,
		Status: statusLine(&st, len(w.server.sessions.Live())),
		Stuck:  w.stuck(&st, w.server.store.Unapplied(), now),
	}
}

// stuck says why no entry is applied although some wait, "" while it is as it should be.
// Status alone takes the locks of the store: if it hangs, nothing is reported at all.
func (w *Watched) stuck(st *raftstore.Status, waiting uint64, now time.Time) string {
	waits := waiting > 0 && !st.Rebuild && st.DiskOp < diskBusy
	if still := w.applied.Still(st.Applied, waits, now); still >= appliedWithin {
		return fmt.Sprintf("%d entries of raft wait to be applied, and none was for %v, although no operation on disk is under way", waiting, still.Round(time.Second))
	}
	return ""
}

// statusLine says what a server does or waits for.
func statusLine(st *raftstore.Status, nodes int) string {
	var parts []string
	switch {
	case st.State == notRunning:
		return "starts"
	case st.Diverged != "":
		parts = append(parts, "serves nothing: "+plain(st.Diverged))
	case !st.Ready:
		parts = append(parts, "waits: "+plain(st.NotReady))
	case st.LeaderID == st.ID:
		parts = append(parts, "leads")
	default:
		parts = append(parts, "follows "+st.LeaderID)
	}
	var names []string
	for _, m := range st.Members {
		names = append(names, m.ID)
	}
	slices.Sort(names)
	switch {
	case len(names) == 0:
		parts = append(parts, "belongs to no cluster yet")
	case len(names) > 9:
		parts = append(parts, fmt.Sprintf("one of %d servers", len(names)))
	default:
		parts = append(parts, "servers: "+strings.Join(names, " "))
	}
	parts = append(parts, fmt.Sprintf("compute nodes connected here: %d", nodes))
	for _, alarm := range append(st.Alarms(), st.Clock.Alarms...) {
		parts = append(parts, "alarm: "+plain(alarm))
	}
	return strings.Join(parts, "; ")
}

// plain takes the name of the package from the text of an error.
func plain(text string) string { return strings.TrimPrefix(text, "raftstore: ") }
