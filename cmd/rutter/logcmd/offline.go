package logcmd

import (
	"errors"
	"iter"
	"os"

	"rutter/log"
	"rutter/log/archive"
	"rutter/raftstore"
)

// entriesAtOnce is how many entries are read of a folder at once: enough that
// what a look at the folder costs does not count.
const entriesAtOnce = 8192

// openPath opens what --data names: an export, a stopped server's data folder,
// or a snapshot file.
func openPath(path string) (reader, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		exported, err := openExport(path)
		if err == nil || !errors.Is(err, log.ErrFormat) {
			return exported, err
		}
		if folder, folderErr := raftstore.OpenFolder(path); folderErr == nil {
			return storedFolder(folder)
		}
		return nil, err
	}
	folder, err := raftstore.OpenFolder(path)
	if err != nil {
		return nil, err
	}
	return storedFolder(folder)
}

// storedFolder is the log of a folder, which it closes.
func storedFolder(f *raftstore.Folder) (reader, error) {
	head, floor := f.Head(), f.Floor()
	hash, err := f.HashAt(floor)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &stored{
		header: archive.Header{Cluster: head.Cluster, Floor: floor, Anchor: floor, Chain: hash},
		head:   head, close: f.Close,
		each: func(after log.Seq) iter.Seq2[log.Entry, error] { return eachIn(f, after) },
	}, nil
}

// eachIn yields the entries of a folder behind a seq.
func eachIn(f *raftstore.Folder, after log.Seq) iter.Seq2[log.Entry, error] {
	return func(yield func(log.Entry, error) bool) {
		for {
			entries, err := f.Entries(after, entriesAtOnce)
			if err != nil {
				yield(log.Entry{}, err)
				return
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
			if len(entries) == 0 {
				return
			}
			after = entries[len(entries)-1].Seq
		}
	}
}
