package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"rutter/log"
)

// maxLine bounds one line of the log: an event's bytes as JSON, and more.
const maxLine = 8 * log.MaxEventBytes

// LogQuery selects entries. Zero means all of them.
type LogQuery struct {
	After  log.Seq    // entries after this one
	Follow bool       // continue with new entries
	Query  url.Values // filters of GET /log; last, since or cursor apply if After is 0
}

// Log yields the entries of the log in order. If a server ends its answer because the
// client has used up a budget, Log waits as long as the server says, and continues.
// With Follow it continues until ctx ends, also with the next server if one fails. It
// continues from a cursor: if the log was replaced meanwhile, for example by a restore,
// Log returns an error and yields no entry of the other log. After an error it yields
// nothing more. Errors: a *log.Refusal if the position cannot be served (older than
// what is kept, or of another log), ErrUnavailable, ctx's.
func (c *Client) Log(ctx context.Context, q LogQuery) iter.Seq2[log.Line, error] {
	return readLog(ctx, c, q, func(text []byte) (line log.Line, seq log.Seq, chain log.ChainPrefix, err error) {
		err = json.Unmarshal(text, &line)
		return line, line.Seq, line.Chain, err
	})
}

// LogText is Log that yields each entry as the line of JSON that the server sent, without
// its newline, in a fraction of the time. Each is one JSON value. The bytes are valid
// until the next one.
func (c *Client) LogText(ctx context.Context, q LogQuery) iter.Seq2[[]byte, error] {
	return readLog(ctx, c, q, func(text []byte) ([]byte, log.Seq, log.ChainPrefix, error) {
		seq, chain, err := placeOf(text)
		return text, seq, chain, err
	})
}

// placeOf returns the place of an entry that is a line of JSON.
func placeOf(text []byte) (seq log.Seq, chain log.ChainPrefix, err error) {
	if !json.Valid(text) {
		return 0, chain, errors.New("the line is no JSON")
	}
	if rest, ok := bytes.CutPrefix(text, []byte(`{"seq":`)); ok { // as servers of this version write it
		digits, _, _ := bytes.Cut(rest, []byte(","))
		if rest, ok = bytes.CutSuffix(rest, []byte(`"}`)); ok && bytes.HasSuffix(rest[:max(len(rest)-chainDigits, 0)], []byte(`,"chain":"`)) {
			if seq, err = log.ParseSeq(string(digits)); err == nil {
				chain, err = log.ParseChainPrefix(string(rest[len(rest)-chainDigits:]))
			}
			if err == nil {
				return seq, chain, nil
			}
		}
	}
	var line struct {
		Seq   log.Seq `json:"seq"`
		Chain string  `json:"chain"`
	}
	if err = json.Unmarshal(text, &line); err == nil {
		chain, err = log.ParseChainPrefix(line.Chain)
	}
	return line.Seq, chain, err
}

// chainDigits is the length of a chain prefix as text.
const chainDigits = 2 * len(log.ChainPrefix{})

// parsed reads the line of an entry: what is yielded of it, and its place.
type parsed[T any] func(text []byte) (line T, seq log.Seq, chain log.ChainPrefix, err error)

// readLog is Log with any form of the lines.
func readLog[T any](ctx context.Context, c *Client, q LogQuery, parse parsed[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		// Without a cluster until an entry arrives, because the caller gave only a seq.
		at := logPosition{Cursor: log.Cursor{Seq: q.After}, lines: ^uint64(0)}
		if n, err := strconv.ParseUint(q.Query.Get("limit"), 10, 64); err == nil {
			at.lines = n
		}
		for {
			at.more = false
			stopped, err := logOnce(ctx, c, q, &at, parse, yield)
			if stopped {
				return
			}
			switch {
			case ctx.Err() != nil:
				err = ctx.Err()
			case err == nil && (q.Follow || at.more && at.lines > 0), errors.As(err, new(retry)):
				continue // the stream ended: continue from the last entry
			}
			if err != nil {
				var none T
				yield(none, err)
			}
			return
		}
	}
}

// logPosition is the progress of a reader of the log.
type logPosition struct {
	log.Cursor
	more  bool   // the answer ended because of a budget
	lines uint64 // that may still come
}

// logOnce reads one answer of GET /log, and advances at. The error is a retry if the
// stream broke after it had begun.
func logOnce[T any](ctx context.Context, c *Client, q LogQuery, at *logPosition, parse parsed[T], yield func(T, error) bool) (stopped bool, err error) {
	query := cloneQuery(q.Query)
	if at.Seq > 0 || !query.Has("last") && !query.Has("since") && !query.Has("cursor") {
		for _, name := range []string{"last", "since", "cursor"} { // where to begin was found
			query.Del(name)
		}
		goOn(query, at.Cursor)
		if query.Has("limit") {
			query.Set("limit", strconv.FormatUint(at.lines, 10))
		}
	}
	if q.Follow {
		query.Set("follow", "1")
	}
	response, err := c.stream(ctx, request{method: http.MethodGet, path: "/log", query: query})
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	cluster := clusterOf(response.Header)
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue // a sign of life of the server
		}
		if err := brokenOff(lines.Bytes()); err != nil {
			return false, err
		}
		if next, ok := nextOf(lines.Bytes()); ok {
			at.Cursor, at.more = next, true
			continue
		}
		line, seq, chain, err := parse(lines.Bytes())
		if err != nil {
			return false, fmt.Errorf("client: line after seq %d: %w", at.Seq, err)
		}
		at.Cursor = log.Cursor{Cluster: cluster, Seq: seq, Chain: chain}
		at.lines--
		if !yield(line, nil) {
			return true, nil
		}
	}
	if err := lines.Err(); err != nil {
		return false, retry{err}
	}
	return false, nil
}

// goOn sets where an answer of GET /log begins: after a cursor, or after a seq if its
// cluster is unknown.
func goOn(query url.Values, at log.Cursor) {
	if at.Cluster.IsZero() {
		query.Set("after", at.Seq.String())
	} else {
		query.Set("cursor", at.String())
	}
}

// clusterOf returns the cluster of an answer of GET /log; zero if it is missing.
func clusterOf(header http.Header) log.UUID {
	head, err := log.ParseCursor(header.Get("Rutter-Cursor"))
	if err != nil {
		return log.UUID{}
	}
	return head.Cluster
}

// brokenOff returns the error of a last line that says why the answer ends.
func brokenOff(line []byte) error {
	var last struct {
		Error *log.Refusal `json:"error"`
	}
	if !bytes.HasPrefix(line, []byte(`{"error":`)) || json.Unmarshal(line, &last) != nil || last.Error == nil {
		return nil
	}
	return last.Error
}

// nextOf returns the cursor of a last line from which to continue.
func nextOf(line []byte) (next log.Cursor, ok bool) {
	var last struct {
		Next log.Cursor `json:"next"`
	}
	if !bytes.HasPrefix(line, []byte(`{"next":`)) || json.Unmarshal(line, &last) != nil {
		return next, false
	}
	return last.Next, true
}

// open sends r until a server answers with success, and leaves the body open.
func (c *Client) open(ctx context.Context, r request) (*http.Response, error) {
	deadline, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return ask(deadline, c, manner{read: true, slow: true}, func(try context.Context, server *url.URL) (*http.Response, error) {
		// The body outlives the deadline of finding a server.
		ctx, cancel := context.WithCancel(ctx)
		begun := context.AfterFunc(try, cancel)
		response, err := c.send(ctx, server, r)
		if err == nil && response.StatusCode >= 300 {
			err = errors.Join(readAnswer(response, nil), response.Body.Close())
		}
		if err != nil {
			begun()
			cancel()
			return nil, err
		}
		response.Body = &cancelled{response.Body, cancel}
		if !begun() { // another server was faster, or the time is over
			return nil, errors.Join(retry{try.Err()}, response.Body.Close())
		}
		return response, nil
	}, func(response *http.Response) { response.Body.Close() })
}

// cancelled is a body that ends its request when it is closed.
type cancelled struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b *cancelled) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}

// Upgrade is the protocol that GET /feed switches to (architecture section 6).
const Upgrade = "rutter-feed"

// Feed opens a connection to server, one of Servers, and upgrades it to a feed. The
// caller sends its hello (package log/feed) and must close the connection.
func (c *Client) Feed(ctx context.Context, server string) (net.Conn, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("client: server %q: %w", server, err)
	}
	conn, err := c.dial(ctx, u)
	if err != nil {
		return nil, err
	}
	upgraded, err := c.upgrade(ctx, conn, u, "/feed", Upgrade)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("feed of %s: %w", u.Host, err), conn.Close())
	}
	return upgraded, nil
}

// upgrade asks the server at u to switch conn to a protocol.
func (c *Client) upgrade(ctx context.Context, conn net.Conn, u *url.URL, path, protocol string) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(c.cfg.AttemptTimeout)); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String()+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", protocol)
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	response, err := http.ReadResponse(r, request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		defer response.Body.Close()
		return nil, readAnswer(response, nil)
	}
	return &bufferedConn{conn, r}, conn.SetDeadline(time.Time{})
}

// bufferedConn first reads the bytes that came with the answer's headers.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *bufferedConn) Read(b []byte) (int, error) {
	if c.r.Buffered() > 0 {
		return c.r.Read(b)
	}
	return c.Conn.Read(b)
}

// Head returns the seq of the last entry of a server.
func (c *Client) Head(ctx context.Context) (log.Seq, error) {
	header, err := c.do(ctx, request{method: http.MethodGet, path: "/status"}, nil)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(header.Get(HeaderSeq), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("client: the answer's %s header: %w", HeaderSeq, err)
	}
	return log.Seq(n), nil
}
