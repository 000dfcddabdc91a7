package logcmd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"

	"rutter/log"
	"rutter/log/archive"
	"rutter/raftstore/history"
)

// cannotOpen adds to an error about a path what a path may name.
func cannotOpen(err error) error {
	return fmt.Errorf("%w: name the data folder of a server that is stopped, or a file of rutter log export or rutter snapshot save", err)
}

// openPath opens what --data names: an export, a stopped server's data folder,
// or a snapshot file.
func openPath(path string) (reader, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, cannotOpen(err)
	}
	if !info.IsDir() {
		exported, err := openExport(path)
		if err == nil {
			return exported, nil
		}
		if !errors.Is(err, log.ErrFormat) {
			return nil, err
		}
		if folder, folderErr := openFolder(path); folderErr == nil {
			return storedFolder(folder)
		}
		return nil, err
	}
	folder, err := openFolder(path)
	if err != nil {
		return nil, err
	}
	return storedFolder(folder)
}

// storedFolder returns the log of a folder. It closes the folder with the log.
func storedFolder(f *history.Folder) (reader, error) {
	head, floor := f.Head(), f.Floor()
	hash, err := f.HashAt(floor)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &stored{
		header: archive.Header{Cluster: head.Cluster, Floor: floor, Anchor: floor, Chain: hash},
		head:   head, close: f.Close, folder: f,
		each: func(ctx context.Context, after log.Seq) iter.Seq2[log.Entry, error] { return eachIn(ctx, f, after) },
	}, nil
}

// eachIn yields the entries of a folder after a seq. Their bytes belong to the file.
func eachIn(ctx context.Context, f *history.Folder, after log.Seq) iter.Seq2[log.Entry, error] {
	return func(yield func(log.Entry, error) bool) {
		if err := f.Each(ctx, after, func(e log.Entry) bool { return yield(e, nil) }); err != nil {
			yield(log.Entry{}, err)
		}
	}
}
