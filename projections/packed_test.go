package projections

import (
	"bytes"
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/changetest"
)

// nicsOfEachField yields NICs that each have one field more than the last: also
// those that log.NIC will have one day.
func nicsOfEachField(t *testing.T, yield func(field string, n *log.NIC)) {
	n := &log.NIC{MAC: testMAC(1)}
	fields := reflect.ValueOf(n).Elem()
	for i := range fields.NumField() {
		field, name := fields.Field(i), fields.Type().Field(i).Name
		if !field.CanSet() {
			continue // what a newer program sent
		}
		switch value := field.Addr().Interface().(type) {
		case *log.MAC:
			continue
		case *log.UUID:
			*value = changetest.UUID(uint64(100 + i))
		case *netip.Addr:
			*value = addr("10.1.2.3")
		case *log.Addresses:
			*value = log.Addresses{addr("10.1.2.4")}
		case *[]string:
			*value = []string{"external"}
		default:
			switch {
			case field.CanInt():
				field.SetInt(int64(1000 + i))
			case field.CanUint():
				field.SetUint(uint64(1000 + i))
			case field.Kind() == reflect.String:
				field.SetString(fmt.Sprint("text ", i))
			case field.Kind() == reflect.Bool:
				field.SetBool(true)
			default:
				t.Fatalf("field %s: this test knows no %s, and packedNIC perhaps neither", name, field.Type())
			}
		}
		yield(name, log.Clone(n).(*log.NIC))
	}
}

// TestPackedKeepsAll: whatever a NIC says, it says after it was packed, bit by bit.
func TestPackedKeepsAll(t *testing.T) {
	encode := func(o log.Object) []byte {
		b, err := log.NewEncoder().Object(o)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Clone(b)
	}
	s, packed := NewSmallState(), 0
	see := func(what string, n *log.NIC) {
		if err := s.Load(Record{n, 1, 1}); err != nil {
			t.Fatal(err)
		}
		r := s.row(log.KindNIC, string(n.MAC[:]))
		if _, ok := r.obj.(*packedNIC); ok {
			packed++
		}
		if got := r.object(); !bytes.Equal(encode(got), encode(n)) {
			t.Errorf("%s: got %+v, want %+v", what, got, n)
		}
	}
	nicsOfEachField(t, see)
	nicsOfEachField(t, func(field string, n *log.NIC) {
		n.Underlay, n.NICTagsProvided = false, nil
		see("alone, "+field, n)
	})
	for _, text := range []string{"fd00::1", "::ffff:10.0.0.1", "fe80::1%eth0", "0.0.0.0", "::"} {
		see(text, &log.NIC{MAC: testMAC(2), IP: netip.MustParseAddr(text)})
	}
	if packed < 30 {
		t.Errorf("%d NICs were packed, want most", packed)
	}
}

// TestSmallStateSaysTheSame: a history ends in the same dump, sums and lookups in
// a small state as in any other, and nothing stays of what has gone.
func TestSmallStateSaysTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole, small := NewState(), NewSmallState()
		roll := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "roll") }
		for v := range 3 {
			for _, s := range []*State{whole, small} {
				if err := s.Load(Record{&log.Network{UUID: changetest.UUID(uint64(v)), Fabric: v > 0, VNetID: uint32(v)}, 1, log.Seq(v + 1)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := &log.NIC{
				MAC: testMAC(roll(6)), BelongsToType: []string{"zone", "server"}[roll(2)], BelongsToUUID: changetest.UUID(uint64(10 + roll(3))), NetworkUUID: changetest.UUID(uint64(roll(4))),
				CNUUID: []log.UUID{{}, changetest.UUID(uint64(20)), changetest.UUID(uint64(21))}[roll(3)], State: []string{"running", "stopped"}[roll(2)],
				IP: []netip.Addr{{}, addr("10.0.0.1"), addr("10.0.0.2"), addr("fd00::1")}[roll(4)], Underlay: roll(4) == 0,
			}
			for _, s := range []*State{whole, small} {
				if step%5 == 4 {
					s.Drop(log.KindNIC, n.ID())
				} else if err := s.Load(Record{n, 1, log.Seq(10 + step)}); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(whole.Dump(), small.Dump()) || whole.Sum() != small.Sum() {
				t.Fatalf("step %d: the small state has\n%s\nthe other\n%s", step, small.Dump(), whole.Dump())
			}
			sameLookups(t, whole, small)
		}
		for i := range 6 {
			small.Drop(log.KindNIC, testMAC(i).String())
		}
		if len(small.shapes) != 0 {
			t.Fatalf("%d shapes of NICs are left, and no NIC is", len(small.shapes))
		}
	})
}

func sameLookups(t *rapid.T, a, b *State) {
	for vnet := uint32(0); vnet < 4; vnet++ {
		for i := range 6 {
			x, ok := a.VL2(vnet, testMAC(i))
			if y, has := b.VL2(vnet, testMAC(i)); x != y || ok != has {
				t.Fatalf("VL2 %d %s: %v, %v and %v, %v", vnet, testMAC(i), x, ok, y, has)
			}
		}
		for _, ip := range []string{"10.0.0.1", "10.0.0.2", "fd00::1"} {
			m, x, ok := a.VL3(vnet, addr(ip))
			if n, y, has := b.VL3(vnet, addr(ip)); m != n || x != y || ok != has {
				t.Fatalf("VL3 %d %s: %s %v, %v and %s %v, %v", vnet, ip, m, x, ok, n, y, has)
			}
		}
	}
}

func testMAC(i int) log.MAC { return log.MAC{0x90, 0xb8, 0xd0, 0, 0, byte(i)} }
