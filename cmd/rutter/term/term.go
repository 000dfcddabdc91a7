package term

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
)

// UsageError is a mistake in how the program was called; it names the remedy.
// The program ends with exit code 2 for it.
type UsageError struct{ Err error }

// Error implements error.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what was wrong.
func (e UsageError) Unwrap() error { return e.Err }

// Usagef is fmt.Errorf for a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Examples formats the end of a command's help.
func Examples(lines ...string) string {
	text := "Examples:"
	for _, line := range lines {
		text += "\n  " + line
	}
	return text
}

// NoArguments refuses arguments that are no flags.
func NoArguments(c *cli.Context) error {
	if c.NArg() > 0 {
		return Usagef("%s takes no arguments, and got %q", c.Command.FullName(), strings.Join(c.Args().Slice(), " "))
	}
	return nil
}

// plainDefault is where a server is, for who names none.
const plainDefault = "http://127.0.0.1:7420"

// ServersFlag names the servers, for every command that asks them.
func ServersFlag() cli.Flag {
	return &cli.StringSliceFlag{
		Name: "server", Aliases: []string{"s"}, EnvVars: []string{"RUTTER_SERVER", "RUTTER_SERVERS"}, Value: cli.NewStringSlice(plainDefault),
		Usage: "base `URL` of a server; may be given several times, the next one is asked when one does not answer",
	}
}

// NewClient returns a client of the servers that ServersFlag names.
func NewClient(c *cli.Context) (*client.Client, error) {
	return OpenClient(ClientConfig(c))
}

// OutputFlag is -o of a command that prints data in one of formats, the first
// of which is the default. Without formats they are table, json and ndjson.
func OutputFlag(formats ...string) cli.Flag {
	if len(formats) == 0 {
		formats = []string{"table", "json", "ndjson"}
	}
	last := len(formats) - 1
	names := strings.Join(formats[:last], ", ") + " or " + formats[last]
	return &cli.StringFlag{
		Name: "output", Aliases: []string{"o"}, Value: formats[0], EnvVars: []string{"RUTTER_OUTPUT"},
		Usage: "`FORMAT` of what is printed: " + names,
		Action: func(_ *cli.Context, format string) error {
			if slices.Contains(formats, format) {
				return nil
			}
			return Usagef("--output %q: want %s", format, names)
		},
	}
}

// PrintOne prints v as JSON if -o says so, or with table for people.
func PrintOne(c *cli.Context, v any, table func(io.Writer)) error {
	switch c.String("output") {
	case "json":
		enc := json.NewEncoder(c.App.Writer)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	case "ndjson":
		return json.NewEncoder(c.App.Writer).Encode(v)
	}
	table(c.App.Writer)
	return nil
}

// Terminal reports whether w is a terminal, where a person reads.
func Terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Coloured reports whether what is written to w should have colours: it is a
// terminal that can show them, and the user did not object (no-color.org).
func Coloured(w io.Writer) bool {
	return Terminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
