package answer

import (
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"rutter/log"
	"rutter/projections/answers"
	"rutter/projections/desired"
)

// Ports of DHCPv4 (RFC 2131, section 4.1).
const (
	dhcpServerPort = 67
	dhcpClientPort = 68
)

// dhcpServer is the server's address (option server identifier). It is on each network,
// of link-local addresses, in the part that no host takes for itself (RFC 3927, section
// 2.1: 169.254.0.0/24 is reserved).
var dhcpServer = netip.AddrFrom4([4]byte{169, 254, 0, 67})

// Times of a lease. A guest asks again after renewAfter, so that it learns of changes in
// the log. If the server is not there (the agent is down), it goes on asking, from
// rebindAfter by broadcast, and keeps its address until the lease ends, 10 hours after the
// first question. The address stays the NIC's all the same: no other guest gets it.
const (
	leaseTime   = 12 * time.Hour
	renewAfter  = 2 * time.Hour
	rebindAfter = 3 * time.Hour
)

const (
	// dhcpLeast is the size of an IP datagram that each client takes (RFC 2131, section 2).
	dhcpLeast = 576
	// dhcpMost bounds the datagram of a client that takes more: the smallest MTU of a
	// fabric's links stays above it.
	dhcpMost = 1200
	// dhcpFixed is a message's header with the magic number and the end of the options.
	dhcpFixed = 241
	// maxResolvers bounds those that a guest is told: libc reads 3 (resolv.conf(5)).
	maxResolvers = 8
)

// dhcp answers a DHCPv4 message.
func (r responder) dhcp(src log.MAC, payload []byte, guest answers.Guest) reply {
	m, ok := decode(dhcpv4.FromBytes, payload)
	if !ok || m.OpCode != dhcpv4.OpcodeBootRequest || m.HWType != iana.HWTypeEthernet || len(m.ClientHWAddr) != len(src) || log.MAC(m.ClientHWAddr) != src {
		return reply{outcome: malformed}
	}
	if relayed := addr4(m.GatewayIPAddr); relayed.IsValid() && !relayed.IsUnspecified() {
		return reply{} // no relay is between a guest and its node
	}
	if server := addr4(m.ServerIdentifier()); server.IsValid() && server != dhcpServer {
		return reply{} // for another server
	}
	switch m.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		return r.lease(m, dhcpv4.MessageTypeOffer, KindOffer, guest)
	case dhcpv4.MessageTypeRequest:
		wants := addr4(m.RequestedIPAddress())
		if !wants.IsValid() || wants.IsUnspecified() {
			wants = addr4(m.ClientIPAddr)
		}
		switch {
		case wants.IsUnspecified():
			return reply{outcome: malformed}
		case wants != guest.IP.Addr():
			return r.refuse(m)
		}
		return r.lease(m, dhcpv4.MessageTypeAck, KindAck, guest)
	case dhcpv4.MessageTypeInform:
		return r.lease(m, dhcpv4.MessageTypeAck, KindInform, guest)
	case dhcpv4.MessageTypeRelease:
		return reply{outcome: released}
	case dhcpv4.MessageTypeDecline:
		return reply{outcome: declined}
	}
	return reply{outcome: malformed}
}

// decode decodes a message by a library. What a guest sends must not end the agent, so
// a panic there is an error of the message.
func decode[M any](by func([]byte) (M, error), b []byte) (m M, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	m, err := by(b)
	return m, err == nil
}

// lease offers or confirms what the log says of the guest. An answer to an inform has no
// address and no times.
func (r responder) lease(m *dhcpv4.DHCPv4, kind dhcpv4.MessageType, counted Kind, guest answers.Guest) reply {
	out := answerTo(m, kind)
	o := options{message: out, room: room(m) - 3 - 6} // less the message type and the server's address, which it has
	inform := counted == KindInform
	if inform {
		out.ClientIPAddr = m.ClientIPAddr
	} else {
		out.YourIPAddr = guest.IP.Addr().AsSlice()
		o.add(dhcpv4.OptIPAddressLeaseTime(leaseTime))
		o.add(dhcpv4.OptRenewTimeValue(renewAfter))
		o.add(dhcpv4.OptRebindingTimeValue(rebindAfter))
		out.ClientIPAddr = m.ClientIPAddr
	}
	o.add(dhcpv4.OptSubnetMask(net.CIDRMask(guest.IP.Bits(), 32)))
	if guest.Gateway.Is4() {
		o.add(dhcpv4.OptRouter(guest.Gateway.AsSlice()))
	}
	if guest.MTU > 0 && guest.MTU <= 0xffff {
		o.add(dhcpv4.OptGeneric(dhcpv4.OptionInterfaceMTU, order.AppendUint16(nil, uint16(guest.MTU))))
	}
	var resolvers []net.IP
	for _, ip := range family(guest.Resolvers, netip.Addr.Is4, maxResolvers) {
		resolvers = append(resolvers, ip.AsSlice())
	}
	if len(resolvers) > 0 {
		o.add(dhcpv4.OptDNS(resolvers...))
	}
	if guest.Hostname != "" {
		o.add(dhcpv4.OptHostName(guest.Hostname))
	}
	o.routes(guest)
	dst, mac := addr4(m.ClientIPAddr), guest.NIC
	switch {
	case !dst.IsUnspecified():
	case m.IsBroadcast() || inform:
		dst, mac = broadcast4, toAll
	default:
		dst = guest.IP.Addr()
	}
	return reply{outcome: answered, kind: counted, shortened: o.cut, frame: r.dhcpFrame(mac, dst, out)}
}

// refuse says that the address that the guest asks for is not its own.
func (r responder) refuse(m *dhcpv4.DHCPv4) reply {
	return reply{outcome: answered, kind: KindNak, frame: r.dhcpFrame(toAll, broadcast4, answerTo(m, dhcpv4.MessageTypeNak))}
}

// answerTo is an answer with what each has (RFC 2131, table 3).
func answerTo(m *dhcpv4.DHCPv4, kind dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	out := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootReply, HWType: m.HWType, TransactionID: m.TransactionID, Flags: m.Flags,
		ClientHWAddr: m.ClientHWAddr, Options: dhcpv4.Options{},
	}
	out.UpdateOption(dhcpv4.OptMessageType(kind))
	out.UpdateOption(dhcpv4.OptServerIdentifier(dhcpServer.AsSlice()))
	return out
}

func (r responder) dhcpFrame(dst log.MAC, to netip.Addr, m *dhcpv4.DHCPv4) []byte {
	return udpFrame(dst, r.bridge, netip.AddrPortFrom(dhcpServer, dhcpServerPort), netip.AddrPortFrom(to, dhcpClientPort), m.ToBytes())
}

// room is the bytes of options that the asker takes.
func room(m *dhcpv4.DHCPv4) int {
	takes, err := m.MaxMessageSize()
	if err != nil {
		takes = dhcpLeast
	}
	return min(max(int(takes), dhcpLeast), dhcpMost) - ipv4Header - udpHeader - dhcpFixed
}

// options adds options to a message as long as there is room, the most important first.
type options struct {
	message *dhcpv4.DHCPv4
	room    int // bytes
	cut     bool
}

// optionBytes is the size of an option with so many bytes of data, which may need several
// (RFC 3396).
func optionBytes(data int) int { return data + 2*max(1, (data+254)/255) }

func (o *options) add(option dhcpv4.Option) {
	if size := optionBytes(len(option.Value.ToBytes())); size <= o.room {
		o.message.UpdateOption(option)
		o.room -= size
		return
	}
	o.cut = true
}

// routes adds the classless static routes. A client that takes them does not look at the
// router of its own option, so the default route is among them (RFC 3442). The one to the
// server has no router: it is on the link, where renewals find the node.
func (o *options) routes(guest answers.Guest) {
	all := []desired.Route{{Dst: netip.PrefixFrom(dhcpServer, 32), Gateway: netip.IPv4Unspecified()}}
	if guest.Gateway.Is4() {
		all = append(all, desired.Route{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Gateway: guest.Gateway})
	}
	all = append(all, guest.Routes...)
	var data dhcpv4.Routes
	for _, route := range all {
		if !route.Dst.Addr().Is4() || !route.Gateway.Is4() {
			continue
		}
		more := append(data, &dhcpv4.Route{
			Dest:   &net.IPNet{IP: route.Dst.Masked().Addr().AsSlice(), Mask: net.CIDRMask(route.Dst.Bits(), 32)},
			Router: route.Gateway.AsSlice(),
		})
		if optionBytes(len(more.ToBytes())) > o.room {
			o.cut = true
			break
		}
		data = more
	}
	if len(data) > 0 {
		o.add(dhcpv4.OptClasslessStaticRoute(data...))
	}
}

// addr4 converts an address of the library, an unspecified one if there is none in its
// place in the header. It is not valid for an option that is missing.
func addr4(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
