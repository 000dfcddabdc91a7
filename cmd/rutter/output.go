package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
)

// column is one column of a table of objects.
type column struct {
	title string
	value func(object map[string]any) string
}

// field is a column that shows one field as it is.
func field(title, name string) column {
	return column{title, func(o map[string]any) string { return text(o[name]) }}
}

// computed is a column that shows what value makes of an object.
func computed(title string, value func(object map[string]any) string) column {
	return column{title, value}
}

// text is how a JSON value stands in a table's cell.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		if v == "" {
			return "-"
		}
		return v
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = text(e)
		}
		if len(parts) == 0 {
			return "-"
		}
		return strings.Join(parts, ",")
	case map[string]any:
		b, err := json.Marshal(v)
		if err != nil {
			return "?"
		}
		return string(b)
	case float64: // of JSON, where ours are whole numbers
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

// printObjects prints a list of objects.
func printObjects(c *cli.Context, objects []map[string]any, columns []column) error {
	switch c.String("output") {
	case "json":
		return term.PrintOne(c, objects, nil)
	case "ndjson":
		enc := json.NewEncoder(c.App.Writer)
		for _, o := range objects {
			if err := enc.Encode(o); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	for i, col := range columns {
		fmt.Fprint(w, col.title, tabOrEnd(i, len(columns)))
	}
	for _, o := range objects {
		for i, col := range columns {
			fmt.Fprint(w, col.value(o), tabOrEnd(i, len(columns)))
		}
	}
	return w.Flush()
}

func tabOrEnd(i, n int) string {
	if i == n-1 {
		return "\n"
	}
	return "\t"
}
