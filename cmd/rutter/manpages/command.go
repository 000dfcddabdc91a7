package manpages

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
)

// Command is rutter manpages. It writes the pages of the program of this version whose
// commands commands returns.
func Command(version string, commands func() []*cli.Command) *cli.Command {
	return &cli.Command{
		Name: "manpages", Usage: "write the manual pages of all commands", ArgsUsage: "FOLDER", Category: "Operating",
		Hidden:      true, // packages have the pages
		Description: term.Examples("rutter manpages /usr/local/share/man/man1", "rutter manpages --date 2026-11-23 man1"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "date", Usage: "`DATE` of the pages, as in 2026-11-23; none unless given"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return term.Usagef("want one argument, FOLDER")
			}
			if date := c.String("date"); date != "" {
				if _, err := time.Parse(time.DateOnly, date); err != nil {
					return term.Usagef("--date %q: want a date, as in 2026-11-23", date)
				}
			}
			return writePages(c.Args().First(), manual{version: version, date: c.String("date"), commands: commands()})
		},
	}
}

// writePages makes the folder if it is missing, and writes each page into it.
func writePages(folder string, m manual) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("folder of the pages: %w", err)
	}
	for name, text := range m.pages() {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("manual page: %w", err)
		}
	}
	return nil
}
