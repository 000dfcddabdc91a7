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

// netOp draws an operation on one of few objects of the kinds around networks,
// and on the networks, NICs and VMs that they stand on.
func netOp(t *rapid.T) log.Op {
	fabrics := []log.UUID{changetest.UUID(31), changetest.UUID(32), changetest.UUID(33), changetest.UUID(34)}
	network := rapid.SampledFrom(append(fabrics, changetest.UUID(30))).Draw(t, "network")
	ip := netip.AddrFrom4([4]byte{10, byte(worldtest.Even(t, 5, "subnet")), 0, byte(worldtest.Even(t, 8, "host"))})
	mac := log.MAC{5: byte(1 + worldtest.Even(t, 8, "mac"))}
	update := func(kind log.Kind, id string, o log.Object, set ...string) log.Op {
		return log.Op{Action: log.Update, Kind: kind, ID: id, Set: set, Object: o}
	}
	some := func(from []log.UUID, least int) []log.UUID {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(from), least, len(from), rapid.ID).Draw(t, "networks")
	}
	vm, cn := worldtest.DrawUUID(t, 21, 3, "vm"), worldtest.DrawUUID(t, 11, 3, "cn")
	router := worldtest.DrawUUID(t, 60, 3, "router")
	switch pick := worldtest.Even(t, 17, "op"); pick {
	case 0, 1:
		o := &log.IP{Reserved: worldtest.Even(t, 2, "reserved") > 0, OwnerUUID: changetest.UUID(1)}
		if worldtest.Even(t, 2, "belongs") > 0 {
			o.BelongsToType, o.BelongsToUUID = "zone", vm
		}
		return update(log.KindIP, log.IPID(network, ip), o, "belongs_to_type", "belongs_to_uuid", "owner_uuid", "reserved")
	case 2:
		return update(log.KindIP, log.IPID(network, ip), new(log.IP), "belongs_to_type", "belongs_to_uuid", "owner_uuid", "reserved")
	case 3:
		return log.Op{Action: log.Create, Kind: log.KindNetworkPool, Set: []string{"networks"}, Object: &log.NetworkPool{
			UUID: worldtest.DrawUUID(t, 50, 2, "pool"), Name: "p", Networks: some(append(fabrics, changetest.UUID(30)), 1),
		}}
	case 4:
		return log.Op{Action: log.Create, Kind: log.KindAggregation, Set: []string{"macs"}, Object: &log.Aggregation{
			Name: rapid.SampledFrom([]string{"aggr0", "aggr1"}).Draw(t, "name"), MACs: []log.MAC{mac, {5: byte(1 + worldtest.Even(t, 8, "mac"))}},
		}}
	case 5, 6:
		return log.Op{Action: log.Create, Kind: log.KindRouter, Set: []string{"networks"}, Object: &log.Router{
			UUID: router, Name: "r", Networks: some(fabrics, 2), VMUUID: vm,
		}}
	case 7, 8:
		return update(log.KindRouter, router.String(), &log.Router{Networks: some(fabrics, 2)}, "networks")
	case 9:
		return update(log.KindRouter, router.String(), &log.Router{VMUUID: vm}, "vm_uuid")
	case 10:
		n := &log.Network{}
		if worldtest.Even(t, 2, "routes") > 0 {
			n.Routes = log.Routes{{Dst: "10.99.0.0/16", Gateway: "linklocal"}}
		}
		return update(log.KindNetwork, network.String(), n, "routes")
	case 11:
		return update(log.KindVM, vm.String(), &log.VM{ServerUUID: cn}, "server_uuid")
	case 12, 13:
		o := &log.NIC{MAC: mac, OwnerUUID: changetest.UUID(1), BelongsToType: "zone", BelongsToUUID: vm, CNUUID: cn, NetworkUUID: network}
		switch worldtest.Even(t, 4, "place") {
		case 0:
			o.IP = ip
		case 1:
			o.NetworkUUID = worldtest.DrawUUID(t, 50, 2, "pool")
		case 2:
			o.BelongsToType, o.BelongsToUUID, o.NetworkUUID, o.CNUUID = "server", cn, changetest.UUID(30), log.UUID{}
		}
		op := log.Op{Action: log.Create, Kind: log.KindNIC, Set: []string{"mac"}, Object: o}
		if worldtest.Even(t, 4, "reserve") == 0 {
			op.Options = []log.Option{log.OptionReserveIP}
		}
		return op
	case 14:
		return log.Op{Action: log.Delete, Kind: log.KindNIC, ID: mac.String()}
	case 15:
		return update(log.KindNIC, mac.String(), &log.NIC{NetworkUUID: network, CNUUID: cn}, "cn_uuid", "network_uuid")
	default:
		switch worldtest.Even(t, 5, "deleted") {
		case 0:
			return log.Op{Action: log.Delete, Kind: log.KindNetworkPool, ID: worldtest.DrawUUID(t, 50, 2, "pool").String()}
		case 1:
			return log.Op{Action: log.Delete, Kind: log.KindAggregation, ID: cn.String() + "-aggr0"}
		case 2:
			return log.Op{Action: log.Delete, Kind: log.KindNetwork, ID: network.String()}
		case 3:
			return log.Op{Action: log.Delete, Kind: log.KindVM, ID: vm.String()}
		}
		return log.Op{Action: log.Delete, Kind: log.KindRouter, ID: router.String()}
	}
}

// netWorld has four fabric networks of one owner on two vnets, an underlay, and
// three CNs with a VM each.
func netWorld(t changetest.Tester) *worldtest.World {
	w := worldtest.New(t, Decide)
	must := func(o log.Object) {
		if r := w.Try(w.Change(log.Op{Action: log.Create, Kind: o.Kind(), Object: o})).Refusal; r != nil {
			t.Fatalf("%+v: %v", o, r)
		}
	}
	must(&log.NICTag{Name: "one", MTU: 1500})
	must(&log.Network{UUID: changetest.UUID(30), Name: "n", NICTag: "one", Subnet: netip.MustParsePrefix("10.0.0.0/28")})
	for n := range uint64(4) {
		must(&log.Network{
			UUID: changetest.UUID(31 + n), Name: fmt.Sprintf("n%d", n), NICTag: "one", Fabric: true, VNetID: uint32(10 + 10*(n/2)), OwnerUUIDs: []log.UUID{changetest.UUID(1)},
			Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(1 + n), 0, 0}), 29),
		})
	}
	for n := range uint64(3) {
		must(&log.Server{UUID: changetest.UUID(11 + n)})
		must(&log.VM{UUID: changetest.UUID(21 + n), OwnerUUID: changetest.UUID(1), ServerUUID: changetest.UUID(11 + n), State: "running"})
	}
	must(&log.NIC{
		MAC: log.MAC{5: 9}, BelongsToType: "zone", BelongsToUUID: changetest.UUID(21), OwnerUUID: changetest.UUID(1), CNUUID: changetest.UUID(11), NetworkUUID: changetest.UUID(31),
	})
	return w
}

// TestNetworkKinds: whatever is accepted keeps what must hold of addresses,
// pools, aggregations and routers; a CN's cache follows; a replay is equal.
func TestNetworkKinds(t *testing.T) {
	accepted, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		feed := newFeed(changetest.UUID(11))
		w := netWorld(rt)
		feed.held = w.State.Interest(changetest.UUID(11))
		for _, scope := range feed.held {
			feed.load(w, slices.Collect(w.State.InScope(scope)))
		}
		feed.watch(w)
		for range 1 + worldtest.Even(rt, 40, "changes") {
			ops := make([]log.Op, rapid.SampledFrom([]int{1, 1, 2, 4}).Draw(rt, "ops"))
			for i := range ops {
				ops[i] = netOp(rt)
			}
			if w.Try(w.Change(ops...)).Refusal != nil {
				refused++
				continue
			}
			accepted++
			checkAddresses(rt, w.State)
			checkPoolsAndAggregations(rt, w.State)
			checkRouters(rt, w.State)
			feed.compare(rt, w.State)
		}
		replayed, loaded := projections.NewState(), projections.NewState()
		for i, e := range w.Events {
			if _, err := replayed.Apply(log.Seq(i+1), e); err != nil {
				rt.Fatal(err)
			}
		}
		worldtest.SameAnswers(rt, replayed, w.State)
		loaded.SetTime(w.State.Time())
		for kind := range log.Kind(30) {
			for r := range w.State.List(kind) {
				if err := loaded.Load(r); err != nil {
					rt.Fatal(err)
				}
			}
		}
		worldtest.SameAnswers(rt, loaded, w.State)
	})
	t.Logf("%d changes accepted, %d refused", accepted, refused)
	if accepted < refused/20 {
		t.Errorf("only %d of %d changes were accepted: the test sees too little", accepted, accepted+refused)
	}
}

// checkAddresses: no address is two things', and the lists show each that is used.
func checkAddresses(t changetest.Tester, s *projections.State) {
	t.Helper()
	type place struct {
		network log.UUID
		ip      netip.Addr
	}
	used := map[place]bool{}
	for r := range s.List(log.KindNIC) {
		nic := r.Object.(*log.NIC)
		p := place{nic.NetworkUUID, nic.IP}
		if !nic.IP.IsValid() {
			continue
		}
		if used[p] {
			t.Fatalf("%s is two NICs'", nic.IP)
		}
		used[p] = true
	}
	for r := range s.List(log.KindIP) {
		o := r.Object.(*log.IP)
		p := place{o.NetworkUUID, o.IP}
		if used[p] && !o.BelongsToUUID.IsZero() && o.BelongsToType != belongsToRouter {
			t.Fatalf("%+v belongs to something, and a NIC has it", o)
		}
		if s.Network(o.NetworkUUID) == nil || log.Equal(o, &log.IP{NetworkUUID: o.NetworkUUID, IP: o.IP}) {
			t.Fatalf("%+v says nothing", o)
		}
		used[p] = true
	}
	for r := range s.List(log.KindNetwork) {
		n := r.Object.(*log.Network)
		var want []netip.Addr
		for _, ip := range worldtest.Addresses(n.Subnet) {
			if used[place{n.UUID, ip}] {
				want = append(want, ip)
			}
		}
		if got := slices.Collect(s.AddressesFrom(n.UUID, n.Subnet.Addr())); !slices.Equal(got, want) {
			t.Fatalf("addresses of %s: %v, want %v", n.Subnet, got, want)
		}
	}
}

func checkPoolsAndAggregations(t changetest.Tester, s *projections.State) {
	t.Helper()
	for r := range s.List(log.KindNetworkPool) {
		for _, uuid := range r.Object.(*log.NetworkPool).Networks {
			if s.Network(uuid) == nil {
				t.Fatalf("pool %+v has a network that is gone", r.Object)
			}
		}
	}
	in := map[log.MAC]bool{}
	for r := range s.List(log.KindAggregation) {
		a := r.Object.(*log.Aggregation)
		for _, mac := range a.MACs {
			nic, ok := s.Get(log.KindNIC, mac.String())
			if !ok || nic.Object.(*log.NIC).BelongsToUUID != a.BelongsToUUID || nic.Object.(*log.NIC).BelongsToType != "server" || in[mac] {
				t.Fatalf("aggregation %+v has NIC %+v, %v", a, nic.Object, ok)
			}
			in[mac] = true
		}
	}
}

// checkRouters: a network has each route of its routers once, and beside them
// only its own; a router's addresses are reserved for it.
func checkRouters(t changetest.Tester, s *projections.State) {
	t.Helper()
	want := map[log.UUID]log.Routes{}
	for rec := range s.List(log.KindRouter) {
		r := rec.Object.(*log.Router)
		if len(r.Networks) < 2 || len(r.Addresses) != len(r.Networks) {
			t.Fatalf("router %+v", r)
		}
		vm, there := s.Get(log.KindVM, r.VMUUID.String())
		if there && vm.Object.(*log.VM).ServerUUID != r.CNUUID || !there && !r.CNUUID.IsZero() {
			t.Fatalf("router %+v has VM %+v", r, vm.Object)
		}
		for i, uuid := range r.Networks {
			rec, ok := s.Get(log.KindIP, log.IPID(uuid, r.Addresses[i]))
			if !ok || !rec.Object.(*log.IP).Reserved || rec.Object.(*log.IP).BelongsToUUID != r.UUID {
				t.Fatalf("router %+v has address %+v", r, rec.Object)
			}
			if nic, ok := s.NICAt(uuid, r.Addresses[i]); ok && nic.Object.(*log.NIC).BelongsToUUID != r.VMUUID {
				t.Fatalf("the address of router %+v is had by %+v", r, nic.Object)
			}
			for _, other := range r.Networks {
				if other != uuid {
					want[uuid] = append(want[uuid], log.Route{Dst: s.Network(other).Subnet.String(), Gateway: r.Addresses[i].String()})
				}
			}
		}
	}
	for rec := range s.List(log.KindNetwork) {
		n := rec.Object.(*log.Network)
		var got log.Routes
		for _, route := range n.Routes {
			if route.Gateway != "linklocal" {
				got = append(got, route)
			}
		}
		slices.SortFunc(want[n.UUID], func(a, b log.Route) int { return strings.Compare(a.Dst, b.Dst) })
		if !slices.Equal(got, want[n.UUID]) {
			t.Fatalf("network %s has routes %v of routers, want %v", n.Subnet, got, want[n.UUID])
		}
	}
}
