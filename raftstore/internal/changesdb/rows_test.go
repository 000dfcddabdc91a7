package changesdb

import (
	"errors"
	"testing"

	"rutter/log"
)

// Whatever byte of a row is damaged, and whatever other key it stands under, its reader
// finds it: nothing else checks a row that is read alone.
func TestRowsAreChecked(t *testing.T) {
	t.Parallel()
	key := SeqKey(5)
	event := EventRow(key, &Slot{Entry: log.Entry{Seq: 5, Bytes: []byte("event")}, More: 1})
	if _, err := ReadEvent(5, key, event); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadEvent(6, key, event); !errors.Is(err, log.ErrCorrupt) {
		t.Errorf("the event row of 5, for that of 6: %v, want ErrCorrupt", err)
	}
	if _, err := ReadEvent(6, SeqKey(6), event); !errors.Is(err, log.ErrCorrupt) {
		t.Errorf("the event row of 5, under the key of 6: %v, want ErrCorrupt", err)
	}
	body, err := log.NewEncoder().Object(&log.NICTag{Name: "external", MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	object := ObjectRow(log.KindNICTag, "external", 3, 7, body[1:]) // without the format byte
	if _, revision, seq, err := ReadObject(log.KindNICTag, "external", object); err != nil || revision != 3 || seq != 7 {
		t.Fatalf("revision %d of seq %d, %v", revision, seq, err)
	}
	if _, _, _, err := ReadObject(log.KindNICTag, "internal", object); !errors.Is(err, log.ErrCorrupt) {
		t.Errorf("the row of another object: %v, want ErrCorrupt", err)
	}
	for name, row := range map[string][]byte{"event": event, "object": object} {
		for i := range row {
			bad := append([]byte(nil), row...)
			bad[i] ^= 0x10
			if name == "event" {
				_, err = ReadEvent(5, key, bad)
			} else {
				_, _, _, err = ReadObject(log.KindNICTag, "external", bad)
			}
			if !errors.Is(err, log.ErrCorrupt) {
				t.Errorf("byte %d of the %s row changed: %v, want ErrCorrupt", i, name, err)
			}
		}
	}
}
