package agent

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections/desired"
)

// minRetry is the shortest wait for a failed object before a pass tries it again.
const minRetry = 10 * time.Millisecond

// watchAgain is how soon a failed watch of the kernel is started again.
const watchAgain = 5 * time.Second

// passShare is the divisor of the time that passes may take (one part in passShare),
// because a pass costs as much as the kernel holds and delays what comes during it. The
// entries of other compute nodes' NICs, which are nearly all that events bring, and single
// NICs of this node do not wait for a pass.
const passShare = 5

// scopeWait is how long an own NIC waits for the scope of its vnet before a pass programs
// what an incomplete view has. Servers send the scope right behind the NIC.
const scopeWait = time.Second

// reconciler makes the kernel match the replica, with one goroutine and one select.
// Each reason to act only wakes it. A pass computes everything that is wanted and dumps
// everything that there is. Between passes, entries that events touched, or that
// another program changed, are corrected one by one.
type reconciler struct {
	cfg     *Config
	replica *replica
	kernel  Kernel
	report  func() // sends the servers the kernel's progress
	reach   func() // makes the follower try the servers at once
	woken   chan struct{}

	attachments attachments // see tell

	logger *slog.Logger

	due      time.Time // when a pass must be made; zero: not before the sweep
	earliest time.Time // no pass begins before this, see passShare
	applyAt  time.Time // when apply must be called; zero: not by time
	waiting  time.Time // until when own NICs wait for their scopes; zero: none does
	calm     time.Time // before this, what other programs change of own NICs waits, see stir
	stirred  bool      // the next apply is for such changes
	passed   bool      // a pass was made: Apply knows the links
	// pruned: the last pass was of a complete view of which nothing was held back, and
	// so it removed what is not wanted. Until then the kernel does not match, whatever
	// deltas do to it.
	pruned bool
	waits  []feed.Wait // the objects that the last pass could not make, in the form for servers

	limits desired.Limits // the number of entries from which a vnet is on demand

	mu   sync.Mutex // protects what follows
	last KernelStatus
	// onDemand are the vnets that were on demand in the last pass. It is replaced, never
	// changed.
	onDemand map[uint32]bool
	delays   delays
	logged   map[string]time.Time // failures that were logged, with the time
}

// demandKernel is a Kernel that asks for entries that it lacks; *link.Manager is one.
type demandKernel interface {
	SetSource(source link.Source)
	Resolve(ctx context.Context) error
	Ahead() int
	Asked() link.Asked
}

// An interface that is asserted at run time stops matching without an error when a name
// changes.
var (
	_ demandKernel  = (*link.Manager)(nil)
	_ surplusKernel = (*link.Manager)(nil)
	_ markingKernel = (*link.Manager)(nil)

	_ attachingKernel = (*link.Manager)(nil)
)

// replicaSource looks up single entries in the log's state.
type replicaSource struct{ *replica }

// Read implements link.Source.
func (t replicaSource) Read(read func(link.Lookup)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.view.old != nil {
		read(mergedLookup{desired.NewEntries(t.view.old, t.cn), desired.NewEntries(t.state, t.cn)})
		return
	}
	read(desired.NewEntries(t.state, t.cn))
}

// maxListed bounds each list of a KernelStatus, so that it can be read.
const maxListed = 32

// describe returns the first maxListed of list as texts.
func describe[T any](list []T, say func(T) string) []string {
	words := make([]string, 0, min(len(list), maxListed))
	for _, x := range list[:min(len(list), maxListed)] {
		words = append(words, say(x))
	}
	return words
}

// Run reconciles the kernel until ctx ends. The first pass is made at once, so links
// are programmed from the cache.
func (r *reconciler) Run(ctx context.Context) error {
	kernel, ok := r.kernel.(demandKernel)
	if !ok {
		return r.loop(ctx)
	}
	kernel.SetSource(replicaSource{r.replica})
	r.limits.Entries = kernel.Ahead()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.loop(ctx) })
	g.Go(func() error {
		return r.again(ctx, "what the kernel misses is not heard: vnets on demand have no new entries", kernel.Resolve)
	})
	return g.Wait()
}

// loop waits for each reason to act.
func (r *reconciler) loop(ctx context.Context) error {
	sweep := time.NewTicker(r.cfg.SweepEvery)
	defer sweep.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	r.want(time.Now())
	for {
		if now := time.Now(); !r.due.IsZero() && !r.dueAt().After(now) {
			r.pass(ctx)
		} else if !r.applyAt.IsZero() && !r.applyAt.After(now) {
			r.applyAt = time.Time{}
			r.apply(ctx)
		}
		timer.Stop()
		if at := r.next(); !at.IsZero() {
			timer.Reset(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.replica.changed:
			r.apply(ctx)
		case <-r.woken:
			r.apply(ctx)
		case <-sweep.C:
			r.want(time.Now())
		case <-timer.C:
		}
	}
}

// want requests a pass at a time, or keeps an earlier request.
func (r *reconciler) want(at time.Time) {
	if r.due.IsZero() || at.Before(r.due) {
		r.due = at
	}
}

// dueAt is when the requested pass may be made.
func (r *reconciler) dueAt() time.Time {
	if r.due.Before(r.earliest) {
		return r.earliest
	}
	return r.due
}

// next is when a pass or apply is due; zero: neither is.
func (r *reconciler) next() time.Time {
	if r.due.IsZero() || !r.applyAt.IsZero() && r.applyAt.Before(r.dueAt()) {
		return r.applyAt
	}
	return r.dueAt()
}

// Watch corrects what other programs change in the kernel, until ctx ends.
func (r *reconciler) Watch(ctx context.Context) error {
	return r.again(ctx, "watch of the kernel broke: sweeps still find what changes", func(ctx context.Context) error {
		return r.cfg.Watch(ctx, func() { wake(r.woken) }, r.reach)
	})
}

// again runs f until ctx ends, and logs when f ends by itself.
func (r *reconciler) again(ctx context.Context, broke string, f func(ctx context.Context) error) error {
	for {
		err := f(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.logger.Warn(broke, "error", err, "again", watchAgain)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(watchAgain):
		}
	}
}

// pass makes one pass, and requests another if this one left something undone.
func (r *reconciler) pass(ctx context.Context) {
	began := time.Now()
	r.due = time.Time{}
	r.mark()
	r.attach()
	r.judge(ctx)
	want := r.replica.wanted(&r.limits)
	r.keep(want.kept)
	result, err := r.kernel.Pass(ctx, want.links, want.complete)
	if ctx.Err() != nil {
		return
	}
	r.passed = r.passed || err == nil
	r.pruned = err == nil && want.at.complete
	now := time.Now()
	r.earliest = now.Add((passShare - 1) * now.Sub(began))
	r.waits = waitsOf(result.Pending)
	r.note(want, result, err, began)
	r.matched(want.at, result)
	r.report()
	switch {
	case err != nil:
		r.earliest = now.Add(max(r.cfg.RetryEvery, r.earliest.Sub(now)))
		r.want(r.earliest)
	case !result.RetryAt.IsZero():
		r.want(now.Add(max(result.RetryAt.Sub(now), minRetry)))
	case !result.Matched && len(result.Failures)+len(result.Conflicts) == 0:
		r.want(now.Add(r.cfg.RetryEvery)) // the kernel changed during the pass
	}
	if want.unjudged { // it became complete after this pass had judged, or could not be compared
		r.want(now.Add(r.cfg.RetryEvery))
	}
}

// apply programs what events touched, and corrects what other programs changed. It
// requests a pass if that does not cover everything.
func (r *reconciler) apply(ctx context.Context) {
	began := time.Now()
	r.attach()
	delta, at, ok := r.replica.delta()
	if !ok && r.passed && at.waits && r.waitsForScope(began) {
		return
	}
	r.waiting = time.Time{}
	if !ok || !r.passed || delta.Part != nil && !r.pruned {
		r.want(began)
		return
	}
	result := r.kernel.Apply(ctx, delta)
	if ctx.Err() != nil {
		return
	}
	if result.Part {
		r.waits = waitsOf(result.Pending)
	}
	r.noteSteps(result, at)
	r.stir(result.Stirred, began)
	switch now := time.Now(); {
	case at.needsPass || result.Look || at.complete && !r.pruned:
		r.want(now)
	case !result.RetryAt.IsZero():
		r.want(now.Add(max(result.RetryAt.Sub(now), minRetry)))
	}
	if r.matched(at, result) {
		r.report()
	}
}

// waitsForScope reports whether a new own NIC still waits for the scope of its vnet. If so,
// apply is called again when that comes, or after scopeWait.
func (r *reconciler) waitsForScope(now time.Time) bool {
	if r.waiting.IsZero() {
		r.waiting = now.Add(scopeWait)
	}
	if !now.Before(r.waiting) {
		return false
	}
	r.applyAt = r.waiting
	return true
}

// stir makes apply look at own NICs that another program may have changed. That takes at
// most one part in passShare of the time, so that a VM that changes its link without end
// does not keep the agent busy.
func (r *reconciler) stir(macs []log.MAC, began time.Time) {
	now := time.Now()
	if r.stirred {
		r.stirred, r.calm = false, now.Add((passShare-1)*now.Sub(began))
	}
	if len(macs) == 0 {
		return
	}
	if r.applyAt = r.calm; !now.Before(r.calm) {
		r.applyAt, r.stirred = now, true
		noteNICs(r.replica, macs)
	}
}

// matched records that the kernel matches the log at a seq, if the work for that seq
// shows it, and reports whether that is news. Nothing else moves programmed, which
// barriers rely on (SAFETY B1, B3). The conditions: the view was complete when it was
// read, nothing of it is left to a pass, and the last pass was also of a complete view.
// A pass of an incomplete view leaves unwanted things in the kernel and counts them as
// matching, and a delta does not look for them. If only objects of the last pass's list do
// not match, reached moves instead, under the same conditions (SAFETY L2).
func (r *reconciler) matched(at checkpoint, result link.Result) bool {
	if !at.complete || at.needsPass || !r.pruned || !result.Settled && !result.Matched {
		return false
	}
	news := result.Matched && r.replica.setProgrammed(at)
	return r.replica.setReached(at, r.waits) || news
}

func (r *reconciler) note(want wanted, result link.Result, err error, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, failed := &r.last, r.last.Failure
	s.Passes++
	s.At, s.Took, s.Complete = began, time.Since(began), want.complete
	s.TookAll += s.Took
	if want.complete && err == nil {
		s.WholeAt = began
	}
	s.VNets, s.Unprogrammable = len(want.links.VXLANs), len(want.links.Problems)
	r.onDemand = make(map[uint32]bool)
	for i := range want.links.VXLANs {
		if v := &want.links.VXLANs[i]; v.OnDemand {
			r.onDemand[v.VNet] = true
		}
	}
	s.Links, s.Neighs, s.FDB = len(want.links.VXLANs)+len(want.links.VLANs)+len(want.links.Fabrics), len(want.links.Neighs), len(want.links.FDB)
	s.Problems = describe(want.links.Problems, func(p desired.Problem) string { return p.Kind.String() + " " + p.ID + ": " + p.Reason })
	r.addSteps(result)
	s.Matched, s.Failure = result.Matched && err == nil && want.complete, ""
	if err != nil {
		s.Failure = err.Error()
		if s.Failure != failed {
			r.logger.Error("kernel cannot be compared with the log", "error", err)
		}
		return
	}
	s.Unread = result.Unread
	r.noteFailures(result)
}

// noteFailures takes what is left undone of all that is wanted. The caller holds mu.
func (r *reconciler) noteFailures(result link.Result) {
	s := &r.last
	s.Waiting, s.Idle, s.Waits = r.statusOfWaits()
	s.WaitingNICs = waitingNICs(r.waits)
	failures := notIdle(result)
	s.Failing, s.Blocked = len(failures), len(result.Conflicts)
	s.Failures = describe(failures, link.Failure.String)
	s.Conflicts = describe(result.Conflicts, func(b plan.Blocked) string { return b.Object.String() + ": " + b.Err.Error() })
	if kernel, ok := r.kernel.(markingKernel); ok {
		s.Renamed = describe(kernel.Renamed(), func(text string) string { return text })
	}
	for _, b := range result.Conflicts {
		failures = append(failures, link.Failure{Object: b.Object, Err: b.Err})
	}
	s.FailingBy = make(map[string]int)
	for i := range failures {
		s.FailingBy[nameOfKind(failures[i].Object.Kind)]++
	}
	r.logFailures(failures, time.Now())
}

const (
	// logAgain is the pause before a failure is logged again while it lasts, or when it
	// comes back.
	logAgain = 10 * time.Minute
	// maxLogged bounds the failures whose times are remembered; further ones are only
	// counted. maxLogLines bounds the lines of one pass: others follow with later passes.
	maxLogged   = 1024
	maxLogLines = 8
)

// logFailures logs the failures that were not logged for logAgain, each with its cause.
func (r *reconciler) logFailures(failures []link.Failure, now time.Time) {
	if r.logged == nil {
		r.logged = map[string]time.Time{}
	}
	maps.DeleteFunc(r.logged, func(_ string, at time.Time) bool { return now.Sub(at) >= logAgain })
	lines := 0
	for i := range failures {
		if lines == maxLogLines || len(r.logged) >= maxLogged {
			return
		}
		text := failures[i].String()
		if _, done := r.logged[text]; done {
			continue
		}
		r.logger.Warn("kernel does not accept everything that is wanted", "objects", len(failures), "failure", text)
		r.logged[text] = now
		lines++
	}
}

// noteSteps counts the steps between two passes.
func (r *reconciler) noteSteps(result link.Result, at checkpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !at.touched.IsZero() {
		r.last.Applied++
		r.delays.note(time.Since(at.touched))
	}
	r.last.Matched = r.last.Matched && !result.Look
	r.addSteps(result)
	if result.Part {
		r.last.Matched, r.last.Links = result.Matched && at.complete && r.pruned, result.Links
		r.noteFailures(result)
	}
}

func (r *reconciler) addSteps(result link.Result) {
	s := &r.last
	s.Steps += uint64(len(result.Steps))
	s.Healed += uint64(len(result.Drift))
	for i := range result.Drift {
		if s.HealedBy == nil {
			s.HealedBy = make(map[string]uint64)
		}
		s.HealedBy[nameOfKind(result.Drift[i].Object.Kind)]++
	}
	if len(result.Drift) > 0 {
		s.Drift = describe(result.Drift, plan.Step.Drift)
		r.logger.Warn("kernel was changed by another program: corrected", "steps", len(result.Drift), "first", s.Drift[0])
	}
}

// markingKernel is a Kernel whose links and files bear the mark of the cluster that wants
// them, and the files that of the compute node; *link.Manager is one.
type markingKernel interface {
	SetOwner(cluster, node log.UUID)
	Renamed() []string
}

// mark says for which cluster links are marked (SAFETY L3).
func (r *reconciler) mark() {
	kernel, ok := r.kernel.(markingKernel)
	if cluster := r.replica.markCluster(); ok && !cluster.IsZero() {
		kernel.SetOwner(cluster, r.replica.cn)
	}
}

// surplusKernel is a Kernel that can list the links it holds, and keep those that no
// remembered view has; *link.Manager is one.
type surplusKernel interface {
	Surplus(ctx context.Context, was *desired.Links, want desired.Links) (link.Surplus, error)
	Keep(on bool)
}

// judge compares a view that is not settled with what is programmed. It is called
// before a pass, which then knows what it may remove.
func (r *reconciler) judge(ctx context.Context) {
	j, ok := r.replica.toJudge()
	if !ok {
		return
	}
	kernel, reads := r.kernel.(surplusKernel)
	var s link.Surplus
	var err error
	switch {
	// Links that were wanted count even if the kernel lacks them for now, as after a
	// start.
	case reads && (j.was == nil || r.passed && r.replica.holding() == nil):
		s, err = kernel.Surplus(ctx, j.was, j.want)
	case j.was != nil:
		s = link.Compare(*j.was, j.want)
	}
	if err != nil {
		r.logger.Error("the kernel cannot be compared with the new view: nothing is removed", "error", err)
		return
	}
	r.replica.judge(j, s, r.cfg.Now())
}

// keep sets whether the kernel keeps links that no view has, as the view of the pass
// says. If a hold is accepted during the pass, the next pass acts on it.
func (r *reconciler) keep(on bool) {
	if kernel, ok := r.kernel.(surplusKernel); ok {
		kernel.Keep(on)
	}
}
