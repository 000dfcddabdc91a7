package raftstore

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"rutter/log"
)

// maxIDAhead is how far a change id's time may be ahead of the cluster's. Ids
// from the future would push everybody else's out of the window.
const maxIDAhead = time.Minute

// window remembers the newest change ids and what became of them, so that a retry gets
// the first one's. Ids of version 7 sort by their time, and the window holds
// the newest by id: what it forgets is always the lowest, and every id at or
// below the highest forgotten one is refused, since it may have been applied.
// It depends on nothing but the changes and their stamped time, so it is the
// same on every server (SAFETY P5). It belongs to the goroutine of the FSM.
//
// A retry is rare, and a result as long as the change: they are in memory only
// until changes.db has them.
type window struct {
	age   time.Duration
	count int

	known   map[log.UUID]remembered
	fresh   []freshResult // those that may not be in changes.db, in the order in which they get there
	stored  uint64        // how many were fresh and are not any more
	order   idHeap
	trimmed log.UUID
	sum     sum // of all hashes
}

// remembered is what the window has of an id. It has no pointer: the garbage
// collector does not look at 200,000 of them.
type remembered struct {
	hash sum // hashOf(id, result)
	// place is the number of its fresh result, from 1, among all that ever were;
	// 0 if it was stored from the beginning.
	place uint64
}

// freshResult is an encoded log.Result that is in changes.db once a raft index is.
type freshResult struct {
	index  uint64
	result []byte
}

func newWindow(age time.Duration, count int, trimmed log.UUID) *window {
	return &window{age: age, count: count, known: make(map[log.UUID]remembered), trimmed: trimmed}
}

// add remembers the result of id, which raft's entry at index has.
func (w *window) add(id log.UUID, result []byte, index uint64) {
	w.fresh = append(w.fresh, freshResult{index, result})
	w.remember(id, remembered{hashOf(id[:], result), w.stored + uint64(len(w.fresh))})
}

// addStored remembers the result of id, which is in changes.db.
func (w *window) addStored(id log.UUID, result []byte) {
	w.remember(id, remembered{hash: hashOf(id[:], result)})
}

func (w *window) remember(id log.UUID, r remembered) {
	w.known[id] = r
	w.sum.add(r.hash)
	w.order.push(id)
	for len(w.order) > w.count {
		w.forgetLowest()
	}
}

// result returns the result of an id that is remembered, if it is still here.
func (w *window) result(r remembered) (encoded []byte, ok bool) {
	if r.place <= w.stored {
		return nil, false
	}
	return w.fresh[r.place-w.stored-1].result, true
}

// settle lets go of the results that are in changes.db, which has all up to a raft index.
func (w *window) settle(stored uint64) {
	n := 0
	for n < len(w.fresh) && w.fresh[n].index <= stored {
		n++
	}
	w.fresh = slices.Delete(w.fresh, 0, n)
	w.stored += uint64(n)
}

// advance forgets what is too old at time now.
func (w *window) advance(now log.Time) {
	oldest := (int64(now) - int64(w.age)) / int64(time.Millisecond)
	for len(w.order) > 0 {
		if ms, _ := w.order[0].UnixMilli(); ms >= oldest {
			return
		}
		w.forgetLowest()
	}
}

func (w *window) forgetLowest() {
	id := w.order.pop()
	w.sum.sub(w.known[id].hash)
	delete(w.known, id)
	if bytes.Compare(id[:], w.trimmed[:]) > 0 {
		w.trimmed = id
	}
}

// check refuses an id that the window cannot judge; it is not one that get knows.
func (w *window) check(id log.UUID, now log.Time) *log.Refusal {
	ms, ok := id.UnixMilli()
	if !ok {
		return badID(log.CodeInvalidParameters, id, "is not a UUID of version 7", "make a new UUIDv7 for each change, and keep it for its retries")
	}
	at := ms * int64(time.Millisecond)
	if at > int64(now)+int64(maxIDAhead) {
		return badID(log.CodeInvalidParameters, id, fmt.Sprintf("is of %s, more than %v ahead of the cluster's clock, %s", log.Time(at), maxIDAhead, now), "set the client's clock right")
	}
	if at < int64(now)-int64(w.age) || bytes.Compare(id[:], w.trimmed[:]) <= 0 {
		return badID(log.CodeTooOld, id, fmt.Sprintf("is of %s, older than the ids that are remembered: it may have been applied already", log.Time(at)), "look whether the change was made; if not, send it with a new id")
	}
	return nil
}

func badID(code string, id log.UUID, what, remedy string) *log.Refusal {
	return &log.Refusal{
		Code: code, Message: fmt.Sprintf("change id %s %s", id, what),
		Errors: []log.FieldError{{Field: "id", Code: log.ElementInvalid, Message: what, Remedy: remedy}},
	}
}

// idHeap is a binary heap of ids, the lowest first. Ids come nearly in order, so
// that adding one hardly moves any.
type idHeap []log.UUID

func (h idHeap) less(i, j int) bool { return bytes.Compare(h[i][:], h[j][:]) < 0 }

func (h *idHeap) push(id log.UUID) {
	*h = append(*h, id)
	s := *h
	for i := len(s) - 1; i > 0; {
		parent := (i - 1) / 2
		if !s.less(i, parent) {
			return
		}
		s[i], s[parent] = s[parent], s[i]
		i = parent
	}
}

func (h *idHeap) pop() log.UUID {
	s := *h
	lowest, last := s[0], len(s)-1
	s[0] = s[last]
	s = s[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(s); child++ {
			if s.less(child, least) {
				least = child
			}
		}
		if least == i {
			break
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
	*h = s
	return lowest
}
