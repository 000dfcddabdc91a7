package snoopcmd

import (
	"fmt"
	"net"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/varp"
)

// SVPCommand has the tools for people who debug a fabric's SVP.
func SVPCommand() *cli.Command {
	return &cli.Command{
		Name: "svp", Usage: "look into the SVP of a fabric", Category: "Operating",
		Description: term.Examples("rutter svp snoop --upstream 10.0.0.1:1296", "rutter svp snoop --listen 127.0.0.1:2296 --upstream portolan.example:1296 | grep NOTFOUND"),
		Subcommands: []*cli.Command{{
			Name: "snoop", Usage: "pass SVP connections on to a server, and print each request with its answer and its time", Action: svpSnoop,
			Description: term.Examples(
				"Send a client to port 2296 in place of the server's, and watch:",
				"  rutter svp snoop --listen 127.0.0.1:2296 --upstream 10.0.0.1:1296",
				"  rutter lookup vl3 4385813 10.21.12.7 --svp 127.0.0.1:2296",
			),
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "listen", EnvVars: []string{"RUTTER_SNOOP_LISTEN"}, Value: "127.0.0.1:2296", Usage: "`ADDRESS` that clients connect to"},
				&cli.StringFlag{Name: "upstream", EnvVars: []string{"RUTTER_SNOOP_UPSTREAM"}, Value: "127.0.0.1:1296", Usage: "`ADDRESS` of the SVP server that answers"},
				&cli.BoolFlag{Name: "insecure", EnvVars: []string{"RUTTER_INSECURE"}, Usage: "allow listening on other than loopback addresses, without TLS"},
			},
		}},
	}
}

func svpSnoop(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	if c.String("listen") == "off" {
		return term.Usagef("--listen cannot be off: it is where clients connect to")
	}
	if err := term.CheckListen("listen", c.String("listen"), c.Bool("insecure")); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(c.String("upstream")); err != nil {
		return term.Usagef("--upstream %q: want HOST:PORT of an SVP server, as in 10.0.0.1:1296", c.String("upstream"))
	}
	snoop, err := varp.NewSnoop(varp.SnoopConfig{Upstream: c.String("upstream"), Out: c.App.Writer})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.String("listen"))
	if err != nil {
		return fmt.Errorf("snoop: %w (--listen another address, if a daemon holds the port)", err)
	}
	output.Printf(c.App.ErrWriter, "listening on %s for %s; Ctrl-C ends it\n", listener.Addr(), c.String("upstream"))
	return snoop.Run(c.Context, listener)
}
