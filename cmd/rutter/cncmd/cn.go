package cncmd

import (
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/objects"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// Command is the command of compute nodes: their server objects, and their
// sessions.
func Command() *cli.Command {
	cmd := objects.Command(log.KindServer)
	for _, sub := range cmd.Subcommands {
		if sub.Name == "list" {
			sub.Usage, sub.Action = "list them with their sessions; FIELD=VALUE selects", cnList(objects.Of(log.KindServer))
		}
	}
	cmd.Subcommands = append(cmd.Subcommands, &cli.Command{
		Name: "show", Usage: "one compute node: its object, its session, how far it is", ArgsUsage: "UUID", Action: cnShow,
		Flags:       []cli.Flag{term.ServersFlag(), output.Flag()},
		Description: term.Examples("rutter cn show 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"),
	}, &cli.Command{
		Name: "sessions", Usage: "who is connected to which server, and how far behind", Action: cnSessions,
		Flags: []cli.Flag{term.ServersFlag(), output.TableFlag()},
		Description: term.Examples(
			"rutter cn sessions",
			"rutter cn sessions -s http://10.0.0.1:7420 -s http://10.0.0.2:7420 -s http://10.0.0.3:7420",
		) + "\n\nOf servers that are not named with -s the leader knows the sessions, but not since when they last, nor what\nelse -o json shows of them.",
	})
	cmd.Subcommands = append(cmd.Subcommands, statusCommand(), vnetCommand(), cnAcceptCommand())
	return cmd
}

func cnSessions(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	sessions, err := allSessions(c)
	if err != nil {
		return err
	}
	rows := func(w io.Writer) {
		output.Print(w, "CN\tHOSTNAME\tSERVER\tSINCE\tAPPLIED\tPROGRAMMED\tBEHIND\tHELD\n")
		for _, s := range sessions {
			since := "-"
			if s.Since != 0 {
				since = s.Since.String()
			}
			output.Printf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", s.CN, output.Text(s.Hostname), s.Server, since, s.Applied, s.Programmed, s.Lag, holdCell(s.Hold))
		}
	}
	if c.String("output") == "csv" {
		return output.Table(c, sessions, rows)
	}
	return output.One(c, sessions, func(out io.Writer) {
		w := output.Aligned(out)
		rows(w)
		_ = w.Flush() // the terminal is gone
		printHolds(out, sessions)
	})
}

// allSessions returns the sessions of the named servers, from these servers, and the
// sessions of other servers, from the leader. Without a leader it returns the first
// ones only.
func allSessions(c *cli.Context) ([]client.Session, error) {
	api, err := term.NewClient(c)
	if err != nil {
		return nil, err
	}
	sessions := []client.Session{}
	reached := false
	for _, server := range api.Servers() {
		held, err := api.Sessions(c.Context, server)
		if err != nil {
			output.Printf(c.App.ErrWriter, "rutter: %s: %v\n", server, err)
			continue
		}
		reached = true
		sessions = append(sessions, held...)
	}
	if !reached {
		return nil, client.ErrUnavailable
	}
	everywhere, err := api.EverySession(c.Context)
	if err != nil {
		output.Printf(c.App.ErrWriter, "rutter: without sessions of other servers: %v\n", err)
	}
	for _, s := range everywhere {
		same := func(held client.Session) bool {
			return held.CN == s.CN && held.Incarnation == s.Incarnation && held.Session == s.Session
		}
		if !s.Gone && s.Session != 0 && !slices.ContainsFunc(sessions, same) {
			sessions = append(sessions, s)
		}
	}
	return sessions, nil
}
