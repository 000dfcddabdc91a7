package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/api/liveness"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// exitMissing is the exit code of a wait at whose end compute nodes were missing.
const exitMissing = exitFailed

func waitCommand() *cli.Command {
	return &cli.Command{
		Name: "wait", Usage: "wait until every compute node that is concerned has a change in its kernel", Category: "The log",
		Description: term.Examples(
			"rutter wait --seq 1042 --timeout 5s            # whom the change of entry 1042 concerns",
			"rutter wait --seq 1042 --scope vnet:4385813    # whoever is on that vnet",
			"rutter wait                                    # everybody, up to the head of now",
		) + "\n\nIt ends with 0 when all are there; at the deadline it names who is missing, how far they are and why, and ends with 1.",
		Flags: []cli.Flag{
			term.ServersFlag(), term.OutputFlag(),
			&cli.StringFlag{Name: "seq", Usage: "`SEQ` that they must have programmed, or a cursor, which is refused if it is of another log than the servers'; the head, if not given"},
			&cli.StringSliceFlag{Name: "scope", Usage: "all, vnet:N, cn:UUID or network:UUID: `SCOPE` whose compute nodes are meant; those of the whole change that SEQ is of, if not given, and all without SEQ"},
			&cli.DurationFlag{Name: "timeout", Value: 10 * time.Second, Usage: "give up after this `TIME`"},
		},
		Action: runWait,
	}
}

// waitFlags are those of a command that writes.
func waitFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "wait", Usage: "fabric: wait until every compute node that is concerned has it in its kernel; `WHAT` to wait for"},
		&cli.DurationFlag{Name: "timeout", Value: 10 * time.Second, Usage: "with --wait: give up after this `TIME`; who is missing is named, and what was written stays written"},
	}
}

// awaitOf returns how long a write waits for the fabric; 0: it does not.
func awaitOf(c *cli.Context) (time.Duration, error) {
	switch what, timeout := c.String("wait"), c.Duration("timeout"); {
	case what == "":
		return 0, nil
	case what != "fabric":
		return 0, term.Usagef("--wait %q: want fabric, or leave it out", what)
	case timeout < time.Millisecond || timeout > liveness.MaxTimeout:
		return 0, term.Usagef("--timeout %v: want 1ms to %v", timeout, liveness.MaxTimeout)
	default:
		return timeout.Round(time.Millisecond), nil
	}
}

// pending names who is missing, if err says that a write is not everywhere yet.
func pending(c *cli.Context, err error) error {
	var late *client.PendingError
	if !errors.As(err, &late) {
		return err
	}
	if late.Verdict.Seq > 0 {
		printVerdict(c.App.ErrWriter, late.Verdict)
	}
	return cli.Exit(late, exitMissing)
}

func runWait(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	q := client.Barrier{Timeout: c.Duration("timeout")}
	if text := c.String("seq"); text != "" {
		var err error
		if q.Cursor, err = log.ParseCursor(text); err != nil {
			if q.Seq, err = log.ParseSeq(text); err != nil {
				return term.Usagef("--seq %q: want a seq, or a cursor as a server printed it", text)
			}
		}
	}
	for _, text := range c.StringSlice("scope") {
		scope, err := log.ParseScope(text)
		if err != nil {
			return term.Usagef("--scope: %w", err)
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
	if err := term.PrintOne(c, v, func(w io.Writer) { printVerdict(w, v) }); err != nil {
		return err
	}
	if v.Done {
		return nil
	}
	return cli.Exit(fmt.Errorf("seq %d is not everywhere yet: %d of %d compute nodes are missing", v.Seq, v.Total, v.CNs), exitMissing)
}

func printVerdict(out io.Writer, v client.Verdict) {
	if v.Done {
		fmt.Fprintf(out, "seq %d is programmed on all %d compute nodes that it concerns, after %s\n", v.Seq, v.CNs, v.Waited.Round(100*time.Microsecond))
		return
	}
	if v.Reason != "" {
		fmt.Fprintf(out, "seq %d: %s\n", v.Seq, v.Reason)
	}
	if v.Total == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CN\tHOSTNAME\tSERVER\tAPPLIED\tPROGRAMMED\tHEARD\tWHY")
	for _, l := range v.Missing {
		heard := "never"
		if l.AgeMS >= 0 {
			heard = (time.Duration(l.AgeMS) * time.Millisecond).String() + " ago"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", l.CN, text(l.Hostname), text(l.Server), l.Applied, l.Programmed, heard, l.Reason)
	}
	_ = w.Flush() // the terminal is gone: nobody is left to tell
	if more := v.Total - len(v.Missing); more > 0 {
		fmt.Fprintf(out, "and %d more\n", more)
	}
}
