package desired_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/desired"
	"rutter/projections/internal/worldtest"
	"rutter/projections/rules"
)

// drawOwn draws a change of what the own NICs of a CN depend on, in the settled world.
func drawOwn(t *rapid.T) string {
	mac := fmt.Sprintf("0200000000%02x", 0x50+worldtest.Even(t, 6, "mac"))
	cn := 11 + worldtest.Even(t, 2, "cn")
	vm := 23 + worldtest.Even(t, 2, "vm")
	network := []int{31, 32, 34, 35, 36}[worldtest.Even(t, 5, "network")]
	server, remote := 11+worldtest.Even(t, 2, "server"), fmt.Sprintf("0200000000%02x", 0x60+worldtest.Even(t, 3, "remote"))
	switch worldtest.Even(t, 38, "what") {
	case 0, 1, 2, 3, 17, 18, 19, 30, 31:
		return fmt.Sprintf(`create nic {"mac": "%s", "belongs_to_type": "zone", "belongs_to_uuid": "#%d#", "owner_uuid": "#1#", "cn_uuid": "#%d#", "network_uuid": "#%d#"}`, mac, vm, cn, network)
	case 4, 5, 20, 21, 32:
		return fmt.Sprintf("delete nic %s {}", mac)
	case 6:
		return fmt.Sprintf(`update nic %s {"network_uuid": "#%d#"}`, mac, network)
	case 7:
		return fmt.Sprintf(`update nic %s {"cn_uuid": "#%d#"}`, mac, cn)
	case 8:
		return fmt.Sprintf(`update nic %s {"primary": %v}`, mac, worldtest.Even(t, 2, "primary") > 0)
	case 9:
		return fmt.Sprintf(`update network #%d# {"gateway": "10.%d.0.%d", "resolvers": ["10.9.9.%d"]}`, network, network, 1+worldtest.Even(t, 3, "gateway"), 1+worldtest.Even(t, 3, "resolver"))
	case 10:
		return fmt.Sprintf(`update vm #%d# {"zonename": "z%d", "state": "%s"}`, vm, worldtest.Even(t, 3, "zone"), []string{"provisioning", "running", "stopped"}[worldtest.Even(t, 3, "state")])
	case 11:
		return fmt.Sprintf(`update server #%d# {"underlay_mtu": %d}`, server, []int{1300, 1400, 1500, 9000}[worldtest.Even(t, 4, "underlay mtu")])
	case 12:
		return fmt.Sprintf(`update server #%d# {"vxlan_port": %d}`, server, 4789+worldtest.Even(t, 2, "port"))
	case 13:
		return fmt.Sprintf(`update network #%d# {"mtu": %d}`, network, []int{1280, 1346, 1400, 1446}[worldtest.Even(t, 4, "mtu")])
	case 22:
		return fmt.Sprintf(`update network #%d# {"broadcast": %v}`, network, worldtest.Even(t, 3, "broadcast") > 0)
	case 23:
		return fmt.Sprintf(`update nic %s {"allow_ip_spoofing": %v, "allow_dhcp_spoofing": %v}`, mac, worldtest.Even(t, 2, "ip") > 0, worldtest.Even(t, 2, "dhcp") > 0)
	case 24:
		return fmt.Sprintf(`update nic %s {"allowed_ips": %s}`, mac, []string{"[]", `["10.0.0.99"]`}[worldtest.Even(t, 2, "allowed")])
	case 25, 26, 33:
		return fmt.Sprintf("delete nic %s {}", remote)
	case 27, 28, 34:
		return fmt.Sprintf(`update nic %s {"cn_uuid": "#%d#"}`, remote, 12+worldtest.Even(t, 2, "remote cn"))
	case 29:
		return fmt.Sprintf(`update nic 00:00:00:00:01:0%d {"ip": "192.168.0.%d"}`, 1+worldtest.Even(t, 2, "underlay of"), 20+worldtest.Even(t, 2, "underlay ip"))
	case 14, 15, 35, 36, 37:
		return fmt.Sprintf(`create nic {"mac": "%s", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "cn_uuid": "#%d#", "network_uuid": "#%d#"}`, remote, 12+worldtest.Even(t, 2, "remote cn"), network)
	}
	return fmt.Sprintf(`update vm #%d# {"server_uuid": "#%d#"}`, vm, cn)
}

// TestPartsAreTheWholesDifference: after any changes of a CN's own NICs, their VMs and
// their networks, the Parts alone make the earlier links those of now.
func TestPartsAreTheWholesDifference(t *testing.T) {
	var parts, firsts, lasts, vlans, idle, wholes, refused, peers, gone, floods int
	rapid.Check(t, func(t *rapid.T) {
		w := worldtest.Settled(t, rules.Decide)
		for _, n := range []struct{ id, vnet, vlan int }{{34, 50, 0}, {35, 50, 7}, {36, 60, 8}} {
			w.Must(fmt.Sprintf(`create network {"uuid": "#%d#", "name": "n%d", "nic_tag": "overlay", "subnet": "10.%d.0.0/24", "provision_start_ip": "10.%d.0.8", "provision_end_ip": "10.%d.0.200", "owner_uuids": ["#1#"], "fabric": true, "vnet_id": %d, "vlan_id": %d}`,
				n.id, n.id, n.id, n.id, n.id, n.vnet, n.vlan))
		}
		w.Must(`create nic {"mac": "00:00:00:00:01:02", "belongs_to_type": "server", "belongs_to_uuid": "#13#", "owner_uuid": "#1#", "network_uuid": "#30#", "underlay": true}`)
		for vm := 23; vm <= 24; vm++ {
			w.Must(fmt.Sprintf(`create vm {"uuid": "#%d#", "owner_uuid": "#1#", "server_uuid": "#11#", "zonename": "z%d"}`, vm, vm))
		}
		w.Must(`create nic {"mac": "020000000050", "belongs_to_type": "zone", "belongs_to_uuid": "#23#", "owner_uuid": "#1#", "cn_uuid": "#11#", "network_uuid": "#31#"}`,
			`create nic {"mac": "020000000060", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "cn_uuid": "#13#", "network_uuid": "#31#"}`,
			`create nic {"mac": "020000000061", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "cn_uuid": "#12#", "network_uuid": "#34#"}`)
		cn := changetest.UUID(11)
		limits := desired.Limits{}
		if rapid.Bool().Draw(t, "limited") {
			limits.Entries = rapid.IntRange(1, 12).Draw(t, "limit")
		}
		var held desired.Links
		touches := desired.NewTouches(cn)
		ask := func() {
			held = desired.Within(w.State, cn, limits)
			limits.OnDemand = map[uint32]bool{}
			for _, v := range held.VXLANs {
				if v.OnDemand {
					limits.OnDemand[v.VNet] = true
				}
			}
			touches.ResetWithin(limits)
			touches.Given(&held)
		}
		ask()
		objects := map[string]log.Object{} // as of before, by kind and id
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
		for range rapid.IntRange(16, 32).Draw(t, "changes") {
			op := changetest.Op(t, drawOwn(t))
			if result := w.Try(w.Change(op)); result.Refusal != nil {
				refused++
				continue
			}
			if rapid.Bool().Draw(t, "later") {
				continue
			}
			if touches.Whole() {
				wholes++
				ask()
				continue
			}
			d := touches.Delta(w.State)
			if touches.Whole() {
				wholes++
				ask()
				continue
			}
			applyDelta(&held, d)
			want := desired.Within(w.State, cn, limits)
			sameProblems(t, held.Problems, want.Problems)
			told := held.Problems
			want.Problems, held.Problems = nil, nil
			demandOnly(&held, limits)
			worldtest.SameDesired(t, held, want)
			held.Problems = told
			peers, gone = peers+len(d.Peers), gone+len(d.NoPeers)
			if d.Part != nil {
				parts++
				for _, v := range d.Part.Links.VXLANs {
					if v.Flood {
						floods++
					}
				}
				firsts += len(d.Part.New)
				lasts += len(d.Part.NoVXLANs)
				vlans += len(d.Part.NoVLANs)
				for i := range d.Part.Links.Fabrics {
					if d.Part.Links.Fabrics[i].Idle {
						idle++
					}
				}
			}
		}
	})
	t.Logf("%d parts, %d first and %d last NICs of a vnet, %d VLANs gone, %d links of VMs not to run, %d wholes, %d refused, %d peers came and %d went, %d devices with broadcast", parts, firsts, lasts, vlans, idle, wholes, refused, peers, gone, floods)
	if parts == 0 || firsts+lasts == 0 || vlans == 0 || idle == 0 || peers == 0 || gone == 0 || floods == 0 {
		t.Error("want some of each")
	}
}

// sameProblems: a state after deltas has no problem that was not told with the whole before.
// One that ended is told until the next whole.
func sameProblems(t *rapid.T, told, now []desired.Problem) {
	t.Helper()
	for _, p := range now {
		if !slices.Contains(told, p) {
			t.Fatalf("a delta hides a problem: %+v, told were %+v", p, told)
		}
	}
}

// demandOnly removes the entries of vnets on demand, which a delta has as if they were not.
func demandOnly(w *desired.Links, limits desired.Limits) {
	vnets := map[log.MAC]uint32{}
	for i := range w.Fabrics {
		vnets[w.Fabrics[i].MAC] = w.Fabrics[i].VNet
	}
	w.FDB = deleteFunc(w.FDB, func(f desired.FDB) bool { return limits.OnDemand[f.VNet] })
	w.Neighs = deleteFunc(w.Neighs, func(n desired.Neigh) bool { return limits.OnDemand[vnets[n.Link]] })
}

func deleteFunc[E any](list []E, gone func(E) bool) (left []E) {
	for _, e := range list {
		if !gone(e) {
			left = append(left, e)
		}
	}
	return left
}
