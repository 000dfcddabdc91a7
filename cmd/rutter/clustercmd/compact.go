package clustercmd

import (
	"io"

	"rutter/raftstore/offline"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// snapshotCompactCommand returns the space of deleted entries to the file system.
func snapshotCompactCommand() *cli.Command {
	return &cli.Command{
		Name: "compact", Usage: "give the room that deleted entries left in a data folder's files back", Action: snapshotCompact,
		Flags:       []cli.Flag{output.Flag(), &cli.StringFlag{Name: "data", Usage: "the data `FOLDER` of a server that is stopped"}},
		Description: term.Examples("systemctl stop rutter-server && rutter snapshot compact --data /var/lib/rutter && systemctl start rutter-server") + "\n\nEach file is copied, compared row by row, and put in the place of the old one; the copy needs room\nbeside it, for what is in use. Do one server after the other, so that the cluster goes on.",
	}
}

func snapshotCompact(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	if c.String("data") == "" {
		return term.Usagef("--data is missing: name the data folder of a server that is stopped")
	}
	done, err := offline.CompactFolder(c.String("data"), output.Progress(c.App.ErrWriter, "done"))
	if err != nil {
		return err
	}
	return output.One(c, done, func(w io.Writer) {
		for _, f := range done {
			output.Printf(w, "%s: %s, before %s\n", f.File, output.Size(f.After), output.Size(f.Before))
		}
	})
}
