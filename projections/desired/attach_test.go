package desired

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"rutter/log"
)

// TestAttachments: a tap is in no namespace and has nothing that is the guest's, and its
// addresses are those that it may send from. What is of other NICs stays.
func TestAttachments(t *testing.T) {
	tap, named, plain := log.MAC{2, 5: 1}, log.MAC{2, 5: 2}, log.MAC{2, 5: 3}
	addresses := []netip.Prefix{netip.MustParsePrefix("10.0.0.5/24")}
	of := func(mac log.MAC) Attach {
		return map[log.MAC]Attach{tap: {Tap: true, Name: "rt1", User: 7}, named: {Name: "eth0"}}[mac]
	}
	fabric := func(mac log.MAC) Fabric {
		return Fabric{
			MAC: mac, VNet: 5, MTU: 1400, Namespace: "z1", Addresses: addresses, Gateway: netip.MustParseAddr("10.0.0.1"),
			Routes: []Route{{}}, Resolvers: []netip.Addr{netip.MustParseAddr("10.0.0.2")},
		}
	}
	neigh := func(mac log.MAC) Neigh { return Neigh{Link: mac, IP: netip.MustParseAddr("10.0.0.9")} }
	all := func() Links {
		return Links{Fabrics: []Fabric{fabric(tap), fabric(named), fabric(plain)}, Neighs: []Neigh{neigh(tap), neigh(named), neigh(plain)}}
	}
	want := all()
	want.Fabrics[0] = Fabric{MAC: tap, VNet: 5, MTU: 1400, Addresses: addresses, Attach: of(tap)}
	want.Fabrics[1].Attach = of(named)
	want.Neighs = want.Neighs[1:]
	got := all()
	if got.Attach(of); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	d := LinksDelta{Part: &Part{Links: all()}, Neighs: all().Neighs, NoNeighs: all().Neighs}
	if d.Attach(of); !reflect.DeepEqual(d.Part.Links, want) || !reflect.DeepEqual(d.Neighs, want.Neighs) || !reflect.DeepEqual(d.NoNeighs, want.Neighs) {
		t.Errorf("of a delta: %+v", d)
	}
	before := all()
	for _, c := range DiffLinks(before, got) {
		if c.What == "fabric" && c.Key == tap.String() && !strings.Contains(c.After, "tap rt1 of user 7") || c.Key == named.String() && !strings.Contains(c.After, "device eth0") {
			t.Errorf("the difference: %+v", c)
		}
	}
}

// TestAttachIsChecked: what a source may say, and what is refused with a remedy.
func TestAttachIsChecked(t *testing.T) {
	for _, a := range []Attach{{}, {Name: "eth0"}, {Tap: true, Name: "rt90b8d0000001"}, {Tap: true, Name: "fifteen-letters", User: 64055}, {Name: "net0.7"}} {
		if err := a.Check(); err != nil {
			t.Errorf("%+v: %v", a, err)
		}
	}
	for _, a := range []Attach{
		{Tap: true},
		{Name: "sixteen-letters-"},
		{Name: "."},
		{Name: ".."},
		{Name: "a/b"},
		{Name: "a b"},
		{Name: "a:b"},
		{Name: "eth%d"},
		{Name: "eth0\n"},
		{Name: "größe"},
		{Name: "lo"},
		{Name: "all"},
		{Name: "default"},
		{Name: "eth0", User: 1},
		{Tap: true, Name: "tap0", User: NoUser},
	} {
		if err := a.Check(); err == nil {
			t.Errorf("%+v was accepted", a)
		}
	}
}
