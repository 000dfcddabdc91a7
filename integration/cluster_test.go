package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/subprocess"
	"rutter/log"
)

// cluster is three servers as processes, on loopback.
type cluster struct {
	t       testing.TB
	dir     string
	servers []*serverProcess
	api     *client.Client
}

type serverProcess struct {
	id, url string
	args    []string
	logFile string
	cmd     *exec.Cmd
	ended   chan struct{}
}

// freePorts returns n ports of loopback that nobody listens on now.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
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
	c := &cluster{t: t, dir: t.TempDir()}
	ports := freePorts(t, 6)
	var peers, urls []string
	for i := range 3 {
		peers = append(peers, fmt.Sprintf("s%d=127.0.0.1:%d", i+1, ports[2*i+1]))
	}
	for i := range 3 {
		id := fmt.Sprintf("s%d", i+1)
		listen := fmt.Sprintf("%s:%d", host, ports[2*i])
		s := &serverProcess{
			id: id, url: "http://" + listen, logFile: filepath.Join(c.dir, id+".log"),
			args: append([]string{
				"server", "--id", id, "--data", filepath.Join(c.dir, id), "--listen", listen,
				"--raft", fmt.Sprintf("127.0.0.1:%d", ports[2*i+1]), "--svp", "off", "--peers", strings.Join(peers, ","),
			}, numbered(i+1, flags)...),
		}
		c.servers = append(c.servers, s)
		urls = append(urls, s.url)
		c.start(s)
	}
	var err error
	if c.api, err = client.New(client.Config{Servers: urls, AttemptTimeout: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.api.Close()
		for _, s := range c.servers {
			c.signal(s, syscall.SIGTERM)
		}
		if t.Failed() {
			c.showLogs()
		}
	})
	for _, s := range c.servers {
		c.waitReady(s)
	}
	return c
}

func numbered(n int, flags []string) []string {
	numbered := make([]string, len(flags))
	for i, flag := range flags {
		numbered[i] = strings.ReplaceAll(flag, "{n}", fmt.Sprint(n))
	}
	return numbered
}

func (c *cluster) start(s *serverProcess) {
	c.t.Helper()
	file, err := os.OpenFile(s.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command(program, s.args...)
	cmd.Stdout, cmd.Stderr = file, file
	if err := subprocess.Start(cmd); err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan struct{})
	s.cmd, s.ended = cmd, ended
	go func() {
		_ = cmd.Wait() // the tests say how it should end
		close(ended)
	}()
}

// signal sends sig to a server and waits until it has ended.
func (c *cluster) signal(s *serverProcess, sig syscall.Signal) {
	c.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.t.Fatal(err)
	}
	select {
	case <-s.ended:
	case <-time.After(30 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.ended
		c.t.Errorf("%s did not end within 30 s of %v", s.id, sig)
	}
}

func (c *cluster) waitReady(s *serverProcess) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	for {
		status, err := c.statusOf(ctx, s)
		if err == nil && status.Ready {
			return
		}
		select {
		case <-ctx.Done():
			c.showLogs()
			c.t.Fatalf("%s is not ready: %+v, %v", s.id, status, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *cluster) statusOf(ctx context.Context, s *serverProcess) (client.Status, error) {
	one, err := client.New(client.Config{Servers: []string{s.url}})
	if err != nil {
		return client.Status{}, err
	}
	defer one.Close()
	return one.StatusOf(ctx, s.url)
}

// level waits until every server has what has been acknowledged, and returns the
// head: one that follows may be a change behind its leader for a moment.
func (c *cluster) level() log.Seq {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		heads := make(map[log.Seq]bool)
		for _, s := range c.servers {
			status, err := c.statusOf(c.t.Context(), s)
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
			c.showLogs()
			c.t.Fatalf("the servers' heads differ: %v", heads)
		}
	}
}

// leader returns the server that leads.
func (c *cluster) leader() *serverProcess {
	c.t.Helper()
	status, err := c.api.Status(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, s := range c.servers {
		if s.id == status.LeaderID {
			return s
		}
	}
	c.t.Fatalf("the status names %q as the leader", status.LeaderID)
	return nil
}

func (c *cluster) showLogs() {
	for _, s := range c.servers {
		b, err := os.ReadFile(s.logFile)
		if err != nil {
			b = []byte(err.Error())
		}
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		c.t.Logf("the end of %s's log:\n%s", s.id, strings.Join(lines[max(0, len(lines)-25):], "\n"))
	}
}

// tag is a change that creates a NIC tag: the smallest there is.
func tag(name string) *log.Change {
	return &log.Change{ID: client.NewChangeID(), Ops: []log.Op{{
		Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: name},
	}}}
}
