package raftstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/changesdb"
)

// tagChurn makes, changes and deletes tags by chance.
func tagChurn(t *testing.T, n *node, rng *rand.Rand, live map[string]bool, changes int) {
	t.Helper()
	for range changes {
		name := fmt.Sprintf("tag%d", rng.IntN(40))
		op := log.Op{Action: log.Create, Kind: log.KindNICTag, Object: &log.NICTag{Name: name, MTU: 1500}}
		switch {
		case live[name] && rng.IntN(2) == 0:
			op = log.Op{Action: log.Delete, Kind: log.KindNICTag, ID: name}
			delete(live, name)
		case live[name]:
			op = log.Op{Action: log.Update, Kind: log.KindNICTag, ID: name, Set: []string{"mtu"}, Object: &log.NICTag{Name: name, MTU: 1500 + uint32(rng.IntN(7000))}}
		default:
			live[name] = true
		}
		must(t, n, &log.Change{ID: newID(), Ops: []log.Op{op}})
	}
}

// TestSweepEndsAnywhere: whichever transaction of a sweep is the last one of a
// process, the next start has the state of the log, and sweeps again.
func TestSweepEndsAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	live := make(map[string]bool)
	n := one(t, func(c *Config) { c.SweepDelay, c.sweepRows, c.sweepPart = time.Hour, 3, 20 })
	for stop := range 12 {
		tagChurn(t, n, rng, live, 30)
		if err := n.persister.Flush(); err != nil {
			t.Fatal(err)
		}
		left := stop
		n.persister.SetFault(func(what string) error {
			if left--; left < 0 {
				return errors.New("the process ends here")
			}
			return nil
		})
		err := n.persister.Sweep(context.Background())
		if err == nil {
			t.Logf("a sweep has %d transactions", stop-left)
			checkFold(t, n.Store)
			n.persister.SetFault(nil)
			n = n.again(t)
		} else {
			n.stopsWith(t, ErrDisk)
			n = n.again(t)
		}
		checkSame(t, []*node{n})
	}
}

// rowsAlone loads a file as a program does that does not know that rows may be
// behind the head.
func rowsAlone(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		h, _, err := changesdb.ReadMeta(tx)
		if err != nil {
			return err
		}
		state := projections.NewState()
		if err := changesdb.LoadRows(tx.Bucket(changesdb.BucketObjects), nil, state); err != nil {
			return err
		}
		if h.Rows != h.Seq || changesdb.StateSum(state) != h.StateSum {
			t.Errorf("%s: the rows stand at %d, the head at %d; sums %x and %x", path, h.Rows, h.Seq, changesdb.StateSum(state), h.StateSum)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOlderProgramsCanRead: an image, and the file after a clean stop, hold
// what programs expect whose rows are always those of the head.
func TestOlderProgramsCanRead(t *testing.T) {
	t.Parallel()
	n := one(t, func(c *Config) { c.SweepDelay, c.sweepRows = time.Hour, 3 })
	rng := rand.New(rand.NewPCG(1, 1))
	live := make(map[string]bool)
	tagChurn(t, n, rng, live, 50)
	b, err := n.Backup(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(t.TempDir(), "image")
	out, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, b); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), changesdb.Name)
	in, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(changesdb.ReadImage(in, file, nil), in.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	rowsAlone(t, path)
	tagChurn(t, n, rng, live, 50)
	n.halt(t)
	rowsAlone(t, filepath.Join(n.cfg.Dir, changesdb.Name))
}

// TestSweepsComeByThemselves: after so many events, and after so much time.
func TestSweepsComeByThemselves(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		tweak func(*Config)
	}{
		{"events", func(c *Config) { c.SweepEvents, c.SweepDelay, c.PersistDelay = 10, time.Hour, time.Millisecond }},
		{"time", func(c *Config) { c.SweepDelay, c.PersistDelay = 10*time.Millisecond, time.Millisecond }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n := one(t, test.tweak)
			for i := range 30 {
				must(t, n, tagChange(newID(), fmt.Sprintf("tag%d", i)))
			}
			until(t, n, "a sweep", func() bool { return n.persister.Progress().Rows >= 10 })
			checkFold(t, n.Store)
		})
	}
}

// A row that a sweep wrote is deleted by the sweep that comes after its object's deletion:
// else the object would be there again after a restart, or no restart be possible
// (etcd#18089).
func TestSweepDeletesRows(t *testing.T) {
	t.Parallel()
	n := one(t, func(c *Config) { c.UpkeepEvery = time.Hour })
	sweep := func() {
		t.Helper()
		if err := errors.Join(n.persister.Flush(), n.persister.Sweep(patience(t))); err != nil {
			t.Fatal(err)
		}
	}
	rows := func() (keys []string) {
		t.Helper()
		err := n.files.View(func(tx *bbolt.Tx) error {
			return tx.Bucket(changesdb.BucketObjects).Bucket([]byte(log.KindNICTag.String())).ForEach(func(k, _ []byte) error {
				keys = append(keys, string(k))
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	must(t, n, tagChange(newID(), "kept"))
	must(t, n, tagChange(newID(), "gone"))
	sweep()
	if got := rows(); !slices.Equal(got, []string{"gone", "kept"}) {
		t.Fatalf("rows of %v, want both", got)
	}
	must(t, n, &log.Change{ID: newID(), Ops: []log.Op{{Action: log.Delete, Kind: log.KindNICTag, ID: "gone"}}})
	sweep()
	if got := rows(); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("rows of %v after a deletion, want one", got)
	}
	n.halt(t)
	n = n.again(t)
	checkFold(t, n.Store)
}
