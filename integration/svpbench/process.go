package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// asksOn is the core of what asks, if there are two. What answers chooses its cores, as
// it does where people run it: on one core, a server of ours would wait in another way.
const asksOn = "1"

// pinned returns a command that runs on some cores, as in "1" or "0-3", where taskset(1)
// is there and the machine has more than one.
func pinned(on, name string, args ...string) *exec.Cmd {
	if path, err := exec.LookPath("taskset"); err == nil && cores() > 1 {
		return exec.Command(path, append([]string{"-c", on, name}, args...)...)
	}
	return exec.Command(name, args...)
}

// onAllCores returns a command that chooses its cores, although this process may not.
func onAllCores(name string, args ...string) *exec.Cmd {
	return pinned(fmt.Sprintf("0-%d", cores()-1), name, args...)
}

// cores is the number of the machine's cores, however this process is pinned.
func cores() int {
	if n, err := strconv.Atoi(os.Getenv("SVPBENCH_CORES")); err == nil {
		return n
	}
	return runtime.NumCPU()
}

// child is a server of ours in a process of its own.
type child struct {
	hello
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startServer(self string, mappings int) (*child, error) {
	c := &child{cmd: onAllCores(self, "serve", strconv.Itoa(mappings))}
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if err := c.read(&c.hello); err != nil {
		return nil, errors.Join(fmt.Errorf("server of %d mappings: %w", mappings, err), c.stop())
	}
	return c, nil
}

func (c *child) read(into any) error {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, into)
}

// command sends a line and returns the server's counts after it.
func (c *child) command(text string) (n counts, err error) {
	if _, err = io.WriteString(c.in, text+"\n"); err != nil {
		return n, err
	}
	return n, c.read(&n)
}

func (c *child) stop() error {
	_ = c.in.Close() // its end is what it waits for
	return c.cmd.Wait()
}

// redis is Debian's redis-server on a port and in a folder of its own.
type redis struct {
	addr   string
	cmd    *exec.Cmd
	folder string
}

func startRedis(mappings int) (r *redis, err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w: install Debian's redis-server (scripts/bench-packages.txt), the rival of this bench", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	r = &redis{addr: net.JoinHostPort("127.0.0.1", port)}
	if r.folder, err = os.MkdirTemp("", "svpbench"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	r.cmd = onAllCores(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--dir", r.folder, "--daemonize", "no", "--loglevel", "warning")
	if err = r.cmd.Start(); err != nil {
		return nil, err
	}
	return r, r.fill(mappings)
}

func freePort() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return port, err
}

// redisStarts is how long Redis may take until it answers.
const redisStarts = 10 * time.Second

func (r *redis) fill(mappings int) error {
	var nc net.Conn
	var err error
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if nc, err = net.Dial("tcp", r.addr); err == nil || time.Since(began) > redisStarts {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	defer nc.Close()
	in := bufio.NewReader(nc)
	for i := range mappings {
		key := redisKey(i)
		fmt.Fprintf(nc, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, len(redisValue), redisValue)
		if line, err := in.ReadString('\n'); err != nil || line != "+OK\r\n" {
			return fmt.Errorf("redis: SET: %q, %w", line, err)
		}
	}
	return nil
}

func (r *redis) stop() error {
	if r.cmd != nil && r.cmd.Process != nil {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
		_ = r.cmd.Wait() // it ends by the signal
	}
	return os.RemoveAll(r.folder)
}
