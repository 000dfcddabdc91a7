package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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
	stopWithin  = 30 * time.Second // for a server to stop after SIGTERM
	// LookAgain is the pause between two checks of a condition.
	LookAgain = 20 * time.Millisecond
)

// Process is a program that runs, with its output in a file.
type Process struct {
	Name    string
	Program string
	Args    []string
	LogFile string

	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts the program, or starts it again.
func (p *Process) Start() error {
	file, err := os.OpenFile(p.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	cmd := exec.Command(p.Program, p.Args...)
	cmd.Stdout, cmd.Stderr = file, file
	if err := subprocess.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended = cmd, ended
	go func() {
		_ = cmd.Wait() // the caller that ended it knows why
		close(ended)
	}()
	return nil
}

// Signal sends a signal.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Stop sends sig and waits until the program has ended. If it does not end in time,
// Stop kills it.
func (p *Process) Stop(sig syscall.Signal) error {
	if p.cmd == nil {
		return nil
	}
	if err := p.Signal(sig); err != nil {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopWithin):
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
	return fmt.Errorf("%s did not end within %v of %v", p.Name, stopWithin, sig)
}

// Ended is closed when the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Runs reports whether the program has not ended.
func (p *Process) Runs() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// PID is the id of the running process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Tail returns the end of the program's output.
func (p *Process) Tail() string {
	b, err := os.ReadFile(p.LogFile)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// Options are the options of a cluster to start.
type Options struct {
	Program string   // the rutter binary
	Servers int      // 1 or 3
	Dir     string   // of the data; made if missing, left behind
	Flags   []string // more for each server, as in --raft-log=wal
	TLS     bool     // with authorities of its own; the client is an operator then
}

// Server is one of a Cluster.
type Server struct {
	Process
	ID, URL string
}

// Cluster is servers as processes on loopback.
type Cluster struct {
	Servers   []*Server
	Client    *client.Client
	Authority *Authority // of a cluster with TLS; nil: it has none
}

// FreePorts returns n ports of loopback without a listener.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
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
	scheme := "http://"
	if o.TLS {
		scheme = "https://"
		if c.Authority, err = openAuthority(filepath.Join(o.Dir, "pki")); err != nil {
			return nil, err
		}
	}
	for i := range o.Servers {
		id, listen := fmt.Sprintf("s%d", i+1), fmt.Sprintf("127.0.0.1:%d", ports[2*i])
		s := &Server{ID: id, URL: scheme + listen}
		s.Process = Process{
			Name: id, Program: o.Program, LogFile: filepath.Join(o.Dir, id+".log"),
			Args: append([]string{
				"server", "--id", id, "--data", filepath.Join(o.Dir, id), "--listen", listen,
				"--raft", fmt.Sprintf("127.0.0.1:%d", ports[2*i+1]), "--svp", "off", "--peers", strings.Join(peers, ","),
			}, o.Flags...),
		}
		if o.TLS {
			folder := filepath.Join(o.Dir, id+"-tls")
			if err := c.Authority.issueServer(folder, id); err != nil {
				return nil, err
			}
			s.Args = append(s.Args, "--tls-dir", folder)
		}
		if err := s.Start(); err != nil {
			return nil, err
		}
		c.Servers = append(c.Servers, s)
	}
	if err := c.connect(); err != nil {
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

func (c *Cluster) connect() (err error) {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, s.URL)
	}
	cfg := client.Config{Servers: urls}
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
