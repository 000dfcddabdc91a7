// Package nats runs NATS JetStream, against which the benches hold a cluster.
package nats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/bench/peers"
)

// Cluster is three servers with JetStream as processes on loopback. A message is
// acknowledged when a quorum has it, and each server syncs what it writes before it says
// that it has it (sync_interval: always): what acknowledged means here, too.
type Cluster struct {
	peers.Servers
}

// settings are the file of one server: name, client port, folder, cluster port, routes.
const settings = `server_name: %s
listen: 127.0.0.1:%d
jetstream { store_dir: %q, sync_interval: always, max_file_store: 16GB }
cluster { name: bench, listen: 127.0.0.1:%d, routes: [%s] }
`

// Start starts them in a folder that is made. The client waits for their leader.
func Start(program, dir string) (_ *Cluster, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ports, err := bench.FreePorts(6)
	if err != nil {
		return nil, err
	}
	var routes []string
	for _, port := range ports[3:] {
		routes = append(routes, fmt.Sprintf("nats-route://127.0.0.1:%d", port))
	}
	n := &Cluster{Servers: peers.Servers{Kind: "nats"}}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Stop())
		}
	}()
	for i := range 3 {
		id := fmt.Sprintf("n%d", i+1)
		file := filepath.Join(dir, id+".conf")
		text := fmt.Sprintf(settings, id, ports[i], filepath.Join(dir, id), ports[3+i], strings.Join(routes, ", "))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
		p := &subprocess.Process{Name: id, Program: program, LogFile: filepath.Join(dir, id+".log"), Args: []string{"-c", file}}
		if err := n.Start(p); err != nil {
			return nil, err
		}
		n.URLs = append(n.URLs, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
	}
	return n, nil
}

// Wake ends a Rest. The client waits for their leader.
func (n *Cluster) Wake(context.Context) error { return n.Continue() }
