package logcmd

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/logprint"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// replayCommand is `rutter log replay`.
func replayCommand() *cli.Command {
	return &cli.Command{
		Name: "replay", Usage: "run a log again: into a folder, another cluster, a dump, a read-only server, or with changes that were not made yet", Action: logReplay,
		ArgsUsage: "FOLDER|SNAPSHOT|EXPORT|URL",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "to", Value: "dump", Usage: "`WHERE`: a new data folder, the URL of another cluster, dump (the state as text) or - (the entries as lines of JSON)"},
			&cli.StringFlag{Name: "until", Usage: "only up to this `SEQ|TIME`"},
			&cli.StringFlag{Name: "speed", Usage: "into a cluster or to -: at `N` times the speed at which it happened, as in 10x; at once if it is left out"},
			&cli.StringFlag{Name: "serve", Usage: "serve the API and the console of it at this `ADDRESS`, read-only, as in 127.0.0.1:7430"},
			mapFlag(), goOnFlag(),
			&cli.StringFlag{Name: "what-if", Usage: "apply the changes of this `FILE` to the state and say what would come of it; nothing is written. - is standard input"},
			output.Flag("table", "ndjson"),
		}, term.TLSFlags()...),
		Description: "Into another cluster each change is decided anew and gets an id and seqs of its own; the map file has which are whose. A run that was ended at any moment, also by a crash, goes on when it is run again with the same map file, and the one beside it that ends in .resume: nothing is made twice, and nothing left out. Many changes are under way at once; those that name the same objects keep their order. A change that the cluster refuses ends the run, and is in the map file with the reason; the next run tries it again. Of a log whose first entries are not kept, the objects that it begins with are made first. Tasks, tickets, settings, tokens, revocations, grants, authorities and certificates are a cluster's own, and are skipped, as the map file says; all else is made: NIC tags, networks, pools, fabric VLANs, addresses, NICs, aggregations, routers, servers, VMs, VMMs and migrations. A replay into a folder has everything, byte for byte.\n\n" +
			"The file of --what-if has changes as POST /changes takes them: {\"ops\": [{\"action\": \"update\", \"kind\": \"network\", \"id\": …, \"object\": {…}}]}, one after the other.\n\n" + term.Examples(
			"rutter log replay /var/lib/rutter --to /tmp/copy --until 2026-11-21T14:03:00Z",
			"rutter log replay snapshot.rutter --to dump",
			"rutter log replay http://127.0.0.1:7420 --serve 127.0.0.1:7430 --until 1042   # the console of that moment",
			"rutter log replay http://127.0.0.1:7420 --to - --speed 10x",
			"rutter log replay /var/lib/rutter --to http://127.0.0.1:9000 --map ids.ndjson",
			"rutter log replay /var/lib/rutter --to http://127.0.0.1:9000 --go-on   # past changes that it refuses",
			"rutter log replay http://127.0.0.1:7420 --what-if changes.json",
		),
	}
}

// replayFlags refuses flags that do not go together.
func replayFlags(c *cli.Context) (speed uint64, err error) {
	if c.NArg() != 1 {
		return 0, term.Usagef("want one data folder, snapshot file, export or URL")
	}
	if speed, err = parseSpeed(c.String("speed")); err != nil {
		return 0, err
	}
	ways := 0
	for _, name := range []string{"to", "serve", "what-if"} {
		if c.IsSet(name) {
			ways++
		}
	}
	switch to := c.String("to"); {
	case ways > 1:
		return 0, term.Usagef("--to, --serve and --what-if exclude each other")
	case speed > 0 && to != "-" && !isURL(to):
		return 0, term.Usagef("--speed is for --to - and --to URL")
	case c.IsSet("map") && !isURL(to):
		return 0, term.Usagef("--map is for --to URL")
	case c.IsSet("go-on") && !isURL(to):
		return 0, term.Usagef("--go-on is for --to URL")
	}
	return speed, nil
}

func logReplay(c *cli.Context) (err error) {
	speed, err := replayFlags(c)
	if err != nil {
		return err
	}
	s, err := openNamed(c, c.Args().First())
	if err != nil {
		return err
	}
	defer closeJoining(s, &err)
	to := c.String("to")
	// Serving, and a log that begins with a state, need the stored form.
	if c.IsSet("serve") || s.floor > 0 && to != "-" && to != "dump" && !c.IsSet("what-if") {
		if err := s.makeLocal(c.Context); err != nil {
			return err
		}
	}
	if s.head, err = s.seqAt(c.Context, c.String("until")); err != nil {
		return err
	}
	switch {
	case c.IsSet("what-if"):
		return whatIf(c, s)
	case c.IsSet("serve"):
		return serve(c, s.folder, s.head)
	case to == "dump":
		state, err := s.state(c.Context, s.head, statePart{})
		if err != nil {
			return err
		}
		return output.Escaped(c.App.Writer, state.Dump())
	case to == "-":
		return replayLines(c, s, speed)
	case isURL(to):
		return replayCluster(c, s, to, speed)
	default:
		return replayFolder(c, s, to)
	}
}

// parseSpeed parses a speed such as 10x. 0 means without pauses.
func parseSpeed(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(text, "x"), 10, 32)
	if err != nil || n == 0 {
		return 0, term.Usagef("--speed %q: want a whole number from 1, as in 10x", text)
	}
	return n, nil
}

// pace waits between entries as their times say.
type pace struct {
	speed uint64 // 0: without pauses
	last  log.Time
}

// wait waits until an entry of a time is due, or ctx ends.
func (p *pace) wait(ctx context.Context, at log.Time) error {
	if p.speed == 0 {
		return nil
	}
	wait := time.Duration(0)
	if p.last > 0 && at > p.last {
		wait = time.Duration(at-p.last) / time.Duration(p.speed)
	}
	p.last = at
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// replayLines prints the entries as GET /log has them.
func replayLines(c *cli.Context, s *pastLog, speed uint64) error {
	p := pace{speed: speed}
	w := logprint.NewWriter(c.App.Writer, speed > 0 || term.Terminal(c.App.Writer))
	for e, err := range s.entries(c.Context, s.floor) {
		var event *log.Event
		if err == nil {
			event, err = e.Event()
		}
		if err == nil && p.wait(c.Context, event.Time) != nil {
			return nil // the user interrupted it
		}
		if err == nil {
			err = w.Append(func(b []byte) ([]byte, error) {
				b, err := log.Line{Seq: e.Seq, Chain: e.Hash.Prefix(), Event: event}.AppendJSON(b)
				return append(b, '\n'), err
			})
		}
		if err != nil {
			return errors.Join(err, w.Flush())
		}
	}
	return w.Flush()
}
