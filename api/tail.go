package api

import (
	"encoding/json"
	"fmt"
	"sync"

	"rutter/api/backend"
	"rutter/log"
	"rutter/log/feed"
)

// Bounds of reading the log.
const (
	tailItems = 4096 // decoded entries kept for all subscribers, some MiB
	readItems = 512  // entries per read of the store, unless one change has more
)

// item is an entry with what its readers need of it, made once for all, and not
// before somebody needs it: most of a long way concerns nobody who goes it.
type item struct {
	entry log.Entry
	// event has no Object and no Changed, unless it is of a NIC: those say who
	// is where.
	event *log.Event
	whole *log.Event // decoded, if somebody needed it before the line

	framed   sync.Once
	bytes    []byte // of the frame
	frameErr error

	printed sync.Once
	text    []byte // the line of GET /log
	err     error  // of making it
}

func newItem(e log.Entry) (*item, error) {
	event, err := log.DecodeEventHead(e.Bytes)
	if err == nil && event.Kind == log.KindNIC {
		event, err = e.Event()
	}
	if err != nil {
		return nil, fmt.Errorf("seq %d: %w", e.Seq, err)
	}
	return &item{entry: e, event: event}, nil
}

// follows reports whether i is the entry after another, in the same log.
func (i *item) follows(before *item) bool {
	e := &i.entry
	return e.Seq == before.entry.Seq+1 && e.Hash == before.entry.Hash.Next(e.Seq, e.Bytes)
}

// frame returns the entry's frame of the feed.
func (i *item) frame() ([]byte, error) {
	i.framed.Do(func() { i.bytes, i.frameErr = feed.AppendEntry(nil, i.entry) })
	return i.bytes, i.frameErr
}

// line returns the entry's line of JSON.
func (i *item) line() ([]byte, error) {
	i.printed.Do(func() {
		event := i.whole
		if event == nil {
			if event, i.err = i.entry.Event(); i.err != nil {
				return
			}
		}
		i.text, i.err = json.Marshal(log.Line{Seq: i.entry.Seq, Chain: i.entry.Hash.Prefix(), Event: event})
		i.text = append(i.text, '\n')
	})
	return i.text, i.err
}

// tail reads the log for all streams, and keeps the newest entries decoded: as long
// as they are the store's. A server that is rebuilt has another past under the same
// seqs, and one whose snapshot is restored that of another cluster.
type tail struct {
	store backend.Store

	mu    sync.RWMutex // protects what follows
	items []*item      // dense, ending with a change
	// cluster is whose log they are of, and at the head at which the store's log was
	// last found to have them.
	cluster log.UUID
	at      log.Cursor
}

func newTail(store backend.Store) *tail { return &tail{store: store} }

// after returns entries after a seq, dense and never ending within a change;
// none if there are none. Errors: log.ErrCompacted, log.ErrAhead, log.ErrCorrupt,
// and those of a store that does not serve.
func (t *tail) after(seq log.Seq) ([]*item, error) {
	if err := t.verify(); err != nil {
		return nil, err
	}
	if items, ok := t.kept(seq); ok {
		return items, nil
	}
	t.mu.RLock()
	extends := len(t.items) == 0 || seq >= t.items[len(t.items)-1].entry.Seq
	t.mu.RUnlock()
	if !extends {
		return t.read(seq) // behind what is kept: nobody else is there
	}
	// One reader extends the tail, the others wait for it.
	t.mu.Lock()
	defer t.mu.Unlock()
	if items, ok := t.keptLocked(seq); ok {
		return items, nil
	}
	head := t.store.Head()
	items, err := t.read(seq)
	if err != nil {
		t.items = nil
		return nil, err
	}
	t.extendLocked(items, head)
	return items, nil
}

// verify drops what is kept if it is not of the store's log any more. It asks once
// for each head: a log that became another one has another.
func (t *tail) verify() error {
	for {
		head := t.store.Head()
		t.mu.RLock()
		n, fresh := len(t.items), t.at == head
		var last *item
		if n > 0 {
			last = t.items[n-1]
		}
		cluster := t.cluster
		t.mu.RUnlock()
		if n == 0 || fresh {
			return nil
		}
		err := t.store.CheckCursor(log.Cursor{Cluster: cluster, Seq: last.entry.Seq, Chain: last.entry.Hash.Prefix()})
		if _, refused := resetReason(err); err != nil && !refused {
			return err
		}
		if t.judged(last, head, err == nil) {
			return nil
		}
	}
}

// judged notes whether the store's log has the last item. It is false if that is
// the last one no more: then nothing is known of those behind it.
func (t *tail) judged(last *item, head log.Cursor, has bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.items); n == 0 || t.items[n-1] != last {
		return n == 0
	}
	if t.at = head; !has {
		t.items = nil
	}
	return true
}

// kept returns what is kept after seq, at most readItems and the rest of a change.
func (t *tail) kept(seq log.Seq) ([]*item, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.keptLocked(seq)
}

func (t *tail) keptLocked(seq log.Seq) ([]*item, bool) {
	if len(t.items) == 0 {
		return nil, false
	}
	first := t.items[0].entry.Seq
	if seq+1 < first || seq >= first+log.Seq(len(t.items))-1 {
		return nil, false
	}
	from := int(seq + 1 - first)
	end := min(from+readItems, len(t.items))
	for t.items[end-1].event.More > 0 && end < len(t.items) {
		end++
	}
	return t.items[from:end:end], true
}

// extendLocked keeps items if they follow what is kept, by seq and chain, else
// begins anew. What readers hold is never written to: growth beyond the capacity
// copies. head is of before they were read: if the log became another one since,
// the next reader finds that out.
func (t *tail) extendLocked(items []*item, head log.Cursor) {
	if len(items) == 0 {
		return
	}
	if n := len(t.items); n > 0 && !items[0].follows(t.items[n-1]) {
		t.items = nil
	}
	t.cluster, t.at = head.Cluster, head
	if len(t.items)+len(items) > 2*tailItems {
		t.items = append([]*item(nil), t.items[max(0, len(t.items)-tailItems):]...)
	}
	t.items = append(t.items, items...)
}

// read reads from the store and checks that what comes is what follows seq.
func (t *tail) read(seq log.Seq) ([]*item, error) {
	entries, err := t.store.Entries(seq, readItems)
	if err != nil {
		return nil, err
	}
	items := make([]*item, 0, len(entries))
	for i, e := range entries {
		if want := seq + 1 + log.Seq(i); e.Seq != want {
			return nil, fmt.Errorf("entry %d where %d must be: %w", e.Seq, want, log.ErrCorrupt)
		}
		it, err := newItem(e)
		if err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	return items, nil
}
