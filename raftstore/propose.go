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
	// retryPause is how long Propose waits for a new leader before it checks again.
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

// proposer takes changes on the leader, and forwards them on other servers.
type proposer struct {
	store    *Store
	queue    *admission.Queue
	inFlight admission.InFlight
	budgets  *admission.Budgets
}

// runProposer sends batches to raft until ctx is done. When it returns, raft has no batch
// of it any more.
func (pr *proposer) runProposer(ctx context.Context, r *raft.Raft) {
	batches := make(chan flight, admission.MaxInFlight)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for f := range batches {
			pr.await(f)
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
			pr.inFlight.Add(batch)
			batches <- flight{r.Apply(batchEntry(batch), enqueueTimeout), batch}
		}
	}
	pr.queue.Close(errNotLeader)
	close(batches)
	select {
	case <-answered:
	case <-time.After(drainWait(&pr.store.cfg)):
		pr.store.logger.Warn("changes in flight were not answered before the end")
	}
}

// batchEntry returns the raft entry of a batch, in one allocation.
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
	if 1+len(changes) > cap(entry) { // AppendBatch moved it
		return append(entry, changes...)
	}
	return entry[:1+len(changes)]
}

// drainWait is longer than raft takes to answer the batches in flight, or to lose the
// leadership and report that.
func drainWait(cfg *Config) time.Duration { return enqueueTimeout + 2*cfg.LeaderLease + time.Second }

// await waits for a batch and answers its proposers.
func (pr *proposer) await(f flight) {
	err := f.future.Error()
	pr.inFlight.Remove(f.batch)
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
			p.Finish(admission.Outcome{Err: notWritten(err)})
			continue
		}
		p.Finish(admission.Outcome{Result: boundedResult(results[i])})
	}
	// Writers that write again at once get a chance to be in the next batch. Without
	// this, 64 writers fall into two halves that alternate.
	runtime.Gosched()
	pr.queue.BatchDone()
}

// notWritten parts the three errors of raft after which nothing was written from all
// others, after which the fate of the change is unknown (SAFETY P3).
func notWritten(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w (%w)", errNotLeader, err)
	case errors.Is(err, ErrNoRoom):
		return fmt.Errorf("%w: %v", ErrUnknown, err) // the error does not prove that nothing was written
	default:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
}

// Propose submits a change on any server and returns its result, once that is on a
// quorum's disks. A refused change has Result.Refusal, and no error. Propose tries again,
// with the same id, when the leader changes, until ctx or Config.ProposeTimeout ends. The
// change is applied at most once.
//
// Errors: ErrUnknown means that the change may have been written. Any other error
// (ErrNoLeader, ErrOverloaded, ErrNoRoom, ErrClock, ErrStopped or log.ErrTooLarge) means
// that it was not. ctx's error is wrapped if it was the cause. Propose only reads the
// change.
func (s *Store) Propose(ctx context.Context, c *log.Change) (log.Result, error) {
	if refusal := s.tooEarly(c); refusal != nil {
		return log.Result{ChangeID: c.ID, Refusal: refusal}, nil
	}
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
			return log.Result{}, fmt.Errorf("%w; then: %v", unknown, err) // an earlier attempt may have been written
		} else if !errors.Is(err, errNotLeader) {
			return log.Result{}, stillUnknown(unknown, err)
		}
		if noRoom := s.NoRoom(); noRoom != nil && unknown == nil && s.lead.leaderAddress() == "" {
			return log.Result{}, noRoom // this may be why there is no leader
		}
		if ended := s.pause(ctx, moved); errors.Is(ended, ErrStopped) {
			return log.Result{}, errors.Join(unknown, ended)
		} else if ended != nil {
			return log.Result{}, fmt.Errorf("%w: %w", cmp.Or(unknown, ErrNoLeader), ended)
		}
	}
}

// stillUnknown returns the error of the last attempt, unless an earlier attempt may have
// been written. Then the earlier error counts, because the advice of the later one, such
// as to send less or with another id, would be wrong.
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

// proposeOnce makes one attempt with the leader that is known now. forwarded keeps the
// encoded change between attempts.
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
	return boundedResult(*result), nil
}

// proposeLocal proposes c through this server's queue. errNotLeader, ErrOverloaded and
// ErrClock mean that nothing was written.
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

// enqueue stamps c and puts it into the leader's queue. done gets its outcome. After an
// error nothing was written, and done is not called.
func (pr *proposer) enqueue(c *log.Change, done func(admission.Outcome)) error {
	if !pr.store.lead.leading() {
		return errNotLeader
	}
	if pr.store.persister.Behind() {
		pr.store.counters.overloaded.Add(1)
		return fmt.Errorf("%w: changes.db is too far behind, its disk is slow", ErrOverloaded)
	}
	if err := pr.store.disks.spaceFor(c); err != nil {
		return err
	}
	err := pr.queueUp(c, done)
	if errors.Is(err, ErrOverloaded) {
		pr.store.counters.overloaded.Add(1)
	}
	return err
}

func (pr *proposer) queueUp(c *log.Change, done func(admission.Outcome)) error {
	if to, forced, ok := pr.store.times.mend(c); ok && c.By.Role == log.RoleTrusted { // other roles are refused as with any change
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

// stamped returns c with the leader's time and seed, encoded, after it checked that every
// server can read it.
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

// readable returns an error unless every server can read an encoded change. An unreadable
// change must not get into the log.
func readable(encoded []byte) error {
	dec := decoders.Get().(*log.ChangeDecoder)
	_, err := dec.Change(encoded)
	decoders.Put(dec)
	return err
}

// encodeStamped encodes a change, and adds the hash of its content if it has none. The
// leader adds it, so that a retry through another server has the same hash.
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

// seed returns a random number, from which a change draws its random values.
func seed() uint64 {
	var b [8]byte
	_, _ = crand.Read(b[:]) // never fails: crypto/rand
	return binary.BigEndian.Uint64(b[:])
}

// Budgets returns the meters of this server. They count only what it does as the leader.
func (s *Store) Budgets() []*budget.Meter { return s.proposer.budgets.All }

// Enqueue submits a change on the leader without waiting for its result. done is called
// once with what Propose would return. One goroutine calls done for all changes of a
// batch, so done must neither wait nor call the store. The caller may use c again when
// Enqueue returns.
//
// Unlike Propose, Enqueue neither looks for a leader nor tries again. After one of its
// errors, done is not called and nothing was written: ErrNoLeader (this server does not
// lead: use Propose), ErrOverloaded, ErrNoRoom, ErrClock, log.ErrTooLarge. done gets
// these errors: ErrNoLeader (not written) and ErrUnknown.
func (s *Store) Enqueue(c *log.Change, done func(log.Result, error)) error {
	err := s.proposer.enqueue(c, func(o admission.Outcome) { done(o.Result, asNoLeader(o.Err)) })
	return asNoLeader(err)
}

// asNoLeader turns errNotLeader into ErrNoLeader, which callers of this package know.
func asNoLeader(err error) error {
	if errors.Is(err, errNotLeader) && !errors.Is(err, ErrUnknown) {
		return fmt.Errorf("%w: %w", ErrNoLeader, err)
	}
	return err
}
