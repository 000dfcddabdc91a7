package feedserver

import (
	"fmt"

	"rutter/log"
	"rutter/log/feed"
)

// maxBookmarks bounds the bookmarks of a session that are remembered with their chain:
// those that a watermark on its way may be of, since agents send one at least each
// feed.TellLazily. Of older ones only the seq is checked. 24 bytes each.
const maxBookmarks = 16

// sentBookmark is a bookmark that a CN was sent.
type sentBookmark struct {
	seq   log.Seq
	chain log.ChainPrefix
}

// verifier holds the watermarks of one session against what its CN was sent. One that
// claims more cannot be true (SAFETY B4): it is never believed, and ends the session.
//
// What the CN can know are the seq of its hello, once the log was found to have it
// (ahead of the head it is refused by type), and each bookmark that was sent. After
// a reset it is only what was sent since; a watermark of before may still be on its
// way then, and is discounted: it says nothing, and does not end the session.
type verifier struct {
	cluster   log.UUID       // of the log that is sent
	hello     log.Cursor     // that the CN says it was at
	begun     bool           // the hello was: until then no watermark is looked at
	first     log.Seq        // the lowest seq sent since the last reset
	most      log.Seq        // the highest; 0: none yet
	bookmarks []sentBookmark // the last of them, oldest first
	// stale is up to where a watermark may be of before the last reset. It is 0
	// once one came that is of after it.
	stale   log.Seq
	current bool // one of the log that is sent has come: no other is possible any more
	// applied is the highest that was believed since the last reset. Only 0 may
	// follow: an agent that found its view wrong knows nothing.
	applied log.Seq
	// checked is that of the session's first watermark: agents of earlier versions
	// keep it over a reset, so it may be of a log that was longer. It is discounted.
	checked      log.Seq
	checkedKnown bool // that one came
}

// begin notes the log that is sent, and what became of the hello's cursor.
func (t *verifier) begin(cluster log.UUID, accepted bool) {
	t.begun, t.cluster = true, cluster
	if !accepted {
		t.stale = t.hello.Seq
	} else {
		t.sent(t.hello.Seq, t.hello.Chain)
	}
}

// restart notes a reset: what the CN is sent begins anew.
func (t *verifier) restart() {
	t.stale = max(t.stale, t.most)
	t.first, t.most, t.bookmarks, t.applied, t.current = 0, 0, nil, 0, false
}

// sent notes a bookmark that is sent.
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

// verify returns what of a watermark may be believed, or why it cannot be true.
func (t *verifier) verify(w feed.Watermark) (feed.Watermark, error) {
	if !t.checkedKnown {
		t.checkedKnown, t.checked = true, w.Checked
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
	case t.hello.Cluster: // of the hello's other log: its readers see that
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

// knows reports whether the chain at a seq is known, and whether a CN that is there
// can be told by this one. That of a later bookmark is as good: one that did not
// count moves an agent's cursor alone.
func (t *verifier) knows(seq log.Seq, chain log.ChainPrefix) (known, fits bool) {
	for _, m := range t.bookmarks {
		known = known || m.seq == seq
		fits = fits || m.seq >= seq && m.chain == chain
	}
	return known, fits
}
