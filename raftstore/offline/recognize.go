package offline

import (
	"encoding/binary"
	"io"
	"os"
	"strings"
	"syscall"

	"rutter/raftstore/internal/changesdb"
)

// Recognize reports whether a path is a regular file that begins as a snapshot does, how
// long it is, in bytes, and whether that is what its header says. It does not read the
// rest: InspectSnapshot verifies it. An empty file begins as anything.
func Recognize(path string) (begins, whole bool, size int64) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false, false, 0
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false, false, 0
	}
	header := make([]byte, changesdb.ImageHeader)
	n, _ := io.ReadFull(file, header) // a short file is no whole snapshot
	size = info.Size()
	begins = strings.HasPrefix(changesdb.ImageMagic, string(header[:min(n, len(changesdb.ImageMagic))]))
	want := binary.BigEndian.Uint64(header[8:])
	return begins, begins && n == len(header) && want <= 1<<62 && int64(want)+changesdb.ImageHeader+changesdb.ImageTrailer == size, size
}
