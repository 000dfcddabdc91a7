// Command table prints what the benches measured last, with goals, peers and the values of
// the last release, and draws it: `make bench` ends with it. The values come from the files
// that each bench keeps (bin/bench-NAME.json).
//
// It owns the goals (goals.go) and the values of the last release (released.json). With
// -take it keeps the values of a bench that only prints them.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
)

func main() {
	folder := flag.String("results", "bin", "`FOLDER` with the files of the benches")
	released := flag.String("released", "integration/bench/table/released.json", "`FILE` with the last release's values")
	release := flag.Bool("release", false, "writes that file with the present values, for the next release")
	svg := flag.String("svg", "", "`FILE` to draw the table into")
	take := flag.String("take", "", "reads the output of the bench `NAME` and keeps the values of its last line")
	flag.Parse()
	if err := run(*folder, *released, *svg, *take, *release); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func run(folder, releasedFile, svg, take string, release bool) error {
	if take != "" {
		return keep(os.Stdin, os.Stdout, fileOf(folder, take))
	}
	rows, err := read(folder, releasedFile)
	if err != nil {
		return err
	}
	if err := write(os.Stdout, rows); err != nil {
		return err
	}
	if svg != "" {
		if err := os.WriteFile(svg, []byte(draw(rows)), 0o644); err != nil {
			return err
		}
	}
	if release {
		return writeReleased(releasedFile, rows)
	}
	return nil
}

// row is a figure with its values; nil: not measured.
type row struct {
	figure
	is, was *float64
}

func fileOf(folder, bench string) string { return filepath.Join(folder, "bench-"+bench+".json") }

// read reads the values of all figures.
func read(folder, releasedFile string) (rows []row, err error) {
	released := make(map[string]map[string]string)
	if err := readFile(releasedFile, &released); err != nil {
		return nil, err
	}
	measured := make(map[string]map[string]string)
	for _, f := range figures {
		values, ok := measured[f.bench]
		if !ok {
			if err := readFile(fileOf(folder, f.bench), &values); err != nil {
				return nil, err
			}
			measured[f.bench] = values
		}
		r := row{figure: f}
		if r.is, err = number(values[f.key]); err == nil {
			r.was, err = number(released[f.bench][f.key])
		}
		if err != nil {
			return nil, fmt.Errorf("%s of bench-%s: %w", f.key, f.bench, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// readFile reads a file of JSON. One that is not there has no values.
func readFile(path string, into any) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func number(text string) (*float64, error) {
	if text == "" || text == "na" {
		return nil, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	return &v, err
}

// keep copies the output of a bench, and writes the key=value pairs of its last line that
// has any into a file, over those of earlier parts.
func keep(in io.Reader, out io.Writer, path string) error {
	values := make(map[string]string)
	if err := readFile(path, &values); err != nil {
		return err
	}
	var last string
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fmt.Fprintln(out, lines.Text())
		if first, _, _ := strings.Cut(lines.Text(), " "); strings.Contains(first, "=") {
			last = lines.Text()
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if last == "" {
		return errors.New("the bench printed no line of key=value")
	}
	for _, pair := range strings.Fields(last) {
		if key, value, ok := strings.Cut(pair, "="); ok {
			values[key] = value
		}
	}
	b, err := json.MarshalIndent(values, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// writeReleased writes the present values as those of a release. What was not measured keeps
// its older value.
func writeReleased(path string, rows []row) error {
	all := make(map[string]map[string]string)
	for _, r := range rows {
		v := r.is
		if v == nil {
			v = r.was
		}
		if v == nil {
			continue
		}
		if all[r.bench] == nil {
			all[r.bench] = make(map[string]string)
		}
		all[r.bench][r.key] = short(v)
	}
	b, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// write prints the table.
func write(out io.Writer, rows []row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "bench\tfigure\tis\tgoal\t\theld against\tlast release")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.bench, r.text, short(r.is), r.goalText(), r.verdict(), r.peer, short(r.was))
	}
	return w.Flush()
}

// goalText is the goal as the table has it.
func (f *figure) goalText() string {
	switch {
	case f.goal == 0:
		return ""
	case f.most:
		return "at most " + short(&f.goal)
	}
	return "at least " + short(&f.goal)
}

// verdict says whether the goal is met.
func (r *row) verdict() string {
	switch {
	case r.is == nil || r.goal == 0:
		return ""
	case r.met(*r.is):
		return "met"
	}
	return "missed"
}

// short is a value with three or four digits.
func short(v *float64) string {
	switch {
	case v == nil:
		return "na"
	case *v >= 1000:
		return strconv.FormatFloat(*v, 'f', 0, 64)
	}
	return strconv.FormatFloat(*v, 'g', 4, 64)
}
