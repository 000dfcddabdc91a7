package zone

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// world is the servers as a node sees them.
type world struct {
	mu    sync.Mutex // protects what follows
	zones map[string]string
	down  map[string]bool
	asked map[string]int
}

func newWorld(zones map[string]string) *world {
	return &world{zones: zones, down: make(map[string]bool), asked: make(map[string]int)}
}

var errDown = errors.New("connection refused")

// ask is Config.Ask. A server that is down says nothing; one in unready says its zone.
func (w *world) ask(_ context.Context, server string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[server]++
	if w.down[server] {
		return "", errDown
	}
	return w.zones[server], nil
}

func (w *world) set(server string, down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down[server] = down
}

func (w *world) questions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for v := range maps.Values(w.asked) {
		n += v
	}
	return n
}

func chooser(t *testing.T, cfg Config) *Chooser {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"no servers": {}, "bad zone": {Servers: []string{"a"}, Zone: "A"}, "no way to ask": {Servers: []string{"a"}, Zone: "a"},
		"negative": {Servers: []string{"a"}, Spread: -1},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestOrder: which server is tried after which, as the node's attempts end. In the steps, a
// letter is the server that Next must return, and what follows it how that ended: "+" fed,
// and the connection ended later; "-" failed.
func TestOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		zone, servers string // servers: name=zone, the zone "?" if it does not answer
		steps         string
	}{
		"without a zone, in order":       {"", "a b c", "a- b- c- a- b+ b- c+"},
		"own zone first":                 {"east", "a=west b=east c=west", "b+ b- c- a- b+"},
		"two of the own zone":            {"east", "a=west b=east c=east", "b+ b- c+ c- a+ a- b-"},
		"unknown before foreign":         {"east", "a=west b=? c=west", "a- c- b- b- c- a+"},
		"old servers have no zone":       {"east", "a b=east c", "b- c- a+ a-"},
		"no server of the zone":          {"north", "a=west b=east", "a+ a- b+ b- a"},
		"no zone is known":               {"east", "a=? b=?", "a- b- a+ a- b+"},
		"the own one is down at first":   {"east", "a=east/down b=west c=west", "b+ b- c+ c- a"},
		"all fail, own zone first again": {"east", "a=west b=east c=west", "b- c- a- b- c- a- b+"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cfg := newWorld(make(map[string]string)), Config{Zone: c.zone}
			for _, s := range strings.Fields(c.servers) {
				server, zone, _ := strings.Cut(s, "=")
				zone, down := strings.CutSuffix(zone, "/down")
				cfg.Servers = append(cfg.Servers, server)
				w.zones[server], w.down[server] = zone, down || zone == "?"
			}
			cfg.Ask = w.ask
			choose := chooser(t, cfg)
			for i, step := range strings.Fields(c.steps) {
				if got := choose.Next(t.Context()); got != step[:1] {
					t.Fatalf("step %d of %q: %s", i, c.steps, got)
				}
				switch step[1:] {
				case "+":
					choose.Fed()
				case "-":
					choose.Failed()
				}
			}
			if c.zone == "" && w.questions() > 0 {
				t.Errorf("a node without a zone asked %d times", w.questions())
			}
		})
	}
}

// TestHome: a node goes back once a server of its zone was ready for Settle, and not while
// that server comes and goes.
func TestHome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{"a": "east", "b": "west"})
		w.set("a", true)
		c := chooser(t, Config{Servers: []string{"a", "b"}, Zone: "east", Ask: w.ask})
		if got := c.Next(t.Context()); got != "b" || c.Home() {
			t.Fatalf("it begins at %s", got)
		}
		c.Fed()
		back := make(chan string, 1)
		go func() { back <- c.Away(t.Context()) }()
		for range 20 { // up for less than Settle, down for as long
			time.Sleep(DefaultSettle / 2)
			w.set("a", false)
			time.Sleep(DefaultSettle * 2 / 3)
			w.set("a", true)
			time.Sleep(DefaultEvery * 3 / 2)
		}
		select {
		case s := <-back:
			t.Fatalf("it goes back to %s, which comes and goes", s)
		default:
		}
		w.set("a", false)
		up := time.Now()
		if s := <-back; s != "a" {
			t.Fatalf("back to %q", s)
		}
		if took := time.Since(up); took < DefaultSettle || took > DefaultSettle+DefaultSpread+3*DefaultEvery {
			t.Errorf("back after %v", took)
		}
		c.Refused("a")
		if c.Home() {
			t.Error("a server that refused is followed")
		}
		if s := c.Away(t.Context()); s != "a" {
			t.Fatalf("the second time back to %q", s)
		}
		c.Moved("a")
		if s := c.Away(t.Context()); !c.Home() || s != "" {
			t.Errorf("at home it is sent to %q", s)
		}
		before := w.questions()
		time.Sleep(time.Hour)
		if n := w.questions() - before; n > 0 {
			t.Errorf("a node at home asked %d times", n)
		}
	})
}

// TestNoStampede: 2,000 nodes come back spread over DefaultSpread: in no second more than
// three times the even rate. Between, they ask no server more often than DefaultEvery says.
func TestNoStampede(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const nodes = 2000
		w := newWorld(map[string]string{"a": "east", "b": "west"})
		w.set("a", true)
		var mu sync.Mutex
		perSecond := make(map[int]int)
		up := time.Now().Add(10 * time.Minute)
		var all sync.WaitGroup
		for range nodes {
			all.Go(func() {
				c := chooser(t, Config{Servers: []string{"a", "b"}, Zone: "east", Ask: w.ask})
				c.Next(t.Context())
				c.Fed()
				if s := c.Away(t.Context()); s != "a" {
					t.Errorf("back to %q", s)
				}
				mu.Lock()
				defer mu.Unlock()
				perSecond[int(time.Since(up)/time.Second)]++
			})
		}
		time.Sleep(10 * time.Minute)
		if rate := float64(w.questions()) / 600; rate > nodes/DefaultEvery.Seconds()*1.2 {
			t.Errorf("%.0f questions a second", rate)
		}
		w.set("a", false)
		all.Wait()
		most := slices.Max(slices.Collect(maps.Values(perSecond)))
		if even := nodes / int(DefaultSpread/time.Second); most > 3*even || len(perSecond) < 40 {
			t.Errorf("%d nodes in one second, in %d different ones; evenly they are %d", most, len(perSecond), even)
		}
	})
}

// TestShared: nodes that go back share the servers of their zone.
func TestShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(map[string]string{"a": "east", "b": "west", "c": "east"})
		w.set("a", true)
		w.set("c", true)
		var mu sync.Mutex
		at := make(map[string]int)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				c := chooser(t, Config{Servers: []string{"a", "b", "c"}, Zone: "east", Ask: w.ask})
				c.Next(t.Context())
				c.Fed()
				s := c.Away(t.Context())
				mu.Lock()
				defer mu.Unlock()
				at[s]++
			})
		}
		time.Sleep(time.Minute)
		w.set("a", false)
		w.set("c", false)
		all.Wait()
		if at["a"] < 20 || at["c"] < 20 || at["a"]+at["c"] != 100 { // 20 of 100 is as likely as six standard deviations
			t.Errorf("they go back to %v", at)
		}
	})
}

// TestAwayEnds: it ends with its context, at each of its pauses.
func TestAwayEnds(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{time.Second, DefaultSettle + 3*DefaultEvery/2 + 2*time.Second, time.Hour} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(map[string]string{"a": "east", "b": "west"})
				c := chooser(t, Config{Servers: []string{"a", "b"}, Zone: "east", Ask: w.ask, Spread: 2 * time.Hour, Jitter: func(d time.Duration) time.Duration { return d }})
				c.Next(t.Context())
				c.Failed()
				if got := c.Next(t.Context()); got != "b" {
					t.Fatalf("then %s", got)
				}
				c.Fed()
				ctx, cancel := context.WithTimeout(t.Context(), after)
				defer cancel()
				if s := c.Away(ctx); s != "" || ctx.Err() == nil {
					t.Errorf("it returns %q", s)
				}
			})
		})
	}
}

// nodes returns the choosers of many nodes that have the same list of servers.
func nodes(t *testing.T, n int, cfg Config) []*Chooser {
	t.Helper()
	all := make([]*Chooser, 0, n)
	for i := range n {
		cfg.Node = fmt.Sprintf("5595d88c-6e4d-4bda-b58e-%012x", i)
		all = append(all, chooser(t, cfg))
	}
	return all
}

// next counts the nodes by what Next returns.
func next(t *testing.T, all []*Chooser) map[string]int {
	t.Helper()
	at := make(map[string]int)
	for _, c := range all {
		at[c.Next(t.Context())]++
	}
	return at
}

// TestSpread: 1,000 nodes of the same list without zones are spread over its servers within
// a tenth of even, whatever the order of the list, and those of a server that is lost over
// the others within a fifth. They stay there when it comes back.
func TestSpread(t *testing.T) {
	t.Parallel()
	servers := []string{"https://10.0.0.1:7420", "https://10.0.0.2:7420", "https://10.0.0.3:7420"}
	all := nodes(t, 1000, Config{Servers: servers})
	first := next(t, all)
	for _, s := range servers {
		if n := first[s]; n < 300 || n > 366 {
			t.Errorf("%d of 1,000 nodes begin at %s", n, s)
		}
	}
	reversed := slices.Clone(servers)
	slices.Reverse(reversed)
	var lost []*Chooser
	for i, c := range nodes(t, 1000, Config{Servers: reversed}) {
		of := all[i].Next(t.Context())
		if s := c.Next(t.Context()); s != of {
			t.Fatalf("node %d begins at %s, and with the list reversed at %s", i, of, s)
		}
		c.Fed()
		if of == servers[0] {
			lost = append(lost, c)
		}
	}
	for _, c := range lost {
		c.Failed()
	}
	then := next(t, lost)
	for _, s := range servers[1:] {
		if n, even := then[s], len(lost)/2; n < even*4/5 || n > even*6/5 {
			t.Errorf("of %d nodes that lost their server %d go to %s", len(lost), n, s)
		}
	}
	for _, c := range lost { // all servers are there again
		c.Fed()
	}
	if now := next(t, lost); !maps.Equal(now, then) {
		t.Errorf("nodes move though nothing is wrong: %v, and before %v", now, then)
	}
	for i, c := range lost {
		if !c.Home() || c.Away(t.Context()) != "" {
			t.Fatalf("node %d without a zone is drawn elsewhere", i)
		}
	}
}

// TestSpreadInAZone: the nodes of a zone share its servers from the start on, and begin at
// no other.
func TestSpreadInAZone(t *testing.T) {
	t.Parallel()
	w := newWorld(map[string]string{"a": "east", "b": "west", "c": "east", "d": "west"})
	at := next(t, nodes(t, 1000, Config{Servers: []string{"a", "b", "c", "d"}, Zone: "west", Ask: w.ask}))
	if at["b"] < 450 || at["d"] < 450 || at["b"]+at["d"] != 1000 {
		t.Errorf("1,000 nodes of the zone begin at %v", at)
	}
}
