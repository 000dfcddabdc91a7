package raftstore

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
)

// stuck is a pipeline in which a sender waits until it is closed.
type stuck struct {
	raft.AppendPipeline
	closed chan struct{}
}

func (s *stuck) AppendEntries(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	<-s.closed
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (s *stuck) Close() error {
	close(s.closed)
	return nil
}

// A sender that waits in a pipeline which nobody reads any more is freed.
func TestPipelinesAreClosed(t *testing.T) {
	t.Parallel()
	tr := &transport{open: make(map[*pipeline]struct{})}
	p := &pipeline{&stuck{closed: make(chan struct{})}, tr}
	tr.open[p] = struct{}{}
	ended := make(chan error, 1)
	go func() {
		_, err := p.AppendEntries(nil, nil)
		ended <- err
	}()
	tr.closePipelines()
	if err := <-ended; !errors.Is(err, raft.ErrPipelineReplicationNotSupported) {
		t.Error(err)
	}
	tr.closePipelines() // none is left to be closed twice
	if len(tr.open) != 0 {
		t.Errorf("%d pipelines are left", len(tr.open))
	}
}
