package nodemetrics

import (
	"sync"
	"time"

	"rutter/log"
	"rutter/log/feed"
)

// Bounds of a Node.
const (
	// maxMarks bounds the entries whose times are remembered for a CN's lag. Beyond that,
	// each two neighbours become one, and further ones are twice as far apart: a lag is too
	// high by one part in maxMarks/2 of the time that they stand for, at most.
	maxMarks = 16
	// markEvery is the least time between two marks. Watermarks come every 500 ms.
	markEvery = 250 * time.Millisecond
	// maxSamples bounds the entries of one CN that are measured at the same time, so that a
	// CN that is stuck does not take the samples of others.
	maxSamples = 4
	// DriftFor is how long a CN counts as drifting after its last report of drift.
	DriftFor = 10 * time.Minute
	// maxDriftStep bounds the drift of one report that is counted, because a CN may report
	// any number. A pass repairs at most what the kernel holds.
	maxDriftStep = 1 << 20
)

// Node measures one session of a CN.
type Node struct {
	tracker *Tracker

	mu      sync.Mutex    // protects what follows
	far     log.Seq       // the CN's kernel has everything up to here, except for what it lists
	marks   []mark        // what it has not, oldest first
	every   time.Duration // the least time between two of them
	samples []mark        // entries of which it was asked to say at once that it has them
	now     Progress      // without Lag and Drift
	list    uint32        // the number of the list that now.WaitingNICs was counted from
	listed  bool

	healed      uint64 // in its last report
	healedKnown bool
	drift       uint64 // since it began to drift
	driftAt     time.Time
}

// mark stands for entries from first to last, which concern a CN. The first was applied at
// a time.
type mark struct {
	first, last log.Seq
	at          time.Time
}

// Progress is what a Node shows.
type Progress struct {
	// Lag is how long the oldest entry that concerns the CN is not in its kernel; 0: it has
	// all.
	Lag         time.Duration
	Failing     uint32 // objects that its kernel refused
	WaitingNICs int    // NICs whose links its kernel lacks, without those of VMs that are not to run
	Waiting     int    // objects that its kernel lacks, without those
	Idle        int    // objects of VMs that are not to run
	Healed      uint64 // drift since its agent began, as it reports
	Drift       uint64 // of that, what was reported while it drifts; 0: it did not for DriftFor
}

// NewNode returns the measure of a session that begins.
func (t *Tracker) NewNode() *Node { return &Node{tracker: t} }

// Begin says that the log is at seq as the session begins: the CN lacks what is before,
// until it says otherwise.
func (n *Node) Begin(seq log.Seq) {
	n.mark(mark{seq, seq, n.tracker.now()})
}

// Concerns says that entries from first to last concern the CN. The calls must be in the
// order of seqs.
func (n *Node) Concerns(first, last log.Seq) {
	n.mark(mark{first, last, n.tracker.appliedAt(first)})
}

func (n *Node) mark(m mark) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m.last <= n.far {
		return
	}
	if last := len(n.marks) - 1; last >= 0 && m.at.Sub(n.marks[last].at) < n.every {
		n.marks[last].last = max(n.marks[last].last, m.last)
		return
	}
	if len(n.marks) == 0 {
		n.every = markEvery
	}
	if len(n.marks) == maxMarks {
		n.every *= 2
		for i := range maxMarks / 2 {
			n.marks[i] = mark{n.marks[2*i].first, n.marks[2*i+1].last, n.marks[2*i].at}
		}
		n.marks = n.marks[:maxMarks/2]
	}
	n.marks = append(n.marks, m)
}

// Sample reports whether the CN is to be asked to say at once that it has an entry, so
// that the time until it does is measured.
func (n *Node) Sample(seq log.Seq) bool {
	at := n.tracker.appliedAt(seq)
	n.mu.Lock()
	defer n.mu.Unlock()
	if seq <= n.far || len(n.samples) == maxSamples || !n.tracker.maySample() {
		return false
	}
	n.samples = append(n.samples, mark{seq, seq, at})
	return true
}

// Said takes a watermark of the CN that was found to be possible, and that is of the log
// that it is sent.
func (n *Node) Said(w *feed.Watermark) {
	now := n.tracker.now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count(w)
	n.noteDrift(w.Healed, now)
	n.far = max(n.far, w.Far())
	n.marks = drop(n.marks, n.far)
	kept := n.samples[:0]
	for _, s := range n.samples {
		switch {
		case s.last > n.far:
			kept = append(kept, s)
		case n.now.Waiting == 0 || s.last <= w.Programmed:
			n.tracker.programmed.Observe(max(now.Sub(s.at), 0).Seconds())
		}
	}
	n.samples = kept
}

// drop removes the marks that far covers. Their memory is freed when none is left.
func drop(marks []mark, far log.Seq) []mark {
	done := 0
	for done < len(marks) && marks[done].last <= far {
		done++
	}
	if done == len(marks) {
		return nil
	}
	return append(marks[:0], marks[done:]...)
}

// count takes the objects that a watermark lists. The caller holds the lock.
func (n *Node) count(w *feed.Watermark) {
	n.now.Failing = w.Failing
	if n.listed && w.List == n.list && w.List != 0 {
		return
	}
	n.listed, n.list = true, w.List
	n.now.Waiting, n.now.Idle, n.now.WaitingNICs = 0, 0, 0
	nics := make(map[log.MAC]struct{})
	for i := range w.Waits {
		switch wait := &w.Waits[i]; {
		case wait.Idle:
			n.now.Idle++
			continue
		case wait.Kind == feed.WaitNIC:
			nics[wait.NIC] = struct{}{}
		}
		n.now.Waiting++
	}
	n.now.WaitingNICs = len(nics)
}

// noteDrift takes the count of a CN, which begins anew with its agent. The first count of
// a session is of the time before. The caller holds the lock.
func (n *Node) noteDrift(healed uint64, now time.Time) {
	before, known := n.healed, n.healedKnown
	n.healed, n.healedKnown = healed, true
	if !known || healed <= before {
		return
	}
	step := min(healed-before, maxDriftStep)
	if now.Sub(n.driftAt) >= DriftFor {
		n.drift = 0
	}
	n.drift, n.driftAt = n.drift+step, now
	n.tracker.drift.Add(float64(step))
}

// Progress returns what is known now.
func (n *Node) Progress() Progress { return n.progress(n.tracker.now()) }

func (n *Node) progress(now time.Time) Progress {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.now
	if len(n.marks) > 0 {
		p.Lag = max(now.Sub(n.marks[0].at), 0)
	}
	p.Healed = n.healed
	if n.drift > 0 && now.Sub(n.driftAt) < DriftFor {
		p.Drift = n.drift
	}
	return p
}
