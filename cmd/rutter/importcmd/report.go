package importcmd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"rutter/cmd/rutter/output"
	"rutter/log"
)

// maxShown is the number of lines of one sort that are printed without --all.
const maxShown = 20

// report is the result of a run.
type report struct {
	DryRun      bool              `json:"dry_run"`
	Kinds       map[string]*tally `json:"kinds"`
	Steps       []stepForm        `json:"steps"`
	Problems    []problem         `json:"problems"`
	Portolan    *compared         `json:"portolan,omitempty"`
	Differences []difference      `json:"differences,omitempty"`
	Ignored     map[string]int    `json:"ignored_fields,omitempty"`
	Skipped     []string          `json:"skipped,omitempty"`
	Written     int               `json:"written"`
	Events      int               `json:"events"`
}

// stepForm is a step in the report.
type stepForm struct {
	Action  string            `json:"action"`
	Kind    string            `json:"kind"`
	ID      string            `json:"id"`
	Changed []log.FieldChange `json:"-"`
	Fields  []fieldForm       `json:"changed,omitempty"`
}

type fieldForm struct {
	Path string `json:"path"`
	Old  any    `json:"old"`
	New  any    `json:"new"`
}

func newReport(p *plan, dry bool) *report {
	r := &report{DryRun: dry, Kinds: make(map[string]*tally), Problems: p.problems, Ignored: p.in.ignored, Skipped: p.in.skipped}
	for kind, t := range p.tallies {
		r.Kinds[kind.String()] = t
	}
	if len(p.in.overlays)+len(p.in.under) > 0 {
		c, differences := p.in.compare(p.state)
		r.Portolan, r.Differences = &c, differences
	}
	for _, s := range p.steps {
		r.Steps = append(r.Steps, formOf(s))
	}
	return r
}

func formOf(s step) stepForm {
	f := stepForm{Action: "create", Kind: s.op.Kind.String(), ID: s.op.Object.ID()}
	for _, c := range s.changed {
		f.Action = "change"
		now, _ := log.Field(s.after, c.Path)
		if slices.Contains(fixedFields, c.Path) {
			continue
		}
		f.Fields = append(f.Fields, fieldForm{c.Path, c.Old, now})
	}
	return f
}

// refusedCount counts the objects that are left out.
func (r *report) refusedCount() int {
	ids := make(map[string]bool)
	for _, p := range r.Problems {
		if p.Left {
			ids[p.Kind+" "+p.ID+" "+p.From] = true
		}
	}
	return len(ids)
}

// print prints a report as text. all: without leaving out lines.
func (r *report) print(w io.Writer, all bool) {
	most := maxShown
	if all {
		most = int(^uint(0) >> 1)
	}
	r.printTable(w)
	printFirst(w, most, "", r.Steps, stepForm.line)
	printFirst(w, most, "\nNot as in the source:\n", r.Problems, problem.line)
	if c := r.Portolan; c != nil {
		output.Printf(w, "\nportolan's mappings: %d of %d rows are what Rutter answers, %d differ, %d are tombstones; %d NICs on fabrics have no row\n",
			c.Same, c.Rows, len(r.Differences), c.Tombstones, c.Missing)
		printFirst(w, most, "", r.Differences, difference.line)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Ignored)) {
		output.Printf(w, "field %s is not brought over: no object has it here (%d times)\n", name, r.Ignored[name])
	}
	printFirst(w, most, "", r.Skipped, func(name string) string { return "skipped " + name + ": it holds no kind that is brought over" })
}

func (r *report) printTable(w io.Writer) {
	t := output.Aligned(w)
	output.Print(t, "KIND\tCREATE\tCHANGE\tLEAVE\tREFUSE\tHERE ONLY\n")
	for _, kind := range order {
		n := r.Kinds[kind.String()]
		output.Printf(t, "%s\t%d\t%d\t%d\t%d\t%d\n", kind, n.Create, n.Change, n.Leave, n.Refuse, n.Here)
	}
	_ = t.Flush() // the terminal is gone
}

// printFirst prints the first lines of a list, and how many more there are.
func printFirst[T any](w io.Writer, most int, title string, list []T, line func(T) string) {
	if len(list) > 0 {
		output.Lines(w, "", title)
	}
	for _, x := range list[:min(most, len(list))] {
		output.Printf(w, "%s\n", line(x))
	}
	if more := len(list) - most; more > 0 {
		output.Printf(w, "and %d more (--all shows them, -o ndjson is for programs)\n", more)
	}
}

func (s stepForm) line() string {
	if s.Action == "create" {
		return "+ " + s.Kind + " " + s.ID
	}
	var parts []string
	for _, f := range s.Fields {
		parts = append(parts, fmt.Sprintf("%s: %s -> %s", f.Path, valueText(f.Old), valueText(f.New)))
	}
	return "~ " + s.Kind + " " + s.ID + "  " + strings.Join(parts, ", ")
}

func valueText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

func (p problem) line() string {
	text := p.Kind + " " + p.ID
	if p.Left {
		text = "! " + text + " is left out"
	}
	if p.Field != "" {
		text += ": " + p.Field
	}
	text += ": " + p.Message
	if p.Remedy != "" {
		text += " (" + p.Remedy + ")"
	}
	return text
}

func (d difference) line() string {
	return fmt.Sprintf("%s %s: portolan has %s, Rutter %s: %s", d.Table, d.Key, d.Portolan, d.Rutter, d.Cause)
}

// lines writes a report as one JSON object on each line, each with its sort.
func (r *report) lines(w io.Writer) error {
	put := func(sort string, v any) error {
		return output.JSON(w, struct {
			Sort string `json:"sort"`
			Of   any    `json:"of"`
		}{sort, v})
	}
	for _, s := range r.Steps {
		if err := put("step", s); err != nil {
			return err
		}
	}
	for _, p := range r.Problems {
		if err := put("problem", p); err != nil {
			return err
		}
	}
	for _, d := range r.Differences {
		if err := put("difference", d); err != nil {
			return err
		}
	}
	summary := *r
	summary.Steps, summary.Problems, summary.Differences = nil, nil, nil
	return put("summary", summary)
}

// progressPause is the least time between two lines of progress.
const progressPause = time.Second

// progressTo prints progress, at most once in progressPause.
func progressTo(w io.Writer, now func() time.Time) progress {
	last := now()
	return func(what string, n, all int) {
		if t := now(); t.Sub(last) < progressPause {
			return
		} else {
			last = t
		}
		if all > 0 {
			output.Printf(w, "%s: %d of %d (%d%%)\n", what, n, all, 100*n/cmp.Or(all, 1))
			return
		}
		output.Printf(w, "%s: %d\n", what, n)
	}
}
