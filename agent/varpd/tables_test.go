package varpd

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/varp"
)

// TestTables: after any answers in any order, the kernel has what the tables say, each
// neighbour has its forwarding entry, no forwarding entry is unused, and the limit is
// kept.
func TestTables(t *testing.T) {
	local := netip.MustParseAddr("10.0.0.1")
	rapid.Check(t, func(t *rapid.T) {
		d := &Daemon{cfg: Config{MaxEntries: 6}.withDefaults(), tables: newTables(), queries: queries{byKey: map[key]*query{}}, troubles: map[string]bool{}}
		d.links = links{
			vnetOf: map[linkKey]uint32{{"z1", "fabric1"}: 1, {"z2", "fabric2"}: 1, {"z3", "fabric3"}: 2},
			vxlans: map[uint32]vxlan{1: {local: local, fixed: true, port: 4789}, 2: {local: local, fixed: true, port: 4789}},
		}
		places := map[uint32][]linkKey{1: {{"z1", "fabric1"}, {"z2", "fabric2"}}, 2: {{"z3", "fabric3"}}}
		neighs := map[linkKey]map[netip.Addr]log.MAC{}
		forwards := map[key]netip.Addr{}
		vnet, octet := rapid.Uint32Range(1, 2), rapid.ByteRange(1, 8)
		now := time.Unix(0, 0)
		for range rapid.IntRange(1, 60).Draw(t, "answers") {
			now = now.Add(time.Second)
			k := key{vnet: vnet.Draw(t, "vnet")}
			got := resolution{at: varp.Underlay{Addr: netip.AddrFrom4([4]byte{10, 0, 0, rapid.ByteRange(1, 3).Draw(t, "node")}), Port: 4789}}
			a := &query{}
			mac := log.MAC{2, 0, 0, 0, 0, octet.Draw(t, "mac")}
			if rapid.Bool().Draw(t, "VL3") {
				k.ip, got.mac = netip.AddrFrom4([4]byte{172, 16, 0, octet.Draw(t, "ip")}), mac
				if rapid.Bool().Draw(t, "missed") {
					a.link(rapid.SampledFrom(places[k.vnet]).Draw(t, "place"))
				}
			} else {
				k.mac, a.direct = mac, rapid.Bool().Draw(t, "direct")
			}
			if rapid.IntRange(0, 3).Draw(t, "absent") == 0 {
				got.err = varp.ErrNotFound
			}
			a.key, got.key = k, k
			var steps batchSteps
			d.apply(a, &got, now, &steps)
			d.evict(&steps)
			for _, s := range steps.all() {
				p, fk := linkKey{s.Namespace, s.Link}, key{vnet: s.Object.VNet, mac: s.MAC}
				switch s.Op {
				case plan.OpSetNeigh:
					if neighs[p] == nil {
						neighs[p] = map[netip.Addr]log.MAC{}
					}
					neighs[p][s.Addr] = s.MAC
				case plan.OpDelNeigh:
					delete(neighs[p], s.Addr)
				case plan.OpSetFDB:
					forwards[fk] = s.Addr
				case plan.OpDelFDB:
					delete(forwards, fk)
				}
			}
			checkTables(t, d, neighs, forwards, local)
		}
	})
}

func checkTables(t *rapid.T, d *Daemon, neighs map[linkKey]map[netip.Addr]log.MAC, forwards map[key]netip.Addr, local netip.Addr) {
	t.Helper()
	held := 0
	for k, n := range d.tables.neighs {
		if len(n.links) == 0 || !d.tables.users[n.forwardKey()][k] {
			t.Fatalf("%v: on %d links, led to by %v", k, len(n.links), d.tables.users[n.forwardKey()])
		}
		for p := range n.links {
			held++
			if neighs[p][k.ip] != n.mac {
				t.Fatalf("%v on %v: the kernel has %v, the tables %v", k, p, neighs[p][k.ip], n.mac)
			}
		}
	}
	inKernel := 0
	for _, list := range neighs {
		inKernel += len(list)
	}
	if inKernel != held || len(d.tables.neighs) > d.cfg.MaxEntries {
		t.Fatalf("%d neighbours in the kernel, %d in the tables of %d addresses", inKernel, held, len(d.tables.neighs))
	}
	for k, f := range d.tables.forwards {
		if forwards[k] != f.to || f.to == local {
			t.Fatalf("%v: the kernel has %v, the tables %v", k, forwards[k], f.to)
		}
		if len(d.tables.users[k]) == 0 && !f.direct {
			t.Fatalf("%v is there for nobody", k)
		}
	}
	if len(forwards) != len(d.tables.forwards) || d.tables.ages.Len() != len(d.tables.neighs)+len(d.tables.forwards) {
		t.Fatalf("%d forwarding entries in the kernel, %d in the tables; %d ages", len(forwards), len(d.tables.forwards), d.tables.ages.Len())
	}
}
