package app

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
)

// canonical reads args, which come after the program's name, and returns them with each
// command's flags before its arguments and every flag on its own: `rutter nic get MAC
// -o json` is what users type. Words after "--" stay as they are. Errors:
// term.UsageError, for an unknown flag, or one with no value or a wrong value.
func canonical(app *cli.App, args []string) ([]string, error) {
	l := commandLine{path: app.Name, flags: app.Flags, help: true}
	commands := app.Commands
	for i, arg := range args {
		if strings.HasPrefix(arg, "-") {
			break
		}
		at := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(arg) })
		if at < 0 {
			return args, nil // the library reports it
		}
		command := commands[at]
		l = commandLine{path: l.path + " " + command.Name, flags: command.Flags, help: !command.HideHelp, begin: i + 1}
		if next := args[i+1:]; len(command.Subcommands) == 0 || len(next) == 0 || strings.HasPrefix(next[0], "-") {
			break
		}
		commands = command.Subcommands
	}
	if l.begin == 0 { // flags of the program itself, such as --help
		end := slices.IndexFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
		if end < 0 {
			end = len(args)
		}
		_, err := l.read(args[:end])
		return args, err
	}
	rest, err := l.read(args[l.begin:])
	if err != nil {
		return nil, err
	}
	return append(slices.Clone(args[:l.begin]), rest...), nil
}

// commandLine parses the words after a command.
type commandLine struct {
	path  string // of the command, as it is typed
	flags []cli.Flag
	help  bool // it has --help
	begin int  // how many words name the command
}

// read returns the flags of args, then "--" and the arguments.
func (l *commandLine) read(args []string) ([]string, error) {
	var flags, rest []string
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			rest = append(rest, args...)
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			rest = append(rest, arg)
			continue
		}
		name, value, given := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
		flag, ok := l.known(name)
		if parts := l.split(arg); !ok && parts != nil {
			args = append(parts, args...)
			continue
		}
		if !ok {
			return nil, l.unknown(name)
		}
		flags = append(flags, arg)
		if _, isBool := flag.(*cli.BoolFlag); !given && (isBool || flag == nil) {
			continue
		}
		if !given {
			if len(args) == 0 {
				return nil, term.Usagef("%s wants a value%s", dashed(name), expectedValue(flag))
			}
			value, args = args[0], args[1:]
			flags = append(flags, value)
		}
		if !takes(flag, value) {
			return nil, term.Usagef("%s %q%s", dashed(name), value, expectedValue(flag))
		}
	}
	if len(rest) == 0 {
		return flags, nil
	}
	return append(append(flags, "--"), rest...), nil
}

// known finds a flag by any of its names. For --help the flag is nil.
func (l *commandLine) known(name string) (cli.Flag, bool) {
	for _, f := range l.flags {
		if slices.Contains(f.Names(), name) {
			return f, true
		}
	}
	return nil, l.help && (name == "help" || name == "h")
}

// split divides joined short flags, such as -jr. It returns nil for other words.
func (l *commandLine) split(arg string) (parts []string) {
	if strings.HasPrefix(arg, "--") || len(arg) < 3 {
		return nil
	}
	for _, letter := range arg[1:] {
		if _, ok := l.known(string(letter)); !ok {
			return nil
		}
		parts = append(parts, "-"+string(letter))
	}
	return parts
}

// unknown returns the error of an unknown flag, with a similar one.
func (l *commandLine) unknown(name string) error {
	text := l.path + " has no flag " + dashed(name) + ": " + l.path + " --help lists those that there are"
	if like := cli.SuggestFlag(l.flags, name, false); like != "" && like != "--help" {
		text += ". Did you mean " + like + "?"
	}
	return term.Usagef("%s", text)
}

// dashed is a flag as it is given.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + strings.TrimLeft(name, "-")
}

// takes reports whether a flag can be set to value.
func takes(flag cli.Flag, value string) bool {
	var err error
	switch flag.(type) {
	case *cli.IntFlag:
		_, err = strconv.ParseInt(value, 0, strconv.IntSize)
	case *cli.Int64Flag:
		_, err = strconv.ParseInt(value, 0, 64)
	case *cli.UintFlag:
		_, err = strconv.ParseUint(value, 0, strconv.IntSize)
	case *cli.Uint64Flag:
		_, err = strconv.ParseUint(value, 0, 64)
	case *cli.DurationFlag:
		_, err = time.ParseDuration(value)
	case *cli.BoolFlag, nil:
		_, err = strconv.ParseBool(value)
	case *cli.Float64Flag:
		_, err = strconv.ParseFloat(value, 64)
	}
	return err == nil
}

// expectedValue says which values a flag takes, "" if it takes any text.
func expectedValue(flag cli.Flag) string {
	switch flag.(type) {
	case *cli.IntFlag, *cli.Int64Flag:
		return ": want a whole number"
	case *cli.UintFlag, *cli.Uint64Flag:
		return ": want a whole number, from 0 on"
	case *cli.DurationFlag:
		return ": want a time, as in 30s, 5m or 24h"
	case *cli.BoolFlag, nil:
		return ": want true or false, or nothing"
	case *cli.Float64Flag:
		return ": want a number"
	}
	return ""
}
