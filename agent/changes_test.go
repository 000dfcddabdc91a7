package agent

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/projections"
)

// guest is an SVP client that keeps each answer until a change corrects it. It
// continues when the agent restarts.
type guest struct {
	pos uint64
	vl2 map[vl2]projections.Underlay
	vl3 map[vl3]log.MAC
}

type vl2 struct {
	vnet uint32
	mac  log.MAC
}

type vl3 struct {
	vnet uint32
	ip   netip.Addr
}

func newGuest() *guest {
	return &guest{vl2: make(map[vl2]projections.Underlay), vl3: make(map[vl3]log.MAC)}
}

// learn asks for everything that exists.
func (g *guest) learn(r *replica) {
	for vnet := uint32(101); vnet <= 103; vnet++ {
		for n := range 256 {
			if at, ok := r.VL2(vnet, macOf(n)); ok {
				g.vl2[vl2{vnet, macOf(n)}] = at
			}
			ip := netip.AddrFrom4([4]byte{10, 0, 0, byte(n)})
			if mac, at, ok := r.VL3(vnet, ip); ok {
				g.vl3[vl3{vnet, ip}], g.vl2[vl2{vnet, mac}] = mac, at
			}
		}
	}
}

// hear takes what changed, as varp.Shootdowns does.
func (g *guest) hear(r *replica) {
	for {
		changes, gap := r.journal.after(g.pos, 3)
		if gap {
			for rec := range r.state.List(log.KindNIC) {
				g.forget(r, placeIn(r.state, rec.Object))
			}
		}
		if len(changes) == 0 {
			g.pos = r.journal.pos
			return
		}
		for _, c := range changes {
			g.forget(r, c.Was)
			g.forget(r, c.Is)
			g.pos = c.Pos
		}
	}
}

func (g *guest) forget(r *replica, p Place) {
	delete(g.vl2, vl2{p.VNet, p.MAC})
	delete(g.vl3, vl3{p.VNet, p.IP})
	if p.Underlay {
		for rec := range r.state.NICsOnCN(p.CN) {
			on := placeIn(r.state, rec.Object)
			delete(g.vl2, vl2{on.VNet, on.MAC})
		}
	}
}

// stale lists its answers that are no longer true.
func (g *guest) stale(r *replica) string {
	for key, at := range g.vl2 {
		if is, ok := r.VL2(key.vnet, key.mac); is != at {
			return fmt.Sprintf("VL2 %v is %v (%v), it has %v", key, is, ok, at)
		}
	}
	for key, mac := range g.vl3 {
		// Without an underlay address VL3 answers no, while the address itself is
		// unchanged.
		rec, _ := r.state.Get(log.KindNIC, mac.String())
		if is := placeIn(r.state, rec.Object); is.VNet != key.vnet || is.IP != key.ip {
			return fmt.Sprintf("VL3 %v: the MAC is at %v, it has %v", key, is, mac)
		}
	}
	return ""
}

// TestGuestsHearOfAnyHistory: a client that receives all changes has no wrong answer,
// whatever happens to the connection, the log or the agent.
func TestGuestsHearOfAnyHistory(t *testing.T) {
	folder := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		h := &history{t: t, server: newTestServer(1), folder: fmt.Sprintf("%s/%d", folder, runs)}
		baseHistory(t, h.server, 3)
		h.restart()
		defer h.close()
		g := newGuest()
		look := func() {
			g.hear(h.replica)
			if wrong := g.stale(h.replica); wrong != "" {
				t.Fatal(wrong)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"change":    h.change,
			"changes":   func(t *rapid.T) { h.change(t); h.change(t); h.change(t) },
			"deliver":   func(t *rapid.T) { h.deliver(t); look() },
			"unheard":   h.deliver,
			"learn":     func(*rapid.T) { g.learn(h.replica); look() },
			"connect":   func(t *rapid.T) { h.connect(t); look() },
			"other log": h.otherLog,
			"restart": func(t *rapid.T) {
				h.close()
				h.restart()
				g.pos = 0 // of another process
			},
			"keep": h.keep,
			"compact": func(t *rapid.T) {
				h.server.floor = h.server.head() - min(h.server.head(), log.Seq(rapid.IntRange(0, 10).Draw(t, "kept")))
			},
		})
	})
}

// TestGoneIsKeptWithinBounds: removed mappings are reported after a restart, the newest
// of them.
func TestGoneIsKeptWithinBounds(t *testing.T) {
	c, r, p := opened(t, t.TempDir())
	place := func(n int) Place {
		return Place{MAC: log.MAC{2, 0, 0, byte(n >> 16), byte(n >> 8), byte(n)}, VNet: 7, OnVNet: true, IP: netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})}
	}
	first := r.journal.pos
	const many = maxGone + maxGone/2
	for n := range many {
		r.noteMove(place(n), Place{})
		if n%5000 == 0 {
			r.makeReady()
			if err := p.commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.makeReady()
	if err := p.commit(); err != nil {
		t.Fatal(err)
	}
	folder := c.lock.Name()[:len(c.lock.Name())-len(lockName)]
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c, r, _ = opened(t, folder)
	defer c.Close()
	if r.journal.pos < first+many {
		t.Errorf("position %d after %d: an earlier one comes again", r.journal.pos, first+many)
	}
	gone, gap := r.journal.after(0, 1<<20)
	if !gap || len(gone) != maxGone {
		t.Fatalf("%d are told, gap %v; want %d and a gap", len(gone), gap, maxGone)
	}
	for i, c := range gone {
		if want := place(many - maxGone + i); c.Was != want {
			t.Fatalf("%d: got %+v, want %+v", i, c.Was, want)
		}
	}
}
