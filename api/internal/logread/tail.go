package logread

import (
	"fmt"
	"sync"

	"rutter/log"
	"rutter/log/feed"
)

// Bounds of reading the log.
const (
	// KeptEntries is the least number of decoded entries that are kept: some MiB.
	KeptEntries = 4096
	// ReadEntries is how many entries one read of the store returns at most, unless
	// one change has more.
	ReadEntries = 512
)

// Decoded is an entry with the forms that its readers need. Each form is made once for
// all readers, when the first of them needs it: most entries concern no reader. Its
// methods may be called concurrently.
type Decoded struct {
	log.Entry // as it is stored
	// Head is the event without its Object and Changed, except for NICs, because these
	// say which CN is on which network.
	Head  *log.Event
	whole *log.Event // the whole event, if it was needed before the line

	frameOnce sync.Once
	frame     []byte
	frameErr  error

	lineOnce sync.Once
	line     []byte
	lineErr  error
}

// Decode returns an entry with its head decoded.
func Decode(e log.Entry) (*Decoded, error) {
	event, err := log.DecodeEventHead(e.Bytes)
	if err == nil && event.Kind == log.KindNIC {
		event, err = e.Event()
	}
	if err != nil {
		return nil, fmt.Errorf("seq %d: %w", e.Seq, err)
	}
	return &Decoded{Entry: e, Head: event}, nil
}

// WithEvent returns an entry whose whole event is decoded already.
func WithEvent(e log.Entry, event *log.Event) *Decoded {
	return &Decoded{Entry: e, Head: event, whole: event}
}

// follows reports whether d is the entry after another, in the same log.
func (d *Decoded) follows(before *Decoded) bool {
	return d.Seq == before.Seq+1 && d.Hash == before.Hash.Next(d.Seq, d.Bytes)
}

// Frame returns the entry's frame of the feed. The caller must not change it. A shared
// frame costs a subscriber some 15 ns instead of 5 µs (BenchmarkFrame).
func (d *Decoded) Frame() ([]byte, error) {
	d.frameOnce.Do(func() { d.frame, d.frameErr = feed.AppendEntry(nil, d.Entry) })
	return d.frame, d.frameErr
}

// Line returns the entry as a line of JSON, with its newline. The caller must not
// change it.
func (d *Decoded) Line() ([]byte, error) {
	d.lineOnce.Do(func() {
		event := d.whole
		if event == nil {
			if event, d.lineErr = d.Event(); d.lineErr != nil {
				return
			}
		}
		d.line, d.lineErr = log.Line{Seq: d.Seq, Chain: d.Hash.Prefix(), Event: event}.AppendJSON(nil)
		d.line = append(d.line, '\n')
	})
	return d.line, d.lineErr
}

// Tail reads the log for all streams of a server, and keeps the newest entries decoded,
// as long as they are the store's: a rebuilt server has other entries under the same
// seqs, and a restored one those of another cluster. Its methods may be called
// concurrently.
type Tail struct {
	store Store

	mu    sync.RWMutex // protects what follows
	items []*Decoded   // dense, ending with a change
	// cluster is the cluster of the items; at is the head at which the store's log was
	// last found to contain them.
	cluster log.UUID
	at      log.Cursor
}

// NewTail returns a Tail of a store.
func NewTail(store Store) *Tail { return &Tail{store: store} }

// After returns entries after a seq, dense and never ending within a change;
// none if there are none. Errors: log.ErrCompacted, log.ErrAhead, log.ErrCorrupt,
// and those of a store that does not serve.
func (t *Tail) After(seq log.Seq) ([]*Decoded, error) {
	if err := t.verify(); err != nil {
		return nil, err
	}
	if items, ok := t.kept(seq); ok {
		return items, nil
	}
	t.mu.RLock()
	extends := len(t.items) == 0 || seq >= t.items[len(t.items)-1].Seq
	t.mu.RUnlock()
	if !extends {
		return t.read(seq) // older than what is kept: rarely read by more than one reader
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

// verify drops the kept entries if they are no longer of the store's log. It checks
// once for each head, because a replaced log has another head.
func (t *Tail) verify() error {
	for {
		head := t.store.Head()
		t.mu.RLock()
		n, fresh := len(t.items), t.at == head
		var last *Decoded
		if n > 0 {
			last = t.items[n-1]
		}
		cluster := t.cluster
		t.mu.RUnlock()
		if n == 0 || fresh {
			return nil
		}
		err := t.store.CheckCursor(log.Cursor{Cluster: cluster, Seq: last.Seq, Chain: last.Hash.Prefix()})
		if err != nil && !refuses(err) {
			return err
		}
		if t.noteVerified(last, head, err == nil) {
			return nil
		}
	}
}

// noteVerified records whether the store's log has the last kept entry. It returns
// false if last is not the last kept entry any more: then the later ones are not
// checked.
func (t *Tail) noteVerified(last *Decoded, head log.Cursor, has bool) bool {
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

// kept returns what is kept after seq, at most ReadEntries and the rest of a change.
func (t *Tail) kept(seq log.Seq) ([]*Decoded, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.keptLocked(seq)
}

func (t *Tail) keptLocked(seq log.Seq) ([]*Decoded, bool) {
	if len(t.items) == 0 {
		return nil, false
	}
	first := t.items[0].Seq
	if seq+1 < first || seq >= first+log.Seq(len(t.items))-1 {
		return nil, false
	}
	from := int(seq + 1 - first)
	end := min(from+ReadEntries, len(t.items))
	for t.items[end-1].Head.More > 0 && end < len(t.items) {
		end++
	}
	return t.items[from:end:end], true
}

// extendLocked appends items if they follow the kept entries, by seq and chain hash;
// else it replaces them. Slices that readers hold are never written to: growth beyond
// the capacity copies. head is from before the read: if the log was replaced since, the
// next reader detects it.
func (t *Tail) extendLocked(items []*Decoded, head log.Cursor) {
	if len(items) == 0 {
		return
	}
	if n := len(t.items); n > 0 && !items[0].follows(t.items[n-1]) {
		t.items = nil
	}
	t.cluster, t.at = head.Cluster, head
	if len(t.items)+len(items) > 2*KeptEntries {
		t.items = append([]*Decoded(nil), t.items[max(0, len(t.items)-KeptEntries):]...)
	}
	t.items = append(t.items, items...)
}

// read reads from the store and checks that what comes is what follows seq.
func (t *Tail) read(seq log.Seq) ([]*Decoded, error) {
	entries, err := t.store.Entries(seq, ReadEntries)
	if err != nil {
		return nil, err
	}
	items := make([]*Decoded, 0, len(entries))
	for i, e := range entries {
		if want := seq + 1 + log.Seq(i); e.Seq != want {
			return nil, fmt.Errorf("entry %d where %d must be: %w", e.Seq, want, log.ErrCorrupt)
		}
		it, err := Decode(e)
		if err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	return items, nil
}
