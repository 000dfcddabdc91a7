package pipelines

import (
	"errors"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// stuck is a pipeline in which a sender waits until it is closed.
type stuck struct {
	raft.AppendPipeline
	answers chan raft.AppendFuture
	closed  chan struct{}
	close   sync.Once
	waits   chan struct{} // if not nil, has one when a sender waits
}

func (s *stuck) Consumer() <-chan raft.AppendFuture { return s.answers }

func (s *stuck) AppendEntries(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	select {
	case s.waits <- struct{}{}:
	default:
	}
	<-s.closed
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (s *stuck) Close() error {
	s.close.Do(func() { close(s.closed) })
	return nil
}

// answered is the future of a request that was answered.
type answered struct {
	raft.AppendFuture
	success bool
}

func (answered) Error() error { return nil }

func (a answered) Response() *raft.AppendEntriesResponse {
	return &raft.AppendEntriesResponse{Success: a.success}
}

// Once a follower has refused a request raft reads no answer any more. A sender that
// waits in the pipeline then is freed, so that raft makes another one; until then it
// is not, and raft gets every answer.
func TestRefusedPipelineEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &stuck{answers: make(chan raft.AppendFuture), closed: make(chan struct{})}
		tr := &Set{open: make(map[*pipeline]struct{})}
		p := tr.start(inner)
		ended := make(chan error, 1)
		go func() {
			_, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: 1}, nil)
			ended <- err
		}()
		for _, success := range []bool{true, true, false} {
			inner.answers <- answered{success: success}
			if a := <-p.Consumer(); a.Response().Success != success {
				t.Errorf("raft got %v, want %v", a.Response().Success, success)
			}
			synctest.Wait()
			if got := len(ended) == 1; got == success {
				t.Errorf("after an answer with success %v: the sender was freed: %v", success, got)
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A sender that waits in a pipeline that is no longer read is freed.
func TestPipelinesAreClosed(t *testing.T) {
	t.Parallel()
	tr := &Set{open: make(map[*pipeline]struct{})}
	p := tr.start(&stuck{closed: make(chan struct{})}) // its answers are nil: there are none
	tr.open[p] = struct{}{}
	ended := make(chan error, 1)
	go func() {
		_, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: 1}, nil)
		ended <- err
	}()
	tr.Close()
	if err := <-ended; !errors.Is(err, raft.ErrPipelineReplicationNotSupported) {
		t.Error(err)
	}
	tr.Close() // none is left to be closed twice
	if len(tr.open) != 0 {
		t.Errorf("%d pipelines are left", len(tr.open))
	}
}

// scribe is a pipeline that keeps what is sent.
type scribe struct {
	raft.AppendPipeline
	mu   sync.Mutex
	sent []raft.AppendEntriesRequest
}

func (w *scribe) AppendEntries(r *raft.AppendEntriesRequest, _ *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, *r)
	return nil, nil
}

func (w *scribe) Close() error { return nil }

func (w *scribe) Consumer() <-chan raft.AppendFuture { return nil }

// take returns what was sent since the last call.
func (w *scribe) take() []raft.AppendEntriesRequest {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := w.sent
	w.sent = nil
	return sent
}

// What says nothing new is not sent, but for once in a while; whatever is new is:
// entries, a commit index, a term.
func TestPipelinesSayNothingTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := new(scribe)
		p := new(Set).start(inner)
		defer p.Close()
		entries := []*raft.Log{{Index: 8, Term: 1}}
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
			{request: raft.AppendEntriesRequest{Term: 1, LeaderCommitIndex: 8}, pause: Quiet - 1},
			{request: raft.AppendEntriesRequest{Term: 1, LeaderCommitIndex: 8}, pause: 1, sent: true},
			{request: raft.AppendEntriesRequest{Term: 1, LeaderCommitIndex: 8}},
			{request: raft.AppendEntriesRequest{Term: 2, LeaderCommitIndex: 8}, sent: true},
			{request: raft.AppendEntriesRequest{Term: 2, LeaderCommitIndex: 8, Entries: entries}, sent: true},
			{request: raft.AppendEntriesRequest{Term: 2, LeaderCommitIndex: 8, Entries: entries}, sent: true},
		} {
			time.Sleep(step.pause)
			if _, err := p.AppendEntries(&step.request, nil); err != nil {
				t.Fatal(err)
			}
			if sent := len(inner.take()) > 0; sent != step.sent {
				t.Errorf("step %d: sent is %v, want %v", i, sent, step.sent)
			}
		}
	})
}

// A commit is told at once, as a request that raft could have sent; and not if it
// is of another term than the pipeline's, or of an entry that was not sent on it:
// what the follower has there might be another leader's.
func TestPipelinesTellCommits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := new(scribe)
		tr := &Set{open: make(map[*pipeline]struct{})}
		p := tr.start(inner)
		tr.open[p] = struct{}{}
		defer p.Close()
		tr.Committed(9, 3) // before anything was sent
		if sent := inner.take(); len(sent) != 0 {
			t.Errorf("told on a pipeline that was not used: %+v", sent)
		}
		request := &raft.AppendEntriesRequest{
			Term: 3, PrevLogEntry: 9, PrevLogTerm: 2, LeaderCommitIndex: 9, RPCHeader: raft.RPCHeader{Addr: []byte("s1")},
			Entries: []*raft.Log{{Index: 10, Term: 3}, {Index: 11, Term: 3}},
		}
		if _, err := p.AppendEntries(request, nil); err != nil {
			t.Fatal(err)
		}
		inner.take()
		for _, c := range []struct {
			committed
			told bool
		}{
			{committed{10, 2}, false}, // of an older term: a later leader may have committed another
			{committed{10, 4}, false},
			{committed{12, 3}, false}, // not sent yet
			{committed{10, 3}, true},
			{committed{10, 3}, false}, // again
			{committed{11, 3}, true},
			{committed{10, 3}, false}, // back
		} {
			tr.Committed(c.index, c.term)
			sent := inner.take()
			if told := len(sent) == 1; told != c.told || len(sent) > 1 {
				t.Errorf("commit of %+v: sent %+v, want it to be told: %v", c.committed, sent, c.told)
				continue
			}
			want := raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 11, PrevLogTerm: 3, LeaderCommitIndex: c.index, RPCHeader: raft.RPCHeader{Addr: []byte("s1")}}
			if c.told && !reflect.DeepEqual(sent[0], want) {
				t.Errorf("got %+v, want %+v", sent[0], want)
			}
		}
		// Raft's own request with what was told already is not sent.
		if _, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 11, PrevLogTerm: 3, LeaderCommitIndex: 11}, nil); err != nil || len(inner.take()) != 0 {
			t.Errorf("what was told is sent again, %v", err)
		}
	})
}

// Raft's own requests tell a follower no commit beyond the bound: the leader's own disk
// may not have it yet.
func TestPipelinesBoundCommits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := new(scribe)
		p := (&Set{Bound: func(commit uint64) uint64 { return min(commit, 5) }}).start(inner)
		defer p.Close()
		for _, commit := range []uint64{4, 5, 9} {
			request := &raft.AppendEntriesRequest{Term: 1, LeaderCommitIndex: commit, Entries: []*raft.Log{{Index: 10, Term: 1}}}
			if _, err := p.AppendEntries(request, nil); err != nil {
				t.Fatal(err)
			}
			if sent := inner.take(); len(sent) != 1 || sent[0].LeaderCommitIndex != min(commit, 5) {
				t.Errorf("a commit of %d, of which 5 may be told: sent %+v", commit, sent)
			}
		}
	})
}

// sticking is a transport whose pipelines are stuck.
type sticking struct {
	*raft.InmemTransport
	set  *Set
	open chan *stuck
}

func (s sticking) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	p := &stuck{closed: make(chan struct{}), waits: make(chan struct{}, 1)}
	s.open <- p
	return s.set.Open(p), nil
}

// A leader that waits in a pipeline ends: raft does not close it, and waits for its sender.
func TestShutdownOfAStuckPipeline(t *testing.T) {
	t.Parallel()
	set, open := new(Set), make(chan *stuck, 1)
	leads, leader := raft.NewInmemTransport("leader")
	follows, follower := raft.NewInmemTransport("follower")
	follower.Connect(leads, leader)
	leader.Connect(follows, follower)
	servers := raft.Configuration{Servers: []raft.Server{{ID: "leader", Address: leads}, {ID: "follower", Address: follows, Suffrage: raft.Nonvoter}}}
	start := func(id raft.ServerID, own raft.Transport) *raft.Raft {
		cfg := raft.DefaultConfig()
		cfg.LocalID, cfg.Logger, cfg.CommitTimeout = id, hclog.NewNullLogger(), time.Millisecond
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
		store, snapshots := raft.NewInmemStore(), raft.NewDiscardSnapshotStore()
		if err := raft.BootstrapCluster(cfg, store, store, snapshots, own, servers); err != nil {
			t.Fatal(err)
		}
		r, err := raft.NewRaft(cfg, new(raft.MockFSM), store, store, snapshots, own)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	other := start("follower", follower)
	r := start("leader", sticking{leader, set, open})
	p := <-open
	<-p.waits
	ended := make(chan error, 1)
	go func() { ended <- set.Shutdown(r) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("raft has not ended")
		set.Close()
		<-ended
	}
	if err := other.Shutdown().Error(); err != nil {
		t.Error(err)
	}
}

// patience is how long a test waits for what must come.
const patience = 10 * time.Second
