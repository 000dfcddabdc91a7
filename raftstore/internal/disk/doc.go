// Package disk is how the store's packages meet the file system: the error that
// trouble with it is told as, how files are opened and checked, how much room there
// is, and which operations are under way. It knows nothing of what the files hold.
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

// Checksum is the CRC32C over the parts, as rows, entries and notes bear it.
func Checksum(parts ...[]byte) uint32 {
	var sum uint32
	for _, p := range parts {
		sum = crc32.Update(sum, castagnoli, p)
	}
	return sum
}

// FileSize is the size of a file in bytes; 0 if it is not there.
func FileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
