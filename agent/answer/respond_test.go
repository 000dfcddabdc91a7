package answer

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
	"golang.org/x/sys/unix"

	"rutter/log"
	"rutter/projections/answers"
	"rutter/projections/desired"
)

var ip = netip.MustParseAddr

// arpOf is a frame with a message of ARP, from a MAC with a sender's and a target's address.
func arpOf(operation byte, src log.MAC, sender, target string) frame {
	b := append(append([]byte(nil), arpHeader[:]...), 0, operation)
	b = append(append(b, src[:]...), ip(sender).AsSlice()...)
	b = append(append(b, 0, 0, 0, 0, 0, 0), ip(target).AsSlice()...)
	return frame{toAll, src, unix.ETH_P_ARP, b}
}

// solicitationOf is a neighbour solicitation without options.
func solicitationOf(target string) []byte {
	return append([]byte{neighbourSolicitation, 0, 0, 0, 0, 0, 0, 0}, ip(target).AsSlice()...)
}

func dhcpOf(src log.MAC, kind dhcpv4.MessageType, more ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	m := &dhcpv4.DHCPv4{OpCode: dhcpv4.OpcodeBootRequest, HWType: iana.HWTypeEthernet, TransactionID: dhcpv4.TransactionID{1, 2, 3, 4}, ClientHWAddr: src[:], Options: dhcpv4.Options{}}
	m.UpdateOption(dhcpv4.OptMessageType(kind))
	for _, modify := range more {
		modify(m)
	}
	return m
}

func dhcp6Of(src log.MAC, kind dhcpv6.MessageType, has ...string) *dhcpv6.Message {
	m := &dhcpv6.Message{MessageType: kind, TransactionID: dhcpv6.TransactionID{1, 2, 3}}
	m.AddOption(dhcpv6.OptClientID(&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: src[:]}))
	asked := &dhcpv6.OptIANA{IaId: [4]byte{9}}
	for _, one := range has {
		asked.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: ip(one).AsSlice()})
	}
	m.AddOption(asked)
	return m
}

func TestARP(t *testing.T) {
	r, four, _ := guests(t)
	other := arpOf(arpRequest, four.NIC, "10.0.0.5", "10.0.0.6")
	other.payload[8] ^= 4 // inside it the sender has another MAC
	wide := arpOf(arpRequest, four.NIC, "10.0.0.5", "10.0.0.6")
	wide.payload[5] = 16
	noDHCP := four
	noDHCP.DHCP = false
	for _, c := range []struct {
		name  string
		asked frame
		guest answers.Guest
		want  outcome
		mac   log.MAC
	}{
		{"of a neighbour", arpOf(arpRequest, four.NIC, "10.0.0.5", "10.0.0.6"), four, answered, mac(6)},
		{"of one on another node", arpOf(arpRequest, four.NIC, "10.0.0.5", "10.0.0.1"), four, answered, mac(1)},
		{"is another's address free", arpOf(arpRequest, four.NIC, "0.0.0.0", "10.0.0.6"), four, answered, mac(6)},
		{"is its own address free", arpOf(arpRequest, four.NIC, "0.0.0.0", "10.0.0.5"), four, silent, log.MAC{}},
		{"is an address free", arpOf(arpRequest, four.NIC, "0.0.0.0", "10.0.0.99"), four, silent, log.MAC{}},
		{"of what the log does not have", arpOf(arpRequest, four.NIC, "10.0.0.5", "10.0.0.99"), four, unknown, log.MAC{}},
		{"of what is beyond the network", arpOf(arpRequest, four.NIC, "10.0.0.5", "192.168.0.2"), four, unknown, log.MAC{}},
		{"gratuitous", arpOf(arpRequest, four.NIC, "10.0.0.6", "10.0.0.6"), four, silent, log.MAC{}},
		{"an answer", arpOf(arpReply, four.NIC, "10.0.0.5", "10.0.0.6"), four, silent, log.MAC{}},
		{"of the DHCP server", arpOf(arpRequest, four.NIC, "10.0.0.5", "169.254.0.67"), four, answered, bridgeMAC},
		{"of a DHCP server that is not there", arpOf(arpRequest, four.NIC, "10.0.0.5", "169.254.0.67"), noDHCP, unknown, log.MAC{}},
		{"with another sender inside", other, four, malformed, log.MAC{}},
		{"not of Ethernet", wide, four, malformed, log.MAC{}},
		{"cut", frame{toAll, four.NIC, unix.ETH_P_ARP, wide.payload[:27]}, four, malformed, log.MAC{}},
	} {
		got := r.respond(c.asked, c.guest)
		if got.outcome != c.want {
			t.Errorf("%s: %+v, want %d", c.name, got, c.want)
			continue
		}
		if got.outcome != answered {
			continue
		}
		f, _ := parseFrame(got.frame)
		asked, b := c.asked.payload, f.payload
		if f.src != c.mac || f.dst != four.NIC || b[7] != arpReply || log.MAC(b[8:14]) != c.mac || string(b[14:18]) != string(asked[24:28]) || log.MAC(b[18:24]) != four.NIC || string(b[24:28]) != string(asked[14:18]) {
			t.Errorf("%s: answered by % x", c.name, got.frame)
		}
	}
}

func TestNeighbourSolicitations(t *testing.T) {
	r, four, six := guests(t)
	own, gateway := linkLocal(six.NIC), linkLocal(mac(0x21))
	ask := func(from netip.Addr, message []byte) frame {
		f, _ := parseFrame(icmpFrame(toAll, six.NIC, from, allNodes, message))
		return f
	}
	wrongSum := ask(own, solicitationOf("fd00:1::6"))
	wrongSum.payload[ipv6Header+2] ^= 1
	far := ask(own, solicitationOf("fd00:1::6"))
	far.payload[7] = 254
	cutOption := append(solicitationOf("fd00:1::6"), optionSource, 2, 0, 0, 0, 0, 0, 0)
	noOption := append(solicitationOf("fd00:1::6"), optionSource, 0, 0, 0, 0, 0, 0, 0)
	for _, c := range []struct {
		name  string
		asked frame
		want  outcome
		mac   log.MAC
		flags uint32
		dst   netip.Addr
	}{
		{"of a neighbour", ask(own, appendMAC(solicitationOf("fd00:1::6"), optionSource, six.NIC)), answered, mac(0x26), flagSolicited | flagOverride, own},
		{"of its link-local address", ask(own, solicitationOf(linkLocal(mac(0x26)).String())), answered, mac(0x26), flagSolicited | flagOverride, own},
		{"of the gateway", ask(own, solicitationOf("fd00:1::1")), answered, mac(0x21), flagSolicited | flagOverride | flagRouter, own},
		{"of the gateway's link-local address", ask(own, solicitationOf(gateway.String())), answered, mac(0x21), flagSolicited | flagOverride | flagRouter, own},
		{"is another's free", ask(netip.IPv6Unspecified(), solicitationOf("fd00:1::6")), answered, mac(0x26), flagOverride, allNodes},
		{"is its own free", ask(netip.IPv6Unspecified(), solicitationOf("fd00:1::5")), silent, log.MAC{}, 0, netip.Addr{}},
		{"is its own link-local free", ask(netip.IPv6Unspecified(), solicitationOf(own.String())), silent, log.MAC{}, 0, netip.Addr{}},
		{"is an address free", ask(netip.IPv6Unspecified(), solicitationOf("fd00:1::99")), silent, log.MAC{}, 0, netip.Addr{}},
		{"of what the log does not have", ask(own, solicitationOf("fd00:1::99")), unknown, log.MAC{}, 0, netip.Addr{}},
		{"of another network's link-local address", ask(own, solicitationOf(linkLocal(four.NIC).String())), unknown, log.MAC{}, 0, netip.Addr{}},
		{"of a group", ask(own, solicitationOf("ff02::1")), malformed, log.MAC{}, 0, netip.Addr{}},
		{"with another MAC inside", ask(own, appendMAC(solicitationOf("fd00:1::6"), optionSource, mac(0x26))), malformed, log.MAC{}, 0, netip.Addr{}},
		{"with a wrong checksum", wrongSum, malformed, log.MAC{}, 0, netip.Addr{}},
		{"from beyond the link", far, malformed, log.MAC{}, 0, netip.Addr{}},
		{"with an option that is cut", ask(own, cutOption), malformed, log.MAC{}, 0, netip.Addr{}},
		{"with an option without a length", ask(own, noOption), malformed, log.MAC{}, 0, netip.Addr{}},
		{"an advertisement", ask(own, append([]byte{neighbourAdvertisement}, solicitationOf("fd00:1::6")[1:]...)), silent, log.MAC{}, 0, netip.Addr{}},
	} {
		got := r.respond(c.asked, six)
		if got.outcome != c.want {
			t.Errorf("%s: %+v, want %d", c.name, got, c.want)
			continue
		}
		if got.outcome != answered {
			continue
		}
		f, _ := parseFrame(got.frame)
		p, ok := parseIPv6(f.payload)
		if !ok || checksum(p.pseudo(), p.payload) != 0 || p.hops != 255 || p.dst != c.dst || f.src != c.mac || order.Uint32(p.payload[4:]) != c.flags {
			t.Errorf("%s: answered by % x", c.name, got.frame)
		}
		if named, ok := macOption(p.payload[24:], optionTarget); !ok || named == nil || *named != c.mac || netip.AddrFrom16([16]byte(p.payload[8:24])) != p.src {
			t.Errorf("%s: answered by % x", c.name, got.frame)
		}
	}
}

// messageIn decodes an answer of DHCP, and says where it goes.
func messageIn(t *testing.T, got reply) (*dhcpv4.DHCPv4, string) {
	t.Helper()
	f, _ := parseFrame(got.frame)
	p, ok := parseIPv4(f.payload)
	if !ok || checksum(p.pseudo(), p.payload) != 0 {
		t.Fatalf("answered by % x", got.frame)
	}
	d, _ := parseUDP(p.payload)
	m, err := dhcpv4.FromBytes(d.payload)
	if err != nil || d.from != 67 || d.to != 68 || f.src != bridgeMAC {
		t.Fatalf("answered by % x: %v", got.frame, err)
	}
	return m, fmt.Sprintf("%s to %s at %s", m.MessageType(), p.dst, f.dst)
}

func TestDHCP(t *testing.T) {
	r, four, _ := guests(t)
	const own = "10.0.0.5 at 02:00:00:00:00:05"
	const all = "255.255.255.255 at ff:ff:ff:ff:ff:ff"
	wants := func(last byte) dhcpv4.Modifier {
		return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress([]byte{10, 0, 0, last}))
	}
	has := func(last byte) dhcpv4.Modifier { return dhcpv4.WithClientIP([]byte{10, 0, 0, last}) }
	server := func(last byte) dhcpv4.Modifier {
		return dhcpv4.WithOption(dhcpv4.OptServerIdentifier([]byte{169, 254, 0, last}))
	}
	relay := func(m *dhcpv4.DHCPv4) { m.GatewayIPAddr = []byte{10, 0, 0, 1} }
	another := func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = net.HardwareAddr{2, 0, 0, 0, 0, 6} }
	reply := func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootReply }
	flagged := func(m *dhcpv4.DHCPv4) { m.SetBroadcast() }
	discover, request := dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest
	type modifiers = []dhcpv4.Modifier
	for _, c := range []struct {
		name string
		kind dhcpv4.MessageType
		with modifiers
		want outcome
		text string
	}{
		{"discover", discover, nil, answered, "OFFER to " + own},
		{"discover with another wish", discover, modifiers{wants(9)}, answered, "OFFER to " + own},
		{"discover by broadcast", discover, modifiers{flagged}, answered, "OFFER to " + all},
		{"select", request, modifiers{wants(5), server(67)}, answered, "ACK to " + own},
		{"select another server", request, modifiers{wants(5), server(68)}, silent, ""},
		{"begin again", request, modifiers{wants(5)}, answered, "ACK to " + own},
		{"begin again with another address", request, modifiers{wants(6)}, answered, "NAK to " + all},
		{"renew or rebind", request, modifiers{has(5)}, answered, "ACK to " + own},
		{"renew another address", request, modifiers{has(6)}, answered, "NAK to " + all},
		{"request nothing", request, nil, malformed, ""},
		{"inform", dhcpv4.MessageTypeInform, modifiers{has(5)}, answered, "ACK to " + own},
		{"release", dhcpv4.MessageTypeRelease, modifiers{has(5), server(67)}, released, ""},
		{"decline", dhcpv4.MessageTypeDecline, modifiers{wants(5), server(67)}, declined, ""},
		{"through a relay", discover, modifiers{relay}, silent, ""},
		{"for another's MAC", discover, modifiers{another}, malformed, ""},
		{"an answer", discover, modifiers{reply}, malformed, ""},
		{"an offer", dhcpv4.MessageTypeOffer, nil, malformed, ""},
	} {
		got := r.dhcp(four.NIC, dhcpOf(four.NIC, c.kind, c.with...).ToBytes(), four)
		if got.outcome != c.want {
			t.Errorf("%s: %+v, want %d", c.name, got, c.want)
			continue
		}
		if got.frame == nil {
			continue
		}
		m, text := messageIn(t, got)
		if text != c.text {
			t.Errorf("%s: %s, want %s", c.name, text, c.text)
		}
		inform, nak := c.kind == dhcpv4.MessageTypeInform, strings.HasPrefix(text, "NAK")
		if leased := m.Options.Has(dhcpv4.OptionIPAddressLeaseTime) && m.YourIPAddr.Equal(net.IP{10, 0, 0, 5}); leased == (inform || nak) {
			t.Errorf("%s: %s", c.name, m.Summary())
		}
		if m.IPAddressRenewalTime(1) >= m.IPAddressRebindingTime(2) || m.IPAddressRebindingTime(2) >= m.IPAddressLeaseTime(3) && !inform && !nak {
			t.Errorf("%s: times %s", c.name, m.Summary())
		}
	}
	if got := r.dhcp(four.NIC, []byte{1, 1, 6}, four); got.outcome != malformed {
		t.Errorf("a message that is cut: %+v", got)
	}
}

// An answer keeps within what the client takes, and has the most important first.
func TestDHCPKeepsItsSize(t *testing.T) {
	r, four, _ := guests(t)
	for i := range 200 {
		four.Routes = append(four.Routes, desired.Route{Dst: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(i), 0}), 24), Gateway: ip("10.0.0.6")})
		four.Resolvers = append(four.Resolvers, ip("10.0.0.2"))
	}
	for takes, most := range map[int]int{0: dhcpLeast, 100: dhcpLeast, 800: 800, 1500: dhcpMost, 65535: dhcpMost} {
		var with []dhcpv4.Modifier
		if takes > 0 {
			with = append(with, dhcpv4.WithOption(dhcpv4.OptMaxMessageSize(uint16(takes))))
		}
		got := r.dhcp(four.NIC, dhcpOf(four.NIC, dhcpv4.MessageTypeDiscover, with...).ToBytes(), four)
		m, _ := messageIn(t, got)
		routes := m.ClasslessStaticRoute()
		if size := len(got.frame) - ethernetHeader; size > most || size < most-16 || !got.shortened {
			t.Errorf("to a client that takes %d: %d bytes, shortened %t", takes, size, got.shortened)
		}
		if len(m.DNS()) != maxResolvers || len(m.Router()) != 1 || len(routes) < 10 || !routes[1].Router.Equal(net.IP{10, 0, 0, 1}) || m.HostName() != "vm50" {
			t.Errorf("to a client that takes %d: %s", takes, m.Summary())
		}
	}
}

func TestDHCP6(t *testing.T) {
	r, _, six := guests(t)
	p := packet{src: linkLocal(six.NIC), dst: ip("ff02::1:2")}
	say := func(m *dhcpv6.Message) (outcome, string) {
		got := r.dhcp6(six.NIC, p, datagram{dhcp6ClientPort, dhcp6ServerPort, m.ToBytes()}, six)
		if got.frame == nil {
			return got.outcome, ""
		}
		f, _ := parseFrame(got.frame)
		is, ok := parseIPv6(f.payload)
		d, _ := parseUDP(is.payload)
		out, err := dhcpv6.MessageFromBytes(d.payload)
		if !ok || err != nil || checksum(is.pseudo(), is.payload) != 0 || is.dst != p.src || d.to != 546 || !out.Options.ServerID().Equal(dhcp6ServerID) {
			t.Fatalf("answered by % x", got.frame)
		}
		text := out.MessageType.String()
		for _, given := range out.Options.IANA() {
			for _, a := range given.Options.Addresses() {
				text += fmt.Sprintf(" %s for %s", a.IPv6Addr, a.ValidLifetime)
			}
			if s := given.Options.Status(); s != nil {
				text += " " + s.StatusCode.String()
			}
		}
		if s := out.Options.Status(); s != nil {
			text += " " + s.StatusCode.String()
		}
		for _, dns := range out.Options.DNS() {
			text += " dns " + dns.String()
		}
		return got.outcome, text
	}
	foreign := dhcp6Of(six.NIC, dhcpv6.MessageTypeRequest)
	foreign.AddOption(dhcpv6.OptServerID(&dhcpv6.DUIDLL{HWType: 1, LinkLayerAddr: six.NIC[:]}))
	rapid := dhcp6Of(six.NIC, dhcpv6.MessageTypeSolicit)
	rapid.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit})
	second := dhcp6Of(six.NIC, dhcpv6.MessageTypeRequest)
	second.AddOption(&dhcpv6.OptIANA{IaId: [4]byte{8}})
	many := dhcp6Of(six.NIC, dhcpv6.MessageTypeRequest)
	for i := range maxAssociations {
		many.AddOption(&dhcpv6.OptIANA{IaId: [4]byte{byte(i)}})
	}
	const given = " fd00:1::5 for 12h0m0s"
	for _, c := range []struct {
		asked *dhcpv6.Message
		want  outcome
		text  string
	}{
		{dhcp6Of(six.NIC, dhcpv6.MessageTypeSolicit), answered, "ADVERTISE" + given + " dns fd00:1::53"},
		{rapid, answered, "REPLY" + given + " dns fd00:1::53"},
		{dhcp6Of(six.NIC, dhcpv6.MessageTypeRequest, "fd00:1::5"), answered, "REPLY" + given + " dns fd00:1::53"},
		{dhcp6Of(six.NIC, dhcpv6.MessageTypeRenew, "fd00:1::5"), answered, "REPLY" + given + " dns fd00:1::53"},
		{dhcp6Of(six.NIC, dhcpv6.MessageTypeRebind, "fd00:1::7"), answered, "REPLY" + given + " fd00:1::7 for 0s dns fd00:1::53"},
		{second, answered, "REPLY" + given + " NoAddrsAvail dns fd00:1::53"},
		{many, malformed, ""},
		{dhcp6Of(six.NIC, dhcpv6.MessageTypeConfirm, "fd00:1::5"), answered, "REPLY Success dns fd00:1::53"},
		{dhcp6Of(six.NIC, dhcpv6.MessageTypeConfirm, "fd00:1::7"), answered, "REPLY NotOnLink dns fd00:1::53"},
		{dhcp6Of(six.NIC, dhcpv6.MessageTypeInformationRequest), answered, "REPLY dns fd00:1::53"},
		{dhcp6Of(six.NIC, dhcpv6.MessageTypeRelease, "fd00:1::5"), released, "REPLY Success"},
		{dhcp6Of(six.NIC, dhcpv6.MessageTypeDecline, "fd00:1::5"), declined, "REPLY Success"},
		{foreign, silent, ""},
		{dhcp6Of(six.NIC, dhcpv6.MessageTypeAdvertise), malformed, ""},
		{&dhcpv6.Message{MessageType: dhcpv6.MessageTypeSolicit}, malformed, ""},
	} {
		if got, text := say(c.asked); got != c.want || text != c.text {
			t.Errorf("%s: %d, %s, want %d, %s", c.asked.MessageType, got, text, c.want, c.text)
		}
	}
}
