package peer

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
)

// memoryLog is a Log all of which is on disk.
type memoryLog struct{ *raft.InmemStore }

func (memoryLog) Await(uint64) error         { return nil }
func (memoryLog) Bound(commit uint64) uint64 { return commit }

// newTestTransport returns a transport that listens.
func newTestTransport(t *testing.T) *Transport {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tasks, logger := new(Tasks), slog.New(slog.DiscardHandler)
	port := NewPort(t.Context(), PortOptions{
		Listener: listener, Address: listener.Addr().String(), Tasks: tasks, Logger: logger,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		},
		Cluster:  func() log.UUID { return log.UUID{} },
		Note:     func() ([]byte, error) { return nil, nil },
		Admit:    func(net.Addr, log.UUID, []byte) (bool, error) { return true, nil },
		Requests: func(conn net.Conn) { conn.Close() },
		Image:    func(conn net.Conn) { conn.Close() },
	})
	transport := NewTransport(TransportOptions{
		Port: port, Log: memoryLog{raft.NewInmemStore()}, TermKey: []byte("CurrentTerm"),
		Raft: func() *raft.Raft { return nil }, Unfit: func() error { return nil }, Logger: logger,
	})
	ended := make(chan error, 1)
	go func() { ended <- port.Run() }()
	t.Cleanup(func() {
		_ = transport.Close()
		_ = port.Close()
		tasks.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return transport
}

// An answer proves that its sender elected no later leader when the request was sent, and
// nothing about the time after that: it may have been held back on its way (SAFETY V1, R1).
func TestConfirmedSinceTheRequest(t *testing.T) {
	t.Parallel()
	leader, follower := newTestTransport(t), newTestTransport(t)
	var held time.Time // when the follower had the request, and had not answered
	go func() {
		rpc := <-follower.Consumer()
		held = time.Now()
		time.Sleep(10 * time.Millisecond) // so that the two times differ
		rpc.Respond(&raft.AppendEntriesResponse{Term: 7, Success: true}, nil)
	}()
	request := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}, Term: 7}
	response := new(raft.AppendEntriesResponse)
	before := time.Now()
	if err := leader.AppendEntries("f", follower.LocalAddr(), request, response); err != nil || !response.Success {
		t.Fatalf("%v, %+v", err, response)
	}
	at := leader.Confirmed(7, []raft.ServerID{"f"}, time.Now())
	if at.Before(before) || at.After(held) {
		t.Errorf("confirmed %v after the request began, and the follower had it after %v", at.Sub(before), held.Sub(before))
	}
	if at := leader.Confirmed(8, []raft.ServerID{"f"}, time.Now()); !at.IsZero() {
		t.Errorf("a term that was not asked for is confirmed at %v", at)
	}
}
