package output

import (
	"io"
	"strings"

	"rutter/log/line"
)

// CSV writes a table as RFC 4180, the header first. Hidden characters of cells are escaped
// as in a table, so a record is a line; an empty cell of a table, "-", is nothing. What a
// spreadsheet would take for a formula is written as text: see line.AppendCSV.
func CSV(w io.Writer, header []string, rows [][]string) error {
	var out []byte
	for _, row := range append([][]string{header}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cell != "-" {
				cells[i] = Visible(cell)
			}
		}
		out = line.AppendCSV(out, cells...)
	}
	return Escaped(w, out)
}

// csvOf writes the text of a table, with tabs between its cells. Printf has escaped the
// tabs and newlines of the cells themselves.
func csvOf(w io.Writer, text string) error {
	var rows [][]string
	for row := range strings.Lines(text) {
		rows = append(rows, strings.Split(strings.TrimSuffix(row, "\n"), "\t"))
	}
	if len(rows) == 0 {
		return nil
	}
	return CSV(w, rows[0], rows[1:])
}
