package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

const (
	ownNICVMs   = 1000
	ownNICTimes = 100
	ownNICKey   = "own_nic_wait_fabric_p99_ms"
)

// BenchmarkOwnNICWait measures POST /nics?wait=fabric through three server processes and an
// agent process whose node has 1,000 VMs, each in a namespace, 50 on each fabric: from
// the request until the answer that the NIC's link is in the kernel.
func BenchmarkOwnNICWait(b *testing.B) {
	if !netlab.Inside() {
		out := filepath.Join(b.TempDir(), "out")
		cmd := netlab.Enter("-test.run=^$", "-test.bench=^BenchmarkOwnNICWait$", "-test.benchtime=1x")
		cmd.Env = append(cmd.Env, benchOut+"="+out)
		err := cmd.Run()
		if netlab.Forbidden(err) {
			b.Skip(netlab.ErrForbidden)
		}
		var p99 float64
		told, readErr := os.ReadFile(out)
		if err := errors.Join(err, readErr); err != nil {
			b.Fatal(err)
		}
		if _, err := fmt.Sscanf(string(told), ownNICKey+"=%f", &p99); err != nil {
			b.Fatalf("the run told %q: %v", told, err)
		}
		tellBench(b, ownNICKey, p99)
		return
	}
	if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
		b.Fatal(err)
	}
	for b.Loop() {
		took, passes := ownNICs(b, ownNICVMs, ownNICTimes)
		slices.Sort(took)
		p99 := float64(took[len(took)*99/100].Microseconds()) / 1000
		b.Logf("POST /nics?wait=fabric at %d VMs: median %v, 99 %% %v; %d passes meanwhile", ownNICVMs, took[len(took)/2], took[len(took)*99/100], passes)
		b.ReportMetric(p99, ownNICKey)
		tellBench(b, ownNICKey, p99)
	}
}

// TestOwnNICWait: NICs that are made and deleted one by one, on a fabric of the node or as
// the first of one, are in the kernel when the answer says so, without a pass for each.
func TestOwnNICWait(t *testing.T) {
	if !enterLab(t) {
		return
	}
	const times = 12
	if _, passes := ownNICs(t, 8, times); passes >= times/2 {
		t.Errorf("%d NICs more and less took %d passes, want those of the sweep only", times, passes)
	}
}

// ownNICs makes so many VMs on the agent's node, and then one NIC after the other. It
// returns how long each took, and the passes since the VMs were there.
func ownNICs(b testing.TB, vms, times int) (took []time.Duration, passes uint64) {
	w := newWholeWay(b)
	const fabrics = 20
	var networks []log.UUID
	var ops []log.Op
	add := func(set string, o log.Object) {
		ops = append(ops, log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o})
	}
	submit := func() log.Seq {
		result, err := w.c.Client.Submit(b.Context(), &log.Change{ID: client.NewChangeID(), Ops: ops})
		if err != nil {
			b.Fatal(err)
		}
		ops = nil
		return result.Last
	}
	for i := range fabrics + 1 { // no VM is on the last one
		networks = append(networks, client.NewChangeID())
		add("fabric mtu name nic_tag owner_uuids provision_end_ip provision_start_ip subnet uuid vnet_id", &log.Network{
			UUID: networks[i], Name: fmt.Sprintf("own%d", i), NICTag: "u", Fabric: true,
			VNetID: uint32(100 + i), MTU: 1400, OwnerUUIDs: []log.UUID{w.owner}, Subnet: netip.MustParsePrefix("10.0.0.0/16"), ProvisionStart: netip.MustParseAddr("10.0.0.5"), ProvisionEnd: netip.MustParseAddr("10.0.200.0"),
		})
	}
	submit()
	makeVM := func() log.UUID {
		vm := client.NewChangeID()
		zone, err := netlab.Create(w.netns, vm.String())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := zone.Delete(); err != nil {
				b.Error(err)
			}
		})
		add("owner_uuid server_uuid uuid", &log.VM{UUID: vm, OwnerUUID: w.owner, ServerUUID: w.local})
		return vm
	}
	nic := func(vm, network log.UUID) *log.NIC {
		return &log.NIC{BelongsToType: "zone", BelongsToUUID: vm, CNUUID: w.local, OwnerUUID: w.owner, NetworkUUID: network}
	}
	const nicSet = "belongs_to_type belongs_to_uuid cn_uuid network_uuid owner_uuid"
	var last log.Seq
	for i := range vms {
		add(nicSet, nic(makeVM(), networks[i%fabrics]))
		if len(ops) >= 100 || i == vms-1 {
			last = submit()
		}
	}
	vm := makeVM()
	last = max(last, submit())
	for end := time.Now().Add(5 * time.Minute); w.programmed() < last; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("the kernel does not match seq %d", last)
		}
	}
	before := w.statusOf(b).Kernel.Passes
	waiting, err := client.New(client.Config{Servers: w.c.Client.Servers(), Await: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	for i := range times {
		network := networks[0]
		if i%2 == 1 {
			network = networks[fabrics]
		}
		body, err := json.Marshal(map[string]string{"belongs_to_type": "zone", "belongs_to_uuid": vm.String(), "cn_uuid": w.local.String(), "owner_uuid": w.owner.String(), "network_uuid": network.String()})
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		made, err := waiting.Create(b.Context(), "/nics", body)
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
		if err := waiting.Delete(b.Context(), "/nics/"+made["mac"].(string), ""); err != nil {
			b.Fatal(err)
		}
	}
	return took, w.statusOf(b).Kernel.Passes - before
}
