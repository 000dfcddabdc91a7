package raftstore

import (
	"bytes"
	"fmt"
	"time"

	"rutter/log"
)

// maxIDAhead is how far a change id's time may be ahead of the cluster's. Ids
// from the future would push everybody else's out of the window.
const maxIDAhead = time.Minute

// window remembers the results of the newest change ids, so that a retry gets
// the first one's. Ids of version 7 sort by their time, and the window holds
// the newest by id: what it forgets is always the lowest, and every id at or
// below the highest forgotten one is refused, since it may have been applied.
// It depends on nothing but the changes and their stamped time, so it is the
// same on every server (SAFETY P5). It belongs to the goroutine of the FSM.
type window struct {
	age   time.Duration
	count int

	results map[log.UUID][]byte // encoded log.Result
	order   idHeap
	trimmed log.UUID
	sum     sum // over all ids and results
}

func newWindow(age time.Duration, count int, trimmed log.UUID) *window {
	return &window{age: age, count: count, results: make(map[log.UUID][]byte), trimmed: trimmed}
}

// add remembers the result of id.
func (w *window) add(id log.UUID, result []byte) {
	w.results[id] = result
	w.sum.add(hashOf(id[:], result))
	w.order.push(id)
	for len(w.order) > w.count {
		w.forgetLowest()
	}
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
	w.sum.sub(hashOf(id[:], w.results[id]))
	delete(w.results, id)
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
