package api

import (
	"fmt"

	"rutter/api/auth/audit"
	"rutter/log"
	"rutter/log/feed"
)

// maxMarks bounds the bookmarks of a session that are remembered with their chain:
// those that a watermark on its way may be of, since agents tell at least once each
// feed.TellLazily. Of older places only the seq is judged. 24 bytes each.
const maxMarks = 16

// mark is a place that a CN was told.
type mark struct {
	seq   log.Seq
	chain log.ChainPrefix
}

// told is what the CN of one session can know, and what it has said of itself by
// then. A watermark that says more is a lie (SAFETY B4): it is never believed, and
// ends the session.
//
// What it can know are the place of its hello, once the log was found to have it
// (ahead of the head it is refused by type), and each bookmark that was sent. After
// a reset it is only what was sent since; a watermark of before may still be on its
// way then, and is discounted: it says nothing, and is no lie.
type told struct {
	cluster log.UUID   // of the log that is sent
	hello   log.Cursor // that the CN says it was at
	judged  bool       // the hello was: until then no watermark is looked at
	first   log.Seq    // the lowest place told since the last reset
	most    log.Seq    // the highest; 0: none yet
	marks   []mark     // the last of them, oldest first
	// stale is up to where a watermark may be of before the last reset. It is 0
	// once one came that is of after it.
	stale log.Seq
	moved bool // one of the log that is sent has come: no other is possible any more
	// applied is the highest that was believed since the last reset. Only 0 may
	// follow: an agent that found its view wrong knows nothing.
	applied log.Seq
	// checked is that of the session's first watermark: agents of earlier versions
	// keep it over a reset, so it may be of a log that was longer. It is discounted.
	checked log.Seq
	said    bool // the first came
}

// begin notes the log that is sent, and what became of the hello's cursor.
func (t *told) begin(cluster log.UUID, accepted bool) {
	t.judged, t.cluster = true, cluster
	if !accepted {
		t.stale = t.hello.Seq
	} else {
		t.tell(t.hello.Seq, t.hello.Chain)
	}
}

// restart notes a reset: what the CN is told follows anew.
func (t *told) restart() {
	t.stale = max(t.stale, t.most)
	t.first, t.most, t.marks, t.applied, t.moved = 0, 0, nil, 0, false
}

// tell notes a bookmark that is sent.
func (t *told) tell(seq log.Seq, chain log.ChainPrefix) {
	if t.most == 0 {
		t.first = seq
	}
	t.most = max(t.most, seq)
	if n := len(t.marks); n > 0 && t.marks[n-1].seq == seq {
		return // it is told again
	}
	if len(t.marks) == maxMarks {
		copy(t.marks, t.marks[1:])
		t.marks = t.marks[:maxMarks-1]
	}
	t.marks = append(t.marks, mark{seq, chain})
}

// judge returns what of a watermark may be believed, or why it is a lie.
func (t *told) judge(w feed.Watermark) (feed.Watermark, error) {
	if !t.said {
		t.said, t.checked = true, w.Checked
	}
	if w.Programmed > w.Applied {
		return w, fmt.Errorf("its kernel is at seq %d, and what it knows at %d", w.Programmed, w.Applied)
	}
	switch w.Log.Cluster {
	case log.UUID{}: // of no log: nothing rests on it
		if most := max(t.most, t.stale); w.Applied > most {
			return w, fmt.Errorf("it is at seq %d, and was sent nothing beyond %d", w.Applied, most)
		}
		return w, nil
	case t.cluster:
	case t.hello.Cluster: // of the hello's other log: whoever reads it sees that
		if t.moved || w.Applied > t.hello.Seq {
			return w, fmt.Errorf("it is at seq %d of cluster %s, and its session is of %s", w.Applied, w.Log.Cluster, t.cluster)
		}
		return w, nil
	default:
		return w, fmt.Errorf("it follows cluster %s, which is neither this one, %s, nor that of its hello", w.Log.Cluster, t.cluster)
	}
	t.moved = true
	return t.judgeSeqs(w)
}

// judgeSeqs is judge for a watermark of the log that is sent.
func (t *told) judgeSeqs(w feed.Watermark) (feed.Watermark, error) {
	switch {
	case w.Checked <= t.most:
	case w.Checked == t.checked || w.Checked <= t.stale:
		w.Checked = 0
	default:
		return w, fmt.Errorf("its digests were right at seq %d, and it was sent nothing beyond %d", w.Checked, t.most)
	}
	known, fits := t.place(w.Applied, w.Log.Chain)
	switch {
	case w.Applied == 0:
		return w, nil
	case w.Applied < t.first, w.Applied <= t.stale && !fits:
		w.Applied, w.Programmed = 0, 0
		return w, nil
	case w.Applied > t.most:
		return w, fmt.Errorf("it is at seq %d, and was sent nothing beyond %d", w.Applied, t.most)
	case w.Applied < t.applied:
		return w, fmt.Errorf("it is at seq %d, and was at %d before", w.Applied, t.applied)
	case known && !fits:
		return w, fmt.Errorf("it is at seq %d with chain %s, which is not that of the log there", w.Applied, w.Log.Chain)
	}
	t.applied, t.stale = w.Applied, 0
	return w, nil
}

// place reports whether the chain at a seq is known, and whether a CN that is there
// can be told by this one. That of a later bookmark is as good: one that did not
// count moves an agent's cursor alone.
func (t *told) place(seq log.Seq, chain log.ChainPrefix) (known, fits bool) {
	for _, m := range t.marks {
		known = known || m.seq == seq
		fits = fits || m.seq >= seq && m.chain == chain
	}
	return known, fits
}

// judged says what became of the hello's cursor, on which a watermark may have
// waited.
func (u *subscriber) judged(accepted bool) {
	if err := u.s.cns.begin(u.session, u.cluster, accepted); err != nil {
		u.disbelieve(err)
	}
}

// disbelieve notes that what a CN said of itself cannot be, and has its session end
// with a frame that says so.
func (u *subscriber) disbelieve(lie error) {
	u.s.metrics.disbelieved.Inc()
	u.s.logger.Warn("a compute node said of itself what cannot be: its session ends, and counts for no barrier", "cn", u.hello.CN, "remote", u.session.remote, "why", lie)
	u.s.guard.Note(audit.Record{
		Event: audit.Disbelieved, Actor: u.who.Actor(), Serial: u.who.Serial, Remote: u.session.remote,
		Asked: "watermark of CN " + u.hello.CN.String(), Why: lie.Error(),
	})
	u.wake(wakeLied)
}

// lied says why what the CN said cannot be.
func (a *session) lied() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return "the watermark cannot be right: " + a.lie.Error()
}
