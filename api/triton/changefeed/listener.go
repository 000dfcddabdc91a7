package changefeed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"rutter/log"
)

// listener is one websocket. Only its position in the log is kept for it: it reads only
// what it can send.
type listener struct {
	s      *Service
	conn   *websocket.Conn
	remote string
	since  time.Time
	reg    *registration // set before it joins the hub

	woken chan struct{} // has room for one

	next log.Seq // the first entry that may concern it, 0: none; protected by hub.mu

	over   chan struct{} // closed by the first end
	ending sync.Once
	reason string // of the end; set before over is closed

	lastText atomic.Int64 // time of the last text, in nanoseconds since 1970

	sentSeq log.Seq // of the last cursor that it was sent; used by serve only
	sentAt  time.Time
}

// want reports whether an item concerns the registration.
func (r *registration) want(it *item) bool {
	for i := range r.wants {
		if r.wants[i].wants(it) {
			return true
		}
	}
	return false
}

// resources returns the names of the registration's resources, each once.
func (r *registration) resources() []string {
	var names []string
	seen := make(map[string]bool)
	for _, n := range r.wants {
		if !seen[n.Resource] {
			names = append(names, n.Resource)
		}
		seen[n.Resource] = true
	}
	return names
}

// wake makes serve look for due items. It never blocks.
func (l *listener) wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// end closes the connection with a reason. Only the first call has an effect.
func (l *listener) end(reason string) {
	l.ending.Do(func() {
		l.reason = rejectf("%s", reason).reason
		close(l.over)
	})
}

// errGone: the other side ended the connection, or receives nothing.
var errGone = errors.New("changefeed: the listener went")

// serve serves the connection until it ends; version is its protocol. A refused
// connection stays open until the reason is sent.
func (l *listener) serve(version Version) (why string) {
	if err := l.register(version); err != nil {
		var refused *reject
		if errors.As(err, &refused) {
			l.end(refused.reason)
			return closedRejected
		}
		return closedGone
	}
	defer l.s.hub.leave(l)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer l.conn.CloseNow() // ends the reader
	reading.Go(l.read)
	err := l.write(&reading)
	switch {
	case errors.Is(err, errSlow):
		return closedSlow
	case err != nil:
		return closedGone
	}
	_ = l.conn.Close(websocket.StatusNormalClosure, l.reason)
	return closedByServer
}

// register reads the registration and answers it.
func (l *listener) register(version Version) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.s.cfg.RegisterTime)
	defer cancel()
	defer context.AfterFunc(l.s.ctx, cancel)()
	l.conn.SetReadLimit(maxRegistration)
	_, data, err := l.conn.Read(ctx)
	if err != nil {
		return err
	}
	if l.reg, err = parseRegistration(version, data); err != nil {
		return err
	}
	from, reason, err := l.resume(ctx)
	if err != nil {
		return err
	}
	at, err := l.s.hub.join(l, from)
	if err != nil {
		return rejectf(replacedLog)
	}
	answer, err := l.reg.reply(at, from != nil, reason)
	if err == nil {
		err = l.send(answer)
	}
	if err != nil {
		l.s.hub.leave(l)
		return err
	}
	l.sentSeq, l.sentAt = at.Seq, time.Now()
	return nil
}

// resume checks the cursor of the registration. It returns nil and the reason if the
// listener must read the objects again. If this server is behind the cursor, it waits.
func (l *listener) resume(ctx context.Context) (from *log.Cursor, reason string, err error) {
	cursor := l.reg.from
	if cursor == (log.Cursor{}) {
		return nil, "", nil
	}
	store := l.s.cfg.Store
	if head := store.Head(); head.Cluster == cursor.Cluster && head.Seq < cursor.Seq {
		// A cursor beyond the leader's head belongs to no log (SAFETY P4).
		if _, err := store.Consistent(ctx); err != nil {
			return nil, "", rejectf("this server has not reached the cursor: try again")
		}
	}
	switch err := store.CheckCursor(cursor); {
	case err == nil:
		return &cursor, "", nil
	case errors.Is(err, log.ErrOtherLog):
		return nil, "the cursor is of another log", nil
	case errors.Is(err, log.ErrAhead):
		return nil, "the cursor is ahead of the log", nil
	case errors.Is(err, log.ErrCompacted):
		return nil, "the log no longer keeps what follows the cursor", nil
	default:
		return nil, "", rejectf("the cursor cannot be judged: %v", err)
	}
}

// read reads the listener's texts. After the registration they are only signs of life:
// heartbeats, pongs, and the close.
func (l *listener) read() {
	for {
		_, r, err := l.conn.Reader(context.Background())
		if err == nil {
			l.lastText.Store(time.Now().UnixNano())
			_, err = io.Copy(io.Discard, r)
		}
		if err != nil {
			_ = l.conn.CloseNow() // the writer sees it
			l.end("")
			return
		}
	}
}

// write sends what is due, until the listener is ended (nil) or gone.
func (l *listener) write(running *sync.WaitGroup) error {
	ping := time.NewTicker(l.s.cfg.PingEvery)
	defer ping.Stop()
	var pinging sync.Mutex
	for {
		select {
		case <-l.over:
			if l.reason == "" {
				return errGone
			}
			return nil
		case <-l.woken:
			if err := l.catchUp(); err != nil {
				return err
			}
		case <-ping.C:
			if err := l.bookmark(); err != nil {
				return err
			}
			if pinging.TryLock() {
				running.Go(func() {
					defer pinging.Unlock()
					l.ping()
				})
			}
		}
	}
}

// ping closes the connection if the listener neither answers nor sends a
// heartbeat meanwhile.
func (l *listener) ping() {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), l.s.cfg.PongTime)
	defer cancel()
	if err := l.conn.Ping(ctx); err != nil && l.lastText.Load() < began.UnixNano() {
		_ = l.conn.CloseNow()
		l.end("")
	}
}

// catchUp sends the items that are due.
func (l *listener) catchUp() error {
	next, upTo := l.s.hub.due(l)
	if next == 0 {
		return nil
	}
	for place := next - 1; place < upTo.Seq; {
		items, err := l.s.hub.after(l, place, upTo)
		if errors.Is(err, errReplaced) {
			l.end(replacedLog)
			return nil
		}
		if err != nil || len(items) == 0 {
			l.end(fmt.Sprintf("what follows seq %d cannot be read, register anew: %v", place, err))
			return nil
		}
		for _, it := range items {
			if it.cursor.Seq > upTo.Seq {
				break
			}
			place = it.cursor.Seq
			if err := l.sendAll(it); err != nil {
				return err
			}
		}
		select {
		case <-l.over:
			return nil // write sees it too
		default:
		}
	}
	return nil
}

// sendAll sends the items of an entry that the listener wants. Only the last one has the
// cursor behind the entry, so that a listener that resumes there has got them all.
func (l *listener) sendAll(it *item) error {
	var wanted []*item
	for _, one := range append([]*item{it}, it.also...) {
		if l.reg.want(one) {
			wanted = append(wanted, one)
		}
	}
	for i, one := range wanted {
		if err := l.sendItem(one, i == len(wanted)-1); err != nil {
			return err
		}
	}
	return nil
}

func (l *listener) sendItem(it *item, last bool) error {
	text, err := it.text(l.reg.withCursor && last, l.s.cfg.VM)
	if err != nil {
		l.end(err.Error())
		return nil
	}
	if text == nil {
		return nil
	}
	if err := l.send(text); err != nil {
		return err
	}
	l.s.metrics.items.Inc()
	l.sentSeq, l.sentAt = it.cursor.Seq, time.Now()
	return nil
}

// bookmark sends a listener its position if it got none for a while. Else its cursor
// would become too old because no item concerned it.
func (l *listener) bookmark() error {
	if !l.reg.withCursor || time.Since(l.sentAt) < l.s.cfg.BookmarkEvery {
		return nil
	}
	l.s.hub.mu.Lock()
	at, quiet := l.s.hub.at, l.next == 0
	l.s.hub.mu.Unlock()
	if !quiet || at.Seq == l.sentSeq {
		return nil
	}
	text, err := json.Marshal(struct {
		Cursor log.Cursor `json:"cursor"`
		Seq    log.Seq    `json:"seq"`
	}{at, at.Seq})
	if err != nil {
		return err
	}
	l.sentSeq, l.sentAt = at.Seq, time.Now()
	return l.send(text)
}

// errSlow: the listener received nothing for too long.
var errSlow = errors.New("changefeed: the listener is slow")

// send writes one text, in one frame. A listener that does not receive it in time is
// disconnected.
func (l *listener) send(text []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.s.cfg.WriteTime)
	defer cancel()
	err := l.conn.Write(ctx, websocket.MessageText, text)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", errSlow, err)
	case errors.Is(err, net.ErrClosed):
		return errGone
	}
	return fmt.Errorf("%w: %w", errGone, err)
}
