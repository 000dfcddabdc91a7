package feedserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"rutter/api/auth/matrix"
	"rutter/api/internal/apitest"
	"rutter/log"
	"rutter/projections"
)

// stepwise is a store that shows what is applied only when it is let, all of it at once.
type stepwise struct {
	*apitest.Memory
	mu      sync.Mutex // protects what follows
	shown   log.Seq
	changed chan struct{}
}

func newStepwise(store *apitest.Memory) *stepwise {
	return &stepwise{Memory: store, shown: store.Head().Seq, changed: make(chan struct{})}
}

// show shows everything.
func (s *stepwise) show() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = s.Memory.Head().Seq
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stepwise) Head() log.Cursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.CursorAt(s.shown)
}

func (s *stepwise) View(fn func(*projections.State, log.Cursor)) {
	head := s.Head()
	fn(s.Replay(head.Seq), head)
}

func (s *stepwise) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	entries, err := s.Memory.Entries(after, limit)
	return entries[:min(len(entries), int(s.Head().Seq-after))], err
}

func (s *stepwise) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// onePass lets a mirror that is at the head of a bed take the changes that do makes, all at
// once, and returns its calls.
func onePass(t *testing.T, b *bed, m *apitest.Mirror, do func()) []string {
	t.Helper()
	store := newStepwise(b.Store)
	other := &bed{b.World, newFeed(store, slog.DiscardHandler)}
	m.Calls, m.Until = nil, 1<<62
	begun := false
	m.Check = func(m *apitest.Mirror, at log.Seq) error {
		if err := b.Compare(m, at); err != nil {
			return err
		}
		switch {
		case !begun:
			begun, m.Calls = true, nil
			do()
			store.show()
		case at == b.Store.Head().Seq:
			return apitest.ErrStop
		}
		return nil
	}
	c := other.connect(t.Context())
	err := c.Follow(t.Context(), m.Hello(), m)
	if <-c.Done; !errors.Is(err, apitest.ErrStop) {
		t.Fatalf("%v; calls %q", err, m.Calls)
	}
	return m.Calls
}

// TestFeedScopeAsOfTheHead (SAFETY F2): a scope that enters the interest is sent as of the head.
// Its entries up to there are part of it, and are not sent behind it.
func TestFeedScopeAsOfTheHead(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	m := apitest.NewMirror(apitest.CN1)
	b.sync(t, m)
	calls := onePass(t, b, m, func() {
		b.NIC(apitest.FabricA, apitest.CN1)
		b.NIC(apitest.FabricA, apitest.CN2)
	})
	if len(calls) < 2 || calls[0] != "entry create nic" || calls[1] != "begin vnet:1001" || slices.Contains(calls[2:], "entry create nic") {
		t.Errorf("calls %q; want the entry of the own NIC, then the vnet, and not the entry of the other NIC", calls)
	}
}

// TestFeedLeftAndBack (SAFETY F5): a CN leaves a vnet and is back before the server has looked.
// What happened there between is not the CN's to see: it gets the vnet anew.
func TestFeedLeftAndBack(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	mac := b.NIC(apitest.FabricA, apitest.CN1)
	m := apitest.NewMirror(apitest.CN1)
	b.sync(t, m)
	calls := onePass(t, b, m, func() { leaveAndReturn(b, mac) })
	want := []string{"entry delete nic", "dropped vnet:1001", "begin vnet:1001", "entry create nic"}
	if !slices.Equal(calls, want) {
		t.Errorf("calls\n got %q\nwant %q", calls, want)
	}
}

// leaveAndReturn makes CN 1 leave fabric A and come back. Between, CN 2 comes and goes.
func leaveAndReturn(b *bed, mac string) {
	b.Must("DELETE", "/nics/"+mac, "")
	other := b.NIC(apitest.FabricA, apitest.CN2)
	b.Must("DELETE", "/nics/"+other, "")
	b.NIC(apitest.FabricA, apitest.CN1)
}

// TestFeedLeftAndBackWhileAway: the same while the CN has no connection. A server that takes
// its word that it held the vnet all along would send it the entries between.
func TestFeedLeftAndBackWhileAway(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	mac := b.NIC(apitest.FabricA, apitest.CN1)
	m := apitest.NewMirror(apitest.CN1)
	b.sync(t, m)
	leaveAndReturn(b, mac)
	c := apitest.Connect(func(conn net.Conn) {
		if u, reader, err := b.feed.accept(conn, nil, matrix.Identity{Role: matrix.CN, UUID: apitest.CN1}); err == nil {
			_ = received(u, reader)
		}
	})
	b.Sync(t, c, m)
	want := []string{"dropped vnet:1001", "entry delete nic", "entry create nic", "begin vnet:1001"}
	if !slices.Equal(m.Calls, want) {
		t.Errorf("calls\n got %q\nwant %q", m.Calls, want)
	}
}

// TestFeedUnderlayOfAReturner (SAFETY F1): while a stream lives, another CN leaves a vnet and
// comes back. A node has dropped its underlay NIC with its last NIC there, and gets it again.
func TestFeedUnderlayOfAReturner(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	b.NIC(apitest.FabricA, apitest.CN1)
	m := apitest.NewMirror(apitest.CN1)
	m.Until = 1 << 62
	marks := make(chan log.Seq)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m.Check = func(_ *apitest.Mirror, at log.Seq) error {
		select {
		case marks <- at:
		case <-ctx.Done():
		}
		return nil
	}
	c := b.connect(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Follow(ctx, m.Hello(), m) }()
	reach := func() {
		t.Helper()
		for at := log.Seq(0); at < b.Store.Head().Seq; {
			select {
			case at = <-marks:
			case err := <-ended:
				t.Fatalf("the stream ended: %v", err)
			}
		}
	}
	reach()
	for range 2 {
		mac := b.NIC(apitest.FabricA, apitest.CN2)
		reach()
		b.Must("DELETE", "/nics/"+mac, "")
		reach()
	}
	cancel()
	<-ended
	<-c.Done
	underlay := "object " + apitest.Key(log.KindNIC, fmt.Sprintf(apitest.UnderlayMAC, 2)) + " in vnet:1001"
	if n := strings.Count(strings.Join(m.Calls, ", "), underlay); n != 2 {
		t.Errorf("the underlay NIC of CN 2 came %d times, want twice: %q", n, m.Calls)
	}
}

// TestFeedScopesFollowTheWholeChange: a change that makes NICs of the CN on two vnets is not
// split by the first vnet (architecture rule 5).
func TestFeedScopesFollowTheWholeChange(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	m := apitest.NewMirror(apitest.CN1)
	b.sync(t, m)
	calls := onePass(t, b, m, func() {
		nic := func(n int, network log.UUID) string {
			return fmt.Sprintf(`{"action":"create","kind":"nic","object":{"mac":"02:00:00:00:00:%02x","network_uuid":%q,%s}`, n, network, apitest.NICBody(network, apitest.CN1)[1:])
		}
		b.Must("POST", "/changes", `{"ops":[`+nic(1, apitest.FabricA)+","+nic(2, apitest.FabricB)+`]}`)
	})
	if want := []string{"entry create nic", "entry create nic", "begin vnet:1001", "begin vnet:1002"}; !slices.Equal(calls, want) {
		t.Errorf("calls\n got %q\nwant %q", calls, want)
	}
}
