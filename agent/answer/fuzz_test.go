package answer

import (
	"net/netip"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"golang.org/x/sys/unix"

	"rutter/log"
	"rutter/projections/answers"
)

// bridgeMAC is that of the segment's bridge where there is none.
var bridgeMAC = log.MAC{6, 7, 8, 9, 10, 11}

// guests are the cloud's, one of each family.
func guests(t testing.TB) (r responder, four, six answers.Guest) {
	l := newCloud(t).log()
	four, a := l.Guest(mac(5))
	six, b := l.Guest(mac(0x25))
	if !a || !b {
		t.Fatal("the cloud does not have its guests")
	}
	return responder{l, bridgeMAC}, four, six
}

// sound checks what must hold of each reply: it goes to the guest, and an answer is a frame
// that its link carries.
func sound(t *testing.T, got reply, guest answers.Guest) {
	t.Helper()
	if got.frame == nil {
		if got.outcome == answered {
			t.Errorf("answered without a frame")
		}
		return
	}
	f, ok := parseFrame(got.frame)
	if !ok || len(f.payload) > int(guest.MTU) {
		t.Fatalf("a frame of %d bytes", len(got.frame))
	}
	if f.dst != guest.NIC && f.dst != toAll && f.dst != multicastMAC(allNodes) {
		t.Errorf("sent to %s", f.dst)
	}
	if f.src == guest.NIC || f.src.IsZero() {
		t.Errorf("sent from %s", f.src)
	}
}

func FuzzARP(f *testing.F) {
	r, four, _ := guests(f)
	f.Add(arpOf(arpRequest, four.NIC, "10.0.0.5", "10.0.0.6").payload)
	f.Add(arpOf(arpRequest, four.NIC, "0.0.0.0", "10.0.0.1").payload)
	f.Add(arpOf(arpReply, four.NIC, "10.0.0.5", "169.254.0.67").payload)
	f.Fuzz(func(t *testing.T, b []byte) {
		sound(t, r.respond(frame{toAll, four.NIC, unix.ETH_P_ARP, b}, four), four)
	})
}

// FuzzND gives messages of ICMPv6 a correct checksum.
func FuzzND(f *testing.F) {
	r, _, six := guests(f)
	f.Add(solicitationOf("fd00:1::6"), false)
	f.Add(appendMAC(solicitationOf("fd00:1::6"), optionSource, six.NIC), false)
	f.Add(solicitationOf("fd00:1::6"), true)
	f.Add(appendMAC([]byte{routerSolicitation, 0, 0, 0, 0, 0, 0, 0}, optionSource, six.NIC), false)
	f.Fuzz(func(t *testing.T, b []byte, probing bool) {
		if len(b) < 4 || len(b) > 1400 {
			return
		}
		from := linkLocal(six.NIC)
		if probing {
			from = netip.IPv6Unspecified()
		}
		asked, _ := parseFrame(icmpFrame(toAll, six.NIC, from, allNodes, append([]byte(nil), b...)))
		sound(t, r.respond(asked, six), six)
	})
}

func FuzzDHCP(f *testing.F) {
	r, four, _ := guests(f)
	for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform, dhcpv4.MessageTypeRelease} {
		f.Add(dhcpOf(four.NIC, kind, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress([]byte{10, 0, 0, 5})), dhcpv4.WithOption(dhcpv4.OptMaxMessageSize(1500))).ToBytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) { sound(t, r.dhcp(four.NIC, b, four), four) })
}

func FuzzDHCP6(f *testing.F) {
	r, _, six := guests(f)
	for _, kind := range []dhcpv6.MessageType{dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRelease} {
		f.Add(dhcp6Of(six.NIC, kind, "fd00:1::5").ToBytes())
	}
	p := packet{src: linkLocal(six.NIC)}
	f.Fuzz(func(t *testing.T, b []byte) {
		sound(t, r.dhcp6(six.NIC, p, datagram{dhcp6ClientPort, dhcp6ServerPort, b}, six), six)
	})
}

// FuzzFrame is of whole frames, so that the headers are altered.
func FuzzFrame(f *testing.F) {
	r, four, six := guests(f)
	discover := dhcpOf(four.NIC, dhcpv4.MessageTypeDiscover).ToBytes()
	solicit := dhcp6Of(six.NIC, dhcpv6.MessageTypeSolicit).ToBytes()
	f.Add(udpFrame(toAll, four.NIC, netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), discover))
	f.Add(udpFrame(toAll, six.NIC, netip.AddrPortFrom(linkLocal(six.NIC), 546), netip.MustParseAddrPort("[ff02::1:2]:547"), solicit))
	f.Add(icmpFrame(toAll, six.NIC, linkLocal(six.NIC), allNodes, solicitationOf("fd00:1::6")))
	f.Fuzz(func(t *testing.T, b []byte) {
		asked, ok := parseFrame(b)
		if !ok {
			return
		}
		for _, guest := range []answers.Guest{four, six} {
			asked.src = guest.NIC
			sound(t, r.respond(asked, guest), guest)
		}
	})
}
