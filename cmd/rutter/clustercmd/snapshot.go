package clustercmd

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"rutter/raftstore/offline"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/raftstore"
)

// SnapshotCommand saves, restores and inspects snapshots.
func SnapshotCommand() *cli.Command {
	data := func(usage string) cli.Flag { return &cli.StringFlag{Name: "data", Usage: usage} }
	return &cli.Command{
		Name: "snapshot", Usage: "the whole log and state as one file: save, inspect and restore it; compact a folder", Category: "Operating",
		Description: term.Examples(
			"rutter snapshot save rutter.snapshot",
			"rutter snapshot schedule                 # the backups that the servers make",
			"rutter snapshot inspect rutter.snapshot",
			"rutter snapshot restore rutter.snapshot --data /var/lib/rutter --id s1 --raft 10.0.0.1:7421",
		),
		Subcommands: append([]*cli.Command{
			{
				Name: "save", Usage: "save one, from a running server or from a folder that no server has open", ArgsUsage: "FILE", Action: snapshotSave,
				Flags: []cli.Flag{term.ServersFlag(), output.Flag(), data("the data `FOLDER` of a server that is stopped, in place of a running one")},
				Description: term.Examples("rutter snapshot save rutter.snapshot -s http://10.0.0.1:7420", "rutter snapshot save rutter.snapshot --data /var/lib/rutter") +
					"\n\nNo write waits for it. The file is checked, and has its name only when it is whole.",
			},
			{
				Name: "inspect", Usage: "verify a snapshot, or a folder, and say what it holds", ArgsUsage: "FILE | --data FOLDER", Action: snapshotInspect,
				Flags:       []cli.Flag{output.Flag(), data("the data `FOLDER` of a server that is stopped")},
				Description: term.Examples("rutter snapshot inspect rutter.snapshot", "rutter snapshot inspect --data /var/lib/rutter -o json"),
			},
			{
				Name: "restore", Usage: "make a data folder of a snapshot: a new cluster of this one server, which others join", ArgsUsage: "FILE", Action: snapshotRestore,
				Flags: append(rebirthFlags(), output.Flag(), &cli.BoolFlag{Name: "dry-run", Usage: "verify everything, and leave nothing"}),
				Description: term.Examples(
					"rutter snapshot restore rutter.snapshot --data /var/lib/rutter --id s1 --raft 10.0.0.1:7421 --dry-run",
					"rutter snapshot restore rutter.snapshot --data /var/lib/rutter --id s1 --raft 10.0.0.1:7421") +
					"\n\nThe cluster gets a new identity: its followers must begin anew.",
			},
			snapshotCompactCommand(),
		}, scheduleCommands()...),
	}
}

// rebirthFlags are the flags of commands that make a data folder a new cluster of one
// server.
func rebirthFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "data", Usage: "data `FOLDER` of the server"},
		&cli.StringFlag{Name: "id", Usage: "the server's `NAME`, as its configuration has it"},
		&cli.StringFlag{Name: "raft", Usage: "peer `ADDRESS` at which other servers will dial it, as in 10.0.0.1:7421"},
	}
}

func rebirthOf(c *cli.Context) (offline.Rebirth, error) {
	for _, name := range []string{"data", "id"} {
		if c.String(name) == "" {
			return offline.Rebirth{}, term.Usagef("--%s is missing: %s --help has examples", name, c.Command.HelpName)
		}
	}
	return offline.Rebirth{
		Dir: c.String("data"), Member: raftstore.Member{ID: c.String("id"), Address: c.String("raft")},
		Progress: output.Progress(c.App.ErrWriter, "done"),
	}, nil
}

func snapshotSave(c *cli.Context) error {
	name, err := term.OneFile(c)
	if err != nil {
		return err
	}
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return term.Usagef("%s is there already: give another name, or remove it", name)
	}
	part, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.part")
	if err != nil {
		return err
	}
	saved, err := save(c, part)
	if err == nil {
		err = part.Sync()
	}
	if err = errors.Join(err, part.Close()); err == nil {
		err = checkSaved(part.Name())
	}
	if err == nil {
		err = os.Rename(part.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part.Name()))
	}
	return output.One(c, saved, func(w io.Writer) {
		output.Printf(w, "%s holds cluster %s up to seq %d, %s, verified\n", name, saved.Cluster, saved.Seq, output.Size(saved.Bytes))
	})
}

func save(c *cli.Context, w io.Writer) (saved client.Snapshot, err error) {
	if dir := c.String("data"); dir != "" {
		content, err := offline.BackupFolder(dir, w, output.Progress(c.App.ErrWriter, "verified"))
		if err != nil {
			return saved, err
		}
		warnWaiting(c, content)
		return client.Snapshot{Server: dir, Cluster: content.Cluster, Seq: content.Head.Seq, Bytes: content.Bytes}, nil
	}
	api, err := term.NewClient(c)
	if err != nil {
		return saved, err
	}
	return api.Snapshot(c.Context, w, output.Progress(c.App.ErrWriter, "saved"))
}

// warnWaiting warns of entries that the server has not applied yet.
func warnWaiting(c *cli.Context, content *offline.Content) {
	if content.Waiting > 0 {
		output.Printf(c.App.ErrWriter, "rutter: raft's log has %d entries that changes.db has not, and which are not in this: the server did not stop in order. Start it once, or use cluster recover, to have them\n", content.Waiting)
	}
}

func checkSaved(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return raftstore.CheckImage(file)
}

func snapshotInspect(c *cli.Context) (err error) {
	progress := output.Progress(c.App.ErrWriter, "verified")
	var content *offline.Content
	if dir := c.String("data"); dir != "" {
		if err := term.NoArguments(c); err != nil {
			return err
		}
		content, err = offline.InspectFolder(dir, progress)
	} else {
		name, usage := term.OneFile(c)
		if usage != nil {
			return usage
		}
		content, err = offline.InspectSnapshot(name, progress)
	}
	if err != nil {
		return err
	}
	return printContent(c, content)
}

func printContent(c *cli.Context, content *offline.Content) error {
	return output.Table(c, content, func(w io.Writer) {
		output.Printf(w, "cluster\t%s\n", content.Cluster)
		output.Printf(w, "head\t%d, chain %s, at %s\n", content.Head.Seq, content.Chain, content.Time)
		output.Printf(w, "events\t%d, kept after %d\n", content.Events, content.Floor)
		output.Printf(w, "change ids\t%d\n", content.Changes)
		for _, kind := range slices.Sorted(maps.Keys(content.Objects)) {
			output.Printf(w, "%s\t%d\n", kind, content.Objects[kind])
		}
		for _, m := range content.Members {
			output.Printf(w, "member\t%s at %s, vote: %s\n", m.ID, m.Address, output.YesNo(m.Voter))
		}
		output.Printf(w, "raft\tindex %d, term %d, feature version %d\n", content.Index, content.Term, content.Feature)
		if content.Waiting > 0 {
			output.Printf(w, "waiting\t%d entries of raft's log are not in changes.db yet\n", content.Waiting)
		}
		output.Printf(w, "size\t%s; every checksum fits\n", output.Size(content.Bytes))
	})
}

func snapshotRestore(c *cli.Context) error {
	name, err := term.OneFile(c)
	if err != nil {
		return err
	}
	r, err := rebirthOf(c)
	if err != nil {
		return err
	}
	if c.String("raft") == "" {
		return term.Usagef("--raft is missing: give the peer address at which others will dial this server, as in --raft 10.0.0.1:7421")
	}
	r.DryRun = c.Bool("dry-run")
	content, err := offline.Restore(name, r)
	if err != nil {
		return err
	}
	if r.DryRun {
		output.Printf(c.App.ErrWriter, "nothing was written; this is what would be restored, as a new cluster of %s alone:\n", r.Member.ID)
	} else {
		output.Printf(c.App.ErrWriter, "%s is now a cluster of %s alone, with a new identity. Start it; other servers join it with empty folders and --join %s\n", r.Dir, r.Member.ID, r.Member.Address)
	}
	return printContent(c, content)
}

// recoverCommand makes a surviving server a cluster of one.
func recoverCommand() *cli.Command {
	return &cli.Command{
		Name: "recover", Usage: "offline: make a surviving server's folder a cluster of one, when the majority is lost for good", Action: clusterRecover,
		Flags: append(rebirthFlags(), output.Flag(), &cli.BoolFlag{Name: "yes", Usage: "do it; without this it only says what it would do"}),
		Description: term.Examples(
			"rutter cluster recover --data /var/lib/rutter --id s1          # says what it would do",
			"rutter cluster recover --data /var/lib/rutter --id s1 --yes") +
			"\n\nRun it on the survivor with the highest head (rutter snapshot inspect --data). What the lost\n" +
			"servers acknowledged and this one never got is lost. The cluster gets a new identity: agents\n" +
			"and other followers begin anew, and the lost servers are refused, should they come back.",
	}
}

func clusterRecover(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	r, err := rebirthOf(c)
	if err != nil {
		return err
	}
	logger, err := term.NewLogger(c.App.ErrWriter, "warn")
	if err != nil {
		return err
	}
	r.DryRun = !c.Bool("yes")
	content, err := raftstore.Recover(r, logger)
	if err != nil {
		return err
	}
	if err := printContent(c, content); err != nil {
		return err
	}
	if !r.DryRun {
		output.Printf(c.App.ErrWriter, "%s is now a cluster of %s alone, with a new identity. Start it; other servers join it with EMPTY folders and --join\n", r.Dir, r.Member.ID)
		return nil
	}
	output.Printf(c.App.ErrWriter, `Nothing was changed. With --yes:
  - this folder becomes a cluster of %s alone, with a new identity;
  - the %d entries of raft's log that are not in changes.db are taken as written;
  - whatever the other members acknowledged and this server never got is LOST;
  - the other members may never run again with their present data.
Make a copy of the folder first. If any other member's folder can be read, compare
heads (rutter snapshot inspect --data) and recover the one that is furthest.
`, r.Member.ID, content.Waiting)
	return nil
}
