package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/client"
	"rutter/cmd/rutter/subprocess"
)

// Times of a cluster of processes.
const (
	// ReadyWithin bounds the time until a server is ready, with a large log to read.
	ReadyWithin = 2 * time.Minute
	// LookAgain is the pause between two looks while waiting.
	LookAgain = 20 * time.Millisecond
)

// Options says what cluster to start.
type Options struct {
	Program string        // the rutter binary
	Servers int           // 1 or 3
	Dir     string        // of the data; made if missing, left behind
	Flags   []string      // more for each server, as in --raft-log=wal; {n} in one is its number, from 1
	TLS     bool          // with authorities of its own; the client is an operator then
	Host    string        // where the API listens; "": 127.0.0.1
	Client  client.Config // how Client asks; its servers and TLS are the cluster's
}

// Server is one of a Cluster.
type Server struct {
	subprocess.Process
	ID, URL string
}

// Cluster is servers as processes on loopback.
type Cluster struct {
	Servers   []*Server
	Client    *client.Client
	Authority *Authority // of a cluster with TLS; nil: it has none
}

// keptPorts returns the ports that a cluster in dir had before, which its members
// know each other by, or free ones.
func keptPorts(dir string, n int) (ports []int, err error) {
	name := filepath.Join(dir, "ports.json")
	if b, err := os.ReadFile(name); err == nil && json.Unmarshal(b, &ports) == nil && len(ports) == n {
		return ports, nil
	}
	if ports, err = FreePorts(n); err != nil {
		return nil, err
	}
	b, err := json.Marshal(ports)
	if err != nil {
		return nil, err
	}
	return ports, os.WriteFile(name, b, 0o600)
}

// StartCluster starts the servers and waits until they are ready.
func StartCluster(ctx context.Context, o Options) (_ *Cluster, err error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	ports, err := keptPorts(o.Dir, 2*o.Servers)
	if err != nil {
		return nil, err
	}
	var peers []string
	for i := range o.Servers {
		peers = append(peers, fmt.Sprintf("s%d=127.0.0.1:%d", i+1, ports[2*i+1]))
	}
	c := new(Cluster)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	scheme, host := "http://", cmp.Or(o.Host, "127.0.0.1")
	if o.TLS {
		scheme = "https://"
		if c.Authority, err = openAuthority(filepath.Join(o.Dir, "pki")); err != nil {
			return nil, err
		}
	}
	for i := range o.Servers {
		id, listen := fmt.Sprintf("s%d", i+1), fmt.Sprintf("%s:%d", host, ports[2*i])
		s := &Server{ID: id, URL: scheme + listen}
		s.Process = subprocess.Process{
			Name: id, Program: o.Program, LogFile: filepath.Join(o.Dir, id+".log"),
			Args: append([]string{
				"server", "--id", id, "--data", filepath.Join(o.Dir, id), "--listen", listen,
				"--raft", fmt.Sprintf("127.0.0.1:%d", ports[2*i+1]), "--svp", "off", "--peers", strings.Join(peers, ","),
			}, numbered(i+1, o.Flags)...),
		}
		if o.TLS {
			folder := filepath.Join(o.Dir, id+"-tls")
			if err := c.Authority.issueServer(folder, id, host); err != nil {
				return nil, err
			}
			s.Args = append(s.Args, "--tls-dir", folder)
		}
		if err := s.Start(); err != nil {
			return nil, err
		}
		c.Servers = append(c.Servers, s)
	}
	if err := c.connect(o.Client); err != nil {
		return nil, err
	}
	for _, s := range c.Servers {
		if err := c.AwaitReady(ctx, s); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Connect returns a Cluster of servers that run already. Such ones cannot be
// killed or stopped.
func Connect(cfg client.Config) (c *Cluster, err error) {
	c = new(Cluster)
	for _, u := range cfg.Servers {
		c.Servers = append(c.Servers, &Server{URL: u})
	}
	c.Client, err = client.New(cfg)
	return c, err
}

func numbered(n int, flags []string) (all []string) {
	for _, flag := range flags {
		all = append(all, strings.ReplaceAll(flag, "{n}", strconv.Itoa(n)))
	}
	return all
}

func (c *Cluster) connect(cfg client.Config) (err error) {
	for _, s := range c.Servers {
		cfg.Servers = append(cfg.Servers, s.URL)
	}
	if c.Authority != nil {
		if cfg.DialTLS, err = c.Authority.Dialer(matrix.Identity{Role: matrix.Operator, Name: "bench"}); err != nil {
			return err
		}
	}
	c.Client, err = client.New(cfg)
	return err
}

// AwaitReady waits until a server says that it is ready.
func (c *Cluster) AwaitReady(ctx context.Context, s *Server) error {
	ctx, cancel := context.WithTimeout(ctx, ReadyWithin)
	defer cancel()
	for {
		status, err := c.Client.StatusOf(ctx, s.URL)
		if err == nil && status.Ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready (%s, %w); it said last:\n%s", s.ID, status.NotReady, errors.Join(err, ctx.Err()), s.Tail())
		case <-time.After(LookAgain):
		}
	}
}

// Leader returns the server that says that it leads.
func (c *Cluster) Leader(ctx context.Context) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, ReadyWithin)
	defer cancel()
	for {
		for _, s := range c.Servers {
			status, err := c.Client.StatusOf(ctx, s.URL)
			if err == nil && status.LeaderID != "" && status.LeaderID == status.ID {
				return s, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no server leads: %w", ctx.Err())
		case <-time.After(LookAgain):
		}
	}
}

// Rest stops the servers where they are, so that they take no time from others,
// until Wake.
func (c *Cluster) Rest() error { return c.signal(syscall.SIGSTOP) }

// Wake ends a Rest, and waits until there is a leader.
func (c *Cluster) Wake(ctx context.Context) error {
	if err := c.signal(syscall.SIGCONT); err != nil {
		return err
	}
	for _, s := range c.Servers {
		if err := c.AwaitReady(ctx, s); err != nil {
			return err
		}
	}
	_, err := c.Leader(ctx)
	return err
}

func (c *Cluster) signal(sig syscall.Signal) error {
	var errs []error
	for _, s := range c.Servers {
		errs = append(errs, s.Signal(sig))
	}
	return errors.Join(errs...)
}

// Stop ends the processes that this cluster started.
func (c *Cluster) Stop() error {
	if c == nil {
		return nil
	}
	if c.Client != nil {
		c.Client.Close()
	}
	var errs []error
	for _, s := range c.Servers {
		if s.Program != "" {
			errs = append(errs, s.Signal(syscall.SIGCONT)) // it may rest
			errs = append(errs, s.Signal(syscall.SIGTERM)) // together: else leadership wanders
		}
	}
	for _, s := range c.Servers {
		if s.Program != "" {
			errs = append(errs, s.Stop(syscall.SIGTERM))
		}
	}
	return errors.Join(errs...)
}
