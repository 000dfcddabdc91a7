package foresee_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/foresee"
)

// cloudOf is a state with one fabric network, on which each of so many CNs has so many VMs
// with a NIC.
func cloudOf(t testing.TB, cns, each int) *projections.State {
	s := projections.NewPart()
	seq := log.Seq(0)
	put := func(o log.Object) {
		seq++
		if err := s.Load(projections.Record{Object: o, Revision: 1, Seq: seq}); err != nil {
			t.Fatal(err)
		}
	}
	net := func(id uint64, name, subnet string, fabric bool) {
		n := &log.Network{
			UUID: changetest.UUID(id), Name: name, NICTag: "overlay", Subnet: netip.MustParsePrefix(subnet), MTU: 1400, Fabric: fabric, Family: "ipv4",
			ProvisionStart: netip.MustParsePrefix(subnet).Addr().Next().Next(), ProvisionEnd: netip.MustParsePrefix(subnet).Addr().Next().Next().Next(),
		}
		if fabric {
			n.VNetID, n.OwnerUUIDs = 10, []log.UUID{changetest.UUID(1)}
		}
		put(n)
	}
	put(&log.NICTag{Name: "overlay", MTU: 9000})
	net(30, "under", "192.168.0.0/16", false)
	net(31, "blue", "10.0.0.0/8", true)
	for c := range cns {
		cn := changetest.UUID(1<<32 | uint64(c))
		put(&log.Server{UUID: cn, Hostname: fmt.Sprint("cn", c), Status: "running"})
		put(&log.NIC{
			MAC: log.MAC{2, 1, 0, 0, byte(c >> 8), byte(c)}, BelongsToType: "server", BelongsToUUID: cn, OwnerUUID: changetest.UUID(1),
			CNUUID: cn, NetworkUUID: changetest.UUID(30), Underlay: true, IP: netip.AddrFrom4([4]byte{192, 168, byte(c >> 8), byte(c)}),
		})
		for v := range each {
			vm := changetest.UUID(2<<32 | uint64(c*each+v))
			put(&log.VM{UUID: vm, Zonename: vm.String(), OwnerUUID: changetest.UUID(1), ServerUUID: cn, State: "running"})
			n := c*each + v + 2
			put(&log.NIC{
				MAC: log.MAC{2, 2, 0, byte(n >> 16), byte(n >> 8), byte(n)}, State: "running", BelongsToType: "zone", BelongsToUUID: vm, OwnerUUID: changetest.UUID(1),
				CNUUID: cn, NetworkUUID: changetest.UUID(31), IP: netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}),
			})
		}
	}
	return s
}

func changeOf(t changetest.Tester, text string) []*log.Change {
	return []*log.Change{{Actor: "planner", Ops: []log.Op{changetest.Op(t, text)}}}
}

// What concerns more than can be looked at is looked at in part, and the outcome says so.
func TestBounds(t *testing.T) {
	s := cloudOf(t, foresee.MaxNodes+20, 1)
	out := foresee.Of(s, 1e6, changeOf(t, `update network #31# {"mtu": 1300}`))
	if out.Refusals() > 0 {
		t.Fatal(out.Changes[0].Refused[0].Refusal)
	}
	if out.NodesConcerned != foresee.MaxNodes+20 || out.NodesLooked != foresee.MaxNodes || len(out.Nodes) != foresee.MaxNodes {
		t.Errorf("nodes %d of %d, %d differ", out.NodesLooked, out.NodesConcerned, len(out.Nodes))
	}
	all := (foresee.MaxNodes + 20) * (foresee.MaxNodes + 19) / 2
	if out.PairsConcerned != all || out.PairsLooked != foresee.MaxPairs {
		t.Errorf("pairs %d of %d, want %d of %d", out.PairsLooked, out.PairsConcerned, foresee.MaxPairs, all)
	}
	// A change that concerns one node has it looked at, and all pairs of its VM.
	vm := changetest.UUID(2 << 32)
	out = foresee.Of(s, 1e6, changeOf(t, fmt.Sprintf(`update vm %s {"state": "stopped"}`, vm)))
	if out.NodesConcerned != 1 || out.NodesLooked != 1 || out.PairsLooked != foresee.MaxNodes+19 || out.PairsConcerned != out.PairsLooked || len(out.Pairs) != out.PairsLooked {
		t.Errorf("one VM: %+v %d of %d nodes, %d of %d pairs, %d differ", out.Changes[0].Refused, out.NodesLooked, out.NodesConcerned, out.PairsLooked, out.PairsConcerned, len(out.Pairs))
	}
}

// BenchmarkOf is a plan over 100,000 NICs on 1,000 CNs of one vnet: of one NIC, and of the
// network that concerns all of them.
func BenchmarkOf(b *testing.B) {
	s := cloudOf(b, 1000, 100)
	for name, text := range map[string]string{
		"nic":     `update nic 02:02:00:00:00:05 {"allow_ip_spoofing": true}`,
		"network": `update network #31# {"mtu": 1300}`,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				begun := time.Now()
				out := foresee.Of(s, 1e6, changeOf(b, text))
				if out.Refusals() > 0 {
					b.Fatal(out.Changes[0].Result.Refusal)
				}
				b.ReportMetric(time.Since(begun).Seconds(), "s/plan")
				b.ReportMetric(float64(out.NodesLooked), "nodes")
				b.ReportMetric(float64(out.PairsLooked), "pairs")
			}
		})
	}
}

// The vnet of an owner's first fabric network is drawn by the servers: no number is shown.
// One that the change names, or that follows from the seed of a change of the past, is.
func TestDrawnVNet(t *testing.T) {
	t.Parallel()
	create := func(vnet string) string {
		return `create network {"name": "new", "fabric": true, "nic_tag": "overlay", "vlan_id": 9, "subnet": "10.9.0.0/24", "mtu": 1400, "owner_uuids": ["#9#"]` + vnet + `}`
	}
	for _, c := range []struct {
		op    string
		seed  uint64
		drawn bool
	}{{create(""), 0, true}, {create(`, "vnet_id": 99`), 0, false}, {create(""), 7, false}} {
		w := running(t)
		out := foresee.Of(w.State, log.Seq(len(w.Events)), []*log.Change{{Actor: "planner", Seed: c.seed, Ops: []log.Op{changetest.Op(t, c.op)}}})
		if len(out.Objects) != 1 {
			t.Fatalf("%s: %+v", c.op, out)
		}
		for _, f := range out.Objects[0].Fields {
			if f.Path == "vnet_id" && (f.Drawn != c.drawn || (f.New == nil) != c.drawn) {
				t.Errorf("%s with seed %d: %+v", c.op, c.seed, f)
			}
		}
	}
}
