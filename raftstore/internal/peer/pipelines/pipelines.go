// Package pipelines is a layer between raft and its pipelines, with which a leader sends
// entries to a follower without waiting for each answer. It has two pieces.
//
// # Refused pipelines end (relay, Set.Close, Set.Shutdown)
//
// Upstream: in hashicorp/raft 1.7.3 a leader that learns of a higher term, or whose
// entries a follower does not take, stops reading a pipeline's answers (pipelineDecode),
// while another goroutine may wait there to send (netPipeline.AppendEntries). Then the
// pipeline is never closed, that follower gets nothing more as long as this server leads,
// and Raft.Shutdown waits for that goroutine without end. Issues 612 and 611 (open) have
// the symptom; we found the cause.
//
// Tests that fail without it: TestRefusedPipelineEnds, TestPipelinesAreClosed.
//
// To be taken out when raft closes a pipeline whose answers it no longer reads.
//
// # Commits are sent at once, and nothing twice (AppendEntries, sendCommits)
//
// Raft uses a pipeline when there are entries, and once in each CommitTimeout. By the
// latter, followers learn what is committed (raft 1.7.3, pipelineReplicate). Our
// followers serve feeds, so CommitTimeout would have to be short, and an idle server
// would mostly send repeated requests. Here a request without entries that equals the
// previous one is not sent, because it has no effect. A commit is sent in a request of
// our own, which is one that raft could have sent. Upstream this is as designed:
// hashicorp/raft issues 28 and 282.
//
// Tests that fail without it: TestPipelinesSayNothingTwice, TestPipelinesTellCommits.
//
// To be taken out when raft sends a commit to followers when it happens.
package pipelines

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"rutter/raftstore/internal/notify"
)

// Set is the set of open pipelines. The zero value is ready. Its methods may be called
// from any goroutine.
type Set struct {
	// Bound returns the part of a commit index that may be sent to followers; nil means
	// all. It must be set before the first pipeline is opened.
	Bound func(commit uint64) uint64

	mu   sync.Mutex
	open map[*pipeline]struct{}
}

// Quiet is the time after which a pipeline without news is used all the same, so that a
// broken connection is noticed. Heartbeats use other connections.
const Quiet = 50 * time.Millisecond

// pipeline is a pipeline of a Set. It sends commits at once, and nothing twice.
type pipeline struct {
	raft.AppendPipeline
	set     *Set
	answers chan raft.AppendFuture
	commits chan struct{} // readable when known has changed
	closed  chan struct{}
	ended   chan struct{} // closed when sendCommits has ended
	relayed chan struct{} // closed when relay has ended
	close   sync.Once

	knowing sync.Mutex // protects known; taken after turn
	known   committed

	turn notify.Turn               // protects what follows, and the order of requests; its owner may wait for the follower
	last raft.AppendEntriesRequest // without its entries: the last of them is in Prev of the next request
	sent time.Time
}

// committed names an entry that this server knows to be committed.
type committed struct{ index, term uint64 }

// AppendEntries implements raft.AppendPipeline. For a request that is not sent, it
// returns a nil future, and there is no answer: raft reads only the answers.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.set.Bound != nil {
		args.LeaderCommitIndex = p.set.Bound(args.LeaderCommitIndex)
	}
	p.turn.Lock()
	defer p.turn.Unlock()
	now := time.Now()
	if len(args.Entries) == 0 && args.Term == p.last.Term && args.LeaderCommitIndex <= p.last.LeaderCommitIndex && now.Sub(p.sent) < Quiet {
		return nil, nil
	}
	previous := p.last
	p.last, p.sent = *args, now
	if previous.Term == args.Term {
		p.last.LeaderCommitIndex = max(args.LeaderCommitIndex, previous.LeaderCommitIndex)
	}
	if n := len(args.Entries); n > 0 {
		p.last.Entries, p.last.PrevLogEntry, p.last.PrevLogTerm = nil, args.Entries[n-1].Index, args.Entries[n-1].Term
	}
	return p.AppendPipeline.AppendEntries(args, resp)
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// relay passes the answers to raft, and ends the pipeline after the first refusal,
// because raft reads no answer after it.
func (p *pipeline) relay() {
	defer close(p.relayed)
	for {
		select {
		case f := <-p.AppendPipeline.Consumer():
			refused := f.Error() != nil || !f.Response().Success
			select {
			case p.answers <- f:
			case <-p.closed:
				return
			}
			if refused {
				_ = p.AppendPipeline.Close() // ends the waiting calls in it; raft makes another pipeline
				return
			}
		case <-p.closed:
			return
		}
	}
}

// sendCommits sends commits to the follower until the pipeline is closed.
func (p *pipeline) sendCommits() {
	defer close(p.ended)
	for {
		select {
		case <-p.commits:
			if !p.sendCommit() {
				return
			}
		case <-p.closed:
			return
		}
	}
}

// sendCommit sends the commit if the entry is of this term, and the follower has it from
// this leader in this term. Then the follower's log up to it equals this server's, also
// if another server leads by now. (An older entry is not safe: a later leader may have
// committed another entry at its index.)
func (p *pipeline) sendCommit() (open bool) {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.knowing.Lock()
	c := p.known
	p.knowing.Unlock()
	if c.term != p.last.Term || c.index > p.last.PrevLogEntry || c.index <= p.last.LeaderCommitIndex {
		return true
	}
	p.last.LeaderCommitIndex, p.sent = c.index, time.Now()
	request := p.last
	_, err := p.AppendPipeline.AppendEntries(&request, new(raft.AppendEntriesResponse))
	return err == nil // else raft notices too
}

// Committed sends to the followers that an entry, which this server now applies, is
// committed.
func (s *Set) Committed(index, term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.open {
		p.learn(committed{index, term})
	}
}

func (p *pipeline) learn(c committed) {
	p.knowing.Lock()
	p.known = c
	p.knowing.Unlock()
	select {
	case p.commits <- struct{}{}:
	default:
	}
}

// Open adds a pipeline of raft's transport to the set, and returns the one that raft must
// use. Its Close removes it.
func (s *Set) Open(inner raft.AppendPipeline) raft.AppendPipeline {
	p := s.start(inner)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*pipeline]struct{})
	}
	s.open[p] = struct{}{}
	return p
}

// start starts the goroutines of a pipeline; Close ends them.
func (s *Set) start(inner raft.AppendPipeline) *pipeline {
	p := &pipeline{
		AppendPipeline: inner, set: s, turn: notify.NewTurn(), answers: make(chan raft.AppendFuture),
		commits: make(chan struct{}, 1), closed: make(chan struct{}), ended: make(chan struct{}), relayed: make(chan struct{}),
	}
	go p.sendCommits()
	go p.relay()
	return p
}

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.set.mu.Lock()
	delete(p.set.open, p)
	p.set.mu.Unlock()
	err := p.AppendPipeline.Close() // ends the waiting calls in it
	p.close.Do(func() { close(p.closed) })
	<-p.ended
	<-p.relayed
	return err
}

// Close closes all pipelines and so ends the calls that wait in them. If raft leads, it
// makes new ones.
func (s *Set) Close() {
	s.mu.Lock()
	var all []*pipeline
	for p := range s.open {
		all = append(all, p)
	}
	s.mu.Unlock()
	for _, p := range all {
		_ = p.Close() // the error only says that it was closed
	}
}

// pipelinePause is the time between two attempts to close pipelines that delay raft's
// end.
const pipelinePause = 20 * time.Millisecond

// Shutdown stops raft, and closes pipelines that delay its end.
func (s *Set) Shutdown(r *raft.Raft) error {
	ended := make(chan error, 1)
	go func() { ended <- r.Shutdown().Error() }()
	look := time.NewTicker(pipelinePause)
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-look.C:
			s.Close()
		}
	}
}
