package agentsim

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"rutter/agent/zone"
	"rutter/cmd/rutter/bench/load"
	"rutter/log"
	"rutter/log/feed"
)

// readBuffer is small: there are many agents.
const readBuffer = 4 << 10

// Lengths of the frame's header and of what stands before an entry's event
// (log/feed/format.go).
const (
	headerBytes = 17
	chainBytes  = 8
)

// agent is one compute node.
type agent struct {
	fleet        *Fleet
	cn           log.UUID
	dialer       Dialer
	choose       *zone.Chooser
	incarnation  uint64
	session      uint64
	cluster      log.UUID
	cursor       log.Cursor
	scopes       map[log.Scope]log.Seq
	marked       atomic.Uint64 // of the last bookmark
	watermarkDue atomic.Bool   // a watermark
	wanted       atomic.Uint64 // a client waits for this seq
	dropState    atomic.Bool   // what it holds, before it connects again
	renewing     bool          // it dropped its state, and has had no bookmark since

	mu            sync.Mutex // protects what follows
	conn          net.Conn   // nil while there is none
	server        string     // of conn
	watermarkSent time.Time
	last          uint64 // seq of the last watermark
	chain         log.ChainPrefix
	delays        *load.Histogram // nil: none
}

func (a *agent) run(ctx context.Context) {
	attempts := 0
	for ctx.Err() == nil {
		live, err := a.follow(ctx, a.choose.Next(ctx))
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errHome) {
			a.fleet.moves.Add(1)
			continue
		}
		a.fleet.failures.Add(1)
		if live {
			attempts = 0
		}
		attempts++
		if !live || errors.Is(err, feed.ErrDrained) {
			a.choose.Failed()
		}
		select {
		case <-time.After(a.fleet.backoff(attempts)):
		case <-ctx.Done():
		}
	}
}

// errHome ends a connection because the agent goes back to its zone.
var errHome = errors.New("agentsim: the agent goes back to its zone")

// follow runs one connection. live reports whether a bookmark came.
func (a *agent) follow(ctx context.Context, server string) (live bool, err error) {
	dialing, cancel := context.WithTimeout(ctx, 5*time.Second)
	conn, err := a.dialer.Feed(dialing, server)
	cancel()
	if err != nil {
		return false, err
	}
	following, end := context.WithCancel(ctx)
	var homing sync.WaitGroup
	home := false
	homing.Go(func() {
		if to := a.choose.Away(following); to != "" {
			a.choose.Moved(to)
			home = true
			conn.Close()
		}
	})
	defer func() {
		end()
		homing.Wait()
		if home {
			err = errHome
		}
	}()
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	a.fleet.connects.Add(1)
	a.session++
	if a.dropState.Swap(false) {
		a.cursor, a.scopes, a.renewing = log.Cursor{}, nil, true
	}
	hello := &feed.Hello{CN: a.cn, Incarnation: a.incarnation, Session: a.session, Cursor: a.cursor}
	for scope, asOf := range a.scopes {
		hello.Scopes = append(hello.Scopes, feed.HeldScope{Scope: scope, AsOf: asOf})
	}
	b, err := feed.Append(nil, hello)
	if err != nil {
		return false, err
	}
	if _, err := conn.Write(b); err != nil {
		return false, err
	}
	a.setConn(conn, server)
	defer a.setConn(nil, "")
	defer func() {
		if live {
			a.fleet.live.Add(-1)
		}
	}()
	r := bufio.NewReaderSize(conn, readBuffer)
	for {
		if r.Buffered() == 0 {
			if err := conn.SetReadDeadline(time.Now().Add(feed.SilenceLimit)); err != nil {
				return live, err
			}
		}
		marked, err := a.frame(r)
		if err != nil {
			return live, err
		}
		if marked && !live {
			live = true
			a.choose.Fed()
			a.fleet.live.Add(1)
		}
	}
}

func (a *agent) setConn(conn net.Conn, server string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conn, a.server = conn, server
}

// frame reads one frame. marked reports whether it was a bookmark.
func (a *agent) frame(r *bufio.Reader) (marked bool, err error) {
	h, err := r.Peek(headerBytes)
	if err != nil {
		return false, err
	}
	n, t, seq := int(binary.BigEndian.Uint32(h)), feed.Type(h[4]), log.Seq(binary.BigEndian.Uint64(h[5:]))
	switch t {
	case feed.TypeEntry:
		return false, a.entry(r, n, seq)
	case feed.TypeObject:
		a.fleet.objects.Add(1)
		_, err := r.Discard(headerBytes + n)
		return false, err
	case feed.TypePong:
		_, err := r.Discard(headerBytes + n)
		return false, err
	}
	f, err := feed.NewReader(r).Next()
	if err != nil {
		return false, err
	}
	m, err := feed.Decode(f)
	if err != nil {
		return false, err
	}
	return a.message(m)
}

// entry measures the delay of an entry.
func (a *agent) entry(r *bufio.Reader, n int, seq log.Seq) error {
	var whole []byte
	at := a.fleet.stamps.of(seq, func() []byte {
		whole = make([]byte, headerBytes+n)
		if _, err := io.ReadFull(r, whole); err != nil {
			return nil
		}
		return whole[headerBytes+chainBytes:]
	})
	late := time.Since(at.Std())
	if whole == nil {
		if _, err := r.Discard(headerBytes + n); err != nil {
			return err
		}
	}
	a.fleet.entries.Add(1)
	a.mu.Lock()
	if a.delays == nil {
		a.delays = new(load.Histogram)
	}
	a.delays.Add(max(late, 0))
	a.mu.Unlock()
	return nil
}

// message handles a frame that changes the held scopes.
func (a *agent) message(m feed.Message) (marked bool, err error) {
	switch m := m.(type) {
	case *feed.Welcome:
		a.cluster = m.Head.Cluster
	case *feed.Reset:
		a.scopes = nil
	case *feed.ScopeEnd:
		if a.scopes == nil {
			a.scopes = make(map[log.Scope]log.Seq)
		}
		a.scopes[m.Scope] = m.AsOf
		a.fleet.scopes.Add(1)
	case *feed.ScopeDropped:
		delete(a.scopes, m.Scope)
	case *feed.Tell:
		a.wanted.Store(max(a.wanted.Load(), uint64(m.Seq)))
		a.sendWatermark(a.watermarkDue.Load())
	case *feed.Drain:
		a.fleet.drains.Add(1)
		return false, fmt.Errorf("%w: %s", feed.ErrDrained, m.Text)
	case *feed.Bookmark:
		a.cursor = log.Cursor{Cluster: a.cluster, Seq: m.Seq, Chain: m.Chain}
		a.mu.Lock()
		a.chain = m.Chain
		a.mu.Unlock()
		a.marked.Store(uint64(m.Seq))
		a.fleet.bookmarks.Add(1)
		if a.renewing {
			a.renewing = false
			a.fleet.renewed.Add(1)
		}
		a.sendWatermark(false)
		return true, nil
	}
	return false, nil
}

// sendWatermark sends a watermark: the simulated kernel is always at the cursor. If no
// client waits and the last watermark was sent too short ago, it is sent later.
func (a *agent) sendWatermark(owed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.conn == nil || !owed && a.last >= a.wanted.Load() && now.Sub(a.watermarkSent) < feed.TellLazily {
		a.watermarkDue.Store(a.conn != nil)
		return
	}
	a.watermarkDue.Store(false)
	seq := log.Seq(a.marked.Load())
	a.watermarkSent, a.last = now, uint64(seq)
	b, err := feed.Append(nil, &feed.Watermark{
		Applied: seq, Programmed: seq, Checked: seq, Log: log.Cursor{Cluster: a.cluster, Seq: seq, Chain: a.chain},
	})
	if err == nil {
		_ = a.conn.SetWriteDeadline(now.Add(time.Second))
		_, _ = a.conn.Write(b) // the reader learns of a broken connection
	}
}
