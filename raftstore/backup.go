package raftstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
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
	signal(s.persister.kick)
	if err := s.persister.flush(); err != nil {
		return nil, err
	}
	meta, stream, err := s.images.Open("backup")
	if err != nil {
		return nil, err
	}
	b := &Backup{ReadCloser: stream, Size: meta.Size}
	if src, ok := stream.(*source); ok {
		b.Cluster, b.Seq = src.head.cluster, src.head.seq
	}
	return b, nil
}

// BackupFolder writes a snapshot of a data folder that no server has open, and
// says what it holds. Everything is verified before the first byte is written.
func BackupFolder(dir string, w io.Writer, progress Progress) (*Content, error) {
	c, err := InspectFolder(dir, progress)
	if err != nil {
		return nil, err
	}
	db, err := bbolt.Open(filepath.Join(dir, dbName), 0o600, &bbolt.Options{Timeout: boltfile.LockWait, ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", dir, ErrDisk, err)
	}
	err = db.View(func(tx *bbolt.Tx) error { return writeImage(w, tx) })
	return c, errors.Join(err, db.Close())
}

// writeImage writes the image of a transaction.
func writeImage(w io.Writer, tx *bbolt.Tx) error {
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	header := binary.BigEndian.AppendUint64([]byte(imageMagic), uint64(tx.Size()))
	if _, err := out.Write(header); err != nil {
		return err
	}
	n, err := tx.WriteTo(out)
	if err != nil {
		return err
	}
	if n != tx.Size() {
		return fmt.Errorf("raftstore: the image has %d bytes, not %d: %w", n, tx.Size(), log.ErrCorrupt)
	}
	_, err = w.Write(sum.Sum(nil))
	return err
}

// readImage writes the file that an image holds, and fails unless length and
// checksum fit. A file is nil if only the check is wanted.
func readImage(r io.Reader, file io.Writer, progress Progress) error {
	sum := sha256.New()
	header := make([]byte, imageHeader)
	if _, err := io.ReadFull(r, header); err != nil {
		return fmt.Errorf("a snapshot begins with %d bytes of header: %w: %w", imageHeader, log.ErrFormat, err)
	}
	if string(header[:8]) != imageMagic {
		return fmt.Errorf("it does not begin as a snapshot does: %w", log.ErrFormat) // without its bytes: it may be any file
	}
	sum.Write(header)
	size := binary.BigEndian.Uint64(header[8:])
	if size > 1<<62 {
		return fmt.Errorf("a snapshot of %d bytes: %w", size, log.ErrCorrupt)
	}
	out := io.Writer(sum)
	if file != nil {
		out = io.MultiWriter(file, sum)
	}
	n, err := io.Copy(&progressWriter{w: out, all: int64(size), progress: progress}, io.LimitReader(r, int64(size)))
	if err != nil {
		return err
	}
	if uint64(n) != size {
		return fmt.Errorf("the snapshot ends after %d of %d bytes: it was not saved whole: %w", n, size, log.ErrCorrupt)
	}
	trailer := make([]byte, imageTrailer+1)
	n2, err := io.ReadFull(r, trailer)
	if n2 != imageTrailer || !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("after its data the snapshot has %d bytes, not %d: %w", n2, imageTrailer, log.ErrCorrupt)
	}
	if string(trailer[:imageTrailer]) != string(sum.Sum(nil)) {
		return fmt.Errorf("the snapshot's checksum does not fit its content: %w", log.ErrCorrupt)
	}
	return nil
}

// CheckImage reads a snapshot and fails unless its length and checksum fit.
func CheckImage(r io.Reader) error { return readImage(r, nil, nil) }

type progressWriter struct {
	w         io.Writer
	done, all int64
	progress  Progress
}

// Write implements io.Writer.
func (p *progressWriter) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.done += int64(n)
	p.progress.tell(p.done, p.all)
	return n, err
}

// extract writes the file of a snapshot to path, synced, and inspects it.
func extract(snapshot, path string, progress Progress) (c *Content, err error) {
	in, err := OpenRegular(snapshot)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDisk, err)
	}
	err = readImage(in, out, progress)
	if err != nil {
		err = fmt.Errorf("%s: %w", snapshot, err)
	} else if err = out.Sync(); err != nil {
		err = fmt.Errorf("%s: %w: %w", path, ErrDisk, err)
	}
	if err = errors.Join(err, out.Close()); err == nil {
		c, err = inspectFile(path, progress)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return c, nil
}

// InspectSnapshot verifies a snapshot file and says what it holds. It needs
// room for the data in the folder for temporary files.
func InspectSnapshot(snapshot string, progress Progress) (*Content, error) {
	dir, err := os.MkdirTemp("", "rutter-inspect-")
	if err != nil {
		return nil, err
	}
	c, err := extract(snapshot, filepath.Join(dir, dbName), progress)
	return c, errors.Join(err, os.RemoveAll(dir))
}
