package figures

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Main is the main function of the program bench-name: it ends with run, whose
// context ends when the program gets SIGINT or SIGTERM.
func Main(name string, run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "bench-%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Figures are the values that a program of benchmarks ends with, as one line of
// key=value. They are kept in a file, so that the line of a later part has those
// of the earlier ones too; what no part has measured is na. They belong to one
// goroutine.
type Figures struct {
	name   string
	keys   []string
	file   string
	values map[string]string
}

// NewFigures returns those of the program bench-name, with its keys in the line's
// order, and defines its flag -results.
func NewFigures(name string, keys ...string) *Figures {
	f := &Figures{name: name, keys: keys, values: make(map[string]string)}
	flag.StringVar(&f.file, "results", "bin/bench-"+name+".json", "`FILE` that keeps what was measured, for the parts that are not; of a run of all, nothing older")
	return f
}

// Set notes a value. It panics if the key is not one of the line's.
func (f *Figures) Set(key string, value float64) {
	if !slices.Contains(f.keys, key) {
		panic("bench-" + f.name + ": unknown key " + key)
	}
	f.values[key] = fmt.Sprintf("%.4g", value)
	if value >= 1000 {
		f.values[key] = fmt.Sprintf("%.0f", value)
	}
}

// Line returns what the program ends with.
func (f *Figures) Line() string {
	pairs := make([]string, len(f.keys))
	for i, key := range f.keys {
		value, ok := f.values[key]
		if !ok {
			value = "na"
		}
		pairs[i] = key + "=" + value
	}
	return strings.Join(pairs, " ")
}

// Part measures some of the keys.
type Part struct {
	Name string
	Do   func(context.Context) error
}

// PartNames are what -part may say, for its help.
func PartNames(parts []Part) string {
	names := "all"
	for _, p := range parts {
		names += ", " + p.Name
	}
	return names
}

// Run runs the parts whose names begin with only, or all of them, and prints the
// line. One that fails does not keep the others from running; the error has all.
func (f *Figures) Run(ctx context.Context, only string, parts []Part) (err error) {
	if err := f.load(only); err != nil {
		return err
	}
	ran := false
	for _, p := range parts {
		if only != "all" && (only == "" || !strings.HasPrefix(p.Name, only)) {
			continue
		}
		ran = true
		begin := time.Now()
		if partErr := p.Do(ctx); partErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", p.Name, partErr))
		}
		err = errors.Join(err, f.save())
		fmt.Fprintf(os.Stderr, "%s took %s\n", p.Name, time.Since(begin).Round(time.Second))
	}
	if !ran {
		return fmt.Errorf("-part %q: want one of %s", only, PartNames(parts))
	}
	fmt.Println(f.Line())
	return err
}

// load takes what earlier runs measured, unless all is measured now.
func (f *Figures) load(part string) error {
	b, err := os.ReadFile(f.file)
	if part == "all" || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &f.values); err != nil {
		return fmt.Errorf("%s: %w: remove it", f.file, err)
	}
	return nil
}

func (f *Figures) save() error {
	b, err := json.MarshalIndent(f.values, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(f.file, append(b, '\n'), 0o644)
}
