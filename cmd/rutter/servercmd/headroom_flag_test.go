package servercmd

import (
	"testing"
)

func TestHeadroom(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "256MiB": 256 << 20, "64GiB": 64 << 30} {
		if got, err := headroomOf(text); got != want || err != nil {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "65GiB", "lots"} {
		if got, err := headroomOf(text); err == nil {
			t.Errorf("%q is %d, and was not refused", text, got)
		}
	}
}
