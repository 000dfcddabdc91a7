package naming_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/naming"
)

func id(t testing.TB, text string) log.UUID {
	uuid, err := log.ParseUUID(text)
	if err != nil {
		t.Fatal(err)
	}
	return uuid
}

const (
	ownerA = "930896af-bf8c-48d4-885c-6573a94b1853"
	ownerB = "a30896af-bf8c-48d4-885c-6573a94b1853"
	cn1    = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"
	web    = "5595d88c-6e4d-4bda-b58e-97dd02e30001"
	web2   = "5595d88c-6e4d-4bda-b58e-97dd02e30002"
	thief  = "77777777-6e4d-4bda-b58e-97dd02e30003"
	blue   = "0e70de36-a40b-4ac0-9429-819f5ff82011"
	blueA  = "1e70de36-a40b-4ac0-9429-819f5ff82012"
	blueB  = "2e70de36-a40b-4ac0-9429-819f5ff82013"
)

// world has objects whose names are made to be mistaken.
func world(t testing.TB) *projections.State {
	s := projections.NewState()
	a, b := id(t, ownerA), id(t, ownerB)
	for i, o := range []log.Object{
		&log.Server{UUID: id(t, cn1), Hostname: "cn1", AdminIP: netip.MustParseAddr("10.99.0.1")},
		&log.Network{UUID: id(t, blue), Name: "ext", Subnet: netip.MustParsePrefix("10.1.0.0/24"), OwnerUUIDs: []log.UUID{a, b}},
		&log.Network{UUID: id(t, blueA), Name: "blue", Subnet: netip.MustParsePrefix("10.0.0.0/24"), OwnerUUIDs: []log.UUID{a}, Fabric: true, VNetID: 7},
		&log.Network{UUID: id(t, blueB), Name: "blue", Subnet: netip.MustParsePrefix("10.0.0.0/24"), OwnerUUIDs: []log.UUID{b}, Fabric: true, VNetID: 8},
		&log.VM{UUID: id(t, web), Alias: "web0", OwnerUUID: a, ServerUUID: id(t, cn1)},
		&log.VM{UUID: id(t, web2), Alias: "a b/c\x1b", OwnerUUID: a},
		&log.VM{UUID: id(t, thief), Alias: web, OwnerUUID: b}, // the UUID of another as its name
		&log.NIC{MAC: log.MAC{0x90, 0xb8, 0xd0, 0, 0, 1}, BelongsToType: "zone", BelongsToUUID: id(t, web), OwnerUUID: a, NetworkUUID: id(t, blueA), IP: netip.MustParseAddr("10.0.0.5")},
		&log.NIC{MAC: log.MAC{0x90, 0xb8, 0xd0, 0, 0, 2}, BelongsToType: "zone", BelongsToUUID: id(t, thief), OwnerUUID: b, NetworkUUID: id(t, blueB), IP: netip.MustParseAddr("10.0.0.5")},
		&log.NIC{MAC: log.MAC{0x90, 0xb8, 0xd0, 0, 0, 3}, BelongsToType: "server", BelongsToUUID: id(t, cn1), OwnerUUID: a, NetworkUUID: id(t, blue), IP: netip.MustParseAddr("10.1.0.9")},
		&log.NICTag{Name: "external"},
	} {
		if err := s.Load(projections.Record{Object: o, Revision: 1, Seq: log.Seq(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func ids(f naming.Found) string {
	var all []string
	for _, m := range f.Matches {
		all = append(all, m.ID+" by "+m.By)
	}
	return strings.Join(all, ", ")
}

// Each form of a name, in order: the whole id, the name, the address, the beginning.
func TestResolve(t *testing.T) {
	s := world(t)
	for _, c := range []struct {
		kind log.Kind
		text string
		want string
	}{
		{log.KindVM, web, web + " by id"}, // and not the VM with that alias
		{log.KindVM, strings.ToUpper(web), web + " by id"},
		{log.KindVM, "5595d88c-6e4d-4bda-b58e-97dd02e30009", ""},
		{log.KindVM, "web0", web + " by name"},
		{log.KindVM, "a b/c\x1b", web2 + " by name"},
		{log.KindVM, "WEB0", ""},
		{log.KindVM, "", ""},
		{log.KindVM, "10.1.0.9", ""}, // a server's
		{log.KindVM, "90:b8:d0:00:00:01", web + " by address"},
		{log.KindVM, "90b8d0000001", web + " by address"},
		{log.KindVM, "10.0.0.5", web + " by address, " + thief + " by address"},
		{log.KindVM, "::ffff:10.0.0.5", web + " by address, " + thief + " by address"},
		{log.KindVM, "5595", web + " by prefix, " + web2 + " by prefix"},
		{log.KindVM, "7777", thief + " by prefix"},
		{log.KindVM, "77777777-6e", thief + " by prefix"},
		{log.KindVM, "77777777-6E4D-4bda-b58e-97dd02e3000", thief + " by prefix"},
		{log.KindVM, "777777776e4d", thief + " by prefix"},
		{log.KindVM, "7777-7777", ""}, // a separator in the wrong place
		{log.KindVM, "777", ""},       // too short
		{log.KindVM, "7778", ""},
		{log.KindNetwork, "blue", blueA + " by name, " + blueB + " by name"},
		{log.KindNetwork, ownerA + "/blue", blueA + " by name"},
		{log.KindNetwork, ownerB + "/ext", blue + " by name"},
		{log.KindNetwork, cn1 + "/blue", ""},
		{log.KindNIC, "web0", "90:b8:d0:00:00:01 by name"},
		{log.KindNIC, "90-b8-d0-00-00-02", "90:b8:d0:00:00:02 by id"},
		{log.KindNIC, "90:b8:d0:00:00:09", ""},
		{log.KindNIC, "10.1.0.9", "90:b8:d0:00:00:03 by address"},
		{log.KindNIC, "90:b8", "90:b8:d0:00:00:01 by prefix, 90:b8:d0:00:00:02 by prefix, 90:b8:d0:00:00:03 by prefix"},
		{log.KindServer, "cn1", cn1 + " by name"},
		{log.KindServer, "10.99.0.1", cn1 + " by address"},
		{log.KindServer, "10.1.0.9", cn1 + " by address"},
		{log.KindServer, "564d69", cn1 + " by prefix"},
		{log.KindNICTag, "external", "external by id"},
		{log.KindNICTag, "ext", ""},
	} {
		if got := ids(naming.Resolve(s, []log.Kind{c.kind}, c.text, nil)); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.kind, c.text, got, c.want)
		}
	}
	if got := ids(naming.Resolve(s, naming.Kinds, "web0", nil)); got != web+" by name, 90:b8:d0:00:00:01 by name" {
		t.Errorf("of any kind: %s", got)
	}
}

// A tenant that names its VM like the beginning of another's UUID, its address or its MAC
// does not take what is meant for the other: the text then names both.
func TestNamesThatLookLikeIDs(t *testing.T) {
	for kind, texts := range map[log.Kind][]string{
		log.KindVM:      {"5595d88c-6e4d-4bda-b58e-97dd02e30001"[:35], "5595d88c6e4d4bdab58e97dd02e30001", "10.0.0.5", "90:b8:d0:00:00:01", "90b8d0000001"},
		log.KindNIC:     {"10.0.0.5", "90:b8:d0:00:00:0"},
		log.KindNetwork: {"0e70de36"},
		log.KindServer:  {"564d69b1", "10.99.0.1", "10.1.0.9"},
	} {
		for _, text := range texts {
			s := world(t)
			before := naming.Resolve(s, []log.Kind{kind}, text, nil).Matches
			if len(before) == 0 {
				t.Errorf("%s %q names nothing", kind, text)
			}
			a := id(t, ownerA)
			var attack log.Object
			switch kind {
			case log.KindServer:
				attack = &log.Server{UUID: id(t, "88888888-6e4d-4bda-b58e-97dd02e30003"), Hostname: text}
			case log.KindNetwork:
				attack = &log.Network{UUID: id(t, "88888888-6e4d-4bda-b58e-97dd02e30003"), Name: text, Subnet: netip.MustParsePrefix("10.7.0.0/24"), OwnerUUIDs: []log.UUID{a}}
			default:
				attack = &log.VM{UUID: id(t, thief), Alias: text, OwnerUUID: a}
			}
			if err := s.Load(projections.Record{Object: attack, Revision: 2, Seq: 90}); err != nil {
				t.Fatal(err)
			}
			after := naming.Resolve(s, []log.Kind{kind}, text, nil).Matches
			for _, m := range before {
				if !slices.ContainsFunc(after, func(n naming.Match) bool { return n.ID == m.ID }) {
					t.Errorf("%s %q names %s no more: %v", kind, text, m.ID, after)
				}
			}
			if len(after) < 2 {
				t.Errorf("%s %q is unique: %v", kind, text, after)
			}
		}
	}
	s := world(t)
	if err := s.Load(projections.Record{Object: &log.VM{UUID: id(t, thief), Alias: "external", OwnerUUID: id(t, ownerB)}, Revision: 2, Seq: 90}); err != nil {
		t.Fatal(err)
	}
	if got := ids(naming.Resolve(s, naming.Kinds, "external", nil)); !strings.Contains(got, thief) || !strings.Contains(got, "external by id") {
		t.Errorf("a VM named like a NIC tag: %s", got)
	}
}

// Who may not see an object does not learn of it: neither as a candidate, nor because a
// name is not unique.
func TestOnlyWhatIsSeen(t *testing.T) {
	s := world(t)
	b := id(t, ownerB)
	sees := func(o log.Object) bool {
		return slices.Contains(append(log.FieldTexts(o, "owner_uuid"), log.FieldTexts(o, "owner_uuids")...), b.String())
	}
	for text, want := range map[string]string{"10.0.0.5": thief + " by address", "90:b8:d0:00:00:01": "", "web0": "", web: "", "5595": ""} {
		if got := ids(naming.Resolve(s, []log.Kind{log.KindVM}, text, sees)); got != want {
			t.Errorf("VM %q: %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{"blue": blueB + " by name", ownerA + "/blue": "", "web0": "", "90b8": "90:b8:d0:00:00:02 by prefix"} {
		kind := log.KindNetwork
		if text == "90b8" || text == "web0" {
			kind = log.KindNIC
		}
		if got := ids(naming.Resolve(s, []log.Kind{kind}, text, sees)); got != want {
			t.Errorf("%s %q: %s, want %s", kind, text, got, want)
		}
	}
}

// An object that is renamed or deleted is not found by its old name, and many candidates
// are bounded.
func TestNamesFollowTheLog(t *testing.T) {
	s := world(t)
	kinds := []log.Kind{log.KindVM}
	if err := s.Load(projections.Record{Object: &log.VM{UUID: id(t, web), Alias: "web1"}, Revision: 2, Seq: 20}); err != nil {
		t.Fatal(err)
	}
	if old, now := ids(naming.Resolve(s, kinds, "web0", nil)), ids(naming.Resolve(s, kinds, "web1", nil)); old != "" || now != web+" by name" {
		t.Errorf("renamed: %q and %q", old, now)
	}
	for i := range 30 {
		if err := s.Load(projections.Record{Object: &log.VM{UUID: log.UUID{0: 0xee, 15: byte(i)}, Alias: "web1"}, Revision: 1, Seq: log.Seq(30 + i)}); err != nil {
			t.Fatal(err)
		}
	}
	if f := naming.Resolve(s, kinds, "web1", nil); len(f.Matches) != naming.MaxFound || !f.More {
		t.Errorf("%d of many, more: %t", len(f.Matches), f.More)
	}
	for i := range 30 {
		s.Drop(log.KindVM, log.UUID{0: 0xee, 15: byte(i)}.String())
	}
	if now := ids(naming.Resolve(s, kinds, "web1", nil)); now != web+" by name" {
		t.Errorf("after the others are gone: %q", now)
	}
	s.Drop(log.KindVM, web)
	if now := ids(naming.Resolve(s, kinds, "web1", nil)); now != "" {
		t.Errorf("deleted: %q", now)
	}
}

// A name costs microseconds among 100,000 VMs.
func BenchmarkResolve(b *testing.B) {
	s := world(b)
	for i := range 100_000 {
		vm := &log.VM{UUID: log.UUID{0: byte(i >> 16), 1: byte(i >> 8), 2: byte(i), 6: 0x40, 8: 0x80}, Alias: fmt.Sprintf("vm%d", i)}
		if err := s.Load(projections.Record{Object: vm, Revision: 1, Seq: log.Seq(100 + i)}); err != nil {
			b.Fatal(err)
		}
	}
	for _, text := range []string{"vm77777", "10.0.0.5", "012345", "nothing"} {
		b.Run(text, func(b *testing.B) {
			for b.Loop() {
				naming.Resolve(s, naming.Kinds, text, nil)
			}
		})
	}
}
