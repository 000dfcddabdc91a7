package term

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
)

// Bounds of a command's time.
const (
	// Patience is how long a server may say nothing before it is named and the next one
	// is asked.
	Patience = time.Second
	// answerMargin is the part of --timeout that is kept for the answer of a server that
	// waits, at most: so much earlier the server stops waiting.
	answerMargin = 100 * time.Millisecond
	// lateMargin is how long after --timeout a command may take to say what it lacks. Then
	// it is left where it is.
	lateMargin = 60 * time.Millisecond
)

// TimeoutFlag bounds the life of a command that asks servers.
func TimeoutFlag() cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Usage: "end the whole command after this `TIME`; 0: only what a server does not answer for 30s is given up"}
}

// ServerWait is how long a server may be asked to wait by a command whose --timeout is
// timeout, so that its answer comes in time.
func ServerWait(timeout time.Duration) time.Duration {
	return timeout - min(answerMargin, timeout/4)
}

// TimeoutError: a command's --timeout is over.
type TimeoutError struct {
	After time.Duration
	Err   error // what it was about; nil: unknown
}

// Error implements error.
func (e *TimeoutError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("--timeout %s is over, and it is not done; a write may be done or not", e.After)
	}
	return fmt.Sprintf("--timeout %s is over: %v", e.After, e.Err)
}

// Unwrap returns what the command was about.
func (e *TimeoutError) Unwrap() error { return e.Err }

// Bounded runs action for at most --timeout and lateMargin. The default of a command with a
// flag --wait counts only with that flag. An action that is not done in time goes on while
// the program ends.
//
// print prints what a command reports beside its output; it may be called from any
// goroutine.
func Bounded(c *cli.Context, print func(text string), action cli.ActionFunc) error {
	c.Context = context.WithValue(c.Context, noticesKey{}, &notices{print: print})
	timeout := c.Duration("timeout")
	if timeout < 0 {
		return Usagef("--timeout %s: want a time from 0s on", timeout)
	}
	if timeout == 0 || !c.IsSet("timeout") && !waits(c) {
		return action(c)
	}
	ctx, cancel := context.WithTimeout(c.Context, timeout)
	defer cancel()
	late := time.NewTimer(timeout + lateMargin)
	defer late.Stop()
	own := *c // the caller's context is not written while the action goes on
	own.Context = ctx
	ended := make(chan error, 1)
	go func() { ended <- action(&own) }()
	select {
	case err := <-ended:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrUnavailable)) {
			return &TimeoutError{timeout, err}
		}
		return err
	case <-late.C:
		return &TimeoutError{After: timeout}
	}
}

// waits reports whether a command has no flag --wait, or has it set.
func waits(c *cli.Context) bool {
	for _, f := range c.Command.Flags {
		if f.Names()[0] == "wait" {
			return c.String("wait") != "" || c.Bool("wait")
		}
	}
	return true
}

// noticesKey is the key of a command's notices.
type noticesKey struct{}

// notices are what a command reports on standard error beside its output, each once.
type notices struct {
	print func(text string)
	said  sync.Map // of texts
}

func (t *notices) say(text string) {
	if _, again := t.said.LoadOrStore(text, true); !again {
		t.print(text)
	}
}

func noticesOf(ctx context.Context) *notices {
	if t, is := ctx.Value(noticesKey{}).(*notices); is {
		return t
	}
	return &notices{print: func(string) {}}
}

// silentTo returns client.Config's Silent for a command: it names each server once.
func silentTo(ctx context.Context, servers []string) func(string) {
	rest := "waiting on"
	if len(servers) > 1 {
		rest = "asking the next one"
	}
	return func(server string) {
		noticesOf(ctx).say(fmt.Sprintf("%s has not answered for %s: %s", strings.TrimSuffix(server, "/"), Patience, rest))
	}
}
