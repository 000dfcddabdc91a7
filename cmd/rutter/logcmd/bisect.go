package logcmd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// bisectCommand is `rutter log bisect`.
func bisectCommand() *cli.Command {
	return &cli.Command{
		Name: "bisect", Usage: "the entry since which one VM does not reach another, or a command on the state fails", ArgsUsage: "[VM VM|IP]", Action: logBisect,
		Flags: append(partFlags(), term.ServersFlag(), term.DataFlag(), output.Flag(),
			&cli.BoolFlag{Name: "reach", Usage: "the entry since which `rutter trace` of the two names a cause: packets do not arrive"},
			&cli.BoolFlag{Name: "trace", Usage: "the entry since which the verdict of `rutter trace` of the two is what it is, doubts too"},
			&cli.StringFlag{Name: "from", Usage: "begin after this `SEQ|TIME`; the floor if it is left out"},
			&cli.StringFlag{Name: "to", Usage: "end after this `SEQ|TIME`; the head if it is left out"},
			&cli.StringFlag{Name: "kind", Usage: "with --check: only objects of this `KIND`"},
			&cli.StringFlag{Name: "check", Usage: "run `COMMAND` with sh -c: it gets the state as lines of JSON on its standard input, and its seq in RUTTER_SEQ. It succeeds after --from, and fails after --to"}),
		Description: term.Examples(
			"rutter log bisect --reach web1 db1                     # the bad change, who made it, and how to take it back",
			"rutter log bisect --reach web1 10.21.12.8 --from 24h",
			"rutter log bisect --trace web1 db1 -o json",
			"rutter log bisect --reach web1 db1 --data /var/lib/rutter   # of a stopped server, or a snapshot",
			`rutter log bisect --check 'jq -se "all(.[]; .object.mtu != 1400)" >/dev/null' --kind network`,
			`rutter log bisect --from 1000 --to 2000 --vnet 4385813 --check 'grep -q 10.21.12.7'`,
		) + fmt.Sprintf("\n\n--reach and --trace look at what the log says, as rutter trace --at does, after each change between --from and --to. Above %d entries they look at some places only, and say so. If the verdict changed several times, all changes are listed. Exit code 1: there is no such entry, because they never reached each other, or do at the end and always did.", maxScan),
	}
}

func logBisect(c *cli.Context) (err error) {
	if asked := c.Bool("reach") || c.Bool("trace"); asked || !c.IsSet("check") {
		return bisectTrace(c)
	}
	if err := term.NoArguments(c); err != nil {
		return err
	}
	p, err := partOf(c)
	if err != nil {
		return err
	}
	s, err := openPast(c)
	if err != nil {
		return err
	}
	defer closeJoining(s, &err)
	low, high, err := s.between(c)
	if err != nil {
		return err
	}
	check := func(seq log.Seq) (bool, error) { return s.check(c, seq, p) }
	if ok, err := check(low); err != nil || !ok {
		return errors.Join(err, fmt.Errorf("the command fails after seq %d already: give an earlier --from", low))
	}
	if ok, err := check(high); err != nil || ok {
		return errors.Join(err, fmt.Errorf("the command does not fail after seq %d: give a later --to", high))
	}
	for high-low > 1 {
		middle := low + (high-low)/2
		ok, err := check(middle)
		if err != nil {
			return err
		}
		output.Printf(c.App.ErrWriter, "after %d: %s\n", middle, map[bool]string{true: "succeeds", false: "fails"}[ok])
		if ok {
			low = middle
		} else {
			high = middle
		}
	}
	output.Printf(c.App.Writer, "the command fails from seq %d on\n", high)
	return printEntry(c, s, high)
}

// between returns the seqs of --from and --to, by default all that is kept.
func (s *pastLog) between(c *cli.Context) (low, high log.Seq, err error) {
	if low = s.floor; c.IsSet("from") {
		if low, err = s.seqAt(c.Context, c.String("from")); err != nil {
			return low, high, err
		}
	}
	if high, err = s.seqAt(c.Context, c.String("to")); err != nil {
		return low, high, err
	}
	if low >= high {
		err = term.Usagef("--from %d is not before --to %d", low, high)
	}
	return low, high, err
}

// check runs the command on a state, and reports whether it succeeded.
func (s *pastLog) check(c *cli.Context, seq log.Seq, p statePart) (ok bool, err error) {
	ctx := c.Context
	state, err := s.state(ctx, seq, p)
	if err != nil {
		return false, err
	}
	run := exec.CommandContext(ctx, "sh", "-c", c.String("check"))
	run.Env = append(os.Environ(), "RUTTER_SEQ="+seq.String())
	run.Stdout, run.Stderr = c.App.ErrWriter, c.App.ErrWriter
	in, err := run.StdinPipe()
	if err != nil {
		return false, err
	}
	if err := run.Start(); err != nil {
		return false, err
	}
	for rec := range p.records(state) {
		line, err := lineOfRecord(rec, true)
		if err != nil {
			break
		}
		if _, err := in.Write(line); err != nil {
			break // the command reads no more
		}
	}
	_ = in.Close() // only the command's exit status counts
	err = run.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 && exit.ExitCode() < 126 {
		return false, nil
	}
	return err == nil, err
}
