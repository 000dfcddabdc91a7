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
	underWay    = 16  // changes without an answer: slow servers slow the import down
	againAfter  = 200 * time.Millisecond
	submitLimit = 60 * time.Second // for one change, over all servers
)

// submitter submits changes and returns their results; client.Stream is one.
type submitter interface {
	Submit(ctx context.Context, change *log.Change) (log.Result, error)
}

// writer executes a plan.
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

// write executes the steps of a plan, group by group. If a change is refused, because
// another client wrote meanwhile, each of its steps is tried alone, and a step that is
// then refused is a problem. After an error the other steps are not done. A second run
// continues there.
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

// submit submits one change.
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

// decided submits a change until its result is known.
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
