package term_test

import (
	"testing"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
)

// A command that is printed for pasting asks the servers that this one asked, and takes
// back no entry besides those of the ranges.
func TestAgain(t *testing.T) {
	for _, name := range []string{"RUTTER_SERVER", "RUTTER_SERVERS", "RUTTER_TLS_DIR"} {
		t.Setenv(name, "")
	}
	for _, c := range []struct {
		args   []string
		ranges []term.Seqs
		want   string
	}{
		{nil, []term.Seqs{{First: 5, Last: 5}}, "rutter log revert 5"},
		{[]string{"-s", "http://a:1", "-s", "http://b:2"}, []term.Seqs{{First: 5, Last: 6}, {First: 7, Last: 9}}, "rutter log revert --from 5 --until 9 -s http://a:1 -s http://b:2"},
		{[]string{"--tls-dir", "my keys"}, []term.Seqs{{First: 5, Last: 6}, {First: 8, Last: 8}}, "rutter log revert 5-6,8 --tls-dir 'my keys'"},
	} {
		got, ranges := "", c.ranges
		app := &cli.App{Flags: []cli.Flag{term.ServersFlag(), &cli.StringFlag{Name: "tls-dir"}}, Action: func(c *cli.Context) error {
			got = term.Again(c, term.TakeBack(ranges))
			return nil
		}}
		if err := app.Run(append([]string{"rutter"}, c.args...)); err != nil || got != c.want {
			t.Errorf("%q: %q, %v, want %q", c.args, got, err, c.want)
		}
	}
}
