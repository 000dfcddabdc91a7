// Package peers runs the servers of other products, against which the benches hold a
// cluster of ours, and the client that measures them.
package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"rutter/cmd/rutter/bench/load"
	"rutter/cmd/rutter/subprocess"
)

// Servers are processes on loopback. They belong to one goroutine.
type Servers struct {
	Kind      string // what the client calls them: etcd or nats
	Processes []*subprocess.Process
	URLs      []string
}

// Start starts one more.
func (s *Servers) Start(p *subprocess.Process) error {
	err := p.Start()
	if err == nil {
		s.Processes = append(s.Processes, p)
	}
	return err
}

// Rest stops the servers where they are, so that they take no time from others, until
// Continue.
func (s *Servers) Rest() error { return s.signal(syscall.SIGSTOP) }

// Continue ends a Rest.
func (s *Servers) Continue() error { return s.signal(syscall.SIGCONT) }

func (s *Servers) signal(sig syscall.Signal) error {
	var errs []error
	for _, p := range s.Processes {
		errs = append(errs, p.Signal(sig))
	}
	return errors.Join(errs...)
}

// Measure runs the client with these arguments, and returns its outcome.
func (s *Servers) Measure(ctx context.Context, client string, args ...string) (load.Outcome, error) {
	var o load.Outcome
	cmd := exec.CommandContext(ctx, client, append([]string{"-kind", s.Kind, "-endpoints", strings.Join(s.URLs, ",")}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return o, fmt.Errorf("%s %s: %w: %s", client, strings.Join(args, " "), err, stderr.String())
	}
	return o, json.Unmarshal(out, &o)
}

// Stop ends the processes; nothing of them is needed.
func (s *Servers) Stop() error {
	var errs []error
	for _, p := range s.Processes {
		errs = append(errs, p.Stop(syscall.SIGKILL))
	}
	return errors.Join(errs...)
}
