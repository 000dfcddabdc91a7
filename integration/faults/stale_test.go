package faults

import (
	"os"
	"sync"
	"testing"
	"time"
)

// wakes is how often a leader is paused, in a short and in a long run.
const shortWakes, longWakes = 3, 20

// etcd#20418: a leader that is paused while another is elected, and goes on in
// the belief that it leads, must not answer a consistent read with what it has.
// The reads wait in its sockets while it is paused, so that they are the first
// thing it sees.
func TestPausedLeaderServesNothingStale(t *testing.T) {
	needNetwork(t)
	rounds := shortWakes
	if os.Getenv("RUTTER_LONG") != "" {
		rounds = longWakes
	}
	c := newCluster(t)
	w := newWorkload(t, c)
	answered := 0
	for round := range rounds {
		old := c.awaitLeader()
		var reads sync.WaitGroup
		read := func(n int) {
			for i := range n {
				reads.Go(func() { w.get(old.host, &op{client: i, key: i % registers}, actRead, finalRead) })
			}
		}
		read(40) // in its hands when it stops
		if err := old.pause(); err != nil {
			t.Fatal(err)
		}
		other := w.apis[2*((old.host+1)%servers)]
		for key := range registers {
			o := op{client: 50, server: "another", key: key, value: string(rune('a'+round)) + "_" + string(rune('a'+key))}
			for o.outcome = unknown; o.outcome == unknown; {
				w.submit(other, &o)
				o.value += "+" // unknown: it may be there already
			}
		}
		before := w.h.count(actRead)
		read(80) // wait in its sockets
		time.Sleep(20 * time.Millisecond)
		if err := old.resume(); err != nil {
			t.Fatal(err)
		}
		reads.Wait()
		answered += w.h.count(actRead) - before
		c.waitReady()
	}
	if answered < 40*rounds {
		t.Errorf("%d of %d reads were answered", answered, 120*rounds)
	}
	checkRegisters(w.h.ops).report(t)
	checkLog(w.objects(), w.h.ops, readLogs(t, c)).report(t)
	t.Logf("%d reads by a leader that had been paused %d times", answered, rounds)
}
