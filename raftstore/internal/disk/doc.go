// Package disk is what the store's packages share about the file system: the error that
// reports its trouble, opening and checking files, free space, and the operations under
// way. It does not know the content of the files.
package disk

import (
	"errors"
	"hash/crc32"
	"os"
)

// ErrTrouble: a file of the store could not be read or written; the server stops in
// order and keeps what it had. It is raftstore.ErrDisk.
var ErrTrouble = errors.New("raftstore: disk trouble")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC32C over the parts, as in rows, entries and notes.
func Checksum(parts ...[]byte) uint32 {
	var sum uint32
	for _, p := range parts {
		sum = crc32.Update(sum, castagnoli, p)
	}
	return sum
}

// FileSize returns the size of a file in bytes; 0 if there is no such file.
func FileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
