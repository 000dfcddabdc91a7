// Package app runs the program's commands by urfave/cli, and is the only place that
// differs from it. Flags may come after arguments, `--` ends flags, and short flags may
// be joined. An error about a missing flag, an unknown flag or an unknown command is
// one line with what to do.
//
// It parses a command line by its own grammar, and gives the library one without
// mistakes. So it need not read the library's error texts.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// New returns an app of commands, which it prepares for Run: see Prepare.
func New(version string, stdout, stderr io.Writer, commands []*cli.Command) *cli.App {
	Prepare(commands)
	return &cli.App{
		Name:                   "rutter",
		Usage:                  "the change log that a private cloud's network runs on",
		Version:                version,
		HideVersion:            true, // the command version does it
		Writer:                 stdout,
		ErrWriter:              stderr,
		Suggest:                true,
		UseShortOptionHandling: true,
		// The caller of Run prints the error, and sets the exit code.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   usageError,
		Commands:       commands,
	}
}

// Run runs one command line, whose first word is the program's name. Mistakes in it
// are a term.UsageError.
func Run(ctx context.Context, app *cli.App, args []string) error {
	line, err := canonical(app, args[1:])
	if err != nil {
		return err
	}
	var missing error // an unknown command
	app.CommandNotFound = func(c *cli.Context, name string) { missing = noCommand(c, name) }
	if err := app.RunContext(ctx, append(args[:1:1], line...)); err != nil {
		return err
	}
	return missing
}

// noCommand returns the error of an unknown command, with a similar one. The library
// calls it with the parent command, and ignores the error itself.
func noCommand(c *cli.Context, name string) error {
	group := c.Command.HelpName
	text := fmt.Sprintf("%s has no command %q: %s --help lists those that there are", group, name, group)
	return term.UsageError{Err: errors.New(text + ". " + cli.SuggestCommand(c.Command.Subcommands, name))}
}

// usageError is for errors that the library finds before it reads flags, such as a
// wrong value in an environment variable.
func usageError(_ *cli.Context, err error, _ bool) error { return term.UsageError{Err: err} }

// Prepare turns mistakes in flags of the commands into usage errors, adds the
// certificate flags and --timeout to each command that asks servers, and makes commands
// keep to --timeout.
func Prepare(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = usageError
		requireFlags(c)
		if FlagNamed(c.Flags, "server") != nil && FlagNamed(c.Flags, "tls-dir") == nil {
			c.Flags = append(slices.Clone(c.Flags), term.TLSFlags()...)
		}
		boundLife(c)
		Prepare(c.Subcommands)
	}
}

// boundLife makes a command that asks servers, and is none that runs on, end by its
// --timeout.
func boundLife(c *cli.Command) {
	if c.Action == nil || FlagNamed(c.Flags, "tls-dir") == nil || FlagNamed(c.Flags, "log-level") != nil {
		return
	}
	if FlagNamed(c.Flags, "timeout") == nil {
		c.Flags = append(slices.Clone(c.Flags), term.TimeoutFlag())
	}
	action := c.Action
	c.Action = func(c *cli.Context) error {
		return term.Bounded(c, func(text string) { output.Printf(c.App.ErrWriter, "rutter: %s\n", text) }, action)
	}
}

// FlagNamed is the flag whose first name is name, or nil.
func FlagNamed(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		if f.Names()[0] == name {
			return f
		}
	}
	return nil
}

// requireFlags makes a command report its missing flags in one line. The library would
// print the command's whole help.
func requireFlags(c *cli.Command) {
	var names []string
	for _, flag := range c.Flags {
		switch f := flag.(type) {
		case *cli.StringFlag:
			if f.Required {
				f.Required, names = false, append(names, f.Name)
			}
		case *cli.StringSliceFlag:
			if f.Required {
				f.Required, names = false, append(names, f.Name)
			}
		}
	}
	if names == nil {
		return
	}
	action := c.Action
	c.Action = func(c *cli.Context) error {
		missing := slices.DeleteFunc(slices.Clone(names), c.IsSet)
		switch len(missing) {
		case 0:
			return action(c)
		case 1:
			return term.Usagef("--%s is missing: %s --help has examples", missing[0], c.Command.HelpName)
		}
		return term.Usagef("--%s are missing: %s --help has examples", strings.Join(missing, ", --"), c.Command.HelpName)
	}
}
