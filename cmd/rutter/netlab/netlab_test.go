package netlab

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"
)

// The tests run again inside namespaces of their own.
func TestMain(m *testing.M) { os.Exit(Run(m)) }

func TestPing(t *testing.T) {
	if !Inside() {
		t.Skip(ErrForbidden.Error())
	}
	dir := t.TempDir()
	a, err := Create(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Delete()
	v4, v6 := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")
	steps := []error{
		AddBridge("br0"),
		AddVeth("port0", "eth0", a, 1500),
		SetMaster("port0", "br0"),
		SetUp("port0", true),
		AddAddress("br0", netip.MustParsePrefix("192.0.2.1/24")),
		AddAddress("br0", netip.MustParsePrefix("2001:db8::1/64")),
		a.Do(func() error {
			return errors.Join(SetMAC("eth0", [6]byte{2, 0, 0, 0, 0, 1}), SetUp("eth0", true),
				AddAddress("eth0", netip.PrefixFrom(v4, 24)), AddAddress("eth0", netip.PrefixFrom(v6, 64)))
		}),
	}
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	for _, to := range []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")} {
		if rtt, err := a.Ping(to, 1400, 2*time.Second); err != nil || rtt <= 0 {
			t.Errorf("ping %s: %v, %v", to, rtt, err)
		}
	}
	if err := SetUp("port0", false); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Ping(netip.MustParseAddr("192.0.2.1"), 56, 200*time.Millisecond); !errors.Is(err, ErrNoReply) {
		t.Errorf("over a link that is down: got %v, want %v", err, ErrNoReply)
	}
	if err := DeleteLink("port0"); err != nil {
		t.Error(err)
	}
}

func TestChecksum(t *testing.T) {
	// RFC 1071, section 3: the sum of these words is ddf2.
	if got := checksum([]byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}); got != ^uint16(0xddf2) {
		t.Errorf("got %04x", got)
	}
}
