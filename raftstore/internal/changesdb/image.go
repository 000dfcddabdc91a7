package changesdb

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"go.etcd.io/bbolt"

	"rutter/log"
)

// An image is the content of changes.db in one read transaction, in the form in which it
// is sent:
//
//	0         8         16
//	| "RUTTER\x00\x01" | length of the file (8, big endian) | the file | SHA-256 over all before (32) |
const (
	ImageMagic   = "RUTTER\x00\x01"
	ImageHeader  = 16
	ImageTrailer = sha256.Size
)

// Progress is called with the number of bytes or entries that are done, and their total.
// It must be quick. It may be nil.
type Progress func(done, all int64)

// ProgressEvery is how many rows pass between two calls of a Progress.
const ProgressEvery = 1 << 14

// Report calls p, unless it is nil.
func (p Progress) Report(done, all int64) {
	if p != nil {
		p(done, all)
	}
}

// WriteImage writes the image of a transaction.
func WriteImage(w io.Writer, tx *bbolt.Tx) error {
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	header := binary.BigEndian.AppendUint64([]byte(ImageMagic), uint64(tx.Size()))
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

// ReadImage writes the file that an image contains, and fails unless length and checksum
// fit. If file is nil, it only checks.
func ReadImage(r io.Reader, file io.Writer, progress Progress) error {
	sum := sha256.New()
	header := make([]byte, ImageHeader)
	if _, err := io.ReadFull(r, header); err != nil {
		return fmt.Errorf("a snapshot begins with %d bytes of header: %w: %w", ImageHeader, log.ErrFormat, err)
	}
	if string(header[:8]) != ImageMagic {
		return fmt.Errorf("it does not begin as a snapshot does: %w", log.ErrFormat) // without its bytes, because it may be any file
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
	trailer := make([]byte, ImageTrailer+1)
	n2, err := io.ReadFull(r, trailer)
	if n2 != ImageTrailer || !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("after its data the snapshot has %d bytes, not %d: %w", n2, ImageTrailer, log.ErrCorrupt)
	}
	if string(trailer[:ImageTrailer]) != string(sum.Sum(nil)) {
		return fmt.Errorf("the snapshot's checksum does not fit its content: %w", log.ErrCorrupt)
	}
	return nil
}

// CheckImage reads a snapshot and fails unless its length and checksum fit.
func CheckImage(r io.Reader) error { return ReadImage(r, nil, nil) }

type progressWriter struct {
	w         io.Writer
	done, all int64
	progress  Progress
}

// Write implements io.Writer.
func (p *progressWriter) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.done += int64(n)
	p.progress.Report(p.done, p.all)
	return n, err
}
