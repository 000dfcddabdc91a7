package desired_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/desired"
	"rutter/projections/internal/worldtest"
	"rutter/projections/rules"
)

// follow returns Touches of a CN that hear of each event of a world, and the links that
// they begin with.
func follow(w *worldtest.World, cn log.UUID, limits desired.Limits) (*desired.Touches, desired.Links) {
	held := desired.Within(w.State, cn, limits)
	limits.OnDemand = map[uint32]bool{}
	for _, v := range held.VXLANs {
		limits.OnDemand[v.VNet] = v.OnDemand
	}
	touches := desired.NewTouches(cn)
	touches.ResetWithin(limits)
	touches.Given(&held)
	objects := map[string]log.Object{}
	for _, kind := range []log.Kind{log.KindNIC, log.KindVM, log.KindNetwork} {
		for r := range w.State.List(kind) {
			objects[kind.String()+r.Object.ID()] = r.Object
		}
	}
	w.Seen = func(_ log.Seq, e *log.Event, _ projections.Delta) {
		key, after := e.Kind.String()+e.ID, e.Object
		if e.Action == log.Delete {
			after = nil
		}
		touches.Note(objects[key], after)
		objects[key] = after
	}
	return touches, held
}

// TestSecurityReachesItsLink: what a NIC's frames may be is of its link, and a change of it
// is a part of that link alone.
func TestSecurityReachesItsLink(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	touches, _ := follow(w, changetest.UUID(11), desired.Limits{})
	for field, want := range map[string]desired.Security{
		"allow_mac_spoofing": {AnyMAC: true}, "allow_ip_spoofing": {AnyIP: true}, "allow_dhcp_spoofing": {DHCPServer: true},
		"allow_restricted_traffic": {AnyTraffic: true}, "allow_unfiltered_promisc": {Promiscuous: true},
	} {
		for _, on := range []bool{true, false} {
			w.Must(fmt.Sprintf(`update nic 00:00:00:00:02:00 {"%s": %v}`, field, on))
			if !on {
				want = desired.Security{}
			}
			d := touches.Delta(w.State)
			if touches.Whole() || d.Part == nil || len(d.Part.Links.Fabrics) != 1 || d.Part.Links.Fabrics[0].Security != want {
				t.Errorf("%s %v: part %+v, whole %v", field, on, d.Part, touches.Whole())
			}
			if got := desired.Of(w.State, changetest.UUID(11)).Fabrics[0].Security; got != want {
				t.Errorf("%s %v: %+v", field, on, got)
			}
		}
	}
	w.Must(`update nic 00:00:00:00:02:00 {"allowed_ips": ["10.0.0.99"]}`)
	if d := touches.Delta(w.State); d.Part == nil || !slices.Equal(d.Part.Links.Fabrics[0].Allowed, []netip.Addr{netip.MustParseAddr("10.0.0.99")}) {
		t.Errorf("allowed_ips: part %+v", d.Part)
	}
	// Another node's NIC says nothing of the links here.
	w.Must(`update nic 00:00:00:00:02:01 {"allow_mac_spoofing": true}`)
	if d := touches.Delta(w.State); d.Part != nil || touches.Whole() {
		t.Errorf("of a NIC elsewhere: part %+v, whole %v", d.Part, touches.Whole())
	}
}

// TestAllowedIPsOfBefore: what was stored unread below version 5 gives a VM no more than
// the rules would.
func TestAllowedIPsOfBefore(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	w.State.SetFeature(log.FeaturePerNode)
	list := []string{`"224.0.0.1"`, `"0.0.0.0"`, `"10.0.0.99"`, `"10.0.0.99"`, `"fe80::1"`}
	for i := range 2 * log.MaxAllowedIPs {
		list = append(list, fmt.Sprintf(`"10.0.0.%d"`, 100+i))
	}
	w.Must(`create nic {"mac": "020000000001", ` + zoneNIC + `, "network_uuid": "#31#", "allowed_ips": [` + strings.Join(list, ", ") + `]}`)
	for _, f := range desired.Of(w.State, changetest.UUID(11)).Fabrics {
		if f.MAC[0] == 2 && (len(f.Allowed) != log.MaxAllowedIPs || f.Allowed[0] != netip.MustParseAddr("10.0.0.99") || f.Allowed[1] != netip.MustParseAddr("10.0.0.100")) {
			t.Errorf("%d are allowed: %v", len(f.Allowed), f.Allowed)
		}
	}
}

// TestBroadcastOnlyWhereAsked: a network that asks has broadcast on its own segment, and its
// vnet's frames for all go to the peers; another segment of the vnet has none.
func TestBroadcastOnlyWhereAsked(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	w.Must(`create network {"uuid": "#34#", "name": "more", "nic_tag": "overlay", "subnet": "10.4.0.0/24", "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10}`,
		`create nic {"mac": "020000000001", `+zoneNIC+`, "network_uuid": "#34#"}`)
	cn := changetest.UUID(11)
	touches, held := follow(w, cn, desired.Limits{})
	check := func(what string, flood, tagged, untagged bool) {
		t.Helper()
		d := touches.Delta(w.State)
		if touches.Whole() {
			t.Fatalf("%s: only the whole will do", what)
		}
		applyDelta(&held, d)
		now := desired.Of(w.State, cn)
		want := []desired.Segment{{VNet: 10, MTU: 1450, Broadcast: untagged}, {VNet: 10, VLAN: 2, MTU: 1446, Broadcast: tagged}}
		for _, l := range []desired.Links{held, now} {
			if !slices.Equal(l.Segments, want) || l.VXLANs[0].Flood != flood {
				t.Errorf("%s: segments %+v, flood %v; want %+v, %v", what, l.Segments, l.VXLANs[0].Flood, want, flood)
			}
		}
	}
	check("nothing", false, false, false)
	w.Must(`update network #31# {"broadcast": true}`)
	check("the tagged network", true, true, false)
	w.Must(`update network #34# {"broadcast": true}`)
	check("both", true, true, true)
	w.Must(`update network #31# {"broadcast": false}`)
	check("the untagged network", true, false, true)
	w.Must(`update network #34# {"broadcast": false}`)
	check("none", false, false, false)
	// The only link on a network that asks goes: the vnet has no broadcast left.
	w.Must(`update network #34# {"broadcast": true}`)
	check("again", true, false, true)
	w.Must(`delete nic 02:00:00:00:00:01 {}`)
	d := touches.Delta(w.State)
	if applyDelta(&held, d); !reflect.DeepEqual(d.Part.NoSegments, []desired.Segment{{VNet: 10}}) || held.VXLANs[0].Flood || len(held.Segments) != 1 {
		t.Errorf("without its link: part %+v, links %+v", d.Part, held)
	}
}

// TestBroadcastIsBounded: with one node more than MaxFlood a vnet carries no broadcast, which
// is a problem of the network that asks; with one less it does again.
func TestBroadcastIsBounded(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	w.Must(`update network #31# {"broadcast": true}`)
	nic := func(i int) string {
		return fmt.Sprintf(`create nic {"mac": "02000000%04x", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "cn_uuid": "%s", "network_uuid": "#31#"}`, i, changetest.UUID(uint64(1000+i)))
	}
	cn := changetest.UUID(11)
	var all []string
	for i := range desired.MaxFlood - 1 { // #12# is one
		all = append(all, nic(i+1))
	}
	w.Must(all...)
	touches, _ := follow(w, cn, desired.Limits{})
	is := func(want bool) {
		t.Helper()
		l := desired.Of(w.State, cn)
		told := slices.ContainsFunc(l.Problems, func(p desired.Problem) bool { return strings.Contains(p.Reason, "asks for broadcast") })
		if l.VXLANs[0].Flood != want || l.Segments[0].Broadcast != want || told == want {
			t.Errorf("broadcast %v and %v, told %v; want %v", l.VXLANs[0].Flood, l.Segments[0].Broadcast, told, want)
		}
	}
	is(true)
	w.Must(nic(desired.MaxFlood))
	is(false)
	if touches.Delta(w.State); !touches.Whole() {
		t.Error("a delta keeps broadcast over the limit")
	}
	touches, _ = follow(w, cn, desired.Limits{})
	w.Must(fmt.Sprintf(`delete nic 02:00:00:00:%02x:%02x {}`, desired.MaxFlood>>8, desired.MaxFlood&0xff))
	is(true)
	if touches.Delta(w.State); !touches.Whole() {
		t.Error("a delta keeps broadcast off within the limit")
	}
}

// TestPeersOnDemand: of a vnet on demand the peers are known ahead, follow NICs that come
// and go by a delta, and one address stays while one of two nodes has it.
func TestPeersOnDemand(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	w.Must(`create nic {"mac": "000000000102", "belongs_to_type": "server", "belongs_to_uuid": "#13#", "owner_uuid": "#1#", "network_uuid": "#30#", "ip": "192.168.0.30", "underlay": true}`,
		`create network {"uuid": "#36#", "name": "six", "nic_tag": "external", "subnet": "fd00:6::/64"}`,
		`create nic {"mac": "000000000103", "belongs_to_type": "server", "belongs_to_uuid": "#14#", "owner_uuid": "#1#", "network_uuid": "#36#", "underlay": true}`)
	cn := changetest.UUID(11)
	touches, held := follow(w, cn, desired.Limits{Entries: 1})
	second, third := netip.MustParseAddr("192.168.0.3"), netip.MustParseAddr("192.168.0.30")
	if want := []desired.Peer{{VNet: 10, Addr: second}}; !slices.Equal(held.Peers, want) || len(held.FDB) > 0 {
		t.Fatalf("peers %v, forwarding entries %v; want %v and none", held.Peers, held.FDB, want)
	}
	step := func(op string, came, went []netip.Addr) {
		t.Helper()
		w.Must(op)
		d := touches.Delta(w.State)
		of := func(list []desired.Peer) (all []netip.Addr) {
			for _, r := range list {
				all = append(all, r.Addr)
			}
			return all
		}
		if !slices.Equal(of(d.Peers), came) || !slices.Equal(of(d.NoPeers), went) {
			t.Errorf("%s: %v came and %v went, want %v and %v", op, d.Peers, d.NoPeers, came, went)
		}
		applyDelta(&held, d)
		if want := desired.Within(w.State, cn, desired.Limits{Entries: 1}).Peers; !slices.Equal(held.Peers, want) {
			t.Errorf("%s: peers %v, want %v", op, held.Peers, want)
		}
	}
	nic := func(mac, cn int) string {
		return fmt.Sprintf(`create nic {"mac": "0200000000%02x", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "cn_uuid": "#%d#", "network_uuid": "#31#"}`, mac, cn)
	}
	step(nic(1, 13), []netip.Addr{third}, nil)
	step(nic(2, 13), nil, nil)
	step(`delete nic 02:00:00:00:00:01 {}`, nil, nil)
	step(`update nic 02:00:00:00:00:02 {"cn_uuid": "#12#"}`, nil, []netip.Addr{third})
	step(`update nic 02:00:00:00:00:02 {"cn_uuid": "#13#"}`, []netip.Addr{third}, nil)
	moved := netip.MustParseAddr("192.168.0.31")
	step(`update nic 00:00:00:00:01:02 {"ip": "192.168.0.31"}`, []netip.Addr{moved}, []netip.Addr{third})
	step(nic(3, 14), nil, nil) // of the other family: a problem
	if !touches.Whole() {
		t.Error("a node that cannot be reached is no new problem")
	}
}
