// Package pipelines is between raft and its pipelines, in which a leader sends entries
// to a follower without waiting for each answer. There are two pieces.
//
// # Refused pipelines end (relay, Set.Close, Set.Shutdown)
//
// Upstream: in hashicorp/raft 1.7.3 a leader that learns of a higher term, or whose
// entries a follower does not take, stops reading a pipeline's answers
// (pipelineDecode), while another goroutine may wait there to send
// (netPipeline.AppendEntries). The pipeline is then closed by no one, that follower gets
// nothing more as long as this server leads, and Raft.Shutdown waits for that
// goroutine for ever. Issues 612 and 611 (open) have the symptom; the cause was found here.
//
// Tests that fail without it: TestRefusedPipelineEnds, TestPipelinesAreClosed.
//
// To be taken out when raft closes a pipeline whose answers it does not read any more.
//
// # Commits are told at once, and nothing twice (AppendEntries, tell)
//
// Raft uses a pipeline when there are entries, and once in each CommitTimeout, which is
// how followers learn what is committed (raft 1.7.3, pipelineReplicate). They serve
// feeds, so it would have to be short, and then most of what an idle server does is to
// say again what was said. Here a request without entries that says what the one before
// it said, and so does nothing there, is not sent; and a commit is told by a request of
// our own, which is one that raft could have sent. Upstream it is as designed: hashicorp/raft
// issues 28 and 282.
//
// Tests that fail without it: TestPipelinesSayNothingTwice, TestPipelinesTellCommits.
//
// To be taken out when raft tells followers of a commit when it happens.
package pipelines

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Set are the pipelines that are open. The zero value is ready. Its methods may be
// called from any goroutine.
type Set struct {
	// Bound returns the part of a commit index that followers may be told of; nil: all.
	// It is set before the first pipeline is opened.
	Bound func(commit uint64) uint64

	mu   sync.Mutex
	open map[*pipeline]struct{}
}

// Quiet is how often a pipeline on which there is nothing new is used all
// the same, so that a connection that broke is noticed. Heartbeats are apart.
const Quiet = 50 * time.Millisecond

// pipeline is one that its set knows of. It says what is committed at once,
// and nothing twice.
type pipeline struct {
	raft.AppendPipeline
	set     *Set
	answers chan raft.AppendFuture
	commits chan struct{} // has one when known has changed
	closed  chan struct{}
	ended   chan struct{} // of tell
	relayed chan struct{} // of relay
	close   sync.Once

	knowing sync.Mutex // protects known; taken after mu
	known   committed

	mu   sync.Mutex                // protects what follows, and the order of requests
	last raft.AppendEntriesRequest // without entries: they are Prev of the next one
	sent time.Time
}

// committed is an entry of which this server knows that it is committed.
type committed struct{ index, term uint64 }

// AppendEntries implements raft.AppendPipeline. The future of what is not sent is
// nil, and no answer to it comes: raft looks at the answers only.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.set.Bound != nil {
		args.LeaderCommitIndex = p.set.Bound(args.LeaderCommitIndex)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if len(args.Entries) == 0 && args.Term == p.last.Term && args.LeaderCommitIndex <= p.last.LeaderCommitIndex && now.Sub(p.sent) < Quiet {
		return nil, nil
	}
	told := p.last
	p.last, p.sent = *args, now
	if told.Term == args.Term {
		p.last.LeaderCommitIndex = max(args.LeaderCommitIndex, told.LeaderCommitIndex)
	}
	if n := len(args.Entries); n > 0 {
		p.last.Entries, p.last.PrevLogEntry, p.last.PrevLogTerm = nil, args.Entries[n-1].Index, args.Entries[n-1].Term
	}
	return p.AppendPipeline.AppendEntries(args, resp)
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// relay hands the answers on to raft, and ends the pipeline behind the first that is
// a refusal: raft reads none after it.
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
				_ = p.AppendPipeline.Close() // frees who waits in it; raft makes another one
				return
			}
		case <-p.closed:
			return
		}
	}
}

// tell tells the follower what is committed, until the pipeline is closed.
func (p *pipeline) tell() {
	defer close(p.ended)
	for {
		select {
		case <-p.commits:
			if !p.tellOnce() {
				return
			}
		case <-p.closed:
			return
		}
	}
}

// tellOnce sends the commit if the follower has the entry from this leader in
// this term, and it is of this term: then what the follower has up to it is what
// this server had, whoever leads by now. (An older entry may be committed by a
// later leader, in whose log another stands where this one's was.)
func (p *pipeline) tellOnce() (open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.knowing.Lock()
	c := p.known
	p.knowing.Unlock()
	if c.term != p.last.Term || c.index > p.last.PrevLogEntry || c.index <= p.last.LeaderCommitIndex {
		return true
	}
	p.last.LeaderCommitIndex, p.sent = c.index, time.Now()
	request := p.last
	_, err := p.AppendPipeline.AppendEntries(&request, new(raft.AppendEntriesResponse))
	return err == nil // else raft finds out too
}

// Committed is told of an entry that is applied here now, and tells the followers.
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

// Open puts a pipeline of raft's into the set, and returns the one that raft gets
// instead. Its Close takes it out.
func (s *Set) Open(inner raft.AppendPipeline) raft.AppendPipeline {
	p := s.tellOn(inner)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*pipeline]struct{})
	}
	s.open[p] = struct{}{}
	return p
}

// tellOn starts what goes on beside a pipeline; Close ends it.
func (s *Set) tellOn(inner raft.AppendPipeline) *pipeline {
	p := &pipeline{
		AppendPipeline: inner, set: s, answers: make(chan raft.AppendFuture),
		commits: make(chan struct{}, 1), closed: make(chan struct{}), ended: make(chan struct{}), relayed: make(chan struct{}),
	}
	go p.tell()
	go p.relay()
	return p
}

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.set.mu.Lock()
	delete(p.set.open, p)
	p.set.mu.Unlock()
	err := p.AppendPipeline.Close() // frees who waits in it
	p.close.Do(func() { close(p.closed) })
	<-p.ended
	<-p.relayed
	return err
}

// Close frees those who wait in one; raft makes new ones if it leads.
func (s *Set) Close() {
	s.mu.Lock()
	var all []*pipeline
	for p := range s.open {
		all = append(all, p)
	}
	s.mu.Unlock()
	for _, p := range all {
		_ = p.Close() // it only says that it was closed
	}
}

// pipelinePause is the time between two looks for pipelines that hold up the end.
const pipelinePause = 20 * time.Millisecond

// Shutdown stops raft, and sees to it that no pipeline holds it up.
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
