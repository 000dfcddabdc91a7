package varp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"rutter/log"
)

// siteEvents is a site's shootdowns, of which a restart makes others.
type siteEvents struct{ *site }

func (e siteEvents) now() *Shootdowns {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.events
}

func (e siteEvents) Events(dst []Record, cn netip.Addr, maxBytes int) ([]Record, bool) {
	return e.now().Events(dst, cn, maxBytes)
}

func (e siteEvents) Remove(cn netip.Addr, ids []log.UUID) bool { return e.now().Remove(cn, ids) }

// Bounds of the small cloud of TestConformance.
const (
	conformMACs  = 24
	conformHosts = 12 // addresses in use on each network, see freeIP
)

// TestConformance runs old clients against two servers while the log moves
// under them, one behind the other, each forgetting now and then what it knew
// of its clients. In the end nobody met a message that it could not bear, and
// nobody believes what is not so. 10,000 changes; 200,000 if RUTTER_LONG is set.
// So it is with two agents, which have changes in place of the log.
func TestConformance(t *testing.T) {
	t.Parallel() // with TestHostileMinute: all mostly wait
	for name, agents := range map[string]bool{"servers": false, "agents": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conform(t, agents)
		})
	}
}

func conform(t *testing.T, agents bool) {
	changes := 10_000
	switch {
	case long():
		changes = 200_000
	case testing.Short():
		changes = 1_000
	}
	c := newCloud(t, 6, 6)
	c.quiet = 3
	var sites []*site
	var addrs []string
	for i := range 2 {
		s := newSiteOf(c, ShootdownConfig{}, agents)
		cfg := Config{Lookup: s, Events: siteEvents{s}}
		if i == 0 && !agents {
			cfg.Lookup = NewMappings(s, nil)
		}
		_, addr := startServer(t, cfg)
		sites, addrs = append(sites, s), append(addrs, addr)
	}
	networks := c.nets // the test changes everything else while the clients run
	moving, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	clients := make([]*illumos, 3) // each on its node
	for i, remotes := range [][]string{addrs, addrs[:1], addrs} {
		running.Go(func() {
			var err error
			if clients[i], err = runIllumos(moving, underlayAddr(i), remotes, networks, uint64(i)); err != nil {
				t.Errorf("illumos %d: %v", i, err)
			}
		})
	}
	var linux *linuxVarpd
	running.Go(func() {
		var err error
		if linux, err = runLinux(moving, addrs[1], networks); err != nil {
			t.Errorf("linux-cn-varpd: %v", err)
		}
	})
	moveLog(c, sites, changes)
	stop()
	running.Wait()
	if t.Failed() {
		return
	}
	asked := 0
	for i, client := range clients {
		asked += client.asked
		if wrong := client.stale(c.truth, c.truth.VNets(c.nodes[i])); wrong != "" {
			t.Errorf("illumos %d: %s", i, wrong)
		}
	}
	for key, n := range linux.neighs {
		if mac, at, ok := c.truth.VL3(key.vnet, key.ip); !ok || mac != n.mac || at.Addr != n.at {
			t.Errorf("linux-cn-varpd: %v was asked for last and is %s at %v, %v; it has %v", key, mac, at, ok, n)
		}
	}
	t.Logf("%d changes, %d requests of illumos, %d of linux-cn-varpd", changes, asked, linux.lastID)
}

// moveLog makes the changes and lets the servers follow, the second late.
func moveLog(c *cloud, sites []*site, changes int) {
	dice := rand.New(rand.NewPCG(6, 6))
	for done := range changes {
		c.churn(dice.IntN, conformMACs)
		sites[0].catchUp(c, len(c.entries))
		sites[1].catchUp(c, len(c.entries)-dice.IntN(50))
		switch {
		case done%2000 == 1999:
			s := sites[dice.IntN(2)]
			s.mu.Lock()
			s.restart(ShootdownConfig{})
			s.mu.Unlock()
		case done%4 == 0:
			time.Sleep(time.Millisecond) // lets the clients have a look
		}
	}
	for _, s := range sites {
		s.catchUp(c, len(c.entries))
	}
}

// anyHost draws a network and an address on it.
func anyHost(dice *rand.Rand, networks []*log.Network) vl3Key {
	n := networks[dice.IntN(len(networks))]
	b := n.Subnet.Addr().As4()
	b[3] = byte(1 + dice.IntN(conformHosts))
	return vl3Key{n.VNetID, netip.AddrFrom4(b)}
}

// runIllumos polls, and has guests that talk to each other, until moving ends
// and after that nothing more comes.
func runIllumos(moving context.Context, me netip.Addr, addrs []string, networks []*log.Network, seed uint64) (*illumos, error) {
	c, err := newIllumos(me, addrs, time.Millisecond, seed)
	if err != nil {
		return nil, err
	}
	for ended := false; ; {
		if err := c.poll(); err != nil {
			return nil, fmt.Errorf("%w (%w)", err, c.close())
		}
		key := anyHost(c.dice, networks)
		mac, known := c.arp[key]
		switch {
		case moving.Err() == nil && known:
			err = c.send(key.vnet, mac)
		case moving.Err() == nil:
			err = c.resolve(key.vnet, key.ip, 1)
		case !ended:
			ended = true // what came before may have been of before
			for _, conn := range c.conns {
				conn.empty = 0
			}
		case c.quiet():
			return c, c.close()
		}
		if err != nil {
			return nil, fmt.Errorf("%w (%w)", err, c.close())
		}
	}
}

// stale names something that the client believes and that is not so.
func (c *illumos) stale(truth *rowsAt, vnets []uint32) string {
	believes := newCache()
	believes.arp = c.arp
	for key, at := range c.where {
		believes.fwd[key] = Underlay{Addr: at, Port: 4789}
	}
	return believes.stale(truth, vnets, true)
}

// runLinux resolves in bursts until moving ends, and then each address once
// more, as the kernel does when an entry is in doubt.
func runLinux(moving context.Context, addr string, networks []*log.Network) (*linuxVarpd, error) {
	c, err := newLinuxVarpd(addr)
	if err != nil {
		return nil, err
	}
	defer c.nc.Close()
	dice := rand.New(rand.NewPCG(7, 7))
	for moving.Err() == nil {
		for range 1 + dice.IntN(200) {
			if err := c.ask(anyHost(dice, networks)); err != nil {
				return nil, err
			}
		}
		if err := c.answers(); err != nil {
			return nil, err
		}
	}
	for key := range c.neighs {
		if err := c.ask(key); err != nil {
			return nil, err
		}
	}
	return c, c.answers()
}

// TestOneWriteEach: from its first PING on linux-cn-varpd gets each answer in a
// write of its own, as it must, and others many in one.
func TestOneWriteEach(t *testing.T) {
	for id, most := range map[uint32]uint64{0xffffffff: 41, 7: 3} {
		s, addr := startServer(t, Config{Lookup: vectorFixture()})
		nc := dialTCP(t, addr)
		requests := Append(nil, OpPing, id, nil)
		for i := range 40 {
			requests = appendLookup(requests, i)
		}
		write(t, nc, requests)
		for range 41 {
			readMessage(t, nc)
		}
		if n := s.Stats().Writes; n > most || most == 41 && n != 41 {
			t.Errorf("PING with id %x: 41 answers in %d writes, want %d", id, n, most)
		}
	}
}
