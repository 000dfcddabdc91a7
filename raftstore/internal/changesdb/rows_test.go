package changesdb

import (
	"errors"
	"testing"

	"go.etcd.io/bbolt"

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

// A marker is at most at the applied index: raft would skip what is between (SAFETY S2).
// A file of a later feature version is not read.
func TestMetaIsChecked(t *testing.T) {
	t.Parallel()
	p := newFile(t)
	for _, c := range []struct {
		marker  uint64
		feature uint32
		want    error
	}{
		{5, log.FeatureVersion, nil},
		{6, log.FeatureVersion, log.ErrCorrupt},
		{5, log.FeatureVersion + 1, log.ErrFormat},
	} {
		err := p.files.current.DB.Update(func(tx *bbolt.Tx) error {
			meta, m := tx.Bucket(BucketMeta), Marker{Index: c.marker, Term: 1}
			return errors.Join(PutHead(meta, &Head{Applied: 5, Term: 1, Feature: c.feature}), meta.Put(KeyMarker, m.Encode()))
		})
		if err != nil {
			t.Fatal(err)
		}
		err = p.files.View(func(tx *bbolt.Tx) error {
			_, _, err := ReadMeta(tx)
			return err
		})
		if !errors.Is(err, c.want) {
			t.Errorf("applied 5, marker at %d, feature version %d: %v, want %v", c.marker, c.feature, err, c.want)
		}
	}
}
