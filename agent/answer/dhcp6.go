package answer

import (
	"net"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"rutter/log"
	"rutter/projections/answers"
)

// Ports of DHCPv6 (RFC 8415, section 7.2).
const (
	dhcp6ServerPort = 547
	dhcp6ClientPort = 546
)

// maxAssociations bounds the associations of one message. A guest has one for each of its
// links.
const maxAssociations = 4

// dhcp6ServerID is the same on each node, so that a VM that moves renews at its new node.
// Its MAC is locally administered and of no link.
var dhcp6ServerID = &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr{0x02, 'r', 'u', 't', 't', 'r'}}

// dhcp6 answers a DHCPv6 message. Clients send all of them to a multicast address.
func (r responder) dhcp6(src log.MAC, p packet, d datagram, guest answers.Guest) reply {
	m, ok := decode(dhcpv6.MessageFromBytes, d.payload)
	if !ok || !p.src.IsLinkLocalUnicast() || d.from != dhcp6ClientPort {
		return reply{outcome: malformed}
	}
	client, server := m.Options.ClientID(), m.Options.ServerID()
	if server != nil && !server.Equal(dhcp6ServerID) {
		return reply{} // for another server
	}
	if client == nil && m.MessageType != dhcpv6.MessageTypeInformationRequest || len(m.Options.IANA()) > maxAssociations {
		return reply{outcome: malformed}
	}
	kind, counted := dhcpv6.MessageTypeReply, KindReply
	out := &dhcpv6.Message{TransactionID: m.TransactionID}
	switch m.MessageType {
	case dhcpv6.MessageTypeSolicit:
		if m.GetOneOption(dhcpv6.OptionRapidCommit) == nil {
			kind, counted = dhcpv6.MessageTypeAdvertise, KindAdvertise
		} else {
			out.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit})
		}
		out.AddOption(dhcpv6.OptPreference(255)) // no other server is worth a wait
		assign(out, m, guest)
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind:
		assign(out, m, guest)
	case dhcpv6.MessageTypeConfirm:
		out.AddOption(confirm(m, guest))
	case dhcpv6.MessageTypeInformationRequest:
	case dhcpv6.MessageTypeRelease:
		out.AddOption(&dhcpv6.OptStatusCode{StatusCode: iana.StatusSuccess})
		return reply{outcome: released, kind: KindReply, frame: r.dhcp6Frame(src, p.src, kind, out, m)}
	case dhcpv6.MessageTypeDecline:
		out.AddOption(&dhcpv6.OptStatusCode{StatusCode: iana.StatusSuccess})
		return reply{outcome: declined, kind: KindReply, frame: r.dhcp6Frame(src, p.src, kind, out, m)}
	default:
		return reply{outcome: malformed}
	}
	if resolvers := family(guest.Resolvers, netip.Addr.Is6, maxResolvers); len(resolvers) > 0 {
		var ips []net.IP
		for _, ip := range resolvers {
			ips = append(ips, ip.AsSlice())
		}
		out.AddOption(dhcpv6.OptDNS(ips...))
	}
	return reply{outcome: answered, kind: counted, frame: r.dhcp6Frame(src, p.src, kind, out, m)}
}

// assign gives the first association the guest's address. Other addresses that the client
// names there end at once, and other associations get none.
func assign(out, m *dhcpv6.Message, guest answers.Guest) {
	for i, asked := range m.Options.IANA() {
		given := &dhcpv6.OptIANA{IaId: asked.IaId}
		if i == 0 {
			given.T1, given.T2 = renewAfter, rebindAfter
			given.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: guest.IP.Addr().AsSlice(), PreferredLifetime: leaseTime, ValidLifetime: leaseTime})
			for _, old := range asked.Options.Addresses() {
				if ip, ok := netip.AddrFromSlice(old.IPv6Addr); ok && ip != guest.IP.Addr() && m.MessageType != dhcpv6.MessageTypeSolicit {
					given.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: old.IPv6Addr})
				}
			}
		} else {
			given.Options.Add(&dhcpv6.OptStatusCode{StatusCode: iana.StatusNoAddrsAvail, StatusMessage: "the log has one address for this NIC"})
		}
		out.AddOption(given)
	}
}

// confirm says whether the addresses of a client are those of its link.
func confirm(m *dhcpv6.Message, guest answers.Guest) *dhcpv6.OptStatusCode {
	for _, asked := range m.Options.IANA() {
		for _, has := range asked.Options.Addresses() {
			if ip, ok := netip.AddrFromSlice(has.IPv6Addr); !ok || ip != guest.IP.Addr() {
				return &dhcpv6.OptStatusCode{StatusCode: iana.StatusNotOnLink, StatusMessage: "the log has another address for this NIC"}
			}
		}
	}
	return &dhcpv6.OptStatusCode{StatusCode: iana.StatusSuccess}
}

func (r responder) dhcp6Frame(to log.MAC, ip netip.Addr, kind dhcpv6.MessageType, out, m *dhcpv6.Message) []byte {
	out.MessageType = kind
	out.AddOption(dhcpv6.OptServerID(dhcp6ServerID))
	if id := m.GetOneOption(dhcpv6.OptionClientID); id != nil {
		out.AddOption(id)
	}
	return udpFrame(to, r.bridge, netip.AddrPortFrom(linkLocal(r.bridge), dhcp6ServerPort), netip.AddrPortFrom(ip, dhcp6ClientPort), out.ToBytes())
}
