package benchcmd

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/agentsim"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// benchAgentsCommand is a subcommand of bench.
func benchAgentsCommand() *cli.Command {
	return &cli.Command{
		Name: "agents", Usage: "many simulated compute nodes: fan-out, barriers and, if the servers are started here, the loss of one", Action: withBench(benchAgents),
		Flags: append(benchFlags(),
			&cli.IntFlag{Name: "agents", Aliases: []string{"n"}, Value: 1000, Usage: "`N` compute nodes, each with a connection of its own"},
			&cli.IntFlag{Name: "rate", Value: 100, Usage: "`N` entries a second that concern all of them"},
			&cli.DurationFlag{Name: "duration", Value: 10 * time.Second, Usage: "`TIME` to write"},
			&cli.IntFlag{Name: "barriers", Value: 100, Usage: "`N` barriers over up to 100 of them"},
			&cli.BoolFlag{Name: "storm", Usage: "kill a server that all follow, and see them come back"}),
		Description: term.Examples("rutter bench agents -n 200", "rutter bench agents -n 10000 --rate 10 --storm", "rutter bench agents -s http://10.0.0.1:7420 -n 1000 -o json"),
	}
}

// agentsOutcome is the output of `rutter bench agents`.
type agentsOutcome struct {
	LiveSeconds float64                  `json:"live_s"` // until all were connected and up to date
	Fan         agentsim.FanOutcome      `json:"fan"`
	Barrier     *agentsim.BarrierOutcome `json:"barrier,omitempty"`
	Storm       *agentsim.StormOutcome   `json:"storm,omitempty"`
	Counts      agentsim.Counts          `json:"counts"`
}

// barrierAgents bounds the CNs of barriers. Only these have objects in the log.
const barrierAgents = 100

func benchAgents(r benchRun) error {
	n := r.Int("agents")
	if n < 1 || r.Int("rate") < 1 || r.Duration("duration") < time.Second {
		return term.Usagef("%d agents at %d entries/s for %v: want at least one, one, and 1s", n, r.Int("rate"), r.Duration("duration"))
	}
	if r.Bool("storm") && !r.own {
		return term.Usagef("--storm kills a server: only one that is started here")
	}
	ctx, cancel := context.WithCancel(r.Context.Context)
	defer cancel()
	cfg := agentsim.Config{Agents: n, Dialer: r.cluster.Client, Servers: r.cluster.Client.Servers(), First: func(i int) int { return i }}
	if r.Bool("storm") {
		cfg.First = func(int) int { return 0 }
	}
	stage := &agentsim.Scenario{Cluster: r.cluster, Fleet: agentsim.New(cfg)}
	var o agentsOutcome
	err := bench.Streams(ctx, r.cluster, 4, func(submit []bench.Submit) (err error) {
		stage.Submit = submit[0]
		if err := stage.Prepare(ctx); err != nil {
			return err
		}
		running := make(chan struct{})
		go func() { defer close(running); stage.Fleet.Run(ctx) }()
		defer func() { cancel(); <-running }()
		o, err = runAgents(ctx, r, stage)
		return err
	})
	if err != nil {
		return err
	}
	return output.One(r.Context, o, func(w io.Writer) { printAgents(w, o) })
}

func runAgents(ctx context.Context, r benchRun, stage *agentsim.Scenario) (o agentsOutcome, err error) {
	n := r.Int("agents")
	begin := time.Now()
	patience, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := stage.Fleet.AwaitLive(patience, n); err != nil {
		return o, fmt.Errorf("%d of %d agents are live after %s (is `ulimit -n` high enough?): %w", stage.Fleet.Counts().Live, n, time.Since(begin).Round(time.Second), err)
	}
	o.LiveSeconds = time.Since(begin).Seconds()
	if o.Fan, err = stage.Fan(ctx, r.Int("rate"), r.Duration("duration")); err != nil {
		return o, err
	}
	if count := r.Int("barriers"); count > 0 && n <= barrierAgents {
		if err := stage.RegisterNodes(ctx); err != nil {
			return o, err
		}
		barrier, err := stage.Barriers(ctx, count)
		if err != nil {
			return o, err
		}
		o.Barrier = &barrier
	}
	if r.Bool("storm") {
		storm, err := stage.Storm(ctx, 0)
		if err != nil {
			return o, err
		}
		o.Storm = &storm
	}
	o.Counts = stage.Fleet.Counts()
	return o, nil
}

func printAgents(out io.Writer, o agentsOutcome) {
	w := output.Aligned(out)
	output.Print(w, "AGENTS\tLIVE S\tWRITTEN/S\tDELIVERIES/S\tP50 MS\tP99 MS\tMAX MS\tSERVER US/DELIVERY\n")
	output.Printf(w, "%d\t%.2f\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t%.3f\n", o.Fan.Agents, o.LiveSeconds, o.Fan.PerSecond, o.Fan.DeliveriesS, o.Fan.P50, o.Fan.P99, o.Fan.Max, o.Fan.CPU)
	_ = w.Flush() // the terminal is gone
	if b := o.Barrier; b != nil {
		output.Printf(out, "barriers over %d CNs, after the commit: p50 %.2f ms, p99 %.2f ms, longest %.2f ms\n", b.CNs, b.P50, b.P99, b.Max)
	}
	if s := o.Storm; s != nil {
		output.Printf(out, "%d agents lost their server: all live again after %.2f s, %d scopes sent whole, %d connections\n", s.Agents, s.Seconds, s.Snapshots, s.Connects)
	}
}
