package main

import (
	"io"
	"log/slog"
	"net"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
)

// daemonFlags are those of every long-running command.
func daemonFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "insecure", EnvVars: []string{"RUTTER_INSECURE"}, Usage: "allow listening on other than loopback addresses, without TLS"},
		&cli.StringFlag{Name: "log-level", EnvVars: []string{"RUTTER_LOG_LEVEL"}, Value: "info", Usage: "`LEVEL` of what is logged: debug, info, warn or error"},
	}
}

// checkListen refuses an address that is not HOST:PORT, or that strangers reach
// without TLS while nobody said --insecure.
func checkListen(flag, address string, insecure bool) error {
	if address == "off" {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return term.Usagef("--%s %q: want HOST:PORT, as in 127.0.0.1:7420, or off", flag, address)
	}
	if !isLoopback(host) && !insecure {
		return term.Usagef("--%s %s is reachable from other machines, and there is no TLS on it: use a loopback address, or --tls-dir (rutter cert init), or say --insecure if the network is yours alone", flag, address)
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// newLogger returns the logger of a daemon.
func newLogger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, term.Usagef("--log-level %q: want debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}
