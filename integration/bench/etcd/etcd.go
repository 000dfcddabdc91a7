package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/load"
	"rutter/cmd/rutter/subprocess"
)

// Cluster is three servers of the rival as processes on loopback.
type Cluster struct {
	Servers []*subprocess.Process
	URLs    []string // the leader's first
}

// Start starts them with etcd's defaults, but for a quota that some million
// events fit into, in a folder that is made, and waits until they have a leader.
func Start(ctx context.Context, program, dir string) (_ *Cluster, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ports, err := bench.FreePorts(6)
	if err != nil {
		return nil, err
	}
	e := new(Cluster)
	var members []string
	for i := range 3 {
		members = append(members, fmt.Sprintf("e%d=http://127.0.0.1:%d", i+1, ports[2*i+1]))
		e.URLs = append(e.URLs, fmt.Sprintf("http://127.0.0.1:%d", ports[2*i]))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Stop())
		}
	}()
	for i, client := range e.URLs {
		id, peer := fmt.Sprintf("e%d", i+1), fmt.Sprintf("http://127.0.0.1:%d", ports[2*i+1])
		p := &subprocess.Process{Name: id, Program: program, LogFile: filepath.Join(dir, id+".log"), Args: []string{
			"--name", id, "--data-dir", filepath.Join(dir, id), "--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(members, ","),
			"--quota-backend-bytes", "8589934592", "--log-level", "error",
		}}
		if err := p.Start(); err != nil {
			return nil, err
		}
		e.Servers = append(e.Servers, p)
	}
	return e, e.leaderFirst(ctx)
}

// leaderFirst waits for a leader and sorts its URL to the front.
func (e *Cluster) leaderFirst(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bench.ReadyWithin)
	defer cancel()
	for {
		for i, u := range e.URLs {
			if etcdLeads(ctx, u) {
				e.URLs[0], e.URLs[i] = e.URLs[i], e.URLs[0]
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("etcd has no leader; it said last:\n%s", e.Servers[0].Tail())
		case <-time.After(bench.LookAgain):
		}
	}
}

func etcdLeads(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v3/maintenance/status", strings.NewReader("{}"))
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	var status struct {
		Header struct {
			Member string `json:"member_id"`
		} `json:"header"`
		Leader string `json:"leader"`
	}
	return json.NewDecoder(response.Body).Decode(&status) == nil && status.Leader != "" && status.Leader == status.Header.Member
}

// Rest stops the servers where they are, so that they take no time from others,
// until Wake.
func (e *Cluster) Rest() error { return e.signal(syscall.SIGSTOP) }

// Wake ends a Rest, and waits until there is a leader.
func (e *Cluster) Wake(ctx context.Context) error {
	if err := e.signal(syscall.SIGCONT); err != nil {
		return err
	}
	return e.leaderFirst(ctx)
}

func (e *Cluster) signal(sig syscall.Signal) error {
	var errs []error
	for _, p := range e.Servers {
		errs = append(errs, p.Signal(sig))
	}
	return errors.Join(errs...)
}

// Measure runs the rival's client with these arguments, and returns its outcome.
func (e *Cluster) Measure(ctx context.Context, client string, args ...string) (load.Outcome, error) {
	var o load.Outcome
	cmd := exec.CommandContext(ctx, client, append([]string{"-endpoints", strings.Join(e.URLs, ",")}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return o, fmt.Errorf("%s %s: %w: %s", client, strings.Join(args, " "), err, stderr.String())
	}
	return o, json.Unmarshal(out, &o)
}

// Stop ends the processes; nothing of them is needed.
func (e *Cluster) Stop() error {
	var errs []error
	for _, p := range e.Servers {
		errs = append(errs, p.Stop(syscall.SIGKILL))
	}
	return errors.Join(errs...)
}
