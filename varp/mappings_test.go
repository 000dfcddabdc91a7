package varp

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

// sameAsRows names a lookup for which m answers differently from the site's rows.
func sameAsRows(m *Mappings, s *site, c *cloud, macs int) string {
	for vnet := uint32(99); vnet < 104; vnet++ {
		for i := range macs {
			got, ok := m.VL2(vnet, testMAC(i))
			if want, has := s.VL2(vnet, testMAC(i)); got != want || ok != has {
				return fmt.Sprintf("VL2 %d %s: %v, %v, want %v, %v", vnet, testMAC(i), got, ok, want, has)
			}
		}
		for _, net := range c.nets {
			for i := range 14 {
				b := net.Subnet.Addr().As4()
				b[3] = byte(i)
				ip := netip.AddrFrom4(b)
				mac, at, ok := m.VL3(vnet, ip)
				if wantMAC, want, has := s.VL3(vnet, ip); mac != wantMAC || at != want || ok != has {
					return fmt.Sprintf("VL3 %d %s: %s %v, %v, want %s %v, %v", vnet, ip, mac, at, ok, wantMAC, want, has)
				}
			}
		}
	}
	return ""
}

// lateRows is a Source whose rows are ahead of what Head says at first.
type lateRows struct {
	*site
	before func()
}

func (s lateRows) View(fn func(Rows)) {
	s.before()
	s.site.View(fn)
}

// TestMappings: after any history the copy answers as the rows do, at once, whether it
// followed entry by entry or was rebuilt, also from rows of a later moment.
func TestMappings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		roll := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "roll") }
		c := newCloud(t, 4, 4)
		s := newSite(c, ShootdownConfig{})
		ahead := func() { s.catchUp(c, len(s.entries)+roll(len(c.entries)-len(s.entries)+1)) }
		m := NewMappings(lateRows{s, ahead}, nil)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch roll(8) {
			case 0:
				s.floor = log.Seq(roll(len(s.entries) + 1))
			case 1:
				s.cluster = testUUID(9, roll(3)) // another log, or so it says
			case 2, 3:
				s.catchUp(c, len(c.entries))
				if wrong := sameAsRows(m, s, c, 8); wrong != "" {
					t.Fatal(wrong)
				}
			default:
				c.churn(roll, 8)
			}
		}
	})
}

// TestMappingsWithoutUnderlay: a NIC whose node has no underlay address is not found,
// and all its fields are zero, in the copy as in the rows.
func TestMappingsWithoutUnderlay(t *testing.T) {
	c := newCloud(t, 4, 4)
	s := newSite(c, ShootdownConfig{})
	m := NewMappings(s, nil)
	ip := netip.MustParseAddr("10.0.0.1")
	c.delete(testMAC(0xf000 + 3)) // the node's underlay NIC
	c.put(&log.NIC{MAC: testMAC(0), BelongsToType: "zone", CNUUID: c.nodes[3], NetworkUUID: c.nets[0].UUID, IP: ip})
	s.catchUp(c, len(c.entries))
	if mac, at, ok := m.VL3(100, ip); ok || mac != (log.MAC{}) || at != (Underlay{}) {
		t.Errorf("%s at %v, %v, want nothing", mac, at, ok)
	}
	if wrong := sameAsRows(m, s, c, 8); wrong != "" {
		t.Error(wrong)
	}
}

// TestPortOfANode: a node's port is answered from the copy, and a change of it, not of the
// MTU, makes every mapping of the node wrong.
func TestPortOfANode(t *testing.T) {
	c := newCloud(t, 4, 4)
	s := newSite(c, ShootdownConfig{})
	m := NewMappings(s, nil)
	c.put(&log.NIC{MAC: testMAC(0), BelongsToType: "zone", CNUUID: c.nodes[3], NetworkUUID: c.nets[0].UUID, IP: netip.MustParseAddr("10.0.0.1")})
	s.catchUp(c, len(c.entries))
	port := func() uint16 {
		at, ok := m.VL2(100, testMAC(0))
		if !ok {
			t.Fatal("the NIC is not found")
		}
		return at.Port
	}
	if got := port(); got != 4789 {
		t.Errorf("a node that says nothing has port %d", got)
	}
	for _, step := range []struct {
		port, mtu uint32
		news      int
	}{{0, 1500, 0}, {4790, 1500, 1}, {4790, 1400, 0}, {0, 1400, 1}} {
		nic := c.underlayNIC(3, 3)
		nic.VXLANPort, nic.UnderlayMTU = step.port, step.mtu
		c.put(nic)
		s.catchUp(c, len(c.entries))
		if got, want := port(), uint16(max(step.port, 4789)); got != want {
			t.Errorf("the answer has port %d, want %d", got, want)
		}
		e, err := c.entries[len(c.entries)-1].Event()
		if err != nil {
			t.Fatal(err)
		}
		var news []invalidation
		s.View(func(rows Rows) { news, err = invalidationsOf(nil, 1, e, rows) })
		if err != nil || len(news) != step.news {
			t.Errorf("port %d and MTU %d are news of %d mappings, %v, want %d", step.port, step.mtu, len(news), err, step.news)
		}
	}
}

// TestMappingsBrokenLog: bytes that are not an event do not stop the answers.
func TestMappingsBrokenLog(t *testing.T) {
	c := newCloud(t, 2, 2)
	c.put(&log.NIC{MAC: testMAC(1), BelongsToType: "zone", CNUUID: c.nodes[0], NetworkUUID: c.nets[0].UUID})
	s := newSite(c, ShootdownConfig{})
	m := NewMappings(s, nil)
	if wrong := sameAsRows(m, s, c, 4); wrong != "" {
		t.Error(wrong)
	}
	s.broken = errors.New("disk on fire") // rebuilt from the rows
	c.put(&log.NIC{MAC: testMAC(2), BelongsToType: "zone", CNUUID: c.nodes[0], NetworkUUID: c.nets[0].UUID})
	s.catchUp(c, len(c.entries))
	if wrong := sameAsRows(m, s, c, 4); wrong != "" || m.broken.Load() {
		t.Errorf("%s, given up: %v", wrong, m.broken.Load())
	}
	s.broken = nil
	c.put(&log.NIC{MAC: testMAC(3), BelongsToType: "zone", CNUUID: c.nodes[0], NetworkUUID: c.nets[0].UUID})
	s.catchUp(c, len(c.entries))
	s.entries[len(s.entries)-1].Bytes = []byte{1, 0xc1}
	if wrong := sameAsRows(m, s, c, 4); wrong != "" || !m.broken.Load() {
		t.Errorf("%s, given up: %v", wrong, m.broken.Load())
	}
}

// TestMappingsAllocations: a lookup makes none.
func TestMappingsAllocations(t *testing.T) {
	c := newCloud(t, 2, 2)
	ip := netip.MustParseAddr("10.0.0.7")
	c.put(&log.NIC{MAC: testMAC(1), BelongsToType: "zone", CNUUID: c.nodes[0], NetworkUUID: c.nets[0].UUID, IP: ip})
	m := NewMappings(newSite(c, ShootdownConfig{}), nil)
	m.VL2(100, testMAC(1))
	if n := testing.AllocsPerRun(100, func() {
		if _, _, ok := m.VL3(100, ip); !ok {
			t.Error("not found")
		}
		m.VL2(100, testMAC(1))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
