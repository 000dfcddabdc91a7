package app

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
)

// sample has a command of each shape that the program's have.
func sample(action cli.ActionFunc) []*cli.Command {
	text := func(name string, aliases ...string) cli.Flag { return &cli.StringFlag{Name: name, Aliases: aliases} }
	leaf := func(name string, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Flags: flags, Action: action}
	}
	output, server := text("output", "o"), &cli.StringSliceFlag{Name: "server", Aliases: []string{"s"}}
	return []*cli.Command{
		{Name: "nic", Subcommands: []*cli.Command{leaf("get", output), leaf("update", text("if-match"), server)}},
		{Name: "lookup", Subcommands: []*cli.Command{leaf("vl3", text("svp"), &cli.DurationFlag{Name: "timeout"})}},
		{Name: "log", Subcommands: []*cli.Command{
			leaf("tail", &cli.BoolFlag{Name: "follow", Aliases: []string{"f"}}, &cli.BoolFlag{Name: "raw", Aliases: []string{"r"}}, &cli.UintFlag{Name: "count", Aliases: []string{"n"}}),
		}},
		{Name: "tag", Subcommands: []*cli.Command{leaf("create", text("file", "f"), output, &cli.StringFlag{Name: "owner", Required: true})}},
		{Name: "agent", Flags: []cli.Flag{text("cn")}, Action: action, Subcommands: []*cli.Command{leaf("status", output)}},
		{Name: "snoop", HideHelp: true, Flags: []cli.Flag{text("host", "h")}, Action: action},
	}
}

func TestFlagsFirst(t *testing.T) {
	app := New("test", io.Discard, io.Discard, sample(nil))
	for _, test := range []struct{ args, want string }{
		{"nic get 90:b8:d0:00:00:01 -o json", "nic get -o json -- 90:b8:d0:00:00:01"},
		{"nic update M ip=1 --if-match=3 -s a", "nic update --if-match=3 -s a -- M ip=1"},
		{"lookup vl3 1 10.0.0.1 --svp x:1", "lookup vl3 --svp x:1 -- 1 10.0.0.1"},
		{"log tail --follow -n 5", "log tail --follow -n 5"},
		{"tag create -f - ", "tag create -f -"},
		{"tag create -- -o", "tag create -- -o"},
		{"agent status -o json", "agent status -o json"},
		{"agent --cn x", "agent --cn x"},
		{"--help", "--help"},
		{"nothing here", "nothing here"},
		{"log tail -fr -n 5", "log tail -f -r -n 5"},
		{"log tail -rn 5", "log tail -r -n 5"},
		{"log tail --follow=false x", "log tail --follow=false -- x"},
		{"log tail x --help", "log tail --help -- x"},
		{"snoop -h a", "snoop -h a"},
		{"agent", "agent"},
	} {
		got, err := canonical(app, strings.Fields(test.args))
		if line := strings.Join(got, " "); err != nil || line != test.want {
			t.Errorf("%q: got %q, %v, want %q", test.args, line, err, test.want)
		}
	}
}

// What is wrong with a line is said by Run in one line that has the remedy.
func TestMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"nic get --ouptut json":     "rutter nic get has no flag --ouptut: rutter nic get --help lists those that there are. Did you mean --output?",
		"nic get M -o":              "-o wants a value",
		"log tail --count":          "--count wants a value: want a whole number, from 0 on",
		"log tail -n -1":            `-n "-1": want a whole number, from 0 on`,
		"log tail --count=x":        `--count "x": want a whole number, from 0 on`,
		"log tail --follow=perhaps": `--follow "perhaps": want true or false, or nothing`,
		"log tail -fx":              "rutter log tail has no flag --fx: rutter log tail --help lists those that there are",
		"lookup vl3 --timeout soon": `--timeout "soon": want a time, as in 30s, 5m or 24h`,
		"tag create -o json":        "--owner is missing: rutter tag create --help has examples",
		"--version":                 "rutter has no flag --version: rutter --help lists those that there are",
		"log tial":                  `rutter log has no command "tial": rutter log --help lists those that there are. Did you mean "tail"?`,
		"nonsense":                  `rutter has no command "nonsense": rutter --help lists those that there are. `,
	} {
		app := New("test", io.Discard, io.Discard, sample(func(*cli.Context) error { return nil }))
		err := Run(t.Context(), app, append([]string{"rutter"}, strings.Fields(args)...))
		if !errors.As(err, new(term.UsageError)) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("rutter %s: got %v, want %s", args, err, want)
		}
	}
}

// Flags are what was typed, wherever they stood.
func TestRun(t *testing.T) {
	var got []string
	action := func(c *cli.Context) error {
		got = append(c.Args().Slice(), c.String("if-match"), strings.Join(c.StringSlice("server"), "+"))
		return nil
	}
	app := New("test", io.Discard, io.Discard, sample(action))
	if err := Run(t.Context(), app, strings.Fields("rutter nic update M -s a ip=1 -s b --if-match 3 -- -x")); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(got, " "); text != "M ip=1 -x 3 a+b" {
		t.Errorf("got %s", text)
	}
}
