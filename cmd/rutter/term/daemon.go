package term

import (
	"io"
	"log/slog"
	"net"

	"github.com/urfave/cli/v2"
)

// DaemonFlags are the flags of every long-running command.
func DaemonFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "insecure", EnvVars: []string{"RUTTER_INSECURE"}, Usage: "allow listening on other than loopback addresses, without TLS"},
		&cli.StringFlag{Name: "log-level", EnvVars: []string{"RUTTER_LOG_LEVEL"}, Value: "info", Usage: "`LEVEL` of what is logged: debug, info, warn or error"},
	}
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

// NewLogger returns the logger of a daemon.
func NewLogger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, Usagef("--log-level %q: want debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}
