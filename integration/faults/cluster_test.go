package faults

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/subprocess"
)

const (
	apiPort  = 7420
	raftPort = 7421
	// patience is how long a whole cluster may take to be well again.
	patience = time.Minute
)

// cluster is three servers, each in its namespace.
type cluster struct {
	t       *testing.T
	net     *network
	servers [servers]*server
	api     *client.Client // of all
}

// server is one server's process. Only the nemesis and the test's own goroutine
// start and end it.
type server struct {
	host    int
	id, url string

	mu      sync.Mutex // protects process and fate
	process subprocess.Process
	fate    fate
}

// fate is what was done to a server's process.
type fate int

const (
	dead fate = iota
	alive
	paused
)

// newCluster starts three servers and waits until they are ready.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, net: newNetwork(t)}
	dir := t.TempDir()
	var peers, urls []string
	for i := range servers {
		peers = append(peers, fmt.Sprintf("s%d=%s", i+1, netip.AddrPortFrom(c.net.addr(i), raftPort)))
		urls = append(urls, "http://"+netip.AddrPortFrom(c.net.addr(i), apiPort).String())
	}
	for i := range servers {
		id := fmt.Sprintf("s%d", i+1)
		c.servers[i] = &server{
			host: i, id: id, url: urls[i],
			process: subprocess.Process{Name: id, Program: program, LogFile: filepath.Join(dir, id+".log"), Launch: func(cmd *exec.Cmd) error { return c.net.hosts[i].Do(cmd.Start) }, Args: []string{
				"server", "--insecure", "--id", id, "--data", filepath.Join(dir, id), "--svp", "off", "--peers", strings.Join(peers, ","),
				"--listen", strings.TrimPrefix(urls[i], "http://"), "--raft", netip.AddrPortFrom(c.net.addr(i), raftPort).String(),
			}},
		}
	}
	c.api = newClient(t, patientTime, urls...)
	t.Cleanup(func() {
		for _, s := range c.servers {
			if err := s.kill(); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			c.showLogs()
		}
	})
	for _, s := range c.servers {
		if err := s.start(); err != nil {
			t.Fatal(err)
		}
	}
	c.waitReady()
	return c
}

// patientTime is the limit of a client that goes from server to server until
// one answers, hastyTime of one that soon takes the outcome for unknown.
const patientTime, hastyTime = 4 * time.Second, 400 * time.Millisecond

// newClient returns a client of servers with a limit for each request.
func newClient(t *testing.T, limit time.Duration, urls ...string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Servers: urls, Timeout: limit, AttemptTimeout: min(limit, 700*time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (s *server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fate != dead {
		return nil
	}
	if err := s.process.Start(); err != nil {
		return err
	}
	s.fate = alive
	return nil
}

// kill ends the process as a crash does, and waits until it has ended.
func (s *server) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fate == dead {
		return nil
	}
	s.fate = dead
	return s.process.Stop(syscall.SIGKILL)
}

// pause stops the process where it stands; resume lets it go on as if no time
// had passed.
func (s *server) pause() error  { return s.stop(syscall.SIGSTOP, alive, paused) }
func (s *server) resume() error { return s.stop(syscall.SIGCONT, paused, alive) }

func (s *server) stop(signal syscall.Signal, from, to fate) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fate != from {
		return nil
	}
	s.fate = to
	return s.process.Signal(signal)
}

// died reports whether the process ended by itself, which none of what the
// nemesis does may cause.
func (s *server) died() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fate != dead && !s.process.Runs()
}

// waitReady waits until every server says that it is ready.
func (c *cluster) waitReady() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for _, s := range c.servers {
		for {
			status, err := c.api.StatusOf(ctx, s.url)
			if err == nil && status.Ready {
				break
			}
			if s.died() {
				c.t.Fatalf("%s ended by itself", s.id)
			}
			if ctx.Err() != nil {
				c.t.Fatalf("%s is not ready after %v: %+v, %v", s.id, patience, status, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// leader returns the server that most servers hold for the leader, or nil: of
// those that answer, the one that leads in the highest term.
func (c *cluster) leader(ctx context.Context) *server {
	ctx, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
	defer cancel()
	var mu sync.Mutex // protects leader and term
	var leader *server
	var term uint64
	var asked sync.WaitGroup
	for _, s := range c.servers {
		asked.Go(func() {
			status, err := c.api.StatusOf(ctx, s.url)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && status.State == "Leader" && status.Term > term {
				leader, term = s, status.Term
			}
		})
	}
	asked.Wait()
	return leader
}

// awaitLeader waits until there is one.
func (c *cluster) awaitLeader() *server {
	c.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if leader := c.leader(c.t.Context()); leader != nil {
			return leader
		}
	}
	c.t.Fatalf("nobody leads for %v", patience)
	return nil
}

func (c *cluster) showLogs() {
	for _, s := range c.servers {
		c.t.Logf("the end of %s's log:\n%s", s.id, s.process.LastLines(40))
	}
}
