package console

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/agentsim"
	"rutter/integration/rig"
)

// The map has a square for each of many compute nodes that follow real servers:
// 200 here, and 10,000 with RUTTER_LONG=1.
func TestMapOfManyNodes(t *testing.T) {
	nodes := 200
	if os.Getenv("RUTTER_LONG") != "" {
		nodes = 10_000
	}
	b, ctx := browser(t)
	c := rig.Cluster(t, bench.Options{Program: rutter})
	fleet := agentsim.New(agentsim.Config{Agents: nodes, Dialer: c.Client, Servers: c.Client.Servers(), First: func(i int) int { return i }})
	stage := &agentsim.Scenario{Cluster: c, Fleet: fleet}
	following, stop := context.WithCancel(ctx)
	defer stop()
	err := bench.Streams(following, c, 1, func(submit []bench.Submit) error {
		stage.Submit = submit[0]
		if err := stage.Prepare(ctx); err != nil {
			return err
		}
		ended := make(chan struct{})
		go func() { defer close(ended); fleet.Run(following) }()
		defer func() { stop(); <-ended }()
		if err := fleet.AwaitLive(ctx, nodes); err != nil {
			return err
		}
		begin := time.Now()
		open(t, b, ctx, c.Servers[0].URL, "#/cns")
		await(t, b, ctx, fmt.Sprintf("document.querySelector('canvas').getAttribute('aria-label').startsWith('Map of %d compute nodes')", nodes))
		t.Logf("the map of %d is there after %s", nodes, time.Since(begin).Round(time.Millisecond))
		shot(t, b, ctx, fmt.Sprintf("cns-%d", nodes))
		// It is all in the window, and a square can be chosen.
		if tall := textOf(t, b, ctx, "document.querySelector('canvas').clientHeight <= document.querySelector('canvas').clientWidth"); tall != "true" {
			t.Errorf("the map of %d is higher than it is wide", nodes)
		}
		textOf(t, b, ctx, "(document.querySelector('canvas').focus(), document.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', {key: 'End', bubbles: true})))")
		await(t, b, ctx, "main.querySelector('.card dl') !== null && main.querySelector('.card').innerText.includes('programmed')")
		shot(t, b, ctx, fmt.Sprintf("cns-%d-chosen", nodes))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if problems := b.Problems(); len(problems) > 0 {
		t.Errorf("the page complains: %q", problems)
	}
}
