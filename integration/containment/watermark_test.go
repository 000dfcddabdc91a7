package containment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rutter/api/auth/audit"
	"rutter/api/auth/matrix"
	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/log"
	"rutter/log/feed"
)

// liar is a CN that follows the feed, keeps nothing, and says what it likes.
type liar struct {
	conn   *feed.Conn
	marked chan log.Cursor // each bookmark, while there is room
	at     log.Cursor
}

func (l *liar) Welcome(m *feed.Welcome) error { l.at.Cluster = m.Head.Cluster; return nil }

func (l *liar) Bookmark(m *feed.Bookmark) error {
	l.at.Seq, l.at.Chain = m.Seq, m.Chain
	select {
	case l.marked <- l.at:
	default:
	}
	return nil
}

func (*liar) Reset(*feed.Reset) error               { return nil }
func (*liar) Entry(*feed.Entry) error               { return nil }
func (*liar) Object(*feed.Object) error             { return nil }
func (*liar) ScopeBegin(*feed.ScopeBegin) error     { return nil }
func (*liar) ScopeEnd(*feed.ScopeEnd) error         { return nil }
func (*liar) ScopeDropped(*feed.ScopeDropped) error { return nil }

// What a CN with a certificate of its own says of itself is held against what
// it was sent: one that says more is sent away with a reason, is in the audit log, and
// a barrier names it as missing, before, while and after it says so.
func TestWatermarkThatCannotBe(t *testing.T) {
	t.Parallel()
	c := cluster(t, bench.Options{TLS: true})
	cn := log.UUID{0: 0xc0, 6: 0x40, 8: 0x80, 15: 1}
	post(t, c, "/servers", fmt.Sprintf(`{"uuid":%q,"hostname":"cn1"}`, cn))
	dial, err := c.Authority.Dialer(matrix.Identity{Role: matrix.CN, UUID: cn, Name: cn.String()})
	if err != nil {
		t.Fatal(err)
	}
	api, err := client.New(client.Config{Servers: c.Client.Servers(), DialTLS: dial})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	wait := func(timeout time.Duration) client.Verdict {
		t.Helper()
		v, err := c.Client.Wait(patience(t), client.Barrier{Scopes: []log.Scope{log.CNScope(cn)}, Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	const far = log.Seq(1 << 62)
	for n, lie := range []struct {
		name string
		say  func(at log.Cursor) []feed.Watermark
	}{
		{"beyond all", func(at log.Cursor) []feed.Watermark {
			return []feed.Watermark{{Log: at, Applied: far, Programmed: far}}
		}},
		{"one beyond", func(at log.Cursor) []feed.Watermark {
			return []feed.Watermark{{Log: at, Applied: at.Seq + 1000, Programmed: at.Seq + 1000}}
		}},
		{"a kernel beyond what it knows", func(at log.Cursor) []feed.Watermark {
			return []feed.Watermark{{Log: at, Applied: at.Seq, Programmed: far}}
		}},
		{"another cluster", func(at log.Cursor) []feed.Watermark {
			at.Cluster = log.UUID{1, 6: 0x40, 8: 0x80}
			return []feed.Watermark{{Log: at, Applied: at.Seq, Programmed: at.Seq}}
		}},
		{"another chain", func(at log.Cursor) []feed.Watermark {
			at.Chain[0]++
			return []feed.Watermark{{Log: at, Applied: at.Seq, Programmed: at.Seq}}
		}},
	} {
		server := c.Servers[n%len(c.Servers)]
		conn, err := api.Feed(patience(t), server.URL)
		if err != nil {
			t.Fatal(err)
		}
		l := &liar{conn: feed.NewConn(conn), marked: make(chan log.Cursor, 1)}
		ended := make(chan error, 1)
		go func() {
			ended <- l.conn.Follow(patience(t), &feed.Hello{CN: cn, Incarnation: uint64(n + 1), Session: 1}, l)
		}()
		at := <-l.marked
		if v := wait(300 * time.Millisecond); v.Done || v.Total != 1 || v.Missing[0].CN != cn {
			t.Errorf("%s: before: %+v", lie.name, v)
		}
		// A client waits while the lie is sent.
		waited := make(chan client.Verdict, 1)
		go func() { waited <- wait(700 * time.Millisecond) }()
		time.Sleep(50 * time.Millisecond)
		for _, w := range lie.say(at) {
			l.conn.Watermark(w)
		}
		var drain *feed.DrainError
		if err := <-ended; !errors.As(err, &drain) || drain.Drain.Reason != feed.DrainDisbelieved || drain.Drain.Text == "" {
			t.Errorf("%s: its session ends with %v, want to be disbelieved", lie.name, err)
		}
		for _, v := range []client.Verdict{<-waited, wait(300 * time.Millisecond)} {
			if v.Done || v.Total != 1 || len(v.Missing) != 1 || v.Missing[0].CN != cn || v.Missing[0].Programmed > at.Seq {
				t.Errorf("%s: %+v; want the CN to be named", lie.name, v)
			}
		}
		if !audited(t, server, cn) {
			t.Errorf("%s: the audit log of %s does not tell of it", lie.name, server.ID)
		}
	}
}

// audited reports whether a server's audit log tells of a disbelieved watermark, and
// waits a little for it.
func audited(t *testing.T, server *bench.Server, cn log.UUID) bool {
	t.Helper()
	folder := server.Args[slices.Index(server.Args, "--data")+1]
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for ctx.Err() == nil {
		b, err := os.ReadFile(filepath.Join(folder, audit.Name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, `"`+string(audit.Disbelieved)+`"`) && strings.Contains(line, cn.String()) {
				return true
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}
