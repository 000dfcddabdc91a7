package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
)

// flagsFirst moves the flags of a command before its other arguments, where the
// flag package wants them: `rutter nic get MAC -o json` is what people type.
// What follows "--" stays as it is.
func flagsFirst(commands []*cli.Command, args []string) []string {
	for i, arg := range args {
		if strings.HasPrefix(arg, "-") {
			return args // flags of the program itself, such as --help
		}
		at := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(arg) })
		if at < 0 {
			return args
		}
		command := commands[at]
		if next := args[i+1:]; len(command.Subcommands) > 0 && len(next) > 0 && !strings.HasPrefix(next[0], "-") {
			commands = command.Subcommands
			continue
		}
		return append(slices.Clone(args[:i+1]), reorder(command.Flags, args[i+1:])...)
	}
	return args
}

func reorder(known []cli.Flag, args []string) []string {
	var flags, rest []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			rest = append(rest, args[i+1:]...)
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			rest = append(rest, arg)
			continue
		}
		flags = append(flags, arg)
		if takesValue(known, arg) && i+1 < len(args) {
			i++
			flags = append(flags, args[i])
		}
	}
	if len(rest) == 0 {
		return flags
	}
	return append(append(flags, "--"), rest...)
}

// takesValue reports whether the argument after a flag is its value.
func takesValue(known []cli.Flag, arg string) bool {
	name := strings.TrimLeft(arg, "-")
	if strings.Contains(name, "=") {
		return false
	}
	for _, f := range known {
		if slices.Contains(f.Names(), name) {
			_, isBool := f.(*cli.BoolFlag)
			return !isBool
		}
	}
	return false // an unknown flag is refused in any case
}

// everyCommand makes mistakes in the flags of any command usage errors, and lets
// each that asks servers show a certificate.
func everyCommand(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = usageError
		required(c)
		if flagNamed(c.Flags, "server") != nil && flagNamed(c.Flags, "tls-dir") == nil {
			c.Flags = append(slices.Clone(c.Flags), term.TLSFlags()...)
		}
		everyCommand(c.Subcommands)
	}
}
