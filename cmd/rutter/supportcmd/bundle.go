package supportcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/support"
	"rutter/cmd/rutter/debugsocket"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// exitMissing is the exit code if a bundle was made, and something is missing in it.
const exitMissing = 3

// defaultTimeout is how long the whole command may take.
const defaultTimeout = time.Minute

// Command is rutter support.
func Command() *cli.Command {
	return &cli.Command{
		Name: "support", Usage: "what the daemons say of themselves, for whoever looks into a problem", Category: "Operating",
		Description: term.Examples("rutter support bundle", "rutter support bundle --cn all", "rutter support bundle --local"),
		Subcommands: []*cli.Command{{
			Name: "bundle", Usage: "write one file with status, metrics, logs, settings and goroutines of all servers, and of chosen nodes", Action: bundle,
			Flags: []cli.Flag{
				term.ServersFlag(), output.Flag("table", "json"),
				&cli.StringFlag{Name: "file", Usage: "`FILE` to write, which must not be there; default: rutter-support-TIME.tar.gz in this folder"},
				&cli.StringSliceFlag{Name: "cn", Usage: "the compute node of this `UUID` or name too, or all; may be given several times"},
				&cli.BoolFlag{Name: "local", Usage: "ask no server, but the daemons of this machine at their debug sockets, as root"},
				&cli.StringSliceFlag{Name: "debug-socket", Usage: "with --local: the `PATH` of a daemon's socket; default: those of the units, " + debugsocket.ServerSocket + " and " + debugsocket.AgentSocket},
				&cli.DurationFlag{Name: "timeout", Value: defaultTimeout, Usage: "end the whole command after this `TIME`; what is missing then is named in the bundle"},
			},
			Description: term.Examples(
				"rutter support bundle",
				"rutter support bundle --cn 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01 --cn cn7",
				"rutter support bundle --cn all --timeout 5m --file /var/tmp/today.tar.gz",
				"rutter support bundle --local          # as root on a machine whose servers do not answer",
			) + fmt.Sprintf("\n\nThe servers are those of the cluster, whichever of them --server names. It takes a certificate with\n"+
				"the role operator. Passphrases, tokens, keys and VMs' metadata are not in the bundle; names,\n"+
				"addresses and log lines are. manifest.json in it says what is there, and what is missing and why.\n"+
				"--cn all takes the first %d nodes that have a session. docs/support.md has more.\n\n"+
				"Exit codes: 0 everything is there; 3 something is missing, and the manifest says what, or the\n"+
				"certificate may not ask this; 1 the file could not be written; 2 wrong usage; 4 no server, or no\n"+
				"daemon of this machine, answered, and there is no file.", maxNodes),
		}},
	}
}

func bundle(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	if c.IsSet("debug-socket") && !c.Bool("local") {
		return term.Usagef("--debug-socket is for --local, which asks no server")
	}
	if c.Bool("local") && c.IsSet("cn") {
		return term.Usagef("--cn asks servers, and --local none: leave one of them out")
	}
	began := time.Now().UTC()
	name := c.String("file")
	if name == "" {
		name = "rutter-support-" + began.Format("20060102T150405Z") + ".tar.gz"
	}
	gather, err := gathererOf(c)
	if err != nil {
		return err
	}
	f, err := create(name, c.App.Version, began, []string{os.Getenv(term.PassphraseVariable)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context, gatherTime(c.Duration("timeout")))
	defer cancel()
	if err := gather(ctx, f); err != nil || c.Context.Err() != nil {
		return errors.Join(err, c.Context.Err(), f.drop())
	}
	m, err := f.close()
	if err != nil {
		return err
	}
	return printResult(c, name, m)
}

// gatherTime is the part of --timeout for asking. The rest is for writing the file.
func gatherTime(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		timeout = 24 * time.Hour // each answer has its own bound
	}
	return timeout - min(max(time.Second, timeout/10), timeout/2)
}

// gatherer adds parts to a bundle. An error is for the case that there is none to make.
type gatherer func(ctx context.Context, f *file) error

func gathererOf(c *cli.Context) (gatherer, error) {
	if c.Bool("local") {
		paths, asked := []string{debugsocket.ServerSocket, debugsocket.AgentSocket}, false
		if c.IsSet("debug-socket") {
			paths, asked = c.StringSlice("debug-socket"), true
		}
		return func(ctx context.Context, f *file) error { return gatherLocal(ctx, f, paths, asked) }, nil
	}
	cfg, err := term.ClientConfig(c)
	cfg.AttemptTimeout = partTime
	api, err := term.OpenClient(cfg, err)
	if err != nil {
		return nil, err
	}
	r := &remote{api: api, nodes: c.StringSlice("cn")}
	return func(ctx context.Context, f *file) error {
		defer api.Close()
		return r.gather(ctx, f)
	}, nil
}

// result is what the command prints.
type result struct {
	File string `json:"file"`
	Manifest
}

func printResult(c *cli.Context, name string, m Manifest) error {
	err := output.One(c, result{name, m}, func(w io.Writer) {
		output.Printf(w, "%s has %d parts\n", name, len(m.Parts))
		for _, one := range m.Missing {
			output.Printf(w, "missing: %s: %s\n", one.What, one.Why)
		}
	})
	if err == nil && !m.Complete {
		err = cli.Exit("", exitMissing)
	}
	return err
}

// partName is the name of a part's file.
func partName(part string) string {
	switch part {
	case support.Heap:
		return "heap.pb.gz"
	case support.Status:
		return "status.json"
	}
	if strings.HasSuffix(part, ".json") {
		return part
	}
	return part + ".txt"
}

// get gets one part.
type get func(ctx context.Context, part string) ([]byte, error)

// errGone: the machine does not answer, so it is not asked for more.
var errGone = errors.New("no answer")

// collect adds the parts of one daemon, one after another. When it does not answer, the
// rest is missing.
func collect(ctx context.Context, f *file, folder, from string, parts []string, one get) (found int, err error) {
	for i, part := range parts {
		begin := time.Now()
		asking, cancel := context.WithTimeout(ctx, partTime)
		text, err := one(asking, part)
		cancel()
		switch {
		case err == nil:
			found++
			f.add(folder+"/"+partName(part), from, text, time.Since(begin))
		case refused(err):
			return found, err
		case errors.Is(err, errGone) || ctx.Err() != nil:
			what := folder + "/" + partName(part)
			if more := len(parts) - i - 1; more > 0 {
				what += fmt.Sprintf(" and %d more of it", more)
			}
			f.miss(what, fmt.Sprintf("%s: %v", from, err))
			return found, nil
		default:
			f.miss(folder+"/"+partName(part), fmt.Sprintf("%s: %v", from, err))
		}
	}
	return found, nil
}

// each calls do for each of n things, so many at once, and returns the first error.
func each(n, atOnce int, do func(i int) error) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var first error
	room := make(chan struct{}, atOnce)
	for i := range n {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			if err := do(i); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
				}
			}
		})
	}
	all.Wait()
	return first
}
