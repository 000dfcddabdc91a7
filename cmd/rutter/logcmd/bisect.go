package logcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/logcmd/internal/verdicts"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/line"
	"rutter/projections"
	"rutter/projections/desired"
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

const (
	// maxScan is the number of entries up to which each is looked at: a second or two.
	maxScan = 100_000
	// maxTurns bounds the changes of the verdict that the text lists; JSON has all.
	maxTurns = 20
	// maxCulprits bounds the entries of one change that are printed.
	maxCulprits = 16
)

// turned is one entry after which the verdict was another one.
type turned struct {
	Seq     log.Seq  `json:"seq"`
	Verdict string   `json:"verdict"`
	Codes   []string `json:"codes"` // of causes and doubts
	Summary string   `json:"summary"`
}

// culprit is the answer of a bisect of a trace.
type culprit struct {
	Asked   string     `json:"asked"` // reach or trace
	From    string     `json:"from"`
	To      string     `json:"to"`
	After   log.Seq    `json:"after"` // the range: entries after this seq
	UpTo    log.Seq    `json:"up_to"`
	Whole   bool       `json:"whole"` // each change of the range was looked at
	Before  turned     `json:"before"`
	Now     turned     `json:"now"`     // after the entry
	End     turned     `json:"end"`     // after the last entry of the range
	Entries []log.Line `json:"entries"` // the change's, the culprit first; at most maxCulprits
	Revert  string     `json:"revert"`  // the command that takes it back
	Turns   []turned   `json:"turns"`   // all entries after which the verdict changed
}

func turnedBy(seq log.Seq, t *desired.Trace) turned {
	x := turned{Seq: seq, Verdict: t.Verdict, Codes: []string{}, Summary: t.Summary}
	for _, f := range t.Findings {
		if f.Level != desired.Note {
			x.Codes = append(x.Codes, f.Code)
		}
	}
	return x
}

// bisectTrace finds the entry since which a trace is what it is.
func bisectTrace(c *cli.Context) (err error) {
	switch {
	case c.Bool("reach") == c.Bool("trace"):
		return term.Usagef("want one of --reach VM VM, --trace VM VM and --check COMMAND")
	case c.IsSet("check"), c.IsSet("kind"), c.IsSet("cn"), c.IsSet("vnet"):
		return term.Usagef("--check, --kind, --cn and --vnet do not go with --reach and --trace, which look at what they need")
	case c.NArg() != 2:
		return term.Usagef("want two arguments, %s: a VM is a UUID, an alias, or the MAC of its NIC", c.Command.ArgsUsage)
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
	b := bisection{s: s, low: low, high: high, asked: "reach", class: verdicts.Reach}
	if c.Bool("trace") {
		b.asked, b.class = "trace", verdicts.Verdict
	}
	found, err := b.look(c.Context, c.Args().Get(0), c.Args().Get(1))
	if err != nil {
		return err
	}
	turn := found.Newest(b.counts)
	if turn == nil {
		return b.none(&found)
	}
	answer, err := b.answer(c.Context, &found, turn)
	if err != nil {
		return err
	}
	return output.One(c, answer, func(w io.Writer) { err = errors.Join(err, b.print(c, w, answer)) })
}

// bisection is a search for the entry since which a trace is what it is.
type bisection struct {
	s         *pastLog
	low, high log.Seq
	asked     string
	class     verdicts.Class
	from, to  desired.TraceName
}

// counts reports whether a turn is one that was asked for: a loss, or any change between
// two VMs that are there.
func (b *bisection) counts(t *verdicts.Turn) bool {
	if b.asked == "reach" {
		return b.class(&t.Before) == verdicts.Reaches
	}
	return b.class(&t.Before) != verdicts.Absent
}

// look makes the traces.
func (b *bisection) look(ctx context.Context, from, to string) (found verdicts.Answer, err error) {
	b.from, b.to = desired.TraceName{Asked: from, ID: from}, desired.TraceName{Asked: to, ID: to}
	for _, seq := range []log.Seq{b.low, b.high} { // the newer one counts
		t, err := b.s.traceAt(ctx, seq, from, to)
		if err != nil {
			return found, err
		}
		b.name(&b.from, &t.From)
		if _, err := netip.ParseAddr(to); err != nil {
			b.name(&b.to, &t.To)
		}
	}
	if b.high-b.low > maxScan {
		return verdicts.Search(b.low, b.high, func(seq log.Seq) (desired.Trace, error) {
			return b.s.traceAt(ctx, seq, b.from.ID, b.to.ID)
		}, b.class)
	}
	state := projections.NewState()
	if b.low > 0 {
		if state, err = b.s.state(ctx, b.low, statePart{}); err != nil {
			return found, err
		}
	}
	return verdicts.Scan(state, b.low, b.high, b.s.entries(ctx, b.low), func(s *projections.State) desired.Trace {
		return desired.TraceBetween(s, b.from, b.to)
	}, b.class)
}

// name takes the UUID of a VM that was named by its alias. A MAC stays.
func (b *bisection) name(n *desired.TraceName, end *desired.TraceEnd) {
	if _, err := log.ParseMAC(n.Asked); err != nil && !end.VM.IsZero() {
		n.ID = end.VM.String()
	}
}

// none says why there is no entry.
func (b *bisection) none(a *verdicts.Answer) error {
	some := ""
	if !a.Whole {
		some = fmt.Sprintf(", at %d places that were looked at", a.Looks)
	}
	ends, between := b.from.Asked+" and "+b.to.Asked, fmt.Sprintf("from seq %d to %d%s", b.low, b.high, some)
	switch b.class(&a.Last) {
	case verdicts.Absent:
		return fmt.Errorf("%s are not both in the log %s: %s", ends, between, a.Last.Summary)
	case verdicts.Reaches:
		return fmt.Errorf("%s reach each other after seq %d, and did so %s since both are in the log: give another range with --from and --to", ends, b.high, between)
	case verdicts.Cut:
		return fmt.Errorf("%s never reached each other %s: give an earlier --from, or do what rutter trace says. At the end: %s", ends, between, a.Last.Summary)
	}
	return fmt.Errorf("the verdict of %s is %s %s, since both are in the log: %s", ends, a.Last.Verdict, between, a.Last.Summary)
}

// answer reads the entries of the turn.
func (b *bisection) answer(ctx context.Context, a *verdicts.Answer, turn *verdicts.Turn) (*culprit, error) {
	x := &culprit{
		Asked: b.asked, From: b.from.Asked, To: b.to.Asked, After: b.low, UpTo: b.high, Whole: a.Whole,
		Before: turnedBy(turn.Seq-1, &turn.Before), Now: turnedBy(turn.Seq, &turn.After), End: turnedBy(b.high, &a.Last),
		Revert: fmt.Sprintf("rutter log revert %d", turn.Seq), Turns: []turned{},
	}
	for i := range a.Turns {
		x.Turns = append(x.Turns, turnedBy(a.Turns[i].Seq, &a.Turns[i].After))
	}
	for e, err := range b.s.entries(ctx, turn.Seq-1) {
		var event *log.Event
		if err == nil {
			event, err = e.Event()
		}
		if err != nil {
			return nil, err
		}
		x.Entries = append(x.Entries, log.Line{Seq: e.Seq, Chain: e.Hash.Prefix(), Event: event})
		if event.More == 0 || len(x.Entries) == maxCulprits {
			return x, nil
		}
	}
	return nil, fmt.Errorf("%s: no entry %d", b.s.name, turn.Seq)
}

// print prints an answer for people.
func (b *bisection) print(c *cli.Context, w io.Writer, x *culprit) error {
	_ = output.Printf(w, "%s and %s: %s after #%d, %s since #%d\n", x.From, x.To, x.Before.Verdict, x.Before.Seq, x.Now.Verdict, x.Now.Seq)
	_ = output.Printf(w, "%s\n\n", x.Now.Summary)
	p := line.NewPrinter(line.Options{Colour: term.Coloured(w), Names: b.s.names(c.Context).Name})
	var text []byte
	for _, l := range x.Entries {
		var err error
		if text, err = p.Append(text, l); err != nil {
			return err
		}
	}
	_ = output.Escaped(w, text)
	e := x.Entries[0].Event
	_ = output.Printf(w, "\nby %s at %s, change %s\ntake it back: %s\n", e.Actor, e.Time, e.ChangeID, term.Again(c, x.Revert))
	if len(x.Turns) > 1 {
		_ = output.Printf(w, "\nThe verdict changed %d times:\n", len(x.Turns))
		for i, t := range x.Turns {
			if i == maxTurns {
				_ = output.Printf(w, "and %d times more: -o json has all\n", len(x.Turns)-maxTurns)
				break
			}
			_ = output.Printf(w, "#%d %s\n", t.Seq, t.Summary)
		}
	}
	if b.class(&desired.Trace{Verdict: x.End.Verdict}) == verdicts.Reaches && b.asked == "reach" {
		_ = output.Printf(w, "\nThey reach each other again after #%d.\n", x.UpTo)
	}
	if !x.Whole {
		_ = output.Printf(w, "\nThere are more than %d entries: some places were looked at, and the verdict may have changed between them too. Narrow it with --from and --to.\n", maxScan)
	}
	return nil
}

// traceAt traces at a seq: in a folder, or by a server.
func (s *pastLog) traceAt(ctx context.Context, seq log.Seq, from, to string) (t desired.Trace, err error) {
	if s.folder != nil {
		return s.trace(ctx, seq, from, to)
	}
	query := url.Values{"from": {from}, "to": {to}, "at": {seq.String()}}
	raw, err := s.api.Raw(ctx, http.MethodGet, "/trace?"+query.Encode(), nil)
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return t, fmt.Errorf("the answer to /trace cannot be read: %w", err)
	}
	return t, nil
}
