package rules

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/internal/worldtest"
)

// zoneNIC is a good NIC of VM #21# less what each case adds.
const zoneNIC = `"belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#"`

// refusals lists for each rule an operation that breaks it and the refusal's
// text, or "" for one that is just good enough.
var refusals = []struct{ op, want string }{
	{`create nic_tag {"name": "a b", "mtu": 100}`, `InvalidParameters: Invalid parameters; name: must only contain numbers, letters and underscores (choose another name, without / in it); mtu: mtu must be a number between 1500 and 9000 (send 1500 unless the switches carry more)`},
	{`create nic_tag {}`, `InvalidParameters: Invalid parameters; name: Missing parameter (send a name of letters, digits and underscores)`},
	{`create nic_tag {"name": "a2345678901234567890123456789012"}`, `name: must not be longer than 31 characters`},
	{`create nic_tag {"name": "a234567890123456789012345678901"}`, ``},
	{`create nic_tag {"name": "admin", "mtu": 9000}`, `mtu: admin nic tag mtu must be 1500`},
	{`create nic_tag {"name": "external"}`, `name: Already exists`},
	{`create nic_tag {"name": "new", "uuid": "#90#"}`, `uuid: Already exists`},
	{`create nic_tag {"name": "new", "mtu": 0}`, `mtu: mtu must be a number between 1500 and 9000`},
	{`update nic_tag external {"name": "renamed"}`, `name: external nic tag cannot be renamed (leave it out, or create another nic tag)`},
	{`update nic_tag overlay {"name": "renamed"}`, `nic_tag: In use by network "#31#" (delete the networks on it first); nic_tag: In use by network "#32#"`},
	{`update nic_tag overlay {"mtu": 8000}`, `mtu: network "#31#" has mtu 8926 (lower the networks' mtu first); mtu: network "#32#" has mtu 8926`},
	{`update nic_tag external {"mtu": 9000}`, ``},
	{`delete nic_tag external`, `InUse: nic tag is in use; name: In use by network "#30#"`},
	{`delete nic_tag none`, `ResourceNotFound: nic tag not found; name: there is no nic tag none (list what there is, or create it first)`},

	{`create network {}`, `InvalidParameters: Invalid parameters; name: must have 1 to 64 characters (choose a name, such as external); nic_tag: Missing parameter (name the NIC tag that the network lies on); subnet: Missing parameter (send a subnet without host bits, as in 10.1.0.0/24)`},
	{`create network {"name": "n", "nic_tag": "gone", "subnet": "10.1.0.0/24"}`, `nic_tag: nic tag "gone" does not exist (create the tag first)`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "10.1.0.1/24"}`, `subnet: invalid CIDR format`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "8.0.0.0/7"}`, `subnet: invalid CIDR format (send a subnet without host bits, as in 10.1.0.0/24, and a prefix length of 8 to 32)`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "224.0.0.0/24"}`, `subnet: the subnet is not of unicast addresses`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24", "family": "ipv6"}`, `family: the subnet is of family ipv4`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24", "vlan_id": 1}`, `vlan_id: VLAN ID must be a number between 0 and 4094, and not 1`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24", "vlan_id": 4095}`, `vlan_id: VLAN ID must be a number between 0 and 4094, and not 1`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24", "vlan_id": 4094}`, ``},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24", "mtu": 1501}`, `mtu: network mtu must be under nic_tag mtu`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24", "mtu": 575}`, `mtu: mtu must be a number between 576 and 9000`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "fd00::/64", "mtu": 1279}`, `mtu: mtu must be a number between 1280 and 9000`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24", "provision_start_ip": "10.2.0.1", "provision_end_ip": "10.1.0.255"}`, `provision_start_ip: provision_start_ip cannot be outside subnet (send an address from 10.1.0.1 to 10.1.0.254); provision_end_ip: provision_end_ip cannot be the broadcast address`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24", "provision_start_ip": "10.1.0.0"}`, `provision_start_ip: provision_start_ip cannot be the network address`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24", "provision_start_ip": "10.1.0.9", "provision_end_ip": "10.1.0.8"}`, `provision_start_ip: provision_start_ip must be before provision_end_ip (swap them)`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24", "gateway": "10.2.0.1"}`, `gateway: gateway cannot be outside subnet`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24", "gateway": "fd00::1"}`, `gateway: gateway should match subnet type (ipv4)`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24", "resolvers": ["fd00::1"]}`, `resolvers: resolvers should match subnet type (ipv4)`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24", "routes": {"10.2.0.1/16": "10.1.0.1", "fd00::/8": "fd00::1", "10.3.0.0/16": "linklocal", "10.4.0.0/16": "x"}}`, `routes: route destination "10.2.0.1/16" is no address and no subnet (send an address, or a subnet without host bits); routes: gateway "x" of the route to 10.4.0.0/16 is no address (send an address, or linklocal); routes: addresses used for routing should match subnet type (ipv4) (leave out the route to fd00::/8); routes: addresses used for routing should match subnet type (ipv4)`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "fd01::/64", "routes": {"fd02::1": "fd01::1", "FD02::1/128": "fd01::2"}}`, `routes: there are two routes to fd02::1`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24", "vnet_id": 7, "internet_nat": true}`, `vnet_id: only fabric networks have it (leave it out, or send fabric: true); internet_nat: only fabric networks have it`},
	{`create network {"name": "n", "nic_tag": "external", "subnet": "192.168.0.0/25"}`, ``},
	{`create network {"name": "n", "nic_tag": "overlay", "subnet": "10.1.0.0/24", "fabric": true}`, `InvalidParameters: Invalid parameters; owner_uuids: a fabric network has exactly one owner, not 0 (name the owner of the fabric)`},
	{`create network {"name": "n", "nic_tag": "overlay", "subnet": "8.8.8.0/24", "fabric": true, "owner_uuids": ["#1#"]}`, `subnet: subnet must be within private ranges (send one of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or fc00::/7)`},
	{`create network {"name": "n", "nic_tag": "overlay", "subnet": "10.1.0.0/24", "fabric": true, "owner_uuids": ["#1#"], "vnet_id": 16777216}`, `vnet_id: must be between 1 and 16777215`},
	{`create network {"name": "n", "nic_tag": "overlay", "subnet": "10.1.0.0/24", "fabric": true, "owner_uuids": ["#1#"], "vnet_id": 0}`, `vnet_id: must be between 1 and 16777215`},
	{`create network {"name": "n", "nic_tag": "overlay", "subnet": "10.1.0.0/24", "fabric": true, "owner_uuids": ["#1#"], "vnet_id": 20}`, `vnet_id: network owner_uuids do not match: the vnet is another owner's`},
	{`create network {"name": "n", "nic_tag": "overlay", "subnet": "10.0.0.128/25", "fabric": true, "owner_uuids": ["#1#"], "vnet_id": 10}`, `subnet: subnet overlaps with another network (choose a subnet outside 10.0.0.0/24)`},
	{`create network {"name": "n", "nic_tag": "overlay", "subnet": "10.0.0.0/16", "fabric": true, "owner_uuids": ["#1#"], "vnet_id": 10}`, `subnet: subnet overlaps with another network`},
	{`create network {"name": "n", "nic_tag": "overlay", "subnet": "fd00:1::/64", "fabric": true, "owner_uuids": ["#1#"], "vnet_id": 10}`, ``},
	{`create network {"uuid": "#30#", "name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24"}`, `uuid: Already exists`},
	{`create network #30# {"uuid": "#39#", "name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24"}`, `name the object once`},
	{`update network #31# {"subnet": "10.5.0.0/24", "vnet_id": 11, "owner_uuids": ["#2#"], "fabric": false}`, `InvalidParameters: Invalid parameters; subnet: Network updates for this field are not supported (leave it out, or create another network); owner_uuids: Network updates for this field are not supported on fabrics (leave it out, or create another network); fabric: Network updates for this field are not supported (leave it out, or create another network); vnet_id: Network updates for this field are not supported (leave it out, or create another network)`},
	{`update network #31# {"subnet": "10.0.0.0/24", "vnet_id": 10, "family": "ipv4"}`, ``},
	{`update network #31# {"gateway": "10.0.0.254", "mtu": 1400, "routes": {"10.8.0.0/16": "10.0.0.3"}, "resolvers": []}`, ``},
	{`update network #31# {"gateway": "10.0.1.254"}`, `gateway: gateway cannot be outside subnet`},
	{`update network #31# {"routes": {"10.8.0.0/16": "10.1.0.3"}}`, `routes: gateway 10.1.0.3 of the route to 10.8.0.0/16 cannot be outside subnet`},
	{`update network #31# {"nic_tag": "external"}`, `mtu: network mtu must be under nic_tag mtu`},
	{`update network #31# {"nic_tag": "external", "mtu": 1400, "vlan_id": 3}`, ``},
	{`update network #31# {"provision_start_ip": null}`, `provision_start_ip: Missing parameter`},
	{`update network #99# {"name": "n"}`, `ResourceNotFound: network not found`},
	{`update network nonsense {"name": "n"}`, `uuid: uuid "nonsense": want 36 characters`},
	{`update network #31# @7 {"name": "n"}`, `PreconditionFailed: if-match '7' didn't match etag '1'; if-match: the object is at revision 1 (read the object again and repeat the update on what it is now)`},
	{`update network #31# @1 {"name": "n"}`, ``},
	{`update network #31# @1-4 {"name": "n"}`, ``},
	{`update network #31# @1-3 {"name": "n"}`, `PreconditionFailed: if-match '1-3' didn't match etag '1-4'; if-match: the object is at revision 1`},
	{`delete network #32# @1-99`, `PreconditionFailed: if-match '1-99' didn't match etag '1-5'`},
	{`create nic_tag @0-7 {"name": "new"}`, `PreconditionFailed: if-match '0-7' didn't match`},
	{`create nic_tag @1 {"name": "new"}`, `PreconditionFailed: if-match '1' didn't match`},
	{`delete network #31#`, `InUse: network must have no NICs provisioned; uuid: In use by nic "00:00:00:00:02:00" (delete its NICs first); uuid: In use by nic "00:00:00:00:02:01"`},
	{`delete network #32#`, ``},

	{`create nic {}`, `InvalidParameters: Invalid parameters; belongs_to_type: Missing parameter (send zone, server or other); belongs_to_uuid: Missing parameter (send the UUID of the VM, server or other thing); owner_uuid: Missing parameter (send the UUID of the owner)`},
	{`create nic {` + zoneNIC + `}`, ``},
	{`create nic {` + zoneNIC + `, "mac": "01:00:00:00:00:01", "network_uuid": "#31#", "cn_uuid": "#11#"}`, `mac: it is a multicast address`},
	{`create nic {` + zoneNIC + `, "mac": "00-00-00-00-02-00"}`, `mac: Already exists`},
	{`create nic {` + zoneNIC + `, "state": "odd", "model": "` + strings.Repeat("m", 65) + `"}`, `state: "odd" is not known (send provisioning, stopped or running); model: must not be longer than 64 bytes`},
	{`create nic {"belongs_to_type": "cn", "belongs_to_uuid": "#21#", "owner_uuid": "#1#"}`, `belongs_to_type: "cn" is not known`},
	{`create nic {` + zoneNIC + `, "underlay": true, "nic_tags_provided": ["external"]}`, `underlay: underlay can only be set on server NICs (leave it out)`},
	{`create nic {"belongs_to_type": "server", "belongs_to_uuid": "#11#", "owner_uuid": "#1#", "cn_uuid": "#12#"}`, `cn_uuid: a server's NIC is on the server that it belongs to`},
	{`create nic {"belongs_to_type": "server", "belongs_to_uuid": "#11#", "owner_uuid": "#1#", "underlay": true, "network_uuid": "#31#"}`, `underlay: an underlay NIC cannot be on a fabric`},
	{`create nic {"belongs_to_type": "server", "belongs_to_uuid": "#11#", "owner_uuid": "#1#", "nic_tags_provided": ["gone", "external", "external"]}`, `nic_tags_provided: nic tag "gone" does not exist (create the tag first); nic_tags_provided: nic tag "external" is named twice`},
	{`create nic {` + zoneNIC + `, "nic_tag": "gone", "vlan_id": 1}`, `nic_tag: nic tag "gone" does not exist (create the tag first); vlan_id: VLAN ID must be a number`},
	{`create nic {` + zoneNIC + `, "network_uuid": "#39#"}`, `network_uuid: network "#39#" does not exist`},
	{`create nic {` + zoneNIC + `, "network_uuid": "#32#"}`, `owner_uuid: network owner_uuids do not match`},
	{`create nic {"belongs_to_type": "zone", "belongs_to_uuid": "#29#", "owner_uuid": "#1#", "network_uuid": "#31#"}`, `cn_uuid: Missing parameter (a NIC on a fabric needs the CN that it is on)`},
	{`create nic {` + zoneNIC + `, "network_uuid": "#31#", "ip": "10.0.1.1"}`, `ip: ip cannot be outside subnet (send an address from 10.0.0.1 to 10.0.0.254)`},
	{`create nic {` + zoneNIC + `, "network_uuid": "#31#", "ip": "10.0.0.255"}`, `ip: ip cannot be the broadcast address`},
	{`create nic {` + zoneNIC + `, "network_uuid": "#31#", "ip": "10.0.0.3"}`, `ip: IP in use by zone "#21#" (choose another, or leave it out to have one chosen)`},
	{`create nic {` + zoneNIC + `, "network_uuid": "#31#", "ip": "::ffff:10.0.0.1"}`, ``},
	{`create nic {` + zoneNIC + `, "network_uuid": "#31#", "nic_tag": "external", "vlan_id": 3}`, `nic_tag: the network is on nic tag "overlay" (leave it out, or update the network); vlan_id: the network is on VLAN 2`},
	{`create nic {` + zoneNIC + `, "network_uuid": "#31#", "nic_tag": "overlay/10", "vlan_id": 2}`, ``},
	{`create nic {` + zoneNIC + `, "ip": "10.0.0.7"}`, `nic_tag: required if IP specified but not network_uuid (send nic_tag and vlan_id, or network_uuid); vlan_id: required if IP specified`},
	{`create nic {` + zoneNIC + `, "ip": "10.0.0.7", "nic_tag": "overlay/11", "vlan_id": 2}`, `ip: No networks matching this nic_tag ("overlay/11") and vlan_id (2) contained the IP address 10.0.0.7 (send network_uuid)`},
	{`create nic {` + zoneNIC + `, "ip": "10.0.0.7", "nic_tag": "overlay/10", "vlan_id": 2}`, ``},
	{`update nic 000000000200 {"created_timestamp": "2020-01-01T00:00:00Z"}`, `created_timestamp: NIC updates for this field are not supported`},
	{`update nic 00:00:00:00:02:00 {"ip": null}`, `ip: a NIC on a network has an address`},
	{`update nic 00:00:00:00:02:00 {"ip": "10.0.0.4"}`, `ip: IP in use by zone "#22#"`},
	{`update nic 00:00:00:00:02:00 {"ip": "10.0.0.3", "state": "running"}`, ``},
	{`update nic 00:00:00:00:02:00 {"cn_uuid": null}`, `cn_uuid: Missing parameter`},
	{`update nic 00:00:00:00:02 {"state": "running"}`, `mac: mac "00:00:00:00:02": want 12 hexadecimal digits`},
	{`delete nic 00:00:00:00:02:09`, `ResourceNotFound: nic not found`},

	{`create server {"uuid": "#11#"}`, `uuid: Already exists`},
	{`create server {"status": "up", "comments": "` + strings.Repeat("x", 1025) + `"}`, `status: "up" is not known (send running, unknown, or expunged for one that will not come back); comments: must not be longer than 1024 bytes`},
	{`update server #11# {"status": "running"}`, ``},
	{`delete server #11#`, `InUse: server is in use; uuid: In use by nic "00:00:00:00:01:00" (delete its VMs, VMMs and NICs first); uuid: In use by nic "00:00:00:00:02:00" (delete its VMs, VMMs and NICs first); uuid: In use by vm "#21#"`},
	{`create vm {}`, `owner_uuid: Missing parameter`},
	{`create vm {"owner_uuid": "#1#", "state": "Odd", "zonename": "../x"}`, `state: "Odd" is not a state (send a word such as provisioning, running or stopped); zonename: "../x" cannot name a network namespace`},
	{`create vm {"owner_uuid": "#1#", "server_uuid": "#11#", "zonename": "#21#"}`, `zonename: another VM of the server has it`},
	{`create vm {"owner_uuid": "#1#", "server_uuid": "#12#", "zonename": "#21#"}`, ``},
	{`update vm #21# {"create_timestamp": "2020-01-01T00:00:00Z"}`, `create_timestamp: VM updates for this field are not supported`},
	{`delete vm #21#`, `InUse: vm is in use; uuid: In use by nic "00:00:00:00:02:00"`},
	{`create vmm {"state": "odd", "gen": 0}`, `InvalidParameters: Invalid parameters; instance_id: Missing parameter (send the UUID of the VM); sled_id: Missing parameter (send the UUID of the CN); state: "odd" is not known`},
	{`create vmm {"id": "#40#", "instance_id": "#21#", "sled_id": "#11#", "state": "starting"}`, ``},
	{`update vmm #40# {"state": "running", "gen": 2}`, `ResourceNotFound: vmm not found`},
}

func TestRefusals(t *testing.T) {
	for _, c := range refusals {
		w := worldtest.Settled(t, Decide)
		result := w.Try(w.Change(changetest.Op(t, c.op)))
		want := changetest.Expand(c.want)
		switch {
		case result.Refusal == nil && want != "":
			t.Errorf("%s\n got it accepted\nwant %s", c.op, want)
		case result.Refusal != nil && want == "":
			t.Errorf("%s\n got %s\nwant it accepted", c.op, result.Refusal)
		case result.Refusal != nil && !strings.Contains(result.Refusal.Error(), want):
			t.Errorf("%s\n got %s\nwant %s", c.op, result.Refusal, want)
		}
		if result.Refusal != nil {
			for _, e := range result.Refusal.Errors {
				if e.Field == "" || e.Code == "" || e.Message == "" || e.Remedy == "" {
					t.Errorf("%s: element %+v lacks a part", c.op, e)
				}
			}
		}
	}
}

func TestRefusedChanges(t *testing.T) {
	good := `create nic_tag {"name": "new"}`
	cases := []struct {
		name string
		edit func(*log.Change)
		want string
	}{
		{"no ops", func(c *log.Change) { c.Ops = nil }, "ops: a change has 1 to 1024 operations, not 0"},
		{"many ops", func(c *log.Change) { c.Ops = make([]log.Op, log.MaxOps+1) }, "ops: a change has 1 to 1024 operations, not 1025"},
		{"no id", func(c *log.Change) { c.ID = log.UUID{} }, "id: Missing parameter"},
		{"long actor", func(c *log.Change) { c.Actor = strings.Repeat("a", 257) }, "actor: the actor's name has 257 bytes"},
		{"unknown kind", func(c *log.Change) { c.Ops[0].Kind = 200 }, "kind: kind kind(200) is not known"},
		{"unknown action", func(c *log.Change) { c.Ops[0].Action = 9 }, "action: action(9) is not known"},
		{"no object", func(c *log.Change) { c.Ops[0].Object = nil }, "object: Missing parameter"},
		{"other object", func(c *log.Change) { c.Ops[0].Object = new(log.VM) }, "object: Missing parameter"},
		{"undecoded object", func(c *log.Change) { c.Ops[0].Object = &log.Unknown{OfKind: log.KindNICTag} }, "object: Missing parameter"},
		{"unknown field", func(c *log.Change) {
			c.Ops[0] = log.Op{Action: log.Update, Kind: log.KindNICTag, ID: "external", Object: new(log.NICTag), Set: []string{"color"}}
		}, `color: nic_tag has no field "color"`},
		{"second of two", func(c *log.Change) { c.Ops = append(c.Ops, c.Ops[0]) }, "ops.1.name: Already exists"},
	}
	for _, test := range cases {
		w := worldtest.Settled(t, Decide)
		c := w.Change(changetest.Op(t, good))
		test.edit(c)
		events, result := Decide(w.State, c)
		if events != nil || result.Refusal == nil || !strings.Contains(result.Refusal.Error(), test.want) {
			t.Errorf("%s: got %v, want a refusal with %q", test.name, result.Refusal, test.want)
		}
	}
}

// show returns the object's line of the dump without revision and seq.
func show(w *worldtest.World, kind log.Kind, id string) string {
	w.T.Helper()
	for line := range strings.Lines(string(w.State.Dump())) {
		if rest, ok := strings.CutPrefix(line, fmt.Sprintf("%s %s rev=", kind, id)); ok {
			_, rest, _ = strings.Cut(rest, " seq=")
			_, rest, _ = strings.Cut(rest, " ")
			return strings.TrimSpace(rest)
		}
	}
	return "none"
}

func TestDefaults(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	w.Now = 5e9 - 1e6
	cases := []struct {
		kind     log.Kind
		op, want string
	}{
		{log.KindNICTag, `create nic_tag {"name": "x"}`, `name=x uuid=c3ec4a8d-5d2b-8ea4-9ef3-6e4d58a1c3b5 mtu=1500`},
		{log.KindNetwork, `create network {"uuid": "#50#", "name": "n", "nic_tag": "external", "subnet": "10.1.0.0/24", "owner_uuids": ["#2#", "#1#", "#2#"]}`, `uuid=#50# name=n family=ipv4 nic_tag=external subnet=10.1.0.0/24 provision_start_ip=10.1.0.1 provision_end_ip=10.1.0.254 mtu=1500 owner_uuids=[#1# #2#]`},
		{log.KindNetwork, `create network {"uuid": "#51#", "name": "n", "nic_tag": "overlay", "subnet": "fd00:7::/64", "fabric": true, "owner_uuids": ["#1#"], "internet_nat": true}`, `uuid=#51# name=n family=ipv6 nic_tag=overlay subnet=fd00:7::/64 provision_start_ip=fd00:7::1 provision_end_ip=fd00:7::ffff:ffff:ffff:ffff gateway=fd00:7::1 mtu=8926 owner_uuids=[#1#] fabric=true vnet_id=10 internet_nat=true`},
		{log.KindNIC, `create nic {"mac": "020000000001", ` + zoneNIC + `, "network_uuid": "#31#"}`, `mac=02:00:00:00:00:01 belongs_to_type=zone belongs_to_uuid=#21# owner_uuid=#1# state=provisioning created_timestamp=5003000000 modified_timestamp=5003000000 network_uuid=#31# ip=10.0.0.5 cn_uuid=#11#`},
		{log.KindServer, `create server {"uuid": "#52#"}`, `uuid=#52# status=unknown created=5004000000`},
		{log.KindVM, `create vm {"uuid": "#53#", "owner_uuid": "#1#"}`, `uuid=#53# owner_uuid=#1# state=provisioning zonename=#53# create_timestamp=5005000000 last_modified=5005000000`},
		{log.KindVMM, `create vmm {"id": "#54#", "instance_id": "#21#", "sled_id": "#11#", "state": "creating"}`, `id=#54# instance_id=#21# sled_id=#11# state=creating gen=1 time_updated=5006000000`},
	}
	for _, c := range cases {
		result := w.Must(c.op)
		got, want := show(w, c.kind, result.IDs[0]), changetest.Expand(c.want)
		if c.kind == log.KindNICTag { // its UUID is derived
			got, want = got[:10], want[:10]
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", c.op, got, want)
		}
	}
}

func TestDerivedIDs(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	text := `create vm {"owner_uuid": "#1#"}`
	c := w.Change(changetest.Op(t, text), changetest.Op(t, text), changetest.Op(t, `create nic {`+zoneNIC+`}`))
	_, first := Decide(w.State, c)
	second := w.Try(c)
	if fmt.Sprint(first.IDs) != fmt.Sprint(second.IDs) || first.IDs[0] == first.IDs[1] {
		t.Fatalf("derived %v, then %v", first.IDs, second.IDs)
	}
	u, err := log.ParseUUID(first.IDs[0])
	if err != nil || u[6]>>4 != 8 || u[8]>>6 != 2 {
		t.Errorf("derived %v, %v; want version 8 of RFC 9562", u, err)
	}
	if !strings.HasPrefix(first.IDs[2], "90:b8:d0:") {
		t.Errorf("drew MAC %s, want Joyent's prefix", first.IDs[2])
	}
	if again := w.Try(c); again.Refusal == nil || !strings.Contains(again.Refusal.Error(), "ops.0.uuid: Already exists") {
		t.Errorf("the same change again: got %v, want a duplicate", again.Refusal)
	}
}

func TestAllocation(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	nic := `create nic {"belongs_to_type": "other", "belongs_to_uuid": "#60#", "owner_uuid": "#2#", "cn_uuid": "#11#", "network_uuid": "#32#"}`
	first := w.Must(nic)
	// A change that frees an address may take it again, and then the rest.
	freed := w.Must("delete nic "+first.IDs[0], nic, nic)
	for i, want := range []string{"10.0.0.10", "10.0.0.11"} {
		r, _ := w.State.Get(log.KindNIC, freed.IDs[i+1])
		if got := r.Object.(*log.NIC).IP.String(); got != want {
			t.Errorf("NIC %d got %s, want %s", i, got, want)
		}
	}
	full := w.Try(w.Change(changetest.Op(t, nic)))
	want := changetest.Expand(`SubnetFull: no more free IPs; network_uuid: every address from 10.0.0.10 to 10.0.0.11 of network "#32#" is in use`)
	if full.Refusal == nil || !strings.HasPrefix(full.Refusal.Error(), want) {
		t.Errorf("got %v, want %s", full.Refusal, want)
	}
	w.Must(`update network #32# {"provision_end_ip": "10.0.0.12", "gateway": "10.0.0.12"}`)
	if r := w.Try(w.Change(changetest.Op(t, nic))); r.Refusal == nil {
		t.Errorf("the gateway was allocated to %v", r.IDs)
	}
	w.Must(strings.Replace(nic, "}", `, "ip": "10.0.0.12"}`, 1)) // by name it is the router's
	if r, ok := w.State.NICAt(changetest.UUID(32), netip.MustParseAddr("10.0.0.12")); !ok || r.Object.(*log.NIC).BelongsToUUID != changetest.UUID(60) {
		t.Errorf("the gateway's address is of %+v", r.Object)
	}
}

func TestPrimaryMoves(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	before := len(w.Events)
	w.Must(`create nic {"mac": "020000000001", ` + zoneNIC + `, "primary": true}`)
	events := w.Events[before:]
	if len(events) != 2 || events[0].ID != "00:00:00:00:02:00" || events[0].Changed[0].Path != "primary" || events[0].More != 1 {
		t.Fatalf("got events %+v, want the other NIC to lose the mark first", events)
	}
	w.Must(`update nic 00:00:00:00:02:00 {"primary": true}`, `update nic 020000000001 {"primary": true}`)
	count := 0
	for r := range w.State.NICsOf(changetest.UUID(21)) {
		if r.Object.(*log.NIC).Primary {
			count++
		}
	}
	if count != 1 {
		t.Errorf("%d NICs are primary, want 1", count)
	}
}

func TestNICMoves(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	w.Must(`create network {"uuid": "#33#", "name": "three", "nic_tag": "overlay", "subnet": "10.3.0.0/24", "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 30}`)
	w.Must(`update nic 00:00:00:00:02:00 {"network_uuid": "#33#", "cn_uuid": "#12#"}`)
	nic, _ := w.State.Get(log.KindNIC, "00:00:00:00:02:00")
	if got := nic.Object.(*log.NIC).IP.String(); got != "10.3.0.1" {
		t.Errorf("on its new network the NIC has %s, want 10.3.0.1", got)
	}
	last := w.Events[len(w.Events)-1]
	want := changetest.Expand("[cn:#11# cn:#12# vnet:10 vnet:30]")
	if fmt.Sprint(last.Scopes) != want {
		t.Errorf("the move has scopes %v, want %s", last.Scopes, want)
	}
	w.Must(`update nic 00:00:00:00:02:00 {"network_uuid": null}`)
	if got := show(w, log.KindNIC, "00:00:00:00:02:00"); strings.Contains(got, " ip=") || strings.Contains(got, "network_uuid") {
		t.Errorf("off its network the NIC is %s", got)
	}
	w.Must(`update nic 00:00:00:00:01:00 {"belongs_to_uuid": "#12#"}`)
	if got := show(w, log.KindNIC, "00:00:00:00:01:00"); !strings.Contains(got, "cn_uuid="+changetest.UUID(12).String()) {
		t.Errorf("the server's NIC did not follow to its new server: %s", got)
	}
}

func TestUpdateWithoutEffect(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	w.Must(`create vmm {"id": "#40#", "instance_id": "#21#", "sled_id": "#11#", "state": "starting", "gen": 5}`)
	for _, op := range []string{
		`update network #31# {"name": "one", "resolvers": ["10.0.0.2", "8.8.8.8"]}`,
		`update nic 00:00:00:00:02:00 {}`,
		`update vmm #40# {"state": "failed", "gen": 5}`,
		`update vmm #40# {"state": "failed", "gen": 4}`,
	} {
		before := len(w.Events)
		if r := w.Must(op); len(w.Events) != before || r.Events != 0 || len(r.IDs) != 1 {
			t.Errorf("%s: got %+v and %d events, want none", op, r, len(w.Events)-before)
		}
	}
	w.Must(`update vmm #40# {"state": "running", "gen": 6}`)
	if got := show(w, log.KindVMM, changetest.UUID(40).String()); !strings.Contains(got, "state=running gen=6") {
		t.Errorf("a newer generation gave %s", got)
	}
	r := w.Try(w.Change(changetest.Op(t, `update vmm #40# {"state": "failed"}`)))
	if r.Refusal == nil || !strings.Contains(r.Refusal.Error(), "gen: Missing parameter") {
		t.Errorf("without a generation: got %v", r.Refusal)
	}
}

// What a CN observed first counts over a record that was not observed.
func TestFirstObservationOfAVMM(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	w.Must(`create vmm {"id": "#40#", "instance_id": "#21#", "sled_id": "#11#", "state": "creating"}`)
	w.Must(`update vmm #40# {"state": "starting", "gen": 1}`)
	if r := w.Must(`update vmm #40# {"state": "failed", "gen": 1}`); r.Events != 0 {
		t.Errorf("a second state of the same generation made %d events", r.Events)
	}
	if got := show(w, log.KindVMM, changetest.UUID(40).String()); !strings.Contains(got, "state=starting gen=1") {
		t.Errorf("got %s, want starting", got)
	}
}

// Each side of a migration is its CN's: an older report of one changes nothing,
// and nothing of the other.
func TestMigrationSides(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	source, target := `"source_propolis_id": "#41#", "source_state": `, `"target_propolis_id": "#42#", "target_state": `
	w.Must(`create migration {"id": "#60#", "instance_id": "#21#", ` + target + `"pending", "target_gen": 3}`)
	for _, c := range []struct {
		op     string
		events uint32
	}{
		{source + `"in_progress", "source_gen": 1`, 1},
		{target + `"failed", "target_gen": 3`, 0},
		{target + `"failed", "target_gen": 2`, 0},
		{source + `"failed", "source_gen": 1, ` + target + `"completed", "target_gen": 4`, 1},
	} {
		if r := w.Must(`update migration #60# {` + c.op + `}`); r.Events != c.events {
			t.Errorf("%s: %d events, want %d", c.op, r.Events, c.events)
		}
	}
	got := show(w, log.KindMigration, changetest.UUID(60).String())
	if !strings.Contains(got, "source_state=in_progress source_gen=1") || !strings.Contains(got, "target_state=completed target_gen=4") {
		t.Errorf("got %s", got)
	}
	for op, want := range map[string]string{
		`create migration {"id": "#61#", "instance_id": "#21#"}`:                                             "target_gen: Missing parameter",
		`create migration {"id": "#61#", ` + source + `"gone", "source_gen": 1}`:                             "instance_id: Missing parameter",
		`update migration #60# {"target_gen": 5, "target_state": "gone"}`:                                    `target_state: "gone" is not known`,
		`update migration #60# {"target_gen": 5, "target_propolis_id": "#41#"}`:                              "target_propolis_id: a VMM cannot migrate to itself",
		`create migration {"id": "#61#", "instance_id": "#21#", "target_state": "pending", "target_gen": 1}`: "target_propolis_id: Missing parameter",
	} {
		if r := w.Try(w.Change(changetest.Op(t, op))); r.Refusal == nil || !strings.Contains(r.Refusal.Error(), want) {
			t.Errorf("%s: got %v, want %s", op, r.Refusal, want)
		}
	}
}

func TestTimeNeverGoesBack(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	was := w.State.Time()
	w.Now = 5
	w.Must(`create nic_tag {"name": "late"}`)
	if e := w.Events[len(w.Events)-1]; e.Time != was || w.State.Time() != was {
		t.Errorf("after a stamp of the past the event is of %d, the state of %d; want %d", e.Time, w.State.Time(), was)
	}
}

func TestDrawnVNet(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	fabric := `create network {"name": "n", "nic_tag": "overlay", "subnet": "10.7.0.0/24", "fabric": true, "owner_uuids": ["#3#"]}`
	r := w.Must(fabric, strings.NewReplacer("10.7", "10.8", `"n"`, `"m"`).Replace(fabric))
	one, _ := w.State.Get(log.KindNetwork, r.IDs[0])
	two, _ := w.State.Get(log.KindNetwork, r.IDs[1])
	if a, b := one.Object.(*log.Network).VNetID, two.Object.(*log.Network).VNetID; a == 0 || a != b {
		t.Errorf("the fabrics of one owner were put on vnets %d and %d, want one", a, b)
	}
}
