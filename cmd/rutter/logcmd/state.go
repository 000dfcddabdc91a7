package logcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/logprint"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections"
)

// stateCommand is `rutter log state`.
func stateCommand() *cli.Command {
	return &cli.Command{
		Name: "state", Usage: "the objects as they were at a place of the log", Action: logState,
		Flags: append(partFlags(), term.ServersFlag(), term.DataFlag(), output.Flag("table", "ndjson", "json", "csv"),
			&cli.StringFlag{Name: "at", Usage: "after the entry `SEQ|TIME`; the head if it is left out"},
			&cli.StringFlag{Name: "kind", Usage: "only objects of this `KIND`"}),
		Description: term.Examples(
			"rutter log state --at 2026-11-21T14:03:00Z --kind network",
			"rutter log state --at 1042 --vnet 4385813 -o ndjson",
			"rutter log state --vnet blue -o csv > objects.csv",
			"rutter log state --at 1042 --cn 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01 --data /var/lib/rutter   # of a stopped server",
		),
	}
}

// stateLine is an object in ndjson, as GET /log/state has it.
type stateLine struct {
	Kind     log.Kind        `json:"kind"`
	ID       string          `json:"id"`
	Revision log.Revision    `json:"revision"`
	Seq      log.Seq         `json:"seq"`
	Object   json.RawMessage `json:"object"`
}

func logState(c *cli.Context) (err error) {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	p, err := partOf(c)
	if err != nil {
		return err
	}
	s, err := openPast(c)
	if err != nil {
		return err
	}
	defer closeJoining(s, &err)
	seq, err := s.seqAt(c.Context, c.String("at"))
	if err != nil {
		return err
	}
	if err := s.checkNotBefore(c.Context, c.String("at"), seq); err != nil {
		return err
	}
	state, err := s.state(c.Context, seq, p)
	if err != nil {
		return err
	}
	if c.String("output") == "csv" {
		return stateCSV(c, p.records(state))
	}
	w := logprint.NewWriter(c.App.Writer, term.Terminal(c.App.Writer))
	for rec := range p.records(state) {
		err := w.Append(func(b []byte) ([]byte, error) {
			line, err := lineOfRecord(rec, c.String("output") != "table")
			return append(b, line...), err
		})
		if err != nil {
			return errors.Join(err, w.Flush())
		}
	}
	return w.Flush()
}

// stateCSV prints objects as CSV, each with its fields as JSON in one cell: the kinds have
// different ones. rutter KIND list -o csv has a column for each of the important ones.
func stateCSV(c *cli.Context, records iter.Seq[projections.Record]) error {
	var failed error
	err := output.Table(c, nil, func(w io.Writer) {
		output.Print(w, "KIND\tID\tREVISION\tSEQ\tOBJECT\n")
		for rec := range records {
			object, err := log.AppendObjectJSON(nil, rec.Object)
			if err != nil {
				failed = err
				return
			}
			output.Printf(w, "%s\t%s\t%d\t%d\t%s\n", rec.Object.Kind(), rec.Object.ID(), rec.Revision, rec.Seq, string(object))
		}
	})
	return errors.Join(failed, err)
}

// lineOfRecord is an object as a line of JSON, or as text with all fields that are set.
func lineOfRecord(rec projections.Record, asJSON bool) ([]byte, error) {
	o := rec.Object
	if asJSON {
		object, err := log.AppendObjectJSON(nil, o)
		if err != nil {
			return nil, err
		}
		b, err := json.Marshal(stateLine{o.Kind(), o.ID(), rec.Revision, rec.Seq, object})
		return append(b, '\n'), err
	}
	line := fmt.Appendf(nil, "%s %s rev=%d seq=%d", o.Kind(), output.Visible(o.ID()), rec.Revision, rec.Seq)
	if empty := log.NewObject(o.Kind()); empty != nil {
		for _, field := range log.Diff(empty, o) {
			value, _ := log.Field(o, field.Path)
			b, err := json.Marshal(value)
			if err != nil {
				return nil, err
			}
			line = fmt.Appendf(line, " %s=%s", field.Path, b)
		}
	}
	return append(line, '\n'), nil
}
