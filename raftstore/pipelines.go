package raftstore

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// transport is raft's, whose heartbeats change no term (terms), and whose pipelines
// tell commits at once, and end when they are refused. In raft 1.7.3 a leader that
// learns of a higher term, or whose entries a follower does not take, stops reading a
// pipeline's answers (pipelineDecode), while another goroutine may wait there to send
// (netPipeline.AppendEntries): nobody closes the pipeline then, that follower gets
// nothing more as long as this server leads, and Raft.Shutdown waits for that
// goroutine for ever.
type transport struct {
	*raft.NetworkTransport
	early   leadersDisk // bounds the commit that followers are told of
	terms   *terms
	running func() *raft.Raft // nil before it runs
	unfit   func() error      // why this server should not lead; nil if it may

	mu   sync.Mutex
	open map[*pipeline]struct{}
}

// leadersDisk is how far this server's own disk is with raft's log.
type leadersDisk interface {
	// Await returns when the entries up to an index are on disk.
	Await(index uint64) error
	// Bound returns the part of a commit index that is.
	Bound(commit uint64) uint64
}

// pipelineQuiet is how often a pipeline on which there is nothing new is used all
// the same, so that a connection that broke is noticed. Heartbeats are apart.
const pipelineQuiet = 50 * time.Millisecond

// pipeline is one that its transport knows of. It says what is committed at once,
// and nothing twice.
//
// Raft uses a pipeline when there are entries, and once in each CommitTimeout,
// which is how followers learn what is committed (raft 1.7.3, pipelineReplicate).
// They serve feeds, so it would have to be short, and then most of what an idle
// server does is to say again what was said. Here a request without entries that
// says what the one before it said, and so does nothing there, is not sent; and a
// commit is told by a request of our own, which is one that raft could have sent.
type pipeline struct {
	raft.AppendPipeline
	transport *transport
	answers   chan raft.AppendFuture
	commits   chan struct{} // has one when known has changed
	closed    chan struct{}
	ended     chan struct{} // of tell
	relayed   chan struct{} // of relay
	close     sync.Once

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
	p.transport.bound(args)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if len(args.Entries) == 0 && args.Term == p.last.Term && args.LeaderCommitIndex <= p.last.LeaderCommitIndex && now.Sub(p.sent) < pipelineQuiet {
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

// committed is told of an entry that is applied here now.
func (t *transport) committed(index, term uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.open {
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

// telling is the store's fsm, of whose entries the followers are told. It gets
// them when they are on this server's disk.
type telling struct {
	fsm
	transport *transport
	early     leadersDisk
}

// ApplyBatch implements raft.BatchingFSM.
func (t telling) ApplyBatch(entries []*raft.Log) []any {
	n := len(entries)
	if n == 0 {
		return nil
	}
	if t.early.Await(entries[n-1].Index) == nil { // else the store has failed
		t.transport.committed(entries[n-1].Index, entries[n-1].Term)
	}
	return t.fsm.ApplyBatch(entries)
}

// bound takes out of a request what is not yet to be told as committed.
func (t *transport) bound(args *raft.AppendEntriesRequest) {
	if args.LeaderCommitIndex > 0 && t.early != nil {
		args.LeaderCommitIndex = t.early.Bound(args.LeaderCommitIndex)
	}
}

// AppendEntries implements raft.Transport.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	t.bound(args)
	return t.NetworkTransport.AppendEntries(id, target, args, resp)
}

// AppendEntriesPipeline implements raft.Transport.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := t.tellOn(inner)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[*pipeline]struct{})
	}
	t.open[p] = struct{}{}
	return p, nil
}

// tellOn starts what goes on beside a pipeline; Close ends it.
func (t *transport) tellOn(inner raft.AppendPipeline) *pipeline {
	p := &pipeline{
		AppendPipeline: inner, transport: t, answers: make(chan raft.AppendFuture),
		commits: make(chan struct{}, 1), closed: make(chan struct{}), ended: make(chan struct{}), relayed: make(chan struct{}),
	}
	go p.tell()
	go p.relay()
	return p
}

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.transport.mu.Lock()
	delete(p.transport.open, p)
	p.transport.mu.Unlock()
	err := p.AppendPipeline.Close() // frees who waits in it
	p.close.Do(func() { close(p.closed) })
	<-p.ended
	<-p.relayed
	return err
}

// closePipelines frees whoever waits in one; raft makes new ones if it leads.
func (t *transport) closePipelines() {
	t.mu.Lock()
	var all []*pipeline
	for p := range t.open {
		all = append(all, p)
	}
	t.mu.Unlock()
	for _, p := range all {
		_ = p.Close() // it only says that it was closed
	}
}

// pipelinePause is the time between two looks for pipelines that hold up the end.
const pipelinePause = 20 * time.Millisecond

// endRaft stops raft, and sees to it that no pipeline holds it up.
func (t *transport) endRaft(r *raft.Raft) error {
	ended := make(chan error, 1)
	go func() { ended <- r.Shutdown().Error() }()
	look := time.NewTicker(pipelinePause)
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-look.C:
			t.closePipelines()
		}
	}
}
