package projections

import (
	"net/netip"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
)

// FuzzIDsOfPairs: an id of two parts that is read is written as it was, except for
// its usual form.
func FuzzIDsOfPairs(f *testing.F) {
	owner := changetest.UUID(1).String()
	for _, text := range []string{owner + ":0", owner + ":4094", owner + ":10.0.0.1", owner + ":fd00::1", owner + ":::ffff:10.0.0.1", owner + ":01", owner, ":", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if owner, vlan, err := parseVLANID(text); err == nil {
			key, _ := keyOf(log.KindFabricVLAN, log.FabricVLANID(owner, vlan))
			if again, err := keyOf(log.KindFabricVLAN, text); err != nil || again != key {
				t.Errorf("%q has key %x, its usual form %x, %v", text, again, key, err)
			}
		}
		if network, ip, err := ParseIPID(text); err == nil {
			key, _ := keyOf(log.KindIP, log.IPID(network, ip))
			if again, err := keyOf(log.KindIP, text); err != nil || again != key || ip.Is4In6() {
				t.Errorf("%q has key %x, its usual form %x, %v", text, again, key, err)
			}
		}
	})
}

// Keys of addresses order as the addresses do.
func TestKeysOfAddresses(t *testing.T) {
	a, b := keyOfIP(changetest.UUID(1), netip.MustParseAddr("10.0.0.9")), keyOfIP(changetest.UUID(1), netip.MustParseAddr("10.0.0.10"))
	if a >= b || b >= keyOfIP(changetest.UUID(1), netip.MustParseAddr("10.0.1.0")) || keyOfIP(changetest.UUID(2), netip.MustParseAddr("10.0.0.1")) <= b {
		t.Error("keys do not order as addresses")
	}
}

// TestUUIDKinds: the kinds that are found by a UUID are those whose ids are declared to
// be UUIDs.
func TestUUIDKinds(t *testing.T) {
	for _, kind := range log.Kinds() {
		if d := kind.Describe(); byUUID[kind] != (d.IDForm == log.IDUUID) {
			t.Errorf("%s: found by a UUID: %t, but its id has the form %d", kind, byUUID[kind], d.IDForm)
		}
	}
}
