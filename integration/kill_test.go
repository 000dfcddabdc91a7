package integration

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/log"
)

// The leader is killed again and again while writers write: every change that
// was acknowledged is in the log of every server once, and all three logs are
// the same bytes.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex // protects acked
	acked := make(map[log.UUID]log.Seq)
	var writers sync.WaitGroup
	failed := make(chan error, 4)
	for w := range 4 {
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				result, err := c.Client.Submit(ctx, tag(fmt.Sprintf("w%d_%d", w, n)))
				if err != nil {
					if ctx.Err() == nil {
						failed <- fmt.Errorf("writer %d, change %d: %w", w, n, err)
					}
					return
				}
				mu.Lock()
				acked[result.ChangeID] = result.Last
				mu.Unlock()
			}
		})
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acked)
	}
	for range 3 {
		before := count()
		waitFor(t, "some writes", func() bool { return count() > before+20 })
		leader := c.leader()
		c.signal(leader, syscall.SIGKILL)
		killed, at := time.Now(), count()
		waitFor(t, "writes after the kill", func() bool { return count() > at+4 })
		t.Logf("%s killed after %d acknowledged writes; writes again after %v", leader.ID, at, time.Since(killed).Round(time.Millisecond))
		c.start(leader)
		c.waitReady(leader)
	}
	stop()
	writers.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	c.checkLogs(acked)
}

// checkLogs reads each server's whole log, and compares them up to where the
// shortest ends: a write that no client waited for may still arrive.
func (c *cluster) checkLogs(acked map[log.UUID]log.Seq) {
	c.t.Helper()
	var logs [][]log.ChainPrefix
	for _, s := range c.Servers {
		logs = append(logs, c.checkLog(s, acked))
	}
	shortest := slices.MinFunc(logs, func(a, b []log.ChainPrefix) int { return len(a) - len(b) })
	for i, chains := range logs {
		if at := len(shortest) - 1; chains[at] != shortest[at] {
			c.t.Errorf("%s: the chain at seq %d is %s, and %s elsewhere", c.Servers[i].ID, at+1, chains[at], shortest[at])
		}
	}
}

// checkLog reads a server's whole log, and returns the chain at each seq.
func (c *cluster) checkLog(s *bench.Server, acked map[log.UUID]log.Seq) (chains []log.ChainPrefix) {
	c.t.Helper()
	one, err := client.New(client.Config{Servers: []string{s.URL}})
	if err != nil {
		c.t.Fatal(err)
	}
	defer one.Close()
	seen := make(map[log.UUID]log.Seq)
	for line, err := range one.Log(c.t.Context(), client.LogQuery{Query: url.Values{"consistent": {"1"}}}) {
		if err != nil {
			c.t.Fatalf("%s: %v", s.ID, err)
		}
		chains = append(chains, line.Chain)
		if line.Seq != log.Seq(len(chains)) {
			c.t.Fatalf("%s: entry %d has seq %d", s.ID, len(chains), line.Seq)
		}
		if seen[line.Event.ChangeID] != 0 {
			c.t.Errorf("%s: change %s is there twice, at %d and %d", s.ID, line.Event.ChangeID, seen[line.Event.ChangeID], line.Seq)
		}
		seen[line.Event.ChangeID] = line.Seq
	}
	for id, seq := range acked {
		if seen[id] != seq {
			c.t.Errorf("%s: change %s was acknowledged at seq %d, and is at %d", s.ID, id, seq, seen[id])
		}
	}
	c.t.Logf("%s: %d entries", s.ID, len(chains))
	return chains
}

// A change that is sent again, to any server, gives the first one's result and
// is not applied twice.
func TestRetryOnAnotherServer(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	change := tag("once")
	first, err := c.Client.Submit(t.Context(), change)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Servers {
		one, err := client.New(client.Config{Servers: []string{s.URL}})
		if err != nil {
			t.Fatal(err)
		}
		again, err := one.Submit(t.Context(), change)
		one.Close()
		if err != nil || again.First != first.First || again.Last != first.Last {
			t.Errorf("%s: got %+v, %v; want %+v", s.ID, again, err, first)
		}
	}
	var refusal *log.Refusal
	if _, err := c.Client.Submit(t.Context(), tag("once")); !errors.As(err, &refusal) {
		t.Errorf("a second tag of one name: got %v, want a refusal", err)
	}
	for _, s := range c.Servers {
		if chains := c.checkLog(s, map[log.UUID]log.Seq{first.ChangeID: first.Last}); len(chains) != int(first.Last) {
			t.Errorf("%s: %d entries, want %d", s.ID, len(chains), first.Last)
		}
	}
}

// waitFor waits up to 30 s for a condition.
func waitFor(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within 30 s", what)
		}
	}
}
