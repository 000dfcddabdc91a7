package feedserver

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/internal/apitest"
	"rutter/api/liveness"
	"rutter/log"
	"rutter/log/feed"
)

// stepped is a subscriber whose runs a test makes itself, so that it knows what the
// subscriber had not read yet when it ran.
type stepped struct {
	*subscriber
	frames []string // entries, begins and drops
	marks  []string // bookmarks
	ended  chan struct{}
}

// stepped connects a CN that holds its whole interest at the head.
func (b *bed) stepped(t *testing.T, cn log.UUID) *stepped {
	t.Helper()
	hello, err := b.feed.HelloOf(cn, b.Store.Head().Seq)
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	s := &stepped{newSubscriber(&b.feed.parts, far, matrix.Identity{Role: matrix.Local}, hello), nil, nil, make(chan struct{})}
	go func() {
		defer close(s.ended)
		for reader := feed.NewReader(bufio.NewReader(near)); ; {
			f, err := reader.Next()
			if err != nil {
				return
			}
			switch m, _ := feed.Decode(f); m := m.(type) {
			case *feed.Entry:
				event, _ := log.DecodeEvent(m.Event)
				s.frames = append(s.frames, fmt.Sprintf("entry %s %s", event.Action, event.ID))
			case *feed.Bookmark:
				s.marks = append(s.marks, fmt.Sprintf("%d: %d digests", m.Seq, len(m.Digests)))
			case *feed.ScopeBegin:
				s.frames = append(s.frames, "begin "+m.Scope.String())
			case *feed.ScopeDropped:
				s.frames = append(s.frames, "dropped "+m.Scope.String())
			}
		}
	}()
	s.now = time.Now()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	s.run1(t)
	return s
}

// run1 makes one run.
func (s *stepped) run1(t *testing.T) {
	t.Helper()
	s.now = time.Now()
	if err := s.advance(); err != nil {
		t.Fatal(err)
	}
	if err := s.out.flush(); err != nil {
		t.Fatal(err)
	}
}

// end ends the stream, and returns the entries, begins and drops that were sent.
func (s *stepped) end() []string {
	s.conn.Close()
	<-s.ended
	s.held.releaseAll()
	return s.frames
}

// A subscriber that comes onto a vnet is sent the vnet as of the head. It had not read what
// came between, and is not sent that again.
func TestScopeIsSentOnce(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	b.NIC(apitest.FabricA, apitest.CN1)
	s := b.stepped(t, apitest.CN1)
	mine := b.NIC(apitest.FabricB, apitest.CN1)
	b.NIC(apitest.FabricB, apitest.CN2)
	s.run1(t)
	later := b.NIC(apitest.FabricB, apitest.CN3)
	s.run1(t)
	want := []string{"entry create " + mine, "begin vnet:1002", "entry create " + later}
	if got := s.end(); !slices.Equal(got, want) {
		t.Errorf("sent\n got %q\nwant %q", got, want)
	}
}

// A subscriber that left a vnet and is on it again, when it has read neither, is not sent
// what happened there meanwhile: the vnet is dropped and sent anew.
func TestReturnIsSentAnew(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	mine := b.NIC(apitest.FabricA, apitest.CN1)
	s := b.stepped(t, apitest.CN1)
	b.Must("DELETE", "/nics/"+mine, "")
	theirs := b.NIC(apitest.FabricA, apitest.CN2)
	b.NIC(apitest.FabricA, apitest.CN1)
	s.run1(t)
	got := s.end()
	if text := strings.Join(got, ", "); strings.Contains(text, "create "+theirs) || !strings.Contains(text, "dropped vnet:1001, begin vnet:1001") {
		t.Errorf("sent %q: want the vnet dropped and sent anew, without what came while the CN was not on it", got)
	}
}

// A bookmark has the digests of the state at its seq, or none: those of a later state would
// not be what the subscriber holds, and it would ask for whole scopes again (SAFETY F2).
func TestDigestsAreOfTheBookmark(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	b.NIC(apitest.FabricA, apitest.CN1)
	s := b.stepped(t, apitest.CN1)
	before := b.Store.Head().Seq
	b.NIC(apitest.FabricA, apitest.CN2)
	s.repeatBookmark = true // one is due, and the subscriber has not read the new entry
	if err := s.bookmark(); err != nil {
		t.Fatal(err)
	}
	s.repeatBookmark = true
	s.run1(t)
	s.end()
	want := []string{fmt.Sprintf("%d: 4 digests", before), fmt.Sprintf("%d: 0 digests", before), fmt.Sprintf("%d: 4 digests", before+1)}
	if !slices.Equal(s.marks, want) {
		t.Errorf("bookmarks\n got %q\nwant %q", s.marks, want)
	}
}

// Of the sessions of a CN the newest counts, whichever connects last: an older one is
// refused, and a newer one ends it (SAFETY B1).
func TestOlderSessionsAreRefused(t *testing.T) {
	b := newBed(t)
	g := newSessions(liveness.NewTable(1, time.Now))
	woken := 0
	session := func(incarnation, number uint64) *session {
		hello := &feed.Hello{CN: apitest.CN1, Incarnation: incarnation, Session: number}
		return newSession(hello, "", func(why reason) {
			if why == wakeReplaced {
				woken++
			}
		}, b.feed.tracker.NewNode())
	}
	for _, step := range []struct {
		incarnation, number uint64
		taken               bool
	}{{2, 5, true}, {2, 5, false}, {2, 4, false}, {1, 9, false}, {2, 6, true}, {2, 5, false}, {3, 1, true}, {2, 7, false}} {
		before := woken
		if taken := g.add(session(step.incarnation, step.number)); taken != step.taken {
			t.Errorf("session %d of incarnation %d: taken is %v, want %v", step.number, step.incarnation, taken, step.taken)
		}
		if ended := woken > before; ended != (step.taken && step.number != 5) {
			t.Errorf("session %d of incarnation %d: the one before was ended: %v", step.number, step.incarnation, ended)
		}
	}
}
