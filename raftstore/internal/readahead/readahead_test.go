package readahead

import "testing"

// TestAhead: one who reads page after page asks for each of them once, ahead of
// itself; single pages elsewhere ask for nothing, and many move it there.
func TestAhead(t *testing.T) {
	t.Parallel()
	var a Ahead
	const begin, pages = uintptr(1 << 30), 4096
	asked := begin
	for i := range uintptr(pages) {
		if i%100 == 99 { // a stray, as each transaction leaves one
			if from, ok := a.next(4096 * i); ok {
				t.Fatalf("a stray page asked from %#x", from)
			}
		}
		page := begin + i*pageBytes
		from, ok := a.next(page)
		if ok && from != asked {
			t.Fatalf("at page %d: asked from %#x, want %#x", i, from, asked)
		}
		if ok {
			asked += aheadBytes
		}
		if asked <= page || asked > page+2*aheadBytes {
			t.Fatalf("at page %d: %d bytes are asked ahead", i, int64(asked)-int64(page))
		}
		if _, again := a.next(page); again {
			t.Fatalf("page %d asked twice", i)
		}
	}
	moved := uintptr(0)
	for i := range uintptr(aheadStrays + 1) {
		if from, ok := a.next(8<<30 + i*pageBytes); ok {
			moved = from
		}
	}
	if want := uintptr(8<<30 + aheadStrays*pageBytes); moved != want {
		t.Errorf("after %d pages elsewhere it asks from %#x, want %#x", aheadStrays+1, moved, want)
	}
}
