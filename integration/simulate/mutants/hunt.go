package mutants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// Found is what the simulator said of one mutant.
type Found struct {
	// After is the number of the first history that failed, counted from 1. 0: none failed.
	After int `json:"after"`
	// Tried is how many histories were run.
	Tried int `json:"tried"`
	// Oracle is what the failing history reported, its first line.
	Oracle string `json:"oracle,omitempty"`
	// Seconds is how long it took, the build excluded.
	Seconds float64 `json:"seconds"`
}

// Simulate runs the n-th history (from 1) with a test program of package simulate. It returns
// what an oracle reported, or "" if the history passed; an error is a history that could not be run.
type Simulate func(ctx context.Context, program string, n int) (failure string, err error)

// Hunt builds the tests of a package (the simulator's) with m in it, and runs histories until one
// fails, at most `most`. dir is a folder for the program, which is removed at the end. A limit of
// time is the caller's ctx: if it ends between histories, what was tried is returned.
func (m Mutant) Hunt(ctx context.Context, root, dir, folder string, most int, simulate Simulate) (Found, error) {
	program, err := m.TestProgram(ctx, root, dir, folder)
	if err != nil {
		return Found{}, err
	}
	defer os.Remove(program)
	began := time.Now()
	var found Found
	for n := 1; n <= most && ctx.Err() == nil; n++ {
		failure, err := simulate(ctx, program, n)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return Found{}, fmt.Errorf("mutant %q, history %d: %w", m.Name, n, err)
		}
		found.Tried = n
		if failure != "" {
			found.After, found.Oracle = n, failure
			break
		}
	}
	found.Seconds = time.Since(began).Seconds()
	return found, nil
}

// ReadFound reads what the simulator found, by the names of mutants. A file that is not there
// is an empty one.
func ReadFound(file string) (map[string]Found, error) {
	all := map[string]Found{}
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	} else if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return all, nil
}

// Record writes what the simulator found of one mutant into a file, beside that of others.
func Record(file, mutant string, found Found) error {
	all, err := ReadFound(file)
	if err != nil {
		return err
	}
	all[mutant] = found
	b, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}
