package term

import (
	"errors"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/log"
	"rutter/varp"
)

// Exit codes of the program.
const (
	ExitFailed  = 1
	ExitUsage   = 2
	ExitRefused = 3
	// ExitDoubtful is that of a question whose answer is neither yes nor no.
	ExitDoubtful = 3
	ExitNoReply  = 4
	// ExitInterrupted is the exit code that a shell reports for a program that SIGINT
	// ended.
	ExitInterrupted = 130
)

// Remedy adds to an error what the user can do if no server answered.
func Remedy(err error) string {
	if !errors.Is(err, client.ErrUnavailable) || errors.Is(err, varp.ErrNoServer) || errors.As(err, new(NoAnswerError)) {
		return ""
	}
	return "Name servers that run with -s URL, or in RUTTER_SERVER; rutter dev starts some to try."
}

// NoAnswerError is the client.ErrUnavailable of a local daemon that is no server. The
// text says at which address it was expected, and what to do.
type NoAnswerError string

// Error implements error.
func (e NoAnswerError) Error() string { return string(e) }

// Is reports whether target is client.ErrUnavailable.
func (NoAnswerError) Is(target error) bool { return target == client.ErrUnavailable }

// ExitCode is the exit code of the program for an error.
func ExitCode(err error) int {
	var refusal *log.Refusal
	var usage UsageError
	var coder cli.ExitCoder
	switch {
	case errors.As(err, &refusal), errors.Is(err, client.ErrCertificate):
		return ExitRefused
	case errors.As(err, &usage):
		return ExitUsage
	case errors.Is(err, client.ErrUnavailable), errors.As(err, new(*TimeoutError)):
		return ExitNoReply
	case errors.As(err, &coder):
		return coder.ExitCode()
	default:
		return ExitFailed
	}
}
