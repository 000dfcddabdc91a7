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

	"rutter/log"
	"rutter/log/feed"
)

// entriesBuffer is what is read of the log at once.
const entriesBuffer = 256 << 10

// Entries yields the entries of the log after a seq up to its head, in order,
// as they are stored: the fastest way to read all of it. Their hashes have only
// the chain's prefix. When a server goes away it goes on with the next, from
// where it was. After an error it yields nothing more; the errors are those of
// Log, and feed.ErrFrame.
func (c *Client) Entries(ctx context.Context, after log.Seq) iter.Seq2[log.Entry, error] {
	return func(yield func(log.Entry, error) bool) {
		for {
			place := after
			stopped, err := c.entriesOnce(ctx, &after, yield)
			if stopped {
				return
			}
			switch {
			case ctx.Err() != nil:
				err = ctx.Err()
			case errors.As(err, new(retry)) && after > place:
				continue // the answer broke off: go on from where it was
			}
			if err != nil {
				yield(log.Entry{}, err)
			}
			return
		}
	}
}

// Anchor says where entries that follow a seq begin: the place of the server's
// head, and the first of them, of which only the seq and the whole chain hash are
// filled in; its seq is 0 if there is none, or if the server does not tell.
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

// entriesOnce reads one answer, and moves *after along. The error is a retry if
// it broke off.
func (c *Client) entriesOnce(ctx context.Context, after *log.Seq, yield func(log.Entry, error) bool) (stopped bool, err error) {
	response, err := c.stream(ctx, request{
		method: http.MethodGet, path: "/log", query: url.Values{"after": {after.String()}}, headers: http.Header{"Accept": {feed.LogMedia}},
	})
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	if got := response.Header.Get("Content-Type"); got != feed.LogMedia {
		return false, fmt.Errorf("client: the server answers with %q, and does not know %s: upgrade it", got, feed.LogMedia)
	}
	r := feed.NewBulkReader(bufio.NewReaderSize(response.Body, entriesBuffer))
	for {
		f, err := r.Next()
		if errors.Is(err, feed.ErrFrame) || errors.Is(err, feed.ErrTooLarge) {
			return false, fmt.Errorf("client: log after seq %d: %w", *after, err)
		}
		if errors.Is(err, io.EOF) {
			err = errors.New("the log's answer ends without a bookmark")
		}
		if err != nil {
			return false, retry{err}
		}
		if f.Type == feed.TypeEntry {
			e, err := feed.DecodeEntry(f)
			if err == nil && e.Seq != *after+1 {
				err = fmt.Errorf("entry %d: %w", e.Seq, log.ErrCorrupt)
			}
			if err != nil {
				return false, fmt.Errorf("client: log after seq %d: %w", *after, err)
			}
			*after = e.Seq
			if !yield(e, nil) {
				return true, nil
			}
			continue
		}
		m, err := feed.Decode(f)
		if errors.Is(err, feed.ErrUnknownType) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("client: log after seq %d: %w", *after, err)
		}
		if _, end := m.(*feed.Bookmark); end {
			return false, nil
		}
	}
}
