package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"rutter/api/rest"
	"rutter/log"
)

// Backups hands out snapshots of the store.
type Backups interface {
	// Backup begins a snapshot that holds at least what this server has applied.
	Backup(ctx context.Context) (Backup, error)
}

// Backup is a snapshot that is read to its end and closed. It carries its own
// length and checksum.
type Backup struct {
	io.ReadCloser
	Cluster log.UUID
	Seq     log.Seq
	Size    int64
}

// Headers of GET /snapshot.
const headerCluster = "Rutter-Cluster"

// backupBuffer is how much of a snapshot is read and written at once.
const backupBuffer = 256 << 10

// backup answers GET /snapshot with the whole store as one file.
func (c *clusterRoutes) backup(w http.ResponseWriter, r *http.Request) error {
	if c.backups == nil {
		return rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server of a cluster", "this server gives no snapshots")
	}
	p, err := rest.Query(r)
	if err != nil {
		return err
	}
	if err := c.read.fresh(r, p); err != nil {
		return err
	}
	b, err := c.backups.Backup(r.Context())
	if err != nil {
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeOverloaded, "try again, or another server", "no snapshot now: %v", err)
	}
	defer b.Close()
	// The connection is watched by its writes, for as long as they take.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(b.Size, 10))
	h.Set(headerCluster, b.Cluster.String())
	rest.SetSeq(w, b.Seq)
	if r.Method == http.MethodHead {
		return nil
	}
	c.logger.Info("sending a snapshot", "actor", c.read.guard.Actor(r), "seq", b.Seq, "bytes", b.Size)
	n, err := copySlowly(w, b)
	if err != nil || n != b.Size {
		// The length was announced: the client sees that it is cut off.
		c.logger.Warn("a snapshot was not sent whole", "bytes", n, "of", b.Size, "error", err)
	}
	return nil
}

// copySlowly copies for as long as each piece makes progress.
func copySlowly(w http.ResponseWriter, r io.Reader) (n int64, err error) {
	control := http.NewResponseController(w)
	buf := make([]byte, backupBuffer)
	for {
		k, err := r.Read(buf)
		_ = control.SetWriteDeadline(time.Now().Add(rest.AnswerTime))
		written, writeErr := w.Write(buf[:k])
		n += int64(written)
		if writeErr != nil {
			return n, writeErr
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}
