// Package readahead tells the kernel which pages of a bbolt file are read next.
package readahead

import (
	"syscall"
	"unsafe"
)

// bbolt advises the kernel that its map is read at random (MADV_RANDOM), which is right
// for looking up rows. But a caller that reads a whole file, not yet in memory, then
// waits for each page. Such a caller tells the kernel what it reads next: MADV_WILLNEED
// (madvise(2)) reads that in the background. It is only advice: an error costs time, and
// nothing else.

const (
	// aheadBytes is how many bytes are requested at once: a disk reads them in a few
	// milliseconds.
	aheadBytes = 4 << 20
	// aheadStrays is after how many pages in a row elsewhere in the file the reading
	// counts as going on there. Single pages elsewhere are common, because each
	// transaction reuses free pages.
	aheadStrays = 8
	pageBytes   = 4096
)

// Ahead requests the pages after those of the rows that are passed to it. The zero value
// is ready for use.
type Ahead struct {
	from, to uintptr // the range that was requested
	page     uintptr // of the last row
	strays   int
}

// Row notes that a row is read. Its memory must be in the file's map.
func (a *Ahead) Row(row []byte) {
	page := uintptr(unsafe.Pointer(unsafe.SliceData(row))) &^ (pageBytes - 1)
	if from, ok := a.next(page); ok {
		willNeed(from, aheadBytes)
	}
}

// next notes that a page is read. If ok, more pages are to be requested, beginning at
// from.
func (a *Ahead) next(page uintptr) (from uintptr, ok bool) {
	if page == a.page {
		return 0, false
	}
	a.page = page
	switch {
	case page >= a.from && page+aheadBytes/2 < a.to:
		a.strays = 0
		return 0, false
	case page >= a.from && page < a.to+aheadBytes:
		page = max(page, a.to)
	case a.strays < aheadStrays && a.to != 0:
		a.strays++
		return 0, false
	default:
		a.from = page
	}
	a.strays, a.to = 0, page+aheadBytes
	return page, true
}

func willNeed(at, size uintptr) {
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, at, size, syscall.MADV_WILLNEED)
}

// AskFor requests the pages of a value, whose memory must be in the file's map.
func AskFor(value []byte) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(value)))
	page := at &^ (pageBytes - 1)
	willNeed(page, at-page+uintptr(len(value)))
}
