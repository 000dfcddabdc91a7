package output

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
)

// Flag is -o of a command that prints data in one of formats, the first
// of which is the default. Without formats they are table, json and ndjson.
func Flag(formats ...string) cli.Flag {
	if len(formats) == 0 {
		formats = []string{"table", "json", "ndjson"}
	}
	last := len(formats) - 1
	names := strings.Join(formats[:last], ", ") + " or " + formats[last]
	return &cli.StringFlag{
		Name: "output", Aliases: []string{"o"}, Value: formats[0], EnvVars: []string{"RUTTER_OUTPUT"},
		Usage: "`FORMAT` of what is printed: " + names,
		Action: func(_ *cli.Context, format string) error {
			if slices.Contains(formats, format) {
				return nil
			}
			return term.Usagef("--output %q: want %s", format, names)
		},
	}
}

// One prints v as JSON if -o says so, or with table for people.
func One(c *cli.Context, v any, table func(io.Writer)) error {
	switch c.String("output") {
	case "json":
		enc := json.NewEncoder(c.App.Writer)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	case "ndjson":
		return json.NewEncoder(c.App.Writer).Encode(v)
	}
	table(c.App.Writer)
	return nil
}

// Table is One with a table: fill writes its lines, with tabs between the cells.
func Table(c *cli.Context, v any, fill func(io.Writer)) error {
	return One(c, v, func(out io.Writer) {
		w := Aligned(out)
		fill(w)
		_ = w.Flush() // the terminal is gone
	})
}

// Aligned returns a writer of tables: tabs separate the cells of a line. The caller
// flushes it.
func Aligned(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) }
