package serve

import (
	"net/netip"
	"testing"
	"time"

	"rutter/log"
	"rutter/projections"
)

// An address is a node's if a server's NIC on the underlay or the admin network has it.
// Unknown addresses, and those of VMs there, belong to no node.
func TestSVPPeers(t *testing.T) {
	state := projections.NewState()
	cn := log.UUID{0xcc}
	network := func(n byte, name, tag, subnet string) log.UUID {
		id := log.UUID{0xee, 15: n}
		putObject(t, state, &log.Network{UUID: id, Name: name, NICTag: tag, Subnet: netip.MustParsePrefix(subnet), Family: "ipv4"})
		return id
	}
	putObject(t, state, &log.Server{UUID: cn, Hostname: "cn"})
	under := network(1, "underlay", "sdc_underlay", "10.1.0.0/24")
	fabric := log.UUID{0xee, 15: 3}
	putObject(t, state, &log.Network{UUID: fabric, Name: "f", NICTag: "sdc_overlay", Subnet: netip.MustParsePrefix("10.0.0.0/24"), Fabric: true, VNetID: 7})
	putObject(t, state, &log.NIC{MAC: log.MAC{2, 5: 1}, BelongsToType: "server", BelongsToUUID: cn, CNUUID: cn, NetworkUUID: under, IP: netip.MustParseAddr("10.1.0.5"), Underlay: true})
	putObject(t, state, &log.NIC{MAC: log.MAC{2, 5: 2}, BelongsToType: "zone", BelongsToUUID: log.UUID{1}, CNUUID: cn, NetworkUUID: under, IP: netip.MustParseAddr("10.1.0.6")})
	putObject(t, state, &log.NIC{MAC: log.MAC{2, 5: 3}, BelongsToType: "zone", BelongsToUUID: log.UUID{1}, CNUUID: cn, NetworkUUID: fabric, IP: netip.MustParseAddr("10.0.0.6")})
	p := newSVPPeers(func(fn func(*projections.State)) { fn(state) })
	now := time.Unix(1, 0)
	p.now = func() time.Time { return now }
	node := netip.MustParseAddr("10.1.0.5")
	if !p.Allow(node) || !p.Sees(node, 7) || p.Sees(node, 8) || !p.Speaks(node, node) {
		t.Errorf("the node is taken for %+v", p.of(node))
	}
	for _, stranger := range []string{"10.1.0.6", "10.0.0.6", "10.1.0.7", "192.0.2.1"} {
		if a := netip.MustParseAddr(stranger); p.Allow(a) || p.Sees(a, 7) || p.Speaks(a, node) {
			t.Errorf("%s is taken for a node", stranger)
		}
	}
}

func putObject(t *testing.T, state *projections.State, o log.Object) {
	t.Helper()
	if err := state.Load(projections.Record{Object: o, Revision: 1, Seq: 1}); err != nil {
		t.Fatal(err)
	}
}
