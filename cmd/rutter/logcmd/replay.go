package logcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections"
	"rutter/raftstore"
)

// replayCommand is `rutter log replay`.
func replayCommand() *cli.Command {
	return &cli.Command{
		Name: "replay", Usage: "run a log again: into a folder, a dump of the state, or with changes that nobody made yet", Action: logReplay,
		ArgsUsage: "FOLDER|SNAPSHOT|URL",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "to", Value: "dump", Usage: "`WHERE`: a new data folder, dump (the state as text) or - (the entries as lines of JSON)"},
			&cli.StringFlag{Name: "until", Usage: "only up to this `SEQ|TIME`"},
			&cli.StringFlag{Name: "speed", Usage: "with --to -: at `N` times the speed at which it happened, as in 10x; at once if it is left out"},
			&cli.StringFlag{Name: "what-if", Usage: "apply the changes of this `FILE` to the state and say what would come of it; nothing is written. - is standard input"},
			term.OutputFlag("table", "ndjson"),
		},
		Description: "The file of --what-if has changes as POST /changes takes them: {\"ops\": [{\"action\": \"update\", \"kind\": \"network\", \"id\": …, \"object\": {…}}]}, one after the other.\n\n" + term.Examples(
			"rutter log replay /var/lib/rutter --to /tmp/copy --until 2026-11-21T14:03:00Z",
			"rutter log replay snapshot.rutter --to dump",
			"rutter log replay http://127.0.0.1:7420 --to - --speed 10x",
			"rutter log replay http://127.0.0.1:7420 --what-if changes.json",
		),
	}
}

func logReplay(c *cli.Context) (err error) {
	if c.NArg() != 1 {
		return term.Usagef("want one data folder, snapshot file or URL")
	}
	speed, err := parseSpeed(c.String("speed"))
	if err != nil {
		return err
	}
	if speed > 0 && c.String("to") != "-" {
		return term.Usagef("--speed is for --to -")
	}
	s, err := openNamed(c, c.Args().First())
	if err != nil {
		return err
	}
	defer closing(s, &err)
	if s.head, err = s.place(c.Context, c.String("until")); err != nil {
		return err
	}
	switch to := c.String("to"); {
	case c.String("what-if") != "":
		return whatIf(c, s)
	case to == "dump":
		state, err := s.state(c.Context, s.head, statePart{})
		if err != nil {
			return err
		}
		_, err = c.App.Writer.Write(state.Dump())
		return err
	case to == "-":
		return replayLines(c, s, speed)
	case strings.HasPrefix(to, "http://"), strings.HasPrefix(to, "https://"):
		return term.Usagef("--to %s: a cluster decides changes anew; make a folder, and restore a snapshot of it: rutter snapshot", to)
	default:
		return replayFolder(c.Context, s, to)
	}
}

// parseSpeed reads 10x; 0 is at once.
func parseSpeed(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(text, "x"), 10, 32)
	if err != nil || n == 0 {
		return 0, term.Usagef("--speed %q: want a whole number from 1, as in 10x", text)
	}
	return n, nil
}

// replayLines prints the entries as GET /log has them.
func replayLines(c *cli.Context, s *pastLog, speed uint64) error {
	var last log.Time
	for e, err := range s.entries(c.Context, s.floor) {
		if err != nil {
			return err
		}
		if speed > 0 {
			event, err := e.Event()
			if err != nil {
				return err
			}
			if last > 0 && event.Time > last {
				select {
				case <-time.After(time.Duration(event.Time-last) / time.Duration(speed)):
				case <-c.Context.Done():
					return nil
				}
			}
			last = event.Time
		}
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if _, err := c.App.Writer.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// replayFolder writes the entries into a new data folder.
func replayFolder(ctx context.Context, s *pastLog, dir string) (err error) {
	start := raftstore.FolderStart{}
	if s.folder != nil {
		start.Cluster, start.Feature = s.folder.Head().Cluster, s.folder.Feature()
	} else {
		status, err := s.api.Status(ctx)
		if err != nil {
			return err
		}
		start.Cluster = status.Head.Cluster
	}
	if s.floor > 0 {
		if s.folder == nil {
			return fmt.Errorf("%s keeps no entries up to %d, so their chain cannot be continued: replay a snapshot of it", s.name, s.floor)
		}
		start.Floor = s.floor
		if start.Hash, err = s.folder.HashAt(s.floor); err == nil {
			start.State, err = s.state(ctx, s.floor, statePart{})
		}
		if err != nil {
			return err
		}
	}
	w, err := raftstore.CreateFolder(dir, start)
	if err != nil {
		return err
	}
	progress := progressOf("entry")
	for e, entryErr := range s.entries(ctx, s.floor) {
		if err = entryErr; err == nil {
			err = w.Append(e)
		}
		if err != nil {
			return errors.Join(err, w.Abandon())
		}
		if e.Seq%(1<<13) == 0 {
			progress(int64(e.Seq-s.floor), int64(s.head-s.floor))
		}
	}
	head := w.Head()
	if err := w.Close(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s has the log up to %s\n", filepath.Clean(dir), head)
	return nil
}

// whatIf decides changes on the state, and prints what would come of them.
func whatIf(c *cli.Context, s *pastLog) error {
	in := io.Reader(os.Stdin)
	if name := c.String("what-if"); name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	state, err := s.state(c.Context, s.head, statePart{})
	if err != nil {
		return err
	}
	before := linksOf(state)
	out := &diffPrinter{w: c.App.Writer, json: c.String("output") != "table"}
	seq, refused := s.head, 0
	decoder := json.NewDecoder(in)
	for n := 1; out.err == nil; n++ {
		change, err := readChange(decoder, n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("change %d of %s: %w", n, c.String("what-if"), err)
		}
		change.Time, change.Seed = state.Time(), uint64(n)
		events, result := state.Decide(change)
		if result.Refusal != nil {
			refused++
			out.print(result, "change %d is refused: %s", n, result.Refusal)
			continue
		}
		for _, e := range events {
			seq++
			out.print(log.Line{Seq: seq, Event: e}, "change %d: %s %s %s rev=%d", n, e.Action, e.Kind, e.ID, e.Revision)
			if _, err := state.Apply(seq, e); err != nil {
				return err
			}
		}
	}
	after := linksOf(state)
	for _, cn := range state.CNs(log.AllScope()) {
		if changes := projections.DiffLinks(before[cn], after[cn]); len(changes) > 0 {
			if !out.json {
				fmt.Fprintf(c.App.Writer, "CN %s:\n", cn)
			}
			out.links(cn.String(), changes)
		}
		delete(before, cn)
	}
	if out.err == nil && refused > 0 {
		return fmt.Errorf("%d changes would be refused", refused)
	}
	return out.err
}

// linksOf returns the links of all CNs.
func linksOf(state *projections.State) map[log.UUID]projections.Desired {
	links := map[log.UUID]projections.Desired{}
	for _, cn := range state.CNs(log.AllScope()) {
		links[cn] = state.DesiredLinks(cn)
	}
	return links
}

// readChange reads the nth change, as POST /changes has it.
func readChange(in *json.Decoder, n int) (*log.Change, error) {
	var form struct {
		Ops []struct {
			Action  log.Action      `json:"action"`
			Kind    log.Kind        `json:"kind"`
			ID      string          `json:"id"`
			IfMatch log.Revision    `json:"if_match"`
			Object  json.RawMessage `json:"object"`
		} `json:"ops"`
	}
	if err := in.Decode(&form); err != nil {
		return nil, err
	}
	change := &log.Change{ID: log.UUID{6: 0x70, 8: 0x80, 15: byte(n)}, Actor: "what-if"}
	for _, o := range form.Ops {
		op := log.Op{Action: o.Action, Kind: o.Kind, ID: o.ID, IfMatch: o.IfMatch}
		if o.Object != nil {
			var err error
			if op.Object, op.Set, err = log.ParseObject(o.Kind, o.Object); err != nil {
				return nil, err
			}
		}
		change.Ops = append(change.Ops, op)
	}
	return change, nil
}
