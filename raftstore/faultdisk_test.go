package raftstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	faultdisk "rutter/integration/simulate/disk"
	"rutter/log"
	"rutter/raftstore/internal/changesdb"
)

// busy is a server that uses all of its machinery within a few writes.
func busy(t testing.TB, dir, kind string) Config {
	cfg := testConfig(t, "s1", dir)
	cfg.Bootstrap, cfg.RaftLog, cfg.MapBytes = true, kind, 1<<26
	cfg.Heartbeat, cfg.Election, cfg.LeaderLease = 20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond
	cfg.PersistDelay, cfg.MarkerEvery, cfg.MarkerEntries, cfg.TrailingLogs = time.Millisecond, 5*time.Millisecond, 4, 4
	cfg.UpkeepEvery, cfg.CheckpointEvents = 5*time.Millisecond, 8
	cfg.RingEntries, cfg.RingBytes = 16, 1
	cfg.SweepEvents, cfg.SweepDelay = 12, 20*time.Millisecond
	return cfg
}

// writeUntil makes tags until the store fails or count are made, and returns
// what was acknowledged. The retention is short, so that the floor moves too.
func writeUntil(s *Store, count int, prefix string) (acked map[string]log.Result) {
	acked = make(map[string]log.Result)
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	for i := range count {
		name := fmt.Sprintf("%s%d", prefix, i)
		result, err := s.Propose(ctx, tagChange(newID(), name))
		if err != nil {
			return acked
		}
		acked[name] = result
		if i == 2 {
			_ = s.SetRetention(ctx, changesdb.Retention{Events: 30, Bytes: 1 << 24})
		}
	}
	return acked
}

// runStore opens, runs and uses a store, and returns what stopped it.
func runStore(cfg Config, use func(s *Store)) error {
	s, err := Open(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	use(s)
	cancel()
	return errors.Join(<-ended, s.Close())
}

// TestCrashAtEachWrite cuts the power at one write or sync after another, of raft's log,
// the persister, markers, checkpoints and deletions: what was not synced is gone in part.
// What was acknowledged must be there afterwards, and the state be that of the log.
func TestCrashAtEachWrite(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{RaftLogBolt, RaftLogWAL} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			disk := newFaultFS(t)
			const changes = 60
			disk.Heal()
			err := runStore(quiet(busy(t, filepath.Join(disk.Path(), "whole"), kind)), func(s *Store) { writeUntil(s, changes, "t") })
			if err != nil {
				t.Fatal(err)
			}
			total := disk.Ops()
			if total < changes {
				t.Fatalf("%d operations", total)
			}
			seed := rand.Uint64()
			t.Logf("%d writes and syncs; seed %d", total, seed)
			rng := rand.New(rand.NewPCG(seed, 2))
			step := max(1, total/12)
			if long() {
				step = 1
			}
			stops := 0
			for at := rng.IntN(step); at < total; at += step {
				stops += crashAt(t, disk, kind, at, rng.Uint64())
			}
			if stops == 0 {
				t.Error("no crash stopped the store")
			}
		})
	}
}

func quiet(c Config) Config {
	c.Logger = quietLogger()
	return c
}

// crashAt runs a store whose disk stops after some operations, cuts the power,
// and looks at what is left. It returns 1 if the store was stopped.
func crashAt(t *testing.T, disk *faultdisk.Folder, kind string, at int, seed uint64) int {
	t.Helper()
	name := fmt.Sprintf("at%d", at)
	disk.FailAfter(at)
	var acked map[string]log.Result
	err := runStore(quiet(busy(t, filepath.Join(disk.Path(), name), kind)), func(s *Store) { acked = writeUntil(s, 60, "t") })
	if err != nil && !errors.Is(err, ErrDisk) {
		t.Errorf("at %d: stopped by %v, want ErrDisk", at, err)
	}
	if err := disk.PowerCut(seed); err != nil {
		t.Fatal(err)
	}
	disk.Heal()
	cfg := quiet(busy(t, filepath.Join(disk.Backing(), name), kind))
	again := runStore(cfg, func(s *Store) {
		if _, err := s.Consistent(patience(t)); err != nil {
			t.Errorf("at %d: after the crash: %v", at, err)
			return
		}
		checkKept(t, s, acked)
		if more := writeUntil(s, 3, "again"); len(more) != 3 {
			t.Errorf("at %d: nothing can be written after the crash", at)
		}
	})
	if again != nil {
		t.Errorf("at %d, seed %d, stopped by %v: after the crash: %v", at, seed, err, again)
	}
	if err != nil {
		return 1
	}
	return 0
}

// checkKept looks for what was acknowledged in the log from the floor on, and in
// the state, and compares the state with the log's.
func checkKept(t *testing.T, s *Store, acked map[string]log.Result) {
	t.Helper()
	head, floor := s.Head().Seq, s.Floor()
	at := make(map[string]log.Seq)
	for after := floor; after < head; {
		entries, err := s.Entries(after, 100)
		if errors.Is(err, log.ErrCompacted) {
			after = s.Floor()
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		for _, e := range entries {
			event, err := e.Event()
			if err != nil {
				t.Error(err)
				return
			}
			at[event.ID], after = e.Seq, e.Seq
		}
	}
	floor = s.Floor()
	s.View(func(v View) {
		for name, result := range acked {
			if _, ok := v.State.Get(log.KindNICTag, name); !ok {
				t.Errorf("%s was acknowledged at %d, and is lost", name, result.First)
			}
			if result.First > floor && at[name] != result.First {
				t.Errorf("%s was acknowledged at %d, and stands at %d", name, result.First, at[name])
			}
		}
	})
	state, err := s.Past().StateAt(context.Background(), head)
	if err != nil {
		t.Error(err)
		return
	}
	s.View(func(v View) {
		state.SetTime(v.Time)
		if v.Head.Seq == head && string(v.State.Dump()) != string(state.Dump()) {
			t.Error("the state is not that of the log")
		}
	})
}

// TestDiskTrouble: a disk that fails, is full or read-only stops the server in
// order, with an error that says so; it keeps what it had, and comes up again
// when the disk does. A slow disk is waited for.
func TestDiskTrouble(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	disk := newFaultFS(t)
	tests := []struct {
		name, only string
		errno      syscall.Errno
	}{
		{"write", "write", syscall.EIO},
		{"sync", "sync", syscall.EIO},
		{"full", "write", syscall.ENOSPC},
		{"readonly", "write", syscall.EROFS},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(disk.Path(), test.name)
			disk.Heal()
			cfg := quiet(busy(t, dir, RaftLogBolt))
			var acked map[string]log.Result
			err := runStore(cfg, func(s *Store) {
				acked = writeUntil(s, 20, "before")
				if len(acked) != 20 {
					t.Errorf("%d changes before", len(acked))
				}
				disk.Fail(0, test.only, test.errno)
				for name, result := range writeUntil(s, 50, "during") {
					acked[name] = result
				}
				if len(acked) > 22 {
					t.Errorf("%d changes were acknowledged by a disk that takes none", len(acked)-20)
				}
				if err := s.Ready(); !errors.Is(err, ErrStopped) || !errors.Is(err, test.errno) && !errors.Is(err, ErrDisk) {
					t.Errorf("ready: %v, want ErrStopped and why", err)
				}
			})
			if !errors.Is(err, ErrDisk) {
				t.Errorf("stopped by %v, want ErrDisk", err)
			}
			t.Logf("stopped by: %v", err)
			disk.Heal()
			err = runStore(cfg, func(s *Store) {
				if _, err := s.Consistent(patience(t)); err != nil {
					t.Errorf("after the trouble: %v", err)
				}
				checkKept(t, s, acked)
			})
			if err != nil {
				t.Errorf("after the trouble: %v", err)
			}
		})
	}
	t.Run("slow", func(t *testing.T) {
		cfg := quiet(busy(t, filepath.Join(disk.Path(), "slow"), RaftLogBolt))
		cfg.Heartbeat, cfg.Election, cfg.LeaderLease = 0, 0, 0
		err := runStore(cfg, func(s *Store) {
			acked := writeUntil(s, 5, "before")
			disk.Slow(20 * time.Millisecond)
			for name, result := range writeUntil(s, 10, "during") {
				acked[name] = result
			}
			disk.Slow(0)
			if len(acked) != 15 {
				t.Errorf("%d of 15 changes were made", len(acked))
			}
			checkKept(t, s, acked)
		})
		if err != nil {
			t.Error(err)
		}
	})
}
