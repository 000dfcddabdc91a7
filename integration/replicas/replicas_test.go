package replicas

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
)

// TestZones: nodes follow the replicas of their zone, go elsewhere when these die or lag,
// and come back when they are ready again: each time from their cursor, without a snapshot,
// and without becoming unknown. Meanwhile leaders die, and writes go on but for the
// elections. 100 nodes; 2,000 with RUTTER_LONG.
func TestZones(t *testing.T) {
	nodes := 100
	if os.Getenv("RUTTER_LONG") != "" {
		nodes = 2000
	}
	w := newWorld(t, nodes)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := bench.Streams(ctx, w.Cluster, 1, func(submit []bench.Submit) error {
		w.stage.Submit = submit[0]
		if err := w.stage.Prepare(ctx); err != nil {
			return err
		}
		if err := w.stage.Populate(ctx, 10); err != nil {
			return err
		}
		var running sync.WaitGroup
		running.Go(func() { w.fleet.Run(ctx) })
		r, unknown := new(writer), make(map[string]bool)
		defer func() {
			cancel()
			running.Wait()
		}()
		w.all(nodes, w.near, w.far)
		w.barrier(nodes)
		w.spread()
		w.await("all nodes to run, as the servers see them", func() bool {
			unknown, err := w.unknown(ctx)
			return err == nil && len(unknown) == 0
		})
		first := w.fleet.Counts()
		running.Go(func() { r.run(ctx, w.stage) })
		running.Go(func() { w.watch(ctx, unknown) })
		w.moves(nodes, r)
		w.read(r)
		w.barrier(nodes)
		if err := w.fleet.AwaitSeq(ctx, r.last); err != nil {
			return err
		}
		if now := w.fleet.Counts(); now.Scopes != first.Scopes || now.Moves == 0 {
			t.Errorf("%d whole scopes were sent to nodes that moved, want none; %d moved back", now.Scopes-first.Scopes, now.Moves)
		}
		cancel()
		running.Wait()
		if len(unknown) > 0 {
			t.Errorf("%d nodes were unknown meanwhile", len(unknown))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// spread: both replicas have some of the nodes.
func (w *world) spread() {
	w.Helper()
	following := w.fleet.Following()
	w.Logf("at first nodes follow %v", following)
	if following[w.near.URL] == 0 || following[w.far.URL] == 0 {
		w.Errorf("the nodes follow %v; want both replicas to have some", following)
	}
}

// quiet fails if writes were not acknowledged for longer than within since the last call.
func (w *world) quiet(r *writer, what string, within time.Duration) {
	w.Helper()
	gap, written, err := r.lap()
	w.Logf("%s: the longest gap between acknowledgements is %v; %d written in all; nodes follow %v", what, gap.Round(time.Millisecond), written, w.fleet.Following())
	if gap > within || err != nil {
		w.Errorf("%s: no acknowledgement for %v (%v); want at most %v", what, gap, err, within)
	}
}

// Bounds of the time without an acknowledgement. They are far above what is measured on a
// quiet machine (30 ms, and 700 ms for an election), because tests share theirs.
const (
	noElection = 10 * time.Second
	election   = 40 * time.Second
)

// moves kills and starts servers, and holds up the way to the far replica.
func (w *world) moves(nodes int, r *writer) {
	w.Helper()
	w.kill(w.near)
	w.all(nodes, w.far)
	w.quiet(r, "the near replica was killed", noElection)

	w.kill(w.far)
	w.all(nodes, w.Servers...)
	w.quiet(r, "both replicas were killed", noElection)

	// A replica that is started without --non-voter stays one.
	w.near.Args = slices.DeleteFunc(w.near.Args, func(arg string) bool { return arg == "--non-voter" })
	w.start(w.near)
	w.all(nodes, w.near)
	w.quiet(r, "the near replica came back", noElection)

	leader, err := w.Leader(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	w.kill(leader)
	w.start(w.far)
	w.quiet(r, "the leader was killed", election)
	w.start(leader)

	w.kill(w.near)
	w.all(nodes, w.far)
	w.lags(nodes, r)
	w.start(w.near)
	w.all(nodes, w.near, w.far)
	w.quiet(r, "the near replica came back", noElection)
	w.votes()
}

// lags holds up the way to the far replica: it is not ready, and its nodes go elsewhere,
// until it has caught up.
func (w *world) lags(nodes int, r *writer) {
	w.Helper()
	w.way.hold(true)
	w.all(nodes, w.Servers...)
	status, err := w.Client.StatusOf(w.Context(), w.far.URL)
	if err != nil || status.Ready || !strings.Contains(status.NotReady, "replica lags") || status.Detail.Lag < maxLag {
		w.Errorf("a replica that hears nothing is %t, %q, %v behind, %v; want it not ready because it lags", status.Ready, status.NotReady, status.Detail.Lag, err)
	}
	if zone, err := w.Client.Zone(w.Context(), w.far.URL); zone != "east" || err == nil {
		w.Errorf("it says that it is in zone %q and ready (%v)", zone, err)
	}
	w.quiet(r, "the way to the far replica is held up", noElection)
	w.way.hold(false)
	w.ready(w.far)
	w.all(nodes, w.far)
	w.quiet(r, "the far replica caught up", noElection)
}

// votes: no replica has got a vote meanwhile, and each server says its zone.
func (w *world) votes() {
	w.Helper()
	places, err := w.Client.Places(w.Context(), w.far.URL)
	if err != nil || len(places) != 5 {
		w.Fatalf("%+v, %v; want five servers", places, err)
	}
	for _, p := range places {
		replica, zone := p.ID == w.near.ID || p.ID == w.far.ID, "west"
		if replica {
			zone = "east"
		}
		if p.Voter == replica || p.Zone != zone {
			w.Errorf("%s has a vote: %t, and is in zone %q; want %t and %s", p.ID, p.Voter, p.Zone, !replica, zone)
		}
	}
}

// read: a consistent read from the far replica has each write that was acknowledged before.
func (w *world) read(r *writer) {
	w.Helper()
	api, err := client.New(client.Config{Servers: []string{w.far.URL}})
	if err != nil {
		w.Fatal(err)
	}
	defer api.Close()
	for i := range 20 {
		created, err := w.Client.Create(w.Context(), "/nic_tags", fmt.Appendf(nil, `{"name":"read%d"}`, i))
		if err != nil {
			w.Fatal(err)
		}
		got, err := api.Get(w.Context(), fmt.Sprintf("/nic_tags/read%d", i), url.Values{"consistent": {"true"}})
		if err != nil || got["uuid"] != created["uuid"] {
			w.Fatalf("the far replica has %v, %v; want %v", got, err, created)
		}
	}
}
