package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"rutter/cmd/rutter/subprocess"
)

// awaitEnd sends sig to a process and waits until it has ended, or ctx has.
func awaitEnd(ctx context.Context, p *subprocess.Process, sig syscall.Signal) error {
	if !p.Runs() {
		return nil
	}
	if err := p.Signal(sig); err != nil {
		return err
	}
	select {
	case <-p.Ended():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w", p.Name, context.Cause(ctx))
	}
}

// pollEvery is how often a condition is looked at again.
const pollEvery = 5 * time.Millisecond

// until waits for a condition; the error says what it was and what it said last.
func until(ctx context.Context, timeout time.Duration, what string, condition func() error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last error
	for {
		if last = condition(); last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v: %w", what, timeout, last)
		case <-time.After(pollEvery):
		}
	}
}

func logFile(folder, name string) string { return filepath.Join(folder, name+".log") }
