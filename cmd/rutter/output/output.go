package output

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// Column is one column of a table of objects.
type Column struct {
	title string
	value func(object map[string]any) string
}

// Field is a column that shows one field as it is.
func Field(title, name string) Column {
	return Column{title, func(o map[string]any) string { return Text(o[name]) }}
}

// Computed is a column that shows the result of value for an object.
func Computed(title string, value func(object map[string]any) string) Column {
	return Column{title, value}
}

// Text is the text of a JSON value in a table's cell.
func Text(v any) string {
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
			parts[i] = Text(e)
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

// Objects prints a list of objects. The flag is that of TableFlag.
func Objects(c *cli.Context, objects []map[string]any, columns []Column) error {
	switch c.String("output") {
	case "csv":
		header, rows := make([]string, len(columns)), make([][]string, len(objects))
		for i, col := range columns {
			header[i] = col.title
			for n, o := range objects {
				rows[n] = append(rows[n], col.value(o))
			}
		}
		return CSV(c.App.Writer, header, rows)
	case "json":
		return One(c, objects, nil)
	case "ndjson":
		for _, o := range objects {
			if err := JSON(c.App.Writer, o); err != nil {
				return err
			}
		}
		return nil
	}
	w := Aligned(c.App.Writer)
	for i, col := range columns {
		Printf(w, "%s", col.title)
		Print(w, tabOrEnd(i, len(columns)))
	}
	for _, o := range objects {
		for i, col := range columns {
			Printf(w, "%s", col.value(o))
			Print(w, tabOrEnd(i, len(columns)))
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
