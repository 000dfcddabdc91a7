package raftstore

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// transport is raft's, whose pipelines can be closed from outside. In raft
// 1.7.3 a leader that learns of a higher term stops reading a pipeline's answers
// (pipelineDecode), while another goroutine may wait there to send
// (netPipeline.AppendEntries): nobody closes the pipeline then, and
// Raft.Shutdown waits for that goroutine for ever.
type transport struct {
	*raft.NetworkTransport

	mu   sync.Mutex
	open map[*pipeline]struct{}
}

// pipeline is one that its transport knows of.
type pipeline struct {
	raft.AppendPipeline
	transport *transport
}

// AppendEntriesPipeline implements raft.Transport.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := &pipeline{inner, t}
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
