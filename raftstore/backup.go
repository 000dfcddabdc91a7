package raftstore

import (
	"context"
	"io"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
)

// Backup is a snapshot on its way out of a running server: an image as
// followers get it, with its own length and checksum. It is to be read to its
// end without long pauses, and closed.
type Backup struct {
	io.ReadCloser
	Cluster log.UUID
	Seq     log.Seq // the backup holds everything up to here
	Size    int64   // bytes that Read will give
}

// Backup begins a snapshot of this server's data, which has at least all that
// this server had applied when it was called. No write waits for it. Like an
// image for a follower it holds a read transaction, counts among the two that
// may be sent at once, and is dropped if it stands still for 30 s.
func (s *Store) Backup(ctx context.Context) (*Backup, error) {
	if err := s.stopCause(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// What was applied goes to the file first; an error of the disk is noticed
	// by the persister's own run as well.
	s.persister.Wake()
	if err := s.persister.Flush(); err != nil {
		return nil, err
	}
	meta, stream, err := s.images.Open("backup")
	if err != nil {
		return nil, err
	}
	b := &Backup{ReadCloser: stream, Size: meta.Size}
	if src, ok := stream.(*source); ok {
		b.Cluster, b.Seq = src.head.Cluster, src.head.Seq
	}
	return b, nil
}

// CheckImage reads a snapshot and fails unless its length and checksum fit.
func CheckImage(r io.Reader) error { return changesdb.CheckImage(r) }
