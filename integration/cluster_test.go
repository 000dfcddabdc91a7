package integration

import (
	"context"
	"syscall"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/integration/rig"
	"rutter/log"
)

// cluster is three servers as processes, on loopback.
type cluster struct {
	*bench.Cluster
	t   testing.TB
	dir string
}

// startCluster starts the servers and waits until they are ready; they end
// with the test.
func startCluster(t testing.TB) *cluster {
	t.Helper()
	return startClusterAt(t, "127.0.0.1")
}

// startClusterAt is startCluster with the API at another address of this machine.
// {n} in a flag is the server's number, from 1.
func startClusterAt(t testing.TB, host string, flags ...string) *cluster {
	t.Helper()
	dir := t.TempDir()
	return &cluster{t: t, dir: dir, Cluster: rig.Cluster(t, bench.Options{
		Program: program, Dir: dir, Host: host, Flags: flags, Client: client.Config{AttemptTimeout: 2 * time.Second},
	})}
}

func (c *cluster) start(s *bench.Server) {
	c.t.Helper()
	if err := s.Start(); err != nil {
		c.t.Fatal(err)
	}
}

// signal sends sig to a server and waits until it has ended.
func (c *cluster) signal(s *bench.Server, sig syscall.Signal) {
	c.t.Helper()
	if err := s.Stop(sig); err != nil {
		c.t.Error(err)
	}
}

func (c *cluster) waitReady(s *bench.Server) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	if err := c.AwaitReady(ctx, s); err != nil {
		c.t.Fatal(err)
	}
}

// level waits until every server has what has been acknowledged, and returns the
// head: one that follows may be a change behind its leader for a moment.
func (c *cluster) level() log.Seq {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		heads := make(map[log.Seq]bool)
		for _, s := range c.Servers {
			status, err := c.Client.StatusOf(c.t.Context(), s.URL)
			if err != nil {
				c.t.Fatal(err)
			}
			heads[status.Head.Seq] = true
		}
		if len(heads) == 1 {
			for head := range heads {
				return head
			}
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the servers' heads differ: %v", heads)
		}
	}
}

// leader returns the server that leads. There may be none for a moment.
func (c *cluster) leader() *bench.Server {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		status, err := c.Client.Status(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		for _, s := range c.Servers {
			if s.ID == status.LeaderID {
				return s
			}
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the status names %q as the leader", status.LeaderID)
		}
	}
}

// tag is a change that creates a NIC tag: the smallest there is.
func tag(name string) *log.Change {
	return &log.Change{ID: client.NewChangeID(), Ops: []log.Op{{
		Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: name},
	}}}
}
