package term

import (
	"io"
	"log/slog"
	"net"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/messages"
)

// DaemonFlags are the flags of every long-running command.
func DaemonFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "insecure", EnvVars: []string{"RUTTER_INSECURE"}, Usage: "allow listening on other than loopback addresses, without TLS"},
		&cli.StringFlag{Name: "log-level", EnvVars: []string{"RUTTER_LOG_LEVEL"}, Value: "info", Usage: "`LEVEL` of what is logged: debug, info, warn or error"},
		LogFormatFlag(),
	}
}

// LogFormatFlag is the flag of the form of a daemon's log.
func LogFormatFlag() cli.Flag {
	return &cli.StringFlag{Name: "log-format", EnvVars: []string{"RUTTER_LOG_FORMAT"}, Value: "text", Usage: "`FORM` of the lines of the log: text (key=value) or json"}
}

// DaemonLogger returns the logger that --log-level and --log-format ask for, which writes to
// w. Its warnings have the ids of docs/messages.md, and repeats are left out.
func DaemonLogger(c *cli.Context, w io.Writer) (*slog.Logger, error) {
	return newLogger(w, c.String("log-level"), c.String("log-format"))
}

// CheckListen refuses an address that is not HOST:PORT. It also refuses one that other
// machines reach without TLS, unless --insecure is given.
func CheckListen(flag, address string, insecure bool) error {
	if address == "off" {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return Usagef("--%s %q: want HOST:PORT, as in 127.0.0.1:7420, or off", flag, address)
	}
	if !IsLoopback(host) && !insecure {
		return Usagef("--%s %s is reachable from other machines, and there is no TLS on it: use a loopback address, or --tls-dir (rutter cert init), or say --insecure if the network is yours alone", flag, address)
	}
	return nil
}

// IsLoopback reports whether only this machine reaches a host.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// NewLogger returns a logger of a command in the foreground: DaemonLogger's, as text.
func NewLogger(w io.Writer, level string) (*slog.Logger, error) { return newLogger(w, level, "text") }

func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, Usagef("--log-level %q: want debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(messages.New(slog.NewTextHandler(w, opts), nil)), nil
	case "json":
		return slog.New(messages.New(slog.NewJSONHandler(w, opts), nil)), nil
	}
	return nil, Usagef("--log-format %q: want text or json", format)
}
