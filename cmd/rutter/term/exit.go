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
	ExitNoReply = 4
	// ExitInterrupted is what a shell gives a program that SIGINT ended.
	ExitInterrupted = 130
)

// Remedy says what to do where nobody answered, whatever was asked.
func Remedy(err error) string {
	if !errors.Is(err, client.ErrUnavailable) || errors.Is(err, varp.ErrNoServer) || errors.As(err, new(NoAnswerError)) {
		return ""
	}
	return "\nName servers that run with -s URL, or in RUTTER_SERVER; rutter dev starts some to try."
}

// NoAnswerError is client.ErrUnavailable of a program of this machine that is no
// server; the text says where it was looked for, and what to do.
type NoAnswerError string

// Error implements error.
func (e NoAnswerError) Error() string { return string(e) }

// Is makes it an ErrUnavailable.
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
	case errors.Is(err, client.ErrUnavailable):
		return ExitNoReply
	case errors.As(err, &coder):
		return coder.ExitCode()
	default:
		return ExitFailed
	}
}
