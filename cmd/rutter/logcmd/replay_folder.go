package logcmd

import (
	"context"
	"errors"
	"iter"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/log"
	"rutter/raftstore/history"
)

// replayFolder writes the log into a new data folder.
func replayFolder(c *cli.Context, s *pastLog, dir string) error {
	w, err := s.copyTo(c.Context, dir)
	if err != nil {
		return err
	}
	return closeFolder(c, w, dir)
}

// copyTo begins a new data folder with the entries of the log.
func (s *pastLog) copyTo(ctx context.Context, dir string) (*history.FolderWriter, error) {
	start := history.FolderStart{}
	if s.folder != nil {
		start.Cluster, start.Feature, start.Floor = s.folder.Head().Cluster, s.folder.Feature(), s.floor
		if s.floor > 0 {
			var err error
			if start.Hash, err = s.folder.HashAt(s.floor); err == nil {
				start.State, err = s.folder.StateAt(ctx, s.floor)
			}
			if err != nil {
				return nil, err
			}
		}
	} else {
		status, err := s.api.Status(ctx)
		if err != nil {
			return nil, err
		}
		start.Cluster = status.Head.Cluster
	}
	w, err := history.CreateFolder(dir, start)
	if err == nil {
		err = appendAll(w, s.entries(ctx, s.floor), s.head)
	}
	return w, err
}

// appendAll appends entries, and abandons the folder on an error. head is their last
// seq, for the progress; 0 if it is unknown.
func appendAll(w *history.FolderWriter, entries iter.Seq2[log.Entry, error], head log.Seq) error {
	progress := output.Percent("entry")
	for e, err := range entries {
		if err == nil {
			err = w.Append(e)
		}
		if err != nil {
			return errors.Join(err, w.Abandon())
		}
		if head > 0 && (e.Seq%(1<<13) == 0 || e.Seq == head) {
			progress(int64(e.Seq), int64(head))
		}
	}
	return nil
}

// closeFolder makes a new folder durable, and prints how it can be used.
func closeFolder(c *cli.Context, w *history.FolderWriter, dir string) error {
	head := w.Head()
	if err := w.Close(); err != nil {
		return err
	}
	dir = filepath.Clean(dir)
	output.Printf(c.App.ErrWriter, "%s has the log up to %s: read it with --data %s, or make a server of it: rutter snapshot save --data %s FILE, then rutter snapshot restore\n", dir, head, dir, dir)
	return nil
}
