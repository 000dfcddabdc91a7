package importcmd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/api/client"
	"rutter/log"
)

// Bounds of writing.
const (
	smallBatch  = 100 // operations of one change, of NICs and addresses
	largeBatch  = 8   // of kinds whose objects can be large
	underWay    = 16  // changes without an answer: servers that are slow make the import slow
	againAfter  = 200 * time.Millisecond
	submitLimit = 60 * time.Second // for one change, over all servers
)

// submitter has changes decided; client.Stream is one.
type submitter interface {
	Submit(ctx context.Context, change *log.Change) (log.Result, error)
}

// writer carries out a plan.
type writer struct {
	to    submitter
	newID func() log.UUID
	tell  progress
	all   int

	mu       sync.Mutex // protects what follows
	done     int        // steps that are written
	events   int
	alone    []step // of changes that were refused: each is tried for itself
	problems []problem
}

// write carries out the steps of a plan, group by group. A change that is
// refused although the plan was not, because somebody else wrote meanwhile, is
// taken apart, and what is then refused is a problem. After an error the rest is
// undone: running again goes on there.
func (w *writer) write(ctx context.Context, steps []step) error {
	w.all = len(steps)
	for from := 0; from < len(steps); {
		to := from
		for to < len(steps) && steps[to].group == steps[from].group {
			to++
		}
		if err := w.writeGroup(ctx, steps[from:to]); err != nil {
			return err
		}
		from = to
	}
	return nil
}

func (w *writer) writeGroup(ctx context.Context, steps []step) error {
	size := largeBatch
	if kind := steps[0].op.Kind; kind == log.KindNIC || kind == log.KindIP {
		size = smallBatch
	}
	g, groupCtx := errgroup.WithContext(ctx)
	g.SetLimit(underWay)
	for from := 0; from < len(steps); from += size {
		batch := steps[from:min(from+size, len(steps))]
		g.Go(func() error { return w.submit(groupCtx, batch) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	alone := w.alone
	w.alone = nil
	for i := range alone {
		if err := w.submit(ctx, alone[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// submit has one change decided.
func (w *writer) submit(ctx context.Context, steps []step) error {
	change := &log.Change{ID: w.newID()}
	for _, s := range steps {
		change.Ops = append(change.Ops, s.op)
	}
	result, err := w.decided(ctx, change)
	var refusal *log.Refusal
	w.mu.Lock()
	defer w.mu.Unlock()
	bad := errors.Is(err, client.ErrBadChange) || errors.Is(err, log.ErrTooLarge)
	switch {
	case err == nil:
		w.events += int(result.Events)
	case len(steps) > 1 && (errors.As(err, &refusal) || bad):
		w.alone = append(w.alone, steps...)
		return nil
	case errors.As(err, &refusal):
		op := steps[0].op
		w.problems = append(w.problems, problemsOf(refusal, op.Kind, op.Object.ID(), steps[0].from)...)
	case bad:
		op := steps[0].op
		w.problems = append(w.problems, problem{Kind: op.Kind.String(), ID: op.Object.ID(), From: steps[0].from, Left: true, Message: err.Error(), Remedy: "make the object smaller"})
	default:
		return fmt.Errorf("%d of %d were written; run again to go on: %w", w.done, w.all, err)
	}
	w.done += len(steps)
	w.tell("written", w.done, w.all)
	return nil
}

// decided submits a change until it is known what became of it.
func (w *writer) decided(ctx context.Context, change *log.Change) (log.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, submitLimit)
	defer cancel()
	for {
		result, err := w.to.Submit(ctx, change)
		if !errors.Is(err, client.ErrOverloaded) {
			return result, err
		}
		select {
		case <-ctx.Done():
			return result, err
		case <-time.After(againAfter):
		}
	}
}
