package main

import (
	"errors"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/varp"
)

// Exit codes of the program.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
	exitNoReply = 4
	// exitInterrupted is what a shell gives a program that SIGINT ended.
	exitInterrupted = 130
)

// remedyOf says what to do where nobody answered, whatever was asked.
func remedyOf(err error) string {
	if !errors.Is(err, client.ErrUnavailable) || errors.Is(err, varp.ErrNoServer) || errors.As(err, new(silentError)) {
		return ""
	}
	return "\nName servers that run with -s URL, or in RUTTER_SERVER; rutter dev starts some to try."
}

// silentError is client.ErrUnavailable of a program of this machine that is no
// server; the text says where it was looked for, and what to do.
type silentError string

// Error implements error.
func (e silentError) Error() string { return string(e) }

// Is makes it an ErrUnavailable.
func (silentError) Is(target error) bool { return target == client.ErrUnavailable }

func exitCode(err error) int {
	var refusal *log.Refusal
	var usage term.UsageError
	var coder cli.ExitCoder
	switch {
	case errors.As(err, &refusal), errors.Is(err, client.ErrCertificate):
		return exitRefused
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, client.ErrUnavailable):
		return exitNoReply
	case errors.As(err, &coder):
		return coder.ExitCode()
	default:
		return exitFailed
	}
}
