package subprocess

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// stopWithin is how long a Process may take to end when it is asked to.
const stopWithin = 2 * time.Minute

// Process is a program that runs, with its output in a file. It is for one goroutine
// at a time.
type Process struct {
	Name    string
	Program string
	Args    []string
	Env     []string // nil: this process's
	LogFile string   // is appended to
	// Launch starts the command, as in a namespace; nil: Start.
	Launch func(*exec.Cmd) error

	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts the program, or starts it again.
func (p *Process) Start() error {
	file, err := os.OpenFile(p.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	cmd := exec.Command(p.Program, p.Args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = file, file, p.Env
	launch := p.Launch
	if launch == nil {
		launch = Start
	}
	if err := launch(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended = cmd, ended
	go func() {
		_ = cmd.Wait() // who asked it to end knows why
		close(ended)
	}()
	return nil
}

// Signal sends a signal; to a program that has ended it does nothing.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Stop asks the program to end, by sig, and waits until it has; one that does
// not is killed.
func (p *Process) Stop(sig syscall.Signal) error {
	if p.cmd == nil {
		return nil
	}
	if err := p.Signal(sig); err != nil {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopWithin):
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
	return fmt.Errorf("%s did not end within %v of %v", p.Name, stopWithin, sig)
}

// Ended is closed when the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Runs reports whether the program was started and has not ended.
func (p *Process) Runs() bool {
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

// PID is that of the process that runs.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Tail returns the end of the program's output.
func (p *Process) Tail() string { return p.LastLines(10) }

// LastLines returns the last n lines of the program's output, or why they cannot be
// read.
func (p *Process) LastLines(n int) string {
	b, err := os.ReadFile(p.LogFile)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
