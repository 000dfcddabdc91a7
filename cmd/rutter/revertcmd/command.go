package revertcmd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/await"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/planprint"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/moment"
	"rutter/projections/foresee"
	"rutter/projections/undo"
)

// ExitPlanned is the exit code if there is something to take back and nothing was written,
// because the user did not agree.
const ExitPlanned = 5

// Command is `rutter log revert`.
func Command() *cli.Command {
	flags := []cli.Flag{
		term.ServersFlag(), output.Flag("table", "json", "ndjson"),
		&cli.StringFlag{Name: "from", Usage: "entries from this `PLACE` on: " + moment.Forms},
	}
	flags = append(flags, filterFlags()...)
	flags = append(flags,
		&cli.StringSliceFlag{Name: "take", Usage: "where others changed the same since: `WHICH` wins, was (the later change is lost) or now; for one object KIND/ID=WHICH, or its name in the place of its ID"},
		&cli.BoolFlag{Name: "skip-impossible", Usage: "take back the rest, if some cannot be taken back"},
		&cli.BoolFlag{Name: "yes", Usage: "write it without a question"})
	return &cli.Command{
		Name: "revert", Usage: "take entries back: show what that does, and write it", ArgsUsage: "[SEQ[-SEQ],... | CHANGE]", Action: revert,
		Flags: append(flags, await.Flags()...),
		Description: "Each object gets back what people and programs had asked for before the entries; what\n" +
			"compute nodes reported is left. It is written as one change if it fits, else as several,\n" +
			"the first entries of the log last. Each entry of it names what it takes back, and can be\n" +
			"taken back itself. Exit codes: 0 written, or nothing to do; 3 refused, or conflicts;\n" +
			"5 there is something to do, and the answer was not yes.\n\n" + term.Examples(
			"rutter log revert 1042",
			"rutter log revert 019a5b1c-4f2e-7c3d-8e4f-a1b2c3d4e5f6 --yes --wait fabric   # all of a change",
			"rutter log revert --from 1042 --until 1060",
			"rutter log revert --actor operator:bob --from 2h --kind network --path gateway",
			"rutter log revert 1042 --take nic/90:b8:d0:10:02:00=was --take now",
			"rutter log revert 1042 -o json   # the plan, for a program"),
	}
}

// run is one run of the command: what was found, and how it is printed.
type run struct {
	c      *cli.Context
	plan   *undo.Plan
	parts  []undo.Part
	look   foresee.Outcome
	format string
}

func revert(c *cli.Context) error {
	pick, err := pickOf(c)
	if err != nil {
		return err
	}
	take, err := takeOf(c.StringSlice("take"), finder(c))
	if err != nil {
		return err
	}
	writer, err := await.Client(c) // its flags are checked before anything is read
	if err != nil {
		return err
	}
	defer writer.Close()
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	defer api.Close()
	r := &run{c: c, format: c.String("output")}
	if err := r.read(api, pick, take); err != nil {
		return err
	}
	if len(r.parts) == 0 || r.refused() != nil {
		return errors.Join(r.show(nil), exitOf(r.refused(), term.ExitRefused))
	}
	if !c.Bool("yes") && (r.format != "table" || !term.Terminal(os.Stdin)) {
		return errors.Join(r.show(nil), cli.Exit("nothing was written: this is no terminal on which to agree, so add --yes", ExitPlanned))
	}
	if r.format == "table" {
		if err := r.show(nil); err != nil {
			return err
		}
	}
	if !c.Bool("yes") && !r.agreed() {
		return cli.Exit("nothing was written: the answer was not yes", ExitPlanned)
	}
	receipt, err := r.write(api, writer)
	return errors.Join(r.show(receipt), err)
}

func exitOf(err error, code int) error {
	if err == nil {
		return nil
	}
	return cli.Exit(err, code)
}

// refused says why the plan must not be written.
func (r *run) refused() error {
	if err := r.plan.Refused(r.c.Bool("skip-impossible")); err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	if n := r.look.Refusals(); n > 0 {
		return fmt.Errorf("nothing was written: %d changes would be refused", n)
	}
	return nil
}

// agreed asks on the terminal.
func (r *run) agreed() bool {
	output.Printf(r.c.App.ErrWriter, "Take back %s in %s? Only yes is taken as such: ", r.plan.Reverts(), changes(len(r.parts)))
	answer, err := bufio.NewReader(io.LimitReader(os.Stdin, 16)).ReadString('\n')
	return (err == nil || errors.Is(err, io.EOF)) && strings.TrimSpace(answer) == "yes"
}

// Receipt says what was written.
type Receipt struct {
	First   log.Seq    `json:"first"`
	Last    log.Seq    `json:"last"`
	Changes []log.UUID `json:"changes"`
	// ranges are the entries of each change: those of others may lie between.
	ranges []term.Seqs
}

// write writes the changes, one after the other. Only the last one waits for the fabric. After
// an error the receipt has what was written before.
func (r *run) write(api, waiting *client.Client) (*Receipt, error) {
	var receipt *Receipt
	for i := range r.parts {
		part, to := &r.parts[i], api
		last := i == len(r.parts)-1
		if last {
			to = waiting
		}
		result, err := to.Submit(r.c.Context, part.Change)
		late, isLate := errors.AsType[*client.PendingError](err)
		if isLate && late.Verdict.Seq > 0 {
			result.Last = late.Verdict.Seq
			result.First = result.Last - log.Seq(len(part.Touched)) + 1
		} else if err != nil {
			return receipt, r.failed(i, err)
		}
		if receipt == nil {
			receipt = &Receipt{First: result.First}
		}
		receipt.Last, receipt.Changes = result.Last, append(receipt.Changes, part.Change.ID)
		if result.Events > 0 { // the seqs of a change without effect are those of others
			receipt.ranges = append(receipt.ranges, term.Seqs{First: result.First, Last: result.Last})
		}
		if isLate {
			return receipt, await.Pending(r.c, err)
		}
		if !last && !undo.After(part, result.First, result.Events, r.parts[i+1:]) {
			return receipt, fmt.Errorf("change %d of %d became other events than planned: run the command again for the rest", i+1, len(r.parts))
		}
	}
	return receipt, nil
}

// failed says what an error of the ith change means for its user.
func (r *run) failed(i int, err error) error {
	id := r.parts[i].Change.ID
	refusal, isRefusal := errors.AsType[*log.Refusal](err)
	switch {
	case isRefusal && refusal.Code == log.CodePreconditionFailed:
		err = fmt.Errorf("another change came first: %w; run the command again to see what is left to take back", err)
	case !isRefusal:
		err = fmt.Errorf("the outcome of change %s is unknown: see rutter log revert %s; %w", id, id, err)
	}
	if i > 0 {
		return fmt.Errorf("%d of %d changes were written: %w", i, len(r.parts), err)
	}
	return err
}

// show prints the plan, or with a receipt what was written.
func (r *run) show(receipt *Receipt) error {
	out := r.c.App.Writer
	switch r.format {
	case "json":
		return output.Indented(out, document{r.plan, r.plan.Reverts(), &r.look, len(r.parts), receipt})
	case "ndjson":
		return r.lines(receipt)
	}
	if receipt != nil {
		return output.Printf(out, "%s\n", planprint.Receipt(receipt.ranges, func(command string) string { return term.Again(r.c, command) }))
	}
	if len(r.parts) > 0 {
		output.Printf(out, "what takes back %s, after seq %s:\n", r.plan.Reverts(), r.plan.Head)
		if err := planprint.Outcome(out, r.format, &r.look); err != nil {
			return err
		}
	}
	r.notes(out)
	if len(r.parts) == 0 && len(r.plan.Conflicts) == 0 && len(r.plan.Impossible) == 0 {
		return output.Printf(out, "nothing to do: of %s, none has to be taken back\n", r.chosen())
	}
	if len(r.parts) == 0 {
		return nil // why is said by the error
	}
	return output.Printf(out, "%s, in %s, of %s\n", planprint.Count(&r.look), changes(len(r.parts)), r.chosen())
}

// chosen says how many entries the user chose.
func (r *run) chosen() string {
	if r.plan.Entries == 1 {
		return "1 entry that was chosen"
	}
	return fmt.Sprintf("%d entries that were chosen", r.plan.Entries)
}

// changes is a number of changes in words.
func changes(n int) string {
	if n == 1 {
		return "1 change"
	}
	return fmt.Sprintf("%d changes", n)
}
