package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/load"
	"rutter/cmd/rutter/subprocess"
	"rutter/log"
)

// Sizes of the part greedy.
const (
	greedyReaders = 10
	greedyTenants = 8 // of them; the others see all, and ask for the past
	greedyEntries = 100_000
	greedyNodes   = 100 // that the VMs of the log are on
	greedyWriters = 64
	greedyRound   = 5 * time.Second
	// greedyGap lets the accounts of the greedy fill again, so that each round
	// begins with what they hold at most.
	greedyGap = 2 * time.Second
)

// greedy writes as operators do, alone and beside ten greedy readers and one mad
// compute node, in turn. The ratio is of the medians of the p99 of writes.
//
// In both, a process for each processor takes what time is left over (nice 19), so
// that the processors are never idle: what the greedy add is what is measured, and
// not that a machine with something to do is slower than one without.
func (s *suite) greedy(ctx context.Context) (err error) {
	c, err := s.start(ctx, "greedy", true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := fillTenants(ctx, c); err != nil {
		return err
	}
	stop, err := burners()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	p99, mad := make(map[bool][]float64), client.NewChangeID()
	for round := range s.rounds {
		for _, beset := range []bool{round%2 == 1, round%2 == 0} {
			w, err := bench.NewWorkload(eventSize)
			if err != nil {
				return err
			}
			var g greed
			eating, cancel := context.WithCancel(ctx)
			if beset {
				if err := g.start(eating, c, mad); err != nil {
					cancel()
					return err
				}
			}
			o, err := bench.Append(ctx, c, w, bench.Connections, false, load.Plan{Writers: greedyWriters, Warm: time.Second, Duration: greedyRound})
			cancel()
			g.running.Wait()
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "greedy %v: writes %.0f/s, p50 %.2f ms, p99 %.2f ms, %d errors; %d reads answered, %d refused, %.1f MB; mad node %d changes taken, %d refused\n",
				beset, o.PerSecond, o.P50, o.P99, o.Errors, g.answered.Load(), g.refused.Load(), float64(g.bytes.Load())/1e6, g.written.Load(), g.denied.Load())
			p99[beset] = append(p99[beset], o.P99)
			select {
			case <-time.After(greedyGap):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	s.figures.Set("greedy_p99_ratio", middle(p99[true])/middle(p99[false]))
	return nil
}

func tenant(i int) log.UUID { return log.UUID{0: 0x7e, 15: byte(i)} }

// fillTenants writes a log of VMs of the tenants, and limits the readers to them.
func fillTenants(ctx context.Context, c *bench.Cluster) error {
	for done := 0; done < greedyEntries; {
		change := &log.Change{ID: client.NewChangeID()}
		for range log.MaxOps {
			change.Ops = append(change.Ops, log.Op{
				Action: log.Create, Kind: log.KindVM, Set: []string{"alias", "owner_uuid", "server_uuid", "state", "uuid"},
				Object: &log.VM{UUID: client.NewChangeID(), Alias: "greedy", OwnerUUID: tenant(done % greedyTenants), ServerUUID: log.UUID{15: byte(done % greedyNodes)}, State: "running"},
			})
			done++
		}
		result, err := c.Client.Submit(ctx, change)
		if err == nil && result.Refusal != nil {
			err = result.Refusal
		}
		if err != nil {
			return err
		}
	}
	for i := range greedyTenants {
		change := &log.Change{ID: client.NewChangeID(), Ops: []log.Op{{
			Action: log.Create, Kind: log.KindGrant, Set: []string{"owner_uuids", "subject"},
			Object: &log.Grant{Subject: fmt.Sprintf("reader:greedy%d", i), OwnerUUIDs: []log.UUID{tenant(i)}},
		}}}
		result, err := c.Client.Submit(ctx, change)
		if err == nil && result.Refusal != nil {
			err = result.Refusal
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// greed is what the greedy did.
type greed struct {
	running                            sync.WaitGroup
	answered, refused, written, denied atomic.Uint64
	bytes                              atomic.Int64
}

// start makes the readers read and the compute node write until ctx ends, each on
// the server of its turn, as fast as they are answered.
func (g *greed) start(ctx context.Context, c *bench.Cluster, cn log.UUID) error {
	paths := []string{"/log", "/log?kind=vm&action=update", "/log?actor=nobody", "/log?last=1000"}
	past := []string{"/log/state?at=50000&kind=network", "/log/diff?from=20000&to=90000&cn=00000000-0000-0000-0000-000000000009", "/log?vnet=77", "/nics?limit=1000"}
	for i := range greedyReaders {
		identity, asked := matrix.Identity{Role: matrix.Reader, Name: fmt.Sprintf("greedy%d", i)}, paths
		if i >= greedyTenants {
			asked = past
		}
		who, err := visitor(c, identity)
		if err != nil {
			return err
		}
		g.running.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				g.read(ctx, who, c.Servers[n%len(c.Servers)].URL+asked[n%len(asked)])
			}
		})
	}
	mad, err := visitor(c, matrix.Identity{Role: matrix.CN, UUID: cn})
	if err != nil {
		return err
	}
	bodies := make([][]byte, madBodies)
	for i := range bodies {
		if bodies[i], err = madBody(cn); err != nil {
			return err
		}
	}
	for i := range len(c.Servers) {
		g.running.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				g.write(ctx, mad, c.Servers[i].URL, bodies[n%len(bodies)])
			}
		})
	}
	return nil
}

// visitor is a client with a certificate of its own.
func visitor(c *bench.Cluster, who matrix.Identity) (*http.Client, error) {
	certificate, err := c.Authority.Certificate(who)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate},
	}}}, nil
}

func (g *greed) read(ctx context.Context, who *http.Client, url string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return
	}
	answer, err := who.Do(r)
	if err != nil {
		return // the round has ended
	}
	defer answer.Body.Close()
	n, _ := io.Copy(io.Discard, answer.Body)
	g.bytes.Add(n)
	if answer.StatusCode == http.StatusOK {
		g.answered.Add(1)
	} else {
		g.refused.Add(1)
	}
}

// madBodies are made beforehand, so that their making takes no time of the round;
// the servers take fewer of them in one.
const madBodies = 64

// madBody is a change of as many operations as there may be, which makes VMs.
func madBody(cn log.UUID) ([]byte, error) {
	ops := make([]map[string]any, log.MaxOps)
	for i := range ops {
		ops[i] = map[string]any{"action": "create", "kind": "vm", "object": map[string]any{
			"owner_uuid": cn.String(), "server_uuid": cn.String(), "state": "running", "brand": "lx", "uuid": client.NewChangeID().String(),
		}}
	}
	return json.Marshal(map[string]any{"ops": ops})
}

func (g *greed) write(ctx context.Context, who *http.Client, url string, body []byte) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/changes", bytes.NewReader(body))
	if err != nil {
		return
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := who.Do(r)
	if err != nil {
		return // the round has ended
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	if answer.StatusCode < 300 {
		g.written.Add(1)
	} else {
		g.denied.Add(1)
	}
}

// burnArgument makes this program take idle time until its input ends.
const burnArgument = "-burn"

// burners start a process for each processor that takes its idle time only.
func burners() (stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var ends []func() error
	stop = func() (err error) {
		for _, end := range ends {
			err = errors.Join(err, end())
		}
		return err
	}
	for range runtime.NumCPU() {
		cmd := exec.Command(self, burnArgument)
		in, err := cmd.StdinPipe()
		if err == nil {
			err = subprocess.Start(cmd)
		}
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		ends = append(ends, func() error { return errors.Join(in.Close(), cmd.Wait()) })
	}
	return stop, nil
}

// burn is what such a process does.
func burn() error {
	runtime.LockOSThread() // the priority is the thread's
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19); err != nil {
		return err
	}
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	for !ended.Load() {
	}
	return nil
}
