package raftstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/log"
)

// copyDir copies a data folder.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if d.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return writeSparse(target, whole)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// writeSparse writes a file, of whose zeros at the end none are written: those
// of a log that was made in advance.
func writeSparse(path string, whole []byte) error {
	if err := os.WriteFile(path, bytes.TrimRight(whole, "\x00"), 0o600); err != nil {
		return err
	}
	return os.Truncate(path, int64(len(whole)))
}

// fastDir returns a folder for tests that write much and need no disk.
func fastDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "raftstore-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// long says whether the long tests were asked for.
func long() bool { return os.Getenv("RUTTER_LONG") != "" }

// TestBitsFlippedAnywhere flips bits all over the files of a stopped server. Each flip
// must be harmless, so that the server comes up with all that it had, or found
// at the start or on reading. Never is something else served, and never does
// the process die of it.
func TestBitsFlippedAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	for _, kind := range []string{RaftLogBolt, RaftLogWAL} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			testFlippedBits(t, kind)
		})
	}
}

func testFlippedBits(t *testing.T, kind string) {
	fast := fastDir(t)
	n := one(t, func(c *Config) {
		c.Dir = filepath.Join(fast, "s1")
		c.RaftLog, c.MapBytes, c.CheckpointEvents = kind, 1<<22, 100
		c.UpkeepEvery = 10 * time.Millisecond
		c.MarkerEvery = time.Hour // what is behind a marker needs no raft log
	})
	churn(t, n, 200)
	until(t, n, "a checkpoint", func() bool { return countCheckpoints(t, n.Store) > 0 })
	want := all(t, n.Store)
	states := dumps(t, n.Store)
	n.halt(t)
	var files []string
	if err := filepath.WalkDir(n.cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path[len(n.cfg.Dir)+1:])
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := filepath.Join(fast, "damaged")
	for _, name := range files {
		flipFile(t, n, rng, dir, name, want, states)
	}
}

// flipFile flips bits of one file, one at a time.
func flipFile(t *testing.T, n *node, rng *rand.Rand, dir, name string, want []log.Entry, states map[log.Seq]string) {
	t.Helper()
	whole, err := os.ReadFile(filepath.Join(n.cfg.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	used := len(whole)
	for used > 0 && whole[used-1] == 0 {
		used--
	}
	count := 30
	if n.cfg.RaftLog == RaftLogWAL {
		count = 8 // its files are large
	}
	if long() {
		count *= 30
	}
	found, harmless := 0, 0
	for i := range count {
		at := rng.IntN(used + 1)
		if i < count/4 { // the headers of pages matter most
			at = rng.IntN(used/4096+1)*4096 + rng.IntN(128)
		}
		if at >= len(whole) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		copyDir(t, n.cfg.Dir, dir)
		mask := byte(1) << rng.IntN(8)
		damaged := append([]byte(nil), whole...)
		damaged[at] ^= mask
		if err := writeSparse(filepath.Join(dir, name), damaged); err != nil {
			t.Fatal(err)
		}
		cfg := n.cfg
		cfg.Dir, cfg.Listen = dir, "127.0.0.1:0"
		cfg.Heartbeat, cfg.Election, cfg.LeaderLease = 20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond
		if err := serveDamaged(t, cfg, want, states); err == nil {
			harmless++
		} else if errors.Is(err, errServedWrong) {
			t.Errorf("%s: bit %#x at %d: %v", name, mask, at, err)
		} else {
			if found++; found == 1 {
				t.Logf("found: %v", err)
			}
		}
	}
	t.Logf("%s: of %d flips in %d bytes %d were found, %d harmless", name, count, used, found, harmless)
}

var errServedWrong = errors.New("something else was served")

// serveDamaged reads and starts a damaged folder: nil if all is there, the
// error by which the damage was found, or errServedWrong.
func serveDamaged(t *testing.T, cfg Config, want []log.Entry, states map[log.Seq]string) (err error) {
	cfg.Logger = quietLogger()
	s, err := Open(cfg)
	if err != nil {
		if strings.Contains(err.Error(), "goroutine ") {
			return fmt.Errorf("%w: a trace for a message: %w", errServedWrong, err)
		}
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-ended)
	}()
	wait, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	result, err := s.Propose(wait, tagChange(newID(), "after"))
	if err != nil {
		return err
	}
	if result.First != log.Seq(len(want)+1) {
		return fmt.Errorf("%w: the next change stands at %d, want %d", errServedWrong, result.First, len(want)+1)
	}
	var got []log.Entry
	for more := true; more; {
		part, err := s.Entries(log.Seq(len(got)), 100)
		if err != nil {
			return err
		}
		got, more = append(got, part...), len(part) > 0
	}
	if len(got) != len(want)+1 {
		return fmt.Errorf("%w: %d entries, want %d", errServedWrong, len(got), len(want)+1)
	}
	for i := range want {
		if got[i].Hash != want[i].Hash || string(got[i].Bytes) != string(want[i].Bytes) {
			return fmt.Errorf("%w: entry %d", errServedWrong, want[i].Seq)
		}
	}
	for _, seq := range []log.Seq{50, 150, log.Seq(len(want))} {
		state, err := s.Past().StateAt(ctx, seq)
		if err != nil {
			return err
		}
		if string(state.Dump()) != states[seq] {
			return fmt.Errorf("%w: another state at %d", errServedWrong, seq)
		}
	}
	state, err := s.Past().StateAt(ctx, result.First)
	if err != nil {
		return err
	}
	s.View(func(v View) {
		if string(v.State.Dump()) != string(state.Dump()) {
			err = fmt.Errorf("%w: the state is not that of the log", errServedWrong)
		}
	})
	return err
}
