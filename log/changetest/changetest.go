// Package changetest makes changes for tests: of operations that are written as
// text, and of bytes that are altered. It is for tests only.
package changetest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"

	"rutter/log"
)

// Tester is what both *testing.T and *rapid.T can do.
type Tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// UUID returns the UUID whose last bytes are n: #n# in a text.
func UUID(n uint64) (u log.UUID) {
	binary.BigEndian.PutUint64(u[8:], n)
	return u
}

// Expand puts the UUID of n, of 0 to 99, in the place of each #n#.
func Expand(text string) string {
	for n := range uint64(100) {
		text = strings.ReplaceAll(text, fmt.Sprintf("#%d#", n), UUID(n).String())
	}
	return text
}

// Op reads an operation: "create network {...}", "update network ID {...}",
// "update nic ID @3 {...}", of revision 3, or "@3-7", of seq 7 too, and "delete
// nic ID". In it #7# stands for UUID(7).
func Op(t Tester, text string) log.Op {
	t.Helper()
	head, body, hasBody := strings.Cut(Expand(text), "{")
	words := strings.Fields(head)
	action, err := log.ParseAction(words[0])
	if err != nil {
		t.Fatal(err)
	}
	kind, err := log.ParseKind(words[1])
	if err != nil {
		t.Fatal(err)
	}
	op := log.Op{Action: action, Kind: kind}
	for _, word := range words[2:] {
		if strings.HasPrefix(word, "@") {
			fmt.Sscanf(word, "@%d-%d", &op.IfMatch, &op.IfSeq) // or the revision alone
		} else {
			op.ID = word
		}
	}
	if hasBody {
		if op.Object, op.Set, err = log.ParseObject(kind, []byte("{"+body)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return op
}

// Mutate returns a change's bytes with a few altered, by rng alone; some come from
// others, bytes of other changes.
func Mutate(rng *rand.Rand, b []byte, others [][]byte) []byte {
	b = bytes.Clone(b)
	for range 1 + rng.IntN(4) {
		at := 1 + rng.IntN(len(b)-1)
		switch rng.IntN(5) {
		case 0:
			b[at] = byte(rng.IntN(256))
		case 1:
			b[at] ^= 1 << rng.IntN(8)
		case 2: // a piece of another
			o := others[rng.IntN(len(others))]
			from := rng.IntN(len(o))
			n := min(rng.IntN(40), len(b)-at, len(o)-from)
			copy(b[at:at+n], o[from:from+n])
		case 3:
			b[at] = []byte{0, 0xff, 0x7f, 0xc0, 0xc4, 0x90, 0xa0, 0xcf}[rng.IntN(8)]
		case 4: // an address, or a prefix, of IPv4 in the form of IPv6
			for i := 1; i+6 < len(b); i++ {
				if n := b[i+1]; b[i] == 0xc4 && (n == 4 || n == 5) {
					b = append(append(bytes.Clone(b[:i]), 0xc4, 12+n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff), b[i+2:]...)
					break
				}
			}
		}
	}
	return b
}
