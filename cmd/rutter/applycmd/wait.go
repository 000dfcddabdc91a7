package applycmd

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/await"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// What apply waits for.
const (
	waitNone    = "none"
	waitCluster = "cluster"
	waitFabric  = "fabric"
)

// pollEvery is the time between two questions to a server that does not have a seq yet.
const pollEvery = 50 * time.Millisecond

// waitOf returns what to wait for, and for how long.
func waitOf(c *cli.Context) (what string, within time.Duration, err error) {
	what, within = c.String("wait"), c.Duration("timeout")
	if !slices.Contains([]string{waitNone, waitCluster, waitFabric}, what) {
		return "", 0, term.Usagef("--wait %q: want %s, %s or %s", what, waitNone, waitCluster, waitFabric)
	}
	if within <= 0 {
		return "", 0, term.Usagef("--timeout %v: want a time above 0, as in 30s", within)
	}
	return what, within, nil
}

// waitFor waits until what was written is where it is to be. What is missing at the end
// is printed to out, and is an error.
func waitFor(ctx context.Context, api *client.Client, what string, within time.Duration, r *receipt, out io.Writer) error {
	if what == waitNone || r.Events == 0 {
		return nil
	}
	end := time.Now().Add(within)
	if what == waitCluster {
		return waitServers(ctx, api, end, r.Last)
	}
	for _, done := range r.Changes {
		if done.Events == 0 {
			continue
		}
		v, err := api.Wait(ctx, client.Barrier{Seq: done.Last, Timeout: max(time.Until(end), time.Millisecond).Round(time.Millisecond)})
		if err != nil {
			return fmt.Errorf("it is written, and whether it is everywhere is unknown: %w", err)
		}
		await.PrintVerdict(out, v)
		if !v.Done {
			return cli.Exit(fmt.Errorf("it is written, and not everywhere yet: %d of %d compute nodes are missing; rutter wait --seq %d waits on", v.Total, v.CNs, v.Seq), await.ExitMissing)
		}
	}
	return nil
}

// waitServers waits until each server that answers has a seq.
func waitServers(ctx context.Context, api *client.Client, end time.Time, seq log.Seq) error {
	for {
		var behind, silent []string
		for _, server := range api.Servers() {
			status, err := api.StatusOf(ctx, server)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				silent = append(silent, server)
			case status.Head.Seq < seq:
				behind = append(behind, fmt.Sprintf("%s has #%d", server, status.Head.Seq))
			}
		}
		switch {
		case len(behind) == 0 && len(silent) == len(api.Servers()):
			return fmt.Errorf("it is written, and which servers have it is unknown: %w", client.ErrUnavailable)
		case len(behind) == 0:
			return nil
		case time.Now().After(end):
			return cli.Exit(fmt.Errorf("it is written as #%d, and not on all servers yet: %s", seq, strings.Join(behind, ", ")), await.ExitMissing)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// progressTo shows how many operations are written, on a terminal in one line, elsewhere
// in a line each second.
func progressTo(w io.Writer) func(done, all int64) {
	if term.Terminal(w) {
		return output.Percent("written")
	}
	return output.Progress(w, "written")
}
