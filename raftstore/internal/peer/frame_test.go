package peer

import (
	"bufio"
	"bytes"
	"testing"
)

func FuzzFrame(f *testing.F) {
	f.Add(appendFrame(nil, Frame{7, 1, []byte("change")}))
	f.Add([]byte{0, 0, 0, 1, 0})
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readFrame(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			return
		}
		if again := appendFrame(nil, got); !bytes.HasPrefix(b, again) {
			t.Errorf("%x does not begin with %x", b, again)
		}
	})
}
