package output

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Cells that a spreadsheet would take for formulas, and that have control characters,
// quotes or separators: each record is one line, which any reader of RFC 4180 reads, also
// through a Screen.
func TestCSV(t *testing.T) {
	for _, c := range []struct{ cell, want string }{
		{"web1", "web1"},
		{"-", ""},
		{`a,"b"`, `"a,""b"""`},
		{"a\r\nb\x1b[31m", `a\r\nb\u001b[31m`},
		{"=1+1", "'=1+1"},
		{" =1+1", "' =1+1"},
		{"@SUM(A1)", "'@SUM(A1)"},
		{"+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"},
		{"-1", "-1"},
		{"+1.5", "+1.5"},
		{"-1+2", "'-1+2"},
		{"＝1", "'＝1"},
		{" padded ", `" padded "`},
	} {
		var out bytes.Buffer
		if err := CSV(NewScreen(&out), []string{"A", "B"}, [][]string{{c.cell, "x"}}); err != nil {
			t.Fatal(err)
		}
		if want := "A,B\r\n" + c.want + ",x\r\n"; out.String() != want {
			t.Errorf("%q: %q, want %q", c.cell, out.String(), want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		cells := rapid.SliceOfN(rapid.String(), 1, 4).Draw(t, "cells")
		var out bytes.Buffer
		if err := CSV(NewScreen(&out), cells, [][]string{cells}); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), "\n"); n != 2 || strings.Count(out.String(), "\r\n") != 2 || strings.ContainsAny(out.String(), "\x1b\x00\t") {
			t.Fatalf("%d lines: %q", n, out.String())
		}
		if len(cells) == 1 && strings.Trim(cells[0], "-") == "" {
			return // an empty record, which readers skip
		}
		r := csv.NewReader(&out)
		r.FieldsPerRecord = len(cells)
		records, err := r.ReadAll()
		if err != nil || len(records) != 2 {
			t.Fatalf("%v, %d records", err, len(records))
		}
		for i, cell := range records[1] {
			shown := Visible(cells[i])
			if cells[i] == "-" {
				shown = ""
			}
			if cell != shown && cell != "'"+shown {
				t.Fatalf("%q reads as %q", cells[i], cell)
			}
		}
		if slices.ContainsFunc(records[1], func(cell string) bool { return strings.HasPrefix(strings.TrimSpace(cell), "=") }) {
			t.Fatalf("a formula: %q", records[1])
		}
	})
}

// A table that a command fills cell by cell is CSV too.
func TestCSVOfATable(t *testing.T) {
	var text, out bytes.Buffer
	Print(&text, "NAME\tSTATE\n")
	Printf(&text, "%s\t%s\n", "a\tb\nc", "=x")
	if err := csvOf(&out, text.String()); err != nil || out.String() != "NAME,STATE\r\n"+`a\\tb\\nc`+",'=x\r\n" && out.String() != "NAME,STATE\r\n"+`a\tb\nc`+",'=x\r\n" {
		t.Errorf("%v: %q", err, out.String())
	}
}
