package refusals

import (
	"net/netip"
	"testing"
	"time"
)

// TestCount: the first refusal of an address is reported at once, the next ones once in
// a period with their number; and addresses are bounded.
func TestCount(t *testing.T) {
	var c Counter
	at, now := netip.MustParseAddr("192.0.2.1"), time.Unix(1000, 0)
	for i, want := range []int{1, 0, 0, 3, 0} {
		if i == 3 {
			now = now.Add(Period)
		}
		if got := c.Count(at, now); got != want {
			t.Errorf("refusal %d: report %d, want %d", i, got, want)
		}
	}
	lines := 0
	for n := range 10 * maxAddresses {
		for range 2 {
			if c.Count(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), now) > 0 {
				lines++
			}
		}
	}
	if len(c.of) > maxAddresses+1 || lines > maxAddresses+1 {
		t.Errorf("%d addresses, %d lines", len(c.of), lines)
	}
	// Addresses that were refused after their line, and never again, make room too.
	now = now.Add(2 * Period)
	for i := range byte(2) {
		if c.Count(netip.AddrFrom4([4]byte{203, 0, 113, i}), now) != 1 || len(c.of) > maxAddresses {
			t.Errorf("another address in a later period: no line, %d addresses", len(c.of))
		}
	}
	now = now.Add(2 * Period)
	if c.Count(netip.MustParseAddr("192.0.2.2"), now); len(c.of) > maxAddresses {
		t.Errorf("%d addresses later", len(c.of))
	}
}
