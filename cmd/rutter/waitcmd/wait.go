package waitcmd

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/await"
	"rutter/cmd/rutter/named"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// Command is rutter wait.
func Command() *cli.Command {
	return &cli.Command{
		Name: "wait", Usage: "wait until every compute node that is concerned has a change in its kernel", Category: "The log",
		Description: term.Examples(
			"rutter wait --seq 1042 --timeout 5s            # whom the change of entry 1042 concerns",
			"rutter wait --seq 1042 --scope vnet:4385813    # all nodes on that vnet",
			"rutter wait --seq 1042 --scope vnet:blue       # all nodes on the vnet of the network blue",
			"rutter wait                                    # all nodes, up to the present head",
		) + "\n\nIt ends with 0 when all are there; at the deadline it names who is missing, how far they are and what they lack, and ends with 1. Only what the change concerns is waited for, and no link of a VM that is not to run: that is printed as not there yet.",
		Flags: []cli.Flag{
			term.ServersFlag(), output.Flag(),
			&cli.StringFlag{Name: "seq", Usage: "`SEQ` that they must have programmed, or a cursor, which is refused if it is of another log than the servers'; the head, if not given"},
			&cli.StringSliceFlag{Name: "scope", Usage: "all, vnet:N, cn:UUID or network:UUID, also by names: `SCOPE` whose compute nodes are meant; those of the whole change that SEQ is of, if not given, and all without SEQ"},
			&cli.DurationFlag{Name: "timeout", Value: 10 * time.Second, Usage: "end the whole command after this `TIME`; 0s: say how it is now"},
		},
		Action: runWait,
	}
}

// scopeNamed reads a scope, in which a compute node or a network may be named as people
// know it, and a vnet by a fabric network on it.
func scopeNamed(c *cli.Context, text string) (log.Scope, error) {
	kind, name, _ := strings.Cut(text, ":")
	switch kind {
	case "cn", "network":
		id, err := named.ID(c, map[string]log.Kind{"cn": log.KindServer, "network": log.KindNetwork}[kind], name)
		if err != nil {
			return log.Scope{}, err
		}
		text = kind + ":" + id
	case "vnet":
		vnet, err := named.VNet(name, func(kind log.Kind, text string) (client.Named, error) {
			api, err := term.NewClient(c)
			if err != nil {
				return client.Named{}, err
			}
			defer api.Close()
			return named.Object(c.Context, api, kind, text)
		})
		if err != nil {
			return log.Scope{}, fmt.Errorf("--scope: %w", err)
		}
		return log.VNetScope(vnet), nil
	}
	scope, err := log.ParseScope(text)
	if err != nil {
		return scope, term.Usagef("--scope: %w", err)
	}
	return scope, nil
}

func runWait(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	q := client.Barrier{Timeout: term.ServerWait(c.Duration("timeout"))}
	if text := c.String("seq"); text != "" {
		var err error
		if q.Cursor, err = log.ParseCursor(text); err != nil {
			if q.Seq, err = log.ParseSeq(text); err != nil {
				return term.Usagef("--seq %q: want a seq, or a cursor as a server printed it", text)
			}
		}
	}
	for _, text := range c.StringSlice("scope") {
		scope, err := scopeNamed(c, text)
		if err != nil {
			return err
		}
		q.Scopes = append(q.Scopes, scope)
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	v, err := api.Wait(c.Context, q)
	if err != nil {
		return err
	}
	if err := output.One(c, v, func(w io.Writer) { await.PrintVerdict(w, v) }); err != nil {
		return err
	}
	if v.Done {
		return nil
	}
	return cli.Exit(fmt.Errorf("seq %d is not everywhere yet: %d of %d compute nodes are missing", v.Seq, v.Total, v.CNs), await.ExitMissing)
}
