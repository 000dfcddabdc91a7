package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"rutter/log"
	"rutter/raftstore/history"
)

// A folder that --data names is what is saved, whichever servers the environment
// names for the other commands.
func TestSnapshotSaveOfAFolderAsksNoServer(t *testing.T) {
	t.Setenv("RUTTER_SERVERS", "http://127.0.0.1:1,http://127.0.0.1:2") // no server is there
	dir := t.TempDir()
	cluster := log.UUID{9}
	w, err := history.CreateFolder(filepath.Join(dir, "data"), history.FolderStart{Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	event := &log.Event{
		Kind: log.KindNICTag, Action: log.Create, ID: "external", Revision: 1, Actor: "ada",
		Object: &log.NICTag{Name: "external", MTU: 1500}, Scopes: []log.Scope{log.AllScope()},
	}
	bytes, err := log.NewEncoder().Event(event)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Append(log.Entry{Seq: 1, Hash: log.Hash{}.Next(1, bytes), Bytes: bytes}), w.Close()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "a.snapshot")
	code, out, said := rutter(t, "snapshot", "save", "--data", filepath.Join(dir, "data"), file)
	if code != 0 || !strings.Contains(out, "holds cluster "+cluster.String()+" up to seq 1") {
		t.Fatalf("save: exit code %d: %s%s", code, out, said)
	}
	code, out, said = rutter(t, "snapshot", "inspect", "-o", "json", file)
	if code != 0 || !strings.Contains(out, `"chain": "`+log.Hash{}.Next(1, bytes).String()+`"`) {
		t.Errorf("inspect: exit code %d: %s%s", code, out, said)
	}
}
