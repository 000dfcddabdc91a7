package manpages

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// commands are a family of two commands that share a flag, a command of its own, and a
// hidden one.
func commands() []*cli.Command {
	shared := &cli.StringFlag{Name: "data", Aliases: []string{"d"}, EnvVars: []string{"RUTTER_DATA"}, Value: "/var/lib/rutter", Usage: "`FOLDER` of the log"}
	return []*cli.Command{
		{Name: "log", Usage: "read the log", Subcommands: []*cli.Command{
			{
				Name: "show", Usage: "print entries", ArgsUsage: "SEQ", Flags: []cli.Flag{shared, &cli.IntFlag{Name: "limit", Value: 5, Usage: "`COUNT` of entries"}},
				Description: "It reads `both` ends.\nExamples:\n  rutter log show 'it''s'\n  .dotted \\n\n\nWhat follows an empty line is text.",
			},
			{Name: "tail", Usage: "follow", Flags: []cli.Flag{shared}},
			{Name: "secret", Usage: "nothing", Hidden: true},
		}},
		{Name: "version", Usage: "print the version", Flags: []cli.Flag{&cli.BoolFlag{Name: "drill", Hidden: true}}},
		{Name: "hidden", Hidden: true},
	}
}

func TestPages(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "below", "man1")
	if err := writePages(folder, manual{version: "1.2~rc", date: "2026-11-23", commands: commands()}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	pages := map[string]string{}
	for _, e := range entries {
		names = append(names, e.Name())
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		pages[e.Name()] = string(text)
	}
	if want := []string{"rutter-log.1", "rutter-version.1", "rutter.1"}; !slices.Equal(names, want) {
		t.Fatalf("pages %q, want %q", names, want)
	}
	for page, texts := range map[string][]string{
		"rutter-log.1": {
			`.TH "RUTTER\-LOG" 1 "2026\-11\-23" "Rutter" "Rutter manual"`,
			".B rutter log show\n[\\fIOPTIONS\\fR]\nSEQ\n",
			".TP\n\\fB\\-\\-limit\\fR \\fICOUNT\\fR\nCOUNT of entries. Default: 5.\n",
			"Options that are described below: \\-\\-data.\n",
			".SH \"OPTIONS OF SEVERAL COMMANDS\"\n.TP\n\\fB\\-\\-data\\fR \\fIFOLDER\\fR, \\fB\\-d\\fR \\fIFOLDER\\fR\nFOLDER of the log. Default: /\\:var/\\:lib/\\:rutter.\n",
			"It reads \\(gaboth\\(ga ends.\nWhat follows an empty line is text.\n",
			".EX\nrutter log show \\(aqit\\(aq\\(aqs\\(aq\n\\&.dotted \\en\n.EE\n",
			".B RUTTER_DATA\nAs \\-\\-data.\n",
			".I /\\:var/\\:lib/\\:rutter\n", "\nrutter 1.2\\(tirc\n",
		},
		"rutter.1": {".BR rutter\\-log (1)\nRead the log.\n", ".BR rutter\\-log (1),\n.BR rutter\\-version (1)\n"},
	} {
		for _, text := range texts {
			if !strings.Contains(pages[page], text) {
				t.Errorf("%s has no %q:\n%s", page, text, pages[page])
			}
		}
	}
	for page, text := range pages {
		if strings.Contains(text, "secret") || strings.Contains(text, "hidden") || strings.Contains(text, "drill") {
			t.Errorf("%s shows what help does not:\n%s", page, text)
		}
		if strings.Contains(text, "ENVIRONMENT") != (page != "rutter-version.1") {
			t.Errorf("%s has a section of variables without any, or none:\n%s", page, text)
		}
	}
}

func TestWrongUsage(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"manpages"}, "want one argument, FOLDER"},
		{[]string{"manpages", "--date", "today", t.TempDir()}, `--date "today": want a date, as in 2026-11-23`},
		{[]string{"manpages", "/proc/none"}, "folder of the pages: mkdir /proc/none"},
	} {
		app := &cli.App{Commands: []*cli.Command{Command("1", commands)}, ExitErrHandler: func(*cli.Context, error) {}}
		if err := app.Run(append([]string{"rutter"}, test.args...)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.args, err, test.want)
		}
	}
}
