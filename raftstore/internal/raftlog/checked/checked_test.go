package checked

import (
	"errors"
	"testing"

	"rutter/log"
)

// TestSealedValues: what was sealed is opened, damage is found, and what is
// older passes.
func TestSealedValues(t *testing.T) {
	t.Parallel()
	key := []byte("LastVoteCand")
	for _, value := range []string{"", "wal", "boltdb", "10.0.0.1:7421", "\x00\x00\x00\x00\x00\x00\x00\x07"} {
		sealed := Seal(key, []byte(value))
		if got, err := Open(key, sealed); err != nil || string(got) != value {
			t.Errorf("%q: %q, %v", value, got, err)
		}
		if got, err := Open(key, []byte(value)); err != nil || string(got) != value {
			t.Errorf("%q without a checksum: %q, %v", value, got, err)
		}
		if len(sealed) == 8 {
			continue
		}
		sealed[len(sealed)-1] ^= 1
		if _, err := Open(key, sealed); !errors.Is(err, log.ErrCorrupt) {
			t.Errorf("%q damaged: %v, want ErrCorrupt", value, err)
		}
	}
}
