package varp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"rutter/integration/svpclient"
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

// TestConformance runs old clients against two servers while the log changes, one
// behind the other, each forgetting its clients now and then. In the end no client met
// a message that it could not handle, and no client has a wrong mapping. 10,000
// changes; 200,000 if RUTTER_LONG is set. The same with two agents, which have changes
// in place of the log.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
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
	clients := make([]*svpclient.Illumos, 3) // each on its node
	for i, remotes := range [][]string{addrs, addrs[:1], addrs} {
		running.Go(func() {
			var err error
			if clients[i], err = runIllumos(moving, underlayAddr(i), remotes, networks, uint64(i)); err != nil {
				t.Errorf("illumos %d: %v", i, err)
			}
		})
	}
	var linux *svpclient.Linux
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
		asked += client.Asked
		if wrong := staleIllumos(client, c.truth, c.truth.VNets(c.nodes[i])); wrong != "" {
			t.Errorf("illumos %d: %s", i, wrong)
		}
	}
	for key, n := range linux.Neighs {
		if mac, at, ok := c.truth.VL3(key.VNet, key.IP); !ok || mac != n.MAC || at.Addr != n.At {
			t.Errorf("linux-cn-varpd: %v was asked for last and is %s at %v, %v; it has %v", key, mac, at, ok, n)
		}
	}
	t.Logf("%d changes, %d requests of illumos, %d of linux-cn-varpd", changes, asked, linux.Asked())
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
			time.Sleep(time.Millisecond) // gives the clients time to look
		}
	}
	for _, s := range sites {
		s.catchUp(c, len(c.entries))
	}
}

// anyHost draws a network and an address on it.
func anyHost(dice *rand.Rand, networks []*log.Network) svpclient.Host {
	n := networks[dice.IntN(len(networks))]
	b := n.Subnet.Addr().As4()
	b[3] = byte(1 + dice.IntN(conformHosts))
	return svpclient.Host{VNet: n.VNetID, IP: netip.AddrFrom4(b)}
}

// runIllumos polls, with guests that send to each other, until moving ends and nothing
// more comes.
func runIllumos(moving context.Context, me netip.Addr, addrs []string, networks []*log.Network, seed uint64) (*svpclient.Illumos, error) {
	c, err := svpclient.NewIllumos(me, addrs, time.Millisecond, seed)
	if err != nil {
		return nil, err
	}
	dice := rand.New(rand.NewPCG(seed, 3))
	for ended := false; ; {
		if err := c.Poll(); err != nil {
			return nil, fmt.Errorf("%w (%w)", err, c.Close())
		}
		host := anyHost(dice, networks)
		mac, known := c.ARP[host]
		switch {
		case moving.Err() == nil && known:
			err = c.Send(svpclient.Port{VNet: host.VNet, MAC: mac})
		case moving.Err() == nil:
			err = c.Resolve(host, 1)
		case !ended:
			ended = true
			c.Unsettle()
		case c.Quiet():
			return c, c.Close()
		}
		if err != nil {
			return nil, fmt.Errorf("%w (%w)", err, c.Close())
		}
	}
}

// staleIllumos names a wrong mapping that the client has.
func staleIllumos(c *svpclient.Illumos, truth *rowsAt, vnets []uint32) string {
	believes := newCache()
	for host, mac := range c.ARP {
		believes.arp[vl3Key{host.VNet, host.IP}] = mac
	}
	for port, at := range c.Where {
		believes.fwd[vl2Key{port.VNet, port.MAC}] = Underlay{Addr: at, Port: c.UDP[port]}
	}
	return believes.stale(truth, vnets, true)
}

// runLinux resolves in bursts until moving ends, and then each address once more, as
// the kernel does for a doubtful entry.
func runLinux(moving context.Context, addr string, networks []*log.Network) (*svpclient.Linux, error) {
	c, err := svpclient.NewLinux(addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	dice := rand.New(rand.NewPCG(7, 7))
	for moving.Err() == nil {
		for range 1 + dice.IntN(200) {
			if err := c.Ask(anyHost(dice, networks)); err != nil {
				return nil, err
			}
		}
		if err := c.Answers(); err != nil {
			return nil, err
		}
	}
	for host := range c.Neighs {
		if err := c.Ask(host); err != nil {
			return nil, err
		}
	}
	return c, c.Answers()
}

// TestOneWriteEach: from its first PING on linux-cn-varpd gets each answer in a write
// of its own, because it must; others get many in one.
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
