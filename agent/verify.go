package agent

import (
	"errors"
	"fmt"
	"io"

	"rutter/log"
	"rutter/log/boltpages"
)

// cachePageSize is that of the cache file in bytes, on every machine, so that a cache
// moves between machines.
const cachePageSize = 4096

// errFile is wrapped by all errors about damage of the cache file.
var errFile = errors.New("agent: cache file is damaged")

// verifyFile reports whether bbolt can safely open and walk the file of that size: nil,
// or an error that wraps errFile, or a read error. The content of the rows is checked
// later, by their checksums.
func verifyFile(r io.ReaderAt, size int64) error {
	read := readerOf(r)
	meta, err := newestMeta(read, size)
	if err != nil {
		return err
	}
	if meta.FreeList != boltpages.NoFreeList {
		return fmt.Errorf("%w: it has a free list, which this program never writes", errFile)
	}
	if meta.Pages > uint64(size)/cachePageSize {
		return fmt.Errorf("%w: it ends after %d bytes, but should have %d pages of %d", errFile, size, meta.Pages, cachePageSize)
	}
	if err = boltpages.Check(read, meta); errors.Is(err, log.ErrCorrupt) {
		return fmt.Errorf("%w: %w", errFile, err)
	}
	return err
}

func readerOf(r io.ReaderAt) boltpages.Read {
	return func(at, n uint64) ([]byte, error) {
		b := make([]byte, n)
		_, err := r.ReadAt(b, int64(at))
		return b, err
	}
}

// newestMeta returns the valid meta page with the higher transaction, as bbolt does.
func newestMeta(read boltpages.Read, size int64) (best boltpages.Meta, err error) {
	found := false
	for at := int64(0); at < 2*cachePageSize && at+cachePageSize <= size; at += cachePageSize {
		m, err := boltpages.ReadMeta(read, uint64(at))
		if err != nil && !errors.Is(err, log.ErrCorrupt) {
			return best, fmt.Errorf("read meta page: %w", err)
		}
		if err == nil && m.PageSize == cachePageSize && (!found || m.Tx > best.Tx) {
			best, found = m, true
		}
	}
	if !found {
		return best, fmt.Errorf("%w: none of its two meta pages is whole", errFile)
	}
	return best, nil
}
