package rules

import (
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/internal/worldtest"
)

// joined is settled with what the kinds around networks need: a second and a
// third fabric network of owner #1#, two more NICs of server #11#, a pool of the
// third network and of the underlay's, a VLAN, an aggregation, and a router of
// VM #22# that joins #31# and #33#.
func joined(t changetest.Tester) *worldtest.World {
	w := worldtest.Settled(t, Decide)
	w.Must(`create network {"uuid": "#33#", "name": "three", "nic_tag": "overlay", "subnet": "10.3.0.0/24", "owner_uuids": ["#1#"], "fabric": true}`)
	w.Must(`create network {"uuid": "#34#", "name": "four", "nic_tag": "overlay", "vlan_id": 7, "subnet": "10.4.0.0/30", "owner_uuids": ["#1#"], "fabric": true}`)
	w.Must(`create network {"uuid": "#35#", "name": "five", "nic_tag": "overlay", "subnet": "fd00:5::/64", "owner_uuids": ["#1#"], "fabric": true}`)
	for _, mac := range []string{"11", "12"} {
		w.Must(`create nic {"mac": "00:00:00:00:01:` + mac + `", "belongs_to_type": "server", "belongs_to_uuid": "#11#", "owner_uuid": "#1#"}`)
	}
	w.Must(`create network_pool {"uuid": "#40#", "name": "pool", "networks": ["#34#", "#33#"], "owner_uuids": ["#1#"]}`)
	w.Must(`create fabric_vlan {"owner_uuid": "#1#", "vlan_id": 7, "name": "web"}`)
	w.Must(`create aggregation {"name": "aggr0", "macs": ["00:00:00:00:01:11"], "nic_tags_provided": ["external"]}`)
	w.Must(`create router {"uuid": "#60#", "name": "r", "networks": ["#31#", "#33#"], "vm_uuid": "#22#"}`)
	return w
}

// netRefusals lists for each rule an operation that breaks it and the refusal's
// text, or "" for one that is just good enough.
var netRefusals = []struct{ op, want string }{
	{`create network_pool {}`, `InvalidParameters: Invalid parameters; name: must have 1 to 64 characters (choose a name); networks: Missing parameter (name 1 to 64 networks)`},
	{`create network_pool {"name": "p", "networks": []}`, `networks: network pool must contain at least one network`},
	{`create network_pool {"name": "p", "networks": ["#98#"]}`, `networks: unknown network (`},
	{`create network_pool {"name": "p", "networks": ["#98#", "#97#"]}`, `networks: unknown networks (`},
	{`create network_pool {"name": "p", "networks": ["#33#", "#33#"]}`, `networks: network "#33#" is named twice`},
	{`create network_pool {"name": "p", "networks": ["#33#", "#35#"]}`, `networks: all networks of a network pool must be of one family`},
	{`create network_pool {"name": "p", "networks": ["#33#"], "owner_uuids": ["#2#"]}`, `networks: network owner_uuids do not match the owner_uuids of the pool`},
	{`create network_pool {"name": "p", "networks": ["#33#"], "family": "ipv6"}`, `family: the networks are of family ipv4`},
	{`create network_pool {"name": "p", "networks": ["#30#"], "owner_uuids": ["#2#"]}`, ``},
	{`create network_pool {"uuid": "#40#", "name": "p", "networks": ["#30#"]}`, `uuid: Already exists`},
	{`update network_pool #40# {"networks": []}`, `networks: network pool must contain at least one network`},
	{`update network_pool #40# {"uuid": "#41#"}`, `uuid: Network pool updates for this field are not supported`},
	{`update network_pool #41# {"name": "p"}`, `ResourceNotFound: network pool not found`},
	{`delete network #34#`, `InUse: network is in use; uuid: In use by network_pool "#40#"`},
	{`delete network_pool #40#`, ``},

	{`create fabric_vlan {}`, `owner_uuid: Missing parameter`},
	{`create fabric_vlan {"owner_uuid": "#1#", "vlan_id": 1, "name": "x"}`, `vlan_id: VLAN ID must be a number between 0 and 4094, and not 1`},
	{`create fabric_vlan {"owner_uuid": "#1#", "vlan_id": 8, "vnet_id": 11, "name": "x"}`, `vnet_id: the owner's fabric is vnet 10 (leave it out)`},
	{`create fabric_vlan {"owner_uuid": "#5#", "vlan_id": 8, "vnet_id": 10, "name": "x"}`, `vnet_id: network owner_uuids do not match: the vnet is another owner's`},
	{`create fabric_vlan {"owner_uuid": "#5#", "vlan_id": 8, "vnet_id": 11, "name": "x"}`, ``},
	{`create fabric_vlan {"owner_uuid": "#1#", "vlan_id": 7, "name": "x"}`, `InUse: VLAN ID is already in use; vlan_id: VLAN ID is already in use`},
	{`update fabric_vlan #1#:7 {"vnet_id": 11}`, `vnet_id: VLAN updates for this field are not supported`},
	{`update fabric_vlan #1#:7 {"name": "y", "description": "d", "vnet_id": 10}`, ``},
	{`update fabric_vlan #1#:8 {"name": "y"}`, `ResourceNotFound: vlan not found`},
	{`update fabric_vlan #1#:x {"name": "y"}`, `want OWNER-UUID:VLAN`},
	{`delete fabric_vlan #1#:7`, `InUse: VLAN must have no networks; vlan_id: In use by network "#34#"`},
	{`create network {"name": "n", "nic_tag": "overlay", "subnet": "10.6.0.0/24", "owner_uuids": ["#5#"], "fabric": true, "vnet_id": 10}`, `vnet_id: network owner_uuids do not match: the vnet is another owner's`},

	{`create aggregation {"name": "aggr"}`, `name: must end in a number (add one, as in aggr0); macs: Missing parameter`},
	{`create aggregation {"name": "a-0", "macs": []}`, `name: must only contain numbers, letters and underscores (choose another name); macs: must specify at least one MAC address`},
	{`create aggregation {"name": "aggr1", "macs": ["00:00:00:00:01:12"], "lacp_mode": "on"}`, `lacp_mode: Invalid LACP mode. Supported modes: off, active, passive`},
	{`create aggregation {"name": "aggr1", "macs": ["00:00:00:00:09:09"]}`, `macs: unknown MAC addresses`},
	{`create aggregation {"name": "aggr1", "macs": ["00:00:00:00:01:01", "00:00:00:00:01:12"]}`, `macs: belongs_to_uuid must match for all nics in the aggregation`},
	{`create aggregation {"name": "aggr1", "macs": ["00:00:00:00:02:00"]}`, `macs: all nics must have belongs_to_uuid of type server`},
	{`create aggregation {"name": "aggr1", "macs": ["00:00:00:00:01:11"]}`, `macs: In use by aggregation "#11#-aggr0"`},
	{`create aggregation {"name": "aggr1", "macs": ["00:00:00:00:01:12"], "nic_tags_provided": ["gone"]}`, `nic_tags_provided: nic tag "gone" does not exist`},
	{`create aggregation {"name": "aggr0", "macs": ["00:00:00:00:01:12"]}`, `name: aggregation with same belongs_to_uuid and name already exists`},
	{`create aggregation {"name": "aggr1", "macs": ["00:00:00:00:01:12", "000000000112"], "belongs_to_uuid": "#11#"}`, ``},
	{`update aggregation #11#-aggr0 {"macs": ["00:00:00:00:01:11", "00:00:00:00:01:12"], "lacp_mode": "active", "nic_tags_provided": []}`, ``},
	{`update aggregation #11#-aggr0 {"name": "aggr2"}`, `name: Aggregation updates for this field are not supported`},
	{`update aggregation #11#-aggr0 {"macs": ["00:00:00:00:01:01"]}`, `macs: belongs_to_uuid must match`},
	{`delete nic 00:00:00:00:01:11`, `InUse: nic is in an aggregation; mac: In use by aggregation "#11#-aggr0"`},
	{`update nic 00:00:00:00:01:11 {"belongs_to_uuid": "#12#"}`, `belongs_to_uuid: In use by aggregation "#11#-aggr0"`},
	{`delete aggregation #11#-aggr0`, ``},

	{`create router {"name": "x"}`, `networks: Missing parameter (name two or more`},
	{`create router {"name": "x", "networks": ["#33#"]}`, `networks: Missing parameter`},
	{`create router {"name": "x", "networks": ["#33#", "#98#"]}`, `networks: unknown network`},
	{`create router {"name": "x", "networks": ["#33#", "#30#"]}`, `networks: network "#30#" is not a fabric network`},
	{`create router {"name": "x", "networks": ["#33#", "#32#"]}`, `networks: network "#32#" is owned by another owner`},
	{`create router {"name": "x", "owner_uuid": "#2#", "networks": ["#33#", "#34#"]}`, `networks: network "#33#" is owned by another owner`},
	{`create router {"name": "x", "networks": ["#33#", "#35#"]}`, `networks: network "#35#" is of family ipv6`},
	{`create router {"name": "x", "networks": ["#33#", "#31#"]}`, `networks: network "#31#" has a route to 10.3.0.0/24 already`},
	{`create router {"name": "x", "networks": ["#33#", "#34#"], "vnet_ids": [5]}`, `networks: family, vnet_ids and cn_uuid follow from the networks and the VM`},
	{`create router {"name": "x", "networks": ["#33#", "#34#"], "addresses": ["10.3.0.9"]}`, `addresses: there are 1 addresses for 2 networks`},
	{`create router {"name": "x", "networks": ["#33#", "#34#"], "addresses": ["10.3.0.1", "10.4.0.3"]}`, `addresses: IP in use by router "#60#" (choose another, or leave addresses out); addresses: address 10.4.0.3 cannot be the broadcast address`},
	{`create router {"name": "x", "networks": ["#33#", "#34#"], "addresses": ["10.3.0.9", "10.4.0.2"]}`, ``},
	{`update router #60# {"owner_uuid": "#2#"}`, `owner_uuid: Router updates for this field are not supported`},
	{`update router #60# {"networks": ["#31#", "#33#", "#34#"]}`, ``},
	{`update router #60# {"networks": []}`, `networks: Missing parameter`},
	{`update network #31# {"routes": {"10.3.0.0/24": "10.0.0.9"}}`, `routes: the route to 10.3.0.0/24 is that of router "#60#"`},
	{`delete network #33#`, `InUse: network is in use; uuid: In use by network_pool "#40#" (take it out of the pool or router first); uuid: In use by router "#60#"`},
	{`delete router #60#`, ``},

	{`update ip #30#:192.168.1.1 {"reserved": true}`, `ip: ip cannot be outside subnet`},
	{`update ip #98#:192.168.1.1 {"reserved": true}`, `ResourceNotFound: network not found`},
	{`update ip 192.168.1.1 {"reserved": true}`, `want NETWORK-UUID:ADDRESS`},
	{`update ip #30#:192.168.0.9 {"belongs_to_type": "zone"}`, `belongs_to_uuid: Missing parameter (send all of belongs_to_type, belongs_to_uuid and owner_uuid); owner_uuid: Missing parameter`},
	{`update ip #31#:10.0.0.9 {"reserved": true, "owner_uuid": "#2#"}`, `owner_uuid: network owner_uuids do not match`},
	{`update ip #30#:192.168.0.1 {"reserved": false}`, `reserved: the address is the network's gateway, which is always reserved`},
	{`update ip #30#:192.168.0.255 {"reserved": false}`, `reserved: the address is the network's broadcast address`},
	{`delete ip #30#:192.168.0.2`, `ip: IP in use by server "#11#"`},
	{`update ip #30#:192.168.0.2 {"belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#"}`, `ip: IP in use by server "#11#"`},
	{`update ip #30#:192.168.0.2 {"belongs_to_uuid": null, "belongs_to_type": null}`, `ip: IP in use by server "#11#"`},
	{`update ip #33#:10.3.0.1 {"reserved": false}`, `ip: IP in use by router "#60#" (update the router)`},
	{`update ip #30#:192.168.0.9 {"ip": "192.168.0.10", "reserved": true}`, `ip: IP updates for this field are not supported`},
	{`update ip #30#:192.168.0.9 @1 {"reserved": true}`, `PreconditionFailed: if-match '1' didn't match etag '0'`},
	{`create ip {"network_uuid": "#30#", "ip": "192.168.0.9", "reserved": true}`, ``},
	{`update ip #30#:192.168.0.9 {}`, ``},
	{`create nic {` + zoneNIC + `, "network_uuid": "#33#", "ip": "10.3.0.1"}`, `ip: IP in use by router "#60#"`},
	{`create nic {"belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "network_uuid": "#33#", "ip": "10.3.0.1"}`, ``},
	{`create nic {` + zoneNIC + `, "network_uuid": "#40#", "ip": "10.4.0.1"}`, `ip: IP cannot be specified with a network pool`},
	{`create nic {"belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#2#", "network_uuid": "#40#"}`, `owner_uuid: owner cannot provision on network pool`},
	{`create nic {` + zoneNIC + `, "network_uuid": "#40#", "nic_tag": "external"}`, `SubnetFull: all networks in pool are full`},

	{`create setting {"name": "color", "value": "red"}`, `name: there is no setting "color" (use one of: cluster.time, cn.max_vms, cnapi.allocation, cnapi.boot_default, cnapi.platforms, fabric.mtu, fabric.self_provision, napi.network_immutable, napi.strict)`},
	{`create setting {"name": "napi.strict", "value": "red"}`, `value: "red" is no value of napi.strict`},
	{`create setting {"name": "napi.network_immutable", "value": "red"}`, `value: "red" is no value of napi.network_immutable`},
	{`create setting {"name": "napi.network_immutable", "value": "true"}`, ``},
}

func TestNetRefusals(t *testing.T) {
	for _, c := range netRefusals {
		w := joined(t)
		want := changetest.Expand(c.want)
		switch result := w.Try(w.Change(changetest.Op(t, c.op))); {
		case want == "" && result.Refusal != nil:
			t.Errorf("%s: refused: %v", c.op, result.Refusal)
		case want != "" && result.Refusal == nil:
			t.Errorf("%s: accepted, want %s", c.op, want)
		case want != "" && !strings.Contains(result.Refusal.Error(), want):
			t.Errorf("%s\n got %s\nwant %s", c.op, result.Refusal, want)
		case want != "":
			for _, e := range result.Refusal.Errors {
				if e.Field == "" || e.Code == "" || e.Message == "" || e.Remedy == "" {
					t.Errorf("%s: element %+v lacks a part", c.op, e)
				}
			}
		}
	}
}

// lifeOf makes the changes one after the other, and after each compares the
// object's line of the dump.
func TestNetLives(t *testing.T) {
	w := joined(t)
	steps := []struct {
		op   string
		kind log.Kind
		id   string
		want string
	}{
		// What a NIC took from the pool, whose first network has two addresses.
		{`create nic {"mac": "00:00:00:00:05:01", ` + zoneNIC + `, "network_uuid": "#40#"}`, log.KindNIC, "00:00:00:00:05:01", "network_uuid=#34# ip=10.4.0.1"},
		{`create nic {"mac": "00:00:00:00:05:02", ` + zoneNIC + `, "network_uuid": "#40#"}`, log.KindNIC, "00:00:00:00:05:02", "network_uuid=#34# ip=10.4.0.2"},
		{`create nic {"mac": "00:00:00:00:05:03", ` + zoneNIC + `, "network_uuid": "#40#"}`, log.KindNIC, "00:00:00:00:05:03", "network_uuid=#33# ip=10.3.0.2"},
		{`update nic 00:00:00:00:05:03 {"network_uuid": "#40#"}`, log.KindNIC, "00:00:00:00:05:03", "network_uuid=#33# ip=10.3.0.2"},

		// A reserved address is never handed out, and keeps the owner of the NIC that had it.
		{`update ip #33#:10.3.0.3 {"reserved": true}`, log.KindIP, "#33#:10.3.0.3", "network_uuid=#33# ip=10.3.0.3 reserved=true"},
		{`create nic {"mac": "00:00:00:00:05:04", ` + zoneNIC + `, "network_uuid": "#33#"}`, log.KindNIC, "00:00:00:00:05:04", "ip=10.3.0.4"},
		{`create nic {"mac": "00:00:00:00:05:05", ` + zoneNIC + `, "network_uuid": "#33#", "ip": "10.3.0.3"}`, log.KindIP, "#33#:10.3.0.3", "reserved=true owner_uuid=#1#"},
		{`delete nic 00:00:00:00:05:05`, log.KindIP, "#33#:10.3.0.3", "reserved=true owner_uuid=#1#"},
		{`update ip #33#:10.3.0.3 {"belongs_to_type": "other", "belongs_to_uuid": "#70#"}`, log.KindIP, "#33#:10.3.0.3", "reserved=true belongs_to_type=other belongs_to_uuid=#70# owner_uuid=#1#"},
		{`update ip #33#:10.3.0.3 {"belongs_to_type": null, "belongs_to_uuid": null}`, log.KindIP, "#33#:10.3.0.3", "reserved=true owner_uuid=#1#"},
		{`update ip #33#:10.3.0.3 {"reserved": false, "owner_uuid": null, "belongs_to_type": null, "belongs_to_uuid": null}`, log.KindIP, "#33#:10.3.0.3", "none"},
		{`delete nic 00:00:00:00:05:04`, log.KindIP, "#33#:10.3.0.4", "none"},

		// The router's routes and addresses, and what it learns of its VM.
		{`update router #60# {"description": "d"}`, log.KindRouter, "#60#", "description=d owner_uuid=#1# family=ipv4 networks=[#31# #33#] addresses=[10.0.0.5 10.3.0.1] vnet_ids=[10] vm_uuid=#22# cn_uuid=#12#"},
		{`update network #31# {"routes": {"10.8.0.0/16": "10.0.0.9"}}`, log.KindNetwork, "#31#", "routes={10.3.0.0/24:10.0.0.5 10.8.0.0/16:10.0.0.9}"},
		{`update router #60# {"networks": ["#33#", "#35#"]}`, log.KindRouter, "#60#", "networks=[#31# #33#]"}, // refused: two families
		{`delete nic 00:00:00:00:05:01`, log.KindNIC, "00:00:00:00:05:01", "none"},
		{`update router #60# {"networks": ["#33#", "#34#"]}`, log.KindRouter, "#60#", "networks=[#33# #34#] addresses=[10.3.0.1 10.4.0.1]"},
		{`update network #31# {"routes": {}}`, log.KindNetwork, "#31#", "mtu=8926"},
		{`update vm #22# {"server_uuid": "#11#"}`, log.KindRouter, "#60#", "cn_uuid=#11#"},
		{`delete router #60#`, log.KindIP, "#33#:10.3.0.1", "none"},
		{`update network #33# {"description": "d"}`, log.KindNetwork, "#33#", "owner_uuids=[#1#] description=d fabric=true"},

		{`update setting napi.network_immutable {"value": "true"}`, log.KindSetting, "napi.network_immutable", "none"},
	}
	for _, step := range steps {
		result := w.Try(w.Change(changetest.Op(t, step.op)))
		got, want := show(w, step.kind, changetest.Expand(step.id)), changetest.Expand(step.want)
		if !strings.Contains(got, want) {
			t.Errorf("%s: %v\n got %s\nwant %s", step.op, result.Refusal, got, want)
		}
	}
	if got := show(w, log.KindNetwork, changetest.Expand("#31#")); strings.Contains(got, "routes=") {
		t.Errorf("the router is gone, its routes are not: %s", got)
	}
}

// TestNetworkImmutable: the setting restores NAPI's refusals.
func TestNetworkImmutable(t *testing.T) {
	w := joined(t)
	w.Must(`update network #33# {"vlan_id": 9}`)
	w.Must(`update network #33# {"gateway": "10.3.0.200"}`)
	if got := newDraft(w.State, &log.Change{}, &byKind).setting(SettingNetworkImmutable); got != "false" {
		t.Errorf("the default is %q", got)
	}
	w.Must(`create setting {"name": "napi.network_immutable", "value": "true"}`)
	for _, c := range []struct{ op, want string }{
		{`update network #33# {"vlan_id": 10}`, "vlan_id: Network updates for this field are not supported ("},
		{`update network #30# {"nic_tag": "overlay"}`, "nic_tag: Network updates for this field are not supported ("},
		{`update network #33# {"gateway": "10.3.0.201"}`, "gateway: Network updates for this field are not supported on fabrics"},
		{`update network #33# {"vlan_id": 9, "gateway": "10.3.0.200", "mtu": 1400}`, ""},
	} {
		r := w.Try(w.Change(changetest.Op(t, c.op))).Refusal
		if (r == nil) != (c.want == "") || r != nil && !strings.Contains(r.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.op, r, c.want)
		}
	}
}

// TestOptions: what NAPI's parameters that no object keeps do.
func TestOptions(t *testing.T) {
	w := joined(t)
	do := func(text string, options ...log.Option) log.Result {
		op := changetest.Op(t, text)
		op.Options = options
		return w.Try(w.Change(op))
	}
	foreign := `create nic {"mac": "00:00:00:00:05:06", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#2#", "network_uuid": "#33#"}`
	if do(foreign).Refusal == nil {
		t.Error("another owner's NIC was accepted")
	}
	if r := do(foreign, log.OptionAnyOwner, log.OptionReserveIP).Refusal; r != nil {
		t.Fatal(r)
	}
	if r := do(`update nic 00:00:00:00:05:06 {"state": "running"}`).Refusal; r != nil {
		t.Error("an update of something else:", r)
	}
	ip := changetest.Expand("#33#:10.3.0.2")
	if got, want := show(w, log.KindIP, ip), changetest.Expand("network_uuid=#33# ip=10.3.0.2 reserved=true owner_uuid=#2#"); got != want {
		t.Errorf("reserved: %s, want %s", got, want)
	}
	if r := do(`update nic 00:00:00:00:05:06 {"state": "running"}`, log.OptionReleaseIP).Refusal; r != nil || show(w, log.KindIP, ip) != "none" {
		t.Errorf("released: %v, %s", r, show(w, log.KindIP, ip))
	}
	for _, r := range []*log.Refusal{
		do(`update nic 00:00:00:00:05:06 {"state": "running"}`, log.OptionReleaseIP, log.OptionReserveIP).Refusal,
		do(`update vm #22# {"alias": "a"}`, log.OptionAnyOwner).Refusal,
		do(`update nic 00:00:00:00:05:06 {"state": "running"}`, "fast").Refusal,
	} {
		if r == nil || r.Errors[0].Field != "options" {
			t.Errorf("an option that does not fit gave %v", r)
		}
	}
}

// TestFabricOfOwner: an owner has one vnet, drawn once, whatever comes first.
func TestFabricOfOwner(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	w.Must(`create fabric_vlan {"owner_uuid": "#7#", "vlan_id": 0, "name": "x"}`)
	vnets := func(owner log.UUID) (vnets []uint32) {
		for _, kind := range []log.Kind{log.KindFabricVLAN, log.KindNetwork} {
			for r := range w.State.Walk(projections.Walk{Kind: kind, FabricOf: owner}, nil) {
				v, _ := log.Field(r.Object, "vnet_id")
				vnets = append(vnets, uint32(v.(uint64)))
			}
		}
		return vnets
	}
	vnet := vnets(changetest.UUID(7))[0]
	if vnet == 0 || vnet > log.MaxVNet {
		t.Fatalf("drew %d", vnet)
	}
	w.Must(`create network {"uuid": "#50#", "name": "n", "nic_tag": "overlay", "subnet": "10.1.0.0/24", "fabric": true, "owner_uuids": ["#7#"]}`)
	w.Must(`create fabric_vlan {"owner_uuid": "#7#", "vlan_id": 2, "name": "y"}`)
	if got := vnets(changetest.UUID(7)); !slices.Equal(got, []uint32{vnet, vnet, vnet}) {
		t.Errorf("vnets %v, want %d", got, vnet)
	}
	// The other way round: the fabric was there before its VLANs.
	w.Must(`create fabric_vlan {"owner_uuid": "#1#", "vlan_id": 2, "name": "y"}`)
	if got := vnets(changetest.UUID(1)); !slices.Equal(got, []uint32{10, 10}) {
		t.Errorf("an old fabric and its VLAN are on vnets %v", got)
	}
}
