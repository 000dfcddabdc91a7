package underlay

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"rutter/cmd/rutter/netlab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A search finds the largest size that arrives; silence and loss are not taken for a
// narrow path.
func TestSearch(t *testing.T) {
	four, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::1")
	for _, c := range []struct {
		to                  netip.Addr
		most, carries, want uint32
	}{
		{four, 1500, 9000, 1500},
		{four, 1500, 1499, 1499},
		{four, 9000, 1450, 1450},
		{four, 1500, 576, 576},
		{four, 1500, 500, 0},
		{six, 1500, 1280, 1280},
		{six, 1500, 1279, 0},
		{four, 500, 9000, 500},
	} {
		tries := 0
		got, err := search(c.to, c.most, func(size uint32) (bool, error) { tries++; return size <= c.carries, nil })
		if got != c.want || err != nil || tries > 20 {
			t.Errorf("%d of %d to %s: found %d in %d tries, %v", c.carries, c.most, c.to, got, tries, err)
		}
	}
	first := true // the largest is lost once, by chance
	if got, _ := search(four, 1500, func(size uint32) (bool, error) {
		lost := size == 1500 && first
		first = first && size != 1500
		return !lost, nil
	}); got != 1500 {
		t.Errorf("one loss made the path %d", got)
	}
}

// A router in the middle drops what is too large for its link to the other VTEP. The probe
// finds what arrives, in both families, also where the router says nothing; the interface,
// the route and its MTU are those of the kernel.
func TestPathOverNarrowLink(t *testing.T) {
	if !netlab.Inside() {
		if os.Geteuid() != 0 {
			t.Skip("needs root: networks of its own")
		}
		cmd := netlab.Enter("-test.run=^TestPathOverNarrowLink$", "-test.v")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		if netlab.Forbidden(err) {
			t.Skip(netlab.ErrForbidden)
		}
		if t.Logf("%s", out.String()); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
		t.Fatal(err)
	}
	far, err := netlab.Create(t.TempDir(), "far")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = far.Delete() }()
	prefix := netip.MustParsePrefix
	// The near end may send 1500; the far end takes no packet of more than 1400, and drops
	// larger ones without a word, as a switch does.
	err = errors.Join(netlab.AddVeth("eth0", "eth0", far, 1500), netlab.SetUp("eth0", true), netlab.AddAddress("eth0", prefix("192.0.2.1/24")), netlab.AddAddress("eth0", prefix("fd00::1/64")),
		far.Do(func() error {
			return errors.Join(netlab.SetMTU("eth0", 1400), netlab.SetUp("eth0", true), netlab.AddAddress("eth0", prefix("192.0.2.2/24")), netlab.AddAddress("eth0", prefix("fd00::2/64")))
		}))
	if err != nil {
		t.Fatal(err)
	}
	from, to := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	link, peers, err := measure(from, []netip.Addr{to, netip.MustParseAddr("198.51.100.1")})
	if err != nil || link.Name != "eth0" || link.MTU != 1500 || !slices.Equal(peers, []peer{{to, 1500}, {netip.MustParseAddr("198.51.100.1"), 0}}) {
		t.Errorf("link %+v, peers %+v, %v", link, peers, err)
	}
	if _, _, err := measure(netip.MustParseAddr("192.0.2.9"), nil); !errors.Is(err, errNoLink) {
		t.Errorf("of an address that is not here: %v", err)
	}
	forgedNarrow(t, far, from, to)
	p, err := OpenProber()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.wait, p.pause = 200*time.Millisecond, time.Millisecond
	for _, c := range [][2]string{{"192.0.2.1", "192.0.2.2"}, {"fd00::1", "fd00::2"}} {
		got, err := p.Path(t.Context(), netip.MustParseAddr(c[0]), netip.MustParseAddr(c[1]), 1420)
		if err != nil || got != 1404 { // veth takes a VLAN tag more than its MTU (is_skb_forwardable)
			t.Errorf("the path to %s carries %d, %v", c[1], got, err)
		}
	}
	if got, err := p.Path(t.Context(), from, netip.MustParseAddr("192.0.2.77"), 1500); err != nil || got != 0 {
		t.Errorf("a VTEP that is silent: %d, %v", got, err)
	}
	forgedReplies(t, far, p, from, to)
}

// forgedNarrow: a host that says that a packet was too large, which it never saw, does not
// narrow the path.
func forgedNarrow(t *testing.T, far netlab.Namespace, from, to netip.Addr) {
	inner := slices.Concat([]byte{0x45, 0, 5, 220, 0, 1, 0x40, 0, 64, unix.IPPROTO_ICMP, 0, 0}, from.AsSlice(), to.AsSlice(), []byte{0, 0, 0, 0, 0, 1, 0, 1}) // of a reply that it never had
	raw, err := (&icmp.Message{Type: ipv4.ICMPTypeDestinationUnreachable, Code: 4, Body: &icmp.RawBody{Data: slices.Concat([]byte{0, 0, 2, 188}, inner)}}).Marshal(nil)
	if err != nil {
		t.Fatal(err)
	}
	k, err := openKernel()
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if err := far.Do(func() error { return send(raw, from) }); err != nil {
			t.Fatal(err)
		}
		if r, learned, err := k.ask(from, to, 0); err != nil || learned && r.MTU == 700 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the kernel did not learn the forged MTU: %+v", r)
		}
	}
	if r, err := k.route(from, to); err != nil || r.MTU != 0 || r.carries() != 1500 {
		t.Errorf("a forged ICMP packet made the route %+v, %v", r, err)
	}
}

func send(raw []byte, to netip.Addr) error {
	conn, err := net.DialIP("ip4:icmp", nil, &net.IPAddr{IP: to.AsSlice()})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write(raw)
	return err
}

// forgedReplies: replies with the right numbers, of a host that did not see the packets,
// are not taken.
func forgedReplies(t *testing.T, far netlab.Namespace, p *Prober, from, to netip.Addr) {
	if err := far.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/icmp_echo_ignore_all", []byte("1"), 0) }); err != nil {
		t.Fatal(err)
	}
	first := int(p.seq) + 1
	data := make([]byte, least4-ipv4.HeaderLen-echoHeader)
	copy(data, "rutter path MTU probe (docs/deploy.md, MTU)")
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- far.Do(func() error {
			for {
				for n := range probeTries {
					raw, err := (&icmp.Message{Type: ipv4.ICMPTypeEchoReply, Body: &icmp.Echo{ID: int(p.id), Seq: first + n, Data: data}}).Marshal(nil)
					if err = errors.Join(err, send(raw, from)); err != nil {
						return err
					}
				}
				select {
				case <-stop:
					return nil
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}()
	got, err := p.arrives(t.Context(), from, to, least4)
	close(stop)
	if err = errors.Join(err, <-done); err != nil || got {
		t.Errorf("a forged reply counts: %t, %v", got, err)
	}
}

// An MTU that changes to and fro is reported a few times, and then slowly.
func TestReportsArePaced(t *testing.T) {
	pace, sent, at := pace{left: reportBurst}, 0, time.Unix(1_700_000_000, 0)
	for range 3600 {
		if at = at.Add(time.Second); pace.take(at) {
			sent++
		}
	}
	if most := reportBurst + int(time.Hour/reportEvery); sent < most-2 || sent > most {
		t.Errorf("%d reports in an hour, want about %d", sent, most)
	}
}
