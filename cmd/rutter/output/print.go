package output

import (
	"bytes"
	"encoding/json"
	"fmt"
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
		Action: func(c *cli.Context, format string) error {
			if slices.Contains(formats, format) {
				return nil
			}
			if format == "csv" {
				return term.Usagef("--output csv: what %q prints is not one table: want %s", c.Command.FullName(), names)
			}
			return term.Usagef("--output %q: want %s", format, names)
		},
	}
}

// TableFlag is -o of a command whose table is also printed as CSV, by Objects or Table.
func TableFlag() cli.Flag { return Flag("table", "json", "ndjson", "csv") }

// One prints v as JSON if -o says so, or with table for people.
func One(c *cli.Context, v any, table func(io.Writer)) error {
	switch c.String("output") {
	case "json":
		return Indented(c.App.Writer, v)
	case "ndjson":
		return JSON(c.App.Writer, v)
	}
	table(c.App.Writer)
	return nil
}

// Table is One with a table: fill writes its lines, with tabs between the cells.
// With TableFlag it is printed as CSV too: the first line is the header.
func Table(c *cli.Context, v any, fill func(io.Writer)) error {
	if c.String("output") == "csv" {
		var text bytes.Buffer
		fill(&text)
		return csvOf(c.App.Writer, text.String())
	}
	return One(c, v, func(out io.Writer) {
		w := Aligned(out)
		fill(w)
		_ = w.Flush() // the terminal is gone
	})
}

// JSON writes v as one line of JSON.
func JSON(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

// Indented writes v as JSON for people.
func Indented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// JSONText writes a text that is JSON already, and the end of the line. Another text is
// an error, because its newlines could be forged lines; a string of JSON has none. Invalid
// UTF-8 in a string becomes U+FFFD, as encoding/json reads it: a Screen would write it in a
// form that JSON does not have.
func JSONText(w io.Writer, text []byte) error {
	text = bytes.ToValidUTF8(bytes.TrimSpace(text), []byte("\ufffd"))
	if !json.Valid(text) {
		return fmt.Errorf("want JSON, and got %.80q", text)
	}
	_, err := w.Write(append(slices.Clip(text), '\n'))
	return err
}

// Aligned returns a writer of tables: tabs separate the cells of a line. The caller
// flushes it.
func Aligned(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) }
