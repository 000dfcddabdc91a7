package await

import (
	"errors"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/api/liveness"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// Client returns a client of the servers for a command with Flags.
func Client(c *cli.Context) (*client.Client, error) {
	await, err := timeoutOf(c)
	if err != nil {
		return nil, err
	}
	cfg, err := term.ClientConfig(c)
	cfg.Await = await
	cfg.Absent = func(texts []string) {
		for _, text := range texts {
			output.Printf(c.App.ErrWriter, "not there yet: %s\n", text)
		}
	}
	cfg.Warn = func(text string) { output.Printf(c.App.ErrWriter, "warning: %s\n", text) }
	return term.OpenClient(cfg, err)
}

// ExitMissing is the exit code if compute nodes are missing at the end of a wait.
const ExitMissing = term.ExitFailed

// Flags are those of a command that writes.
func Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "wait", Usage: "fabric: wait until every compute node that is concerned has it in its kernel, except links of VMs that are not to run; `WHAT` to wait for"},
		&cli.DurationFlag{Name: "timeout", Value: 10 * time.Second, Usage: "end the whole command after this `TIME`, by default only with --wait; who is missing is named with what it lacks, and what was written stays written"},
	}
}

// timeoutOf returns the time that servers wait for the fabric after a write. 0: not at all.
func timeoutOf(c *cli.Context) (time.Duration, error) {
	switch what, timeout := c.String("wait"), c.Duration("timeout"); {
	case what == "":
		return 0, nil
	case what != "fabric":
		return 0, term.Usagef("--wait %q: want fabric, or leave it out", what)
	case timeout < time.Millisecond || timeout > liveness.MaxTimeout:
		return 0, term.Usagef("--timeout %v: want 1ms to %v", timeout, liveness.MaxTimeout)
	default:
		return max(term.ServerWait(timeout).Round(time.Millisecond), time.Millisecond), nil
	}
}

// Pending prints the compute nodes that are missing, if err says that a write is not
// everywhere yet.
func Pending(c *cli.Context, err error) error {
	var late *client.PendingError
	if !errors.As(err, &late) {
		return err
	}
	if late.Verdict.Seq > 0 {
		PrintVerdict(c.App.ErrWriter, late.Verdict)
	}
	return cli.Exit(late, ExitMissing)
}

// PrintAbsent prints what is not there because VMs are not to run.
func PrintAbsent(out io.Writer, v client.Verdict) {
	for _, o := range v.Absent {
		output.Printf(out, "not there yet: CN %s: %s\n", o.CN, o.Object)
	}
	if more := v.AbsentTotal - len(v.Absent); more > 0 {
		output.Printf(out, "not there yet: %d more\n", more)
	}
}

// PrintVerdict prints whether all compute nodes of a wait have programmed the seq, and
// for each that has not, how far it is and why.
func PrintVerdict(out io.Writer, v client.Verdict) {
	if v.Done {
		output.Printf(out, "seq %d is programmed on all %d compute nodes that it concerns, after %s\n", v.Seq, v.CNs, v.Waited.Round(100*time.Microsecond))
		PrintAbsent(out, v)
		return
	}
	if v.Reason != "" {
		output.Printf(out, "seq %d: %s\n", v.Seq, v.Reason)
	}
	if v.Total == 0 {
		return
	}
	w := output.Aligned(out)
	output.Print(w, "CN\tHOSTNAME\tSERVER\tAPPLIED\tPROGRAMMED\tHEARD\tWHY\n")
	for _, l := range v.Missing {
		heard := "never"
		if l.AgeMS >= 0 {
			heard = (time.Duration(l.AgeMS) * time.Millisecond).String() + " ago"
		}
		output.Printf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", l.CN, output.Text(l.Hostname), output.Text(l.Server), l.Applied, l.Programmed, heard, l.Reason)
	}
	_ = w.Flush() // the terminal is gone
	for _, l := range v.Missing {
		for _, o := range l.Objects[min(len(l.Objects), 1):] { // the first is the reason
			output.Printf(out, "%s: %s\n", l.CN, o.Object)
		}
		if more := l.Waiting - len(l.Objects); more > 0 {
			output.Printf(out, "%s: and %d more\n", l.CN, more)
		}
	}
	PrintAbsent(out, v)
	if more := v.Total - len(v.Missing); more > 0 {
		output.Printf(out, "and %d more\n", more)
	}
}
