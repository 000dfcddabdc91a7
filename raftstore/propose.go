package raftstore

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/log/budget"
	"rutter/raftstore/internal/admission"
	"rutter/raftstore/internal/command"
)

const (
	// retryPause is how long Propose waits for a new leader before it looks again.
	retryPause = 25 * time.Millisecond
)

// encoders and decoders are shared by the goroutines that propose.
var (
	encoders = sync.Pool{New: func() any { return log.NewEncoder() }}
	decoders = sync.Pool{New: func() any { return new(log.ChangeDecoder) }}
)

// flight is a batch in raft.
type flight struct {
	future raft.ApplyFuture
	batch  []*admission.Proposal
}

// proposer takes changes on the leader, and sends them on elsewhere.
type proposer struct {
	store   *Store
	queue   *admission.Queue
	aloft   admission.Aloft
	budgets *admission.Budgets
}

// runProposer sends batches until ctx is done. When it returns, nothing of it
// is in raft any more.
func (pr *proposer) runProposer(ctx context.Context, r *raft.Raft) {
	flights := make(chan flight, admission.MaxFlying)
	landed := make(chan struct{})
	go func() {
		defer close(landed)
		for f := range flights {
			pr.land(f)
		}
	}()
	for ctx.Err() == nil {
		select {
		case <-pr.queue.Kicks():
		case <-ctx.Done():
		}
		for ctx.Err() == nil {
			batch := pr.queue.Take()
			if batch == nil {
				break
			}
			pr.store.counters.batches.Add(1)
			pr.aloft.Add(batch)
			flights <- flight{r.Apply(batchEntry(batch), enqueueTimeout), batch}
		}
	}
	pr.queue.Close(errNotLeader)
	close(flights)
	select {
	case <-landed:
	case <-time.After(drainWait(&pr.store.cfg)):
		pr.store.logger.Warn("changes in flight were not answered before the end")
	}
}

// batchEntry returns the raft entry of a batch, made in one allocation.
func batchEntry(batch []*admission.Proposal) []byte {
	size := 2 // the command's byte and the batch's version
	for _, p := range batch {
		size += 4 + len(p.Bytes)
	}
	entry := make([]byte, 1, size)
	entry[0] = command.Batch
	changes := entry[1:1]
	for _, p := range batch {
		changes = log.AppendBatch(changes, p.Bytes)
	}
	if 1+len(changes) > cap(entry) { // AppendBatch grew it elsewhere
		return append(entry, changes...)
	}
	return entry[:1+len(changes)]
}

// drainWait is longer than raft takes to answer what is in flight, or to give up
// leadership and say so.
func drainWait(cfg *Config) time.Duration { return enqueueTimeout + 2*cfg.LeaderLease + time.Second }

// land waits for a batch and tells its proposers.
func (pr *proposer) land(f flight) {
	err := f.future.Error()
	pr.aloft.Remove(f.batch)
	var results []log.Result
	if err == nil {
		switch response := f.future.Response().(type) {
		case []log.Result:
			results = response
		case error:
			err = response
			if errors.Is(err, errSkipped) {
				pr.store.fail(err)
			}
		}
	}
	if err == nil && len(results) != len(f.batch) {
		err = fmt.Errorf("%d results for %d changes", len(results), len(f.batch))
	}
	for i, p := range f.batch {
		if p.Over != nil {
			p.Over()
		}
		if err != nil {
			p.Tell(admission.Outcome{Err: notWritten(err)})
			continue
		}
		p.Tell(admission.Outcome{Result: toldOf(results[i])})
	}
	// Writers that go on at once get a chance to be in the next batch: without
	// it, 64 of them fall into two halves that take turns.
	runtime.Gosched()
	pr.queue.Landed()
}

// notWritten tells the three errors of raft after which nothing was written
// from all others, after which nobody knows (SAFETY P3).
func notWritten(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w (%w)", errNotLeader, err)
	case errors.Is(err, ErrNoRoom):
		return fmt.Errorf("%w: %v", ErrUnknown, err) // it is not said to be unwritten
	default:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
}

// Propose submits a change on any server and returns what became of it, once
// that is on a quorum's disks. A refused change has Result.Refusal, and no
// error. It goes on trying, with the same id, over changes of leader, until ctx
// or Config.ProposeTimeout ends; the change is applied at most once.
//
// Errors: ErrUnknown means that the change may have been written; any other,
// ErrNoLeader, ErrOverloaded, ErrNoRoom, ErrClock, ErrStopped or log.ErrTooLarge,
// that it was not. ctx's error is wrapped if it was the cause. The change is only read.
func (s *Store) Propose(ctx context.Context, c *log.Change) (log.Result, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	var forwarded []byte
	var unknown error
	for {
		if err := s.Serving(); err != nil {
			return log.Result{}, errors.Join(unknown, err)
		}
		moved := s.lead.leaderMoved()
		result, err := s.proposer.proposeOnce(ctx, c, &forwarded)
		if err == nil && unknown != nil && result.Refusal != nil && result.Refusal.Code == log.CodeTooOld {
			return log.Result{}, stillUnknown(unknown, result.Refusal)
		}
		if err == nil {
			return result, nil
		}
		if errors.Is(err, ErrUnknown) {
			unknown = err
		} else if errors.Is(err, ErrNoRoom) && unknown != nil {
			return log.Result{}, fmt.Errorf("%w; then: %v", unknown, err) // an earlier try may have been written
		} else if !errors.Is(err, errNotLeader) {
			return log.Result{}, stillUnknown(unknown, err)
		}
		if noRoom := s.NoRoom(); noRoom != nil && unknown == nil && s.lead.leaderAddress() == "" {
			return log.Result{}, noRoom // which may be why there is no leader
		}
		if ended := s.pause(ctx, moved); errors.Is(ended, ErrStopped) {
			return log.Result{}, errors.Join(unknown, ended)
		} else if ended != nil {
			return log.Result{}, fmt.Errorf("%w: %w", cmp.Or(unknown, ErrNoLeader), ended)
		}
	}
}

// stillUnknown is what a try ended with, unless an earlier one may have been
// written: then that is what counts, and what the later one advises, such as to send
// less or with another id, would be wrong.
func stillUnknown(unknown, err error) error {
	var refusal *log.Refusal
	why := "it was not taken"
	switch {
	case unknown == nil:
		return err
	case errors.As(err, &refusal):
		why = refusal.Message
	case errors.Is(err, log.ErrTooLarge):
		why = log.ErrTooLarge.Error()
	case err != nil:
		why = err.Error()
	}
	return fmt.Errorf("%w; of a later try, with the same id: %s", unknown, why)
}

// bounded gives ctx a deadline if it has none.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, s.cfg.ProposeTimeout)
}

// proposeOnce tries the leader that is known now. forwarded keeps the encoded
// change between tries.
func (pr *proposer) proposeOnce(ctx context.Context, c *log.Change, forwarded *[]byte) (log.Result, error) {
	if pr.store.lead.leading() {
		return pr.proposeLocal(ctx, c)
	}
	address := pr.store.lead.leaderAddress()
	if address == "" || address == pr.store.Address() {
		return log.Result{}, errNotLeader
	}
	if *forwarded == nil {
		enc := encoders.Get().(*log.Encoder)
		b, err := enc.Change(c)
		encoders.Put(enc)
		if err != nil {
			return log.Result{}, err
		}
		*forwarded = b
	}
	if result, refused := pr.refuseEarly(c, len(*forwarded)); refused {
		return result, nil
	}
	pr.store.counters.forwarded.Add(1)
	answer, err := pr.store.endpoint.callPeer(ctx, address, askPropose, *forwarded)
	if errors.Is(err, errNotSent) {
		return log.Result{}, fmt.Errorf("%w: %w", errNotLeader, err)
	}
	if err != nil {
		return log.Result{}, err
	}
	result, err := log.DecodeResult(answer)
	if err != nil {
		return log.Result{}, fmt.Errorf("%w: answer of %s: %w", ErrUnknown, address, err)
	}
	return toldOf(*result), nil
}

// proposeLocal takes c through this server's queue. errNotLeader, ErrOverloaded
// and ErrClock mean that nothing was written.
func (pr *proposer) proposeLocal(ctx context.Context, c *log.Change) (log.Result, error) {
	done := make(chan admission.Outcome, 1)
	if err := pr.enqueue(c, func(o admission.Outcome) { done <- o }); err != nil {
		return log.Result{}, err
	}
	select {
	case o := <-done:
		return o.Result, o.Err
	case <-ctx.Done():
		return log.Result{}, fmt.Errorf("%w: %w", ErrUnknown, ctx.Err())
	}
}

// enqueue stamps c and puts it into the leader's queue; done is told of its
// fate, unless there is an error: then nothing was written.
func (pr *proposer) enqueue(c *log.Change, done func(admission.Outcome)) error {
	if !pr.store.lead.leading() {
		return errNotLeader
	}
	if pr.store.persister.Behind() {
		pr.store.counters.overloaded.Add(1)
		return fmt.Errorf("%w: changes.db is too far behind, its disk is slow", ErrOverloaded)
	}
	if err := pr.store.disks.roomFor(c); err != nil {
		return err
	}
	err := pr.queueUp(c, done)
	if errors.Is(err, ErrOverloaded) {
		pr.store.counters.overloaded.Add(1)
	}
	return err
}

func (pr *proposer) queueUp(c *log.Change, done func(admission.Outcome)) error {
	if to, forced, ok := pr.store.times.mend(c); ok && c.By.Role == log.RoleTrusted { // others are refused as with any change
		return pr.store.times.enqueueMend(c, to, forced, done)
	}
	p, err := pr.stamped(c)
	if err != nil {
		return err
	}
	if result, refused := pr.refuseEarly(c, len(p.Bytes)); refused {
		done(admission.Outcome{Result: result})
		return nil
	}
	if err := pr.budgets.Spend(c.By.Role, p.Author, len(c.Ops), len(p.Bytes)); err != nil {
		return fmt.Errorf("%w: %w", ErrOverloaded, err)
	}
	p.Done = done
	if err := pr.queue.Put(p); err != nil {
		pr.budgets.GiveBack(c.By.Role, p.Author, len(c.Ops), len(p.Bytes))
		return err
	}
	pr.store.counters.proposals.Add(1)
	return nil
}

// stamped returns c with the leader's time and seed, encoded so that every server
// can read it.
func (pr *proposer) stamped(c *log.Change) (p *admission.Proposal, err error) {
	p = &admission.Proposal{Stretch: pr.queue.StretchNow(), Author: admission.AuthorOf(c)}
	stamped := *c
	if stamped.Time, err = pr.store.times.clock.Stamp(); err != nil {
		return nil, err
	}
	stamped.Seed = seed()
	if p.Bytes, err = encodeStamped(&stamped); err != nil {
		return nil, err
	}
	p.Cost = len(p.Bytes) + admission.OpCost*len(c.Ops)
	return p, readable(p.Bytes)
}

// readable says whether every server can read an encoded change: what it cannot
// must not get into the log.
func readable(encoded []byte) error {
	dec := decoders.Get().(*log.ChangeDecoder)
	_, err := dec.Change(encoded)
	decoders.Put(dec)
	return err
}

// encodeStamped encodes a change, and stamps its content if nobody has done it: a
// retry may come by another server, and all have the leader's.
func encodeStamped(c *log.Change) (encoded []byte, err error) {
	enc := encoders.Get().(*log.Encoder)
	defer encoders.Put(enc)
	if c.Content.IsZero() {
		if c.Content, err = enc.Content(c); err != nil {
			return nil, err
		}
	}
	return enc.Change(c)
}

// seed returns a random number for what a change draws.
func seed() uint64 {
	var b [8]byte
	_, _ = crand.Read(b[:]) // never fails: crypto/rand
	return binary.BigEndian.Uint64(b[:])
}

// Budgets returns the meters of this server, which count what it did as the leader.
func (s *Store) Budgets() []*budget.Meter { return s.proposer.budgets.All }

// Enqueue submits a change on the leader without waiting for its fate: done is
// called once with what Propose would return, from a goroutine that tells all
// of a batch, so it must neither wait nor call the store. c may be used again
// when Enqueue returns.
//
// Unlike Propose it neither looks for a leader nor tries again. Errors, after
// which done is not called and nothing was written: ErrNoLeader (this server
// does not lead: use Propose), ErrOverloaded, ErrNoRoom, ErrClock, log.ErrTooLarge. Those
// that done gets: ErrNoLeader (not written) and ErrUnknown.
func (s *Store) Enqueue(c *log.Change, done func(log.Result, error)) error {
	err := s.proposer.enqueue(c, func(o admission.Outcome) { done(o.Result, asNoLeader(o.Err)) })
	return asNoLeader(err)
}

// asNoLeader shows errNotLeader as those outside know it.
func asNoLeader(err error) error {
	if errors.Is(err, errNotLeader) && !errors.Is(err, ErrUnknown) {
		return fmt.Errorf("%w: %w", ErrNoLeader, err)
	}
	return err
}
