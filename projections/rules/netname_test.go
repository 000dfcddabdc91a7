package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/internal/worldtest"
)

// plainNamed creates a network of a name that is no fabric's.
func plainNamed(n int, name string) string {
	return fmt.Sprintf(`create network {"uuid": "#%d#", "name": "%s", "nic_tag": "external", "subnet": "10.%d.0.0/24"}`, n, name, n)
}

// fabricNamed creates a fabric network of a name and an owner.
func fabricNamed(n, owner int, name string) string {
	return fmt.Sprintf(`create network {"uuid": "#%d#", "name": "%s", "nic_tag": "overlay", "fabric": true, "owner_uuids": ["#%d#"], "subnet": "10.%d.0.0/24"}`, n, name, owner, n)
}

const inUse = "InvalidParameters: name is in use by another network"

// TestNetworkNames: from feature version 6 on no network takes another's name, in the cloud
// or among an owner's fabrics, by a create or a new name; a log with duplicates works on.
func TestNetworkNames(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	w.State.SetFeature(log.FeatureWire)
	w.Must(plainNamed(50, "admin"), plainNamed(51, "admin"), fabricNamed(52, 1, "one"), fabricNamed(53, 2, "one")) // as before
	w.State.SetFeature(log.FeatureTriton)
	w.Must(`update network #51# {"description": "still here", "name": "admin"}`)
	for _, c := range []struct{ op, want string }{
		{plainNamed(54, "admin"), inUse},
		{plainNamed(54, "underlay"), inUse},
		{fabricNamed(54, 1, "one"), inUse},
		{`update network #30# {"name": "admin"}`, inUse},
		{`update network #51# {"name": "underlay"}`, inUse},
		{fabricNamed(53, 2, "one"), "uuid: Already exists"}, // the same network again: of it the id is told
		{fabricNamed(54, 3, "one"), ""},                     // another owner's
		{fabricNamed(55, 1, "admin"), ""},                   // no plain network's
		{plainNamed(56, "one"), ""},                         // no fabric's
		{`update network #50# {"name": "free"}`, ""},
		{`update network #51# {"name": "free"}`, inUse},
		{`update network #50# {"name": "admin"}`, inUse}, // the other keeps it
		{`delete network #51#`, ""},
		{`update network #50# {"name": "admin"}`, ""},
	} {
		refusal := w.Try(w.Change(changetest.Op(t, c.op))).Refusal
		if c.want == "" && refusal != nil || c.want != "" && (refusal == nil || !strings.Contains(refusal.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.op, refusal, c.want)
		}
		if c.want == inUse && refusal != nil && (len(refusal.Errors) != 1 || refusal.Errors[0].Code != log.ElementDuplicate || refusal.Errors[0].Field != "name") {
			t.Errorf("%s: %+v", c.op, refusal.Errors)
		}
	}
	// Within one change a name is free once its network has given it up, and taken at once.
	w.Must(`update network #50# {"name": "old"}`, plainNamed(60, "admin"))
	if r := w.Try(w.Change(changetest.Op(t, plainNamed(61, "new")), changetest.Op(t, plainNamed(62, "new")))).Refusal; r == nil || r.Errors[0].Field != "ops.1.name" {
		t.Errorf("twice in one change: %v", r)
	}
}

// TestAdminNetwork: a second network of the name admin, in a log of before version 6, takes
// nothing over, whatever its UUID: neither a fabric's nor one on another tag, nor one that no
// server has a NIC on.
func TestAdminNetwork(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	w.State.SetFeature(log.FeatureWire)
	admin := func(n int, tag string) string {
		return fmt.Sprintf(`create network {"uuid": "#%d#", "name": "admin", "nic_tag": "%s", "subnet": "10.%d.0.0/24"}`, n, tag, n)
	}
	is := func(n uint64) {
		t.Helper()
		r, ok := w.State.AdminNetwork()
		if want := changetest.UUID(n).String(); n == 0 && ok || n != 0 && (!ok || r.Object.ID() != want) {
			t.Errorf("the admin network is %+v, want %s", r.Object, want)
		}
	}
	is(0)
	w.Must(fabricNamed(40, 1, "admin"))
	is(0)
	w.Must(admin(44, "external"))
	is(44)
	w.Must(`create nic_tag {"name": "admin"}`, admin(48, "admin"))
	is(48)
	w.Must(admin(49, "admin")) // the older one, by the log's order
	is(48)
	w.Must(`update network #48# {"description": "changed since"}`)
	w.Must(`create nic {"mac": "000000000901", "belongs_to_type": "server", "belongs_to_uuid": "#11#", "owner_uuid": "#1#", "network_uuid": "#48#"}`)
	is(48) // changed since, but servers are on it
	w.Must(admin(41, "admin"), admin(42, "external"), `update network #49# {"name": "other"}`)
	is(48)
	w.Must(`delete nic 000000000901`, `delete network #48#`)
	is(41)
}

// TestGatewayProvisioned: a fabric network says whether a NIC has its gateway's address, in
// the change of the NIC, and no client says it. VMAPI makes a NAT zone of it.
func TestGatewayProvisioned(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	is := func(what string, want bool, events int) {
		t.Helper()
		r, _ := w.State.Get(log.KindNetwork, changetest.UUID(31).String())
		if got := r.Object.(*log.Network).GatewayProvisioned; got != want {
			t.Errorf("%s: gateway_provisioned is %t", what, got)
		}
		last := w.Events[len(w.Events)-1]
		if events > 0 && (last.Kind != log.KindNetwork || last.ChangeID != w.Events[len(w.Events)-events].ChangeID || last.Changed[0].Path != "gateway_provisioned") {
			t.Errorf("%s: the last event is %+v", what, last)
		}
	}
	const gateway = `create nic {"mac": "000000000901", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "#31#", "ip": "10.0.0.1"}`
	is("at first", false, 0)
	w.Must(gateway)
	is("with a NIC at the gateway", true, 2)
	w.Must(`update network #31# {"gateway_provisioned": true, "description": "as it is"}`)
	if r := w.Try(w.Change(changetest.Op(t, `update network #31# {"gateway_provisioned": false}`))).Refusal; r == nil || !strings.Contains(r.Error(), "gateway_provisioned: Network updates for this field are not supported") {
		t.Errorf("a client's word: %v", r)
	}
	w.Must(`update nic 000000000901 {"ip": "10.0.0.77"}`)
	is("when the NIC has another address", false, 2)
	w.Must(`update nic 000000000901 {"ip": "10.0.0.1"}`, `update nic 000000000901 {"state": "running"}`)
	is("when it is back, in a change that goes on", true, 0)
	w.Must(`delete nic 000000000901`, gateway) // two events of the network in one change
	is("gone and made again", true, 2)
	w.Must(`update network #31# {"gateway": "10.0.0.200"}`)
	is("with another gateway", false, 0)
	w.Must(`update network #31# {"gateway": "10.0.0.1"}`)
	is("with the gateway again", true, 0)
	w.Must(`create network {"uuid": "#50#", "name": "beside", "nic_tag": "overlay", "fabric": true, "owner_uuids": ["#1#"], "subnet": "10.7.0.0/24",
		"gateway": "10.7.0.1", "gateway_provisioned": true}`)
	if r, _ := w.State.Get(log.KindNetwork, changetest.UUID(50).String()); r.Object.(*log.Network).GatewayProvisioned {
		t.Error("a client's word of a new network is taken")
	}
	w.Must(`update nic 000000000901 {"network_uuid": "#50#", "ip": "10.7.0.1"}`) // both networks say it
	is("on another network", false, 0)
	if r, _ := w.State.Get(log.KindNetwork, changetest.UUID(50).String()); !r.Object.(*log.Network).GatewayProvisioned {
		t.Error("the other network does not say that its gateway has come")
	}
	w.Must(`delete nic 000000000901`)
	// A plain network never says it.
	w.Must(`create nic {"mac": "000000000902", "belongs_to_type": "server", "belongs_to_uuid": "#12#", "owner_uuid": "#1#", "network_uuid": "#30#", "ip": "192.168.0.1"}`)
	if r, _ := w.State.Get(log.KindNetwork, changetest.UUID(30).String()); r.Object.(*log.Network).GatewayProvisioned {
		t.Error("a plain network says gateway_provisioned")
	}
}

// TestStaleGateway: what a log of before version 6, or an import into it, says wrong of a
// gateway is put right by the next change of the network, also one that says nothing, or of
// any NIC of it, and by nothing before.
func TestStaleGateway(t *testing.T) {
	for what, mend := range map[string]string{
		"a NIC": `create nic {"belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "network_uuid": "#31#"}`,
		"a NIC that changes nothing but its state": `update nic 000000000200 {"state": "running"}`,
		"the network":          `update network #31# {"description": "touched"}`,
		"an update of nothing": `update network #31# {}`,
	} {
		for _, stale := range []bool{false, true} {
			w := worldtest.Settled(t, Decide)
			w.State.SetFeature(log.FeatureWire)
			if !stale {
				w.Must(`create nic {"mac": "000000000901", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "#31#", "ip": "10.0.0.1"}`)
			} else {
				before, _ := w.State.Get(log.KindNetwork, changetest.UUID(31).String())
				wrong := log.Clone(before.Object).(*log.Network)
				wrong.GatewayProvisioned = true
				if err := w.State.Load(projections.Record{Object: wrong, Revision: before.Revision, Seq: before.Seq}); err != nil {
					t.Fatal(err)
				}
			}
			is := func() bool {
				r, _ := w.State.Get(log.KindNetwork, changetest.UUID(31).String())
				return r.Object.(*log.Network).GatewayProvisioned
			}
			w.State.SetFeature(log.FeatureTriton)
			if is() != stale {
				t.Errorf("%s: it was %t before", what, is())
			}
			if w.Must(mend); is() == stale {
				t.Errorf("%s: still %t", what, stale)
			}
		}
	}
}

// nameOp draws an operation that matters to names and gateways.
func nameOp(t *rapid.T) log.Op {
	network := worldtest.DrawUUID(t, 30, 5, "network")
	ip := netip.AddrFrom4([4]byte{10, network[15], 0, byte(1 + worldtest.Even(t, 5, "host"))})
	name := rapid.SampledFrom([]string{"a", "b", "admin"}).Draw(t, "name")
	mac := log.MAC{5: byte(1 + worldtest.Even(t, 6, "mac"))}
	switch worldtest.Even(t, 9, "op") {
	case 0, 1:
		n := &log.Network{UUID: network, Name: name, NICTag: "one", Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, network[15], 0, 0}), 28)}
		if worldtest.Even(t, 3, "fabric") > 0 {
			n.Fabric, n.OwnerUUIDs, n.GatewayProvisioned = true, []log.UUID{worldtest.DrawUUID(t, 1, 2, "owner")}, worldtest.Even(t, 2, "says") > 0
			n.Gateway = ip
		}
		return log.Op{Action: log.Create, Kind: log.KindNetwork, Set: []string{"name"}, Object: n}
	case 2:
		return log.Op{Action: log.Update, Kind: log.KindNetwork, ID: network.String(), Set: []string{"name"}, Object: &log.Network{Name: name}}
	case 3:
		n := &log.Network{Gateway: ip}
		if worldtest.Even(t, 4, "none") == 0 {
			n.Gateway = netip.Addr{}
		}
		return log.Op{Action: log.Update, Kind: log.KindNetwork, ID: network.String(), Set: []string{"gateway"}, Object: n}
	case 4, 5:
		return log.Op{Action: log.Create, Kind: log.KindNIC, Set: []string{"mac"}, Object: &log.NIC{
			MAC: mac, BelongsToType: rapid.SampledFrom([]string{"zone", "other"}).Draw(t, "type"), BelongsToUUID: changetest.UUID(21),
			OwnerUUID: changetest.UUID(1), CNUUID: changetest.UUID(11), NetworkUUID: network, IP: ip,
		}, Options: []log.Option{log.OptionAnyOwner}}
	case 6:
		return log.Op{Action: log.Update, Kind: log.KindNIC, ID: mac.String(), Set: []string{"ip", "network_uuid"}, Object: &log.NIC{NetworkUUID: network, IP: ip}, Options: []log.Option{log.OptionAnyOwner}}
	case 7:
		return log.Op{Action: log.Delete, Kind: log.KindNIC, ID: mac.String()}
	default:
		return log.Op{Action: log.Delete, Kind: log.KindNetwork, ID: network.String()}
	}
}

// TestNamesAndGatewaysOfAnyHistory: whatever is accepted, and however long version 5 held
// before: no name comes to be twice, whoever has one twice keeps it, each network of which
// anything was changed since says right whether its gateway is there, and the index of names
// is what the networks say.
func TestNamesAndGatewaysOfAnyHistory(t *testing.T) {
	old, accepted := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		w := worldtest.New(rt, Decide)
		for _, o := range []log.Object{
			&log.NICTag{Name: "one", MTU: 1500}, &log.NICTag{Name: "external", MTU: 1500}, &log.Server{UUID: changetest.UUID(11)},
			&log.VM{UUID: changetest.UUID(21), OwnerUUID: changetest.UUID(1), ServerUUID: changetest.UUID(11), State: "running"},
		} {
			w.Try(w.Change(log.Op{Action: log.Create, Kind: o.Kind(), Object: o}))
		}
		w.State.SetFeature(log.FeatureWire)
		for n := range uint64(2) { // which no operation that is drawn names
			w.Try(w.Change(changetest.Op(rt, plainNamed(int(40+n), "admin"))))
		}
		since := rapid.IntRange(0, 25).Draw(rt, "since")
		var upgraded log.Seq
		names := map[projections.NetName]int{} // how many networks have it at most
		for i := range 50 {
			if i == since {
				w.State.SetFeature(log.FeatureTriton)
				upgraded = log.Seq(len(w.Events))
				names = count(w.State)
				for _, n := range names {
					old += max(0, n-1)
				}
			}
			ops := make([]log.Op, rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(rt, "ops"))
			for k := range ops {
				ops[k] = nameOp(rt)
			}
			if w.Try(w.Change(ops...)).Refusal != nil {
				continue
			}
			accepted++
			now := count(w.State)
			if i < since {
				continue
			}
			for name, n := range now {
				if n > max(1, names[name]) {
					rt.Fatalf("%d networks have the name %v, and %d had it", n, name, names[name])
				}
			}
			names = now
			for r := range w.State.List(log.KindNetwork) {
				n := r.Object.(*log.Network)
				h, there := w.State.NICAt(n.UUID, n.Gateway)
				there = there && n.Fabric && n.Gateway.IsValid()
				touched := r.Seq > upgraded || slices.ContainsFunc(w.Events[upgraded:], func(e *log.Event) bool {
					nic, is := e.Object.(*log.NIC)
					return is && nic.NetworkUUID == n.UUID
				})
				if touched && n.GatewayProvisioned != there {
					rt.Fatalf("network %+v says %t of NIC %+v at its gateway", n, n.GatewayProvisioned, h.Object)
				}
			}
		}
	})
	if old == 0 || accepted == 0 {
		t.Errorf("%d names were twice before, %d changes were accepted", old, accepted)
	}
}

// count counts the networks of each name, and holds the index against them.
func count(s *projections.State) map[projections.NetName]int {
	names := map[projections.NetName]int{}
	for r := range s.List(log.KindNetwork) {
		names[projections.NameOf(r.Object.(*log.Network))]++
	}
	for name, n := range names {
		if got := len(slices.Collect(s.NetworksNamed(name))); got != n {
			panic(fmt.Sprintf("the index has %d networks of the name %v, and %d have it", got, name, n))
		}
	}
	return names
}
