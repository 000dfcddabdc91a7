package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
)

// What the library says of flags that it cannot use, in its and the flag package's
// words.
var (
	unknownFlag = regexp.MustCompile(`^flag provided but not defined: -(.*)$`)
	badValue    = regexp.MustCompile(`^invalid (?:boolean )?value (".*") for (?:flag )?-([^ :]+): `)
	noValue     = regexp.MustCompile(`^flag needs an argument: -(.*)$`)
)

// usageError says what is wrong with the flags of a command, and what to do.
func usageError(c *cli.Context, err error, _ bool) error {
	if m := unknownFlag.FindStringSubmatch(err.Error()); m != nil {
		help := c.Command.HelpName + " --help"
		text := fmt.Sprintf("%s has no flag %s: %s lists those that there are", c.Command.HelpName, dashed(m[1]), help)
		if like := cli.SuggestFlag(c.Command.Flags, m[1], false); like != "" && like != "--help" {
			text += ". Did you mean " + like + "?"
		}
		return term.Usagef("%s", text)
	}
	if m := noValue.FindStringSubmatch(err.Error()); m != nil {
		return term.Usagef("%s wants a value%s", dashed(m[1]), wantOf(c.Command.Flags, m[1]))
	}
	if m := badValue.FindStringSubmatch(err.Error()); m != nil {
		if want := wantOf(c.Command.Flags, m[2]); want != "" {
			return term.Usagef("%s %s%s", dashed(m[2]), m[1], want)
		}
	}
	return term.UsageError{Err: err}
}

// dashed is a flag as it is given.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + strings.TrimLeft(name, "-")
}

// wantOf says what a flag takes, by any of its names; "" if that is any text.
func wantOf(flags []cli.Flag, name string) string {
	at := slices.IndexFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	if at < 0 {
		return ""
	}
	switch flags[at].(type) {
	case *cli.IntFlag, *cli.Int64Flag:
		return ": want a whole number"
	case *cli.UintFlag, *cli.Uint64Flag:
		return ": want a whole number, from 0 on"
	case *cli.DurationFlag:
		return ": want a time, as in 30s, 5m or 24h"
	case *cli.BoolFlag:
		return ": want true or false, or nothing"
	case *cli.Float64Flag:
		return ": want a number"
	}
	return ""
}

// required has a command say which of its flags are missing in a line, where the
// library would print the command's whole help.
func required(c *cli.Command) {
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
