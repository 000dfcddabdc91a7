package benchcmd

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/load"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// Command measures a cluster. By default it starts three server processes on loopback,
// and ends them at its end.
func Command() *cli.Command {
	return &cli.Command{
		Name: "bench", Usage: "measure how fast a cluster writes, reads, replays and fails over", Category: "Trying it",
		Description: term.Examples(
			"rutter bench append --writers 512 --duration 10s",
			"rutter bench append --server http://10.0.0.1:7420 --writers 64 --http",
			"rutter bench read --consistent",
			"rutter bench replay --count 1000000 -o json",
			"rutter bench failover --count 20",
		),
		Subcommands: []*cli.Command{
			benchAgentsCommand(),
			{
				Name: "append", Usage: "changes of one event each, acknowledged by a quorum's disks", Action: withBench(benchAppend),
				Flags: append(benchFlags(),
					&cli.BoolFlag{Name: "http", Usage: "as JSON through POST /changes, instead of the write stream"},
					&cli.IntFlag{Name: "writers", Value: 512, Usage: "`N` writers, each of which waits for its answer"},
					&cli.DurationFlag{Name: "duration", Value: 10 * time.Second, Usage: "`TIME` to write; 0: until --count"},
					&cli.Uint64Flag{Name: "count", Usage: "`N` changes; 0: until --duration"}),
				Description: term.Examples("rutter bench append --writers 1 --duration 5s", "rutter bench append --count 1000000 --duration 0s"),
			},
			{
				Name: "read", Usage: "single objects through the API", Action: withBench(benchRead),
				Flags: append(benchFlags(),
					&cli.BoolFlag{Name: "consistent", Usage: "each read waits until it sees all that was acknowledged before it"},
					&cli.Uint64Flag{Name: "objects", Value: 10000, Usage: "`N` objects, created first"},
					&cli.IntFlag{Name: "writers", Aliases: []string{"readers"}, Value: 64, Usage: "`N` readers"},
					&cli.DurationFlag{Name: "duration", Value: 10 * time.Second, Usage: "`TIME` to read"}),
				Description: term.Examples("rutter bench read", "rutter bench read --consistent --readers 512"),
			},
			{
				Name: "replay", Usage: "the whole log, by one reader that decodes it", Action: withBench(benchReplay),
				Flags: append(benchFlags(),
					&cli.Uint64Flag{Name: "count", Value: 1_000_000, Usage: "`N` events, written first if there are fewer"}),
				Description: term.Examples("rutter bench replay", "rutter bench replay --server http://10.0.0.1:7420 --count 100000"),
			},
			{
				Name: "failover", Usage: "how long nothing is acknowledged when the leader is killed, and when it hands over", Action: withBench(benchFailover),
				Flags: append(benchFlags(),
					&cli.IntFlag{Name: "count", Value: 20, Usage: "`N` times each"}),
				Description: term.Examples("rutter bench failover", "rutter bench failover --count 5 -o json"),
			},
		},
	}
}

func benchFlags() []cli.Flag {
	return []cli.Flag{
		output.Flag(),
		&cli.StringSliceFlag{Name: "server", Aliases: []string{"s"}, Usage: "`URL` of a server of the cluster to measure; without it, three processes are started here"},
		&cli.IntFlag{Name: "connections", Value: bench.Connections, Usage: "`N` write streams"},
		&cli.IntFlag{Name: "size", Value: 400, Usage: "`BYTES` of each encoded event"},
		&cli.StringFlag{Name: "dir", Usage: "`FOLDER` for the data of the servers that are started; a new one, removed at the end, if not given"},
		&cli.StringSliceFlag{Name: "server-flag", Usage: "`FLAG` for the servers that are started, as in --server-flag=--log-level=debug"},
	}
}

// benchRun is what each bench needs.
type benchRun struct {
	*cli.Context
	cluster  *bench.Cluster
	workload *bench.Workload
	own      bool // the cluster was started here
}

// withBench runs a bench with a cluster, and ends the cluster if it started it.
func withBench(do func(benchRun) error) cli.ActionFunc {
	return func(c *cli.Context) (err error) {
		if err := term.NoArguments(c); err != nil {
			return err
		}
		r := benchRun{Context: c, own: !c.IsSet("server")}
		if r.workload, err = bench.NewWorkload(c.Int("size")); err != nil {
			return term.Usagef("--size: %w", err)
		}
		if c.Int("connections") < 1 {
			return term.Usagef("--connections %d: want at least 1", c.Int("connections"))
		}
		if !r.own {
			if r.cluster, err = connectBench(c); err != nil {
				return err
			}
			defer r.cluster.Client.Close()
			return do(r)
		}
		dir, remove, err := benchDir(c.String("dir"))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, remove()) }()
		program, err := os.Executable()
		if err = errors.Join(err, term.ForgetVariables()); err != nil {
			return err
		}
		if r.cluster, err = bench.StartCluster(c.Context, bench.Options{Program: program, Servers: 3, Dir: dir, Flags: c.StringSlice("server-flag")}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.cluster.Stop()) }()
		return do(r)
	}
}

// connectBench connects to the cluster that --server names, and checks that it answers,
// because the benches themselves would retry without end.
func connectBench(c *cli.Context) (*bench.Cluster, error) {
	cfg, err := term.ClientConfig(c)
	if err != nil {
		return nil, err
	}
	cluster, err := bench.Connect(cfg)
	if err != nil {
		return nil, term.UsageError{Err: err}
	}
	if _, err := cluster.Client.Status(c.Context); err != nil {
		cluster.Client.Close()
		return nil, err
	}
	return cluster, nil
}

func benchDir(given string) (dir string, remove func() error, err error) {
	if given != "" {
		dir, err = filepath.Abs(given)
		return dir, func() error { return nil }, err
	}
	dir, err = os.MkdirTemp("", "rutter-bench-")
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// progress returns a function that prints progress.
func (r benchRun) progress(what string) func(done uint64) {
	begin := time.Now()
	return func(done uint64) {
		elapsed := time.Since(begin).Seconds()
		output.Printf(r.App.ErrWriter, "%s: %d after %.0f s, %.0f/s\n", what, done, elapsed, float64(done)/math.Max(elapsed, 0.001))
	}
}

func (r benchRun) plan(what string) (load.Plan, error) {
	show := r.progress(what)
	p := load.Plan{
		Writers: r.Int("writers"), Duration: r.Duration("duration"), Count: r.Uint64("count"),
		Progress: func(done uint64, _ time.Duration) { show(done) },
	}
	if p.Writers < 1 || p.Duration < 0 || p.Duration == 0 && p.Count == 0 {
		return p, term.Usagef("%d writers for %v or %d: want at least one writer, and a duration or a count", p.Writers, p.Duration, p.Count)
	}
	return p, nil
}

func benchAppend(r benchRun) error {
	plan, err := r.plan("appended")
	if err != nil {
		return err
	}
	outcome, err := bench.Append(r.Context.Context, r.cluster, r.workload, r.Int("connections"), r.Bool("http"), plan)
	if err != nil {
		return err
	}
	return output.One(r.Context, outcome, func(w io.Writer) { printOutcome(w, outcome) })
}

func printOutcome(w io.Writer, o load.Outcome) {
	t := output.Aligned(w)
	output.Print(t, "WRITERS\tCOUNT\tERRORS\tSECONDS\tPER SECOND\tP50 MS\tP90 MS\tP99 MS\tMAX MS\tLONGEST GAP MS\n")
	output.Printf(t, "%d\t%d\t%d\t%.1f\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\n", o.Writers, o.Count, o.Errors, o.Seconds, o.PerSecond, o.P50, o.P90, o.P99, o.Max, o.LongestGap)
	_ = t.Flush() // the terminal is gone
	if o.Errors > 0 {
		output.Printf(w, "the first error: %s\n", o.FirstError)
	}
}

func benchRead(r benchRun) error {
	plan, err := r.plan("read")
	if err != nil {
		return err
	}
	objects := max(r.Uint64("objects"), 1)
	if _, _, err := bench.Fill(r.Context.Context, r.cluster, r.workload, objects, objects, r.progress("created")); err != nil {
		return err
	}
	outcome := bench.Read(r.Context.Context, r.cluster, r.workload, objects, r.Bool("consistent"), plan)
	return output.One(r.Context, outcome, func(w io.Writer) { printOutcome(w, outcome) })
}

func benchReplay(r benchRun) error {
	ctx, count := r.Context.Context, r.Uint64("count")
	status, err := r.cluster.Client.Status(ctx)
	if err != nil {
		return err
	}
	if have := uint64(status.Head.Seq - status.Floor); have < count {
		if _, _, err := bench.Fill(ctx, r.cluster, r.workload, count-have, 100_000, r.progress("written")); err != nil {
			return err
		}
	}
	outcome, err := bench.Replay(ctx, r.cluster, status.Floor, count, r.progress("replayed"))
	if err != nil {
		return err
	}
	return output.One(r.Context, outcome, func(w io.Writer) {
		output.Printf(w, "%d events of %d bytes in %.2f s: %.0f/s\n", outcome.Events, outcome.Bytes/max(outcome.Events, 1), outcome.Seconds, outcome.PerSecond)
	})
}

func benchFailover(r benchRun) error {
	if !r.own {
		return term.Usagef("failover kills servers, so it starts its own: leave --server out")
	}
	n, ctx := r.Int("count"), r.Context.Context
	show := func(what string) func(int, time.Duration) {
		return func(i int, gap time.Duration) {
			output.Printf(r.App.ErrWriter, "%s %d of %d: %.1f ms\n", what, i, n, load.Millis(gap))
		}
	}
	kills, err := bench.Failover(ctx, r.cluster, r.workload, n, show("kill"))
	if err != nil {
		return err
	}
	transfers, err := bench.Transfer(ctx, r.cluster, r.workload, n, show("transfer"))
	if err != nil {
		return err
	}
	both := struct {
		Kill     bench.FailoverOutcome `json:"kill"`
		Transfer bench.FailoverOutcome `json:"transfer"`
	}{kills, transfers}
	return output.Table(r.Context, both, func(t io.Writer) {
		output.Print(t, "FAULT\tTIMES\tSHORTEST MS\tP50 MS\tP99 MS\tLOST\n")
		for _, row := range []struct {
			name string
			o    bench.FailoverOutcome
		}{{"SIGKILL of the leader", kills}, {"planned transfer", transfers}} {
			shortest := 0.0
			if len(row.o.Gaps) > 0 {
				shortest = row.o.Gaps[0]
			}
			output.Printf(t, "%s\t%d\t%.1f\t%.1f\t%.1f\t%d\n", row.name, len(row.o.Gaps), shortest, row.o.P50, row.o.P99, row.o.Lost)
		}
	})
}
