package applycmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/planprint"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections/foresee"
)

// Bounds of writing.
const (
	againAfter  = 200 * time.Millisecond // servers that are overloaded are asked again
	submitLimit = 90 * time.Second       // for one change, over all servers
)

// submitter submits a change and returns its result; client.Stream is one.
type submitter interface {
	Submit(ctx context.Context, change *log.Change) (log.Result, error)
}

// receipt is what was written.
type receipt struct {
	First   log.Seq   `json:"first,omitzero"` // of the first change with an event
	Last    log.Seq   `json:"last,omitzero"`  // of the last one
	Events  int       `json:"events"`
	Changes []written `json:"changes"`
	// Left is how many changes are not written, after an error. Of the first of them the
	// outcome may be unknown: Unknown is then true.
	Left    int  `json:"left,omitempty"`
	Unknown bool `json:"unknown,omitempty"`
}

// written is one change of a receipt.
type written struct {
	ID     log.UUID `json:"change_id"`
	First  log.Seq  `json:"first"`
	Last   log.Seq  `json:"last"`
	Events uint32   `json:"events"`
	Before bool     `json:"before,omitempty"` // an earlier run wrote it
}

func (r *receipt) add(result log.Result, before bool) {
	r.Changes = append(r.Changes, written{result.ChangeID, result.First, result.Last, result.Events, before})
	if result.Events == 0 {
		return
	}
	if r.First == 0 {
		r.First = result.First
	}
	r.Last = max(r.Last, result.Last)
	r.Events += int(result.Events)
}

// line says what was written, and how it is taken back: by a command for which again names
// the servers.
func (r *receipt) line(again func(command string) string) string {
	var ranges []term.Seqs
	for _, c := range r.Changes {
		if c.Events > 0 {
			ranges = append(ranges, term.Seqs{First: c.First, Last: c.Last})
		}
	}
	return planprint.Receipt(ranges, again)
}

// writer writes the changes of a set, one after the other.
type writer struct {
	to    submitter
	newID func() log.UUID
	tell  func(done, all int64) // operations
	// seqs are the seqs that written changes gave to objects, by what they are and their ids.
	seqs map[object]moved
	done receipt
}

type object struct {
	kind log.Kind
	id   string
}

// moved is what a written change made of an object's seq.
type moved struct{ was, is log.Seq }

// write writes the changes. After an error the receipt says what was written; the state
// then has it, so that a second run of the command writes the rest.
func (w *writer) write(ctx context.Context, s *set) error {
	w.seqs = map[object]moved{}
	all, done := int64(0), int64(0)
	for _, c := range s.changes {
		all += int64(len(c.Ops))
	}
	for _, c := range s.before {
		// The servers remember the result, or refuse the id as too old: it is done in any case.
		if result, err := w.decided(ctx, c); err == nil {
			w.done.add(result, true)
		} else if !decided(err) {
			w.done.Left = len(s.changes)
			return err
		}
	}
	for i, c := range s.changes {
		result, err := w.submit(ctx, w.lifted(c), s)
		if err != nil {
			w.done.Left = len(s.changes) - i
			w.done.Unknown = !decided(err)
			return err
		}
		w.done.add(result, false)
		w.follow(s, i, result)
		done += int64(len(c.Ops))
		w.tell(done, all)
	}
	return nil
}

// decided reports whether an error says that nothing of a change was done.
func decided(err error) bool {
	if errors.Is(err, client.ErrUnavailable) {
		return false // an earlier attempt may have been written
	}
	return errors.As(err, new(*log.Refusal)) || errors.Is(err, client.ErrBadChange) || errors.Is(err, log.ErrTooLarge)
}

// lifted returns a change with the seqs that written changes gave to its objects.
func (w *writer) lifted(c *log.Change) *log.Change {
	lifted := *c
	lifted.Ops = make([]log.Op, len(c.Ops))
	copy(lifted.Ops, c.Ops)
	for i := range lifted.Ops {
		op := &lifted.Ops[i]
		if m, ok := w.seqs[object{op.Kind, op.ID}]; ok && op.IfSeq != 0 && op.IfSeq == m.was {
			op.IfSeq = m.is
		}
	}
	return &lifted
}

// follow notes what the ith change made of the seqs of objects, by what was foreseen of it:
// also of those that follow from others. If it came to another number of events, nothing
// is noted, and a later operation on one of the objects is refused.
func (w *writer) follow(s *set, i int, result log.Result) {
	foreseen := &s.outcome.Changes[i]
	if int(result.Events) != len(foreseen.Events) {
		return
	}
	for n, l := range foreseen.Events {
		of := object{l.Event.Kind, l.Event.ID}
		m, ok := w.seqs[of]
		if !ok {
			m.was = s.seqOf(of)
		}
		m.is = result.First + log.Seq(n)
		w.seqs[of] = m
	}
}

// seqOf returns the seq that the operations name of an object; 0 if none does.
func (s *set) seqOf(of object) log.Seq {
	if s.named == nil {
		s.named = map[object]log.Seq{}
		for _, c := range s.changes {
			for i := range c.Ops {
				if op := &c.Ops[i]; op.IfSeq != 0 {
					s.named[object{op.Kind, op.ID}] = op.IfSeq
				}
			}
		}
	}
	return s.named[of]
}

// submit submits a change until its result is known. The id of a change follows from what
// it does: an answer of before this run, and a refusal, may be those of an earlier run that
// did the same in another state. Then it is submitted under an id of its own, which is
// safe, because what was done before is what the state has.
func (w *writer) submit(ctx context.Context, c *log.Change, s *set) (log.Result, error) {
	result, err := w.decided(ctx, c)
	earlier := err == nil && result.Events > 0 && result.Last <= s.head
	if s.fixed || !earlier && !errors.As(err, new(*log.Refusal)) {
		return result, err
	}
	again := *c
	again.ID = w.newID()
	return w.decided(ctx, &again)
}

func (w *writer) decided(ctx context.Context, c *log.Change) (log.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, submitLimit)
	defer cancel()
	for {
		result, err := w.to.Submit(ctx, c)
		if !errors.Is(err, client.ErrOverloaded) {
			return result, err
		}
		pause := againAfter
		var budget *client.BudgetError
		if errors.As(err, &budget) {
			pause = max(pause, budget.After)
		}
		select {
		case <-ctx.Done():
			return result, err
		case <-time.After(pause):
		}
	}
}

// refusedText names what of an outcome is refused, for an error.
func refusedText(o *foresee.Outcome) string {
	for i := range o.Changes {
		if len(o.Changes[i].Refused) == 0 {
			continue
		}
		r := &o.Changes[i].Refused[0]
		if r.Op < 0 {
			return r.Refusal.Error()
		}
		return fmt.Sprintf("%s %s %s: %s", r.Action, r.Kind, planprint.Called(r.ID, r.Name), r.Refusal)
	}
	return ""
}
