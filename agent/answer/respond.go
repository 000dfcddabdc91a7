package answer

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/answers"
)

// Log is what the log says of guests.
type Log interface {
	// Guest returns what one of this node's NICs may know.
	Guest(nic log.MAC) (answers.Guest, bool)
	// Neighbour returns which other NIC of a guest's network has an address.
	Neighbour(guest answers.Guest, ip netip.Addr) (log.MAC, bool)
}

// View is a Log that reads states.
type View struct {
	CN   log.UUID
	Read func(fn func(*projections.State)) // calls fn with the state of now
}

// Guest implements Log.
func (v View) Guest(nic log.MAC) (guest answers.Guest, ok bool) {
	v.Read(func(s *projections.State) { guest, ok = answers.Of(s, v.CN, nic) })
	return guest, ok
}

// Neighbour implements Log.
func (v View) Neighbour(guest answers.Guest, ip netip.Addr) (mac log.MAC, ok bool) {
	v.Read(func(s *projections.State) { mac, ok = answers.Neighbour(s, guest, ip) })
	return mac, ok
}

// outcome says what became of a request.
type outcome byte

const (
	silent    outcome = iota // a request that gets no answer by its protocol, or for others
	answered                 // the frame is the answer
	unknown                  // the address that it asks for is not on its network
	malformed                // it breaks its protocol
	released                 // DHCP: the guest gave its address back
	declined                 // DHCP: the guest found its address in use
)

// reply is what a request leads to.
type reply struct {
	outcome   outcome
	kind      Kind   // if answered
	frame     []byte // if answered
	shortened bool   // routes or resolvers had no room
}

// responder answers requests of one segment. It keeps nothing.
type responder struct {
	log Log
	// bridge is the MAC of the segment's bridge, from which DHCP is answered.
	bridge log.MAC
}

// respond answers a request of the guest that has the frame's source MAC.
func (r responder) respond(f frame, guest answers.Guest) reply {
	switch f.kind {
	case unix.ETH_P_ARP:
		return r.arp(f, guest)
	case unix.ETH_P_IP:
		return r.ipv4(f, guest)
	case unix.ETH_P_IPV6:
		return r.ipv6(f, guest)
	}
	return reply{}
}

func (r responder) ipv4(f frame, guest answers.Guest) reply {
	p, ok := parseIPv4(f.payload)
	if !ok {
		return reply{outcome: malformed}
	}
	if p.protocol != unix.IPPROTO_UDP {
		return reply{}
	}
	d, ok := parseUDP(p.payload)
	if !ok {
		return reply{outcome: malformed}
	}
	if d.to != dhcpServerPort || !guest.DHCP || !guest.IP.Addr().Is4() {
		return reply{}
	}
	return r.dhcp(f.src, d.payload, guest)
}

func (r responder) ipv6(f frame, guest answers.Guest) reply {
	p, ok := parseIPv6(f.payload)
	if !ok {
		return reply{outcome: malformed}
	}
	switch p.protocol {
	case unix.IPPROTO_ICMPV6:
		return r.icmp(f, p, guest)
	case unix.IPPROTO_UDP:
		d, ok := parseUDP(p.payload)
		if !ok {
			return reply{outcome: malformed}
		}
		if d.to != dhcp6ServerPort || !guest.DHCP || !guest.IP.Addr().Is6() {
			return reply{}
		}
		return r.dhcp6(f.src, p, d, guest)
	}
	return reply{}
}
