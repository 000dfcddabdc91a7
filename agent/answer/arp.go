package answer

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"rutter/log"
	"rutter/projections/answers"
)

// ARP for IPv4 over Ethernet (RFC 826).
const (
	arpBytes   = 28
	arpRequest = 1
	arpReply   = 2
)

// arpHeader is the beginning of each message: Ethernet, IPv4, and their lengths.
var arpHeader = [6]byte{0, 1, 8, 0, 6, 4}

// arp answers a request for an address of the guest's network. It is silent to a guest that
// announces an address (a gratuitous request) or looks whether its own is free.
func (r responder) arp(f frame, guest answers.Guest) reply {
	b := f.payload
	if len(b) < arpBytes || [6]byte(b[:6]) != arpHeader || log.MAC(b[8:14]) != f.src {
		return reply{outcome: malformed}
	}
	sender, target := netip.AddrFrom4([4]byte(b[14:18])), netip.AddrFrom4([4]byte(b[24:28]))
	if order.Uint16(b[6:]) != arpRequest || sender == target || target == guest.IP.Addr() {
		return reply{}
	}
	mac, ok := r.log.Neighbour(guest, target)
	if !ok && target == dhcpServer && guest.DHCP && guest.IP.Addr().Is4() {
		mac, ok = r.bridge, true // so that renewals, which a guest sends to the server alone, come here
	}
	if !ok && sender.IsUnspecified() {
		return reply{} // a guest looks whether the address is free, which it is as far as the log knows
	}
	if !ok {
		return reply{outcome: unknown}
	}
	out := make([]byte, 0, arpBytes)
	out = order.AppendUint16(append(out, arpHeader[:]...), arpReply)
	out = append(append(out, mac[:]...), b[24:28]...)
	out = append(append(out, f.src[:]...), b[14:18]...)
	return reply{outcome: answered, kind: KindARP, frame: frame{f.src, mac, unix.ETH_P_ARP, out}.bytes()}
}
