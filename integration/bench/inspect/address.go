package main

import "net/netip"

// subnetOf is the nth subnet, addrOf the nth address of one.
func subnetOf(n int) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n)}), 16) }

func addrOf(subnet, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(subnet), byte((n + 2) >> 8), byte(n + 2)})
}
