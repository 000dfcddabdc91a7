package agent

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"rutter/agent/link"
	"rutter/log"
	"rutter/projections"
)

// minRetry is the least time before a pass that a failed object waits for.
const minRetry = 10 * time.Millisecond

// watchAgain is how soon a watch of the kernel that broke is begun anew.
const watchAgain = 5 * time.Second

// reconciler makes the kernel match the replica: one goroutine, one select,
// one function that makes a pass. Every reason to look only wakes it.
type reconciler struct {
	cfg     *Config
	replica *replica
	kernel  Kernel
	tell    func() // has the servers told how far the kernel is
	woken   chan struct{}
	logger  *slog.Logger

	mu   sync.Mutex // protects what follows
	last KernelStatus
}

// KernelStatus says how the kernel stands to what is wanted.
type KernelStatus struct {
	Passes   uint64        `json:"passes"`
	At       time.Time     `json:"at,omitzero"`     // when the last pass began
	Took     time.Duration `json:"took_ns"`         // by the last pass
	Complete bool          `json:"complete"`        // the last pass was allowed to remove
	Matched  bool          `json:"matched"`         // the kernel was as wanted at its end
	Failure  string        `json:"error,omitempty"` // why the last pass could not be made
	Steps    uint64        `json:"steps"`           // done in this process
	Healed   uint64        `json:"healed"`          // of these, steps that put right what somebody else changed
	Failing  int           `json:"failing"`         // objects that the kernel refused, as of the last pass
	Blocked  int           `json:"blocked"`         // objects that foreign links keep from being as wanted
	Links    int           `json:"links"`           // wanted: all kinds of links
	Neighs   int           `json:"neighbours"`      // wanted
	FDB      int           `json:"fdb"`             // wanted
	// Failures, Conflicts, Drift and Problems (objects of the log that cannot be
	// programmed) say it in words, maxTold of each.
	Failures  []string `json:"failures"`
	Conflicts []string `json:"conflicts"`
	Drift     []string `json:"drift"` // of the last pass that found any
	Problems  []string `json:"problems"`
}

// maxTold bounds each list of a KernelStatus: enough to see what is wrong.
const maxTold = 32

// told says the first maxTold of list in words.
func told[T any](list []T, say func(T) string) []string {
	words := make([]string, 0, min(len(list), maxTold))
	for _, x := range list[:min(len(list), maxTold)] {
		words = append(words, say(x))
	}
	return words
}

// Run makes passes until ctx ends.
func (r *reconciler) Run(ctx context.Context) error {
	sweep := time.NewTicker(r.cfg.SweepEvery)
	defer sweep.Stop()
	for {
		// The first pass is made at once: links are programmed from the cache.
		var retry <-chan time.Time
		if again := r.pass(ctx); again > 0 {
			retry = time.After(again)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.replica.changed:
		case <-r.woken:
		case <-sweep.C:
		case <-retry:
		}
	}
}

// Watch has a pass made when somebody changed the kernel, until ctx ends.
func (r *reconciler) Watch(ctx context.Context) error {
	for {
		err := r.cfg.Watch(ctx, func() { wake(r.woken) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.logger.Warn("watch of the kernel broke: sweeps still find what changes", "error", err, "again", watchAgain)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(watchAgain):
		}
	}
}

// pass makes one pass and returns when the next is due at the latest, or 0 if
// this one left nothing undone.
func (r *reconciler) pass(ctx context.Context) time.Duration {
	want := r.replica.wanted()
	began := time.Now()
	result, err := r.kernel.Pass(ctx, want.links, want.complete)
	if ctx.Err() != nil {
		return 0
	}
	r.note(want, result, err, began)
	if err == nil && result.Matched && want.complete {
		r.replica.setProgrammed(want)
	}
	r.tell()
	switch {
	case err != nil:
		return r.cfg.RetryEvery
	case !result.RetryAt.IsZero():
		return max(time.Until(result.RetryAt), minRetry)
	case !result.Matched && len(result.Failures)+len(result.Conflicts) == 0:
		return r.cfg.RetryEvery // the kernel changed under the pass
	}
	return 0
}

func (r *reconciler) note(want wanted, result link.Result, err error, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, failed := &r.last, r.last.Failure
	s.Passes++
	s.At, s.Took, s.Complete = began, time.Since(began), want.complete
	s.Links, s.Neighs, s.FDB = len(want.links.VXLANs)+len(want.links.VLANs)+len(want.links.Fabrics), len(want.links.Neighs), len(want.links.FDB)
	s.Problems = told(want.links.Problems, func(p projections.Problem) string { return p.Kind.String() + " " + p.ID + ": " + p.Reason })
	s.Steps += uint64(len(result.Steps))
	s.Healed += uint64(len(result.Drift))
	if len(result.Drift) > 0 {
		s.Drift = told(result.Drift, link.Step.String)
		r.logger.Warn("kernel was changed by somebody else: put right", "steps", len(result.Drift), "first", s.Drift[0])
	}
	s.Matched, s.Failure = result.Matched && err == nil, ""
	if err != nil {
		s.Failure = err.Error()
		if s.Failure != failed {
			r.logger.Error("kernel cannot be compared with the log", "error", err)
		}
		return
	}
	s.Failing, s.Blocked = len(result.Failures), len(result.Conflicts)
	before := s.Failures
	s.Failures = told(result.Failures, link.Failure.String)
	s.Conflicts = told(result.Conflicts, func(b link.Blocked) string { return b.Object.String() + ": " + b.Err.Error() })
	if len(s.Failures) > 0 && !slices.Equal(before, s.Failures) {
		r.logger.Warn("kernel does not take all that is wanted", "objects", s.Failing, "first", s.Failures[0])
	}
}

func (r *reconciler) status() KernelStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// wanted is what the kernel should hold, and as of when.
type wanted struct {
	links    projections.Desired
	complete bool
	// seq is what was applied before links was computed: if the kernel comes to
	// match links, it matches the log at seq (SAFETY B1).
	seq   log.Seq
	epoch uint64
}

// wanted computes what the kernel should hold. It is complete, so that what it
// lacks may be removed, when all that the CN must know is held, has been said
// to be all at least once, and is not being replaced (DESIGN rule 8). A NIC that
// moved to a network which is still to come lacks its link only for now.
func (r *replica) wanted() wanted {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return wanted{
		links: r.state.DesiredLinks(r.me), seq: r.applied, epoch: r.epoch,
		complete: r.complete && r.reset == nil && r.coming == nil && r.missingInterest() == "",
	}
}

// setProgrammed notes that the kernel matches what was wanted. After a reset
// its seq means nothing any more.
func (r *replica) setProgrammed(w wanted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.epoch == r.epoch {
		r.programmed = max(r.programmed, w.seq)
	}
}
