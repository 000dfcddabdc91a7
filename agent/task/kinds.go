package task

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Nop does nothing: it shows that tasks reach the node and results come back.
func Nop(context.Context, json.RawMessage) (any, error) { return struct{}{}, nil }

// Bounds of a command.
const (
	maxScript = 48 << 10
	maxOutput = 16 << 10 // bytes kept of each of stdout and stderr: the end of it
	killAfter = 2 * time.Second
)

// Executed is the result of a command.
type Executed struct {
	ExitStatus int    `json:"exit_status"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	Cut        bool   `json:"cut,omitempty"` // output was longer: its end is kept
}

// Execute runs params.script by /bin/sh with params.args and params.env, as Ur did. It
// ends, with all processes that it started, when the task's time is over. An exit
// status other than 0 is a failure that has the status and the end of stderr.
func Execute(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		Script string            `json:"script"`
		Args   []string          `json:"args"`
		Env    map[string]string `json:"env"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, fmt.Errorf("params: want script, args and env: %w", err)
	}
	if p.Script == "" || len(p.Script) > maxScript {
		return nil, fmt.Errorf("params.script: want 1 to %d bytes, not %d", maxScript, len(p.Script))
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", p.Script, "sh"}, p.Args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	for name, value := range p.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killAfter
	var out, errs tail
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	result := Executed{ExitStatus: -1, Stdout: out.text(), Stderr: errs.text(), Cut: out.cut || errs.cut}
	if cmd.ProcessState != nil {
		result.ExitStatus = cmd.ProcessState.ExitCode()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		err = fmt.Errorf("exit status %d: %s", result.ExitStatus, lastLine(result.Stderr))
	}
	return result, err
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// tail keeps the last maxOutput bytes that are written to it.
type tail struct {
	b   bytes.Buffer
	cut bool
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.b.Write(p)
	if over := t.b.Len() - maxOutput; over > 0 {
		t.b.Next(over)
		t.cut = true
	}
	return len(p), nil
}

func (t *tail) text() string { return strings.ToValidUTF8(t.b.String(), "?") }
