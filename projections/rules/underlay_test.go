package rules

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/internal/worldtest"
	"rutter/projections/underlay"
)

// fabricOf returns the operation that makes a fabric network with an MTU.
func fabricOf(n, vlan, mtu int) string {
	return fmt.Sprintf(`create network {"uuid": "#%d#", "name": "f%d", "nic_tag": "overlay", "vlan_id": %d, "subnet": "10.7.%d.0/24", "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10, "mtu": %d}`, n, n, vlan, n, mtu)
}

// A network of a vnet that does not fit an underlay is refused, clamped or taken, as the
// setting says; the refusal names the nodes and why.
func TestNetworkFitsUnderlay(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	mtu := func(n uint64) uint32 { return w.State.Network(changetest.UUID(n)).MTU }
	refused := func(text string) string {
		t.Helper()
		r := w.Try(w.Change(changetest.Op(t, text))).Refusal
		if r == nil {
			t.Fatalf("%s: accepted", text)
		}
		return r.Error()
	}
	w.Must(`update network #30# {"mtu": 1500}`)
	w.Must(fabricOf(50, 2, 1500)) // by default all is taken
	if mtu(50) != 1500 {
		t.Errorf("the default made MTU %d of 1500", mtu(50))
	}
	w.Must(`create setting {"name": "fabric.mtu", "value": "refuse"}`)
	if got := refused(fabricOf(51, 2, 1500)); !strings.Contains(got, "mtu 1500 does not fit the underlay of 2 compute nodes: compute node cn1 (") || !strings.Contains(got, "carries 1446 (its underlay network has MTU 1500)") || !strings.Contains(got, "send at most 1446") {
		t.Errorf("refused with %s", got)
	}
	w.Must(fabricOf(51, 2, 1446)) // 54 bytes with a VLAN tag
	refused(fabricOf(52, 2, 1447))
	w.Must(fabricOf(52, 0, 1450)) // 50 without
	refused(`update network #52# {"vlan_id": 3}`)
	refused(`update network #51# {"mtu": 1447}`)
	w.Must(`update network #50# {"gateway": "10.7.50.1"}`) // one that does not fit stays usable
	w.Must(`update network #50# {"mtu": 1500}`)

	// One node that reports less is named, the narrowest first.
	w.Must(`update server #12# {"underlay_mtu": 1400}`)
	if got := refused(fabricOf(53, 2, 1446)); !strings.Contains(got, "1 compute nodes: compute node cn2 (") || !strings.Contains(got, "carries 1346 (its underlay interface has MTU 1400)") {
		t.Errorf("refused with %s", got)
	}
	w.Must(`update server #12# {"underlay_mtu": 1500, "underlay_paths": ["192.168.0.2 1380", "192.168.0.7 1420"]}`)
	if got := refused(fabricOf(53, 2, 1446)); !strings.Contains(got, "its path to 192.168.0.2 carries 1380") {
		t.Errorf("refused with %s", got)
	}

	w.Must(`update setting fabric.mtu {"value": "clamp"}`)
	w.Must(fabricOf(53, 2, 1446))
	if mtu(53) != 1326 {
		t.Errorf("clamped to %d, want 1380 - 54", mtu(53))
	}
	w.Must(`update network #50# {"mtu": 1500}`) // again, to have it clamped
	if mtu(50) != 1326 {
		t.Errorf("clamped to %d when it was sent again", mtu(50))
	}
	// A node that is gone is not asked.
	w.Must(`update server #12# {"status": "expunged"}`)
	w.Must(`update network #53# {"mtu": 1446}`)
	if mtu(53) != 1446 {
		t.Errorf("clamped to %d by a node that is expunged", mtu(53))
	}
	// IPv6 underlays take 20 more.
	w.Must(`create network {"uuid": "#60#", "name": "under six", "nic_tag": "external", "subnet": "fd00:6::/64", "mtu": 1500}`)
	w.Must(`update nic 00:00:00:00:01:00 {"network_uuid": "#60#"}`)
	w.Must(`update network #53# {"mtu": 1446}`)
	w.Must(fabricOf(54, 0, 1500))
	if mtu(53) != 1426 || mtu(54) != 1430 {
		t.Errorf("over IPv6 clamped to %d and %d, want 1426 and 1430", mtu(53), mtu(54))
	}
	// Nothing is clamped below what a network may have.
	w.Must(`update server #11# {"underlay_mtu": 576}`)
	if got := refused(fabricOf(55, 2, 1400)); !strings.Contains(got, "does not fit") {
		t.Errorf("refused with %s", got)
	}
}

// What a node reports, and a node that does not answer probes, narrow only vnets in which
// that node has a part; what operators say of an underlay network holds for all.
func TestReportsNarrowOwnVNetsOnly(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	w.Must(`update network #30# {"mtu": 1500}`)
	w.Must(`create setting {"name": "fabric.mtu", "value": "clamp"}`)
	w.Must(`create server {"uuid": "#13#", "hostname": "liar"}`)
	w.Must(`create nic {"mac": "00:00:00:00:01:09", "belongs_to_type": "server", "belongs_to_uuid": "#13#", "owner_uuid": "#1#", "network_uuid": "#30#", "ip": "192.168.0.9", "underlay": true}`)
	w.Must(`update server #13# {"underlay_mtu": 576, "underlay_paths": ["192.168.0.2 576"]}`)
	w.Must(`update server #12# {"underlay_mtu": 1500, "underlay_paths": ["192.168.0.9 576", "192.168.0.2 1400"]}`) // the liar is silent
	w.Must(fabricOf(50, 2, 1500))
	if mtu := w.State.Network(changetest.UUID(50)).MTU; mtu != 1500-54 && mtu != 1400-54 {
		t.Errorf("a node without a part in the vnet made MTU %d", mtu)
	}
	w.Must(`create vm {"uuid": "#29#", "owner_uuid": "#1#", "server_uuid": "#13#", "state": "running"}`)
	w.Must(`create nic {"mac": "00:00:00:00:01:29", "belongs_to_type": "zone", "belongs_to_uuid": "#29#", "owner_uuid": "#1#", "network_uuid": "#50#", "ip": "10.7.50.9"}`)
	if r := w.Try(w.Change(changetest.Op(t, fabricOf(51, 2, 1500)))).Refusal; r == nil || !strings.Contains(r.Error(), "does not fit") {
		t.Errorf("a node of the vnet that carries 576: %v", r)
	}
}

// A port is refused while a VM may run: in each state that is not at rest, for VMs that the
// log does not know, and for a node that it did not know.
func TestPortWhileVMsMayRun(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	try := func(text string) bool { return w.Try(w.Change(changetest.Op(t, text))).Refusal == nil }
	for state, free := range map[string]bool{"running": false, "provisioning": false, "stopping": false, "rebooting": false, "shutting_down": false, "odd": false, "stopped": true, "failed": true} {
		w.Must(fmt.Sprintf(`update vm #22# {"state": "%s"}`, state))
		if try(`update server #12# {"vxlan_port": 4790}`) != free {
			t.Errorf("VM %s: accepted is %t", state, !free)
		}
		if free {
			w.Must(`update server #12# {"vxlan_port": 4789}`)
		}
	}
	w.Must(`update vm #22# {"state": "stopped"}`)
	w.Must(`create nic {"mac": "00:00:00:00:01:30", "belongs_to_type": "zone", "belongs_to_uuid": "#49#", "owner_uuid": "#1#", "network_uuid": "#31#", "cn_uuid": "#14#", "state": "provisioning"}`)
	if try(`create server {"uuid": "#14#", "hostname": "late", "vxlan_port": 4790}`) {
		t.Error("accepted with a VM of a node that the log learns of now")
	}
	w.Must(`update nic 00:00:00:00:01:30 {"state": "stopped"}`)
	w.Must(`create server {"uuid": "#14#", "hostname": "late", "vxlan_port": 4790}`)
}

// A node that reports another MTU each second is heard each 10 s; what follows a first
// report at once is not delayed by its NIC being new.
func TestReportsOfMTUArePaced(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	report := func(mtu int, after time.Duration) string {
		c := w.Change(changetest.Op(t, fmt.Sprintf(`update server #11# {"underlay_mtu": %d}`, mtu)))
		c.By, c.Time = log.Author{Role: log.RoleCN, CN: changetest.UUID(11)}, w.State.Time()+log.Time(after)
		if r := w.Try(c).Refusal; r != nil {
			return r.Code
		}
		return ""
	}
	for _, step := range []struct {
		mtu   int
		after time.Duration
		want  string
	}{{1500, 1, ""}, {1400, time.Second, log.CodeLimit}, {1500, time.Second, ""}, {0, time.Second, log.CodeLimit}, {1400, 10 * time.Second, ""}, {1500, time.Second, log.CodeLimit}} {
		if got := report(step.mtu, step.after); got != step.want {
			t.Errorf("MTU %d after %s: %q, want %q", step.mtu, step.after, got, step.want)
		}
	}
	w.Must(`update server #11# {"underlay_mtu": 1300}`) // an operator waits for nothing
}

// What older programs took as fields that they do not know is no port and no MTU.
func TestOddFieldsOfBefore(t *testing.T) {
	if projections.PortOr(70000) != projections.VXLANPort || projections.PortOr(0) != projections.VXLANPort {
		t.Error("a number that is no port is one")
	}
	if n := (underlay.Node{Addr: netip.MustParseAddr("192.0.2.1"), MTU: 10}); n.Carries(true) != 0 {
		t.Errorf("an MTU of 10 carries %d", n.Carries(true))
	}
}

// A server's port and MTU stand at its underlay NICs, also at one that is made later.
func TestUnderlayNICsFollowServer(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	nic := func() *log.NIC { return w.State.UnderlayNIC(changetest.UUID(12)) }
	w.Must(`update vm #22# {"state": "stopped"}`)
	w.Must(`update server #12# {"vxlan_port": 4790, "underlay_mtu": 1600}`)
	if n := nic(); n.VXLANPort != 4790 || n.UnderlayMTU != 1600 {
		t.Errorf("the NIC has port %d and MTU %d", n.VXLANPort, n.UnderlayMTU)
	}
	if u, ok := w.State.UnderlayOf(changetest.UUID(12)); !ok || u.Port != 4790 {
		t.Errorf("looked up: %+v", u)
	}
	events := len(w.Events)
	w.Must(`update server #12# {"comments": "x"}`)
	if len(w.Events) != events+1 {
		t.Errorf("a change of something else made %d events", len(w.Events)-events)
	}
	w.Must(`delete nic 00:00:00:00:01:01`)
	w.Must(`create nic {"mac": "00:00:00:00:01:02", "belongs_to_type": "server", "belongs_to_uuid": "#12#", "owner_uuid": "#1#", "network_uuid": "#30#", "underlay": true, "vxlan_port": 9}`)
	if n := nic(); n.VXLANPort != 4790 || n.UnderlayMTU != 1600 {
		t.Errorf("a new NIC has port %d and MTU %d", n.VXLANPort, n.UnderlayMTU)
	}
	w.Must(`update nic 00:00:00:00:01:02 {"underlay": false}`)
	if r, _ := w.State.Get(log.KindNIC, "00:00:00:00:01:02"); r.Object.(*log.NIC).VXLANPort != 0 {
		t.Error("a NIC that carries no VXLAN has a port")
	}
	for op, want := range map[string]string{
		`update nic 00:00:00:00:01:00 {"vxlan_port": 4791}`:                                                        "updates for this field are not supported",
		`update server #11# {"vxlan_port": 4790}`:                                                                  "cannot be changed while VMs on fabrics may run",
		`update server #11# {"vxlan_port": 65536}`:                                                                 "is no port",
		`update server #11# {"underlay_mtu": 500}`:                                                                 "is no MTU of an underlay",
		`update server #11# {"underlay_mtu": 70000}`:                                                               "is no MTU of an underlay",
		`update server #11# {"underlay_paths": ["x"]}`:                                                             "is no path",
		`update server #11# {"underlay_paths": ["192.0.2.1 1500", "192.0.2.2 1400"]}`:                              "out of order",
		`update server #11# {"underlay_paths": [` + strings.Repeat(`"192.0.2.1 1400",`, 16) + `"192.0.2.1 1400"]}`: "there are 17 paths",
	} {
		if r := w.Try(w.Change(changetest.Op(t, op))).Refusal; r == nil || !strings.Contains(r.Error(), want) {
			t.Errorf("%.80s: %v, want %s", op, r, want)
		}
	}
	w.Must(`update server #11# {"vxlan_port": 4789}`) // the same port, named
}

// A CN reports what its own underlay carries, and nothing of its port or of others.
func TestCNReportsUnderlay(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	try := func(text string) *log.Refusal {
		c := w.Change(changetest.Op(t, text))
		c.By = log.Author{Role: log.RoleCN, CN: changetest.UUID(11)}
		return w.Try(c).Refusal
	}
	if r := try(`update server #11# {"underlay_mtu": 1500, "underlay_paths": ["192.168.0.3 1400"]}`); r != nil {
		t.Error(r)
	}
	if n := w.State.UnderlayNIC(changetest.UUID(11)); n.UnderlayMTU != 1500 {
		t.Errorf("its NIC has MTU %d", n.UnderlayMTU)
	}
	for _, text := range []string{`update server #11# {"vxlan_port": 4790}`, `update server #12# {"underlay_mtu": 1500}`, `update nic 00:00:00:00:01:00 {"underlay_mtu": 1400}`} {
		if try(text) == nil {
			t.Errorf("%s: accepted", text)
		}
	}
}

// Below feature version 4 a server has none of the fields, and no network is clamped.
func TestUnderlayBeforeFeaturePerNode(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	w.State.SetFeature(log.FeatureConfined)
	for op, want := range map[string]string{
		`update server #12# {"underlay_mtu": 1400}`:                "server has no field",
		`update server #12# {"vxlan_port": 4790}`:                  "server has no field",
		`update nic 00:00:00:00:01:00 {"vxlan_port": 4790}`:        "nic has no field",
		`create setting {"name": "fabric.mtu", "value": "refuse"}`: "there is no setting",
	} {
		if r := w.Try(w.Change(changetest.Op(t, op))).Refusal; r == nil || !strings.Contains(r.Error(), want) {
			t.Errorf("%s: %v, want %s", op, r, want)
		}
	}
	c := w.Change(changetest.Op(t, `update server #11# {"comments": "x"}`))
	c.By = log.Author{Role: log.RoleCN, CN: changetest.UUID(11)}
	if r := w.Try(c).Refusal; r == nil || strings.Contains(r.Error(), "underlay") {
		t.Errorf("what a CN may write is told as %v", r)
	}
	w.Must(fabricOf(50, 2, 1500))
	if u, _ := w.State.UnderlayOf(changetest.UUID(12)); u.Port != projections.VXLANPort {
		t.Errorf("looked up: %+v", u)
	}
}
