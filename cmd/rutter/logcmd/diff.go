package logcmd

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/logcmd/internal/names"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/line"
	"rutter/projections"
	"rutter/projections/desired"
)

// diffCommand is `rutter log diff`.
func diffCommand() *cli.Command {
	return &cli.Command{
		Name: "diff", Usage: "what changed between two places of a log, or where two logs part", ArgsUsage: "[A B]", Action: logDiff,
		Flags: append(partFlags(), term.ServersFlag(), term.DataFlag(), output.Flag("table", "json", "ndjson", "csv"),
			&cli.StringFlag{Name: "from", Usage: "from the state after this `SEQ|TIME`"},
			&cli.StringFlag{Name: "to", Usage: "to the state after this `SEQ|TIME`; the head if it is left out"}),
		Description: "With --from: the objects that differ, and with --cn what the kernel of that CN had to change for it. With two data folders, snapshot files or URLs A and B: the first entry that is not the same, with exit code 1.\n\n" + term.Examples(
			"rutter log diff --from 1000 --to 1042",
			"rutter log diff --from 2026-11-21T14:00:00Z --cn 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01",
			"rutter log diff /backup/s1 /backup/s2",
			"rutter log diff http://10.0.0.1:7420 snapshot.rutter",
		),
	}
}

func logDiff(c *cli.Context) (err error) {
	if c.NArg() == 2 && !c.IsSet("from") && !c.IsSet("to") {
		return diffLogs(c, c.Args().Get(0), c.Args().Get(1))
	}
	if c.NArg() > 0 || !c.IsSet("from") {
		return term.Usagef("want --from SEQ|TIME, or two folders, snapshot files or URLs to compare")
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
	before, err := s.stateAt(c, "from", p)
	if err != nil {
		return err
	}
	after, err := s.stateAt(c, "to", p)
	if err != nil {
		return err
	}
	out := newDiffPrinter(c, s.names(c.Context))
	out.objects(projections.DiffRecords(p.records(before), p.records(after)))
	if p.has == log.ScopeCN {
		out.links("", desired.DiffLinks(desired.Of(before, p.cn), desired.Of(after, p.cn)))
	}
	return out.end()
}

func (s *pastLog) stateAt(c *cli.Context, flag string, p statePart) (*projections.State, error) {
	seq, err := s.seqAt(c.Context, c.String(flag))
	if err != nil {
		return nil, err
	}
	state, err := s.state(c.Context, seq, p)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return state, nil
}

// diffPrinter prints differences: one in a line, an array of JSON, or records of CSV.
type diffPrinter struct {
	w      io.Writer
	json   bool   // no text for people
	format string // json, csv, or "": as json says
	names  *names.Finder
	all    []any // of JSON
	rows   [][]string
	err    error
}

func newDiffPrinter(c *cli.Context, found *names.Finder) *diffPrinter {
	format := c.String("output")
	return &diffPrinter{w: c.App.Writer, json: format != "table", format: format, names: found, all: []any{}}
}

// diffHeader has the columns of CSV.
var diffHeader = []string{"cn", "action", "kind", "id", "name", "seq", "field", "old", "new"}

// end writes what is written at once.
func (d *diffPrinter) end() error {
	switch {
	case d.err != nil:
		return d.err
	case d.format == "json":
		return output.Indented(d.w, d.all)
	case d.format == "csv":
		return output.CSV(d.w, diffHeader, d.rows)
	}
	return nil
}

// print prints v as JSON, or text and what belongs to it, a line each.
func (d *diffPrinter) print(v any, text string, parts ...string) {
	switch {
	case d.err != nil, d.format == "csv":
	case d.format == "json":
		d.all = append(d.all, v)
	case d.json:
		d.err = output.JSON(d.w, v)
	default:
		d.err = output.Printf(d.w, "%s\n", text)
		for _, part := range parts {
			d.err = errors.Join(d.err, output.Printf(d.w, "    %s\n", part))
		}
	}
}

// sign is the mark of an added, removed or changed line.
func sign(a log.Action) string {
	switch a {
	case log.Create:
		return "+"
	case log.Delete:
		return "-"
	}
	return "~"
}

// diffField is a field that differs, in JSON.
type diffField struct {
	Path    string    `json:"path"`
	Old     log.Value `json:"old"`
	New     log.Value `json:"new"`
	OldName string    `json:"old_name,omitempty"` // of what the value names
	NewName string    `json:"new_name,omitempty"`
}

// diffObject is an object that differs, in JSON.
type diffObject struct {
	Action  log.Action  `json:"action"`
	Kind    log.Kind    `json:"kind"`
	ID      string      `json:"id"`
	Name    string      `json:"name,omitempty"`
	Seq     log.Seq     `json:"seq,omitempty"`
	Changed []diffField `json:"changed,omitempty"`
}

func (d *diffPrinter) objects(changes []projections.ObjectChange) {
	for _, c := range changes {
		form := diffObject{Action: c.Action, Kind: c.Kind, ID: c.ID}
		at := ""
		if c.After != nil {
			form.Seq, form.Name = c.After.Seq, names.Own(c.After.Object)
			at = fmt.Sprintf(" #%d", form.Seq)
		} else {
			form.Name = d.names.Of(c.Kind, c.ID)
		}
		if form.Name != "" {
			at = " (" + line.Name(form.Name) + ")" + at
		}
		text := fmt.Sprintf("%s %s %s%s", sign(c.Action), c.Kind, c.ID, at)
		var parts []string
		for _, changed := range c.Changed {
			now, _ := log.Field(c.After.Object, changed.Path)
			f := diffField{
				Path: changed.Path, Old: log.ShownValue(c.Kind, changed.Path, changed.Old), New: log.ShownValue(c.Kind, changed.Path, now),
				OldName: d.named(changed.Path, changed.Old), NewName: d.named(changed.Path, now),
			}
			form.Changed = append(form.Changed, f)
			parts = append(parts, fmt.Sprintf("%s :: %s -> %s", f.Path, d.value(f.Path, f.Old, f.OldName), d.value(f.Path, f.New, f.NewName)))
			d.row("", c.Action, form, f.Path, output.Text(f.Old), output.Text(f.New))
		}
		if len(c.Changed) == 0 {
			d.row("", c.Action, form, "", "", "")
		}
		d.print(form, text, parts...)
	}
}

// named is the name of what a value names, or "".
func (d *diffPrinter) named(field string, v log.Value) string {
	uuid, _ := v.(string)
	return d.names.Name(field, uuid)
}

// value is a value for people, with the name of what it names.
func (d *diffPrinter) value(field string, v log.Value, name string) string {
	text := line.Value(field, v)
	if name != "" {
		text += " (" + line.Name(name) + ")"
	}
	return text
}

// row adds a record of CSV.
func (d *diffPrinter) row(cn string, action log.Action, form diffObject, field, old, now string) {
	if d.format == "csv" {
		seq := ""
		if form.Seq > 0 {
			seq = form.Seq.String()
		}
		d.rows = append(d.rows, []string{cn, action.String(), form.Kind.String(), form.ID, form.Name, seq, field, old, now})
	}
}

// links prints the changes of a kernel's links. of is the CN if several are printed.
func (d *diffPrinter) links(of string, changes []desired.LinkChange) {
	for _, c := range changes {
		text := c.Before
		switch c.Action {
		case log.Create:
			text = c.After
		case log.Update:
			text += " -> " + c.After
		}
		if d.format == "csv" {
			d.rows = append(d.rows, []string{of, c.Action.String(), c.What, c.Key, "", "", "", c.Before, c.After})
		}
		d.print(struct {
			CN     string     `json:"cn,omitempty"`
			Action log.Action `json:"action"`
			What   string     `json:"what"`
			Key    string     `json:"key"`
			Before string     `json:"before,omitempty"`
			After  string     `json:"after,omitempty"`
		}{of, c.Action, c.What, c.Key, c.Before, c.After}, fmt.Sprintf("%s %s %s %s", sign(c.Action), c.What, c.Key, text))
	}
}

// diffLogs finds the first entry that two logs do not share.
func diffLogs(c *cli.Context, nameA, nameB string) (err error) {
	a, err := openNamed(c, nameA)
	if err != nil {
		return err
	}
	defer closeJoining(a, &err)
	b, err := openNamed(c, nameB)
	if err != nil {
		return err
	}
	defer closeJoining(b, &err)
	from, to := max(a.floor, b.floor), min(a.head, b.head)
	if from > to {
		return fmt.Errorf("%s has the entries %d to %d and %s %d to %d: they have none in common to compare", a.name, a.floor+1, a.head, b.name, b.floor+1, b.head)
	}
	seq, err := firstApart(c.Context, a, b, from, to)
	if err != nil {
		return err
	}
	if seq == 0 {
		switch {
		case a.head == b.head:
			output.Printf(c.App.Writer, "the same log from seq %d to the head %d\n", from+1, to)
		default:
			output.Printf(c.App.Writer, "the same log from seq %d to %d; %s goes on to %d, %s to %d\n", from+1, to, a.name, a.head, b.name, b.head)
		}
		return nil
	}
	output.Printf(c.App.Writer, "they part at seq %d\n", seq)
	for _, s := range []*pastLog{a, b} {
		if err := printEntry(c, s, seq); err != nil {
			return err
		}
	}
	return errors.New("the logs are not the same")
}

// firstApart returns the first seq in (from, to] at which the chains differ, 0 if they
// are the same. Chains that differ once differ at all later seqs, so a binary search
// finds it in folders.
func firstApart(ctx context.Context, a, b *pastLog, from, to log.Seq) (log.Seq, error) {
	same := func(seq log.Seq) (bool, error) {
		x, err := a.chain(ctx, seq)
		if err != nil {
			return false, err
		}
		y, err := b.chain(ctx, seq)
		return x == y, err
	}
	if ok, err := same(to); ok || err != nil {
		return 0, err
	}
	low, high := from, to // the chains differ at high
	for high-low > 1 {
		middle := low + (high-low)/2
		ok, err := same(middle)
		if err != nil {
			return 0, err
		}
		if ok {
			low = middle
		} else {
			high = middle
		}
	}
	return high, nil
}

// chain returns the chain's prefix at seq.
func (s *pastLog) chain(ctx context.Context, seq log.Seq) (log.ChainPrefix, error) {
	if s.folder != nil {
		hash, err := s.folder.HashAt(seq)
		return hash.Prefix(), err
	}
	if seq == s.floor { // there are no entries below it
		return log.ChainPrefix{}, nil
	}
	for e, err := range s.api.Entries(ctx, seq-1) {
		return e.Hash.Prefix(), err
	}
	return log.ChainPrefix{}, fmt.Errorf("%s has no entry %d", s.name, seq)
}

// printEntry prints the entry of one side.
func printEntry(c *cli.Context, s *pastLog, seq log.Seq) error {
	for e, err := range s.entries(c.Context, seq-1) {
		if err != nil {
			return err
		}
		event, err := e.Event()
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		err = output.Printf(c.App.Writer, "%s: %s #%d %s %s %s rev=%d  by %s, change %s\n", s.name, event.Time, seq, event.Kind, event.ID, event.Action, event.Revision, event.Actor, event.ChangeID)
		return err
	}
	return fmt.Errorf("%s: no entry %d", s.name, seq)
}
