package peer

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"rutter/integration/simulate/network"
)

// hanging is the kind of a request that the server of these tests answers after hangs.
const (
	hanging byte = 1
	hangs        = 8 * time.Second
	quick   byte = 2
)

// requests starts a server on one host of a network, and returns a client on another, with how
// many connections it dialled.
func requests(t *testing.T, n *network.Net) (c *Client, dialled *int, stop func()) {
	t.Helper()
	listener, err := n.Host("s2").Listen(":7421")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	tasks, dialled := new(Tasks), new(int)
	server := NewServer(tasks, slog.New(slog.DiscardHandler), func(ctx context.Context, f Frame) Frame {
		if f.Kind == hanging {
			select {
			case <-time.After(hangs):
			case <-ctx.Done():
			}
		}
		return Frame{Number: f.Number, Kind: f.Kind + 128}
	})
	port := NewPort(ctx, PortOptions{
		Listener: listener, Tasks: tasks, Logger: slog.New(slog.DiscardHandler),
		Requests: func(conn net.Conn) { server.Serve(ctx, conn) },
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			*dialled++
			return n.Host("s1").Dial(ctx, "tcp", address)
		},
	})
	tasks.Start(func() { _ = port.Run() })
	return NewClient(port), dialled, func() {
		cancel()
		_ = port.Close()
		tasks.Stop()
		n.Close()
	}
}

// TestForgottenConnectionIsGivenUp: a connection that carries nothing more, and of which neither
// end is told, is given up after silence and probeWait; the next request has a new one.
func TestForgottenConnectionIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network.New(1)
		c, dialled, stop := requests(t, n)
		defer stop()
		address := n.Host("s2").Address() + ":7421"
		call := func() error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := c.Call(ctx, address, quick, nil)
			return err
		}
		if err := call(); err != nil || *dialled != 1 {
			t.Fatalf("%v, %d connections", err, *dialled)
		}
		n.HalfOpen("s1", "s2")
		begun := time.Now()
		for call() != nil {
			if time.Since(begun) > silence+probeWait+2*time.Second {
				t.Fatalf("no request is answered for %v: the connection is kept", time.Since(begun))
			}
		}
		if took := time.Since(begun); *dialled != 2 || took < silence {
			t.Errorf("answered after %v, by connection %d; want the second one, after %v at least", took, *dialled, silence)
		}
		if begun, givenUp := c.Probes(); begun != 1 || givenUp != 1 {
			t.Errorf("%d probes, %d connections given up; want 1 of each", begun, givenUp)
		}
	})
}

// TestSlowPeerKeepsItsConnection: a peer that answers some requests late, as one does whose disk
// hangs, keeps its connection, and with it the requests that wait, when others end by their time.
func TestSlowPeerKeepsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network.New(1)
		c, dialled, stop := requests(t, n)
		defer stop()
		address := n.Host("s2").Address() + ":7421"
		late := make(chan error, 1)
		go func() {
			_, err := c.Call(context.Background(), address, hanging, nil)
			late <- err
		}()
		time.Sleep(100 * time.Millisecond) // the connection is there, in simulated time
		for range 5 {                      // each begins after the one before it, and ends by its time
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, err := c.Call(ctx, address, hanging, nil)
			cancel()
			if !errors.Is(err, ErrUnknown) {
				t.Fatalf("%v, want ErrUnknown", err)
			}
		}
		if err := <-late; err != nil || *dialled != 1 {
			t.Errorf("the request that waited: %v, %d connections; want its answer, by the first", err, *dialled)
		}
		if begun, givenUp := c.Probes(); begun == 0 || givenUp != 0 {
			t.Errorf("%d probes, %d connections given up; want some probes, and none given up", begun, givenUp)
		}
	})
}
