// Package readahead tells the kernel which pages of a bbolt file are read next.
package readahead

import (
	"syscall"
	"unsafe"
)

// bbolt tells the system that its map is read in no order (MADV_RANDOM), which
// is right for looking up rows. Whoever reads a file that is not in memory from
// one end to the other then waits for each page of it, so that one says what it
// reads next: MADV_WILLNEED (madvise(2)) reads that in the background. It is
// advice: an error changes nothing but the time.

const (
	// aheadBytes is how much is asked for at once: what a disk reads in some
	// milliseconds.
	aheadBytes = 4 << 20
	// aheadStrays is after how many pages in a row that lie elsewhere the reading
	// is taken to go on there. Single ones are common: each transaction puts some
	// into pages that others left.
	aheadStrays = 8
	pageBytes   = 4096
)

// Ahead asks for the pages behind those of the rows that it is shown. The zero
// value is ready.
type Ahead struct {
	from, to uintptr // what was asked for
	page     uintptr // of the last row
	strays   int
}

// Row notes that a row is read, of which the memory is the map's.
func (a *Ahead) Row(row []byte) {
	page := uintptr(unsafe.Pointer(unsafe.SliceData(row))) &^ (pageBytes - 1)
	if from, ok := a.next(page); ok {
		willNeed(from, aheadBytes)
	}
}

// next notes that a page is read, and says from which page on to ask, if so.
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

// AskFor asks for the pages of a value whose memory is the map's.
func AskFor(value []byte) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(value)))
	page := at &^ (pageBytes - 1)
	willNeed(page, at-page+uintptr(len(value)))
}
