package feed

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"rutter/log"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a Handler that keeps the names of its calls.
type recorder struct {
	calls []string
	err   error // returned by Bookmark
}

func (r *recorder) add(format string, args ...any) error {
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
	return nil
}
func (r *recorder) Welcome(m *Welcome) error           { return r.add("welcome %d", m.Head.Seq) }
func (r *recorder) Reset(m *Reset) error               { return r.add("reset %s", m.Reason) }
func (r *recorder) Entry(m *Entry) error               { return r.add("entry %d", m.Seq) }
func (r *recorder) Object(m *Object) error             { return r.add("object %s", m.ID) }
func (r *recorder) ScopeBegin(m *ScopeBegin) error     { return r.add("begin %s", m.Scope) }
func (r *recorder) ScopeEnd(m *ScopeEnd) error         { return r.add("end %s", m.Scope) }
func (r *recorder) ScopeDropped(m *ScopeDropped) error { return r.add("dropped %s", m.Scope) }
func (r *recorder) Bookmark(m *Bookmark) error {
	_ = r.add("bookmark %d", m.Seq)
	return r.err
}

// server is the far end of a test's connection.
type server struct {
	t    *testing.T
	conn net.Conn
	r    *Reader
}

func (s *server) send(messages ...Message) {
	for _, m := range messages {
		b, err := Append(nil, m)
		if err != nil {
			s.t.Error(err)
			return
		}
		if _, err := s.conn.Write(b); err != nil {
			s.t.Errorf("server: write %T: %v", m, err)
			return
		}
	}
}

func (s *server) next() (Message, error) {
	f, err := s.r.Next()
	if err != nil {
		return nil, err
	}
	return Decode(f)
}

// follow runs Follow against play, which is the server.
func follow(t *testing.T, ctx context.Context, h Handler, before func(*Conn), play func(*server)) error {
	t.Helper()
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer far.Close()
		s := &server{t, far, NewReader(bufio.NewReader(far))}
		if m, err := s.next(); err != nil {
			t.Errorf("server: hello: %v", err)
		} else if hello, ok := m.(*Hello); !ok || hello.Session != 5 {
			t.Errorf("server: first frame is %+v, want the hello of session 5", m)
		}
		play(s)
	}()
	c := NewConn(near)
	if before != nil {
		before(c)
	}
	err := c.Follow(ctx, &Hello{Session: 5, Cursor: log.Cursor{Seq: 10}}, h)
	<-done
	return err
}

func TestFollowDispatches(t *testing.T) {
	h := new(recorder)
	all := log.AllScope()
	err := follow(t, t.Context(), h, nil, func(s *server) {
		s.send(&Welcome{Head: log.Cursor{Seq: 20}}, &Entry{Seq: 12}, &Entry{Seq: 20}, &ScopeBegin{all, 20, 1},
			&Object{At: 20, Scope: all, Seq: 3, ID: "external"}, &Pong{20}, &ScopeEnd{Scope: all, AsOf: 20, Count: 1},
			&ScopeDropped{log.VNetScope(4), 20}, &Bookmark{Seq: 20})
		// A frame of a newer program is skipped.
		b, err := finish(begin(nil, 200, 7), 0)
		if err != nil {
			t.Error(err)
		}
		if _, err := s.conn.Write(b); err != nil {
			t.Error(err)
		}
		s.send(&Drain{20, DrainShutdown, "the server stops"})
	})
	var drain *DrainError
	if !errors.Is(err, ErrDrained) || !errors.As(err, &drain) || drain.Drain.Reason != DrainShutdown {
		t.Errorf("got %v, want a drain for shutdown", err)
	}
	want := []string{"welcome 20", "entry 12", "entry 20", "begin all", "object external", "end all", "dropped vnet:4", "bookmark 20"}
	if !slices.Equal(h.calls, want) {
		t.Errorf("calls\n got %q\nwant %q", h.calls, want)
	}
}

func TestFollowRefusesDisorder(t *testing.T) {
	all, vnet := log.AllScope(), log.VNetScope(1)
	for name, messages := range map[string][]Message{
		"no welcome":            {&Entry{Seq: 11}},
		"two welcomes":          {&Welcome{}, &Welcome{}},
		"entry at the cursor":   {&Welcome{}, &Entry{Seq: 10}},
		"entry twice":           {&Welcome{}, &Entry{Seq: 11}, &Entry{Seq: 11}},
		"bookmark back":         {&Welcome{}, &Entry{Seq: 11}, &Bookmark{Seq: 10}},
		"scope in the past":     {&Welcome{}, &Entry{Seq: 11}, &ScopeBegin{all, 10, 0}},
		"end without begin":     {&Welcome{}, &ScopeEnd{Scope: all, AsOf: 10}},
		"entry within a scope":  {&Welcome{}, &ScopeBegin{all, 10, 1}, &Entry{Seq: 11}},
		"object of other scope": {&Welcome{}, &ScopeBegin{all, 10, 1}, &Object{Scope: vnet}},
		"object of the future":  {&Welcome{}, &ScopeBegin{all, 10, 1}, &Object{Scope: all, Seq: 11}},
		"too many objects":      {&Welcome{}, &ScopeBegin{all, 10, 0}, &Object{Scope: all}},
		"too few objects":       {&Welcome{}, &ScopeBegin{all, 10, 2}, &Object{Scope: all}, &ScopeEnd{all, 10, log.ChainPrefix{}, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			err := follow(t, t.Context(), new(recorder), nil, func(s *server) { s.send(messages...) })
			if !errors.Is(err, ErrOrder) {
				t.Errorf("got %v, want ErrOrder", err)
			}
		})
	}
}

func TestFollowEndsWithHandlersError(t *testing.T) {
	h := &recorder{err: errors.New("disk full")}
	err := follow(t, t.Context(), h, nil, func(s *server) { s.send(&Welcome{}, &Bookmark{Seq: 10}) })
	if !errors.Is(err, h.err) {
		t.Errorf("got %v, want %v", err, h.err)
	}
}

func TestFollowEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := follow(t, ctx, new(recorder), nil, func(s *server) {
		s.send(&Welcome{})
		cancel()
		_, _ = io.Copy(io.Discard, s.conn)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestFollowNoticesSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		pings := 0
		err := follow(t, t.Context(), new(recorder), nil, func(s *server) {
			s.send(&Welcome{})
			for {
				m, err := s.next()
				if err != nil {
					return
				}
				if _, ok := m.(*Ping); ok {
					pings++
				}
			}
		})
		if took := time.Since(begin); !errors.Is(err, ErrSilent) || took != SilenceLimit {
			t.Errorf("got %v after %s, want ErrSilent after %s", err, took, SilenceLimit)
		}
		if pings < 2 {
			t.Errorf("%d pings in %s, want at least 2", pings, SilenceLimit)
		}
	})
}

// A server that is frozen neither sends nor takes anything, and its connection does
// not end: also while the hello or a ping is being written it is noticed in time.
func TestFollowNoticesFrozenServer(t *testing.T) {
	for name, thaws := range map[string]func(*server){
		"from the start": func(*server) {},
		"after the hello": func(s *server) {
			if _, err := s.next(); err != nil {
				t.Error(err)
			}
			s.send(&Welcome{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe() // without buffers: each write waits for a read
				defer far.Close()
				go thaws(&server{t, far, NewReader(bufio.NewReader(far))})
				begin := time.Now()
				err := NewConn(near).Follow(t.Context(), &Hello{Session: 5}, new(recorder))
				if took := time.Since(begin); err == nil || took > SilenceLimit {
					t.Errorf("got %v after %s, want an error within %s", err, took, SilenceLimit)
				}
			})
		})
	}
}

func TestFollowStaysWhilePonged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		err := follow(t, t.Context(), new(recorder), nil, func(s *server) {
			s.send(&Welcome{})
			for range 10 {
				if m, err := s.next(); err != nil {
					t.Errorf("after %s: %v", time.Since(begin), err)
				} else if _, ok := m.(*Ping); ok {
					s.send(&Pong{10})
				}
			}
		})
		if took := time.Since(begin); took != 10*PingEvery || errors.Is(err, ErrSilent) {
			t.Errorf("ended after %s with %v, want after %s when the server closes", took, err, 10*PingEvery)
		}
	})
}

func TestWatermarksCoalesce(t *testing.T) {
	h := new(recorder)
	var got []log.Seq
	_ = follow(t, t.Context(), h, func(c *Conn) {
		for seq := range log.Seq(100) {
			c.Watermark(Watermark{Applied: seq})
		}
	}, func(s *server) {
		s.send(&Welcome{})
		m, err := s.next()
		if err != nil {
			t.Errorf("server: %v", err)
			return
		}
		if w, ok := m.(*Watermark); ok {
			got = append(got, w.Applied)
		}
	})
	if !slices.Equal(got, []log.Seq{99}) {
		t.Errorf("watermarks %v, want just the latest, 99", got)
	}
}

// answering is a recorder that answers requests.
type answering struct {
	recorder
	conn *Conn
}

func (a *answering) Request(m *Request) error {
	return a.conn.Send(context.Background(), &Response{m.Number, 200, append([]byte(m.Path), m.Body...)})
}

// A request is answered: with 501 if the handler takes no requests.
func TestFollowAnswersRequests(t *testing.T) {
	able := new(answering)
	for _, test := range []struct {
		h    Handler
		want Response
	}{
		{able, Response{7, 200, []byte("/xy")}},
		{new(recorder), Response{Number: 7, Status: 501, Body: []byte{}}},
	} {
		_ = follow(t, t.Context(), test.h, func(c *Conn) { able.conn = c }, func(s *server) {
			s.send(&Welcome{}, &Request{7, "GET", "/x", "1.0.0", []byte("y")})
			m, err := s.next()
			if got, ok := m.(*Response); err != nil || !ok || got.Number != 7 || got.Status != test.want.Status || string(got.Body) != string(test.want.Body) {
				t.Errorf("%T: got %+v, %v; want %+v", test.h, m, err, test.want)
			}
		})
	}
}

// Send keeps its order, and waits when the connection does not take more.
func TestSendKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sent = 3 * sendQueue
		var got uint64
		_ = follow(t, t.Context(), new(recorder), func(c *Conn) {
			go func() {
				for n := range uint64(sent) {
					if err := c.Send(t.Context(), &Inventory{Number: n + 1}); err != nil {
						t.Errorf("send %d: %v", n+1, err)
					}
				}
			}()
		}, func(s *server) {
			s.send(&Welcome{})
			for got < sent {
				m, err := s.next()
				if err != nil {
					t.Errorf("server: %v", err)
					return
				}
				inventory, ok := m.(*Inventory)
				if !ok {
					continue
				}
				if got++; inventory.Number != got {
					t.Errorf("frame %d in place %d", inventory.Number, got)
				}
			}
		})
		c := NewConn(nil)
		for range sendQueue {
			_ = c.Send(t.Context(), &Ring{})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Send(ctx, &Ring{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("send to a full queue: %v, want the deadline", err)
		}
	})
}

// TestListIsSentWhenItChanged: a watermark has its list the first time on a connection and
// when it changed; then it does not keep the long pause, because a barrier may wait for it.
func TestListIsSentWhenItChanged(t *testing.T) {
	c := NewConn(nil)
	now := time.Unix(1_000_000, 0)
	waits := []Wait{{Kind: WaitVNet, VNet: 7}}
	for i, step := range []struct {
		list   uint32
		after  time.Duration
		listed bool
		left   time.Duration
	}{
		{1, 0, true, 0}, {1, TellEvery, false, TellLazily - TellEvery}, {1, TellLazily, false, 0}, {2, TellEvery, true, 0}, {0, TellEvery, false, 0}, {2, TellEvery, true, 0},
	} {
		now = now.Add(step.after)
		c.Watermark(Watermark{Applied: 5, Reached: 4, List: step.list, Listed: step.list != 0, Waits: waits})
		up, left := c.take(now)
		if left != step.left || (left == 0) != (len(up) == 1) {
			t.Fatalf("step %d: %d messages, %v until the next, want %v", i, len(up), left, step.left)
		}
		if left > 0 {
			continue
		}
		if w := up[0].(*Watermark); w.Listed != step.listed || w.List != step.list || step.list != 0 && (w.Waits != nil) != step.listed {
			t.Errorf("step %d: %+v, want listed %v", i, w, step.listed)
		}
	}
}

// TestBoundsOfLists: a list over its bounds is not written, or its texts are cut; nor read.
func TestBoundsOfLists(t *testing.T) {
	if _, err := AppendWaits(nil, make([]Wait, MaxWaits+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d objects: %v", MaxWaits+1, err)
	}
	list := make([]Wait, MaxWaits)
	for i := range list {
		list[i] = Wait{Kind: WaitVNet, VNet: uint32(i), Why: strings.Repeat("x", 2*MaxWaitText)}
	}
	b, err := AppendWaits(nil, list)
	if err != nil {
		t.Fatal(err)
	}
	got, rest, err := ReadWaits(b)
	texts := 0
	for i := range got {
		texts += len(got[i].Why)
	}
	if err != nil || len(got) != MaxWaits || len(rest) != 0 || texts != MaxWaitTexts || len(got[0].Why) != MaxWaitText || WaitsBytes(got) != len(b)-4 {
		t.Errorf("%d objects with %d bytes of text, %v", len(got), texts, err)
	}
	if _, err := Append(nil, &Watermark{List: 1, Listed: true, Waits: list}); err != nil {
		t.Errorf("the longest list does not fit a frame: %v", err)
	}
	for name, bad := range map[string][]byte{
		"too many": binary.BigEndian.AppendUint32(nil, MaxWaits+1), "too short": append(binary.BigEndian.AppendUint32(nil, 2), b[4:4+waitBytes]...),
	} {
		if _, _, err := ReadWaits(bad); err == nil {
			t.Errorf("%s: read", name)
		}
	}
	long := append([]byte{}, b[:4+waitBytes+MaxWaitText]...)
	binary.BigEndian.PutUint32(long, 1)
	binary.BigEndian.PutUint16(long[4+waitBytes-2:], MaxWaitText+1)
	if _, _, err := ReadWaits(append(long, 'x')); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a long text: %v", err)
	}
}
