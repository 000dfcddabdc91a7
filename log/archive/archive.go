// Package archive is the file form of a piece of the log: what `rutter log
// export` writes and `rutter log import` verifies.
//
// It owns the format. A file can be checked without a server. It has the cluster's id,
// where the file begins, a whole chain hash there, each entry with its checksum, and an
// end mark that shows whether the file is complete.
//
//	 0   8  "RUTTERLG"
//	 8   1  version, 1
//	 9   7  zero
//	16  16  id of the cluster
//	32   8  floor: the seq before the first entry
//	40   8  anchor: a seq, the floor or the one after
//	48  32  the chain hash at the anchor
//	80   4  CRC32C of what is before
//	84      Entry frames of package log/feed, in order and without a gap, then a
//	        Bookmark frame with the seq and the chain's prefix of the last
//
// Numbers are big endian. A server sends the whole hash of entries only, not that of
// its floor. In a file from a server the anchor is therefore the first entry, and only
// its checksum protects the bytes of that entry.
//
// A Writer and a Reader belong to one goroutine.
package archive

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"rutter/log"
	"rutter/log/feed"
)

const (
	magic      = "RUTTERLG"
	version    = 1
	headerSize = 84
	buffer     = 256 << 10 // bytes read or written at once
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header says which part of which log a file has.
type Header struct {
	Cluster log.UUID
	Floor   log.Seq // before the first entry
	// Anchor is Floor or the seq after it, and Chain the whole hash there.
	Anchor log.Seq
	Chain  log.Hash
}

func (h *Header) encode() []byte {
	b := append(make([]byte, 0, headerSize), magic...)
	b = append(b, version, 0, 0, 0, 0, 0, 0, 0)
	b = append(b, h.Cluster[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Floor))
	b = binary.BigEndian.AppendUint64(b, uint64(h.Anchor))
	b = append(b, h.Chain[:]...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeHeader(b []byte) (h Header, err error) {
	switch {
	case len(b) < headerSize || string(b[:8]) != magic:
		return h, fmt.Errorf("archive: this is no file of `rutter log export`: %w", log.ErrFormat)
	case b[8] != version:
		return h, fmt.Errorf("archive: version %d, and this program knows %d: %w", b[8], version, log.ErrFormat)
	case crc32.Checksum(b[:80], castagnoli) != binary.BigEndian.Uint32(b[80:]):
		return h, fmt.Errorf("archive: the header's checksum does not fit: %w", log.ErrCorrupt)
	}
	h.Cluster, h.Floor, h.Anchor, h.Chain = log.UUID(b[16:32]), log.Seq(binary.BigEndian.Uint64(b[32:])), log.Seq(binary.BigEndian.Uint64(b[40:])), log.Hash(b[48:80])
	if h.Anchor-h.Floor > 1 {
		return h, fmt.Errorf("archive: anchor %d of a file that begins behind %d: %w", h.Anchor, h.Floor, log.ErrCorrupt)
	}
	return h, nil
}

// chain computes the hashes of entries, one after another.
type chain struct {
	header Header
	seq    log.Seq
	hash   log.Hash
}

func newChain(h Header) chain { return chain{h, h.Floor, h.Chain} }

// next checks that e is the next entry, and sets its whole hash.
func (c *chain) next(e *log.Entry) error {
	if e.Seq != c.seq+1 {
		return fmt.Errorf("archive: entry %d where %d must be: %w", e.Seq, c.seq+1, log.ErrCorrupt)
	}
	hash := c.header.Chain // the anchor's own
	if e.Seq != c.header.Anchor {
		hash = c.hash.Next(e.Seq, e.Bytes)
	}
	if hash.Prefix() != e.Hash.Prefix() {
		return fmt.Errorf("archive: the chain breaks at seq %d: %w", e.Seq, log.ErrCorrupt)
	}
	c.seq, c.hash, e.Hash = e.Seq, hash, hash
	return nil
}

// Writer writes a file.
type Writer struct {
	w     *bufio.Writer
	chain chain
	frame []byte
}

// NewWriter writes the header. The caller closes w after Close.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	out := &Writer{w: bufio.NewWriterSize(w, buffer), chain: newChain(h)}
	_, err := out.w.Write(h.encode())
	return out, err
}

// Append writes the next entry. The prefix of its hash is enough. Errors:
// log.ErrCorrupt if e is not the next entry.
func (w *Writer) Append(e log.Entry) (err error) {
	if err := w.chain.next(&e); err != nil {
		return err
	}
	if w.frame, err = feed.AppendEntry(w.frame[:0], e); err != nil {
		return err
	}
	_, err = w.w.Write(w.frame)
	return err
}

// Close writes the end mark. A reader reports a file without it as cut off.
func (w *Writer) Close() error {
	end, err := feed.Append(nil, w.chain.end())
	if err != nil {
		return err
	}
	if _, err := w.w.Write(end); err != nil {
		return err
	}
	return w.w.Flush()
}

func (c *chain) end() *feed.Bookmark { return &feed.Bookmark{Seq: c.seq, Chain: c.hash.Prefix()} }

// Reader reads a file and verifies it.
type Reader struct {
	r      *bufio.Reader
	frames *feed.Reader
	chain  chain
}

// NewReader reads the header. Errors: log.ErrFormat if r is no such file,
// log.ErrCorrupt, r's.
func NewReader(r io.Reader) (*Reader, error) {
	in := bufio.NewReaderSize(r, buffer)
	b := make([]byte, headerSize)
	n, err := io.ReadFull(in, b)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	h, err := decodeHeader(b[:n])
	if err != nil {
		return nil, err
	}
	return &Reader{in, feed.NewBulkReader(in), newChain(h)}, nil
}

// Header returns the file's header.
func (r *Reader) Header() Header { return r.chain.header }

// Place returns the seq and the whole chain hash of the last entry that was read.
func (r *Reader) Place() (log.Seq, log.Hash) { return r.chain.seq, r.chain.hash }

// Next returns the next entry with its whole hash; io.EOF after the last. The caller
// may keep the entry's bytes. Errors: log.ErrCorrupt if anything does not fit or the
// end mark is missing; those of the io.Reader.
func (r *Reader) Next() (log.Entry, error) {
	f, err := r.frames.Next()
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return log.Entry{}, fmt.Errorf("archive: the file ends behind seq %d without its end: it was cut off: %w", r.chain.seq, log.ErrCorrupt)
		}
		return log.Entry{}, fmt.Errorf("archive: behind seq %d: %w: %w", r.chain.seq, log.ErrCorrupt, err)
	}
	if f.Type == feed.TypeEntry {
		e, err := feed.DecodeEntry(f)
		if err != nil {
			return log.Entry{}, fmt.Errorf("archive: behind seq %d: %w: %w", r.chain.seq, log.ErrCorrupt, err)
		}
		err = r.chain.next(&e)
		return e, err
	}
	m, err := feed.Decode(f)
	if err != nil {
		return log.Entry{}, fmt.Errorf("archive: behind seq %d: %w: %w", r.chain.seq, log.ErrCorrupt, err)
	}
	end, ok := m.(*feed.Bookmark)
	if want := r.chain.end(); !ok || end.Seq != want.Seq || end.Chain != want.Chain && end.Seq > 0 {
		return log.Entry{}, fmt.Errorf("archive: the end does not fit what is before it, seq %d: %w", r.chain.seq, log.ErrCorrupt)
	}
	if _, err := r.r.ReadByte(); !errors.Is(err, io.EOF) {
		return log.Entry{}, fmt.Errorf("archive: there is something behind the end: %w", log.ErrCorrupt)
	}
	return log.Entry{}, io.EOF
}
