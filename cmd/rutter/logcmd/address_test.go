package logcmd

import (
	"net/netip"
	"testing"

	"rutter/cmd/rutter/logcmd/internal/names"
	"rutter/log"
)

// TestHoldingOfAnIPObject: an address has an object of its own, whose fields
// change without a NIC.
func TestHoldingOfAnIPObject(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr("10.0.0.1")
	was := &log.IP{NetworkUUID: network, IP: addr, Reserved: true}
	is := &log.IP{NetworkUUID: network, IP: addr, BelongsToType: "other", BelongsToUUID: vm}
	for _, c := range []struct {
		action  log.Action
		object  *log.IP
		changed []log.FieldChange
		want    string
	}{
		{log.Create, was, nil, "created: ip object on network " + network.String() + ", reserved true"},
		{log.Update, is, log.Diff(was, is), "updated: ip object on network " + network.String() +
			", reserved :: true -> false, belongs_to_type \"other\", belongs_to_uuid \"" + vm.String() + `"`},
		{log.Delete, is, nil, "deleted: ip object on network " + network.String()},
	} {
		l := log.Line{Seq: 7, Event: &log.Event{Kind: log.KindIP, Action: c.action, ID: is.ID(), Actor: "napi", Object: c.object, Changed: c.changed}}
		h, ok := holdingOf(l, addr)
		if want := l.Event.Time.String() + " #7 10.0.0.1 " + c.want + "  by napi  change " + (log.UUID{}).String(); !ok || h.text(addr, names.None()) != want {
			t.Errorf("%s: got %v\n%s\nwant\n%s", c.action, ok, h.text(addr, names.None()), want)
		}
		if _, ok := holdingOf(l, netip.MustParseAddr("10.0.0.2")); ok {
			t.Errorf("%s: it is about another address too", c.action)
		}
	}
}

// TestHoldingOfANICThatMoves: an address changes hands also where the NIC keeps it.
func TestHoldingOfANICThatMoves(t *testing.T) {
	t.Parallel()
	addr, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	network2, vm2 := log.UUID{4}, log.UUID{5}
	nic := func(ip netip.Addr, network, vm log.UUID, state string) *log.NIC {
		return &log.NIC{MAC: mac, IP: ip, NetworkUUID: network, BelongsToUUID: vm, State: state}
	}
	was := nic(addr, network, vm, "running")
	for _, c := range []struct {
		name string
		is   *log.NIC
		want string // "": it did nothing with the address
	}{
		{"a state", nic(addr, network, vm, "stopped"), ""},
		{"a network", nic(addr, network2, vm, "running"), "moved: nic " + mac.String() + " of " + vm.String() + " on network " + network2.String() + ", from " + vm.String() + " on network " + network.String()},
		{"a vm", nic(addr, network, vm2, "running"), "moved: nic " + mac.String() + " of " + vm2.String() + " on network " + network.String() + ", from " + vm.String() + " on network " + network.String()},
		{"address and network", nic(other, network2, vm, "running"), "taken: nic " + mac.String() + " of " + vm.String() + " on network " + network.String()},
	} {
		l := log.Line{Seq: 7, Event: &log.Event{Kind: log.KindNIC, Action: log.Update, ID: was.ID(), Actor: "napi", Object: c.is, Changed: log.Diff(was, c.is)}}
		h, ok := holdingOf(l, addr)
		if ok != (c.want != "") {
			t.Errorf("%s: it did something with the address: %v", c.name, ok)
			continue
		}
		if want := l.Event.Time.String() + " #7 10.0.0.1 " + c.want + "  by napi  change " + (log.UUID{}).String(); ok && h.text(addr, names.None()) != want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, h.text(addr, names.None()), want)
		}
	}
}
