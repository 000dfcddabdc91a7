package boltfile

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"rutter/log"
	"rutter/log/boltpages"
	"rutter/raftstore/internal/disk"
)

// CheckPages walks the tree of a bbolt file. A strict check also requires both meta pages
// to be whole: with one damaged, bbolt falls back to the previous transaction, and raft's
// log would lose what it acknowledged. A missing or empty file is accepted.
func CheckPages(path string, strict bool) error {
	file, err := disk.OpenRegular(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", disk.ErrTrouble, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("%s: %w: %w", path, disk.ErrTrouble, err)
	}
	if info.Size() == 0 {
		return nil
	}
	data, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", path, disk.ErrTrouble, err)
	}
	ended, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		readAhead(data, ended)
	}()
	err = Guard(func() error { return walkPages(data, strict) })
	close(ended)
	<-read
	if err = errors.Join(err, syscall.Munmap(data)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

const (
	// adviceRead is MADV_POPULATE_READ (madvise(2), Linux 5.14).
	adviceRead = 22
	// readAheadBytes is how many bytes of a file are loaded into the map at once.
	readAheadBytes = 32 << 20
)

// readAhead loads a mapped file into memory, from its front to its end or until the walk
// has ended. It reads large pieces, beside the walk, which would else wait for each page.
// If the kernel does not support this, the walk itself loads the pages. Figure: the walk
// of a file of 7.2 GB that is not in memory takes 1.0 to 1.6 s, and 5.6 s without (bench:
// make bench-store PART=restart).
func readAhead(data []byte, ended <-chan struct{}) {
	for len(data) > 0 {
		select {
		case <-ended:
			return
		default:
		}
		part := data[:min(len(data), readAheadBytes)]
		if syscall.Madvise(part, adviceRead) != nil {
			return
		}
		data = data[len(part):]
	}
}

func walkPages(data []byte, strict bool) error {
	read := func(at, n uint64) ([]byte, error) {
		if at > uint64(len(data)) || n > uint64(len(data))-at {
			return nil, fmt.Errorf("the file ends before it: %w", log.ErrCorrupt)
		}
		return data[at:][:n], nil
	}
	var metas []boltpages.Meta
	var damaged error
	size := uint64(os.Getpagesize())
	for i := range uint64(2) {
		m, err := boltpages.ReadMeta(read, i*size)
		if err == nil && (m.PageSize < 512 || m.Pages > uint64(len(data))/m.PageSize) {
			err = fmt.Errorf("%d pages of %d bytes in a file of %d: %w", m.Pages, m.PageSize, len(data), log.ErrCorrupt)
		}
		if err != nil {
			damaged = errors.Join(damaged, fmt.Errorf("meta page %d: %w", i, err))
			continue
		}
		size = m.PageSize
		metas = append(metas, m)
	}
	if len(metas) == 0 || strict && damaged != nil {
		return damaged
	}
	return boltpages.Check(read, slices.MaxFunc(metas, func(a, b boltpages.Meta) int { return cmp.Compare(a.Tx, b.Tx) }))
}
