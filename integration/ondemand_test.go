package integration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/api/client"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
	"rutter/projections/desired"
)

const (
	// onDemandNICs are more than the agent of TestOnDemandThroughTheAgent programs
	// ahead.
	onDemandNICs = 40
	// onDemandTable is how many entries of a large vnet its kernel keeps at most.
	onDemandTable = 50
)

// TestOnDemandThroughTheAgent: three servers, and an agent with a vnet that is
// too big to be programmed ahead. The kernel holds nothing new of it until a VM sends;
// its first packet is answered; when the log moves the NIC to another node, the
// kernel follows, and the first packet to it there is answered too.
func TestOnDemandThroughTheAgent(t *testing.T) {
	t.Parallel()
	if !enterLab(t) {
		return
	}
	w := newWholeWay(t, "--ahead", "10", "--on-demand-table", strconv.Itoa(onDemandTable))
	third := w.thirdNode(t)
	for range onDemandNICs {
		w.create(t)
	}
	w.await(t, w.create(t))
	zone := w.zone(t)
	// What was there before the vnet became large may stay, as far as the table has room.
	w.until(t, "on demand", func() (bool, string) {
		s := w.statusOf(t).Kernel
		return s.Matched && s.Demand.VNets == 1 && w.entries(t, zone) <= onDemandTable, fmt.Sprintf("%+v, %d entries", s.Demand, w.entries(t, zone))
	})
	far, mac := netip.MustParseAddr("10.9.9.9"), log.MAC{0x02, 0x52, 0, 0, 0, 9}
	op := w.nic(w.remote, w.vm)
	nic := op.Object.(*log.NIC)
	op.Set, nic.MAC, nic.IP = append(op.Set, "ip", "mac"), mac, far
	made, err := w.c.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{op}})
	if err != nil {
		t.Fatal(err)
	}
	w.await(t, made.Last)
	forwards := func(to string) bool {
		for _, l := range w.dump(t, zone).Links {
			for _, f := range l.FDB {
				if f.MAC == mac && (to == "" || f.Dst.String() == to) {
					return true
				}
			}
		}
		return false
	}
	if forwards("") {
		t.Fatal("a NIC that nobody has asked for is in the kernel")
	}
	near, _ := w.fabric(t, zone)
	ping := func(where string) {
		t.Helper()
		from := netlab.Namespace{Dir: w.netns, Name: zone}
		took, err := from.Ping(far, 8, 30*time.Second)
		if err != nil {
			t.Fatalf("first packet to %s: %v\n%s", where, err, w.kernel(t, zone))
		}
		t.Logf("first packet to %s answered after %v", where, took)
	}
	w.peer(t, "cn2", "192.0.2.2", mac, far, near)
	ping("the node that the NIC is on")
	if s := w.statusOf(t).Kernel.Demand; s.Answered == 0 || s.Resident < 2 || s.Resident > onDemandTable || !forwards("192.0.2.2") {
		t.Errorf("after the first packet: got %+v and %d entries, want the two of the NIC among them", s, w.entries(t, zone))
	}

	w.peer(t, "cn3", "192.0.2.3", mac, far, near)
	w.update(t, "/nics/"+strings.ReplaceAll(mac.String(), ":", ""), `{"cn_uuid": "`+third.String()+`"}`)
	w.until(t, "the forwarding entry after the move", func() (bool, string) {
		return forwards("192.0.2.3"), fmt.Sprint(w.dump(t, zone).Links)
	})
	ping("the node that it moved to")
}

// thirdNode makes one more compute node in the log.
func (w *wholeWay) thirdNode(t *testing.T) log.UUID {
	t.Helper()
	nics, err := w.c.Client.List(t.Context(), "/nics", map[string][]string{"belongs_to_uuid": {w.local.String()}})
	if err != nil || len(nics) != 1 {
		t.Fatalf("underlay NIC: got %v, %v", nics, err)
	}
	underlay, err := log.ParseUUID(nics[0]["network_uuid"].(string))
	if err != nil {
		t.Fatal(err)
	}
	cn := client.NewChangeID()
	if _, err := w.c.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{
		{Action: log.Create, Kind: log.KindServer, Set: strings.Fields("hostname uuid"), Object: &log.Server{UUID: cn, Hostname: "cn3"}},
		{
			Action: log.Create, Kind: log.KindNIC, Set: strings.Fields("belongs_to_type belongs_to_uuid cn_uuid ip network_uuid owner_uuid underlay"),
			Object: &log.NIC{BelongsToType: "server", BelongsToUUID: cn, CNUUID: cn, OwnerUUID: w.owner, NetworkUUID: underlay, Underlay: true, IP: netip.MustParseAddr("192.0.2.3")},
		},
	}}); err != nil {
		t.Fatal(err)
	}
	return cn
}

// peer makes a node without an agent: a namespace on the underlay with one NIC
// of the fabric, which knows the way back.
func (w *wholeWay) peer(t *testing.T, name, underlay string, mac log.MAC, ip netip.Addr, near plan.Link) {
	t.Helper()
	dir := t.TempDir()
	node, err := netlab.Create(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Delete(); err != nil {
			t.Error(err)
		}
	})
	err = errors.Join(netlab.AddVeth(name, "net0", node, 1600), netlab.SetMaster(name, "underlay"), netlab.SetUp(name, true), node.Do(func() error {
		return errors.Join(netlab.SetUp("net0", true), netlab.AddAddress("net0", netip.PrefixFrom(netip.MustParseAddr(underlay), 24)))
	}))
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := link.Open(link.Config{OwnNamespace: node.Path(), NetNSDir: dir, EtcNetNSDir: filepath.Join(dir, "etc")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kernel.Close() })
	want := desired.Links{
		VXLANs:  []desired.VXLAN{{VNet: 7, Local: netip.MustParseAddr(underlay), Port: 4789, MTU: 1550}},
		Fabrics: []desired.Fabric{{MAC: mac, VNet: 7, MTU: 1400, Addresses: []netip.Prefix{netip.PrefixFrom(ip, 8)}}},
		Neighs:  []desired.Neigh{{Link: mac, IP: near.Addresses[0].Addr(), MAC: near.MAC}},
		FDB:     []desired.FDB{{VNet: 7, MAC: near.MAC, Dst: netip.MustParseAddr("192.0.2.1"), Port: 4789}},
	}
	result, err := link.NewManager(link.ManagerConfig{Kernel: kernel}).Pass(context.Background(), want, true)
	if err != nil || !result.Matched {
		t.Fatalf("node %s: %v, failures %v", name, err, result.Failures)
	}
}
