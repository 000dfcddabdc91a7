package clustercmd

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/raftstore"
	"rutter/raftstore/offline"
	"rutter/raftstore/skipped"
)

// maxSkipFile bounds the bytes of a skip's file. Its texts are far smaller.
const maxSkipFile = 64 << 10

// skipCommand takes a cluster past a raft entry that stops it.
func skipCommand() *cli.Command {
	return &cli.Command{
		Name: "skip", Usage: "offline: take the cluster past a raft entry at which every server stops", Action: clusterSkip,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "data", Usage: "data `FOLDER` of a stopped server"},
			&cli.Uint64Flag{Name: "index", Usage: "raft `INDEX` of the entry: a server says it when it stops"},
			&cli.StringSliceFlag{Name: "change", Usage: "skip only the change with this `ID`, and apply the others of the entry (may be repeated)"},
			&cli.StringFlag{Name: "reason", Usage: "`WHY`, for the log"},
			&cli.StringFlag{Name: "actor", Usage: "`WHO`, for the log; the user of the operating system unless given"},
			&cli.StringFlag{Name: "save", Usage: "new `FILE` for the skip, which the other servers are given with --from"},
			&cli.StringFlag{Name: "from", Usage: "plant the skip of this `FILE`, which was saved on another server"},
			&cli.BoolFlag{Name: "list", Usage: "say which skips are planted, and which were passed"},
			&cli.Uint64Flag{Name: "undo", Usage: "take back the skip of this raft `INDEX`, which the server has not come to"},
			&cli.BoolFlag{Name: "yes", Usage: "do it; without this it asks, or without a terminal only shows"},
			output.Flag(),
		},
		Description: term.Examples(
			"rutter cluster skip --data /var/lib/rutter --index 57     # shows the entry, and why the server stopped",
			"rutter cluster skip --data /var/lib/rutter --index 57 --reason 'stops apply, see ticket 7' --save skip.json --yes",
			"rutter cluster skip --data /var/lib/rutter --from skip.json --yes     # on each of the others",
			"rutter cluster skip --data /var/lib/rutter --list",
			"rutter cluster skip --data /var/lib/rutter --undo 57") +
			"\n\nAll servers must be stopped, and all need the same skip before one is started: a server\n" +
			"without it is refused by the others. What is skipped is not applied, also if it was\n" +
			"acknowledged; a setting raft.skip.INDEX.… in the log says who skipped it, and why.",
	}
}

func clusterSkip(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	dir := c.String("data")
	if dir == "" {
		return term.Usagef("--data is missing: %s --help has examples", c.Command.HelpName)
	}
	ways := 0
	for _, name := range []string{"index", "from", "list", "undo"} {
		if c.IsSet(name) {
			ways++
		}
	}
	switch {
	case ways != 1:
		return term.Usagef("want one of --index, --from, --list and --undo")
	case c.Bool("list"):
		return listSkips(c, dir)
	case c.IsSet("undo"):
		return undoSkip(c, dir)
	case c.IsSet("from"):
		return skipFrom(c, dir)
	}
	return skipIndex(c, dir)
}

func listSkips(c *cli.Context, dir string) error {
	planted, err := offline.Skips(dir)
	if err != nil {
		return err
	}
	return output.One(c, planted, func(out io.Writer) {
		if len(planted) == 0 {
			output.Print(out, "nothing is planted, and nothing was skipped\n")
			return
		}
		w := output.Aligned(out)
		output.Print(w, "INDEX\tSTATE\tCHANGES\tACTOR\tREASON\n")
		for _, p := range planted {
			what := "all"
			if len(p.Changes) > 0 {
				what = fmt.Sprint(len(p.Changes))
			}
			output.Printf(w, "%d\t%s\t%s\t%q\t%q\n", p.Index, p.State, what, p.Actor, p.Reason)
		}
		_ = w.Flush() // the terminal is gone
	})
}

func undoSkip(c *cli.Context, dir string) error {
	index := c.Uint64("undo")
	sure, err := confirmed(c, fmt.Sprintf("Take back the skip of raft index %d in %s?", index, dir))
	if err != nil || !sure {
		return err
	}
	if err := offline.TakeBackSkip(dir, index); err != nil {
		return err
	}
	output.Printf(c.App.Writer, "the skip of raft index %d is taken back in %s; take it back on every server where it was planted\n", index, dir)
	return nil
}

// skipFrom writes the skip that was made on another server.
func skipFrom(c *cli.Context, dir string) error {
	text, err := readSkip(c.String("from"))
	if err != nil {
		return err
	}
	skip, err := skipped.Parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", c.String("from"), err)
	}
	view, err := offline.ViewEntry(dir, skip.Index)
	switch {
	case err == nil:
		if err := output.One(c, view, func(w io.Writer) { writeEntry(w, view) }); err != nil {
			return err
		}
	case !errors.Is(err, skipped.Err):
		return err
	}
	return writeSkip(c, dir, skip)
}

func readSkip(name string) ([]byte, error) {
	file, err := raftstore.OpenRegular(name)
	if err != nil {
		return nil, term.Usagef("--from: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxSkipFile+1))
	if err == nil && len(text) > maxSkipFile {
		err = term.Usagef("--from %s: more than %d bytes: is it a file of rutter cluster skip?", name, maxSkipFile)
	}
	return text, err
}

// skipIndex shows an entry, and writes its skip if the operator confirms.
func skipIndex(c *cli.Context, dir string) error {
	index := c.Uint64("index")
	var changes []log.UUID
	for _, text := range c.StringSlice("change") {
		id, err := log.ParseUUID(text)
		if err != nil {
			return term.Usagef("--change: %w", err)
		}
		changes = append(changes, id)
	}
	view, err := offline.ViewEntry(dir, index)
	if err != nil {
		return err
	}
	if err := output.One(c, view, func(w io.Writer) { writeEntry(w, view) }); err != nil {
		return err
	}
	if c.String("reason") == "" {
		if c.Bool("yes") {
			return term.Usagef("--reason is missing: the log says why the entry was skipped")
		}
		output.Print(c.App.ErrWriter, "Nothing was planted. To skip it, say --reason WHY, and --save FILE for the other servers.\n")
		return nil
	}
	actor := c.String("actor")
	if actor == "" {
		actor = osUser()
	}
	skip, err := offline.NewSkip(dir, index, changes, actor, c.String("reason"), time.Now())
	if err != nil {
		return err
	}
	return writeSkip(c, dir, skip)
}

// osUser is the operating system's name of the user who runs the program.
func osUser() string {
	if name := os.Getenv("SUDO_USER"); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}

// writeSkip asks the operator, saves the skip for the other servers, and writes it to
// the folder.
func writeSkip(c *cli.Context, dir string, skip skipped.Skip) error {
	what := "the whole entry"
	if n := len(skip.Changes); n > 0 {
		what = fmt.Sprintf("%d of its changes", n)
	}
	sure, err := confirmed(c, fmt.Sprintf("Skip raft index %d (%s) in %s? It will not be applied, even if it was acknowledged.", skip.Index, what, dir))
	if err != nil || !sure {
		return err
	}
	text, err := json.Marshal(skip)
	if err != nil {
		return err
	}
	if name := c.String("save"); name != "" {
		if err := saveSkip(name, append(text, '\n')); err != nil {
			return err
		}
	}
	missing, err := offline.PlantSkip(dir, skip)
	if err != nil {
		return err
	}
	if missing {
		output.Printf(c.App.ErrWriter, "rutter: raft's log in %s ends before index %d: the entry will come from another server, and is skipped if it is the same\n", dir, skip.Index)
	}
	output.Printf(c.App.ErrWriter, "Planted in %s: raft index %d will be skipped. Plant the same on every other server, with --from, before one is started", dir, skip.Index)
	switch name := c.String("save"); {
	case c.IsSet("from"):
		output.Print(c.App.ErrWriter, ".\n")
	case name != "":
		output.Printf(c.App.ErrWriter, " %s.\n", name)
	default:
		output.Print(c.App.ErrWriter, " and a file of this line:\n")
		return output.JSONText(c.App.ErrWriter, text)
	}
	return nil
}

// saveSkip writes the file for the other servers. An existing file stays.
func saveSkip(name string, text []byte) error {
	file, err := os.OpenFile(filepath.Clean(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return term.Usagef("--save: %w", err)
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Sync(), file.Close())
}

// confirmed reports whether the operator agrees: by --yes, or by an answer on a
// terminal.
func confirmed(c *cli.Context, question string) (bool, error) {
	if c.Bool("yes") {
		return true, nil
	}
	if !term.Terminal(os.Stdin) {
		output.Printf(c.App.ErrWriter, "%s Nothing was done: say --yes.\n", question)
		return false, nil
	}
	output.Printf(c.App.ErrWriter, "%s [yes/no] ", question)
	answer, err := bufio.NewReader(io.LimitReader(os.Stdin, 16)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if strings.TrimSpace(answer) == "yes" {
		return true, nil
	}
	output.Print(c.App.ErrWriter, "Nothing was done.\n")
	return false, nil
}

// writeEntry prints an entry. Its texts are escaped already.
func writeEntry(out io.Writer, v *offline.EntryView) {
	output.Printf(out, "raft index %d, term %d: %s, %d bytes, %s\n", v.Index, v.Term, v.Command, v.Bytes, v.Entry)
	state := "not applied"
	if v.Applied {
		state = "applied"
	}
	output.Printf(out, "%s by this server, which is at index %d of %d\n", state, v.AppliedIndex, v.LastIndex)
	switch {
	case v.Stopped != nil:
		output.Printf(out, "the server stopped at it at %s: %s\n", v.Stopped.At.UTC().Format(time.RFC3339), v.Stopped.Error)
	default:
		output.Print(out, "the server has noted no stop at it\n")
	}
	if v.Undecoded != "" {
		output.Printf(out, "it cannot be parted into changes: %s\n", v.Undecoded)
	}
	for i, change := range v.Changes {
		id := change.ID
		if id == "" {
			id = "without a readable id"
		}
		output.Printf(out, "change %d: %s by %q, %d bytes, %d operations\n", i+1, id, change.Actor, change.Bytes, change.OpCount)
		if change.Undecoded != "" {
			output.Printf(out, "  cannot be read: %s\n", change.Undecoded)
		}
		for _, op := range change.Ops {
			output.Printf(out, "  %s %s %s %s, %d bytes\n", op.Action, op.Kind, op.ID, strings.Join(op.Set, ","), op.Bytes)
		}
		if more := change.OpCount - len(change.Ops); more > 0 {
			output.Printf(out, "  and %d more operations\n", more)
		}
	}
}
