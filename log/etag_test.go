package log

import (
	"math"
	"testing"
)

func TestETag(t *testing.T) {
	for _, c := range []struct {
		revision Revision
		seq      Seq
		tag      string
	}{{1, 1, `"1-1"`}, {3, 1207, `"3-1207"`}, {math.MaxUint64, math.MaxUint64, `"18446744073709551615-18446744073709551615"`}} {
		if got := ETag(c.revision, c.seq); got != c.tag {
			t.Errorf("got %s, want %s", got, c.tag)
		}
		for _, text := range []string{c.tag, c.tag[1 : len(c.tag)-1]} {
			if revision, seq, err := ParseETag(text); err != nil || revision != c.revision || seq != c.seq {
				t.Errorf("%s: got %d, %d, %v", text, revision, seq, err)
			}
		}
	}
	for _, text := range []string{"", `"`, `""`, "3", `"3"`, "3-", "-3", "0-3", "3-0", "03-3", "3-03", "+3-3", "3-3-3", "3--3", `"3-3`, `W/"3-3"`, " 3-3", "18446744073709551616-1", "*"} {
		if revision, seq, err := ParseETag(text); err == nil {
			t.Errorf("%q: got %d, %d", text, revision, seq)
		}
	}
}
