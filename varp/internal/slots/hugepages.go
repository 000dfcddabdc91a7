package slots

import (
	"syscall"
	"unsafe"
)

// hugePage is the size of a large page (Documentation/admin-guide/mm/transhuge.rst
// of Linux, on amd64 and arm64 with small pages of 4 KiB).
const hugePage = 2 << 20

// onHugePages asks Linux to keep rows on large pages, if they are many. Where a
// row is found by a hash, each lookup is on another page, and with small ones
// finding the page costs more than reading the row. BenchmarkGetMillion: 32 ns a
// lookup with it, 39 ns without. It is a hint: a kernel that does not take it
// answers as rightly, and slower.
func onHugePages[T any](rows []T) {
	var one T
	size := uintptr(len(rows)) * unsafe.Sizeof(one)
	start := uintptr(unsafe.Pointer(unsafe.SliceData(rows)))
	skip := (hugePage - start%hugePage) % hugePage
	if size < skip+hugePage {
		return
	}
	whole := (size - skip) / hugePage * hugePage
	memory := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(rows))), size)
	_ = syscall.Madvise(memory[skip:skip+whole], syscall.MADV_HUGEPAGE)
}
