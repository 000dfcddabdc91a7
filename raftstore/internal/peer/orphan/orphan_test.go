package orphan

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = time.Minute

// follower is a server of raft that never stands by itself, with a Watch. The other two
// servers are the test.
type follower struct {
	t         *testing.T
	raft      *raft.Raft
	address   raft.ServerAddress
	transport *raft.InmemTransport // the other servers'
	connected chan string          // addresses that the Watch connects to
	ended     chan struct{}        // closed: the leader's connection broke
	looked    chan struct{}        // after each call of Watch.Moved
	move      chan chan struct{}   // has the channel that Watch.Moved returns
	accepts   atomic.Int32         // how often the leader's port still accepts
	fit       chan time.Time       // of each call of Watch.Unfit, after which a wait begins
	stood     chan struct{}
}

// newFollower starts the server id of the cluster s1, s2 and s3.
func newFollower(t *testing.T, id string) *follower {
	t.Helper()
	cfg := raft.DefaultConfig()
	cfg.LocalID, cfg.Logger = raft.ServerID(id), hclog.NewNullLogger()
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = time.Hour, time.Hour, time.Hour
	address, own := raft.NewInmemTransport(raft.ServerAddress(id))
	store, snapshots := raft.NewInmemStore(), raft.NewDiscardSnapshotStore()
	var servers []raft.Server
	for _, s := range []string{"s1", "s2", "s3"} {
		servers = append(servers, raft.Server{ID: raft.ServerID(s), Address: raft.ServerAddress(s)})
	}
	if err := raft.BootstrapCluster(cfg, store, store, snapshots, own, raft.Configuration{Servers: servers}); err != nil {
		t.Fatal(err)
	}
	r, err := raft.NewRaft(cfg, new(raft.MockFSM), store, store, snapshots, own)
	if err != nil {
		t.Fatal(err)
	}
	_, others := raft.NewInmemTransport("others")
	others.Connect(address, own)
	f := &follower{
		t: t, raft: r, address: address, transport: others,
		connected: make(chan string, 8), ended: make(chan struct{}), looked: make(chan struct{}, 64),
		move: make(chan chan struct{}, 1), fit: make(chan time.Time, 8), stood: make(chan struct{}, 8),
	}
	f.move <- make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.watch(id).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := r.Shutdown().Error(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *follower) watch(id string) *Watch {
	return &Watch{
		ID: id, Address: string(f.address), Wait: time.Second, Raft: f.raft, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Connected: func(_ context.Context, address string) (<-chan struct{}, error) {
			f.connected <- address
			return f.ended, nil
		},
		Dial: func(context.Context, string) (net.Conn, error) {
			if f.accepts.Add(-1) >= 0 {
				conn, other := net.Pipe()
				return conn, other.Close()
			}
			return nil, syscall.ECONNREFUSED
		},
		Moved: func() <-chan struct{} {
			c := <-f.move
			f.move <- c
			f.looked <- struct{}{}
			return c
		},
		Pause:    func(ctx context.Context, _ <-chan struct{}) error { return ctx.Err() },
		Stopping: func() bool { return false },
		Unfit:    func() error { f.fit <- time.Now(); return nil },
		Stand:    func() error { f.stood <- struct{}{}; return errors.New("the test stands for no election") },
	}
}

// moved says that the leader may have changed, and waits until the Watch has seen it.
func (f *follower) moved() {
	f.t.Helper()
	for len(f.looked) > 0 {
		<-f.looked
	}
	c := <-f.move
	f.move <- make(chan struct{})
	close(c)
	await(f.t, f.looked, "the watch did not look again")
}

// leads makes a server the follower's leader, which the Watch then connects to.
func (f *follower) leads(id string, term uint64) {
	f.t.Helper()
	request := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(id)}, Term: term,
	}
	if err := f.transport.AppendEntries("", f.address, request, new(raft.AppendEntriesResponse)); err != nil {
		f.t.Fatal(err)
	}
	f.moved()
	if got := await(f.t, f.connected, "the watch did not connect to the leader"); got != id {
		f.t.Fatalf("the watch connected to %s, want %s", got, id)
	}
}

// asksForVote is the request of a server that stands at once, with an empty log.
func (f *follower) asksForVote(id string, term uint64) {
	f.t.Helper()
	request := &raft.RequestVoteRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(id)}, Term: term, LeadershipTransfer: true,
	}
	var answer raft.RequestVoteResponse
	if err := f.transport.RequestVote("", f.address, request, &answer); err != nil {
		f.t.Fatal(err)
	}
	if leader, _ := f.raft.LeaderWithID(); answer.Granted || leader != "" {
		f.t.Fatalf("a server with an empty log asked for a vote: granted %v, and the leader is %q", answer.Granted, leader)
	}
}

func await[T any](t *testing.T, c <-chan T, otherwise string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatal(otherwise)
	}
	return v
}

// A request for a vote arrives before the follower finds that its leader has ended, and
// makes raft forget the leader. The follower refuses it, because it has more; then it
// stands itself, after the time that the other server may take to win.
func TestVoteRequestBeforeTheLeaderIsFoundEnded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ follower, candidate string }{{"s3", "s1"}, {"s1", "s3"}} {
		t.Run(test.follower, func(t *testing.T) {
			t.Parallel()
			f := newFollower(t, test.follower)
			f.leads("s2", 2)
			f.asksForVote(test.candidate, 3)
			f.moved()
			begun := time.Now()
			close(f.ended)
			await(t, f.stood, "the follower waits for a heartbeat of a leader that ended")
			if took := time.Since(begun); took < apart {
				t.Errorf("stood %v after another server, want at least %v", took, apart)
			}
		})
	}
}

// A process that is killed closes its connections before its port, and meanwhile another
// follower asks for votes.
func TestPortThatClosesLate(t *testing.T) {
	t.Parallel()
	f := newFollower(t, "s3")
	f.accepts.Store(closing)
	f.leads("s2", 2)
	f.asksForVote("s1", 3)
	f.moved()
	close(f.ended)
	await(t, f.stood, "the follower waits for a heartbeat of a leader that ended")
}

// A follower that waits for its turn hears of a candidate: it leaves it the time to win
// from then on, because all before may have been slow.
func TestCandidateHasItsTime(t *testing.T) {
	t.Parallel()
	for late := true; late; {
		t.Run("", func(t *testing.T) { late = !candidateHasItsTime(t) })
	}
}

// candidateHasItsTime returns false if the machine was too slow: the follower heard of the
// request for a vote when it may have stood already.
func candidateHasItsTime(t *testing.T) (ok bool) {
	f := newFollower(t, "s3")
	f.leads("s2", 2)
	close(f.ended)
	waits := await(t, f.fit, "the follower does not find that its leader has ended")
	time.Sleep(apart / 4) // the candidate is late
	f.asksForVote("s1", 3)
	begun := time.Now()
	f.moved()
	if time.Since(waits) >= apart {
		return false
	}
	await(t, f.stood, "the follower does not stand")
	if took := time.Since(begun); took < apart {
		t.Errorf("stood %v after the candidate, want at least %v", took, apart)
	}
	return true
}

// The server that asked for votes wins: it is watched, and its predecessor is not.
func TestVoteRequestOfTheNextLeader(t *testing.T) {
	t.Parallel()
	f := newFollower(t, "s3")
	f.leads("s2", 2)
	f.asksForVote("s1", 3)
	f.moved()
	old := f.ended
	f.ended = make(chan struct{}) // of the connection to s1
	f.leads("s1", 3)
	close(old)
	f.moved()
	select {
	case <-f.stood:
		t.Error("stood although another server leads")
	default:
	}
}
