// Command rutter is the one binary of Rutter: server, agent, tools. It wires
// the packages together and knows nothing that they could know themselves.
//
// Exit codes: 0 done; 1 failed; 2 wrong usage; 3 refused by the log (the
// change was understood and not accepted); 4 no server could be reached; 130
// interrupted before it was done.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/certcmd"
	"rutter/cmd/rutter/importcmd"
	"rutter/cmd/rutter/logcmd"
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

// version is set by the linker (see Makefile).
var version = "development"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args, os.Stdout, os.Stderr))
}

// run runs the program and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	app := newApp(stdout, stderr)
	everyCommand(app.Commands)
	configured(app.Commands)
	var missing error // the command that there is not
	app.CommandNotFound = func(c *cli.Context, name string) { missing = noCommand(c, name) }
	err := app.RunContext(ctx, append(args[:1:1], flagsFirst(app.Commands, args[1:])...))
	if err == nil {
		err = missing
	}
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintln(stderr, "rutter: interrupted")
		return exitInterrupted
	}
	if text := err.Error(); text != "" { // else what was printed says it
		fmt.Fprintf(stderr, "rutter: %s%s\n", text, remedyOf(err))
	}
	return exitCode(err)
}

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

// What every command has of package term, by short names.
func usagef(format string, args ...any) error { return term.Usagef(format, args...) }
func examples(lines ...string) string         { return term.Examples(lines...) }
func noArguments(c *cli.Context) error        { return term.NoArguments(c) }
func serversFlag() cli.Flag                   { return term.ServersFlag() }
func outputFlag() cli.Flag                    { return term.OutputFlag("table", "json", "ndjson") }

func printOne(c *cli.Context, v any, table func(io.Writer)) error {
	return term.PrintOne(c, v, table)
}

// noCommand says that there is no such command, and which may be meant. The
// library calls it, with the command whose subcommand is wanted, and goes on as
// if nothing were wrong.
func noCommand(c *cli.Context, name string) error {
	group := c.Command.HelpName
	text := fmt.Sprintf("%s has no command %q: %s --help lists those that there are", group, name, group)
	return term.UsageError{Err: errors.New(text + ". " + cli.SuggestCommand(c.Command.Subcommands, name))}
}

func newApp(stdout, stderr io.Writer) *cli.App {
	return &cli.App{
		Name:                   "rutter",
		Usage:                  "the change log that a private cloud's network runs on",
		Version:                version,
		HideVersion:            true, // there is a command for it
		Writer:                 stdout,
		ErrWriter:              stderr,
		Suggest:                true,
		UseShortOptionHandling: true,
		// The program's own run says what went wrong, and sets the exit code.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   usageError,
		Description: examples(
			"Try it, three servers and two compute nodes in namespaces:  rutter demo",
			"A cluster to play with, in one terminal:                    rutter dev",
			"What happened lately:                                       rutter log tail -n 20",
			"Who has this address:                                       rutter lookup vl3 4385813 10.21.12.7",
		),
		Commands: slices.Concat([]*cli.Command{
			serverCommand(), agentCommand(), varpdCommand(), devCommand(), demoCommand(), benchCommand(),
			objectCommand(log.KindNICTag), objectCommand(log.KindNetwork), objectCommand(log.KindNIC),
			vmCommand(), vmmCommand(),
			objectCommand(log.KindSetting), objectCommand(log.KindVM),
		}, otherKinds(), []*cli.Command{
			cnCommand(), taskCommand(),
			logcmd.Command(), changefeedCommand(), importcmd.Command(), certcmd.Command(), certcmd.TokenCommand(), grantCommand(), waitCommand(), lookupCommand(), traceCommand(), svpCommand(), vminfoCommand(), clusterCommand(), snapshotCommand(), configCommand(), completionCommand(), versionCommand(),
		}),
	}
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "print this program's version and the formats that it knows",
		Description: examples("rutter version", "rutter version -o json"),
		Flags:       []cli.Flag{outputFlag()},
		Action: func(c *cli.Context) error {
			v := struct {
				Version string `json:"version"`
				Format  int    `json:"format"`
				Feature int    `json:"feature"`
			}{version, log.FormatVersion, log.FeatureVersion}
			return printOne(c, v, func(w io.Writer) {
				fmt.Fprintf(w, "rutter %s (format %d, feature version %d)\n", v.Version, v.Format, v.Feature)
			})
		},
	}
}
