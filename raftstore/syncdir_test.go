package raftstore

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"rutter/raftstore/history"
	"rutter/raftstore/offline"
)

// A restore by an image is durable, name and all, before the server goes on: no
// rename is left that the folder may forget.
func TestRestoreSyncsFolder(t *testing.T) {
	t.Parallel()
	disk := newFaultFS(t)
	n := one(t, nil)
	trimmed(t, n)
	cfg := testConfig(t, "s2", filepath.Join(disk.Path(), "s2"))
	cfg.Join = []string{n.Address()}
	second := launch(t, cfg)
	waitFor(t, second, n.Head().Seq)
	if second.Status().Restores == 0 {
		t.Fatal("the server did not get an image")
	}
	if left := disk.Unsynced(); left != 0 {
		t.Errorf("%d renames may be forgotten by the folder after a restore", left)
	}
	second.halt(t)
}

// A folder that cannot be synced after the rename ends the server, like any other
// failure of the disk: on the disk may be the file from before.
func TestRestoreFolderSyncFails(t *testing.T) {
	t.Parallel()
	disk := newFaultFS(t)
	n := one(t, nil)
	trimmed(t, n)
	cfg := testConfig(t, "s2", filepath.Join(disk.Path(), "s2"))
	cfg.Join = []string{n.Address()}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	disk.Fail(0, "syncdir", syscall.EIO)
	second := launched(t, s)
	second.stopsWith(t, ErrDisk)
	if disk.Ops() == 0 {
		t.Fatal("the folder was not synced")
	}
	// The disk is well again: what is there is whole, whichever file it is.
	disk.Heal()
	cfg.Listen = second.Address()
	again := launch(t, cfg)
	waitFor(t, again, n.Head().Seq)
	checkFold(t, again.Store)
	again.halt(t)
}

// Offline, too: what may be forgotten is not said to be done.
func TestRebirthSyncsFolder(t *testing.T) {
	t.Parallel()
	disk := newFaultFS(t)
	n := one(t, nil)
	must(t, n, tagChange(newID(), "a"))
	path := written(t, saved(t, n))
	at := func(name string) offline.Rebirth {
		return offline.Rebirth{Dir: filepath.Join(disk.Path(), name), Member: Member{ID: "r1", Address: "127.0.0.1:1"}}
	}
	if _, err := offline.Restore(path, at("whole")); err != nil {
		t.Fatal(err)
	}
	if left := disk.Unsynced(); left != 0 {
		t.Errorf("%d renames may be forgotten after a restore of a snapshot", left)
	}
	for after := range 2 { // one sync for raft.db, one for changes.db
		disk.Fail(after, "syncdir", syscall.EIO)
		if _, err := offline.Restore(path, at("failing"+string(rune('a'+after)))); !errors.Is(err, ErrDisk) {
			t.Errorf("sync %d of the folder fails: %v, want ErrDisk", after, err)
		}
	}
	disk.Fail(0, "syncdir", syscall.EIO)
	if _, err := Open(testConfig(t, "s1", filepath.Join(disk.Path(), "fresh"))); !errors.Is(err, ErrDisk) {
		t.Errorf("a fresh folder cannot be synced: %v, want ErrDisk", err)
	}
	if w, err := history.CreateFolder(filepath.Join(disk.Path(), "import"), history.FolderStart{Cluster: newID()}); err == nil {
		err = w.Close()
		if !errors.Is(err, ErrDisk) {
			t.Errorf("the folder of an import cannot be synced: %v, want ErrDisk", err)
		}
	}
}
