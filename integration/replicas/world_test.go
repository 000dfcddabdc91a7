package replicas

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/agentsim"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/rig"
	"rutter/log"
)

// far is how long what the others send the far replica is on its way, in each direction:
// a round trip of 100 ms.
const far = 50 * time.Millisecond

// maxLag is --max-lag of the replicas.
const maxLag = 2 * time.Second

// world is three voters in zone west, and two replicas in zone east.
type world struct {
	*testing.T
	*bench.Cluster
	near, far *bench.Server
	way       *delay // to the far one's peer port
	fleet     *agentsim.Fleet
	stage     *agentsim.Scenario
}

// newWorld starts the servers, and a fleet of nodes in zone east that does not run yet.
func newWorld(t *testing.T, nodes int) *world {
	t.Helper()
	w := &world{T: t, Cluster: rig.Cluster(t, bench.Options{Program: program, Flags: []string{"--zone=west"}})}
	status, err := w.Client.StatusOf(t.Context(), w.Servers[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	var join []string
	for _, m := range status.Members {
		join = append(join, "--join", m.Address)
	}
	ports, err := bench.FreePorts(4)
	if err != nil {
		t.Fatal(err)
	}
	w.way = newDelay(t, fmt.Sprintf("127.0.0.1:%d", ports[3]), far)
	w.near = w.replica("near", ports[0], ports[1], join)
	w.far = w.replica("far", ports[2], ports[3], append(join, "--advertise", w.way.listener.Addr().String()))
	urls := append(w.Client.Servers(), w.near.URL, w.far.URL)
	every := time.Duration(max(1, nodes/400)) * time.Second // 400 nodes a second ask, and 133 come back
	w.fleet = agentsim.New(agentsim.Config{
		Agents: nodes, Dialer: w.Client, Servers: urls, Zone: func(int) string { return "east" }, Ask: w.Client.Zone,
		ZoneEvery: every, ZoneSettle: every, ZoneSpread: 3 * every,
	})
	w.stage = &agentsim.Scenario{Cluster: w.Cluster, Fleet: w.fleet}
	return w
}

// replica starts a replica, and waits until it is ready.
func (w *world) replica(id string, api, peer int, more []string) *bench.Server {
	w.Helper()
	listen, dir := net.JoinHostPort("127.0.0.1", fmt.Sprint(api)), w.TempDir()
	s := &bench.Server{ID: id, URL: "http://" + listen, Process: subprocess.Process{
		Name: id, Program: program, LogFile: filepath.Join(dir, "log"),
		Args: append([]string{
			"server", "--id", id, "--data", filepath.Join(dir, "data"), "--listen", listen, "--raft", fmt.Sprintf("127.0.0.1:%d", peer), "--svp", "off",
			"--zone", "east", "--max-lag", maxLag.String(), "--non-voter",
		}, more...),
	}}
	rig.Start(w, &s.Process)
	w.ready(s)
	return s
}

func (w *world) ready(s *bench.Server) {
	w.Helper()
	if err := w.AwaitReady(w.Context(), s); err != nil {
		w.Fatal(err)
	}
}

// kill ends servers as a power cut does.
func (w *world) kill(servers ...*bench.Server) {
	w.Helper()
	for _, s := range servers {
		if err := s.Stop(syscall.SIGKILL); err != nil {
			w.Fatal(err)
		}
	}
}

// start starts servers again, with what replaces some of their flags, and waits until they
// are ready.
func (w *world) start(servers ...*bench.Server) {
	w.Helper()
	for _, s := range servers {
		if err := s.Start(); err != nil {
			w.Fatal(err)
		}
	}
	for _, s := range servers {
		w.ready(s)
	}
}

// patience bounds a wait for something that takes seconds.
const patience = 2 * time.Minute

// await waits until a condition holds.
func (w *world) await(what string, condition func() bool) {
	w.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("waited in vain for %s; the nodes follow %v", what, w.fleet.Following())
		}
	}
}

// all waits until each node follows one of these servers, and has had a bookmark there.
func (w *world) all(nodes int, servers ...*bench.Server) {
	w.Helper()
	w.await(fmt.Sprintf("%d nodes at %s", nodes, servers[0].ID), func() bool {
		n, following := 0, w.fleet.Following()
		for _, s := range servers {
			n += following[s.URL]
		}
		return n == nodes && w.fleet.Counts().Live == int64(nodes)
	})
}

// writer writes changes one after another, and counts what was acknowledged.
type writer struct {
	mu      sync.Mutex // protects what follows
	last    log.Seq
	written int
	gap     time.Duration // longest between two acknowledgements
	err     error
}

// run writes until ctx ends.
func (r *writer) run(ctx context.Context, stage *agentsim.Scenario) {
	at := time.Now()
	for ctx.Err() == nil {
		trying, cancel := context.WithTimeout(ctx, patience)
		seq, err := stage.Write(trying)
		cancel()
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		r.mu.Lock()
		if err != nil {
			r.err = err
		} else {
			r.last, r.written, r.gap = max(r.last, seq), r.written+1, max(r.gap, now.Sub(at))
		}
		r.mu.Unlock()
		at = now
		time.Sleep(5 * time.Millisecond)
	}
}

// lap returns the longest gap since the last call, and how many were written in all.
func (r *writer) lap() (gap time.Duration, written int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	gap, r.gap = r.gap, 0
	return gap, r.written, r.err
}

// unknown returns the compute nodes that are not known to run.
func (w *world) unknown(ctx context.Context) (nodes []string, err error) {
	servers, err := w.Client.List(ctx, "/servers", nil)
	for _, s := range servers {
		if s["status"] != "running" {
			nodes = append(nodes, fmt.Sprint(s["uuid"]))
		}
	}
	return nodes, err
}

// watch notes the compute nodes that are unknown at any time, until ctx ends.
func (w *world) watch(ctx context.Context, noted map[string]bool) {
	for ctx.Err() == nil {
		if nodes, err := w.unknown(ctx); err == nil {
			for _, node := range nodes {
				noted[node] = true
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// barrier waits until each node has programmed all that was written, as it says itself.
func (w *world) barrier(nodes int) {
	w.Helper()
	seq, err := w.stage.Write(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	v, err := w.Client.Wait(w.Context(), client.Barrier{Seq: seq, Scopes: []log.Scope{log.AllScope()}, Timeout: patience})
	if err != nil || !v.Done || v.CNs != nodes {
		w.Fatalf("a barrier at %d: %+v, %v; want all of %d nodes", seq, v, err, nodes)
	}
}
