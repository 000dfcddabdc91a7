package napi

import (
	"fmt"
	"strings"
	"testing"

	"rutter/projections/rules"
)

// one is the body of an answer that names one wrong parameter.
func one(field, code, message string, more ...string) string {
	top := "Invalid parameters"
	if code == "MissingParameter" {
		top = "Missing parameters"
	}
	extra := ""
	if len(more) > 0 {
		extra = ", " + more[0]
	}
	return fmt.Sprintf(`{"code": "InvalidParameters", "message": %q, "errors": [{"field": %q, "code": %q, "message": %q%s}]}`, top, field, code, message, extra)
}

func badly(field, message string, more ...string) string {
	return one(field, "InvalidParameter", message, more...)
}

func plainError(code, message string) string {
	return fmt.Sprintf(`{"code": %q, "message": %q}`, code, message)
}

// refusal is a request and the whole answer that NAPI gives.
type refusal struct {
	what, method, path, body string
	status                   int
	want                     string
}

func (w *world) refuses(t *testing.T, cases []refusal) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.what, func(t *testing.T) {
			a := w.do(c.method, c.path, c.body)
			if a.status != c.status {
				t.Errorf("%s %s %s: status got %d, want %d", c.method, c.path, c.body, a.status, c.status)
			}
			if got, want := canonical(t, a.body), canonical(t, c.want); got != want {
				t.Errorf("%s %s %s:\n got %s\nwant %s", c.method, c.path, c.body, got, want)
			}
		})
	}
}

// netBody is a good network with some fields put in or replaced; an empty value
// takes the field away.
func netBody(fields ...string) string {
	base := []string{
		`"name"`, `"n"`, `"nic_tag"`, `"external"`, `"subnet"`, `"10.9.0.0/24"`, `"provision_start_ip"`, `"10.9.0.10"`,
		`"provision_end_ip"`, `"10.9.0.20"`, `"vlan_id"`, `9`,
	}
	return with(base, fields)
}

func nicBody(fields ...string) string {
	return with([]string{`"belongs_to_type"`, `"zone"`, `"belongs_to_uuid"`, `"` + vm1 + `"`, `"owner_uuid"`, `"` + owner1 + `"`}, fields)
}

func with(base, fields []string) string {
	for i := 0; i < len(fields); i += 2 {
		name, at := `"`+fields[i]+`"`, -1
		for j := 0; j < len(base); j += 2 {
			if base[j] == name {
				at = j
			}
		}
		switch {
		case at < 0:
			base = append(base, name, fields[i+1])
		case fields[i+1] == "":
			base = append(base[:at:at], base[at+2:]...)
		default:
			base[at+1] = fields[i+1]
		}
	}
	var parts []string
	for i := 0; i < len(base); i += 2 {
		parts = append(parts, base[i]+": "+base[i+1])
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// TestBadNetworks: spec/napi.md sections 3.3 and 3.4, what is wrong with a new network.
func TestBadNetworks(t *testing.T) {
	post := func(what, want string, fields ...string) refusal {
		return refusal{what, "POST", "/networks", netBody(fields...), 422, want}
	}
	const mtu = "mtu must be a number between 576 and 9000"
	const vlan = "VLAN ID must be a number between 0 and 4094, and not 1"
	furnished(t).refuses(t, []refusal{
		post("no name", one("name", "MissingParameter", "Missing parameter"), "name", ""),
		post("empty name", badly("name", "must not be empty"), "name", `""`),
		post("name is no text", badly("name", "must be a string"), "name", `7`),
		post("no nic_tag", one("nic_tag", "MissingParameter", "Missing parameter"), "nic_tag", ""),
		post("unknown nic_tag", badly("nic_tag", "nic tag does not exist"), "nic_tag", `"nope"`),
		post("no subnet", one("subnet", "MissingParameter", "Missing parameter"), "subnet", ""),
		post("subnet of no CIDR", badly("subnet", "Subnet must be in CIDR form"), "subnet", `"10.9.0.0"`),
		post("subnet of no IP", badly("subnet", "Subnet IP invalid"), "subnet", `"10.9.0/24"`),
		post("subnet too wide", badly("subnet", "Subnet bits invalid"), "subnet", `"10.0.0.0/7"`),
		post("subnet too narrow", badly("subnet", "Subnet bits invalid"), "subnet", `"10.0.0.0/33"`),
		post("subnet with host bits", badly("subnet", "invalid CIDR format"), "subnet", `"10.9.0.1/24"`),
		post("no start", one("provision_start_ip", "MissingParameter", "Missing parameter"), "provision_start_ip", ""),
		post("no end", one("provision_end_ip", "MissingParameter", "Missing parameter"), "provision_end_ip", ""),
		post("start is no IP", badly("provision_start_ip", "invalid IP address"), "provision_start_ip", `"10.9.0.256"`),
		post("start outside", badly("provision_start_ip", "provision_start_ip cannot be outside subnet"), "provision_start_ip", `"10.8.0.1"`),
		post("end outside", badly("provision_end_ip", "provision_end_ip cannot be outside subnet"), "provision_end_ip", `"10.10.0.1"`),
		post("start is broadcast", badly("provision_start_ip", "provision_start_ip cannot be the broadcast address"), "provision_start_ip", `"10.9.0.255"`),
		post("end is broadcast", badly("provision_end_ip", "provision_end_ip cannot be the broadcast address"), "provision_end_ip", `"10.9.0.255"`),
		{
			"start after end", "POST", "/networks", netBody("provision_start_ip", `"10.9.0.30"`), 422,
			`{"code": "InvalidParameters", "message": "Invalid parameters", "errors": [
				{"field": "provision_end_ip", "code": "InvalidParameter", "message": "provision_start_ip must be before provision_end_ip"},
				{"field": "provision_start_ip", "code": "InvalidParameter", "message": "provision_start_ip must be before provision_end_ip"}]}`,
		},
		post("no vlan", one("vlan_id", "MissingParameter", "Missing parameter"), "vlan_id", ""),
		post("vlan 1", badly("vlan_id", vlan), "vlan_id", `1`),
		post("vlan 4095", badly("vlan_id", vlan), "vlan_id", `4095`),
		post("vlan of letters", badly("vlan_id", vlan), "vlan_id", `"a"`),
		post("gateway outside", badly("gateway", "gateway cannot be outside subnet"), "gateway", `"10.8.0.1"`),
		post("gateway is no IP", badly("gateway", "invalid IP address"), "gateway", `"a"`),
		post("mtu too low", badly("mtu", mtu), "mtu", `575`),
		post("mtu too high", badly("mtu", mtu), "mtu", `9001`),
		post("mtu as text", badly("mtu", mtu), "mtu", `"1500"`),
		post("mtu over the tag's", badly("mtu", "network mtu must be under nic_tag mtu"), "mtu", `1501`),
		post("resolver is no IP", badly("resolvers", "invalid IP", `"invalid": ["x"]`), "resolvers", `["8.8.8.8", "x"]`),
		post("resolvers are no IPs", badly("resolvers", "invalid IPs", `"invalid": ["x", "y"]`), "resolvers", `"x,y"`),
		post("routes are no object", badly("routes", "must be an object"), "routes", `"x"`),
		post("bad route", badly("routes", "invalid route", `"invalid": ["x"]`), "routes", `{"x": "10.9.0.1"}`),
		post("bad route and gateway", badly("routes", "invalid route", `"invalid": ["x", "y"]`), "routes", `{"x": "y"}`),
		post("bad owner", badly("owner_uuids", "invalid UUID", `"invalid": ["x"]`), "owner_uuids", `["x"]`),
		post("bad uuid", badly("uuid", "invalid UUID"), "uuid", `"x"`),
		{
			"everything missing", "POST", "/networks", "{}", 422,
			`{"code": "InvalidParameters", "message": "Missing parameters", "errors": [
				{"field": "name", "code": "MissingParameter", "message": "Missing parameter"},
				{"field": "nic_tag", "code": "MissingParameter", "message": "Missing parameter"},
				{"field": "provision_end_ip", "code": "MissingParameter", "message": "Missing parameter"},
				{"field": "provision_start_ip", "code": "MissingParameter", "message": "Missing parameter"},
				{"field": "subnet", "code": "MissingParameter", "message": "Missing parameter"},
				{"field": "vlan_id", "code": "MissingParameter", "message": "Missing parameter"}]}`,
		},
	})
}

// TestOverlap: public subnets may not overlap, private ones may, and a fabric's
// may not on its vnet.
func TestOverlap(t *testing.T) {
	w := furnished(t)
	public := func(subnet, prefix string) string {
		return netBody("subnet", `"`+subnet+`"`, "provision_start_ip", `"`+prefix+`.1"`, "provision_end_ip", `"`+prefix+`.9"`)
	}
	made := w.make("/networks", public("192.0.2.0/24", "192.0.2"))
	w.refuses(t, []refusal{{
		"public", "POST", "/networks", public("192.0.2.0/25", "192.0.2"), 422,
		one("subnet", "UsedBy", "subnet overlaps with another network", fmt.Sprintf(`"type": "network", "id": %q`, made["uuid"])),
	}})
	w.make("/networks", netBody("name", `"again"`, "subnet", `"10.2.0.0/24"`, "provision_start_ip", `"10.2.0.5"`, "provision_end_ip", `"10.2.0.9"`))
}

// TestImmutable: spec/napi.md section 3.4.
func TestImmutable(t *testing.T) {
	w := furnished(t)
	const message = "Network updates for this field are not supported"
	put := func(field, value string) refusal {
		return refusal{field, "PUT", "/networks/" + net2, fmt.Sprintf(`{%q: %s}`, field, value), 422, badly(field, message)}
	}
	w.refuses(t, []refusal{
		put("fabric", "true"), put("family", `"ipv6"`), put("gateway_provisioned", "true"), put("internet_nat", "true"),
		put("subnet", `"10.7.0.0/24"`), put("vnet_id", "7"),
	})
	for _, same := range []string{
		`"fabric": false`, `"family": "ipv4"`, `"gateway_provisioned": false`, `"internet_nat": false`, `"subnet": "10.2.0.0/24"`,
		`"vnet_id": 0`, `"nic_tag": "external"`, `"vlan_id": 5`,
	} {
		w.ok(w.do("PUT", "/networks/"+net2, "{"+same+"}"))
	}
	for _, mutable := range []string{
		`"name": "other"`, `"description": "d"`, `"owner_uuids": ["` + owner1 + `"]`, `"owner_uuids": []`, `"mtu": 1400`,
		`"gateway": "10.2.0.3"`, `"gateway": null`, `"gateway": ""`, `"provision_start_ip": "10.2.0.20"`, `"provision_end_ip": "10.2.0.30"`,
		`"resolvers": []`, `"resolvers": "8.8.4.4,8.8.8.8"`, `"routes": {"10.8.0.0/16": "10.2.0.9"}`, `"routes": {}`,
	} {
		w.ok(w.do("PUT", "/networks/"+net2, "{"+mutable+"}"))
	}
}

// TestPlaceOfNetwork: vlan_id and nic_tag can be changed where every NIC stays
// valid, unless the setting keeps NAPI's refusal.
func TestPlaceOfNetwork(t *testing.T) {
	w := furnished(t)
	nic := w.make("/networks/"+net2+"/nics", nicBody())
	if got := w.ok(w.do("PUT", "/networks/"+net2, `{"vlan_id": 50, "nic_tag": "big", "mtu": 9000}`)); got["nic_tag"] != "big" || got["vlan_id"] != 50.0 {
		t.Errorf("network after the update: got %v", got)
	}
	if got := w.ok(w.do("GET", "/nics/"+nic["mac"].(string), "")); got["nic_tag"] != "big" || got["vlan_id"] != 50.0 || got["mtu"] != 9000.0 {
		t.Errorf("its NIC: got %v", got)
	}
	w.refuses(t, []refusal{
		{"mtu over the tag's", "PUT", "/networks/" + net2, `{"nic_tag": "external"}`, 422, badly("mtu", "network mtu must be under nic_tag mtu")},
	})
	const message = "Network updates for this field are not supported"
	kept := furnished(t)
	kept.set(rules.SettingNetworkImmutable, "true")
	kept.refuses(t, []refusal{
		{"kept vlan", "PUT", "/networks/" + net2, `{"vlan_id": 50}`, 422, badly("vlan_id", message)},
		{"kept tag", "PUT", "/networks/" + net2, `{"nic_tag": "big", "vlan_id": 5}`, 422, badly("nic_tag", message)},
	})
	kept.ok(kept.do("PUT", "/networks/"+net2, `{"vlan_id": 5, "nic_tag": "external", "mtu": 1400}`))
}

// TestBadNICs: spec/napi.md sections 3.3 and 3.4, what is wrong with a NIC.
func TestBadNICs(t *testing.T) {
	w := furnished(t)
	nic := w.make("/nics", nicBody("ip", `"10.2.0.50"`, "network_uuid", `"`+net2+`"`))
	post := func(what, want string, fields ...string) refusal {
		return refusal{what, "POST", "/nics", nicBody(fields...), 422, want}
	}
	on2 := []string{"network_uuid", `"` + net2 + `"`}
	w.refuses(t, []refusal{
		{
			"everything missing", "POST", "/nics", "", 422,
			`{"code": "InvalidParameters", "message": "Missing parameters", "errors": [
				{"field": "belongs_to_type", "code": "MissingParameter", "message": "Missing parameter"},
				{"field": "belongs_to_uuid", "code": "MissingParameter", "message": "Missing parameter"},
				{"field": "owner_uuid", "code": "MissingParameter", "message": "Missing parameter"}]}`,
		},
		post("belongs_to_type", badly("belongs_to_type", `must be one of: "other", "server", "zone"`), "belongs_to_type", `"vm"`),
		post("state", badly("state", `must be one of: "provisioning", "stopped", "running"`), "state", `"x"`),
		post("owner", badly("owner_uuid", "invalid UUID"), "owner_uuid", `"x"`),
		post("flag", badly("allow_ip_spoofing", "must be a boolean value"), "allow_ip_spoofing", `7`),
		post("mac", badly("mac", "invalid MAC address"), "mac", `"x"`),
		post("mac taken", one("mac", "Duplicate", "Already exists"), "mac", `"`+nic["mac"].(string)+`"`),
		post("ip", badly("ip", "invalid IP address"), "ip", `"x"`, on2[0], on2[1]),
		post("ip in use", one("ip", "UsedBy", `IP in use by zone "`+vm1+`"`, `"type": "zone", "id": "`+vm1+`"`), "ip", `"10.2.0.50"`, on2[0], on2[1]),
		post("ip outside", badly("ip", "ip cannot be outside subnet"), "ip", `"10.8.0.1"`, on2[0], on2[1]),
		post("ip is broadcast", badly("ip", "ip cannot be the broadcast address"), "ip", `"10.2.0.255"`, on2[0], on2[1]),
		post("no network", badly("network_uuid", "network does not exist"), "network_uuid", `"`+absent+`"`),
		post("owner of network", badly("owner_uuid", "network owner_uuids do not match"), "network_uuid", `"`+owned+`"`, "owner_uuid", `"`+owner2+`"`),
		post("underlay of zone", badly("underlay", "underlay can only be set on server NICs"), "underlay", `true`),
		post("unknown tag", badly("nic_tag", "nic tag does not exist"), "nic_tag", `"nope"`),
		{
			"ip without network", "POST", "/nics", nicBody("ip", `"10.2.0.9"`), 422,
			`{"code": "InvalidParameters", "message": "Missing parameters", "errors": [
				{"field": "nic_tag", "code": "MissingParameter", "message": "required if IP specified but not network_uuid"},
				{"field": "vlan_id", "code": "MissingParameter", "message": "required if IP specified but not network_uuid"}]}`,
		},
		{"not there", "GET", "/nics/900000000001", "", 404, plainError("ResourceNotFound", "nic not found")},
		{"update what is not there", "PUT", "/nics/900000000001", "{}", 404, plainError("ResourceNotFound", "nic not found")},
		{"delete what is not there", "DELETE", "/nics/900000000001", "", 404, plainError("ResourceNotFound", "nic not found")},
		{"path is no mac", "GET", "/nics/x", "", 422, badly("mac", "invalid MAC address")},
	})
	w.make("/nics", nicBody("network_uuid", `"`+owned+`"`, "owner_uuid", `"`+owner2+`"`, "check_owner", "false"))
	w.make("/nics", nicBody("network_uuid", `"`+owned+`"`, "owner_uuid", `"`+admin+`"`))
}

// TestNotFound: the words for each kind.
func TestNotFound(t *testing.T) {
	furnished(t).refuses(t, []refusal{
		{"network", "GET", "/networks/" + absent, "", 404, plainError("ResourceNotFound", "network not found")},
		{"network of no uuid", "GET", "/networks/x", "", 404, plainError("ResourceNotFound", "network not found")},
		{"tag", "GET", "/nic_tags/x", "", 404, plainError("ResourceNotFound", "nic tag not found")},
		{"pool", "GET", "/network_pools/" + absent, "", 404, plainError("ResourceNotFound", "network pool not found")},
		{"vlan", "GET", "/fabrics/" + owner1 + "/vlans/2", "", 404, plainError("ResourceNotFound", "vlan not found")},
		{"aggregation", "GET", "/aggregations/x", "", 404, plainError("ResourceNotFound", "aggregation not found")},
		{"router", "GET", "/routers/" + absent, "", 404, plainError("ResourceNotFound", "router not found")},
		{"no IP", "GET", "/networks/" + net2 + "/ips/x", "", 404, plainError("ResourceNotFound", "Invalid IP address")},
		{"IP elsewhere", "GET", "/networks/" + net2 + "/ips/10.8.0.1", "", 404, plainError("ResourceNotFound", "IP is not in subnet")},
		{"IP of another family", "GET", "/networks/" + net2 + "/ips/fd00::1", "", 404, plainError("ResourceNotFound", "IP and subnet are of different address families")},
		{"search", "GET", "/search/ips?ip=172.16.0.1", "", 404, plainError("ResourceNotFound", "No networks found containing that IP address")},
		{"search of nothing", "GET", "/search/ips", "", 422, one("ip", "MissingParameter", "Missing parameter")},
		{"search of no IP", "GET", "/search/ips?ip=x", "", 422, badly("ip", "invalid IP address")},
		{"path", "GET", "/nothing", "", 404, plainError("ResourceNotFound", "/nothing does not exist")},
		{"method", "PATCH", "/nics", "", 405, plainError("MethodNotAllowed", "PATCH is not allowed")},
		{"no JSON", "POST", "/nics", "{", 400, plainError("InvalidContent", "Invalid JSON: unexpected EOF")},
		{"provisionable_by", "GET", "/networks/" + owned + "?provisionable_by=" + owner2, "", 403, plainError("NotAuthorized", "owner cannot provision on network")},
	})
}

// TestBadLists: what lists refuse.
func TestBadLists(t *testing.T) {
	w := furnished(t)
	for _, path := range []string{"/nics", "/networks", "/nic_tags", "/network_pools", "/aggregations", "/routers", "/networks/" + net2 + "/ips", "/fabrics/" + owner1 + "/vlans"} {
		w.refuses(t, []refusal{
			{path + " unknown", "GET", path + "?b=1&a=1", "", 422, `{"code": "InvalidParameters", "message": "Invalid parameters", "errors": [{"field": ["a", "b"], "code": "UnknownParameters", "message": "Unknown parameters: a, b"}]}`},
			{path + " limit 0", "GET", path + "?limit=0", "", 422, badly("limit", "invalid limit, must be an integer greater than 0 or less than or equal to 1000")},
			{path + " limit 1001", "GET", path + "?limit=1001", "", 422, badly("limit", "invalid limit, must be an integer greater than 0 or less than or equal to 1000")},
			{path + " offset", "GET", path + "?offset=-1", "", 422, badly("offset", "invalid value, offset must be an integer greater than or equal to 0")},
		})
	}
}

// TestTags: names, MTUs, and the tags that Triton itself uses.
func TestTags(t *testing.T) {
	w := furnished(t)
	const mtu = "mtu must be a number between 1500 and 9000"
	w.refuses(t, []refusal{
		{"no name", "POST", "/nic_tags", "{}", 422, one("name", "MissingParameter", "Missing parameter")},
		{"long name", "POST", "/nic_tags", `{"name": "` + strings.Repeat("a", 32) + `"}`, 422, badly("name", "must not be longer than 31 characters")},
		{"bad name", "POST", "/nic_tags", `{"name": "a-b"}`, 422, badly("name", "must only contain numbers, letters and underscores")},
		{"taken", "POST", "/nic_tags", `{"name": "external"}`, 422, one("name", "Duplicate", "Already exists")},
		{"mtu", "POST", "/nic_tags", `{"name": "x", "mtu": 1499}`, 422, badly("mtu", mtu)},
		{"nothing to update", "PUT", "/nic_tags/external", "{}", 422, one("name", "MissingParameter", "Missing parameter")},
		{"admin", "PUT", "/nic_tags/admin", `{"mtu": 9000}`, 422, badly("name", "admin nic tag cannot be updated")},
		{"external renamed", "PUT", "/nic_tags/external", `{"name": "x"}`, 422, badly("name", "external nic tag cannot be renamed")},
		{"mtu under its networks'", "PUT", "/nic_tags/big", `{"mtu": 1500}`, 422, badly("mtu", "nic_tag mtu must be greater than its networks", `"uuid": "`+netMTU+`"`)},
		{
			"in use", "DELETE", "/nic_tags/big", "", 422,
			one("nic_tag", "UsedBy", `In use by network "`+netMTU+`"`, `"type": "network", "id": "`+netMTU+`"`),
		},
	})
	w.make("/nic_tags", `{"name": "fresh"}`)
	if a := w.do("DELETE", "/nic_tags/fresh", ""); a.status != 204 || a.body != "" {
		t.Errorf("delete: got %d %q, want 204 and nothing", a.status, a.body)
	}
}

// TestFull: 507 names the network.
func TestFull(t *testing.T) {
	w := furnished(t)
	w.ok(w.do("PUT", "/networks/"+net2, `{"provision_start_ip": "10.2.0.10", "provision_end_ip": "10.2.0.11"}`))
	w.make("/networks/"+net2+"/nics", nicBody())
	w.make("/networks/"+net2+"/nics", nicBody())
	w.refuses(t, []refusal{{
		"full", "POST", "/networks/" + net2 + "/nics", nicBody(), 507,
		`{"code": "SubnetFull", "message": "no more free IPs", "network_uuid": "` + net2 + `"}`,
	}})
}
