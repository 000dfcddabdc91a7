package napi

import (
	"fmt"
	"strings"
	"testing"
)

// fabricNet is a good body of a network on a VLAN of a fabric.
func fabricNet(third int, more ...string) string {
	base := []string{
		`"name"`, fmt.Sprintf(`"f%d"`, third), `"subnet"`, fmt.Sprintf(`"10.50.%d.0/24"`, third), `"provision_start_ip"`,
		fmt.Sprintf(`"10.50.%d.5"`, third), `"provision_end_ip"`, fmt.Sprintf(`"10.50.%d.250"`, third),
	}
	return with(base, more)
}

// TestFabrics: VLANs share their owner's vnet, and their networks lie on it.
func TestFabrics(t *testing.T) {
	w := furnished(t)
	vlans := "/fabrics/" + owner1 + "/vlans"
	v := w.make(vlans, `{"name": "a", "vlan_id": 2, "description": "d"}`)
	sameKeys(t, "vlan", v, "description name owner_uuid vlan_id vnet_id")
	other := w.make(vlans, `{"name": "b", "vlan_id": 3}`)
	same(t, "vnet of the second VLAN", other["vnet_id"], v["vnet_id"])
	if theirs := w.make("/fabrics/"+owner2+"/vlans", `{"name": "a", "vlan_id": 2}`); theirs["vnet_id"] == v["vnet_id"] {
		t.Errorf("two owners have vnet %v", v["vnet_id"])
	}
	const used = "VLAN ID is already in use"
	w.refuses(t, []refusal{
		{"vlan taken", "POST", vlans, `{"name": "c", "vlan_id": 2}`, 422, `{"code": "InUse", "message": "` + used + `", "errors": [{"field": "vlan_id", "code": "Duplicate", "message": "` + used + `"}]}`},
		{"no vlan", "POST", vlans + "/9/networks", fabricNet(1), 404, plainError("ResourceNotFound", "vlan not found")},
		{"vlan 1", "GET", vlans + "/1", "", 422, badly("vlan_id", messageVLAN)},
		{"public", "POST", vlans + "/2/networks", fabricNet(1, "subnet", `"192.0.2.0/24"`, "provision_start_ip", `"192.0.2.5"`, "provision_end_ip", `"192.0.2.9"`), 422, badly("subnet", "subnet must be within private ranges")},
	})
	n := w.make(vlans+"/2/networks", fabricNet(1))
	sameKeys(t, "fabric network", n, networkKeys+fabricKeys+" vnet_id owner_uuid gateway")
	same(t, "gateway of internet_nat", n["gateway"], "10.50.1.5")
	same(t, "vnet", n["vnet_id"], v["vnet_id"])
	same(t, "tag", n["nic_tag"], "sdc_overlay")
	same(t, "vlan", n["vlan_id"], 2.0)
	path := vlans + "/2/networks/" + n["uuid"].(string)
	w.refuses(t, []refusal{
		{"overlap", "POST", vlans + "/3/networks", fabricNet(1), 422, one("subnet", "UsedBy", "subnet overlaps with another network", fmt.Sprintf(`"type": "network", "id": %q`, n["uuid"]))},
		{"on another VLAN", "GET", vlans + "/3/networks/" + n["uuid"].(string), "", 404, plainError("ResourceNotFound", "network not found")},
		{"owners", "PUT", path, `{"owner_uuids": ["` + owner2 + `"]}`, 422, badly("owner_uuids", "Network updates for this field are not supported on fabrics")},
		{
			"vlan in use", "DELETE", vlans + "/2", "", 422,
			fmt.Sprintf(`{"code": "InUse", "message": "VLAN must have no networks", "errors": [{"code": "UsedBy", "message": "In use by network \"%s\"", "type": "network", "id": %q}]}`, n["uuid"], n["uuid"]),
		},
	})
	same(t, "description", w.ok(w.do("PUT", path, `{"description": "x"}`))["description"], "x")
	same(t, "list", len(w.listed(vlans+"/2/networks")), 1)
	same(t, "list of the other", len(w.listed(vlans+"/3/networks")), 0)
	same(t, "vlans", len(w.listed(vlans)), 2)
	same(t, "renamed", w.ok(w.do("PUT", vlans+"/3", `{"name": "z"}`))["name"], "z")
	same(t, "delete network", w.do("DELETE", path, "").status, 204)
	same(t, "delete vlan", w.do("DELETE", vlans+"/2", "").status, 204)
}

// TestPools: one family, the first network that has room, and nothing of a pool
// goes while it is in one.
func TestPools(t *testing.T) {
	w := furnished(t)
	w.ok(w.do("PUT", "/networks/"+net1, `{"provision_start_ip": "10.1.0.10", "provision_end_ip": "10.1.0.11"}`))
	p := w.make("/network_pools", `{"name": "p", "networks": ["`+net1+`", "`+net2+`"], "description": "d"}`)
	sameKeys(t, "pool", p, "description family name networks nic_tag nic_tags_present uuid")
	same(t, "nic_tag", p["nic_tag"], "admin")
	same(t, "nic_tags_present", fmt.Sprint(p["nic_tags_present"]), "[admin external]")
	path := "/network_pools/" + p["uuid"].(string)
	w.ok(w.do("PUT", "/networks/"+owned, `{"provision_start_ip": "10.3.0.10", "provision_end_ip": "10.3.0.11"}`))
	small := w.make("/network_pools", `{"name": "s", "networks": ["`+owned+`"]}`)["uuid"].(string)
	w.make("/networks/"+small+"/nics", nicBody())
	w.make("/networks/"+small+"/nics", nicBody())
	const available = "nic_tags_available"
	for i, want := range []string{net1, net1, net2} {
		same(t, fmt.Sprint("NIC ", i), w.make("/networks/"+p["uuid"].(string)+"/nics", nicBody(available, `["external", "admin"]`))["network_uuid"], want)
	}
	same(t, "NIC by body", w.make("/nics", nicBody("network_uuid", `"`+p["uuid"].(string)+`"`, "nic_tag", `"external"`))["network_uuid"], net2)
	same(t, "one of the tags", w.make("/nics", nicBody("network_uuid", `"`+p["uuid"].(string)+`"`, available, `"big,external"`))["network_uuid"], net2)
	theirs := w.make("/network_pools", `{"name": "q", "networks": ["`+net2+`"], "owner_uuids": ["`+owner1+`"]}`)["uuid"].(string)
	w.refuses(t, []refusal{
		{"no networks", "POST", "/network_pools", `{"name": "x", "networks": []}`, 422, badly("networks", "network pool must contain at least one network")},
		{"unknown network", "POST", "/network_pools", `{"name": "x", "networks": ["` + absent + `"]}`, 422, badly("networks", "unknown network", `"invalid": ["`+absent+`"]`)},
		{"address", "POST", "/nics", nicBody("network_uuid", `"`+p["uuid"].(string)+`"`, "ip", `"10.1.0.50"`), 422, badly("ip", "IP cannot be specified with a network pool")},
		{
			"several tags", "POST", "/networks/" + p["uuid"].(string) + "/nics", nicBody(), 422,
			one(available, "MissingParameter", `the networks of network pool "`+p["uuid"].(string)+`" are on several NIC tags`),
		},
		{
			"none of the tags", "POST", "/networks/" + p["uuid"].(string) + "/nics", nicBody(available, `["big"]`), 422,
			badly("network_uuid", `network pool "`+p["uuid"].(string)+`" has no network on one of the NIC tags`),
		},
		{"all of the tag full", "POST", "/networks/" + p["uuid"].(string) + "/nics", nicBody(available, `["admin"]`), 422, badly("network_uuid", "all networks in pool are full")},
		{"full", "POST", "/networks/" + small + "/nics", nicBody(), 422, badly("network_uuid", "all networks in pool are full")},
		{"owner", "POST", "/networks/" + theirs + "/nics", nicBody("owner_uuid", `"`+owner2+`"`), 422, badly("owner_uuid", "owner cannot provision on network pool")},
		{"provisionable_by", "GET", "/network_pools/" + theirs + "?provisionable_by=" + owner2, "", 403, plainError("NotAuthorized", "owner cannot provision on network pool")},
	})
	if a := w.do("DELETE", "/networks/"+net1, ""); a.status != 422 || !strings.Contains(a.body, "InUse") || !strings.Contains(a.body, "UsedBy") {
		t.Errorf("delete a network of a pool: got %d %s", a.status, a.body)
	}
	same(t, "owner's", len(w.listed("/network_pools?provisionable_by="+owner2)), 2)
	same(t, "renamed", w.ok(w.do("PUT", path, `{"name": "z"}`))["name"], "z")
	same(t, "delete", w.do("DELETE", path, "").status, 204)
}

// TestAggregations: spec/napi.md sections 3.1 and 3.3.
func TestAggregations(t *testing.T) {
	w := furnished(t)
	nicOf := func(kind, of string) string {
		return w.make("/nics", nicBody("belongs_to_type", `"`+kind+`"`, "belongs_to_uuid", `"`+of+`"`))["mac"].(string)
	}
	a, b, c, elsewhere, vm := nicOf("server", cn1), nicOf("server", cn1), nicOf("server", cn1), nicOf("server", cn2), nicOf("zone", vm1)
	g := w.make("/aggregations", fmt.Sprintf(`{"name": "aggr0", "macs": [%q, %q]}`, a, b))
	sameKeys(t, "aggregation", g, "belongs_to_uuid id lacp_mode macs name")
	same(t, "id", g["id"], cn1+"-aggr0")
	same(t, "lacp_mode", g["lacp_mode"], "off")
	post := func(what, body, want string) refusal {
		return refusal{what, "POST", "/aggregations", body, 422, want}
	}
	w.refuses(t, []refusal{
		post("no name", fmt.Sprintf(`{"macs": [%q]}`, elsewhere), one("name", "MissingParameter", "Missing parameter")),
		post("name without a number", fmt.Sprintf(`{"name": "aggr", "macs": [%q]}`, elsewhere), badly("name", "must end in a number")),
		post("no macs", `{"name": "aggr1", "macs": []}`, badly("macs", "must specify at least one MAC address")),
		post("bad macs", `{"name": "aggr1", "macs": ["x"]}`, badly("macs", "invalid MAC addresses", `"invalid": ["x"]`)),
		post("macs are no list", `{"name": "aggr1", "macs": 7}`, badly("macs", "must be an array of MAC addresses")),
		post("unknown macs", `{"name": "aggr1", "macs": ["02:00:00:00:00:01"]}`, badly("macs", "unknown MAC addresses", `"invalid": ["02:00:00:00:00:01"]`)),
		post("two servers", fmt.Sprintf(`{"name": "aggr1", "macs": [%q, %q]}`, c, elsewhere), badly("macs", "belongs_to_uuid must match for all nics in the aggregation")),
		post("no server", fmt.Sprintf(`{"name": "aggr1", "macs": [%q]}`, vm), badly("macs", "all nics must have belongs_to_uuid of type server", `"invalid": ["`+vm+`"]`)),
		post("lacp", fmt.Sprintf(`{"name": "aggr1", "macs": [%q], "lacp_mode": "x"}`, elsewhere), badly("lacp_mode", "Invalid LACP mode. Supported modes: off, active, passive")),
		post("taken", fmt.Sprintf(`{"name": "aggr0", "macs": [%q]}`, a), one("name", "Duplicate", "aggregation with same belongs_to_uuid and name already exists")),
	})
	path := "/aggregations/" + g["id"].(string)
	same(t, "lacp_mode after", w.ok(w.do("PUT", path, `{"lacp_mode": "active"}`))["lacp_mode"], "active")
	same(t, "of a server", len(w.listed("/aggregations?belongs_to_uuid="+cn1)), 1)
	same(t, "of another", len(w.listed("/aggregations?belongs_to_uuid="+cn2)), 0)
	same(t, "by mac", len(w.listed("/aggregations?macs="+b)), 1)
	if w.do("GET", path, "").header.Get("Etag") == "" {
		t.Error("no Etag")
	}
	same(t, "delete", w.do("DELETE", path, "").status, 204)
}

// TestRouters: a router's routes appear on its networks, and go with it.
func TestRouters(t *testing.T) {
	w := furnished(t)
	vlans := "/fabrics/" + owner1 + "/vlans"
	w.make(vlans, `{"name": "a", "vlan_id": 2}`)
	var ids []string
	for i := range 3 {
		ids = append(ids, w.make(vlans+"/2/networks", fabricNet(i))["uuid"].(string))
	}
	router := w.make("/routers", fmt.Sprintf(`{"name": "r", "networks": [%q, %q], "owner_uuid": %q}`, ids[0], ids[1], owner1))
	sameKeys(t, "router", router, "addresses family name networks owner_uuid uuid")
	routesOf := func(id string) map[string]any {
		all, _ := w.ok(w.do("GET", "/networks/"+id, ""))["routes"].(map[string]any)
		return all
	}
	if got := routesOf(ids[0]); len(got) != 1 || got["10.50.1.0/24"] == nil {
		t.Errorf("routes of the first network: got %v", got)
	}
	path := "/routers/" + router["uuid"].(string)
	after := w.ok(w.do("PUT", path, fmt.Sprintf(`{"network_updates": [{"action": "add", "network_uuid": %q}, {"action": "delete", "network_uuid": %q}]}`, ids[2], ids[1])))
	same(t, "networks", fmt.Sprint(after["networks"]), fmt.Sprintf("[%s %s]", ids[0], ids[2]))
	if got := routesOf(ids[0]); len(got) != 1 || got["10.50.2.0/24"] == nil {
		t.Errorf("routes after: got %v", got)
	}
	for _, c := range []struct {
		what, method, path, body, code string
		status                         int
	}{
		{"nothing", "POST", "/routers", `{}`, "MissingParameter", 409},
		{"one network", "POST", "/routers", fmt.Sprintf(`{"name": "x", "networks": [%q], "owner_uuid": %q}`, ids[1], owner1), "Argument", 409},
		{"no fabric", "POST", "/routers", fmt.Sprintf(`{"name": "x", "networks": [%q, %q], "owner_uuid": %q}`, ids[1], net1, owner1), "InvalidArgument", 409},
		{"updates", "PUT", path, `{"network_updates": "x"}`, "InvalidArgument", 409},
		{"none", "PUT", "/routers/" + absent, `{}`, "ResourceNotFound", 404},
	} {
		if a := w.do(c.method, c.path, c.body); a.status != c.status || c.what != "one network" && !strings.Contains(a.body, `"code":"`+c.code+`"`) {
			t.Errorf("%s: got %d %s, want %d %s", c.what, a.status, a.body, c.status, c.code)
		}
	}
	same(t, "delete", w.do("DELETE", path, "").status, 204)
	same(t, "routes of a router that is gone", len(routesOf(ids[0])), 0)
}

// TestReservations: PUT of an address reserves, gives, unassigns and frees it.
func TestReservations(t *testing.T) {
	w := furnished(t)
	path := "/networks/" + net2 + "/ips/10.2.0.50"
	put := func(body string) map[string]any { return w.ok(w.do("PUT", path, body)) }
	same(t, "reserved", put(`{"reserved": true}`)["free"], false)
	given := put(`{"belongs_to_type": "other", "belongs_to_uuid": "` + vm1 + `", "owner_uuid": "` + owner1 + `"}`)
	sameKeys(t, "given", given, "belongs_to_type belongs_to_uuid free ip network_uuid owner_uuid reserved")
	unassigned := put(`{"unassign": true}`)
	sameKeys(t, "unassigned", unassigned, "free ip network_uuid owner_uuid reserved")
	same(t, "still reserved", unassigned["reserved"], true)
	freed := put(`{"free": true}`)
	sameKeys(t, "freed", freed, "free ip network_uuid reserved")
	same(t, "free", freed["free"], true)
	same(t, "free again", put(`{"free": true}`)["free"], true)
	w.refuses(t, []refusal{
		{"owner missing", "PUT", path, `{"belongs_to_type": "other", "belongs_to_uuid": "` + vm1 + `"}`, 422, one("owner_uuid", "MissingParameter", "Missing parameter")},
		{"owner of the network", "PUT", "/networks/" + owned + "/ips/10.3.0.9", `{"owner_uuid": "` + owner2 + `"}`, 422, badly("owner_uuid", "network owner_uuids do not match")},
	})
	w.ok(w.do("PUT", "/networks/"+owned+"/ips/10.3.0.9", `{"owner_uuid": "`+owner2+`", "check_owner": false}`))
	nic := w.make("/networks/"+net2+"/nics", nicBody("reserved", "true"))
	held := "/networks/" + net2 + "/ips/" + nic["ip"].(string)
	same(t, "reserved with its NIC", w.ok(w.do("GET", held, ""))["reserved"], true)
	same(t, "delete", w.do("DELETE", "/nics/"+nic["mac"].(string), "").status, 204)
	left := w.ok(w.do("GET", held, ""))
	same(t, "a reserved IP keeps its owner", left["owner_uuid"], owner1)
	same(t, "and is reserved", left["reserved"], true)
	same(t, "and nothing's", left["belongs_to_uuid"], nil)
	if next := w.make("/networks/"+net2+"/nics", nicBody()); next["ip"] == nic["ip"] {
		t.Errorf("the reserved address %s was given out", nic["ip"])
	}
}
