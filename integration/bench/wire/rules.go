package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// rules runs the benchmark of package filter, which programs 10,000 ports.
func (s *suite) rules(ctx context.Context) error {
	out := filepath.Join(s.dir, "rules")
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkRules$", "-benchtime", "1x", "./agent/filter")
	cmd.Env = append(os.Environ(), "RUTTER_BENCH_OUT="+out)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	b, readErr := os.ReadFile(out)
	if err := errors.Join(err, readErr); err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		key, text, _ := strings.Cut(strings.TrimSpace(line), "=")
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("the benchmark of rules told %q: %w", line, err)
		}
		s.Set(key, value)
	}
	return nil
}
