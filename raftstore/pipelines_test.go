package raftstore

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

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
	p := &pipeline{AppendPipeline: &stuck{closed: make(chan struct{})}, transport: tr}
	tr.open[p] = struct{}{}
	ended := make(chan error, 1)
	go func() {
		_, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: 1}, nil)
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

// counted is a pipeline that counts what is sent.
type counted struct {
	raft.AppendPipeline
	sent int
}

func (c *counted) AppendEntries(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	c.sent++
	return nil, nil
}

// What says nothing new is not sent, but for once in a while; whatever is new is:
// entries, a commit index, a term.
func TestPipelinesSayNothingTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := new(counted)
		p := &pipeline{AppendPipeline: inner}
		entries := []*raft.Log{{Index: 8}}
		for i, step := range []struct {
			request raft.AppendEntriesRequest
			pause   time.Duration
			sent    bool
		}{
			{request: raft.AppendEntriesRequest{Term: 1, LeaderCommitIndex: 7}, sent: true}, // the first
			{request: raft.AppendEntriesRequest{Term: 1, LeaderCommitIndex: 7}},
			{request: raft.AppendEntriesRequest{Term: 1, LeaderCommitIndex: 7, Entries: entries}, sent: true},
			{request: raft.AppendEntriesRequest{Term: 1, LeaderCommitIndex: 7}},
			{request: raft.AppendEntriesRequest{Term: 1, LeaderCommitIndex: 8}, sent: true},
			{request: raft.AppendEntriesRequest{Term: 1, LeaderCommitIndex: 8}, pause: pipelineQuiet - 1},
			{request: raft.AppendEntriesRequest{Term: 1, LeaderCommitIndex: 8}, pause: 1, sent: true},
			{request: raft.AppendEntriesRequest{Term: 1, LeaderCommitIndex: 8}},
			{request: raft.AppendEntriesRequest{Term: 2, LeaderCommitIndex: 8}, sent: true},
			{request: raft.AppendEntriesRequest{Term: 2, LeaderCommitIndex: 8, Entries: entries}, sent: true},
			{request: raft.AppendEntriesRequest{Term: 2, LeaderCommitIndex: 8, Entries: entries}, sent: true},
		} {
			time.Sleep(step.pause)
			before := inner.sent
			if _, err := p.AppendEntries(&step.request, nil); err != nil {
				t.Fatal(err)
			}
			if sent := inner.sent > before; sent != step.sent {
				t.Errorf("step %d: sent is %v, want %v", i, sent, step.sent)
			}
		}
	})
}
