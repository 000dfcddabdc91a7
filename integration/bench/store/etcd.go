package main

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

	"rutter/integration/bench"
	"rutter/integration/bench/load"
)

// etcd is three servers of the rival as processes on loopback.
type etcd struct {
	suite   *suite
	servers []*bench.Process
	urls    []string
}

// startEtcd starts them with etcd's defaults, but for a quota that 1 million
// events fit into, and waits until they have a leader.
func (s *suite) startEtcd(ctx context.Context, name string) (_ *etcd, err error) {
	dir := filepath.Join(s.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ports, err := bench.FreePorts(6)
	if err != nil {
		return nil, err
	}
	e := &etcd{suite: s}
	var members []string
	for i := range 3 {
		members = append(members, fmt.Sprintf("e%d=http://127.0.0.1:%d", i+1, ports[2*i+1]))
		e.urls = append(e.urls, fmt.Sprintf("http://127.0.0.1:%d", ports[2*i]))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.stop())
		}
	}()
	for i, client := range e.urls {
		id, peer := fmt.Sprintf("e%d", i+1), fmt.Sprintf("http://127.0.0.1:%d", ports[2*i+1])
		p := &bench.Process{
			Name: id, Program: s.etcd, LogFile: filepath.Join(dir, id+".log"),
			Args: []string{
				"--name", id, "--data-dir", filepath.Join(dir, id), "--listen-client-urls", client, "--advertise-client-urls", client,
				"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(members, ","),
				"--quota-backend-bytes", "8589934592", "--log-level", "error",
			},
		}
		if err := p.Start(); err != nil {
			return nil, err
		}
		e.servers = append(e.servers, p)
	}
	return e, e.leaderFirst(ctx)
}

// leaderFirst sorts the leader's URL to the front.
func (e *etcd) leaderFirst(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		for i, u := range e.urls {
			if leads(ctx, u) {
				e.urls[0], e.urls[i] = e.urls[i], e.urls[0]
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("etcd has no leader; it said last:\n%s", e.servers[0].Tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func leads(ctx context.Context, url string) bool {
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

// measure has the rival's client do something, and returns what came of it.
func (e *etcd) measure(ctx context.Context, args ...string) (load.Outcome, error) {
	var o load.Outcome
	cmd := exec.CommandContext(ctx, e.suite.rival, append([]string{"-endpoints", strings.Join(e.urls, ",")}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return o, fmt.Errorf("%s %s: %w: %s", e.suite.rival, strings.Join(args, " "), err, stderr.String())
	}
	return o, json.Unmarshal(out, &o)
}

func (e *etcd) stop() error {
	var errs []error
	for _, p := range e.servers {
		errs = append(errs, p.Stop(syscall.SIGKILL)) // nothing of it is needed
	}
	return errors.Join(errs...)
}
