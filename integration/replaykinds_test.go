package integration

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rutter/integration/rig"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
	"rutter/raftstore/history"
)

// replayed is one object of each sort that a compacted log begins with.
func replayed() []log.Object {
	id := func(n byte) log.UUID { return log.UUID{0: 0x77, 6: 0x40, 8: 0x80, 15: n} }
	addr := netip.MustParseAddr
	owner, cn, vm := id(1), id(2), id(3)
	macs := []log.MAC{{0x92, 0xb8, 0, 0, 7, 1}, {0x92, 0xb8, 0, 0, 7, 2}}
	network := func(n byte, name string, third byte) *log.Network {
		return &log.Network{
			UUID: id(n), Name: name, NICTag: "past", Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, third, 0}), 24),
			ProvisionStart: netip.AddrFrom4([4]byte{10, 77, third, 10}), ProvisionEnd: netip.AddrFrom4([4]byte{10, 77, third, 200}),
		}
	}
	fabric := func(n byte, name string, third byte) *log.Network {
		f := network(n, name, third)
		f.Gateway, f.Fabric, f.VNetID, f.VLANID, f.OwnerUUIDs = netip.AddrFrom4([4]byte{10, 77, third, 1}), true, 7700, 7, []log.UUID{owner}
		return f
	}
	return []log.Object{
		&log.NICTag{Name: "past"},
		&log.Server{UUID: cn, Hostname: "past-cn"},
		network(10, "east", 1), network(11, "west", 2),
		&log.FabricVLAN{OwnerUUID: owner, VLANID: 7, VNetID: 7700, Name: "seven"},
		fabric(12, "north", 3), fabric(13, "south", 4),
		&log.NetworkPool{UUID: id(20), Name: "pool", Networks: []log.UUID{id(10), id(11)}},
		&log.VM{UUID: vm, Alias: "past-vm", OwnerUUID: owner, ServerUUID: cn},
		&log.NIC{MAC: macs[0], BelongsToType: "server", BelongsToUUID: cn, OwnerUUID: owner, CNUUID: cn},
		&log.NIC{MAC: macs[1], BelongsToType: "server", BelongsToUUID: cn, OwnerUUID: owner, CNUUID: cn},
		&log.NIC{MAC: log.MAC{0x92, 0xb8, 0, 0, 7, 3}, BelongsToType: "zone", BelongsToUUID: vm, OwnerUUID: owner, NetworkUUID: id(10), IP: addr("10.77.1.20"), State: "running"},
		&log.IP{NetworkUUID: id(10), IP: addr("10.77.1.30"), Reserved: true},
		&log.Aggregation{Name: "aggr7", BelongsToUUID: cn, LACPMode: "off", MACs: macs},
		&log.Router{UUID: id(30), Name: "way", OwnerUUID: owner, Networks: []log.UUID{id(12), id(13)}},
		&log.Task{UUID: id(40), Task: "nop", ServerUUID: cn},
		&log.Ticket{UUID: id(41), ServerUUID: cn, Scope: "vm", OfID: "x"},
	}
}

// compacted makes a folder of a log whose first entries are gone.
func compacted(t *testing.T) (dir string, state *projections.State) {
	t.Helper()
	state = projections.NewState()
	seq := log.Seq(0)
	for i, o := range replayed() {
		change := &log.Change{
			ID: log.UUID{6: 0x70, 8: 0x80, 15: byte(i + 1)}, Time: log.Time(time.Now().UnixNano()), Actor: "past", Seed: uint64(i),
			Ops: []log.Op{{Action: log.Create, Kind: o.Kind(), Object: o}},
		}
		for _, d := range log.Diff(log.NewObject(o.Kind()), o) {
			change.Ops[0].Set = append(change.Ops[0].Set, d.Path)
		}
		slices.Sort(change.Ops[0].Set)
		events, result := rules.Decide(state, change)
		if result.Refusal != nil {
			t.Fatalf("%s: %+v", o.Kind(), result.Refusal)
		}
		for _, e := range events {
			seq++
			if _, err := state.Apply(seq, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir = filepath.Join(t.TempDir(), "source")
	w, err := history.CreateFolder(dir, history.FolderStart{Cluster: log.UUID{0: 0x78, 6: 0x40, 8: 0x80}, Floor: seq, State: state})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, state
}

// TestReplayOfACompactedLog: the objects that a log begins with are made in
// another cluster, over TLS, but those that are work and trust of the old one.
func TestReplayOfACompactedLog(t *testing.T) {
	t.Parallel()
	from, state := compacted(t)
	data := t.TempDir()
	target := rig.Dev(t, t.Context(), program)
	url, operator := target.URL, target.Operator
	with := func(args ...string) string {
		t.Helper()
		out, err := command(t, append(args, "--tls-dir", operator)...)
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return out
	}
	if _, err := command(t, "log", "replay", from, "--to", url, "--map", filepath.Join(data, "refused")); err == nil {
		t.Error("a replay without a certificate is taken")
	}
	ids := filepath.Join(t.TempDir(), "ids")
	with("log", "replay", from, "--to", url, "--map", ids)
	stats := with("log", "stats", "-s", url)
	dump := with("log", "state", "-s", url, "-o", "ndjson")
	for _, o := range replayed() {
		got, own := strings.Contains(dump, o.ID()), o.Kind() == log.KindTask || o.Kind() == log.KindTicket
		if got == own {
			t.Errorf("%s %s is there: %v, want %v", o.Kind(), o.ID(), got, !own)
		}
	}
	if state.Len() < len(replayed()) || !strings.Contains(stats, "router") {
		t.Errorf("the source has %d objects; stats of the target: %s", state.Len(), stats)
	}
	with("log", "replay", from, "--to", url, "--map", ids)
	if again := with("log", "state", "-s", url, "-o", "ndjson"); strings.Count(again, "past-vm") != strings.Count(dump, "past-vm") {
		t.Error("a second run made something")
	}
	for _, args := range [][]string{
		{"log", "tail", "-n", "3", "-s", url},
		{"log", "blame", "ip", "10.77.1.20", "-s", url},
		{"log", "history", "router", replayed()[14].ID(), "-s", url},
		{"log", "export", "-s", url, filepath.Join(t.TempDir(), "all.rlog")},
	} {
		if out := with(args...); out == "" && args[1] != "export" {
			t.Errorf("%q says nothing", args)
		}
	}
}
