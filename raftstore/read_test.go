package raftstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/window"
)

// TestEntriesKeepChangesWhole reads a log of changes of many sizes with every
// bound, from the ring and from the file.
func TestEntriesKeepChangesWhole(t *testing.T) {
	t.Parallel()
	n := one(t, func(c *Config) { c.RingEntries = 20 })
	ends := map[log.Seq]bool{0: true}
	for i := range 40 {
		c := tagChange(newID(), fmt.Sprintf("t%d", i))
		for j := range i % 7 {
			c.Ops = append(c.Ops, tagOp(fmt.Sprintf("t%d_%d", i, j)))
		}
		ends[must(t, n, c).Last] = true
	}
	head := n.Head().Seq
	if err := n.persister.Flush(); err != nil {
		t.Fatal(err)
	}
	must(t, n, tagChange(newID(), "last")) // the ring lets go of what is durable
	ends[head+1] = true
	if first := n.Status().RingFirst; first < 2 || first > head-10 {
		t.Fatalf("the ring begins at %d of %d, the test wants both ring and file", first, head)
	}
	for limit := 1; limit <= 30; limit++ {
		for after := log.Seq(0); after <= head; {
			entries, err := n.Entries(after, limit)
			if err != nil || len(entries) == 0 {
				t.Fatalf("entries after %d: %d, %v", after, len(entries), err)
			}
			for i, e := range entries {
				if e.Seq != after+log.Seq(i)+1 {
					t.Fatalf("entries after %d: %d in place %d", after, e.Seq, i)
				}
				if i >= limit && ends[e.Seq-1] {
					t.Fatalf("entries after %d: more than %d", after, limit)
				}
			}
			after = entries[len(entries)-1].Seq
			if !ends[after] {
				t.Fatalf("limit %d: stopped at %d, inside a change", limit, after)
			}
		}
	}
	if _, err := n.Entries(head+2, 1); !errors.Is(err, log.ErrAhead) {
		t.Errorf("beyond the head: %v, want ErrAhead", err)
	}
}

func TestCheckCursor(t *testing.T) {
	t.Parallel()
	n := one(t, func(c *Config) { c.RingEntries = 8 })
	leaderOf(t, []*node{n})
	empty := n.Head()
	var cursors []log.Cursor
	for i := range 30 {
		must(t, n, tagChange(newID(), fmt.Sprintf("t%d", i)))
		cursors = append(cursors, n.Head())
	}
	if err := n.persister.Flush(); err != nil {
		t.Fatal(err)
	}
	must(t, n, tagChange(newID(), "last"))
	for _, c := range append(cursors, empty, log.Cursor{}, n.Head()) {
		if err := n.CheckCursor(c); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
	other, forged, stored, ahead := cursors[3], cursors[29], cursors[2], n.Head()
	other.Cluster[0]++
	forged.Chain[0]++
	stored.Chain[7]++
	ahead.Seq++
	for _, test := range []struct {
		cursor log.Cursor
		want   error
	}{{other, log.ErrOtherLog}, {forged, log.ErrOtherLog}, {stored, log.ErrOtherLog}, {ahead, log.ErrAhead}} {
		if err := n.CheckCursor(test.cursor); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.cursor, err, test.want)
		}
	}
}

// TestFlippedBits damages each row of changes.db in turn: the damage is found
// when the file is read, or when the row is, and never served.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	for i := range 4 {
		must(t, n, tagChange(newID(), fmt.Sprintf("t%d", i)))
	}
	n.halt(t)
	path := filepath.Join(n.cfg.Dir, changesdb.Name)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rows int
	for _, bucket := range [][]byte{changesdb.BucketEvents, window.BucketChanges, changesdb.BucketMeta, []byte(log.KindNICTag.String())} {
		for row := 0; ; row++ {
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
			if !damage(t, path, bucket, row) {
				break
			}
			rows++
			if err := servesAll(n.cfg); !errors.Is(err, log.ErrCorrupt) {
				t.Errorf("%s, row %d: %v, want ErrCorrupt", bucket, row, err)
			}
		}
	}
	if rows < 4+4+1+4 {
		t.Errorf("%d rows damaged, want all", rows)
	}
}

// damage flips a bit in the last byte of a row, and reports whether there is one.
func damage(t *testing.T, path string, bucket []byte, row int) bool {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	found := false
	err = db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		if b == nil {
			b = tx.Bucket(changesdb.BucketObjects).Bucket(bucket)
		}
		cursor := b.Cursor()
		key, value := cursor.First()
		for range row {
			key, value = cursor.Next()
		}
		if key == nil {
			return nil
		}
		found = true
		bad := append([]byte(nil), value...)
		bad[len(bad)-1] ^= 0x10
		return b.Put(append([]byte(nil), key...), bad)
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestMissingRows removes each row of an object and of a change id in turn, which no
// checksum of a row can show: the server does not start without it.
func TestMissingRows(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	for i := range 3 {
		must(t, n, tagChange(newID(), fmt.Sprintf("t%d", i)))
	}
	n.halt(t)
	path := filepath.Join(n.cfg.Dir, changesdb.Name)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	remove := func(what string, from func(tx *bbolt.Tx) *bbolt.Bucket) {
		t.Helper()
		rows := 1
		for row := 0; row < rows; row++ {
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = db.Update(func(tx *bbolt.Tx) error {
				rows = from(tx).Stats().KeyN
				cursor := from(tx).Cursor()
				cursor.First()
				for range row {
					cursor.Next()
				}
				return cursor.Delete()
			})
			if err := errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
			if err := servesAll(n.cfg); !errors.Is(err, log.ErrCorrupt) {
				t.Errorf("without row %d of %s: %v, want ErrCorrupt", row, what, err)
			}
		}
		if rows != 3 {
			t.Errorf("%d rows of %s, want 3", rows, what)
		}
	}
	remove("change ids", func(tx *bbolt.Tx) *bbolt.Bucket { return tx.Bucket(window.BucketChanges) })
	remove("objects", func(tx *bbolt.Tx) *bbolt.Bucket {
		return tx.Bucket(changesdb.BucketObjects).Bucket([]byte(log.KindNICTag.String()))
	})
}

// servesAll opens a folder and reads its log; the error is the first found.
func servesAll(cfg Config) error {
	s, err := Open(cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Entries(0, 1000)
	return err
}

func TestConsistentOnFollowers(t *testing.T) {
	t.Parallel()
	nodes := three(t, nil)
	leaderOf(t, nodes)
	for i := range 20 {
		result := must(t, nodes[i%3], tagChange(newID(), fmt.Sprintf("t%d", i)))
		reader := nodes[(i+1)%3]
		seq, err := reader.Consistent(patience(t))
		if err != nil || seq < result.Last {
			t.Fatalf("consistent at %s: %d, %v, want at least %d", reader.cfg.ID, seq, err, result.Last)
		}
		if got := reader.Head().Seq; got < result.Last {
			t.Fatalf("%s stands at %d after a consistent read, want at least %d", reader.cfg.ID, got, result.Last)
		}
	}
}

// TestNoQuorum: without a majority nothing is acknowledged and nothing read as
// consistent, and the answers say so in time.
func TestNoQuorum(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	nodes := three(t, func(c *Config) { c.ProposeTimeout = time.Second })
	leader := leaderOf(t, nodes)
	must(t, leader, tagChange(newID(), "before"))
	for _, n := range nodes {
		if n != leader {
			n.halt(t)
		}
	}
	_, err := leader.Propose(context.Background(), tagChange(newID(), "lost"))
	if !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrNoLeader) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("propose: %v, want ErrUnknown or ErrNoLeader with the deadline", err)
	}
	if _, err := leader.Consistent(context.Background()); !errors.Is(err, ErrNoLeader) {
		t.Errorf("consistent: %v, want ErrNoLeader", err)
	}
	if err := leader.Ready(); !errors.Is(err, ErrNoLeader) {
		t.Errorf("ready: %v, want ErrNoLeader", err)
	}
}
