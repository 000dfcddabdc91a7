package logcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/archive"
	"rutter/raftstore/history"
)

func importCommand() *cli.Command {
	return &cli.Command{
		Name: "import", Usage: "make a data folder of a file of `rutter log export`, or bring it into a running cluster", ArgsUsage: "FILE", Action: logImport,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "to", Usage: "`WHERE`: a new data folder, or the URL of a cluster"},
			&cli.StringFlag{Name: "onto", Usage: "the file goes on from this data `FOLDER` or snapshot file, which is copied"},
			mapFlag(), goOnFlag(),
		}, term.TLSFlags()...),
		Description: "Every checksum and the chain are verified on the way; nothing is left of a folder that could not be made whole. Without --to there is `rutter log verify FILE`, which only looks.\n\n" + term.Examples(
			"rutter log import log.rlog --to /tmp/copy",
			"zstd -dc log.rlog.zst | rutter log import - --to /tmp/copy",
			"rutter log import since-yesterday.rlog --onto yesterday.snapshot --to /tmp/today   # made with log export --after",
			"rutter log import log.rlog --to http://127.0.0.1:9000 --map ids.ndjson             # decided anew, as log replay does it"),
	}
}

// openArchive opens a file of `rutter log export`, or standard input.
func openArchive(ctx context.Context, name string) (*archive.Reader, io.Closer, error) {
	in, err := term.Input(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	r, err := archive.NewReader(in)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", name, err), in.Close())
	}
	return r, in, nil
}

// archived yields the entries of a file.
func archived(ctx context.Context, r *archive.Reader) iter.Seq2[log.Entry, error] {
	return func(yield func(log.Entry, error) bool) {
		for n := 0; ; n++ {
			e, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil {
				err = ctx.Err()
			} else {
				err = fmt.Errorf("%w\nThe %d entries before are whole; export the file anew: rutter log export", err, n)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func logImport(c *cli.Context) (err error) {
	to := c.String("to")
	switch {
	case c.NArg() != 1:
		return term.Usagef("want one argument, FILE, or - for standard input")
	case to == "":
		return term.Usagef("want --to FOLDER or --to URL; rutter log verify FILE only verifies it")
	case c.IsSet("map") && !isURL(to):
		return term.Usagef("--map is for --to URL")
	case c.IsSet("go-on") && !isURL(to):
		return term.Usagef("--go-on is for --to URL")
	case c.IsSet("onto") && isURL(to):
		return term.Usagef("--onto is for --to FOLDER: replay that one into the cluster first")
	}
	r, file, err := openArchive(c.Context, c.Args().First())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if h := r.Header(); h.Floor > 0 && !c.IsSet("onto") {
		return fmt.Errorf("the file begins behind seq %d, and has no state from before: name what it goes on from with --onto FOLDER|SNAPSHOT", h.Floor)
	}
	if isURL(to) {
		return importCluster(c, r, to)
	}
	if c.IsSet("onto") {
		return importOnto(c, r, to)
	}
	w, err := history.CreateFolder(to, history.FolderStart{Cluster: r.Header().Cluster})
	if err == nil {
		err = appendAll(w, archived(c.Context, r), 0)
	}
	if err != nil {
		return err
	}
	return closeFolder(c, w, to)
}

// importOnto makes a new folder from another one and the entries that follow it.
func importOnto(c *cli.Context, r *archive.Reader, to string) (err error) {
	if isURL(c.String("onto")) {
		return term.Usagef("--onto %s: want a data folder or a snapshot file: rutter snapshot save", c.String("onto"))
	}
	base, err := openNamed(c, c.String("onto"))
	if err != nil {
		return err
	}
	defer closeJoining(base, &err)
	h := r.Header()
	switch {
	case h.Cluster != base.folder.Head().Cluster:
		return fmt.Errorf("the file is of cluster %s, and %s of %s: %w", h.Cluster, base.name, base.folder.Head().Cluster, log.ErrOtherLog)
	case h.Floor > base.head:
		return fmt.Errorf("the file begins behind seq %d, and %s ends at %d: export what is between: rutter log export --after %d", h.Floor, base.name, base.head, base.head)
	}
	w, err := base.copyTo(c.Context, to)
	if err != nil {
		return err
	}
	if err := appendAll(w, entriesAfterBase(archived(c.Context, r), base), 0); err != nil {
		return err
	}
	return closeFolder(c, w, to)
}

// entriesAfterBase yields the entries that the base does not have. Entries that it has
// must be equal.
func entriesAfterBase(entries iter.Seq2[log.Entry, error], base *pastLog) iter.Seq2[log.Entry, error] {
	return func(yield func(log.Entry, error) bool) {
		for e, err := range entries {
			if err == nil && e.Seq <= base.head {
				var hash log.Hash
				if e.Seq < base.floor {
					continue
				}
				if hash, err = base.folder.HashAt(e.Seq); err == nil && hash != e.Hash {
					err = fmt.Errorf("entry %d is another one in %s: %w", e.Seq, base.name, log.ErrOtherLog)
				}
				if err == nil {
					continue
				}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}
