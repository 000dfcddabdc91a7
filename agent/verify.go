package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// bbolt trusts its file: a damaged page can end the process, from a goroutine whose
// panics cannot be recovered. So the pages are checked here, with each length and page
// number, before bbolt maps the file. The content of the rows is checked later, by
// their checksums.
//
// A page, in the machine's own byte order (bbolt internal/common page.go,
// meta.go, bucket.go; file format version 2):
//
//	0    8       10      12         16
//	| id | flags | count | overflow | elements, then keys and values
//
//	branch element  position (4, from the element's own start), key size (4), page (8)
//	leaf element    flags (4), position (4), key size (4), value size (4)
//	bucket (value)  root page (8, 0: the page stands behind this header), sequence (8)
//	meta            magic (4), version (4), page size (4), flags (4), root bucket (16),
//	                free list's page (8), first page never used (8), transaction (8), FNV-1a of the above (8)
const (
	cachePageSize  = 4096 // bytes; fixed, so that a cache moves between machines
	pageHeaderSize = 16
	pageElemSize   = 16
	bucketSize     = 16
	metaSize       = 64

	flagBranch     = 0x01
	flagLeaf       = 0x02
	leafIsBucket   = 0x01
	metaMagic      = 0xED0CDAED
	metaVersion    = 2
	noFreelistPage = 1<<64 - 1

	// maxTreeDepth bounds the walk. With two keys in a page, the fewest that bbolt
	// leaves, a deeper tree does not fit on any disk.
	maxTreeDepth = 48
)

// errFile is wrapped by all errors about damage of the cache file.
var errFile = errors.New("agent: cache file is damaged")

// fileMeta is the part of bbolt's meta page that the walk uses.
type fileMeta struct {
	root, free, pages, tx uint64
}

// verifyFile reports whether bbolt can safely open and walk the file of that size: nil,
// or an error that wraps errFile, or a read error.
func verifyFile(r io.ReaderAt, size int64) error {
	meta, err := newestMeta(r, size)
	if err != nil {
		return err
	}
	if meta.free != noFreelistPage {
		return fmt.Errorf("%w: it has a free list, which this program never writes", errFile)
	}
	if meta.pages > uint64(size)/cachePageSize {
		return fmt.Errorf("%w: it ends after %d bytes, but should have %d pages of %d", errFile, size, meta.pages, cachePageSize)
	}
	w := &fileWalk{r: r, pages: meta.pages, seen: make(map[uint64]bool)}
	return w.page(meta.root, keyRange{}, 0)
}

// newestMeta returns the valid meta page with the higher transaction, as bbolt does.
func newestMeta(r io.ReaderAt, size int64) (fileMeta, error) {
	var best fileMeta
	found := false
	for at := int64(0); at < 2*cachePageSize && at+cachePageSize <= size; at += cachePageSize {
		b := make([]byte, pageHeaderSize+metaSize)
		if _, err := r.ReadAt(b, at); err != nil {
			return fileMeta{}, fmt.Errorf("read meta page: %w", err)
		}
		if m, ok := readMeta(b); ok && (!found || m.tx > best.tx) {
			best, found = m, true
		}
	}
	if !found {
		return fileMeta{}, fmt.Errorf("%w: none of its two meta pages is whole", errFile)
	}
	return best, nil
}

func readMeta(b []byte) (fileMeta, bool) {
	order := binary.NativeEndian
	m := b[pageHeaderSize:]
	sum := fnv.New64a()
	sum.Write(m[:metaSize-8])
	ok := order.Uint32(m) == metaMagic && order.Uint32(m[4:]) == metaVersion &&
		order.Uint32(m[8:]) == cachePageSize && order.Uint64(m[56:]) == sum.Sum64()
	return fileMeta{root: order.Uint64(m[16:]), free: order.Uint64(m[32:]), pages: order.Uint64(m[40:]), tx: order.Uint64(m[48:])}, ok
}

// fileWalk visits each page once.
type fileWalk struct {
	r     io.ReaderAt
	pages uint64 // the first page number beyond the file
	seen  map[uint64]bool
}

// keyRange holds the keys of a subtree: from low on, and below high unless high is nil.
type keyRange struct{ low, high []byte }

func (k keyRange) has(key []byte) bool {
	return bytes.Compare(key, k.low) >= 0 && (k.high == nil || bytes.Compare(key, k.high) < 0)
}

// page checks the page id and everything below it.
func (w *fileWalk) page(id uint64, keys keyRange, depth int) error {
	if depth > maxTreeDepth {
		return fmt.Errorf("%w: page %d is %d levels deep", errFile, id, depth)
	}
	b, err := w.read(id)
	if err != nil {
		return err
	}
	order := binary.NativeEndian
	switch flags := order.Uint16(b[8:]); flags {
	case flagBranch:
		err = w.branch(b, keys, depth)
	case flagLeaf:
		err = w.leaf(b, keys, depth, false)
	default:
		err = fmt.Errorf("%w: flags %#x", errFile, flags)
	}
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// read returns the bytes of page id with its overflow pages. Each page may be read
// once.
func (w *fileWalk) read(id uint64) ([]byte, error) {
	if id < 2 || id >= w.pages {
		return nil, fmt.Errorf("%w: a page number %d of %d", errFile, id, w.pages)
	}
	b := make([]byte, cachePageSize)
	if _, err := w.r.ReadAt(b, int64(id)*cachePageSize); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	order := binary.NativeEndian
	overflow := uint64(order.Uint32(b[12:]))
	if order.Uint64(b) != id || overflow >= w.pages-id {
		return nil, fmt.Errorf("%w: page %d calls itself %d and has %d more of %d", errFile, id, order.Uint64(b), overflow, w.pages)
	}
	for n := id; n <= id+overflow; n++ {
		if w.seen[n] {
			return nil, fmt.Errorf("%w: page %d is used twice", errFile, n)
		}
		w.seen[n] = true
	}
	if overflow == 0 {
		return b, nil
	}
	b = make([]byte, (overflow+1)*cachePageSize)
	if _, err := w.r.ReadAt(b, int64(id)*cachePageSize); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	return b, nil
}

// elements checks that n elements fit into b.
func elements(b []byte) (n int, err error) {
	n = int(binary.NativeEndian.Uint16(b[10:]))
	if pageHeaderSize+n*pageElemSize > len(b) {
		return 0, fmt.Errorf("%w: %d elements in %d bytes", errFile, n, len(b))
	}
	return n, nil
}

// slice returns size bytes of b from at+pos on.
func slice(b []byte, at int, pos, size uint32) ([]byte, error) {
	from := uint64(at) + uint64(pos)
	if to := from + uint64(size); to <= uint64(len(b)) {
		return b[from:to:to], nil
	}
	return nil, fmt.Errorf("%w: %d bytes at %d of %d", errFile, size, from, len(b))
}

func (w *fileWalk) branch(b []byte, keys keyRange, depth int) error {
	n, err := elements(b)
	if err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("%w: a branch without children", errFile)
	}
	order := binary.NativeEndian
	found := make([][]byte, n)
	for i := range n {
		at := pageHeaderSize + i*pageElemSize
		if found[i], err = slice(b, at, order.Uint32(b[at:]), order.Uint32(b[at+4:])); err != nil {
			return err
		}
		if len(found[i]) == 0 || !keys.has(found[i]) || i > 0 && bytes.Compare(found[i-1], found[i]) >= 0 {
			return fmt.Errorf("%w: key %d of a branch is out of order", errFile, i)
		}
	}
	for i := range n {
		child := keyRange{low: found[i], high: keys.high}
		if i+1 < n {
			child.high = found[i+1]
		}
		at := pageHeaderSize + i*pageElemSize
		if err := w.page(order.Uint64(b[at+8:]), child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (w *fileWalk) leaf(b []byte, keys keyRange, depth int, inline bool) error {
	n, err := elements(b)
	if err != nil {
		return err
	}
	order := binary.NativeEndian
	var last []byte
	for i := range n {
		at := pageHeaderSize + i*pageElemSize
		flags, pos := order.Uint32(b[at:]), order.Uint32(b[at+4:])
		keySize, valueSize := order.Uint32(b[at+8:]), order.Uint32(b[at+12:])
		key, err := slice(b, at, pos, keySize)
		if err != nil {
			return err
		}
		if len(key) == 0 || !keys.has(key) || i > 0 && bytes.Compare(last, key) >= 0 {
			return fmt.Errorf("%w: key %d of a leaf is out of order", errFile, i)
		}
		last = key
		value, err := slice(b, at+int(keySize), pos, valueSize)
		if err != nil {
			return err
		}
		switch {
		case flags == 0:
		case flags == leafIsBucket && !inline:
			if err := w.bucket(value, depth); err != nil {
				return fmt.Errorf("bucket %q: %w", key, err)
			}
		default:
			return fmt.Errorf("%w: flags %#x of a leaf's element", errFile, flags)
		}
	}
	return nil
}

func (w *fileWalk) bucket(value []byte, depth int) error {
	if len(value) < bucketSize {
		return fmt.Errorf("%w: a header of %d bytes", errFile, len(value))
	}
	order := binary.NativeEndian
	if root := order.Uint64(value); root != 0 {
		return w.page(root, keyRange{}, depth+1)
	}
	page := value[bucketSize:]
	if len(page) < pageHeaderSize || order.Uint16(page[8:]) != flagLeaf || order.Uint32(page[12:]) != 0 {
		return fmt.Errorf("%w: its inline page is not a leaf", errFile)
	}
	return w.leaf(page, keyRange{}, depth, true)
}
