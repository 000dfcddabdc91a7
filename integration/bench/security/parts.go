package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/agentsim"
	"rutter/cmd/rutter/bench/load"
	"rutter/log"
)

// Sizes of what is measured.
const (
	appendWriters = 512
	appendRound   = 4 * time.Second
	fanAgents     = 1000
	fanRate       = 1000
	fanTime       = 8 * time.Second
	strangerRate  = 1000 // handshakes a second
	strangerNets  = 200  // addresses that they come from: each may fail 20 times a second
	crowdWriters  = 64
	crowdRound    = 5 * time.Second
	eventSize     = 400
)

// middle is the median.
func middle(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// append writes to a cluster without TLS and to one with it, in turn; the one
// whose turn it is not rests. The ratio is of the medians of what was written.
func (s *suite) append(ctx context.Context) (err error) {
	rates := make(map[bool][]float64)
	clusters := make(map[bool]*bench.Cluster)
	for _, secret := range []bool{false, true} {
		c, err2 := s.start(ctx, fmt.Sprintf("append-%v", secret), secret)
		if err2 != nil {
			return errors.Join(err2, stopAll(clusters))
		}
		clusters[secret] = c
		if err2 := c.Rest(); err2 != nil {
			return errors.Join(err2, stopAll(clusters))
		}
	}
	defer func() { err = errors.Join(err, stopAll(clusters)) }()
	for round := range s.rounds {
		for _, secret := range []bool{round%2 == 1, round%2 == 0} {
			c := clusters[secret]
			if err := c.Wake(ctx); err != nil {
				return err
			}
			w, err := bench.NewWorkload(eventSize)
			if err != nil {
				return err
			}
			o, err := bench.Append(ctx, c, w, bench.Connections, false, load.Plan{Writers: appendWriters, Warm: time.Second, Duration: appendRound})
			if err = errors.Join(err, c.Rest()); err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "append, TLS %v: %.0f/s, p50 %.1f ms, p99 %.1f ms, %d errors %s\n", secret, o.PerSecond, o.P50, o.P99, o.Errors, o.FirstError)
			rates[secret] = append(rates[secret], o.PerSecond)
		}
	}
	s.figures.Set("append_tls_ratio", middle(rates[true])/middle(rates[false]))
	return nil
}

func stopAll(clusters map[bool]*bench.Cluster) (err error) {
	for _, c := range clusters {
		err = errors.Join(err, c.Stop())
	}
	return err
}

// fan has 1,000 subscribers of 1,000 events a second, without TLS and with it.
// The ratio is of the deliveries that a second of the servers' processors is good
// for: where they are all that there is, that is the rate.
func (s *suite) fan(ctx context.Context) error {
	perSecond := make(map[bool][]float64)
	for round := range max(s.rounds/2, 1) {
		for _, secret := range []bool{round%2 == 1, round%2 == 0} {
			o, err := s.fanOut(ctx, secret)
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "fan, TLS %v: %.0f deliveries/s, p99 %.0f ms, %.2f us of the servers' CPU for each\n", secret, o.DeliveriesS, o.P99, o.CPU)
			perSecond[secret] = append(perSecond[secret], 1/o.CPU)
		}
	}
	s.figures.Set("fan_tls_ratio", middle(perSecond[true])/middle(perSecond[false]))
	return nil
}

func (s *suite) fanOut(ctx context.Context, secret bool) (o agentsim.FanOutcome, err error) {
	c, err := s.start(ctx, "fan", secret)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, c.Stop(), os.RemoveAll(filepath.Join(s.dir, "fan"))) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cfg := agentsim.Config{Agents: fanAgents, Dialer: c.Client, Servers: c.Client.Servers()}
	if secret {
		if cfg.DialerOf, err = dialers(c); err != nil {
			return o, err
		}
	}
	err = bench.Streams(ctx, c, 4, func(submit []bench.Submit) (err error) {
		stage := &agentsim.Scenario{Cluster: c, Fleet: agentsim.New(cfg), Submit: submit[0]}
		if err := stage.Prepare(ctx); err != nil {
			return err
		}
		running := make(chan struct{})
		go func() { defer close(running); stage.Fleet.Run(ctx) }()
		defer func() { cancel(); <-running }()
		patience, end := context.WithTimeout(ctx, 2*time.Minute)
		defer end()
		if err := stage.Fleet.AwaitLive(patience, fanAgents); err != nil {
			return fmt.Errorf("%d of %d agents are live: %w", stage.Fleet.Counts().Live, fanAgents, err)
		}
		o, err = stage.Fan(ctx, fanRate, fanTime)
		return err
	})
	return o, err
}

// dialers gives each compute node a certificate of its own.
func dialers(c *bench.Cluster) (func(cn log.UUID) agentsim.Dialer, error) {
	all := make(map[log.UUID]*client.Client)
	for i := range fanAgents {
		cn := agentsim.CN(i)
		dial, err := c.Authority.Dialer(matrix.Identity{Role: matrix.CN, UUID: cn})
		if err != nil {
			return nil, err
		}
		if all[cn], err = client.New(client.Config{Servers: c.Client.Servers(), DialTLS: dial, AttemptTimeout: time.Minute}); err != nil {
			return nil, err
		}
	}
	return func(cn log.UUID) agentsim.Dialer { return all[cn] }, nil
}

// strangers writes with and without strangers at the leader's door, in turn.
// The ratio is of the medians of the p99 of writes.
func (s *suite) strangers(ctx context.Context) (err error) {
	c, err := s.start(ctx, "strangers", true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	leader, err := c.Leader(ctx)
	if err != nil {
		return err
	}
	hello, err := firstMessage()
	if err != nil {
		return err
	}
	p99 := make(map[bool][]float64)
	for round := range s.rounds {
		for _, beset := range []bool{round%2 == 1, round%2 == 0} {
			w, err := bench.NewWorkload(eventSize)
			if err != nil {
				return err
			}
			knocking, cancel := context.WithCancel(ctx)
			var answered atomic.Uint64
			var strangers sync.WaitGroup
			if beset {
				strangers.Go(func() { knock(knocking, strings.TrimPrefix(leader.URL, "https://"), hello, &answered) })
			}
			begin := time.Now()
			o, err := bench.Append(ctx, c, w, bench.Connections, false, load.Plan{Writers: crowdWriters, Warm: time.Second, Duration: crowdRound})
			took := time.Since(begin)
			cancel()
			strangers.Wait()
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "strangers %v: %.0f handshakes/s answered; writes %.0f/s, p50 %.2f ms, p99 %.2f ms, %d errors\n", beset, float64(answered.Load())/took.Seconds(), o.PerSecond, o.P50, o.P99, o.Errors)
			p99[beset] = append(p99[beset], o.P99)
		}
	}
	s.figures.Set("stranger_p99_ratio", middle(p99[true])/middle(p99[false]))
	return nil
}

// firstMessage is what a client of TLS 1.3 says first. Strangers send it again and
// again: it costs them nothing, and the server its whole answer with a signature.
func firstMessage() ([]byte, error) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		_ = tls.Client(theirs, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}).Handshake() // it fails
		theirs.Close()
	}()
	b := make([]byte, 16<<10)
	n, err := ours.Read(b)
	return b[:n], err
}

// knock begins handshakes at the rate, and leaves each when it is answered.
func knock(ctx context.Context, address string, hello []byte, answered *atomic.Uint64) {
	tick := time.NewTicker(time.Second / (strangerRate / 10))
	defer tick.Stop()
	var knocking sync.WaitGroup
	defer knocking.Wait()
	for n := 0; ; n += 10 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for i := range 10 {
			from := (n + i) % strangerNets
			knocking.Go(func() {
				dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 77, 0, byte(1+from))}, Timeout: 2 * time.Second}
				conn, err := dialer.DialContext(ctx, "tcp", address)
				if err != nil {
					return
				}
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
				if _, err := conn.Write(hello); err == nil {
					if n, _ := conn.Read(make([]byte, 4096)); n > 0 {
						answered.Add(1)
					}
				}
			})
		}
	}
}
