package raftstore

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// transport is raft's, whose pipelines say nothing twice, and can be closed from
// outside. In raft
// 1.7.3 a leader that learns of a higher term stops reading a pipeline's answers
// (pipelineDecode), while another goroutine may wait there to send
// (netPipeline.AppendEntries): nobody closes the pipeline then, and
// Raft.Shutdown waits for that goroutine for ever.
type transport struct {
	*raft.NetworkTransport

	mu   sync.Mutex
	open map[*pipeline]struct{}
}

// pipelineQuiet is how often a pipeline on which there is nothing new is used all
// the same, so that a connection that broke is noticed. Heartbeats are apart.
const pipelineQuiet = 50 * time.Millisecond

// pipeline is one that its transport knows of. Raft uses it once in each
// CommitTimeout, whether there is anything to say or not: that is how followers
// learn what is committed (raft 1.7.3, pipelineReplicate). A request without
// entries that says what the one before it said does nothing there, and is not
// sent: with a CommitTimeout of 3 ms they were most of what an idle server did.
type pipeline struct {
	raft.AppendPipeline
	transport *transport

	// Of the last request; touched only by the goroutine that sends.
	term, commit uint64
	sent         time.Time
}

// AppendEntries implements raft.AppendPipeline. The future of what is not sent is
// nil, and no answer to it comes: raft looks at the answers only.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	now := time.Now()
	if len(args.Entries) == 0 && args.Term == p.term && args.LeaderCommitIndex == p.commit && now.Sub(p.sent) < pipelineQuiet {
		return nil, nil
	}
	p.term, p.commit, p.sent = args.Term, args.LeaderCommitIndex, now
	return p.AppendPipeline.AppendEntries(args, resp)
}

// AppendEntriesPipeline implements raft.Transport.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := &pipeline{AppendPipeline: inner, transport: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = make(map[*pipeline]struct{})
	}
	t.open[p] = struct{}{}
	return p, nil
}

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.transport.mu.Lock()
	delete(p.transport.open, p)
	p.transport.mu.Unlock()
	return p.AppendPipeline.Close()
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
