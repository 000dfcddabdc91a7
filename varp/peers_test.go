package varp

import (
	"net/netip"
	"testing"

	"rutter/log"
)

// onlyVNet allows all peers and shows one vnet.
type onlyVNet uint32

func (onlyVNet) Allow(netip.Addr) bool                 { return true }
func (v onlyVNet) Sees(_ netip.Addr, vnet uint32) bool { return vnet == uint32(v) }
func (onlyVNet) Speaks(peer, underlay netip.Addr) bool { return peer == underlay }

// everywhere has every MAC and address on every vnet.
type everywhere struct{}

func (everywhere) VL2(uint32, log.MAC) (Underlay, bool) {
	return Underlay{Addr: netip.MustParseAddr("192.0.2.1"), Port: 4789}, true
}

func (everywhere) VL3(uint32, netip.Addr) (log.MAC, Underlay, bool) {
	return log.MAC{1}, Underlay{Addr: netip.MustParseAddr("192.0.2.1"), Port: 4789}, true
}

// A peer is answered about its own vnets only, and asks for its own log only.
func TestPeersSeeTheirOwnVNets(t *testing.T) {
	s, err := NewServer(Config{Lookup: everywhere{}, Peers: onlyVNet(7)})
	if err != nil {
		t.Fatal(err)
	}
	c := &conn{s: s, peer: netip.MustParseAddr("192.0.2.9")}
	for vnet, want := range map[uint32]Status{7: StatusOK, 8: StatusNotFound} {
		m, _, err := Split(VL2Req{VNet: vnet, MAC: log.MAC{1}}.Append(nil, 1), MaxBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := c.answer(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := Split(answer, MaxBody)
		if err != nil {
			t.Fatal(err)
		}
		ack, err := ParseVL2Ack(got.Body)
		if err != nil || ack.Status != want {
			t.Errorf("vnet %d: status %v, %v, want %v", vnet, ack.Status, err, want)
		}
	}
}
