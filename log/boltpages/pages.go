package boltpages

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"rutter/log"
)

// Layout (go.etcd.io/bbolt/internal/common page.go, meta.go, inode.go), in the
// machine's byte order:
//
//	page     id (8) flags (2) count (2) overflow (4), then elements
//	branch   pos (4) ksize (4) pgid (8); the key stands pos bytes after the element
//	leaf     flags (4) pos (4) ksize (4) vsize (4); key and value stand there
//	bucket   root pgid (8) sequence (8), in a leaf's value; root 0: a page follows inline
//	meta     magic (4) version (4) page size (4) flags (4) root (16) freelist (8)
//	         high-water pgid (8) txid (8) FNV-64a over all before (8)
const (
	headerSize   = 16
	elementSize  = 16
	flagBranch   = 0x01
	flagLeaf     = 0x02
	leafBucket   = 0x01
	metaMagic    = 0xED0CDAED
	metaVersion  = 2
	metaSize     = 64
	bucketHeader = 16
	// maxDepth is far more than 2^64 keys would need.
	maxDepth = 64
)

// NoFreeList is Meta.FreeList of a file that was written without one.
const NoFreeList = 1<<64 - 1

var native = binary.NativeEndian

// Read returns n bytes of a file from at on. Callers of it do not change them.
type Read func(at, n uint64) ([]byte, error)

// Meta is the part of a meta page that tells where the tree is.
type Meta struct {
	PageSize uint64 // bytes
	Root     uint64 // page number
	FreeList uint64 // page number, or NoFreeList
	Pages    uint64 // the first page number that was never used
	Tx       uint64 // transaction; the whole meta page with the higher one counts
}

// ReadMeta reads the meta page that begins at a byte. The error wraps log.ErrCorrupt if
// the page is damaged.
func ReadMeta(read Read, at uint64) (Meta, error) {
	b, err := read(at+headerSize, metaSize)
	if err != nil {
		return Meta{}, err
	}
	sum := fnv.New64a()
	sum.Write(b[:metaSize-8])
	if native.Uint32(b) != metaMagic || native.Uint32(b[4:]) != metaVersion || native.Uint64(b[56:]) != sum.Sum64() {
		return Meta{}, fmt.Errorf("checksum does not fit: %w", log.ErrCorrupt)
	}
	return Meta{uint64(native.Uint32(b[8:])), native.Uint64(b[16:]), native.Uint64(b[32:]), native.Uint64(b[40:]), native.Uint64(b[48:])}, nil
}

// Check walks the tree of a meta page, whose pages must be within the file. The error
// wraps log.ErrCorrupt, unless it is one of read.
func Check(read Read, m Meta) error {
	w := &walk{read: read, meta: m, seen: make([]uint64, m.Pages/64+1)}
	return w.page(m.Root, nil, nil, 0)
}

type walk struct {
	read Read
	meta Meta
	seen []uint64 // a bit for each page
}

func damaged(id uint64, format string, args ...any) error {
	return fmt.Errorf("page %d: %s: %w", id, fmt.Sprintf(format, args...), log.ErrCorrupt)
}

// page checks a page and all pages below it. Its keys must be at least low and less than
// high, unless these are nil.
func (w *walk) page(id uint64, low, high []byte, depth int) error {
	if id < 2 || id >= w.meta.Pages || depth > maxDepth {
		return damaged(id, "out of the tree, at depth %d of %d pages", depth, w.meta.Pages)
	}
	p, err := w.read(id*w.meta.PageSize, w.meta.PageSize)
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	overflow := uint64(native.Uint32(p[12:]))
	if native.Uint64(p) != id || id+overflow >= w.meta.Pages {
		return damaged(id, "it says it is %d with %d more", native.Uint64(p), overflow)
	}
	for i := id; i <= id+overflow; i++ {
		if w.seen[i/64]&(1<<(i%64)) != 0 {
			return damaged(i, "referred to twice")
		}
		w.seen[i/64] |= 1 << (i % 64)
	}
	if overflow > 0 {
		if p, err = w.read(id*w.meta.PageSize, (overflow+1)*w.meta.PageSize); err != nil {
			return fmt.Errorf("page %d: %w", id, err)
		}
	}
	switch native.Uint16(p[8:]) {
	case flagBranch:
		return w.branch(id, p, low, high, depth)
	case flagLeaf:
		return w.leaf(id, p, low, high, depth, false)
	default:
		return damaged(id, "flags %x", native.Uint16(p[8:]))
	}
}

// element returns the bytes that an element refers to, which begin pos bytes after the
// element.
func element(p []byte, i int, pos, size uint64) ([]byte, bool) {
	start := uint64(headerSize+i*elementSize) + pos
	if pos < elementSize || start+size > uint64(len(p)) {
		return nil, false
	}
	return p[start:][:size], true
}

// inOrder reports whether a key may follow low, or be low if it is the first of its page.
func inOrder(key, low, high []byte, first bool) bool {
	if low != nil {
		if c := bytes.Compare(key, low); c < 0 || c == 0 && !first {
			return false
		}
	}
	return len(key) > 0 && (high == nil || bytes.Compare(key, high) < 0)
}

func (w *walk) branch(id uint64, p, low, high []byte, depth int) error {
	count := int(native.Uint16(p[10:]))
	if count == 0 || headerSize+count*elementSize > len(p) {
		return damaged(id, "%d elements", count)
	}
	key := func(i int) ([]byte, bool) {
		e := p[headerSize+i*elementSize:]
		return element(p, i, uint64(native.Uint32(e)), uint64(native.Uint32(e[4:])))
	}
	last := low
	for i := range count {
		k, ok := key(i)
		if !ok || !inOrder(k, last, high, i == 0) {
			return damaged(id, "key %d", i)
		}
		next := high
		if i+1 < count {
			if next, ok = key(i + 1); !ok {
				return damaged(id, "key %d", i+1)
			}
		}
		if err := w.page(native.Uint64(p[headerSize+i*elementSize+8:]), k, next, depth+1); err != nil {
			return err
		}
		last = k
	}
	return nil
}

func (w *walk) leaf(id uint64, p, low, high []byte, depth int, inline bool) error {
	count := int(native.Uint16(p[10:]))
	if headerSize+count*elementSize > len(p) {
		return damaged(id, "%d elements", count)
	}
	last := low
	for i := range count {
		e := p[headerSize+i*elementSize:]
		flags, pos := native.Uint32(e), uint64(native.Uint32(e[4:]))
		ksize, vsize := uint64(native.Uint32(e[8:])), uint64(native.Uint32(e[12:]))
		both, ok := element(p, i, pos, ksize+vsize)
		if !ok || flags > leafBucket || !inOrder(both[:ksize], last, high, i == 0) {
			return damaged(id, "element %d", i)
		}
		last = both[:ksize]
		if flags != leafBucket {
			continue
		}
		if inline {
			return damaged(id, "a bucket in an inline bucket")
		}
		if err := w.bucket(id, both[ksize:], depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) bucket(id uint64, value []byte, depth int) error {
	if len(value) < bucketHeader {
		return damaged(id, "a bucket of %d bytes", len(value))
	}
	if root := native.Uint64(value); root != 0 {
		return w.page(root, nil, nil, depth+1)
	}
	p := value[bucketHeader:]
	if len(p) < headerSize || native.Uint16(p[8:]) != flagLeaf || native.Uint32(p[12:]) != 0 {
		return damaged(id, "an inline bucket that is none")
	}
	return w.leaf(id, p, nil, nil, depth, true)
}
