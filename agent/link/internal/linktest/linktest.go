// Package linktest has helpers for the tests of package link and of the packages below
// it: short forms of addresses, and a typical node to plan for.
package linktest

import (
	"net/netip"

	"rutter/projections/desired"

	"rutter/log"
)

// MAC returns a different MAC for each n below 65536.
func MAC(n int) log.MAC { return log.MAC{0x02, 0, 0, 0, byte(n >> 8), byte(n)} }

// Addr parses an address; it panics if text is none.
func Addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// Prefix parses a prefix; it panics if text is none.
func Prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// Sample is a node with a tagged and an untagged fabric.
func Sample() desired.Links {
	return desired.Links{
		VXLANs: []desired.VXLAN{
			{VNet: 5, Local: Addr("10.99.0.1"), Port: 4789, MTU: 1450},
			{VNet: 6, Local: Addr("10.99.0.1"), Port: 4789, MTU: 1450},
		},
		VLANs: []desired.VLAN{{VNet: 5, ID: 7, MTU: 1446}},
		Fabrics: []desired.Fabric{
			{
				MAC: MAC(1), VNet: 5, VLAN: 7, MTU: 1446, Namespace: "z1",
				Addresses: []netip.Prefix{Prefix("10.0.0.1/24")}, Gateway: Addr("10.0.0.254"),
				Routes:    []desired.Route{{Dst: Prefix("10.5.0.0/16"), Gateway: Addr("10.0.0.9")}},
				Resolvers: []netip.Addr{Addr("8.8.8.8")},
			},
			{MAC: MAC(2), VNet: 6, MTU: 1400, Addresses: []netip.Prefix{Prefix("fd00::2/64")}},
		},
		Neighs: []desired.Neigh{{Link: MAC(1), IP: Addr("10.0.0.3"), MAC: MAC(3)}},
		FDB:    []desired.FDB{{VNet: 5, MAC: MAC(3), Dst: Addr("10.99.0.2")}},
	}
}
