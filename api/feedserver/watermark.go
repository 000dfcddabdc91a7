package feedserver

import (
	"fmt"

	"rutter/log"
	"rutter/log/feed"
)

// maxBookmarks bounds the bookmarks of a session that are kept with their chain hash:
// those that a watermark in transit may be of, because agents send one at least each
// feed.TellLazily. For older ones only the seq is checked. Each takes 24 bytes.
const maxBookmarks = 16

// sentBookmark is a bookmark that was sent to a CN.
type sentBookmark struct {
	seq   log.Seq
	chain log.ChainPrefix
}

// verifier compares the watermarks of one session with what its CN was sent. A
// watermark that claims more cannot be true (SAFETY B4): it is never accepted, and ends
// the session.
//
// A CN can know the seq of its hello, once the log is known to have it, and each
// bookmark that was sent. After a reset it can know only what was sent since. A
// watermark from before the reset may still be in transit then. It is ignored and does
// not end the session.
type verifier struct {
	cluster   log.UUID       // of the log that is sent
	hello     log.Cursor     // the position in the hello
	first     log.Seq        // the lowest seq sent since the last reset
	most      log.Seq        // the highest; 0: none yet
	bookmarks []sentBookmark // the last of them, oldest first
	// stale is the seq up to which a watermark may be from before the last reset. It
	// becomes 0 with the first watermark from after it.
	stale log.Seq
	// applied is the highest accepted seq since the last reset. A lower one can only be
	// 0: an agent that found its view wrong knows nothing.
	applied log.Seq
	// checked is that of the session's first watermark. Agents of earlier versions keep
	// it over a reset, so it may be of a longer log. It is ignored.
	checked log.Seq
	// Together, because there is one of these for each subscriber.
	begun        bool // the hello was checked; watermarks wait until then
	current      bool // a watermark of the log that is sent has arrived: it cannot be of another any more
	checkedKnown bool // a first watermark arrived
}

// begin records which log is sent, and the result for the hello's cursor.
func (t *verifier) begin(cluster log.UUID, accepted bool) {
	t.begun, t.cluster = true, cluster
	if !accepted {
		t.stale = t.hello.Seq
	} else {
		t.sent(t.hello.Seq, t.hello.Chain)
	}
}

// restart records a reset: everything is sent again.
func (t *verifier) restart() {
	t.stale = max(t.stale, t.most)
	t.first, t.most, t.bookmarks, t.applied, t.current = 0, 0, nil, 0, false
}

// sent records a bookmark.
func (t *verifier) sent(seq log.Seq, chain log.ChainPrefix) {
	if t.most == 0 {
		t.first = seq
	}
	t.most = max(t.most, seq)
	if n := len(t.bookmarks); n > 0 && t.bookmarks[n-1].seq == seq {
		return // it is sent again
	}
	if len(t.bookmarks) == maxBookmarks {
		copy(t.bookmarks, t.bookmarks[1:])
		t.bookmarks = t.bookmarks[:maxBookmarks-1]
	}
	t.bookmarks = append(t.bookmarks, sentBookmark{seq, chain})
}

// verify returns which part of a watermark is accepted, or why it cannot be true.
func (t *verifier) verify(w feed.Watermark) (feed.Watermark, error) {
	if !t.checkedKnown {
		t.checkedKnown, t.checked = true, w.Checked
	}
	if w.Far() > w.Applied {
		return w, fmt.Errorf("its kernel is at seq %d, and what it knows at %d", w.Far(), w.Applied)
	}
	switch w.Log.Cluster {
	case log.UUID{}: // of no log: it claims nothing
		if most := max(t.most, t.stale); w.Applied > most {
			return w, fmt.Errorf("it is at seq %d, and was sent nothing beyond %d", w.Applied, most)
		}
		return w, nil
	case t.cluster:
	case t.hello.Cluster: // of the hello's other log: readers of the watermark see that
		if t.current || w.Applied > t.hello.Seq {
			return w, fmt.Errorf("it is at seq %d of cluster %s, and its session is of %s", w.Applied, w.Log.Cluster, t.cluster)
		}
		return w, nil
	default:
		return w, fmt.Errorf("it follows cluster %s, which is neither this one, %s, nor that of its hello", w.Log.Cluster, t.cluster)
	}
	t.current = true
	return t.verifySeqs(w)
}

// verifySeqs is verify for a watermark of the log that is sent.
func (t *verifier) verifySeqs(w feed.Watermark) (feed.Watermark, error) {
	switch {
	case w.Checked <= t.most:
	case w.Checked == t.checked || w.Checked <= t.stale:
		w.Checked = 0
	default:
		return w, fmt.Errorf("its digests were right at seq %d, and it was sent nothing beyond %d", w.Checked, t.most)
	}
	known, fits := t.knows(w.Applied, w.Log.Chain)
	switch {
	case w.Applied == 0:
		return w, nil
	case w.Applied < t.first, w.Applied <= t.stale && !fits:
		w.Applied, w.Programmed, w.Reached = 0, 0, 0
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

// knows reports whether the chain hash at a seq is known, and whether it proves that
// the CN is there. The chain hash of a later bookmark proves it too: a bookmark that
// did not count moves only an agent's cursor.
func (t *verifier) knows(seq log.Seq, chain log.ChainPrefix) (known, fits bool) {
	for _, m := range t.bookmarks {
		known = known || m.seq == seq
		fits = fits || m.seq >= seq && m.chain == chain
	}
	return known, fits
}

// withList returns a watermark with the list that it is of: its own, or the one of the
// same number in the watermark before it on the connection. Without that list only
// Programmed counts.
func withList(before *feed.Watermark, w feed.Watermark) feed.Watermark {
	switch {
	case w.List == 0 || w.Listed:
	case before != nil && before.List == w.List:
		w.Listed, w.Waits = true, before.Waits
	default:
		w.List, w.Reached = 0, 0
	}
	return w
}
