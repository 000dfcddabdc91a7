package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"rutter/cmd/rutter/netlab"
	"rutter/log"
	"rutter/varp"
)

// Sizes of the faults.
const (
	writeBefore  = 300 * time.Millisecond // time that the writer runs before the kill
	writeAfter   = 700 * time.Millisecond // and after the first write behind it
	changesMade  = 500                    // while a CN is cut off
	failoverMost = 30 * time.Second
)

// writer writes changes one after another, and remembers which were acknowledged.
type writer struct {
	s       *stage
	network *log.Network

	mu    sync.Mutex // protects what follows
	acked []ack
}

// ack is one acknowledged write.
type ack struct {
	id       log.UUID
	seq      log.Seq
	sent, at time.Time
}

func (w *writer) acks() []ack {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.acked)
}

// run writes until ctx ends. Every change has an id of its own. The client repeats a
// change with the same id until a server answers.
func (w *writer) run(ctx context.Context) error {
	for n := 0; ctx.Err() == nil; n++ {
		c := w.s.change([]log.Op{{
			Action: log.Update, Kind: log.KindNetwork, ID: w.network.ID(), Set: []string{"description"},
			Object: &log.Network{Description: fmt.Sprintf("write %d", n)},
		}})
		sent := time.Now()
		result, err := w.s.api.Submit(ctx, c)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("write %d: %w", n, err)
		}
		w.mu.Lock()
		w.acked = append(w.acked, ack{result.ChangeID, result.Last, sent, time.Now()})
		w.mu.Unlock()
	}
	return nil
}

// killLeader kills the leader while a writer runs, and counts.
func (s *stage) killLeader(ctx context.Context) error {
	s.say.begin("The leader is killed while a writer runs")
	green, err := s.network(ctx, "green")
	if err != nil {
		return err
	}
	status, err := s.led(ctx)
	if err != nil {
		return err
	}
	leader := s.server(status.LeaderID)
	w := &writer{s: s, network: green}
	writing, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- w.run(writing) }()
	if err := pause(ctx, writeBefore); err != nil {
		return err
	}
	if err := awaitEnd(ctx, leader, syscall.SIGKILL); err != nil {
		return err
	}
	killed, before := time.Now(), len(w.acks())
	s.say.detail("%s, the leader, got SIGKILL after %d acknowledged writes", leader.Name, before)
	var gap time.Duration
	err = until(ctx, failoverMost, "the next acknowledged write", func() error {
		for _, a := range w.acks()[before:] {
			if a.sent.After(killed.Add(-pollEvery)) && a.at.Sub(killed) > pollEvery {
				gap = a.at.Sub(killed)
				return nil
			}
		}
		return errors.New("no write was acknowledged since the kill")
	})
	if err != nil {
		return err
	}
	if err := pause(ctx, writeAfter); err != nil {
		return err
	}
	stop()
	if err := <-failed; err != nil {
		return err
	}
	acked := w.acks()
	lost, twice, err := s.count(ctx, acked)
	if err != nil {
		return err
	}
	if lost > 0 || twice > 0 {
		return fmt.Errorf("of %d acknowledged writes %d are not in the log, and %d are there twice", len(acked), lost, twice)
	}
	if err := leader.Start(); err != nil {
		return err
	}
	s.say.result("next acknowledged write after %s; of %d acknowledged, 0 lost, 0 twice", ms(gap), len(acked))
	return nil
}

// count reads the whole log and counts the acknowledged changes that it has.
func (s *stage) count(ctx context.Context, acked []ack) (lost, twice int, err error) {
	seen := make(map[log.UUID]int)
	for event, err := range s.events(ctx) {
		if err != nil {
			return 0, 0, err
		}
		seen[event.ChangeID]++
	}
	for _, a := range acked {
		switch n := seen[a.id]; {
		case n == 0:
			lost++
		case n > 1:
			twice++
		}
	}
	return lost, twice, nil
}

// cutNode cuts CN 2 off, writes many changes, and connects it again.
func (s *stage) cutNode(ctx context.Context) error {
	s.say.begin("CN 2 is cut off, and comes back")
	cn := s.cns[1]
	if _, err := s.settle(ctx, s.cns...); err != nil {
		return err
	}
	before, err := cn.status(ctx)
	if err != nil {
		return err
	}
	if err := netlab.SetUp(cn.port, false); err != nil {
		return err
	}
	s.say.detail("%s's port is down: no underlay, no way to the servers; its cursor is at %d", cn.name, before.Applied)
	if err := s.newVM(ctx, "blue6", s.cns[0]); err != nil {
		return err
	}
	blue, err := s.network(ctx, "blue")
	if err != nil {
		return err
	}
	for n := range changesMade - 1 {
		if _, err := s.submit(ctx, []log.Op{{
			Action: log.Update, Kind: log.KindNetwork, ID: blue.ID(), Set: []string{"description"},
			Object: &log.Network{Description: fmt.Sprintf("while cn2 was away, %d", n)},
		}}); err != nil {
			return err
		}
	}
	head, err := s.api.Head(ctx)
	if err != nil {
		return err
	}
	s.say.detail("%d changes were written meanwhile, VM blue6 on cn1 among them; the log is at %d", changesMade, head)
	healed := time.Now()
	if err := netlab.SetUp(cn.port, true); err != nil {
		return err
	}
	if _, err := s.settle(ctx, cn); err != nil {
		return err
	}
	took := time.Since(healed)
	after, err := cn.status(ctx)
	if err != nil {
		return err
	}
	if after.Resets != before.Resets {
		return fmt.Errorf("%s took %d resets to come back; want it to go on from its cursor", cn.name, after.Resets-before.Resets)
	}
	for _, v6 := range []bool{false, true} {
		if _, err := s.vms["blue1"].ns.Ping(s.vms["blue6"].address(v6), 56, replyLimit); err != nil {
			return fmt.Errorf("blue1 to the new VM: the first packet: %w", err)
		}
	}
	s.say.result("from seq %d to %d in %s after the heal, no snapshot; blue1 reaches blue6", before.Applied, after.Applied, ms(took))
	return nil
}

// stopServers stops all servers, restarts the agents, and checks that the compute nodes
// still work.
func (s *stage) stopServers(ctx context.Context) error {
	s.say.begin("Every server is stopped, and the agents restart")
	if _, err := s.settle(ctx, s.cns...); err != nil {
		return err
	}
	for _, p := range s.servers {
		if err := awaitEnd(ctx, p, syscall.SIGTERM); err != nil {
			return err
		}
	}
	s.say.detail("no server runs")
	started := time.Now()
	for i, p := range s.agents {
		if err := awaitEnd(ctx, p, syscall.SIGKILL); err != nil {
			return err
		}
		if err := p.Start(); err != nil {
			return err
		}
		cn := s.cns[i]
		err := until(ctx, settleLimit, cn.name+" works from its cache", func() error {
			status, err := cn.status(ctx)
			// Without servers the log's head is unknown, so no programmed seq is
			// reported. But the agent compares the kernel with its cache.
			if err == nil && !status.Kernel.Matched {
				err = fmt.Errorf("its kernel does not match yet: %s", status.kernel())
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	s.say.detail("both agents were killed and started: their kernels match their caches after %s", ms(time.Since(started)))
	lookups, took, err := s.lookUp(ctx)
	if err != nil {
		return err
	}
	s.say.detail("SVP on the CNs answers: %d lookups, median %s", lookups, ms(took))
	pings := 0
	for _, fabric := range []string{"blue", "green"} {
		rtts, err := s.pingAll(fabric)
		if err != nil {
			return err
		}
		pings += len(rtts)
	}
	s.say.result("%d SVP lookups answered, %d of %d pings pass", lookups, pings, pings)
	return nil
}

// lookUp asks each CN's own SVP server for every VM of both fabrics.
func (s *stage) lookUp(ctx context.Context) (int, time.Duration, error) {
	var times []time.Duration
	for _, cn := range s.cns {
		svp, err := varp.NewClient(varp.ClientConfig{Servers: []string{svpAddress}, Dial: cn.dial})
		if err != nil {
			return 0, 0, err
		}
		for _, alias := range s.aliases() {
			v := s.vms[alias]
			for _, v6 := range []bool{false, true} {
				started := time.Now()
				mac, where, err := svp.VL3(ctx, vnetOf(alias), v.address(v6))
				if err != nil {
					return 0, 0, errors.Join(fmt.Errorf("%s on %s: %w", alias, cn.name, err), svp.Close())
				}
				times = append(times, time.Since(started))
				if want := s.underlayOf(v); mac != v.mac(v6) || where.Addr != want {
					return 0, 0, errors.Join(fmt.Errorf("%s on %s: got %s at %s, want %s at %s", alias, cn.name, mac, where.Addr, v.mac(v6), want), svp.Close())
				}
			}
		}
		if err := svp.Close(); err != nil {
			return 0, 0, err
		}
	}
	return len(times), median(times), nil
}

// underlayOf returns the underlay address of a VM's CN.
func (s *stage) underlayOf(v *vm) netip.Addr {
	for _, cn := range s.cns {
		if cn.id == v.cn {
			return cn.addr
		}
	}
	return netip.Addr{}
}

// countAtEnd starts the servers once more and counts what the log holds.
func (s *stage) countAtEnd(ctx context.Context) error {
	s.say.begin("The servers come back")
	started := time.Now()
	for _, p := range s.servers {
		if err := p.Start(); err != nil {
			return err
		}
	}
	for _, url := range s.api.Servers() {
		if err := until(ctx, settleLimit, url+" is ready", func() error { return s.ready(ctx, url) }); err != nil {
			return err
		}
	}
	took := time.Since(started)
	entries := 0
	for _, err := range s.events(ctx) {
		if err != nil {
			return err
		}
		entries++
	}
	if _, err := s.settle(ctx, s.cns...); err != nil {
		return err
	}
	s.say.result("ready after %s; %d entries in the log, both CNs follow again", ms(took), entries)
	return nil
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
