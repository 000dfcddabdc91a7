package answer

import (
	"net/netip"
	"time"

	"rutter/log"
	"rutter/projections/answers"
)

// Messages of ND (RFC 4861, section 4), and their options.
const (
	routerSolicitation     = 133
	routerAdvertisement    = 134
	neighbourSolicitation  = 135
	neighbourAdvertisement = 136

	optionSource    = 1 // MAC of the sender
	optionTarget    = 2 // MAC of the target
	optionPrefix    = 3 // prefix information
	optionMTU       = 5
	optionResolvers = 25 // RFC 8106, section 5.1
)

// Flags of advertisements.
const (
	flagRouter    = 1 << 31 // of a neighbour: it forwards packets
	flagSolicited = 1 << 30
	flagOverride  = 1 << 29
	flagManaged   = 1 << 7 // of a router: addresses come by DHCP
	flagOther     = 1 << 6 // of a router: so does the rest
	flagOnLink    = 1 << 7 // of a prefix
)

const (
	// routerLifetime is for how long a guest keeps its default route after an
	// advertisement: the longest time of RFC 4861, section 6.2.1. An agent that is down for
	// less than that costs no guest its route.
	routerLifetime = 9000 * time.Second
	// AdvertiseEvery is the time between advertisements that no guest asked for.
	AdvertiseEvery = 20 * time.Minute
)

// icmp answers a neighbour or router solicitation.
func (r responder) icmp(f frame, p packet, guest answers.Guest) reply {
	b := p.payload
	if len(b) < 8 || b[0] != neighbourSolicitation && b[0] != routerSolicitation {
		return reply{}
	}
	least := 8
	if b[0] == neighbourSolicitation {
		least = 24
	}
	if p.hops != hopLimit || b[1] != 0 || len(b) < least || checksum(p.pseudo(), b) != 0 {
		return reply{outcome: malformed}
	}
	named, ok := macOption(b[least:], optionSource)
	if !ok || named != nil && (*named != f.src || p.src.IsUnspecified()) {
		return reply{outcome: malformed}
	}
	if b[0] == routerSolicitation {
		return r.router(f.src, guest)
	}
	return r.neighbour(f.src, p, netip.AddrFrom16([16]byte(b[8:24])), guest)
}

// neighbour answers a solicitation of an address. Without a source it comes from a guest
// that looks whether the address is free (DAD): it is told of others, at its own port.
func (r responder) neighbour(to log.MAC, p packet, target netip.Addr, guest answers.Guest) reply {
	if target.IsMulticast() || target.Is4In6() {
		return reply{outcome: malformed}
	}
	if target == guest.IP.Addr() || target == linkLocal(guest.NIC) {
		return reply{}
	}
	probing := p.src.IsUnspecified()
	mac, ok := r.log.Neighbour(guest, target)
	if !ok && probing {
		return reply{} // it is free, as far as the log knows
	}
	if !ok {
		return reply{outcome: unknown}
	}
	flags, dst := uint32(flagOverride), allNodes
	if !probing {
		flags, dst = flags|flagSolicited, p.src
	}
	if gateway, ok := r.gateway(guest); ok && gateway == mac {
		flags |= flagRouter // without it a guest drops its default route (section 7.2.5)
	}
	out := order.AppendUint32([]byte{neighbourAdvertisement, 0, 0, 0}, flags)
	out = append(out, target.AsSlice()...)
	out = appendMAC(out, optionTarget, mac)
	if probing {
		to = multicastMAC(allNodes)
	}
	return reply{outcome: answered, kind: KindNeighbour, frame: icmpFrame(to, mac, target, dst, out)}
}

// gateway returns the NIC that a guest's default route leads to.
func (r responder) gateway(guest answers.Guest) (log.MAC, bool) {
	if !guest.Gateway.Is6() {
		return log.MAC{}, false
	}
	return r.log.Neighbour(guest, guest.Gateway)
}

// router advertises a guest's gateway, as from it, and says that the guest's address comes
// by DHCP and not by the prefix. Without a gateway in the log, the node itself says that
// there is none.
func (r responder) router(to log.MAC, guest answers.Guest) reply {
	if !guest.DHCP || !guest.IP.Addr().Is6() {
		return reply{}
	}
	mac, lifetime := r.bridge, time.Duration(0)
	if gateway, ok := r.gateway(guest); ok {
		mac, lifetime = gateway, routerLifetime
	}
	out := []byte{routerAdvertisement, 0, 0, 0, 64, flagManaged | flagOther}
	out = order.AppendUint16(out, uint16(lifetime/time.Second))
	out = append(out, 0, 0, 0, 0, 0, 0, 0, 0) // reachable time and retransmission: the guest's own
	out = appendMAC(out, optionSource, mac)
	if guest.MTU > 0 {
		out = order.AppendUint32(append(out, optionMTU, 1, 0, 0), guest.MTU)
	}
	prefix := guest.IP.Masked()
	out = append(out, optionPrefix, 4, byte(prefix.Bits()), flagOnLink) // not for addresses: SLAAC is off
	out = order.AppendUint32(out, uint32(leaseTime/time.Second))
	out = order.AppendUint32(out, uint32(leaseTime/time.Second))
	out = append(append(out, 0, 0, 0, 0), prefix.Addr().AsSlice()...)
	if resolvers := family(guest.Resolvers, netip.Addr.Is6, maxResolvers); len(resolvers) > 0 {
		out = append(out, optionResolvers, byte(1+2*len(resolvers)), 0, 0)
		out = order.AppendUint32(out, uint32(routerLifetime/time.Second))
		for _, ip := range resolvers {
			out = append(out, ip.AsSlice()...)
		}
	}
	return reply{outcome: answered, kind: KindRouter, frame: icmpFrame(to, mac, linkLocal(mac), allNodes, out)}
}

// macOption returns the first option with a MAC, nil if there is none. It is false if the
// options break their form.
func macOption(b []byte, kind byte) (found *log.MAC, ok bool) {
	for len(b) > 0 {
		if len(b) < 2 || b[1] == 0 || len(b) < int(b[1])*8 {
			return nil, false
		}
		if b[0] == kind && found == nil {
			found = (*log.MAC)(b[2:8])
		}
		b = b[int(b[1])*8:]
	}
	return found, true
}

func appendMAC(b []byte, option byte, mac log.MAC) []byte {
	return append(append(b, option, 1), mac[:]...)
}

// family returns the first addresses of one family.
func family(all []netip.Addr, is func(netip.Addr) bool, limit int) (some []netip.Addr) {
	for _, ip := range all {
		if is(ip) && len(some) < limit {
			some = append(some, ip)
		}
	}
	return some
}
