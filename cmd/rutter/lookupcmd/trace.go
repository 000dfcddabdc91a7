package lookupcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections/desired"
)

// TraceCommand says why one VM cannot reach another.
func TraceCommand(open OpenPast) *cli.Command {
	return &cli.Command{
		Name: "trace", Usage: "why one VM can, or cannot, reach another", ArgsUsage: "VM VM|IP", Category: "The log",
		Description: term.Examples(
			"rutter trace web1 db1                         # by alias",
			"rutter trace 90:b8:d0:10:02:00 10.21.12.8     # from a NIC to an address",
			"rutter trace web1 10.21.12.8 -o json",
			"rutter trace web1 db1 --at 2026-11-21T14:03:00Z   # as the log had it then",
			"rutter trace web1 db1 --data /var/lib/rutter      # of a stopped server",
			"rutter trace web1 db1 --watch 5s              # which packet counters rise, while you ping",
			"rutter trace web1 db1 --live && echo reached  # only if both kernels say so too",
			"rutter trace web1 db1 -o json | jq -r '.findings[].code'",
		) + "\n\nIt looks at the NICs, networks, vnets, VLANs and MTUs of both, at the underlay between their compute nodes (CNs), at every entry that both kernels need, and whether each CN has programmed the seq that it follows from. Then it asks the agents of both CNs what their kernels have: links, addresses, entries, the rules of port security and what they dropped, and which counters rise while it looks. A CN that does not answer within 3 s is named in a note; with --live it is a doubt. --no-kernels asks no kernel.\n\n" +
			"Exit codes: 0 if they reach each other by everything that was looked at; 1 if there is a cause for which packets do not arrive; 3 if there is no cause, and at least one doubt: a gateway must pass packets on, something is behind, or with --live a kernel is not known. Each cause, doubt and note has a stable code, in brackets and in the JSON form; docs/trace.md lists them.",
		Flags: []cli.Flag{
			term.ServersFlag(), term.DataFlag(), output.Flag(),
			&cli.StringFlag{Name: "at", Usage: "as it was after the entry `SEQ|TIME`; what kernels had then is not known"},
			&cli.BoolFlag{Name: "live", Usage: "what is not known of the kernels of both CNs is a doubt: exit code 3"},
			&cli.BoolFlag{Name: "no-kernels", Usage: "do not ask the agents of both CNs what their kernels have"},
			&cli.DurationFlag{Name: "watch", Value: time.Second, Usage: "look twice at the kernels, with this `TIME` between, up to 10s; 0s: once, without what rises"},
		},
		Action: func(c *cli.Context) error { return runTrace(c, open) },
	}
}

func runTrace(c *cli.Context, open OpenPast) error {
	if c.NArg() != 2 {
		return term.Usagef("want two arguments, %s: a VM is a UUID, an alias, a MAC or an address of its NIC, or the beginning of an id", c.Command.ArgsUsage)
	}
	if watch := c.Duration("watch"); watch < 0 || watch > maxWatch {
		return term.Usagef("--watch %s: want a time up to %s", watch, maxWatch)
	}
	for _, past := range [...]string{"at", "data", "no-kernels"} {
		if c.Bool("live") && c.IsSet(past) {
			return term.Usagef("--live and --%s exclude each other: --live asks the kernels as they are now", past)
		}
	}
	t, err := traceOf(c, open, c.Args().Get(0), c.Args().Get(1))
	if err != nil {
		return err
	}
	if c.Bool("live") {
		t.RequireKernels()
	}
	if err := output.One(c, t, func(w io.Writer) { printTrace(w, &t) }); err != nil {
		return err
	}
	if code := exitCode(t.Verdict); code != 0 {
		return cli.Exit("", code) // the verdict is printed above
	}
	return nil
}

// exitCode is the exit code of a verdict. docs/trace.md has the same table.
func exitCode(verdict string) int {
	switch verdict {
	case desired.Reachable:
		return 0
	case desired.Unreachable:
		return term.ExitFailed
	}
	return term.ExitDoubtful
}

// traceOf asks the servers, or reads the log that --data names.
func traceOf(c *cli.Context, open OpenPast, from, to string) (t desired.Trace, err error) {
	if c.IsSet("data") {
		at, err := open(c)
		if err != nil {
			return t, err
		}
		t, err = at.Trace(c.Context, from, to)
		return t, errors.Join(err, at.Close())
	}
	api, err := term.NewClient(c)
	if err != nil {
		return t, err
	}
	query := url.Values{"from": {from}, "to": {to}, "consistent": {"1"}}
	if c.IsSet("at") {
		at, err := term.MomentText(c.Context, c.String("at"))
		if err != nil {
			return t, err
		}
		query.Set("at", at)
	} else if !c.Bool("no-kernels") {
		query.Set("kernels", "1")
		query.Set("watch_ms", strconv.FormatInt(c.Duration("watch").Milliseconds(), 10))
	}
	raw, err := api.Raw(c.Context, http.MethodGet, "/trace?"+query.Encode(), nil)
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return t, fmt.Errorf("the answer to /trace cannot be read: %w", err)
	}
	return t, nil
}

// maxWatch bounds the time between two looks at the kernels; servers have the same bound.
const maxWatch = 10 * time.Second

func printTrace(out io.Writer, t *desired.Trace) {
	output.Printf(out, "%s: %s\n\n", t.Verdict, t.Summary)
	w := output.Aligned(out)
	output.Print(w, "\tFROM\tTO\n")
	row := func(name string, of func(*desired.TraceEnd) string) {
		output.Printf(w, "%s\t%s\t%s\n", name, output.Text(of(&t.From)), output.Text(of(&t.To)))
	}
	row("vm", func(e *desired.TraceEnd) string { return strings.TrimSpace(e.Alias + " " + e.State) })
	row("nic", func(e *desired.TraceEnd) string { return unlessZero(e.NIC.IsZero(), e.NIC) })
	row("address", func(e *desired.TraceEnd) string { return unlessZero(!e.IP.IsValid(), e.IP) })
	row("network", func(e *desired.TraceEnd) string { return e.Name })
	row("vnet, vlan, mtu", func(e *desired.TraceEnd) string {
		return unlessZero(e.Name == "", fmt.Sprintf("%d, %d, %d", e.VNet, e.VLAN, e.MTU))
	})
	row("cn", func(e *desired.TraceEnd) string {
		if e.Host != "" {
			return e.Host
		}
		return unlessZero(e.CN.IsZero(), e.CN)
	})
	row("underlay", func(e *desired.TraceEnd) string { return unlessZero(!e.Under.IsValid(), e.Under) })
	_ = w.Flush() // the terminal is gone
	if len(t.Entries) > 0 {
		output.Print(w, "\nCN\tNEEDS\tOF SEQ\tHAS IT\n")
		for _, e := range t.Entries {
			output.Printf(w, "%s\t%s\t%d\t%s\n", hostName(t, e.CN), e.What, e.Seq, presence(e))
		}
		_ = w.Flush()
	}
	if t.KernelsAsked != nil {
		printKernels(out, t)
	}
	if len(t.Findings) > 0 {
		output.Print(out, "\n")
	}
	for _, f := range t.Findings {
		output.Printf(out, "%s: %s [%s]\n", f.Level, f.Text, f.Code)
		if f.Remedy != "" {
			output.Printf(out, "       %s\n", f.Remedy)
		}
	}
}

func unlessZero(zero bool, v any) string {
	if zero {
		return ""
	}
	return fmt.Sprint(v)
}

func hostName(t *desired.Trace, cn log.UUID) string {
	for _, end := range []*desired.TraceEnd{&t.From, &t.To} {
		if end.CN == cn && end.Host != "" {
			return end.Host
		}
	}
	return cn.String()
}

func presence(e desired.TraceEntry) string {
	switch {
	case !e.Wanted:
		return "must not: see below"
	case e.Programmed == nil:
		return "unknown"
	case *e.Programmed:
		return "yes"
	}
	return "NO"
}
