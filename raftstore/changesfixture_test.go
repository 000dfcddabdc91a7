package raftstore

import (
	"fmt"
	"strings"

	"rutter/log"
	"rutter/log/changetest"
)

// baseTime is the time of the first change of tests that choose their times.
const baseTime = log.Time(1_700_000_000_000_000_000)

// fixedID returns a version 7 UUID of baseTime that ends in n.
func fixedID(n uint64) log.UUID {
	id := log.UUID{6: 0x70, 8: 0x80}
	ms := uint64(baseTime)/1_000_000 + n
	for i := range 6 {
		id[5-i] = byte(ms >> (8 * i))
	}
	for i := range 8 {
		if i < 7 {
			id[15-i] = byte(n >> (8 * i))
		}
	}
	return id
}

// settling makes a small cloud: tags, three networks, two CNs, a VM on each.
var settling = []string{
	`create nic_tag {"name": "admin", "uuid": "#89#"}`,
	`create nic_tag {"name": "external", "uuid": "#90#"}`,
	`create nic_tag {"name": "overlay", "uuid": "#91#", "mtu": 9000}`,
	`create network {"uuid": "#30#", "name": "underlay", "nic_tag": "external", "vlan_id": 4, "subnet": "192.168.0.0/24", "gateway": "192.168.0.1"}`,
	`create network {"uuid": "#31#", "name": "one", "nic_tag": "overlay", "vlan_id": 2, "subnet": "10.0.0.0/24", "gateway": "10.0.0.1", "resolvers": ["10.0.0.2"], "routes": {"10.9.0.0/16": "10.0.0.9"}, "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10}`,
	`create network {"uuid": "#32#", "name": "two", "nic_tag": "overlay", "subnet": "10.1.0.0/24", "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10}`,
	`create server {"uuid": "#11#", "hostname": "cn1"}`,
	`create server {"uuid": "#12#", "hostname": "cn2"}`,
	`create nic {"mac": "00:00:00:00:01:00", "belongs_to_type": "server", "belongs_to_uuid": "#11#", "owner_uuid": "#1#", "network_uuid": "#30#", "underlay": true, "nic_tags_provided": ["external"]}`,
	`create nic {"mac": "00:00:00:00:01:01", "belongs_to_type": "server", "belongs_to_uuid": "#12#", "owner_uuid": "#1#", "network_uuid": "#30#", "underlay": true}`,
	`create vm {"uuid": "#21#", "owner_uuid": "#1#", "server_uuid": "#11#", "state": "running"}`,
	`create vm {"uuid": "#22#", "owner_uuid": "#1#", "server_uuid": "#12#", "state": "running"}`,
	`create nic {"mac": "00:00:00:00:02:00", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "#31#", "primary": true}`,
	`create nic {"mac": "00:00:00:00:02:01", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "network_uuid": "#31#", "primary": true}`,
}

// asked are operations of every kind and action, of which some are accepted and
// some refused in a settled cloud.
var asked = []string{
	`create nic_tag {"name": "external5", "mtu": 9000}`,
	`create nic_tag {"name": "bad name!"}`,
	`update nic_tag external {"mtu": 3000}`,
	`delete nic_tag external`,
	`delete nic_tag external5`,
	`create network {"name": "n5", "nic_tag": "external", "subnet": "10.1.0.0/16", "provision_start_ip": "10.1.0.5", "provision_end_ip": "10.1.0.50", "gateway": "10.1.0.1", "routes": {"10.2.0.0/24": "10.1.0.1", "nowhere": "x"}, "resolvers": ["10.1.0.2"]}`,
	`create network {"name": "n6", "nic_tag": "overlay", "subnet": "fd00::/64", "fabric": true, "owner_uuids": ["#3#"], "vlan_id": 2}`,
	`create network {"name": "n7", "nic_tag": "nobody's", "subnet": "10.5.0.0/16", "description": "tags that are not there"}`,
	`update network #31# {"gateway": "10.0.0.254", "name": "other"}`,
	`delete network #31#`,
	`create nic {"belongs_to_type": "other", "belongs_to_uuid": "#60#", "owner_uuid": "#1#", "cn_uuid": "#11#", "network_uuid": "#31#"}`,
	`create nic {"belongs_to_type": "nobody", "belongs_to_uuid": "#60#", "owner_uuid": "#1#", "network_uuid": "#39#", "state": "odd"}`,
	`create nic {"belongs_to_type": "server", "belongs_to_uuid": "#11#", "owner_uuid": "#1#", "nic_tags_provided": ["external", "none"], "ip": "192.168.0.7"}`,
	`update nic 00:00:00:00:02:00 {"ip": "10.0.0.77", "state": "running"}`,
	`delete nic 00:00:00:00:02:01`,
	`delete nic not-a-mac`,
	`create server {"uuid": "#71#", "hostname": "h"}`,
	`update server #11# {"hostname": "h2", "comments": "a rack", "status": "odd"}`,
	`update server #11# {"sysinfo": "{\"a\": 1}", "ram": 64}`,
	`delete server #11#`,
	`create vm {"uuid": "#72#", "owner_uuid": "#1#", "server_uuid": "#11#", "state": "running"}`,
	`create vm {"uuid": "#73#", "owner_uuid": "#1#", "server_uuid": "#11#", "state": "Ü ber", "zonename": "a/b"}`,
	`update vm #21# {"alias": "web", "state": "stopped"}`,
	`delete vm #72#`,
	`create vmm {"id": "#74#", "instance_id": "#21#", "sled_id": "#11#", "state": "running", "gen": 1}`,
	`update vmm #74# {"state": "stopped", "gen": 2}`,
	`create vmm {"id": "#75#", "instance_id": "#21#", "sled_id": "#11#", "state": "sideways"}`,
	`create migration {"id": "#76#", "instance_id": "#21#", "source_propolis_id": "#74#", "source_state": "pending", "source_gen": 1}`,
	`update migration #76# {"source_state": "odd", "source_gen": 2}`,
	`create ip {"network_uuid": "#31#", "ip": "10.0.0.9", "reserved": true}`,
	`update ip #31#:10.0.0.9 {"reserved": false}`,
	`delete ip #31#:10.0.0.9`,
	`delete ip no-such-form`,
	`create network_pool {"uuid": "#77#", "name": "p", "networks": ["#31#", "#32#"]}`,
	`create network_pool {"uuid": "#78#", "name": "q", "networks": ["#31#", "#38#"]}`,
	`create fabric_vlan {"owner_uuid": "#3#", "vlan_id": 2, "name": "v"}`,
	`update fabric_vlan #3#:2 {"name": "w"}`,
	`update fabric_vlan nowhere {"name": "w"}`,
	`create aggregation {"name": "aggr0", "lacp_mode": "active", "macs": ["00:00:00:00:01:00"], "belongs_to_uuid": "#11#"}`,
	`create aggregation {"name": "aggr1", "lacp_mode": "odd", "macs": ["00:00:00:00:01:00", "00:00:00:00:09:09"]}`,
	`create router {"uuid": "#79#", "owner_uuid": "#1#", "networks": ["#31#", "#32#"]}`,
	`create task {"id": "#80#", "server_uuid": "#11#", "task": "nop", "params": "{}"}`,
	`create task {"id": "#81#", "server_uuid": "#88#", "task": "no such!", "params": "{}", "via": "pigeon"}`,
	`update task #80# {"status": "active", "claimed_by": 1, "claimant": "a"}`,
	`create ticket {"uuid": "#82#", "server_uuid": "#11#", "scope": "s", "id": "x"}`,
	`update ticket #82# {"status": "odd"}`,
	`create setting {"name": "napi.network_immutable", "value": "true"}`,
	`create setting {"name": "no.such", "value": "\u0001\u007f"}`,
	`update setting napi.network_immutable {"value": "perhaps"}`,
	`create grant {"subject": "reader:x", "owner_uuids": ["#1#"]}`,
	`create grant {"subject": "foreign:10.0.0.1", "read": ["napi", "no such"]}`,
	`create grant {"subject": "nobody"}`,
	`create revocation {"subject": "cn:nobody"}`,
	`create revocation {"subject": "operator:anna", "reason": "left"}`,
	`create authority {"name": "others"}`,
	`create certificate {"serial": "zz", "identity": "x", "authority": "none"}`,
	`create token {"uuid": "#83#", "hash": "zz"}`,
}

// poisons are operations whose refusals quote much, or whose fields are many. n is
// how much: as many bytes, or fields.
func poisons(n int) []log.Op {
	long := func(s string) string { return strings.Repeat(s, n/len(s)+1)[:n] }
	many := make([]string, max(1, n/8))
	for i := range many {
		many[i] = fmt.Sprintf("f%d", i)
	}
	return []log.Op{
		{Action: log.Delete, Kind: log.KindNIC, ID: long("\x7f")},
		{Action: log.Delete, Kind: log.KindNIC, ID: long("any text ")},
		{Action: log.Update, Kind: log.KindFabricVLAN, ID: long("\x7f"), Set: []string{"name"}, Object: &log.FabricVLAN{Name: "x"}},
		{Action: log.Delete, Kind: log.KindNICTag, ID: long("Ü\x00")},
		{Action: log.Delete, Kind: log.KindIP, ID: long("\xff")},
		{Action: log.Delete, Kind: log.KindGrant, ID: long("\"\\")},
		{Action: log.Update, Kind: log.KindServer, ID: changetest.UUID(11).String(), Set: []string{long("no such ")}, Object: &log.Server{}},
		{Action: log.Update, Kind: log.KindServer, ID: changetest.UUID(11).String(), Set: many, Object: &log.Server{}},
		{Action: log.Create, Kind: log.KindVM, Set: append(many, "uuid"), Object: &log.VM{UUID: changetest.UUID(85), ServerUUID: changetest.UUID(11)}},
		{Action: log.Create, Kind: log.KindIP, Set: many, Object: &log.IP{NetworkUUID: changetest.UUID(31)}},
		{Action: log.Create, Kind: log.KindNICTag, Object: &log.NICTag{Name: long("n")}},
		{Action: log.Create, Kind: log.KindGrant, Object: &log.Grant{Subject: long("g")}},
		{Action: log.Create, Kind: log.KindGrant, Object: &log.Grant{Subject: "foreign:10.0.0.1", Read: many}},
		{Action: log.Create, Kind: log.KindSetting, Object: &log.Setting{Name: long("s"), Value: long("\n")}},
		{Action: log.Create, Kind: log.KindVM, Object: &log.VM{State: long("~"), Zonename: long("/"), Alias: long("a")}},
		{Action: log.Create, Kind: log.KindTask, Object: &log.Task{Task: long("!"), Status: long("?"), Via: long("\x1b")}},
		{Action: log.Create, Kind: log.KindNIC, Object: &log.NIC{BelongsToType: long("b"), State: long("s"), NICTag: long("t"), NICTagsProvided: many}},
		{Action: log.Create, Kind: log.KindNIC, Options: []log.Option{log.Option(long("o"))}, Object: &log.NIC{}},
		{Action: log.Create, Kind: log.KindNetwork, Object: &log.Network{NICTag: long("x"), Routes: log.Routes{{Dst: long("d"), Gateway: long("g")}}}},
		{Action: log.Create, Kind: log.KindRevocation, Object: &log.Revocation{Subject: long("r")}},
		{Action: log.Create, Kind: log.KindNICTag, ID: long("other"), Object: &log.NICTag{Name: "name"}},
		{Action: 9, Kind: 200, ID: long("k")},
	}
}

// fixtureAuthors of changes: one that may write everything, one without a name, and a CN.
func fixtureAuthors() []log.Author {
	trusted := log.Author{Role: log.RoleTrusted}
	return []log.Author{trusted, trusted, trusted, trusted, trusted, {Role: log.RoleForeign}, {Role: log.RoleCN, CN: changetest.UUID(11)}, {}}
}
