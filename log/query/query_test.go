package query

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

func TestParse(t *testing.T) {
	const id = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"
	f, err := Parse(map[string][]string{
		"kind": {"nic,network"}, "action": {"update"}, "object": {"90-B8-D0-00-00-01", "external"}, "owner": {id}, "vnet": {"7"},
		"network": {id}, "cn": {strings.ToUpper(id)}, "ip": {"10.0.0.1"}, "actor": {"napi,cnapi"}, "path": {"gateway"},
		"since": {"2026-11-21T09:00:00Z"}, "until": {"42"}, "follow": {"1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.Kinds, []log.Kind{log.KindNIC, log.KindNetwork}) || !slices.Equal(f.Objects, []string{"90:b8:d0:00:00:01", "external"}) ||
		f.CNs[0].String() != id || f.UntilSeq != 42 || f.Since == 0 || len(f.Actors) != 2 || f.IsAll() {
		t.Errorf("got %+v", f)
	}
	if f, err := Parse(nil); err != nil || !f.IsAll() {
		t.Errorf("no parameters: %+v, %v", f, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ name, value, want string }{
		{"kind", "nics", "want one of nic_tag"},
		{"kind", "nic,", "a value is empty"},
		{"action", "remove", "want create, update or delete"},
		{"owner", "me", "want 36 characters"},
		{"vnet", "99999999", "a vnet is a number"},
		{"network", "blue", "want 36 characters"},
		{"cn", "1", "want 36 characters"},
		{"ip", "10.0.0", "is no address"},
		{"ip", "fe80::1%eth0", "is no address"},
		{"path", "Gateway", "is no name of a field"},
		{"since", "yesterday", "want RFC 3339"},
		{"since", "", "got"},
		{"until", "tomorrow", "want RFC 3339"},
		{"object", "", "a value is empty"},
		{"vnet", strings.Repeat("1,", MaxValues) + "1", "alternatives, over"},
	} {
		_, err := Parse(map[string][]string{test.name: {test.value}})
		var refused *ParameterError
		if !errors.As(err, &refused) || refused.Name != test.name || !strings.Contains(err.Error(), test.want) || refused.Remedy == "" {
			t.Errorf("%s=%s: %v, want a refusal with %q", test.name, test.value, err, test.want)
		}
	}
	if _, err := Parse(map[string][]string{"since": {"2026-11-21T09:00:00Z", "2026-11-21T09:00:00Z"}}); err == nil {
		t.Error("since given twice was taken")
	}
}

// naive is the meaning of a filter, computed from decoded events.
func naive(f *Filter, seq log.Seq, e *log.Event) bool {
	if f.UntilSeq > 0 && seq > f.UntilSeq || f.Until != 0 && e.Time > f.Until || e.Time < f.Since {
		return false
	}
	one := func(none bool, has bool) bool { return none || has }
	objects := []log.Object{e.Object}
	if before, err := log.Revert(e.Object, e.Changed); err == nil {
		objects = append(objects, before)
	}
	field := func(names map[log.Kind]string, want []string) bool {
		for _, o := range objects {
			value, _ := log.Field(o, names[o.Kind()])
			list, isList := value.([]string)
			if text, ok := value.(string); ok && !isList {
				list = []string{text}
			}
			if slices.ContainsFunc(list, func(s string) bool { return slices.Contains(want, s) }) {
				return true
			}
		}
		return false
	}
	texts := func(ids []log.UUID) (out []string) {
		for _, id := range ids {
			out = append(out, id.String())
		}
		return out
	}
	var addresses []string
	for _, a := range f.Addresses {
		addresses = append(addresses, a.String())
	}
	return one(f.Kinds == nil, slices.Contains(f.Kinds, e.Kind)) &&
		one(f.Actions == nil, slices.Contains(f.Actions, e.Action)) &&
		one(f.Objects == nil, slices.Contains(f.Objects, e.ID)) &&
		one(f.Actors == nil, slices.Contains(f.Actors, e.Actor)) &&
		one(f.VNets == nil, slices.ContainsFunc(f.VNets, func(n uint32) bool { return slices.Contains(e.Scopes, log.VNetScope(n)) })) &&
		one(f.CNs == nil, slices.ContainsFunc(f.CNs, func(id log.UUID) bool { return slices.Contains(e.Scopes, log.CNScope(id)) })) &&
		one(f.Paths == nil, slices.ContainsFunc(e.Changed, func(c log.FieldChange) bool { return slices.Contains(f.Paths, c.Path) })) &&
		one(f.Owners == nil, field(map[log.Kind]string{log.KindNIC: "owner_uuid", log.KindVM: "owner_uuid", log.KindNetwork: "owner_uuids"}, texts(f.Owners))) &&
		one(f.Networks == nil, field(map[log.Kind]string{log.KindNetwork: "uuid", log.KindNIC: "network_uuid"}, texts(f.Networks))) &&
		one(f.Addresses == nil, field(map[log.Kind]string{log.KindNIC: "ip", log.KindIP: "ip"}, addresses))
}

// Few values, so that filters and events meet.
var (
	someIDs   = []log.UUID{{1}, {2}, {3}}
	someAddrs = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::1")}
)

func drawID(t *rapid.T, what string) log.UUID { return rapid.SampledFrom(someIDs).Draw(t, what) }

func drawObject(t *rapid.T, kind log.Kind, id log.UUID) log.Object {
	none := func(id log.UUID) log.UUID {
		if rapid.Bool().Draw(t, "none") {
			return log.UUID{}
		}
		return id
	}
	switch kind {
	case log.KindNIC:
		return &log.NIC{
			MAC: log.MAC(id[:6]), OwnerUUID: none(drawID(t, "owner")), NetworkUUID: none(drawID(t, "network")),
			IP: rapid.SampledFrom(append(someAddrs, netip.Addr{})).Draw(t, "ip"), State: rapid.SampledFrom([]string{"running", "stopped"}).Draw(t, "state"),
		}
	case log.KindVM:
		return &log.VM{UUID: id, OwnerUUID: drawID(t, "owner"), Alias: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "alias")}
	case log.KindNetwork:
		n := &log.Network{UUID: id, Gateway: rapid.SampledFrom(someAddrs).Draw(t, "gateway")}
		for range rapid.IntRange(0, 2).Draw(t, "owners") {
			n.OwnerUUIDs = append(n.OwnerUUIDs, drawID(t, "owner"))
		}
		return n
	case log.KindNICTag:
		return &log.NICTag{Name: "tag" + id.String()[:2], UUID: id}
	}
	return &log.Unknown{OfKind: kind, Key: id.String()}
}

func drawEvent(t *rapid.T) *log.Event {
	kind := rapid.SampledFrom([]log.Kind{log.KindNIC, log.KindVM, log.KindNetwork, log.KindNICTag, 99}).Draw(t, "kind")
	id := drawID(t, "id")
	o := drawObject(t, kind, id)
	e := &log.Event{
		Kind: kind, Action: rapid.SampledFrom([]log.Action{log.Create, log.Update, log.Delete}).Draw(t, "action"), ID: o.ID(), Revision: 1,
		Time: log.Time(rapid.IntRange(1, 9).Draw(t, "time")), Actor: rapid.SampledFrom([]string{"napi", "cnapi", ""}).Draw(t, "actor"), Object: o,
	}
	if e.Action == log.Update {
		e.Changed = log.Diff(drawObject(t, kind, id), o)
	}
	if rapid.Bool().Draw(t, "scoped") {
		e.Scopes = []log.Scope{log.CNScope(drawID(t, "cn")), log.VNetScope(uint32(rapid.IntRange(1, 3).Draw(t, "vnet")))}
	}
	return e
}

func drawFilter(t *rapid.T) *Filter {
	f := new(Filter)
	maybe := func(what string, fn func()) {
		if rapid.IntRange(0, 3).Draw(t, what) == 0 {
			fn()
		}
	}
	ids := func(what string) []log.UUID {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(someIDs), 1, 2, rapid.ID).Draw(t, what)
	}
	maybe("kinds", func() {
		f.Kinds = []log.Kind{rapid.SampledFrom([]log.Kind{log.KindNIC, log.KindVM, log.KindNetwork, 99}).Draw(t, "k")}
	})
	maybe("actions", func() { f.Actions = []log.Action{log.Update, log.Delete} })
	maybe("objects", func() { f.Objects = []string{drawID(t, "object").String(), "01:00:00:00:00:00"} })
	maybe("owners", func() { f.Owners = ids("owners") })
	maybe("networks", func() { f.Networks = ids("networks") })
	maybe("cns", func() { f.CNs = ids("cns") })
	maybe("vnets", func() { f.VNets = []uint32{1, 2} })
	maybe("addresses", func() { f.Addresses = someAddrs[1:] })
	maybe("actors", func() { f.Actors = []string{"napi"} })
	maybe("paths", func() { f.Paths = []string{"gateway", "owner_uuid", "ip"} })
	maybe("since", func() { f.Since = 4 })
	maybe("until", func() { f.Until = 6 })
	maybe("until seq", func() { f.UntilSeq = 5 })
	return f
}

func TestMatchIsTheNaiveFilter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFilter(t)
		m := f.Matcher()
		for range 8 {
			e, seq := drawEvent(t), log.Seq(rapid.IntRange(1, 9).Draw(t, "seq"))
			b, err := log.NewEncoder().Event(e)
			if err != nil {
				t.Fatal(err)
			}
			got, err := m.Match(seq, b)
			if want := naive(f, seq, e); err != nil || (got == Hit) != want {
				t.Fatalf("filter %+v of #%d %+v (object %+v): %v, %v, want hit %v", f, seq, e, e.Object, got, err, want)
			}
			if past := f.UntilSeq > 0 && seq > f.UntilSeq || f.Until != 0 && e.Time > f.Until; past != (got == Past) {
				t.Fatalf("filter %+v of #%d at %d: %v, want past %v", f, seq, e.Time, got, past)
			}
		}
	})
}

func FuzzMatch(f *testing.F) {
	for _, e := range examples() {
		f.Add(e)
	}
	filter, err := Parse(map[string][]string{"owner": {log.UUID{1}.String()}, "path": {"gateway,ip"}, "ip": {"10.0.0.1"}, "vnet": {"1"}})
	if err != nil {
		f.Fatal(err)
	}
	some, all := filter.Matcher(), new(Filter).Matcher()
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := log.DecodeEvent(b); err != nil {
			_, _ = some.Match(1, b)
			return
		}
		if v, err := all.Match(1, b); v != Hit || err != nil {
			t.Errorf("the filter of all: %v, %v", v, err)
		}
		if _, err := some.Match(1, b); err != nil {
			t.Errorf("the decoder reads it, the matcher does not: %v", err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("kind", "nic,vm")
	f.Add("until", "9")
	f.Fuzz(func(t *testing.T, name, value string) {
		if _, err := Parse(map[string][]string{name: {value}}); err != nil && !errors.As(err, new(*ParameterError)) {
			t.Errorf("%s=%s: %v is no refusal", name, value, err)
		}
	})
}

// examples are encoded events as a cluster has them.
func examples() [][]byte {
	var out [][]byte
	id := log.UUID{1}
	nic := &log.NIC{
		MAC: log.MAC{0x90, 0xb8, 0xd0, 1, 2, 3}, BelongsToType: "zone", BelongsToUUID: id, OwnerUUID: log.UUID{2}, Primary: true, State: "running",
		Created: 1795251600123456789, Modified: 1795251600123456789, NetworkUUID: id, IP: someAddrs[0], CNUUID: id, Model: "virtio", NICTag: "sdc_overlay", VLANID: 2,
	}
	for _, e := range []*log.Event{
		{Kind: log.KindNIC, Action: log.Create, ID: nic.ID(), Object: nic},
		{Kind: log.KindNIC, Action: log.Update, ID: nic.ID(), Object: nic, Changed: []log.FieldChange{{Path: "ip", Old: "10.0.0.2"}, {Path: "state", Old: "stopped"}}},
		{Kind: log.KindNetwork, Action: log.Update, ID: id.String(), Object: &log.Network{UUID: id, OwnerUUIDs: someIDs, Gateway: someAddrs[1], Subnet: netip.MustParsePrefix("10.0.0.0/24")}, Changed: []log.FieldChange{{Path: "gateway", Old: "10.0.0.1"}}},
		{Kind: log.KindVM, Action: log.Delete, ID: id.String(), Object: &log.VM{UUID: id, OwnerUUID: id, Alias: "web0", State: "running"}},
	} {
		e.Revision, e.Time, e.Actor, e.ChangeID = 2, 1795251600123456789, "napi", id
		e.Scopes = []log.Scope{log.CNScope(id), log.VNetScope(4385813)}
		b, err := log.NewEncoder().Event(e)
		if err != nil {
			panic(err)
		}
		out = append(out, b)
	}
	return out
}

func BenchmarkMatch(b *testing.B) {
	events := examples()
	for _, test := range []struct{ name, parameter, value string }{
		{"kind", "kind", "vmm"},
		{"vnet", "vnet", "7"},
		{"owner", "owner", log.UUID{9}.String()},
		{"path", "path", "mtu"},
		{"ip", "ip", "10.9.9.9"},
	} {
		b.Run(test.name, func(b *testing.B) {
			f, err := Parse(map[string][]string{test.parameter: {test.value}})
			if err != nil {
				b.Fatal(err)
			}
			m := f.Matcher()
			b.ReportAllocs()
			seq := log.Seq(0)
			for b.Loop() {
				seq++
				if v, err := m.Match(seq, events[int(seq)%len(events)]); v != Miss || err != nil {
					b.Fatal(v, err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// If the log's time was set back at a seq, an entry later than until ends a reading
// only behind that seq. Before it, entries that are earlier than until may follow.
func TestUntilWhereTimeWasSet(t *testing.T) {
	t.Parallel()
	f := &Filter{Until: 1795251600123456788, TimeSet: 10} // the examples are of 1 ns later
	m := f.Matcher()
	for seq, want := range map[log.Seq]Verdict{1: Miss, 9: Miss, 10: Miss, 11: Past, 100: Past} {
		if got, err := m.Match(seq, examples()[0]); got != want || err != nil {
			t.Errorf("seq %d: %v, %v, want %v", seq, got, err, want)
		}
	}
}
