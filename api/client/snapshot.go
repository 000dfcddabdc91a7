package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"rutter/log"
)

// Headers of an answer to GET /snapshot.
const headerCluster = "Rutter-Cluster"

// snapshotIdle is how long a snapshot's stream may bring no data.
const snapshotIdle = 30 * time.Second

// Snapshot describes a snapshot.
type Snapshot struct {
	Server  string   `json:"server"`
	Cluster log.UUID `json:"cluster"`
	Seq     log.Seq  `json:"seq"`
	Bytes   int64    `json:"bytes"`
}

// Snapshot writes a snapshot of the store to w, from the server that answered last, or
// the next one. progress, if not nil, is called from time to time. After an error w may
// have a part of the snapshot, which its checksum would reveal.
func (c *Client) Snapshot(ctx context.Context, w io.Writer, progress func(done, all int64)) (Snapshot, error) {
	var s Snapshot
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	response, err := c.open(ctx, request{method: http.MethodGet, path: "/snapshot"})
	if err != nil {
		return s, err
	}
	body := response.Body
	if s, err = snapshotOf(response); err != nil {
		return s, errors.Join(err, body.Close())
	}
	defer body.Close()
	idle := time.AfterFunc(snapshotIdle, func() { cancel(errStill) })
	defer idle.Stop()
	n, err := io.Copy(w, &watched{body, func(n int64) {
		idle.Reset(snapshotIdle)
		if progress != nil {
			progress(n, s.Bytes)
		}
	}, 0})
	if err == nil && n != s.Bytes {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return s, fmt.Errorf("snapshot from %s: %d of %d bytes came: %w", s.Server, n, s.Bytes, errors.Join(err, context.Cause(ctx)))
	}
	return s, nil
}

// errStill ends a stream without progress.
var errStill = fmt.Errorf("client: nothing came for %v", snapshotIdle)

func snapshotOf(response *http.Response) (s Snapshot, err error) {
	of := response.Request.URL
	s.Server, s.Bytes = (&url.URL{Scheme: of.Scheme, Host: of.Host}).String(), response.ContentLength
	seq, err := strconv.ParseUint(response.Header.Get(HeaderSeq), 10, 64)
	if err == nil {
		s.Seq = log.Seq(seq)
		s.Cluster, err = log.ParseUUID(response.Header.Get(headerCluster))
	}
	if err != nil || s.Bytes <= 0 {
		return s, fmt.Errorf("client: %s: its snapshot has no cluster, seq or length: is it a server of another version?", s.Server)
	}
	return s, nil
}

// watched tells how many bytes were read.
type watched struct {
	io.Reader
	read func(n int64)
	n    int64
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.n += int64(n)
	w.read(w.n)
	return n, err
}
