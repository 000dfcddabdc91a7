package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"rutter/api/auth/matrix"
)

// Each command has a row, and each row a command.
func TestEveryCommandHasARow(t *testing.T) {
	app := newApp(io.Discard, io.Discard)
	var names []string
	var walk func(prefix string, commands []*cli.Command)
	walk = func(prefix string, commands []*cli.Command) {
		for _, c := range commands {
			name := strings.TrimSpace(prefix + " " + c.Name)
			if len(c.Subcommands) > 0 {
				walk(name, c.Subcommands)
				continue
			}
			names = append(names, name)
		}
	}
	walk("", app.Commands)
	for _, name := range names {
		if matrix.Find("command "+name) == nil {
			t.Errorf("command %q has no row in api/auth/matrix/commands.go: say which certificate it takes", name)
		}
	}
	for _, row := range matrix.Commands() {
		if name := strings.TrimPrefix(row.What, "command "); !slices.Contains(names, name) {
			t.Errorf("the row %q is of no command", row.What)
		}
	}
}
