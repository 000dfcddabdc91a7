package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/log"
)

// cnCommand is the command of compute nodes: their server objects, and their
// sessions.
func cnCommand() *cli.Command {
	cmd := objectCommand("cn", "servers", "compute nodes (CNs): their objects and sessions", log.KindServer, cnColumns)
	for _, sub := range cmd.Subcommands {
		if sub.Name == "list" {
			sub.Usage, sub.Action = "list them with their sessions; FIELD=VALUE selects", cnList(objects{path: "/servers", kind: log.KindServer})
		}
	}
	cmd.Subcommands = append(cmd.Subcommands, &cli.Command{
		Name: "show", Usage: "one compute node: its object, its session, how far it is", ArgsUsage: "UUID", Action: cnShow,
		Flags:       []cli.Flag{serversFlag(), outputFlag()},
		Description: examples("rutter cn show 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"),
	}, &cli.Command{
		Name: "sessions", Usage: "who is connected to which server, and how far behind", Action: cnSessions,
		Flags:       []cli.Flag{serversFlag(), outputFlag()},
		Description: examples("rutter cn sessions -s http://10.0.0.1:7420 -s http://10.0.0.2:7420 -s http://10.0.0.3:7420"),
	})
	return cmd
}

func cnSessions(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	api, err := newClient(c)
	if err != nil {
		return err
	}
	sessions := []client.Session{}
	reached := false
	for _, server := range api.Servers() {
		held, err := api.Sessions(c.Context, server)
		if err != nil {
			fmt.Fprintf(c.App.ErrWriter, "rutter: %s: %v\n", server, err)
			continue
		}
		reached = true
		sessions = append(sessions, held...)
	}
	if !reached {
		return client.ErrUnavailable
	}
	return printOne(c, sessions, func(out io.Writer) {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "CN\tHOSTNAME\tSERVER\tSINCE\tAPPLIED\tPROGRAMMED\tBEHIND")
		for _, s := range sessions {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\n", s.CN, text(s.Hostname), s.Server, s.Since, s.Applied, s.Programmed, s.Lag)
		}
		_ = w.Flush() // the terminal is gone: nobody is left to tell
	})
}
