package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rutter/api"
	"rutter/api/backend"
	"rutter/api/client"
	"rutter/log"
	"rutter/log/intake"
)

// queueing is a memory that leads: it queues changes, and answers those that
// wait together, from a goroutine of its own.
type queueing struct {
	backend.Store
	refuse error // what Enqueue returns

	mu      sync.Mutex
	waiting []func()
	taken   atomic.Int64
	kick    chan struct{}
}

func newQueueing(t *testing.T, store backend.Store) *queueing {
	q := &queueing{Store: store, kick: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-q.kick:
			case <-ctx.Done():
				return
			}
			q.mu.Lock()
			batch := q.waiting
			q.waiting = nil
			q.mu.Unlock()
			for _, do := range batch {
				do()
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return q
}

func (q *queueing) Status() backend.Status { return backend.Status{ID: "s1", Leader: "s1"} }

func (q *queueing) Enqueue(c *log.Change, done func(log.Result, error)) error {
	if q.refuse != nil {
		return q.refuse
	}
	copied := *c
	q.mu.Lock()
	q.waiting = append(q.waiting, func() { done(q.Propose(context.Background(), &copied)) })
	q.mu.Unlock()
	q.taken.Add(1)
	select {
	case q.kick <- struct{}{}:
	default:
	}
	return nil
}

// newStream returns a Stream that runs until the test ends.
func newStream(t *testing.T, servers ...string) *client.Stream {
	t.Helper()
	s := newClient(t, servers...).NewStream()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	return s
}

func newTag(name string) *log.Change {
	return &log.Change{ID: client.NewChangeID(), Ops: []log.Op{{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: name}}}}
}

// submitMany creates tags on a stream from many goroutines, and returns the seqs.
func submitMany(t *testing.T, s *client.Stream, writers, each int) map[log.Seq]bool {
	t.Helper()
	var mu sync.Mutex
	seqs := make(map[log.Seq]bool)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				result, err := s.Submit(t.Context(), newTag(fmt.Sprintf("w%d_%d", w, i)))
				if err != nil || result.Events != 1 {
					t.Errorf("writer %d, change %d: %+v, %v", w, i, result, err)
					return
				}
				mu.Lock()
				seqs[result.Last] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return seqs
}

func TestWriteStream(t *testing.T) {
	for _, leads := range []bool{true, false} {
		t.Run(fmt.Sprintf("leads=%v", leads), func(t *testing.T) {
			var store backend.Store = api.NewMemory()
			if leads {
				store = newQueueing(t, store)
			}
			s := newStream(t, run(t, store).url)
			const writers, each = 32, 60
			seqs := submitMany(t, s, writers, each)
			if head := store.Head().Seq; len(seqs) != writers*each || head != writers*each {
				t.Errorf("%d seqs answered, head %d, want %d", len(seqs), head, writers*each)
			}
		})
	}
}

func TestWriteStreamAnswers(t *testing.T) {
	store := newQueueing(t, api.NewMemory())
	s := newStream(t, run(t, store).url)
	c := newTag("one")
	first, err := s.Submit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Submit(t.Context(), c); err != nil || again.Last != first.Last {
		t.Errorf("a retry: got %+v, %v, want %+v", again, err, first)
	}
	var refusal *log.Refusal
	if _, err := s.Submit(t.Context(), newTag("one")); !errors.As(err, &refusal) {
		t.Errorf("a duplicate: got %v, want a refusal", err)
	}
	bad := newTag("two")
	bad.ID[6] = 0x40 // a UUID of version 4
	if _, err := s.Submit(t.Context(), bad); !errors.Is(err, client.ErrBadChange) {
		t.Errorf("an id without a time: got %v, want ErrBadChange", err)
	}
	store.refuse = fmt.Errorf("full: %w", backend.ErrOverloaded)
	if _, err := s.Submit(t.Context(), newTag("three")); !errors.Is(err, client.ErrOverloaded) || errors.Is(err, client.ErrUnavailable) {
		t.Errorf("overloaded: got %v", err)
	}
	// No leader: it goes by Propose, which finds one.
	store.refuse = fmt.Errorf("not here: %w", backend.ErrNoLeader)
	if _, err := s.Submit(t.Context(), newTag("four")); err != nil {
		t.Errorf("forwarded: %v", err)
	}
}

// A server that stops answers what it took; the client goes to another, and
// nothing is lost or done twice.
func TestWriteStreamMovesWhenAServerStops(t *testing.T) {
	store := newQueueing(t, api.NewMemory())
	first, second := run(t, store), run(t, store)
	s := newStream(t, first.url, second.url)
	stopped := make(chan error, 1)
	go func() {
		for store.Head().Seq < 200 {
			<-store.Changed()
		}
		stopped <- first.stop()
	}()
	const writers, each = 16, 60
	seqs := submitMany(t, s, writers, each)
	if err := <-stopped; err != nil {
		t.Errorf("Run: %v", err)
	}
	if head := store.Head().Seq; len(seqs) != writers*each || head != writers*each {
		t.Errorf("%d seqs answered, head %d, want %d", len(seqs), head, writers*each)
	}
}

// dialWrite upgrades a bare connection.
func dialWrite(t *testing.T, url string) (net.Conn, *intake.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", intake.Path, intake.Protocol)
	r := bufio.NewReader(conn)
	response, err := http.ReadResponse(r, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v, %v, want 101", response, err)
	}
	return conn, intake.NewReader(r)
}

// drained reads until the end, and returns the text of the drain frame.
func drained(t *testing.T, r *intake.Reader) (text string) {
	t.Helper()
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return text
		}
		if err != nil {
			t.Fatal(err)
		}
		if f.Type == intake.TypeDrain {
			text = string(f.Payload)
		}
	}
}

func TestWriteStreamRefusesBadFrames(t *testing.T) {
	damaged, err := intake.Append(nil, intake.TypeChange, []byte("not a change"))
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte(nil), damaged...)
	flipped[len(flipped)-1] ^= 1
	for name, test := range map[string]struct {
		frame []byte
		want  string
	}{
		"no change": {damaged, "format"},
		"checksum":  {flipped, "checksum"},
		"length":    {[]byte("\xff\xff\xff\xff\x40\x00\x00\x00\x00"), "over"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, r := dialWrite(t, run(t, api.NewMemory()).url)
			if _, err := conn.Write(test.frame); err != nil {
				t.Fatal(err)
			}
			if text := drained(t, r); !strings.Contains(text, test.want) {
				t.Errorf("the drain says %q, want something with %q", text, test.want)
			}
		})
	}
}

// A client that sends without end and takes no answers is read up to the
// window, and no further.
func TestWriteStreamWindow(t *testing.T) {
	store := newQueueing(t, api.NewMemory())
	hold := make(chan struct{})
	store.mu.Lock()
	store.waiting = append(store.waiting, func() { <-hold })
	store.mu.Unlock()
	store.kick <- struct{}{}
	conn, r := dialWrite(t, run(t, store).url)
	const n = api.WriteWindow + 500
	sent := make(chan error, 1)
	go func() {
		enc := log.NewEncoder()
		var buf []byte
		for i := range n {
			b, err := enc.Change(newTag(fmt.Sprintf("t%d", i)))
			if err == nil {
				buf, err = intake.Append(buf, intake.TypeChange, b)
			}
			if err != nil {
				sent <- err
				return
			}
		}
		_, err := conn.Write(buf)
		sent <- err
	}()
	for store.taken.Load() < api.WriteWindow {
		time.Sleep(time.Millisecond) // what is waited for has no signal
	}
	time.Sleep(20 * time.Millisecond) // for it to go wrong
	if taken := store.taken.Load(); taken != api.WriteWindow {
		t.Errorf("%d changes were taken without an answer, want %d", taken, api.WriteWindow)
	}
	close(hold)
	for answered := 0; answered < n; {
		f, err := r.Next()
		if err != nil {
			t.Fatalf("after %d answers: %v", answered, err)
		}
		if f.Type == intake.TypeResult {
			answered++
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestWriteStreamWantsAnUpgrade(t *testing.T) {
	response, err := http.Post(run(t, api.NewMemory()).url+intake.Path, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusUpgradeRequired || response.Header.Get("Upgrade") != intake.Protocol {
		t.Errorf("got %s with Upgrade %q, want 426 with %q", response.Status, response.Header.Get("Upgrade"), intake.Protocol)
	}
}

// The binary form of the log holds the same entries as the store.
func TestBinaryLog(t *testing.T) {
	store := api.NewMemory()
	server := run(t, store)
	c := newClient(t, server.url)
	for i := range 300 {
		if _, err := store.Propose(t.Context(), newTag(fmt.Sprintf("t%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	want, err := store.Entries(0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, after := range []log.Seq{0, 1, 299, 300} {
		at := after
		for e, err := range c.Entries(t.Context(), after) {
			if err != nil {
				t.Fatal(err)
			}
			w := want[at]
			if at++; e.Seq != w.Seq || string(e.Bytes) != string(w.Bytes) || e.Hash.Prefix() != w.Hash.Prefix() {
				t.Fatalf("entry %d is not that of the store", e.Seq)
			}
		}
		if at != 300 {
			t.Errorf("after %d: the last entry is %d, want 300", after, at)
		}
	}
	var refusal *log.Refusal
	for _, err := range c.Entries(t.Context(), 301) {
		if !errors.As(err, &refusal) {
			t.Errorf("after the head: got %v, want a refusal", err)
		}
	}
}

// spied is a queue that shows the changes which it is given.
type spied struct {
	*queueing
	given chan log.Change
}

func (s spied) Enqueue(c *log.Change, done func(log.Result, error)) error {
	s.given <- *c
	return s.queueing.Enqueue(c, done)
}

// TestWriteStreamStampsChanges: whose a change is, and what it is bound to, is said by the
// server and never by the client (SAFETY A2).
func TestWriteStreamStampsChanges(t *testing.T) {
	store := spied{newQueueing(t, api.NewMemory()), make(chan log.Change, 2)}
	s := newStream(t, run(t, store).url)
	if _, err := s.Submit(t.Context(), newTag("plain")); err != nil {
		t.Fatal(err)
	}
	want := <-store.given
	forged := newTag("forged")
	forged.Actor, forged.By, forged.Content = "operator mallory", log.Author{Role: log.RoleCN, CN: log.UUID{7}}, log.Content{9}
	if _, err := s.Submit(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	if got := <-store.given; got.Actor != want.Actor || got.By != want.By || got.Content != want.Content {
		t.Errorf("a change that names its author: by %q %+v with content %v, want %q %+v and %v", got.Actor, got.By, got.Content, want.Actor, want.By, want.Content)
	}
}
