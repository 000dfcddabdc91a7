package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/bench/peers"
)

// Cluster is three servers of the rival as processes on loopback.
type Cluster struct {
	peers.Servers // the leader's URL first
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
	e := &Cluster{Servers: peers.Servers{Kind: "etcd"}}
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
		if err := e.Start(p); err != nil {
			return nil, err
		}
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
			return fmt.Errorf("etcd has no leader; it said last:\n%s", e.Processes[0].Tail())
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

// Wake ends a Rest, and waits until there is a leader.
func (e *Cluster) Wake(ctx context.Context) error {
	if err := e.Continue(); err != nil {
		return err
	}
	return e.leaderFirst(ctx)
}
