package answer

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"golang.org/x/sys/unix"

	"rutter/log"
)

// raw is a VM whose root sends what it likes.
type raw struct {
	n      *node
	file   *os.File
	link   int
	buffer []byte
}

func (n *node) raw(vm string) *raw {
	n.t.Helper()
	r := &raw{n: n, buffer: make([]byte, frameBytes)}
	err := n.in(vm, func() error {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		r.link = link.Index
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(networkOrder(unix.ETH_P_ALL)))
		if err != nil {
			return err
		}
		r.file = os.NewFile(uintptr(fd), "raw")
		return unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { r.file.Close() })
	return r
}

func (r *raw) send(frame []byte) {
	r.n.t.Helper()
	if err := (&socket{r.file}).send(uint32(r.link), frame); err != nil && !errors.Is(err, unix.ENOBUFS) {
		r.n.t.Fatal(err)
	}
}

// reads returns the next frame that came, false if none came in time.
func (r *raw) reads(within time.Duration) ([]byte, bool) {
	_ = r.file.SetReadDeadline(time.Now().Add(within))
	size, err := r.file.Read(r.buffer)
	return r.buffer[:max(size, 0)], err == nil
}

// asks sends a request of ARP, again each second, until it is answered, as a kernel does.
// It returns how often.
func (r *raw) asks(src log.MAC, target string) (tries int) {
	r.n.t.Helper()
	asked := arpOf(arpRequest, src, "10.0.0.200", target).bytes()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		tries++
		r.send(asked)
		for again := time.Now().Add(time.Second); time.Now().Before(again); {
			b, ok := r.reads(time.Until(again))
			if f, _ := parseFrame(b); ok && f.kind == unix.ETH_P_ARP && len(f.payload) >= arpBytes && string(f.payload[14:18]) == string(ip(target).AsSlice()) {
				return tries
			}
		}
	}
	r.n.t.Fatalf("%s in vain asked %d times for %s; %+v", src, tries, target, r.n.answerer.Counters())
	return 0
}

// A VM that sends as another VM, where that is allowed, learns nothing: the answers go to
// the port of the NIC whose MAC it took, and to none on other segments.
func TestAskingAsAnother(t *testing.T) {
	if !inside(t) {
		return
	}
	n := newNode(t)
	evil, victim, elsewhere := n.raw("vm5"), n.raw("vm6"), n.raw("vm15")
	count := func(is func(Counters) uint64, by uint64, do func()) {
		t.Helper()
		before := is(n.answerer.Counters())
		do()
		n.eventually("the counter", func() bool { return is(n.answerer.Counters()) >= before+by })
	}
	quiet := func(r *raw, who string) {
		t.Helper()
		for {
			b, ok := r.reads(time.Millisecond)
			if !ok {
				return
			}
			f, _ := parseFrame(b)
			if f.kind == unix.ETH_P_ARP || f.kind == unix.ETH_P_IP || f.kind == unix.ETH_P_IPV6 && f.src != log.MAC(b[6:12]) {
				t.Errorf("%s got % x", who, b)
			}
		}
	}
	discover := udpFrame(toAll, mac(6), netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), dhcpOf(mac(6), dhcpv4.MessageTypeDiscover).ToBytes())
	count(func(c Counters) uint64 { return c.Answered[KindARP] + c.Answered[KindOffer] }, 2, func() {
		evil.send(arpOf(arpRequest, mac(6), "10.0.0.6", "10.0.0.1").bytes())
		evil.send(discover)
	})
	got := 0
	for range 20 {
		b, ok := victim.reads(patience)
		f, _ := parseFrame(b)
		if !ok {
			break
		}
		if f.kind == unix.ETH_P_ARP || f.kind == unix.ETH_P_IP {
			if got++; got == 2 {
				break
			}
		}
	}
	if got != 2 {
		t.Errorf("the VM whose MAC was taken got %d answers of 2", got)
	}
	quiet(evil, "the VM that took the MAC")
	// As a NIC of another vnet, as one of another node, and as none.
	count(func(c Counters) uint64 { return c.Strangers }, 3, func() {
		for _, as := range []log.MAC{mac(0x15), mac(1), mac(0x99)} {
			evil.send(arpOf(arpRequest, as, "10.0.0.5", "10.0.0.6").bytes())
		}
	})
	// A port that is still where its NIC was, before the log moved it.
	ports := append([]Port{{Index: n.ports[0].Index, Segment: n.segments[0].Index, MAC: mac(0x15)}}, n.ports...)
	n.answerer.Update(n.segments, ports)
	count(func(c Counters) uint64 { return c.Strangers }, 1, func() { evil.send(arpOf(arpRequest, mac(0x15), "10.0.0.5", "10.0.0.6").bytes()) })
	quiet(evil, "the VM that sent as others")
	quiet(elsewhere, "a VM of another vnet")
}

// What is no request does not reach the agent, and what breaks its protocol is counted.
func TestMalformed(t *testing.T) {
	if !inside(t) {
		return
	}
	n := newNode(t)
	evil := n.raw("vm5")
	from, to := netip.MustParseAddrPort("10.0.0.5:68"), netip.MustParseAddrPort("255.255.255.255:67")
	good := udpFrame(toAll, mac(5), from, to, dhcpOf(mac(5), dhcpv4.MessageTypeDiscover).ToBytes())
	fragment := append([]byte(nil), good...)
	fragment[ethernetHeader+6] = 0x20
	tagged := append(append(append([]byte(nil), good[:12]...), 0x81, 0, 0, 2), good[12:]...)
	other := udpFrame(toAll, mac(5), from, netip.MustParseAddrPort("255.255.255.255:53"), []byte("x"))
	for _, frame := range [][]byte{fragment, tagged, other, arpOf(arpReply, mac(5), "10.0.0.5", "10.0.0.6").bytes(), good[:20], append(good[:ethernetHeader:ethernetHeader], 0x45)} {
		evil.send(frame)
	}
	cut := udpFrame(toAll, mac(5), from, to, []byte{1, 1, 6, 0})
	lies := append([]byte(nil), good...)
	lies[ethernetHeader+ipv4Header+4] = 0xff // the length of the datagram
	evil.send(cut)
	evil.send(lies)
	evil.asks(mac(5), "10.0.0.6")
	if c := n.answerer.Counters(); c.Malformed != 2 || c.Answered[KindOffer] != 0 || c.Strangers != 0 {
		t.Errorf("%+v", c)
	}
}

// A VM that floods its node with requests does not keep another from its answers, and gets
// no more than its share itself.
func TestFloodDisturbsNoOther(t *testing.T) {
	if !inside(t) {
		return
	}
	n := newNode(t)
	evil, victim := n.raw("vm5"), n.raw("vm6")
	flood := arpOf(arpRequest, mac(5), "10.0.0.5", "10.0.0.1").bytes()
	var sent atomic.Int64
	ended := make(chan bool)
	go func() {
		defer close(ended)
		for tick := time.NewTicker(time.Millisecond); sent.Load() < 10_000; <-tick.C {
			for range 10 {
				evil.send(flood)
				sent.Add(1)
			}
		}
	}()
	asked, tries := 0, 0
	for sent.Load() < 10_000 {
		asked++
		tries += victim.asks(mac(6), "10.0.0.1")
		time.Sleep(time.Millisecond)
	}
	<-ended
	c := n.answerer.Counters()
	t.Logf("%d requests, %d sent, beside %d: %+v", asked, tries, sent.Load(), c)
	if c.Limited == 0 || tries > asked+asked/10+1 {
		t.Errorf("%d requests had to be sent %d times; %+v", asked, tries, c)
	}
}

// A bridge that goes, and comes back, does not disturb the others, and has its answers
// again; one that is only set down too, without an Update.
func TestBridgeComesBack(t *testing.T) {
	if !inside(t) {
		return
	}
	n := newNode(t)
	a, b := n.raw("vm5"), n.raw("vm15")
	n.sh("", "ip link set br10v2 down")
	n.eventually("the failure", func() bool { return n.answerer.Counters().Failed > 0 })
	b.asks(mac(0x15), "10.0.0.6")
	n.sh("", "ip link set br10v2 up")
	a.asks(mac(5), "10.0.0.6")

	n.sh("", "ip link del br10v2")
	n.eventually("the failure", func() bool { return n.answerer.Counters().Sockets == 2 })
	b.asks(mac(0x15), "10.0.0.6")
	n.sh("", "ip link add br10v2 type bridge; ip link set br10v2 up; ip link set port5 master br10v2; ip link set port6 master br10v2")
	n.segments[0].Index = n.index("br10v2")
	n.ports[0].Segment, n.ports[1].Segment = n.segments[0].Index, n.segments[0].Index
	n.update()
	a.asks(mac(5), "10.0.0.6")
	n.answerer.Update(nil, nil)
	n.eventually("that all is closed", func() bool { return n.answerer.Counters().Sockets == 0 })
}

// A VM's kernel learns its gateway, prefix and MTU from the router advertisement that it
// asks for, makes no address of the prefix, and gets the log's by DHCPv6.
func TestIPv6Guest(t *testing.T) {
	if !inside(t) {
		return
	}
	n := newNode(t)
	n.guard()
	n.sh("vm25", "ip link set eth0 down; echo 1 > /proc/sys/net/ipv6/conf/eth0/accept_ra; ip link set eth0 up")
	n.eventually("a default route", func() bool {
		return strings.Contains(n.sh("vm25", "ip -6 route show default"), "via "+linkLocal(mac(0x21)).String())
	})
	routes, addresses := n.sh("vm25", "ip -6 route"), n.sh("vm25", "ip -6 addr show dev eth0")
	if !strings.Contains(routes, "fd00:1::/64 dev eth0") || !strings.Contains(routes, "mtu 1446") || strings.Contains(addresses, "fd00:1:") {
		t.Errorf("routes\n%s\naddresses\n%s", routes, addresses)
	}
	n.eventually("a link-local address", func() bool {
		out := n.sh("vm25", "ip -6 addr show dev eth0 scope link")
		return strings.Contains(out, "fe80") && !strings.Contains(out, "tentative")
	})
	err := n.in("vm25", func() error {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		// A client's own socket, so the VM's kernel leaves checksums to the card.
		conn, err := net.ListenUDP("udp6", &net.UDPAddr{IP: linkLocal(mac(0x25)).AsSlice(), Port: dhcp6ClientPort, Zone: link.Name})
		if err != nil {
			return err
		}
		defer conn.Close()
		ask := func(m *dhcpv6.Message) (*dhcpv6.Message, error) {
			if _, err := conn.WriteTo(m.ToBytes(), &net.UDPAddr{IP: dhcpv6.AllDHCPRelayAgentsAndServers, Port: dhcp6ServerPort, Zone: link.Name}); err != nil {
				return nil, err
			}
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			b := make([]byte, frameBytes)
			size, _, err := conn.ReadFrom(b)
			if err != nil {
				return nil, err
			}
			return dhcpv6.MessageFromBytes(b[:size])
		}
		m, err := dhcpv6.NewSolicit(link.HardwareAddr)
		if err != nil {
			return err
		}
		offer, err := ask(m)
		if err != nil {
			return err
		}
		if m, err = dhcpv6.NewRequestFromAdvertise(offer); err != nil {
			return err
		}
		lease, err := ask(m)
		if err != nil {
			return err
		}
		if got := lease.Options.OneIANA().Options.OneAddress(); !got.IPv6Addr.Equal(net.ParseIP("fd00:1::5")) {
			t.Errorf("leased %s", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	n.address6("vm25", "fd00:1::5", 128)
	n.address6("vm26", "fd00:1::6", 64)
	n.pings("vm25", "fd00:1::6")
	// Without a request the advertisements come again.
	before := n.answerer.Counters().Answered[KindRouter]
	n.answerer.advertise()
	if c := n.answerer.Counters(); c.Answered[KindRouter] < before+2 || c.Unsent != 0 {
		t.Errorf("advertised to %d guests of 2; %+v", c.Answered[KindRouter]-before, c)
	}
}
