package backend

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/rest"
	"rutter/log"
	"rutter/projections"
)

// Past answers for the log and the state as they were. All methods may be
// called concurrently; errors are log.ErrCompacted and log.ErrAhead for places
// that are not kept, or not there.
type Past interface {
	// SeqAt is the last entry that is not after a time.
	SeqAt(at log.Time) (log.Seq, error)
	// StateAt is the whole state, for which much is read.
	StateAt(ctx context.Context, seq log.Seq) (*projections.State, error)
	// PartAt is a part of it; more may be in it.
	PartAt(ctx context.Context, part PastPart, seq log.Seq) (*projections.State, error)
	// HistoryOf lists the entries about an object after a seq, in order.
	HistoryOf(ctx context.Context, object PastObject, after log.Seq, limit int) ([]log.Seq, error)
}

// PastObject names an object, by its id as the log has it.
type PastObject struct {
	Kind log.Kind
	ID   string
}

// PastPart is what is wanted of a state: all networks and NIC tags, and what is
// named here.
type PastPart struct {
	CNs      []log.UUID   // with all that they must know
	VNets    []uint32     // with their NICs and the ways to these
	Mentions []log.UUID   // NICs, VMs and VMMs that have one in a field
	Objects  []PastObject // each for itself
	Kinds    []log.Kind   // all objects of them; not NICs, VMs and VMMs, which are many
	Whole    bool         // everything
}

// Reader answers from this server's state as it is, and as it was.
type Reader struct {
	store    Store
	guard    *guard.Guard
	answered *rest.Acknowledged
	past     Past                 // nil: there is no answer for the past
	age      func() time.Duration // nil: nobody knows
	wholes   chan struct{}        // taken while a whole state of the past is in memory
}

// NewReader returns a reader of a store. Reads wait for what acknowledged has, and
// are counted with guard. Without past there is no answer for the past; age says how long
// ago this server knew that it was up to date, nil: nobody knows.
func NewReader(store Store, g *guard.Guard, acknowledged *rest.Acknowledged, past Past, age func() time.Duration) *Reader {
	return &Reader{store: store, guard: g, answered: acknowledged, past: past, age: age, wholes: make(chan struct{}, wholesAtOnce)}
}

// Fresh waits as the query's consistent and min_seq ask, and until this server
// has what it has acknowledged itself: whoever writes and then reads here finds
// what they wrote.
//
// A server whose state differs from the others' answers nothing from it
// (architecture rule 3).
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
	least := max(uint64(named), uint64(v.answered.Seq()))
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

// InSlices calls look with the records of a walk, in order, and holds the state
// still for SliceRows of them at a time, so that no write waits for a long list.
// more is called after each slice, while nothing is held, and says whether to go
// on. An object comes once at most. The answer says the seq of the first slice:
// who reads the log from there misses nothing of those after it.
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
			past = state // which nobody else has
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

// wholesAtOnce bounds the whole states of the past in memory: each takes what
// the server's own does.
const wholesAtOnce = 1

// Place reads the query's at: a seq or a time.
func (v *Reader) Place(p rest.Parameters, name string) (log.Seq, error) {
	if v.past == nil {
		return 0, rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "leave "+name+" out", "this server cannot answer for the past")
	}
	if seq, err := strconv.ParseUint(p.Text(name), 10, 64); err == nil {
		return log.Seq(seq), nil
	}
	at, err := log.ParseTime(p.Text(name))
	if err != nil {
		return 0, rest.BadParameter(name, log.ElementInvalid, "send a seq, or a time as in 2026-11-21T09:00:00Z", "got %q", p.Text(name))
	}
	return v.past.SeqAt(at)
}

// ViewAt calls fn with the state that the query asks for: that of now, or with
// at that of then, of which only a part is needed.
func (v *Reader) ViewAt(w http.ResponseWriter, r *http.Request, p rest.Parameters, part PastPart, fn func(state *projections.State)) error {
	if !p.Has("at") {
		v.View(w, fn)
		return nil
	}
	if g := guard.GrantOf(r); g.Answer != matrix.Allow {
		return v.guard.Refuse(r.RemoteAddr, &matrix.Refusal{Who: g.Who, What: "read the past", Missing: "who sees only its own sees it as it is now: leave ?at= out"})
	}
	seq, err := v.Place(p, "at")
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

// counted notes how many objects of a past state were made for a request.
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
