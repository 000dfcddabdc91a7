package filter

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rutter/cmd/rutter/netlab"
)

// pair is a node with a bridge, the port A that sends and the port B that receives.
type pair struct {
	*node
	a, b    *vm
	segment uint32
}

func newPair(t *testing.T) *pair {
	n := newNode(t)
	p := &pair{node: n, segment: n.bridge("br0")}
	p.a, p.b = n.vm("a", "br0", macA), n.vm("b", "br0", macB)
	eventually(t, "the bridge forwards", func() bool {
		p.a.send(ether(broadcast, macA, 0x88b5, []byte("there")))
		return received(p.b.sending, []byte("there"))
	})
	return p
}

func (p *pair) port() Port {
	return Port{Index: p.a.index, Name: p.a.host, MAC: macA, Addresses: []netip.Addr{ip4A, ip4A2, ip6A}}
}

func total(c map[Reason]Count) (n uint64) {
	for _, count := range c {
		n += count.Packets
	}
	return n
}

// outcome sends a frame of A, and returns why it was dropped: "" if B has it. Frames are known
// by what follows their ethertype, because B sees them without their outermost tag. (If the
// kernel gives what bridges forward to iptables, it cuts what follows an IP packet.)
func (p *pair) outcome(frame []byte) Reason {
	p.t.Helper()
	mark := frame[12:]
	for mark[0] == 0x81 && mark[1] == 0 || mark[0] == 0x88 && mark[1] == 0xa8 {
		mark = mark[4:]
	}
	mark = mark[2:]
	before := p.counters().Ports[p.a.index]
	p.a.send(frame)
	var reason Reason
	eventually(p.t, fmt.Sprintf("%x arrives or is counted", frame), func() bool {
		if received(p.b.sending, mark) {
			return true
		}
		after := p.counters().Ports[p.a.index]
		for r, count := range after {
			if count.Packets != before[r].Packets {
				reason = r
			}
		}
		return reason != ""
	})
	if after := p.counters().Ports[p.a.index]; reason != "" && total(after) != total(before)+1 {
		p.t.Errorf("one frame was counted so: %v, then %v", before, after)
	}
	return reason
}

// Each frame passes with the flags that allow it and with no other, and else is counted under
// its reason.
func TestFrames(t *testing.T) {
	p := newPair(t)
	for flag, name := range map[int]string{0: "none", anyMAC: "allow_mac_spoofing", anyIP: "allow_ip_spoofing", dhcp: "allow_dhcp_spoofing", traffic: "allow_restricted_traffic"} {
		port := p.port()
		port.AnyMAC, port.AnyIP, port.DHCPServer, port.AnyTraffic = flag == anyMAC, flag == anyIP, flag == dhcp, flag == traffic
		p.apply(Change{DelPort: port.Index}, Change{SetPort: &port})
		for _, c := range frameCases() {
			want := c.reason
			if flag == traffic && c.behind != "" {
				want = c.behind
			}
			if c.passes == always || c.passes&flag != 0 {
				want = ""
			}
			if want == ReasonMAC && flag == anyMAC {
				want = afterMAC[c.name]
			}
			if want == ReasonRouter && flag == dhcp {
				want = afterRouter[c.name]
			}
			if got := p.outcome(c.frame); got != want {
				t.Errorf("with %s: %s: dropped for %q, want %q", name, c.name, got, want)
			}
		}
	}
	c := p.counters()
	if len(c.Ports) != 1 || c.Ports[p.a.index][ReasonMAC].Bytes == 0 {
		t.Errorf("counters: %+v", c)
	}
	p.apply(Change{DelPort: p.a.index})
	if c := p.counters(); len(c.Ports) != 0 {
		t.Errorf("counters of a port that is gone: %+v", c)
	}
}

// afterRouter is what is wrong with router advertisements that a port may send.
var afterRouter = map[string]Reason{
	"ra/of a neighbour": ReasonIP, "ra/behind a header": ReasonND, "ra/behind two headers": ReasonND, "ra/in a fragment": ReasonND,
	"ra/in a first fragment behind a header": ReasonND, "tag/router": ReasonProtocol,
}

// afterMAC is what is wrong with frames besides their MAC.
var afterMAC = map[string]Reason{"frame/MAC comes before the address": ReasonIP}

// Without the rules the same frames arrive: it is the rules that drop them.
func TestFramesPassWithoutRules(t *testing.T) {
	p := newPair(t)
	for _, c := range frameCases() {
		if c.reason == "" || c.reason == ReasonIP && c.passes == never || strings.HasPrefix(c.name, "frame/") {
			continue // the kernel itself drops what is no sound IP packet, or the bridge does not forward it
		}
		if got := p.outcome(c.frame); got != "" {
			t.Errorf("%s: dropped for %q", c.name, got)
		}
	}
}

// A port may ask the answerer of the node so often and no more, and others are not concerned.
func TestRateOfRequests(t *testing.T) {
	p := newPair(t)
	port := p.port()
	other := Port{Index: p.b.index, Name: p.b.host, MAC: macB, Addresses: []netip.Addr{ip4B}}
	p.apply(Change{SetPort: &port}, Change{SetPort: &other})
	requests := [][]byte{
		ether(broadcast, macA, unix.ETH_P_ARP, arpBody(1, macA, ip4A, ip4B)),
		ether(macB, macA, unix.ETH_P_ARP, arpBody(1, macA, ip4A, ip4B)),
		ether(macB, macA, unix.ETH_P_IPV6, ipv6(ip6A, allNodes, 58, nd(neighborSolicit, ip6B))),
		ether(macB, macA, unix.ETH_P_IPV6, ipv6(linkA, allRouters, 58, icmpv6(routerSolicit, 0, 0, 0, 0))),
		ether(broadcast, macA, unix.ETH_P_IP, ipv4(none4, 17, 0, nil, udpTo(68, 67))),
		ether(macB, macA, unix.ETH_P_IP, ipv4(ip4A, 17, 0, nil, udpTo(68, 67))),
		ether(macB, macA, unix.ETH_P_IPV6, ipv6(linkA, allDHCP, 17, udpTo(546, 547))),
	}
	for i, frame := range requests {
		eventually(t, "too many requests are dropped", func() bool {
			before := p.counters().Ports[port.Index][ReasonRate].Packets
			for range requestBurst + 50 {
				p.a.send(frame)
			}
			return p.counters().Ports[port.Index][ReasonRate].Packets > before
		})
		if got := p.outcome(ether(macB, macA, unix.ETH_P_IP, ipv4(ip4A, 17, 0, nil, udpTo(1, 2)))); got != "" {
			t.Errorf("request %d: what is no request is dropped for %q", i, got)
		}
	}
	p.b.send(ether(broadcast, macB, unix.ETH_P_ARP, append(arpBody(1, macB, ip4B, ip4A), "of-another"...)))
	eventually(t, "another port's request arrives", func() bool { return received(p.a.sending, []byte("of-another")) })
	if c := p.counters(); len(c.Ports[other.Index]) != 0 {
		t.Errorf("the other port has drops: %v", c.Ports[other.Index])
	}
}

// What is for the bridge itself is dropped before the node's own stack, after packet sockets
// have seen it. Without the rules the node answers.
func TestNothingReachesTheNode(t *testing.T) {
	p := newPair(t)
	port := p.port()
	nodeIP := netip.MustParseAddr("10.0.0.1")
	p.do(func() error { return netlab.AddAddress("br0", netip.PrefixFrom(nodeIP, 24)) })
	p.apply(Change{SetPort: &port})
	ask := func(mark string) {
		p.a.send(ether(broadcast, macA, unix.ETH_P_ARP, append(arpBody(1, macA, ip4A, nodeIP), mark...)))
	}
	answer := nodeIP.AsSlice()
	eventually(t, "the node answers without a segment", func() bool {
		ask("first")
		return received(p.a.sending, answer)
	})
	var tap int
	p.do(func() (err error) { tap, err = packetSocket("br0"); return err })
	defer unix.Close(tap)
	p.apply(Change{SetSegment: &Segment{p.segment, "br0"}})
	for received(p.a.sending, answer) {
	}
	ask("second")
	eventually(t, "a packet socket sees the frame", func() bool { return received(tap, []byte("second")) })
	eventually(t, "it is counted", func() bool { return p.counters().Segments[p.segment].Packets >= 1 })
	if received(p.a.sending, answer) {
		t.Error("the node answered")
	}
}

// A frame to an address that bridges do not forward would come to the stack of the node by the
// host end, past the bridge and its rules.
func TestReservedMACsDoNotReachTheNode(t *testing.T) {
	p := newPair(t)
	var tap int
	p.do(func() (err error) {
		// Behind the bridge: it sees what the port's own stack receives.
		tap, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(binary.NativeEndian.Uint16([]byte{8, 0})))
		return err
	})
	defer unix.Close(tap)
	frame := func(mark string) []byte {
		return ether([6]byte{1, 0x80, 0xc2, 0, 0, 0xe}, macA, unix.ETH_P_IP, append(ipv4(ip4A, 17, 0, nil, udpTo(1, 2)), mark...))
	}
	p.a.send(frame("before"))
	eventually(t, "without rules it arrives", func() bool { return received(tap, []byte("before")) })
	port := p.port()
	port.AnyMAC, port.AnyIP, port.DHCPServer, port.AnyTraffic = true, true, true, true
	p.apply(Change{SetPort: &port})
	p.a.send(frame("after"))
	eventually(t, "with rules it is counted", func() bool { return p.counters().Ports[port.Index][ReasonProtocol].Packets == 1 })
}

// fill makes a set of the rules as full as it may be, with what is about other ports.
func (n *node) fill(s setDef) {
	n.t.Helper()
	for first := uint32(0); first < s.size; first += 8192 {
		var messages []message
		for i := first; i < min(first+8192, s.size); i++ {
			key := make([]byte, s.keyLen)
			copy(key, indexKey(i+1_000_000))
			e := elem{family: s.family, set: s.name, key: string(key)}
			messages = append(messages, e.message(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE))
		}
		n.other(messages...)
	}
}

func setNamed(family byte, name string) setDef {
	return sets[slices.IndexFunc(sets, func(s setDef) bool { return s.family == family && s.name == name })]
}

// What has no room in a set that is full is dropped all the same: frames without a counter, and
// requests of a port without an account.
func TestFullSetsLetNothingPass(t *testing.T) {
	p := newPair(t)
	port := p.port()
	p.apply(Change{SetPort: &port})
	p.fill(setNamed(bridge, setDrops))
	p.fill(setNamed(bridge, setRequests))
	p.a.send(ether(broadcast, macA, unix.ETH_P_IP, append(ipv4(ip4B, 17, 0, nil, udpTo(1, 2)), "spoofed"...)))
	p.a.send(ether(broadcast, macA, unix.ETH_P_ARP, append(arpBody(1, macA, ip4A, ip4B), "request"...)))
	p.a.send(ether(broadcast, macA, unix.ETH_P_IP, ipv4(ip4A, 17, 0, nil, udpTo(1, 2, []byte("own")...))))
	// Frames arrive in their order.
	var came []byte
	eventually(t, "what is the port's own arrives", func() bool {
		b := make([]byte, 2048)
		n, _, err := unix.Recvfrom(p.b.sending, b, 0)
		if err == nil {
			came = append(came, b[:n]...)
		}
		return bytes.Contains(came, []byte("own"))
	})
	if bytes.Contains(came, []byte("spoofed")) || bytes.Contains(came, []byte("request")) {
		t.Errorf("frames that are to be dropped arrived: %q", came)
	}
	if c := p.counters().Ports[port.Index]; len(c) != 0 {
		t.Errorf("the set was not full: %v", c)
	}
}

// Counters may be read beside everything else.
func TestCountersBesideChanges(t *testing.T) {
	n := newNode(t)
	done := make(chan error, 1)
	go func() {
		for range 100 {
			if _, err := n.k.Counters(context.Background()); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for i := range 100 {
		p := portNumber(1 + i%3)
		p.AnyIP = i%2 == 0
		n.apply(Change{SetPort: &p})
		n.read()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A guest with a link-local address of its own making (RFC 7217) asks with it whether a
// neighbour is still there. That is dropped, and the guest then asks with the address that it
// sends from: no packet is lost.
func TestOtherLinkLocalLosesNothing(t *testing.T) {
	p := newPair(t)
	ports := []Port{p.port(), {Index: p.b.index, Name: p.b.host, MAC: macB, Addresses: []netip.Addr{ip6B}}}
	p.apply(Change{SetPort: &ports[0]}, Change{SetPort: &ports[1]})
	for v, own := range map[*vm]netip.Addr{p.a: ip6A, p.b: ip6B} {
		err := v.ns.Do(func() error {
			const conf, neigh = "/proc/sys/net/ipv6/conf/fabric0/", "/proc/sys/net/ipv6/neigh/fabric0/"
			return errors.Join(
				writeSysctl(conf+"addr_gen_mode", "3"), writeSysctl(conf+"accept_dad", "0"), writeSysctl(conf+"disable_ipv6", "0"),
				writeSysctl(neigh+"base_reachable_time_ms", "1"), writeSysctl(neigh+"delay_first_probe_time", "0"),
				writeSysctl(neigh+"retrans_time_ms", "10"), netlab.AddAddress("fabric0", netip.PrefixFrom(own, 64)),
			)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the first answer", func() bool { _, err := p.a.ns.Ping(ip6B, 56, patience/30); return err == nil })
	eventually(t, "solicitations of the other link-local address are dropped", func() bool {
		if _, err := p.a.ns.Ping(ip6B, 56, patience); err != nil {
			t.Fatal(err)
		}
		return p.counters().Ports[p.a.index][ReasonND].Packets >= 10
	})
}
