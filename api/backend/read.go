package backend

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/moment"
	"rutter/projections"
)

// Past answers for the log and the state at an earlier seq. All methods may be called
// concurrently. Errors are log.ErrCompacted and log.ErrAhead for seqs that are no
// longer kept, or do not exist yet.
type Past interface {
	// SeqAt returns the last entry that is not after a time.
	SeqAt(at log.Time) (log.Seq, error)
	// StateAt returns the whole state, which reads much.
	StateAt(ctx context.Context, seq log.Seq) (*projections.State, error)
	// PartAt returns a part of the state; it may contain more.
	PartAt(ctx context.Context, part PastPart, seq log.Seq) (*projections.State, error)
	// HistoryOf lists the entries about an object after a seq, in order.
	HistoryOf(ctx context.Context, object PastObject, after log.Seq, limit int) ([]log.Seq, error)
}

// PastObject names an object, by its id as the log has it.
type PastObject struct {
	Kind log.Kind
	ID   string
}

// PastPart says what is needed of a state: always all networks and NIC tags, and what
// is named here.
type PastPart struct {
	CNs      []log.UUID   // with everything in their interest
	VNets    []uint32     // with their NICs and the routes to these
	Mentions []log.UUID   // NICs, VMs and VMMs that have one of these in a field
	Objects  []PastObject // each for itself
	Kinds    []log.Kind   // all objects of these kinds; not NICs, VMs and VMMs, which are many
	Whole    bool         // everything
}

// Reader answers from this server's state, present and past.
type Reader struct {
	store        Store
	guard        *guard.Guard
	acknowledged *rest.Acknowledged
	past         Past                 // nil: no answers for the past
	age          func() time.Duration // nil: unknown
	wholes       chan struct{}        // held while a whole past state is in memory
}

// NewReader returns a reader of a store. Reads wait for the seq of acknowledged, and
// are counted with guard. past may be nil: then there is no answer for the past. age
// returns the time since this server knew that it was up to date; nil: unknown.
func NewReader(store Store, g *guard.Guard, acknowledged *rest.Acknowledged, past Past, age func() time.Duration) *Reader {
	return &Reader{store: store, guard: g, acknowledged: acknowledged, past: past, age: age, wholes: make(chan struct{}, wholesAtOnce)}
}

// Fresh waits as the query's consistent and min_seq ask, and until this server has
// applied what it has acknowledged itself: a client that writes and then reads here
// finds what it wrote.
//
// A server whose state differs from the others' answers nothing from it (architecture
// rule 3).
func (v *Reader) Fresh(r *http.Request, p rest.Parameters) error {
	if err := v.store.Serving(); err != nil {
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeNotReady, "ask another server, and have this one rebuilt: rutter cluster rebuild", "this server shows nothing of its state: %v", err)
	}
	consistent, err := p.Flag("consistent")
	if err != nil {
		return err
	}
	named, err := SeqParameter(r.Context(), v.store, p, "min_seq")
	if err != nil {
		return err
	}
	least := max(uint64(named), uint64(v.acknowledged.Seq()))
	if !consistent && uint64(v.store.Head().Seq) >= least {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), WaitTime)
	defer cancel()
	if consistent {
		if _, err := v.store.Consistent(ctx); err != nil {
			return rest.Fail(http.StatusServiceUnavailable, rest.CodeNoLeader, "try again, or read without ?consistent", "no leader confirmed in %s that this server is up to date: %v", WaitTime, err)
		}
	}
	if err := v.store.WaitSeq(ctx, log.Seq(least)); err != nil {
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeNotYet, "try again, or another server", "this server is at seq %d and did not reach %d in %s", v.store.Head().Seq, least, WaitTime)
	}
	return nil
}

// View calls fn with the state, and sets the headers that say how fresh it is.
func (v *Reader) View(w http.ResponseWriter, fn func(state *projections.State)) {
	v.store.View(func(state *projections.State, head log.Cursor) {
		rest.SetCursor(w, head)
		fn(state)
	})
	if v.age != nil {
		w.Header().Set(headerAge, strconv.FormatInt(v.age().Milliseconds(), 10))
	}
}

// InSlices calls look with the records of a walk, in order. It locks the state for
// SliceRows of them at a time, so that no write waits for a long list. more is called
// after each slice, without the lock, and reports whether to continue. An object comes
// at most once. The answer has the seq of the first slice: a client that reads the log
// from there misses no later change.
func (v *Reader) InSlices(w http.ResponseWriter, r *http.Request, p rest.Parameters, part PastPart, walk projections.Walk, look func(*projections.State, projections.Record), more func() bool) error {
	var last log.Object
	slice := func(state *projections.State) (ended bool) {
		seen := 0
		defer func() { v.guard.AccountsOf(r.Context()).Look(seen) }()
		for rec := range state.Walk(walk, last) {
			if seen == SliceRows {
				return false
			}
			look(state, rec)
			last = rec.Object
			seen++
		}
		return true
	}
	var past *projections.State
	ended := false
	if err := v.ViewAt(w, r, p, part, func(state *projections.State) {
		ended = slice(state)
		if p.Has("at") {
			past = state // only this request has it
		}
	}); err != nil {
		return err
	}
	for more() && !ended {
		if err := r.Context().Err(); err != nil {
			return err
		}
		if past != nil {
			ended = slice(past)
		} else {
			v.store.View(func(state *projections.State, _ log.Cursor) { ended = slice(state) })
		}
	}
	return nil
}

// wholesAtOnce bounds the whole past states in memory: each is as large as the server's
// own.
const wholesAtOnce = 1

// MomentParameter reads a parameter that names a place of the log, by this server's clock.
func MomentParameter(text, name string) (moment.Moment, error) {
	m, err := moment.Parse(text, time.Now(), nil)
	if err != nil {
		return m, rest.BadParameter(name, log.ElementInvalid, "send "+moment.Forms, "got %q: %v", text, errors.Unwrap(err))
	}
	return m, nil
}

// AtParameter reads the query's at: a seq or a time.
func (v *Reader) AtParameter(p rest.Parameters, name string) (log.Seq, error) {
	if v.past == nil {
		return 0, rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "leave "+name+" out", "this server cannot answer for the past")
	}
	m, err := MomentParameter(p.Text(name), name)
	if err != nil || m.IsSeq {
		return m.Seq, err
	}
	return v.past.SeqAt(m.Time)
}

// ViewAt calls fn with the state that the query asks for: the present one, or with at a
// past one, of which only a part is needed.
func (v *Reader) ViewAt(w http.ResponseWriter, r *http.Request, p rest.Parameters, part PastPart, fn func(state *projections.State)) error {
	if !p.Has("at") {
		v.View(w, fn)
		return nil
	}
	if g := guard.GrantOf(r); g.Decision != matrix.Allow {
		return v.guard.Refuse(r.RemoteAddr, &matrix.Refusal{Who: g.Who, What: "read the past", Missing: "who sees only its own sees it as it is now: leave ?at= out"})
	}
	seq, err := v.AtParameter(p, "at")
	if err != nil {
		return err
	}
	state, err := v.PastState(r.Context(), part, seq)
	if err != nil {
		return err
	}
	rest.SetSeq(w, seq)
	fn(state)
	return nil
}

// counted records how many objects of a past state were made for a request.
func (v *Reader) counted(ctx context.Context, state *projections.State) {
	if state != nil {
		v.guard.AccountsOf(ctx).Look(state.Len())
	}
}

func (v *Reader) PastState(ctx context.Context, part PastPart, seq log.Seq) (state *projections.State, err error) {
	if !part.Whole {
		err = v.guard.Scan(ctx, func() (err error) {
			state, err = v.past.PartAt(ctx, part, seq)
			return err
		})
		v.counted(ctx, state)
		return state, err
	}
	select {
	case v.wholes <- struct{}{}:
		defer func() { <-v.wholes }()
	default:
		return nil, rest.Fail(http.StatusServiceUnavailable, rest.CodeOverloaded, "try again, or ask for one object, CN or vnet", "the whole state of the past is being read for somebody else")
	}
	state, err = v.past.StateAt(ctx, seq)
	v.counted(ctx, state)
	return state, err
}
