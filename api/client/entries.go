package client

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"rutter/log"
	"rutter/log/feed"
)

// entriesBuffer is what is read of the log at once.
const entriesBuffer = 256 << 10

// Entries yields the entries of the log after a seq up to its head, in order, as they
// are stored. This is the fastest way to read the whole log. Their hashes have only the
// chain's prefix. If a server fails, it continues with the next one. After an error it
// yields nothing more. The errors are those of Log, and feed.ErrFrame.
func (c *Client) Entries(ctx context.Context, after log.Seq) iter.Seq2[log.Entry, error] {
	return func(yield func(log.Entry, error) bool) {
		at := log.Cursor{Seq: after} // without a cluster until an entry arrives
		for {
			from := at.Seq
			stopped, err := c.entriesOnce(ctx, &at, yield)
			if stopped {
				return
			}
			switch {
			case ctx.Err() != nil:
				err = ctx.Err()
			case errors.As(err, new(retry)) && at.Seq > from:
				continue // the answer broke off: continue from the last entry
			}
			if err != nil {
				yield(log.Entry{}, err)
			}
			return
		}
	}
}

// Anchor returns where entries after a seq begin: the position of the server's head,
// and the first entry, with only its seq and its whole chain hash. Its seq is 0 if
// there is none, or if the server does not report it.
func (c *Client) Anchor(ctx context.Context, after log.Seq) (head log.Cursor, first log.Entry, err error) {
	header, err := c.do(ctx, request{
		method: http.MethodHead, path: "/log", query: url.Values{"after": {after.String()}}, headers: http.Header{"Accept": {feed.LogMedia}},
	}, nil)
	if err != nil {
		return head, first, err
	}
	if head, err = log.ParseCursor(header.Get("Rutter-Cursor")); err != nil {
		return head, first, fmt.Errorf("client: %w", err)
	}
	seq, hash, ok := strings.Cut(header.Get("Rutter-Chain"), ":")
	if !ok {
		return head, first, nil
	}
	if first.Seq, err = log.ParseSeq(seq); err == nil {
		if n, hexErr := hex.Decode(first.Hash[:], []byte(hash[:min(len(hash), 2*len(first.Hash))])); hexErr != nil || n != len(first.Hash) {
			err = fmt.Errorf("client: the answer's chain hash %q is none", hash)
		}
	}
	return head, first, err
}

// entriesOnce reads one answer, and advances *at. The error is a retry if the answer
// broke off.
func (c *Client) entriesOnce(ctx context.Context, at *log.Cursor, yield func(log.Entry, error) bool) (stopped bool, err error) {
	query := url.Values{}
	goOn(query, *at)
	response, err := c.stream(ctx, request{
		method: http.MethodGet, path: "/log", query: query, headers: http.Header{"Accept": {feed.LogMedia}},
	})
	if err != nil {
		return false, err
	}
	if got := response.Header.Get("Content-Type"); got != feed.LogMedia {
		response.Body.Close()
		return false, fmt.Errorf("client: the server answers with %q, and does not know %s: upgrade it", got, feed.LogMedia)
	}
	a := &entriesAhead{
		frames: feed.NewBulkReader(bufio.NewReaderSize(response.Body, entriesBuffer)), last: at.Seq,
		batches: make(chan []log.Entry, batchesAhead), stop: make(chan struct{}),
	}
	var reading sync.WaitGroup
	reading.Go(a.run)
	defer func() {
		close(a.stop)
		response.Body.Close()
		reading.Wait()
	}()
	cluster := clusterOf(response.Header)
	for batch := range a.batches {
		for _, e := range batch {
			*at = log.Cursor{Cluster: cluster, Seq: e.Seq, Chain: e.Hash.Prefix()}
			if !yield(e, nil) {
				return true, nil
			}
		}
	}
	return false, a.err
}

// Bounds of the read-ahead: batchesAhead batches, each of so many entries or bytes.
// With them a connection on the same machine and the caller's goroutine never wait for
// each other to wake.
const (
	batchesAhead = 4
	batchEntries = 512
	batchBytes   = 256 << 10
)

// entriesAhead reads and checks the frames of an answer in its own goroutine, while the
// caller decodes earlier ones.
type entriesAhead struct {
	frames  *feed.Reader
	last    log.Seq          // of the last entry read
	batches chan []log.Entry // closed at the end
	stop    chan struct{}    // closed when the caller stops reading
	err     error            // why it ended; read after batches is closed
}

func (a *entriesAhead) run() {
	defer close(a.batches)
	for done := false; !done; {
		var batch []log.Entry
		for size := 0; !done && len(batch) < batchEntries && size < batchBytes; {
			var e log.Entry
			if e, done, a.err = a.next(); !done {
				if batch == nil {
					batch = make([]log.Entry, 0, batchEntries)
				}
				batch = append(batch, e)
				size += len(e.Bytes)
			}
		}
		select {
		case a.batches <- batch:
		case <-a.stop:
			return
		}
	}
}

// next reads one entry; done means that there is none, because of err or because the
// answer is complete.
func (a *entriesAhead) next() (e log.Entry, done bool, err error) {
	bad := func(err error) (log.Entry, bool, error) {
		return log.Entry{}, true, fmt.Errorf("client: log after seq %d: %w", a.last, err)
	}
	for {
		f, err := a.frames.Next()
		if errors.Is(err, feed.ErrFrame) || errors.Is(err, feed.ErrTooLarge) {
			return bad(err)
		}
		if errors.Is(err, io.EOF) {
			err = errors.New("the log's answer ends without a bookmark")
		}
		if err != nil {
			return e, true, retry{err}
		}
		if f.Type == feed.TypeEntry {
			if e, err = feed.DecodeEntry(f); err == nil && e.Seq != a.last+1 {
				err = fmt.Errorf("entry %d: %w", e.Seq, log.ErrCorrupt)
			}
			if err != nil {
				return bad(err)
			}
			a.last = e.Seq
			return e, false, nil
		}
		m, err := feed.Decode(f)
		if errors.Is(err, feed.ErrUnknownType) {
			continue
		}
		if err != nil {
			return bad(err)
		}
		if _, end := m.(*feed.Bookmark); end {
			return e, true, nil
		}
	}
}
