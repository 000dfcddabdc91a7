package revertcmd

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections/undo"
)

// TestUsage: what does not say which entries, or says it in another form, is refused before
// any server is asked.
func TestUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                             "which entries",
		"--yes":                        "which entries",
		"x":                            "want seqs",
		"5-4":                          "want seqs",
		"1 2":                          "write several seqs",
		"--from yesterday":             "--from",
		"--from 12:77:99Z":             "--from",
		"--kind nothing":               "--kind",
		"--until never":                "--until",
		"7 --take then":                "--take",
		"7 --take nic/a=then":          "--take",
		"7 --wait everything":          "--wait",
		"7 --wait fabric --timeout 0s": "--timeout",
	} {
		app := &cli.App{Name: "rutter", Writer: io.Discard, ErrWriter: io.Discard, Commands: []*cli.Command{Command()}, ExitErrHandler: func(*cli.Context, error) {}}
		fields := strings.Fields(args)
		if len(fields) > 0 && !strings.HasPrefix(fields[0], "-") { // flags stand first
			at := 1
			for at < len(fields) && !strings.HasPrefix(fields[at], "-") {
				at++
			}
			fields = append(append([]string{}, fields[at:]...), fields[:at]...)
		}
		err := app.Run(append([]string{"rutter", "revert"}, fields...))
		if !errors.As(err, new(term.UsageError)) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// TestTakeFlag: the word for one object comes before the one for all.
func TestTakeFlag(t *testing.T) {
	t.Parallel()
	find := func(kind log.Kind, text string) (client.Named, error) {
		if kind == log.KindNetwork {
			text = "the id of " + text
		}
		return client.Named{Kind: kind, ID: text}, nil
	}
	if _, err := takeOf([]string{"netwrk/a=was"}, find); err == nil {
		t.Error("a kind that does not exist is taken")
	}
	take, err := takeOf([]string{"now", "nic/90:b8:d0:10:02:00=was", "nic_tag/a=b=was", "network/blue=was"}, find)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind log.Kind
		id   string
		want undo.Take
	}{{log.KindNIC, "90:b8:d0:10:02:00", undo.TakeWas}, {log.KindNICTag, "a=b", undo.TakeWas}, {log.KindNetwork, "the id of blue", undo.TakeWas}, {log.KindNIC, "90:b8:d0:10:02:01", undo.TakeNow}} {
		if got := take(c.kind, c.id); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.kind, c.id, got, c.want)
		}
	}
	if none, err := takeOf(nil, find); err != nil || none(log.KindNIC, "x") != "" {
		t.Error("without a word something is taken")
	}
}

// TestPick: which entries an argument selects.
func TestPick(t *testing.T) {
	t.Parallel()
	p := &pick{}
	if err := p.argument("#12,14-15"); err != nil || p.from != 12 {
		t.Fatalf("from %d, %v", p.from, err)
	}
	for seq, want := range map[log.Seq][2]bool{11: {false, false}, 13: {false, false}, 16: {false, true}} {
		if hit, past, err := p.has(log.Entry{Seq: seq}); err != nil || hit != want[0] || past != want[1] {
			t.Errorf("#%s: %t, %t, %v", seq, hit, past, err)
		}
	}
}
