package changefeed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"rutter/log"
)

// Bounds of reading the log.
const (
	tailItems   = 4096 // of the newest entries, kept for all listeners
	readEntries = 512  // at once, unless one change has more
)

// hub reads the log once for all listeners, and wakes those that an entry concerns. A
// listener that is behind the kept items reads from the store itself.
type hub struct {
	store Store

	reading sync.Mutex // held while at is moved; taken before mu
	stamps  *stamps    // of what was read, or nil; protected by reading

	mu    sync.Mutex // protects what follows
	at    log.Cursor // the last entry read; listeners were woken for everything up to it
	items []*item    // dense, ending at at
	// listeners are those that have registered, by the resources they want.
	listeners map[string][]*listener
	instances map[string][]*listener
	count     int
}

func newHub(store Store) *hub {
	return &hub{store: store, listeners: make(map[string][]*listener), instances: make(map[string][]*listener)}
}

// watch reads new entries until ctx ends.
func (h *hub) watch(ctx context.Context) {
	for {
		changed := h.store.Changed()
		h.advance()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// advance reads new entries, and wakes the listeners that they concern. If they cannot
// be read, it closes all listeners, because they have missed entries.
func (h *hub) advance() {
	h.reading.Lock()
	defer h.reading.Unlock()
	for {
		head := h.store.Head()
		h.mu.Lock()
		at, count := h.at, h.count
		h.mu.Unlock()
		if at == head || count == 0 {
			return
		}
		items, err := h.next(at)
		if h.replaced(at) {
			h.restart(replacedLog)
			return
		}
		if err != nil || len(items) == 0 {
			if err != nil {
				h.restart(fmt.Sprintf("this server cannot read its log: %v", err))
			}
			return
		}
		h.note(items)
	}
}

// next reads the items after the hub's position.
func (h *hub) next(at log.Cursor) (items []*item, err error) {
	if h.stamps == nil || h.stamps.at != at {
		if h.stamps, err = h.stampsAfter(at); err != nil {
			return nil, err
		}
	}
	if items, err = h.read(at, h.stamps); err != nil {
		h.stamps = nil
	}
	return items, err
}

// replaced reports whether this server's log no longer has a position: a snapshot was
// restored, or the server was rebuilt. It is called after a read, so that what was read
// is of the position's log.
func (h *hub) replaced(at log.Cursor) bool {
	head := h.store.Head()
	if at.Cluster != head.Cluster || at.Seq > head.Seq || at.Seq == head.Seq && at.Chain != head.Chain {
		return true
	}
	err := h.store.CheckCursor(at)
	return errors.Is(err, log.ErrOtherLog) || errors.Is(err, log.ErrAhead)
}

// read reads the items after a position from the store, and checks that they follow it.
func (h *hub) read(after log.Cursor, stamps *stamps) ([]*item, error) {
	entries, err := h.store.Entries(after.Seq, readEntries)
	if err != nil {
		return nil, err
	}
	items := make([]*item, 0, len(entries))
	for i, e := range entries {
		if want := after.Seq + 1 + log.Seq(i); e.Seq != want {
			return nil, fmt.Errorf("entry %d where %d must be: %w", e.Seq, want, log.ErrCorrupt)
		}
		it, err := newItem(after.Cluster, e, stamps)
		if err != nil {
			return nil, err
		}
		items = append(items, it)
		stamps.at = it.cursor
	}
	return items, nil
}

// restart continues at the head, and closes every listener, because earlier entries are
// unknown.
func (h *hub) restart(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at, h.items = h.store.Head(), nil
	h.endLocked(reason)
}

// end closes every listener.
func (h *hub) end(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endLocked(reason)
}

func (h *hub) endLocked(reason string) {
	for _, all := range h.instances {
		for _, l := range all {
			l.end(reason)
		}
	}
}

// note takes items that follow at.
func (h *hub) note(items []*item) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.items)+len(items) > 2*tailItems {
		// The old items that readers hold are not overwritten.
		h.items = slices.Clone(h.items[max(0, len(h.items)-tailItems):])
	}
	h.items = append(h.items, items...)
	for _, it := range items {
		h.wakeFor(it)
		for _, also := range it.also {
			h.wakeFor(also)
		}
	}
	h.at = items[len(items)-1].cursor
}

// wakeFor wakes the listeners that an item concerns.
func (h *hub) wakeFor(it *item) {
	for _, l := range h.listeners[it.resource] {
		if l.next == 0 && l.reg.want(it) {
			l.next = it.cursor.Seq
			l.wake()
		}
	}
}

// replacedLog ends all listeners: this server's log was replaced by another one.
const replacedLog = "the log of this server was replaced: register anew"

// replacedReason ends a listener whose instance registered again.
const replacedReason = "replaced: this instance registered again"

// join adds a listener, at the head or at its cursor, and returns the position. It
// closes an earlier listener of the same instance that shares a resource.
func (h *hub) join(l *listener, from *log.Cursor) (log.Cursor, error) {
	h.enter()
	h.advance()
	replaced := from != nil && h.replaced(*from) // since the cursor was checked
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.at
	if from != nil {
		if replaced || from.Cluster != at.Cluster || from.Seq > at.Seq {
			h.count--
			return log.Cursor{}, errReplaced
		}
		at = *from
		if at.Seq < h.at.Seq {
			l.next = at.Seq + 1
			l.wake()
		}
	}
	for _, other := range h.instances[l.reg.Instance] {
		if other.reg.replaces(l.reg) {
			other.end(replacedReason)
		}
	}
	h.instances[l.reg.Instance] = append(h.instances[l.reg.Instance], l)
	for _, resource := range l.reg.resources() {
		h.listeners[resource] = append(h.listeners[resource], l)
	}
	return at, nil
}

// enter counts a listener, so that the log is read for it. The first one makes the hub
// begin at the head, because no listener needs earlier entries.
func (h *hub) enter() {
	h.reading.Lock()
	defer h.reading.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count == 0 {
		h.at, h.items = h.store.Head(), nil
	}
	h.count++
}

// errReplaced: the log was replaced while a listener registered or read.
var errReplaced = errors.New("changefeed: the log was replaced")

// leave forgets a listener that joined.
func (h *hub) leave(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count--
	remove(h.instances, l.reg.Instance, l)
	for _, resource := range l.reg.resources() {
		remove(h.listeners, resource, l)
	}
}

func remove(from map[string][]*listener, key string, l *listener) {
	all := slices.DeleteFunc(from[key], func(other *listener) bool { return other == l })
	if len(all) == 0 {
		delete(from, key)
		return
	}
	from[key] = all
}

// due returns what a listener must read: from the seq next up to a position; next is 0
// if no entry up to there concerns it.
func (h *hub) due(l *listener) (next log.Seq, upTo log.Cursor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next, l.next = l.next, 0
	return next, h.at
}

// after returns the items after a seq, kept ones or from the store, for a listener that
// reads up to another position. They end where the hub's do, or earlier. Errors:
// errReplaced if they may be of another log than that position's, log.ErrCompacted and
// others.
func (h *hub) after(l *listener, place log.Seq, upTo log.Cursor) ([]*item, error) {
	kept, ended := h.keptAfter(l, place, upTo.Cluster)
	if ended || kept != nil {
		return kept, nil
	}
	from := log.Cursor{Cluster: upTo.Cluster, Seq: place}
	stamps, err := h.stampsAfter(from)
	var items []*item
	if err == nil {
		items, err = h.read(from, stamps)
	}
	if h.replaced(upTo) {
		return nil, errReplaced
	}
	return items, err
}

// keptAfter is after for kept items; nil if they are not kept. ended: the listener was
// ended, as all are before an item of another log is kept.
func (h *hub) keptAfter(l *listener, place log.Seq, cluster log.UUID) (kept []*item, ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-l.over:
		return nil, true
	default:
	}
	n := len(h.items)
	if n == 0 {
		return nil, false
	}
	first := h.items[0].cursor.Seq
	if h.items[0].cursor.Cluster != cluster || place+1 < first || place >= first+log.Seq(n)-1 {
		return nil, false
	}
	from := int(place + 1 - first)
	return h.items[from:min(from+readEntries, n)], false
}

// registered returns the listeners, in no order.
func (h *hub) registered() []*listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*listener
	for _, of := range h.instances {
		all = append(all, of...)
	}
	return all
}
