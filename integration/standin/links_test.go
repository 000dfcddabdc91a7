package standin

import (
	"net/netip"
	"testing"

	"rutter/cmd/rutter/netlab"
	"rutter/log"
	"rutter/projections/desired"
)

// TestLinkFailures are the rows of spec/svp.md section 4.5 that begin at a link.
// Each is done to one daemon, which must resolve before and after.
func TestLinkFailures(t *testing.T) {
	w := newWorld(t, 0)
	dir := newDirectory(20)
	at, _ := serve(t, dir, "127.0.0.1:0")
	cn1 := func(args ...string) { t.Helper(); w.ip("ip", "cn1", args...) }
	cn1("link", "add", "fabric9", "type", "veth", "peer", "name", "fabric10") // already there at the start
	d, stop := w.run(w.config(at))
	awaitLinks(t, d)
	n := 0
	again := func(what string) {
		t.Helper()
		n++
		w.resolved(what, remoteIP(n), n, remote.Addr)
	}
	again("beside a link of no vnet that bears the name of one")

	for _, index := range []string{"300", "5000", "5000000"} {
		cn1("link", "add", "other0", "index", index, "type", "veth", "peer", "name", "other1")
		cn1("link", "del", "other0")
		again("after an unrelated link with ifindex " + index)
	}

	w.ip("ip", "zA", "link", "set", "fabric0", "down")
	w.ip("ip", "zA", "link", "set", "fabric0", "name", "fabric55")
	w.ip("ip", "zA", "link", "set", "fabric55", "up")
	d.Rescan() // SIGHUP
	again("on a link with another name")
	w.ip("ip", "zA", "link", "set", "fabric55", "down")
	w.ip("ip", "zA", "link", "set", "fabric55", "name", "fabric0")
	w.ip("ip", "zA", "link", "set", "fabric0", "up")
	d.Rescan()
	again("on the link with its name again")

	stop()
	d, _ = w.run(w.config(at))
	awaitLinks(t, d)
	again("after a start beside all that")
}

// TestHotLinks: fabric links come, go and move between namespaces while the
// daemon runs, IPv6 and small, equal ifindexes included; what a link's neighbours
// alone led to goes with it.
func TestHotLinks(t *testing.T) {
	w := newWorld(t, 0)
	dir := newDirectory(20)
	at, _ := serve(t, dir, "127.0.0.1:0")
	d, _ := w.run(w.config(at))
	awaitLinks(t, d)
	w.resolved("IPv6", remoteIP6(1), 1, remote.Addr)

	// As a net-agent makes them: the kernel chooses the ifindex, the same in both.
	zones := []netlab.Namespace{w.namespace("z1"), w.namespace("z2")}
	for i, zone := range zones {
		name := []string{"fabric31", "fabric32"}[i]
		w.ip("ip", "cn1", "link", "add", "link", "sdcvxl5", "name", name, "type", "macvlan", "mode", "bridge")
		w.must(w.cn1.Do(func() error { return nil }))
		w.ip("ip", "cn1", "link", "set", name, "netns", zone.Path())
		w.ip("ip", zone.Name, "addr", "add", []string{"172.16.254.1/16", "172.16.254.2/16"}[i], "dev", name)
		w.ip("ip", zone.Name, "link", "set", name, "up")
	}
	for i, zone := range zones {
		ip := remoteIP(2 + i)
		for ok := false; !ok; {
			w.eventually("a link that was moved into a namespace", func(state) bool {
				w.must(send(zone, ip))
				ok = w.state(zone.Name).neighs[ip] == remoteMAC(2+i)
				return ok
			})
		}
		if _, wrong := w.state(zones[1-i].Name).neighs[ip]; wrong {
			t.Errorf("the neighbour of %s is in the other namespace too", zone.Name)
		}
	}
	if w.state().forwards[remoteMAC(2)] != remote.Addr {
		t.Error("no forwarding entry for the first's neighbour")
	}
	w.ip("ip", "z1", "link", "del", "fabric31")
	w.eventually("what only it led to", func(s state) bool { _, is := s.forwards[remoteMAC(2)]; return !is })
	w.must(zones[1].Delete())
	w.eventually("what only a namespace that ended led to", func(s state) bool { _, is := s.forwards[remoteMAC(3)]; return !is })
	scans := d.Stats().Looks + 2
	w.eventually("two more scans, which bring nothing back", func(state) bool { d.Rescan(); return d.Stats().Looks >= scans })
	if s := w.state(); len(s.forwards) != 1 {
		t.Errorf("forwarding entries: %v, want that of the IPv6 address only", s.forwards)
	}

	// The whole stack goes and comes back.
	want := w.want
	w.want = desired.Links{}
	w.make()
	w.want = want
	w.make()
	w.resolved("on a stack that was made again", remoteIP(5), 5, remote.Addr)
	w.ip("bridge", "cn1", "fdb", "del", remoteMAC(5).String(), "dev", "sdcvxl5")
	w.eventually("a forwarding entry that somebody deleted, when a packet misses it", func(s state) bool {
		return s.forwards[remoteMAC(5)] == remote.Addr
	}, remoteIP(5))
	w.ip("ip", "zA", "neigh", "flush", "dev", "fabric0", "nud", "all")
	w.resolved("neighbours that somebody flushed", remoteIP(5), 5, remote.Addr)
	w.ip("bridge", "cn1", "fdb", "del", remoteMAC(5).String(), "dev", "sdcvxl5")
	w.eventually("once more", func(s state) bool { return s.forwards[remoteMAC(5)] == remote.Addr }, remoteIP(5))
	w.ip("ip", "zA", "link", "del", "fabric0")
	w.eventually("nothing is left for nobody", func(s state) bool { return len(s.forwards) == 0 })
}

// TestOwnNode: two VMs of one node find each other; nothing is sent through the
// tunnel to itself.
func TestOwnNode(t *testing.T) {
	w := newWorld(t, 0)
	dir := newDirectory(0)
	mac := log.MAC{2, 0, 1, 0, 0, 2}
	other := netip.MustParseAddr("172.16.255.2")
	near := remote
	near.Addr = local
	dir.ips[other], dir.macs[mac] = mac, near
	dir.ips[netip.MustParseAddr("172.16.255.1")], dir.macs[log.MAC{2, 0, 1, 0, 0, 1}] = log.MAC{2, 0, 1, 0, 0, 1}, near
	w.namespace("zC")
	f := w.want.Fabrics[0]
	f.MAC, f.Namespace, f.Addresses = mac, "zC", []netip.Prefix{netip.PrefixFrom(other, 16)}
	w.want.Fabrics = append(w.want.Fabrics, f)
	w.make()
	at, _ := serve(t, dir, "127.0.0.1:0")
	d, _ := w.run(w.config(at))
	awaitLinks(t, d)
	if _, err := w.zone.Ping(other, 56, patience); err != nil {
		t.Error(err)
	}
	if s := w.state(); len(s.forwards) != 0 {
		t.Errorf("forwarding entries: got %v, want none", s.forwards)
	}
}
