package term

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"rutter/api/client"
)

// UsageError is a mistake in how the program was called. It names the remedy. The exit
// code is 2.
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

// plainDefault is the default server, without TLS.
const plainDefault = "http://127.0.0.1:7420"

// ServersFlag names the servers, for every command that asks them.
func ServersFlag() cli.Flag {
	return &cli.StringSliceFlag{
		Name: "server", Aliases: []string{"s"}, EnvVars: []string{"RUTTER_SERVER", "RUTTER_SERVERS"}, Value: cli.NewStringSlice(plainDefault),
		Usage: "base `URL` of a server; may be given several times, the next one is asked when one does not answer",
	}
}

// DataFlag names a log that is read in place of asking the servers.
func DataFlag() cli.Flag {
	return &cli.StringFlag{Name: "data", Usage: "read this `PATH` in place of asking a server: a stopped server's data folder, a snapshot file, or a file of rutter log export"}
}

// NewClient returns a client of the servers that ServersFlag names.
func NewClient(c *cli.Context) (*client.Client, error) {
	return OpenClient(ClientConfig(c))
}

// Terminal reports whether w is a terminal, where a person reads, or leads to one by a
// method Under, as a screen of package output does.
func Terminal(w io.Writer) bool {
	for {
		above, ok := w.(interface{ Under() io.Writer })
		if !ok {
			break
		}
		w = above.Under()
	}
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	is := false
	err = raw.Control(func(fd uintptr) {
		_, failed := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		is = failed == nil
	})
	return err == nil && is
}

// Coloured reports whether what is written to w should have colours: it is a
// terminal that can show them, and the user did not object (no-color.org).
func Coloured(w io.Writer) bool {
	return Terminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
