package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/output"
)

// folderVariable tells the inner process which folder the outer one removes.
const folderVariable = "RUTTER_DEMO_FOLDER"

// MaxDuration bounds the whole demo; a step that hangs fails at it.
const MaxDuration = 85 * time.Second

// endGrace is how long the inner process may take to end after a signal before
// the kernel ends it.
const endGrace = 5 * time.Second

// Options say how to run the demo.
type Options struct {
	// Keep leaves the folder with the data and the logs of every process.
	Keep bool
	// Plain goes without TLS.
	Plain bool
	// Args are the arguments with which this program runs Run again.
	Args []string
	Out  io.Writer
}

// Run runs the demo. It returns nil only if every step held.
func Run(ctx context.Context, opts Options) error {
	if netlab.Inside() {
		return runInside(ctx, opts)
	}
	folder, err := os.MkdirTemp("", "rutter-demo-")
	if err != nil {
		return err
	}
	if opts.Keep {
		output.Printf(opts.Out, "Data and logs stay in %s\n", folder)
	} else {
		defer os.RemoveAll(folder)
	}
	cmd := netlab.Enter(opts.Args...)
	cmd.Env = append(cmd.Env, folderVariable+"="+folder)
	// Ctrl-C reaches the whole group of the terminal: this process only waits
	// for the inner one to end, and then removes the folder.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	if err := cmd.Start(); err != nil {
		if netlab.Forbidden(err) {
			return fmt.Errorf("the demo needs network namespaces of its own: %w (%w)", netlab.ErrForbidden, err)
		}
		return err
	}
	return waitInner(ctx, cmd)
}

// waitInner waits for the inner process. When ctx ends, it is asked to end, and
// after endGrace made to.
func waitInner(ctx context.Context, cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
		select {
		case err = <-ended:
		case <-time.After(endGrace):
			_ = cmd.Process.Kill()
			err = <-ended
		}
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return errors.New("the demo did not hold; the lines above say where (rutter demo --keep leaves the logs)")
	}
	return err
}

// limitVariable may raise MaxDuration, for a machine on which everything is
// slow, such as a guest kernel.
const limitVariable = "RUTTER_DEMO_LIMIT"

func duration() (time.Duration, error) {
	text := os.Getenv(limitVariable)
	if text == "" {
		return MaxDuration, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s=%q: want a duration, as in 200s", limitVariable, text)
	}
	return d, nil
}

// runInside runs the steps. This process is the first of its process namespace.
func runInside(ctx context.Context, opts Options) error {
	limit, err := duration()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the demo took longer than %v", limit))
	defer cancel()
	if err := netlab.Settle(); err != nil {
		return err
	}
	folder := os.Getenv(folderVariable)
	if folder == "" {
		return errors.New("the demo's inner process was started without its folder")
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	stage := &stage{
		say: newNarrator(opts.Out), folder: folder, program: program, plain: opts.Plain,
		namespaces: filepath.Join(folder, "netns"), resolvers: filepath.Join(folder, "etc-netns"),
	}
	defer stage.end()
	return stage.play(ctx)
}
