package applycmd

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections/documents"
	"rutter/projections/documents/source"
)

// exitChanges is the exit code of `rutter plan --detailed-exitcode` if there is something
// to do.
const exitChanges = 2

// PlanCommand is `rutter plan`.
func PlanCommand() *cli.Command {
	return &cli.Command{
		Name: "plan", Usage: "say what documents would change: objects, kernels, and which VMs would lose each other", Category: "Objects",
		Action:      runPlan,
		Description: planText,
		Flags: append(documentFlags(),
			&cli.StringFlag{Name: "out", Usage: "write the plan to `FILE`, for rutter apply FILE: it writes exactly that, or nothing if an object of it has changed"},
			&cli.BoolFlag{Name: "detailed-exitcode", Usage: "end with 2 if there is something to do"},
			term.ServersFlag(), output.Flag(),
		),
	}
}

var planText = strings.TrimSpace(`
Nothing is written. Each object that would be created (+), updated (~), deleted (-) or
replaced (-/+) is shown with its fields, then what the kernel of each compute node would
have to change, and which VMs would reach each other no more, by what the log gives the
kernels. If there are too many nodes or pairs of VMs to look at all of them, the plan says
at how many it looked. What the servers would refuse is marked with !. The last line has
the counts, or says: nothing to do.

A replaced object is deleted and made again, because a field differs that cannot be
changed. Without --replace that is refused.

With --prune, objects of a set that no document declares are deleted. The set is all that
has the labels (--set-label) and the owner (--owner). If that takes away more than half of
the set, or no document is there, it needs --prune-most too.

Exit codes: 0 done; 1 failed; 2 wrong usage, and with --detailed-exitcode that there is
something to do; 3 the servers would refuse it, or it must be accepted by a flag.

`) + "\n\n" + term.Examples(
	"rutter plan -f cloud/                                      # all YAML and JSON files below a folder",
	"rutter plan -f net.yaml -f vms.json --detailed-exitcode",
	"rutter plan -f cloud/ --prune --set-label set=web          # what has the label and no document is deleted",
	"rutter plan -f cloud/ --out web.plan && rutter apply web.plan",
	"rutter export --label set=web | rutter plan -f - -o ndjson",
)

// ApplyCommand is `rutter apply`.
func ApplyCommand() *cli.Command {
	return &cli.Command{
		Name: "apply", Usage: "make the log as documents say, or write a plan of rutter plan --out", Category: "Objects",
		ArgsUsage: "[PLAN]", Action: runApply, Description: applyText,
		Flags: append(documentFlags(),
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask"},
			&cli.StringFlag{Name: "wait", Value: "none", Usage: "none: until a majority of the servers has it, as always; cluster: until all servers that answer have it; fabric: until every compute node that is concerned has it in its kernel. `WHAT` to wait for"},
			&cli.DurationFlag{Name: "timeout", Value: time.Minute, Usage: "with --wait: give up after this `TIME`; what was written stays written"},
			term.ServersFlag(), output.Flag(),
		),
	}
}

var applyText = strings.TrimSpace(`
The plan is made again, shown as rutter plan shows it, and asked for on a terminal;
elsewhere it needs --yes. It is written in one change if it fits the limits of a change,
else in as few as possible, one after the other. Each object must still be as the plan
saw it: what was changed meanwhile is named, and nothing of that change is written. The
last line is a receipt, as rutter log revert takes it.

A second run has nothing to do and writes no entry. After an error the receipt says what
was written; run the command again, and it goes on. What was sent twice is done once, also
if the command was killed.

With PLAN it writes exactly the changes of a file that rutter plan --out wrote, and
nothing if one of their objects has changed since.

Exit codes: 0 done, or nothing to do; 1 failed, or not everywhere within --timeout; 2 wrong
usage; 3 refused by the servers, or it must be accepted by a flag; 4 no server answered.

`) + "\n\n" + term.Examples(
	"rutter apply -f cloud/",
	"rutter apply -f cloud/ --yes --wait=fabric --timeout 30s",
	"rutter apply web.plan --yes",
	"rutter apply -f cloud/ --prune --set-label set=web --owner 930896af-bf8c-48d4-885c-6573a94b1853",
)

// documentFlags are those of both commands.
func documentFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "file", Aliases: []string{"f"}, Usage: "`DIR|FILE` with documents, - for standard input; may be given several times"},
		&cli.BoolFlag{Name: "prune", Usage: "delete what the set has and no document declares; needs --set-label or --owner"},
		&cli.StringSliceFlag{Name: "set-label", Usage: "`KEY=VALUE` that the objects of the set have; may be given several times"},
		&cli.StringFlag{Name: "owner", Usage: "`UUID` of the owner that the objects of the set have"},
		&cli.BoolFlag{Name: "prune-most", Usage: "accept a prune that deletes more than half of the set, or that no document stands against"},
		&cli.BoolFlag{Name: "replace", Usage: "accept that objects are deleted and made again, where a field differs that cannot be changed"},
	}
}

// pruneOf returns the set that is pruned; nil if none is.
func pruneOf(c *cli.Context) (*documents.Selection, error) {
	labels, owner := c.StringSlice("set-label"), c.String("owner")
	if !c.Bool("prune") {
		if len(labels) > 0 || owner != "" || c.Bool("prune-most") {
			return nil, term.Usagef("--set-label, --owner and --prune-most say what --prune deletes: give --prune too, or leave them out")
		}
		return nil, nil
	}
	of := &documents.Selection{Labels: map[string]string{}}
	for _, text := range labels {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, term.Usagef("--set-label %q: want KEY=VALUE, as in set=web", text)
		}
		if other, twice := of.Labels[key]; twice && other != value {
			return nil, term.Usagef("--set-label %s=%s and %s=%s: no object has both", key, other, key, value)
		}
		of.Labels[key] = value
	}
	if owner != "" {
		var err error
		if of.Owner, err = log.ParseUUID(owner); err != nil || of.Owner.IsZero() {
			return nil, term.Usagef("--owner %q: want the UUID of an owner", owner)
		}
	}
	if of.IsEmpty() {
		return nil, term.Usagef("--prune needs --set-label KEY=VALUE or --owner UUID: it never deletes what no set is named for")
	}
	return of, nil
}

// docsOf reads the documents that -f names.
func docsOf(c *cli.Context) ([]documents.Document, error) {
	paths := c.StringSlice("file")
	if len(paths) == 0 {
		return nil, term.Usagef("want -f DIR|FILE with documents, or -f - for standard input; rutter export writes what is there")
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(paths)))); n < len(paths) {
		return nil, term.Usagef("-f names a file twice")
	}
	return source.Load(paths, c.App.Reader)
}

func runPlan(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	prune, err := pruneOf(c)
	if err != nil {
		return err
	}
	docs, err := docsOf(c)
	if err != nil {
		return err
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	defer api.Close()
	is, err := read(c.Context, api)
	if err != nil {
		return err
	}
	s, err := makeSet(is, docs, prune, time.Now())
	if err != nil {
		return err
	}
	if err := show(c.App.Writer, c.String("output"), s, nil); err != nil {
		return err
	}
	if err := accepted(s, len(docs), acceptsOf(c)); err != nil {
		return err
	}
	if name := c.String("out"); name != "" {
		if err := save(name, is.cluster, is.head, s.changes); err != nil {
			return err
		}
	}
	if c.Bool("detailed-exitcode") && !s.empty() {
		return cli.Exit(errors.New(""), exitChanges)
	}
	return nil
}
