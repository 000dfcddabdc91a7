package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// crowd is a node with many untagged fabrics in VM namespaces, each with peers
// neighbours and as many forwarding entries.
func crowd(fabrics, peers, zones int) desired.Links {
	var want desired.Links
	for i := range fabrics {
		vnet := uint32(1000 + i)
		want.VXLANs = append(want.VXLANs, desired.VXLAN{VNet: vnet, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450})
		f := desired.Fabric{
			MAC: log.MAC{2, 1, byte(i >> 16), byte(i >> 8), byte(i), 0}, VNet: vnet, MTU: 1450,
			Addresses: []netip.Prefix{prefix("10.7.255.254/16")}, Namespace: fmt.Sprintf("z%d", i%zones),
		}
		want.Fabrics = append(want.Fabrics, f)
		for p := range peers {
			peer := log.MAC{2, 2, byte(i >> 8), byte(i), byte(p >> 8), byte(p)}
			want.Neighs = append(want.Neighs, desired.Neigh{Link: f.MAC, IP: netip.AddrFrom4([4]byte{10, 7, byte(p >> 8), byte(p)}), MAC: peer})
			want.FDB = append(want.FDB, desired.FDB{VNet: vnet, MAC: peer, Dst: addr("10.99.0.2")})
		}
	}
	return want
}

// BenchmarkPass has 500 fabrics with 25,000 neighbours and as many forwarding
// entries, in few and in many VM namespaces: each dump of neighbours walks those
// of all namespaces.
func BenchmarkPass(b *testing.B) {
	for _, zones := range []int{1, 500} {
		b.Run(fmt.Sprintf("namespaces=%d", zones), func(b *testing.B) { benchmarkPass(b, zones) })
	}
}

func benchmarkPass(b *testing.B, zones int) {
	const fabrics, peers = 500, 50
	w := newWorld(b)
	for i := range zones {
		w.namespace(fmt.Sprintf("z%d", i))
	}
	want := crowd(fabrics, peers, zones)
	g := guard(w, want, 1) // each pass reads another part of the namespaces
	m := g.m
	b.Run("create", func(b *testing.B) {
		for range b.N {
			pass(b, m, want)
			b.StopTimer()
			pass(b, m, desired.Links{})
			b.StartTimer()
		}
	})
	pass(b, m, want)
	b.Run("noop", func(b *testing.B) {
		for range b.N {
			pass(b, m, want)
		}
	})
	b.Run("delete", func(b *testing.B) {
		for range b.N {
			pass(b, m, desired.Links{})
			b.StopTimer()
			pass(b, m, want)
			b.StartTimer()
		}
	})
}

func pass(b *testing.B, m *Manager, want desired.Links) {
	b.Helper()
	result, err := m.Pass(context.Background(), want, true)
	if err != nil || !result.Matched {
		b.Fatalf("pass: %v, matched %v, failures %v", err, result.Matched, result.Failures)
	}
}

func BenchmarkEntries(b *testing.B) {
	const peers = 10_000
	w := newWorld(b)
	w.namespace("z0")
	want := crowd(1, peers, 1)
	h := w.open("cn1")
	m := NewManager(ManagerConfig{Kernel: h})
	bare := want
	bare.Neighs, bare.FDB = nil, nil
	pass(b, m, bare)
	have, err := h.Dump(context.Background(), []string{"z0"})
	if err != nil {
		b.Fatal(err)
	}
	steps := plan.Plan(want, have, m.numbers, true).Steps
	b.Run("do", func(b *testing.B) {
		for range b.N {
			if errs := h.Do(context.Background(), steps); errs != nil {
				b.Fatal(errors.Join(errs...))
			}
			b.StopTimer()
			pass(b, m, bare)
			b.StartTimer()
		}
		b.ReportMetric(float64(b.N*len(steps))/b.Elapsed().Seconds(), "entries/s")
	})
	b.Run("raw", func(b *testing.B) {
		sp, err := h.open("z0")
		if err != nil {
			b.Fatal(err)
		}
		conns := map[string]*netlink.Conn{"": h.own.conn, "z0": sp.conn}
		index := map[string]int32{"": h.index[plan.LinkKey{Namespace: "", Name: "sdcvxl1000"}], "z0": h.index[plan.LinkKey{Namespace: "z0", Name: plan.FabricName(0)}]}
		for range b.N {
			rawEntries(b, conns, index, steps)
			b.StopTimer()
			pass(b, m, bare)
			sp, _ = h.open("z0")
			conns["z0"] = sp.conn
			b.StartTimer()
		}
		b.ReportMetric(float64(b.N*len(steps))/b.Elapsed().Seconds(), "entries/s")
	})
}

// rawEntries is the bare loop: encode, send in batches, read the acknowledgement.
func rawEntries(b *testing.B, conns map[string]*netlink.Conn, index map[string]int32, steps []plan.Step) {
	for len(steps) > 0 {
		n := 0
		var messages []netlink.Message
		for n < len(steps) && n < batchMessages && steps[n].Namespace == steps[0].Namespace {
			var e wire.Encoder
			if steps[n].Op == plan.OpSetFDB {
				e.Forward(steps[n], index[steps[n].Namespace])
			} else {
				e.Neigh(steps[n], index[steps[n].Namespace])
			}
			messages = append(messages, netlink.Message{
				Header: netlink.Header{Type: unix.RTM_NEWNEIGH, Flags: netlink.Request | flagsReplace}, Data: e.B,
			})
			n++
		}
		messages[n-1].Header.Flags |= netlink.Acknowledge
		conn := conns[steps[0].Namespace]
		if _, err := conn.SendMessages(messages); err != nil {
			b.Fatal(err)
		}
		if _, err := conn.Receive(); err != nil {
			b.Fatal(err)
		}
		steps = steps[n:]
	}
}
