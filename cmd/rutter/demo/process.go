package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"rutter/cmd/rutter/netlab"
)

// process is one `rutter server` or `rutter agent`, with its log in a file.
type process struct {
	name    string
	args    []string
	in      *netlab.Namespace // nil: the underlay's own
	program string
	logPath string

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process was waited for
}

// start starts the process, or starts it again; the log is appended to.
func (p *process) start() error {
	file, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	cmd := exec.Command(p.program, p.args...)
	cmd.Stdout, cmd.Stderr = file, file
	launch := cmd.Start
	if p.in != nil {
		launch = func() error { return p.in.Do(cmd.Start) }
	}
	if err := launch(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended = cmd, ended
	go func() {
		_ = cmd.Wait() // the caller that ended it checks the result
		close(ended)
	}()
	return nil
}

// stop sends sig and waits until the process has ended.
func (p *process) stop(ctx context.Context, sig syscall.Signal) error {
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w", p.name, context.Cause(ctx))
	}
}

// alive reports whether the process runs.
func (p *process) alive() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// lastLines returns the end of the process's log, for the report of a failure.
func (p *process) lastLines(n int) string {
	b, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// pollEvery is how often a condition is looked at again.
const pollEvery = 5 * time.Millisecond

// until waits for a condition. The error names the condition and its last error.
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
