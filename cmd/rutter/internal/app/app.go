// Package app runs the program's commands by urfave/cli, and is the one place that
// departs from it: flags may stand after arguments, `--` ends them, short ones may be
// put together, a required flag that is missing and a flag that is not understood are
// said in one line with what to do, and so is a command that there is not.
//
// It reads a command line by its own grammar and hands the library one that needs no
// judgement; the library parses no mistake, so none of its texts is read here.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
)

// New returns an app of commands, which it makes fit for Run: see Prepare.
func New(version string, stdout, stderr io.Writer, commands []*cli.Command) *cli.App {
	Prepare(commands)
	return &cli.App{
		Name:                   "rutter",
		Usage:                  "the change log that a private cloud's network runs on",
		Version:                version,
		HideVersion:            true, // there is a command for it
		Writer:                 stdout,
		ErrWriter:              stderr,
		Suggest:                true,
		UseShortOptionHandling: true,
		// Whoever calls Run says what went wrong, and sets the exit code.
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
	var missing error // the command that there is not
	app.CommandNotFound = func(c *cli.Context, name string) { missing = noCommand(c, name) }
	if err := app.RunContext(ctx, append(args[:1:1], line...)); err != nil {
		return err
	}
	return missing
}

// noCommand says that there is no such command, and which may be meant. The
// library calls it, with the command whose subcommand is wanted, and goes on as
// if nothing were wrong.
func noCommand(c *cli.Context, name string) error {
	group := c.Command.HelpName
	text := fmt.Sprintf("%s has no command %q: %s --help lists those that there are", group, name, group)
	return term.UsageError{Err: errors.New(text + ". " + cli.SuggestCommand(c.Command.Subcommands, name))}
}

// usageError is for what the library finds wrong before it reads flags, as in a
// variable that sets one.
func usageError(_ *cli.Context, err error, _ bool) error { return term.UsageError{Err: err} }

// Prepare makes mistakes in any of the commands' flags usage errors, and lets each
// that asks servers show a certificate.
func Prepare(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = usageError
		requireFlags(c)
		if FlagNamed(c.Flags, "server") != nil && FlagNamed(c.Flags, "tls-dir") == nil {
			c.Flags = append(slices.Clone(c.Flags), term.TLSFlags()...)
		}
		Prepare(c.Subcommands)
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

// requireFlags has a command say in a line which of its flags are missing, where the
// library would print the command's whole help.
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
