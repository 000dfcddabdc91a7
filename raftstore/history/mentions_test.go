package history

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
)

// Mentions finds every entry that has a UUID in a field of its object, before or
// after the event, looks at few others, and says where it is in the log; of a block
// by an older program, which lacks what stood before, it says nothing, until upkeep
// has replaced that.
func TestMentions(t *testing.T) {
	t.Parallel()
	h := newPastLog(t, 7)
	for len(h.entries) < SegmentEvents+100 {
		h.step()
		if h.n%20 == 0 { // who had it before must hear of it
			h.do("update vm "+uuidOf(1000+h.rng.IntN(40)), fmt.Sprintf(`{"owner_uuid":"%s"}`, uuidOf(900+h.rng.IntN(3))))
		}
	}
	dir := filepath.Join(t.TempDir(), "a")
	f := h.folder(dir, 0, 9000)
	defer f.Close()
	owner, err := log.ParseUUID(uuidOf(901))
	if err != nil {
		t.Fatal(err)
	}
	moved := 0
	has := func(e log.Entry) bool {
		event, err := e.Event()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range event.Changed {
			if c.Path == "owner_uuid" && c.Old == owner.String() {
				moved++
				return true
			}
		}
		return bytes.Contains(e.Bytes, owner[:])
	}
	var want []log.Seq
	for _, e := range h.entries[:SegmentEvents] {
		if has(e) {
			want = append(want, e.Seq)
		}
	}
	var got []log.Seq
	looked := 0
	for last := log.Seq(0); last < SegmentEvents; {
		var entries []log.Entry
		if err := f.db.View(func(tx *bbolt.Tx) error {
			var chain log.ChainPrefix
			var ok bool
			entries, last, chain, ok, err = mentionsOf(tx, &f.blocks, []log.UUID{owner}, last, 100)
			if !ok || chain != h.entries[last-1].Hash.Prefix() || len(entries) > 100 {
				t.Fatalf("at %d: ok %v, chain %s, %d entries", last, ok, chain, len(entries))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		looked += len(entries)
		for _, e := range entries {
			if e.Hash != h.entries[e.Seq-1].Hash || !bytes.Equal(e.Bytes, h.entries[e.Seq-1].Bytes) {
				t.Fatalf("entry %d is another", e.Seq)
			}
			if has(e) {
				got = append(got, e.Seq)
			}
		}
	}
	if !slices.Equal(got, want) || moved < 10 {
		t.Errorf("found %d entries of %d (%d that moved away)", len(got), len(want), moved)
	}
	if looked > len(want)+100 {
		t.Errorf("looked at %d entries for %d", looked, len(want))
	}
	if err := f.db.View(func(tx *bbolt.Tx) error {
		_, _, _, ok, err := mentionsOf(tx, &f.blocks, []log.UUID{owner}, SegmentEvents, 100)
		if ok {
			t.Error("the end of the log has an index")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestOldIndexIsReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	h := newPastLog(t, 8)
	for len(h.entries) < SegmentEvents+100 {
		h.step()
	}
	dir := filepath.Join(t.TempDir(), "a")
	if err := h.folder(dir, 0, 9000).Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(filepath.Join(dir, changesdb.Name), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var known blocks
	mentions := func() (ok bool) {
		if err := db.View(func(tx *bbolt.Tx) error {
			_, _, _, ok, err = mentionsOf(tx, &known, []log.UUID{{1}}, 0, 1)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return ok
	}
	build := func(version byte) {
		if err := db.Update(func(tx *bbolt.Tx) error {
			key, b := segmentKey(0), block(nil)
			if version == indexFirst {
				b, err = makeBlock(tx, version, 1, SegmentEvents, nil)
			} else {
				key, b, err = nextBlock(tx, nil)
			}
			if err != nil || b == nil || b[4] != version {
				return fmt.Errorf("no block of version %d to write: %w", version, err)
			}
			return putBlock(tx, key, b)
		}); err != nil {
			t.Fatal(err)
		}
	}
	build(indexFirst)
	if mentions() {
		t.Error("a block of an older program was used")
	}
	build(indexVersion)
	if !mentions() {
		t.Error("a block that upkeep replaced was not used")
	}
	if err := db.View(func(tx *bbolt.Tx) error {
		if _, b, err := nextBlock(tx, nil); b != nil || err != nil {
			t.Errorf("upkeep goes on: %v", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
