// Command plant tries the mutants of package mutants: it builds each with the go command's
// -overlay, runs the tests that must notice it, and prints a line for each. It ends with 1 if a
// mutant was not noticed, does not build, or has a test that fails without it. `make mutants`
// runs it, from the module's root.
//
// It owns which mutants are tried (ONLY, AREA) and where results are kept, so that a run goes on
// where one was ended. Results of sources that have changed since are not used.
//
// Concurrency: one mutant after the other; the go command and the tests use all processors.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"rutter/integration/simulate/mutants"
)

func main() {
	only := flag.String("only", "", "names of mutants, with commas; a name's beginning with * stands for all of them")
	area := flag.String("area", "", "store or node; empty: all")
	kept := flag.String("kept", "bin/mutants.json", "file of results, by which a run goes on; empty: none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *area, *only, *kept); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

// run tries the selected mutants and prints how many were noticed.
func run(ctx context.Context, area, only, kept string) error {
	list, err := choose(area, only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	runner := &mutants.Runner{Root: ".", Dir: dir, Kept: kept, Out: os.Stdout}
	results, err := runner.Run(ctx, list)
	counts := map[mutants.Outcome]int{}
	for _, result := range results {
		counts[result.Outcome]++
	}
	fmt.Printf("%d mutants, %d tests: %d noticed, %d survived, %d skipped, %d broken; %s\n", len(list), len(results),
		counts[mutants.Noticed], counts[mutants.Survived], counts[mutants.Skipped], counts[mutants.Broken], time.Since(began).Round(time.Second))
	return err
}

// choose is the list of mutants that were asked for.
func choose(area, only string) ([]mutants.Mutant, error) {
	if _, ok := mutants.Areas[area]; !ok && area != "" {
		return nil, fmt.Errorf("there is no area %q: use store or node", area)
	}
	if only == "" {
		return mutants.All(area), nil
	}
	var list []mutants.Mutant
	for name := range strings.SplitSeq(only, ",") {
		before, all := strings.CutSuffix(name, "*")
		if !all {
			m, err := mutants.Find(name)
			if err != nil {
				return nil, err
			}
			list = append(list, m)
			continue
		}
		for _, m := range mutants.All(area) {
			if strings.HasPrefix(m.Name, before) {
				list = append(list, m)
			}
		}
	}
	return list, nil
}
