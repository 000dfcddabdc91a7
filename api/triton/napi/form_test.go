package napi

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/auth/matrix"
)

// keys are the names of an object's fields, sorted.
func keys(m map[string]any) string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func sameKeys(t *testing.T, what string, got map[string]any, want string) {
	t.Helper()
	names := strings.Fields(want)
	slices.Sort(names)
	if want = strings.Join(names, " "); keys(got) != want {
		t.Errorf("%s has other fields:\n got %s\nwant %s", what, keys(got), want)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

const (
	networkKeys = "family mtu name netmask nic_tag provision_end_ip provision_start_ip resolvers subnet uuid vlan_id"
	nicKeys     = "belongs_to_type belongs_to_uuid created_timestamp mac modified_timestamp owner_uuid primary state"
	onNetwork   = " ip mtu netmask network_uuid nic_tag resolvers vlan_id"
	fabricKeys  = " fabric gateway_provisioned internet_nat"
)

// TestForms: objects have exactly NAPI's fields (spec/napi.md section 3.1).
func TestForms(t *testing.T) {
	w := furnished(t)
	sameKeys(t, "nic tag", w.make("/nic_tags", `{"name": "t"}`), "mtu name uuid")
	n := w.make("/networks", netBody())
	sameKeys(t, "network", n, networkKeys)
	same(t, "mtu", n["mtu"], 1500.0)
	same(t, "family", n["family"], "ipv4")
	same(t, "netmask", n["netmask"], "255.255.255.0")
	full := w.make("/networks", netBody("name", `"full"`, "gateway", `"10.9.0.1"`, "description", `"d"`, "owner_uuids", `["`+owner1+`"]`, "routes", `{"10.8.0.0/16": "10.9.0.2"}`))
	sameKeys(t, "network with all", full, networkKeys+" gateway description owner_uuids routes")
	six := w.make("/networks", netBody("name", `"six"`, "subnet", `"fd00:9::/64"`, "provision_start_ip", `"fd00:9::10"`, "provision_end_ip", `"fd00:9::20"`))
	sameKeys(t, "network of IPv6", six, strings.Replace(networkKeys, "netmask ", "", 1))

	bare := w.make("/nics", nicBody())
	sameKeys(t, "nic of no network", bare, nicKeys)
	same(t, "state", bare["state"], "provisioning")
	same(t, "primary", bare["primary"], false)
	created := bare["created_timestamp"].(string)
	if len(created) != len("2026-11-21T12:00:00.000Z") || !strings.HasSuffix(created, "Z") {
		t.Errorf("created_timestamp: got %s", created)
	}
	sameKeys(t, "nic", w.make("/networks/"+net1+"/nics", nicBody()), nicKeys+onNetwork)
	flags := w.make("/nics", nicBody("allow_ip_spoofing", "true", "allow_mac_spoofing", "false", "model", `"virtio"`, "cn_uuid", `"`+cn1+`"`, "nic_tag", `"external"`))
	sameKeys(t, "nic with flags", flags, nicKeys+" allow_ip_spoofing cn_uuid model nic_tag")
	server := w.make("/nics", nicBody("belongs_to_type", `"server"`, "belongs_to_uuid", `"`+cn1+`"`, "nic_tags_provided", `"external,admin"`, "underlay", "true"))
	sameKeys(t, "nic of a server", server, nicKeys+" nic_tags_provided underlay")
}

// TestFabricForms: a NIC on a fabric inherits, its tag names the vnet, and routes
// to the link name its MAC.
func TestFabricForms(t *testing.T) {
	w := furnished(t)
	f := w.make("/networks", netBody("nic_tag", `"sdc_overlay"`, "fabric", "true", "vnet_id", "77", "owner_uuids", `["`+owner1+`"]`,
		"gateway", `"10.9.0.1"`, "internet_nat", "true", "routes", `{"10.8.0.0/16": "linklocal"}`, "resolvers", `["8.8.8.8"]`, "mtu", "1400"))
	sameKeys(t, "fabric network", f, networkKeys+fabricKeys+" vnet_id owner_uuids gateway routes")
	nic := w.make("/networks/"+f["uuid"].(string)+"/nics", nicBody("cn_uuid", `"`+cn1+`"`))
	sameKeys(t, "nic on a fabric", nic, nicKeys+onNetwork+fabricKeys+" gateway routes cn_uuid")
	same(t, "nic_tag", nic["nic_tag"], "sdc_overlay/77")
	same(t, "mtu", nic["mtu"], 1400.0)
	same(t, "route", nic["routes"].(map[string]any)["10.8.0.0/16"], "macs["+nic["mac"].(string)+"]")
	same(t, "internet_nat", nic["internet_nat"], true)
	w.refuses(t, []refusal{{
		"no cn_uuid", "POST", "/networks/" + f["uuid"].(string) + "/nics", nicBody(), 422,
		one("cn_uuid", "MissingParameter", "Missing parameter"),
	}})
}

// TestPaths: every GET of the table answers, HEAD with the same header and no
// body, and MACs and the admin network have their other names.
func TestPaths(t *testing.T) {
	w := furnished(t)
	nic := w.make("/networks/admin/nics", nicBody())
	mac := nic["mac"].(string)
	same(t, "network of the alias", nic["network_uuid"], net1)
	same(t, "alias in a body", w.make("/nics", nicBody("network_uuid", `"admin"`))["network_uuid"], net1)
	for _, path := range []string{
		"/ping", "/manage/gc", "/nic_tags", "/nic_tags/external", "/networks", "/networks/" + net2, "/networks/admin", "/networks/admin/ips",
		"/networks/admin/ips/" + nic["ip"].(string), "/nics", "/nics/" + mac, "/nics/" + strings.ReplaceAll(mac, ":", ""),
		"/nics/" + strings.ReplaceAll(mac, ":", "-"), "/network_pools", "/aggregations", "/routers", "/fabrics/" + owner1 + "/vlans",
		"/search/ips?ip=10.1.0.1",
	} {
		get, head := w.do("GET", path, ""), w.do("HEAD", path, "")
		if get.status != 200 || head.status != 200 || head.body != "" {
			t.Errorf("%s: GET %d %s, HEAD %d %q", path, get.status, get.body, head.status, head.body)
		}
		for _, name := range []string{"Content-Length", "Content-Type", "Etag"} {
			same(t, path+" "+name, head.header.Get(name), get.header.Get(name))
		}
	}
	for _, path := range []string{"/nics/" + mac, "/networks/" + net2} {
		if w.do("GET", path, "").header.Get("Etag") == "" {
			t.Errorf("GET %s: no Etag", path)
		}
		if w.do("PUT", path, "{}").header.Get("Etag") == "" {
			t.Errorf("PUT %s: no Etag", path)
		}
	}
}

// TestEndpoints: the table is what is served, and HEAD mirrors each GET.
func TestEndpoints(t *testing.T) {
	s := newWorld(t).s
	all := s.Table().Endpoints()
	for _, e := range all {
		if !strings.HasPrefix(e, "HEAD ") && matrix.Find("napi "+e) == nil {
			t.Errorf("%s has no row in the matrix of who may do what", e)
		}
		if path, ok := strings.CutPrefix(e, "GET "); ok && !slices.Contains(all, "HEAD "+path) {
			t.Errorf("%s has no HEAD", e)
		}
	}
}

// TestMethodLabel: the count of requests has no value of a client's choice.
func TestMethodLabel(t *testing.T) {
	w := furnished(t)
	for i := range 3 {
		w.do(fmt.Sprint("BREW", i), "/nics", "")
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.s.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	others := 0.0
	for _, m := range families[0].GetMetric() {
		for _, label := range m.GetLabel() {
			if strings.HasPrefix(label.GetValue(), "BREW") {
				t.Errorf("the label %s has the value %s", label.GetName(), label.GetValue())
			}
			if label.GetName() == "method" && label.GetValue() == "other" {
				others += m.GetCounter().GetValue()
			}
		}
	}
	same(t, "requests with other methods", others, 3.0)
}

// TestPing: 503 until the server can serve.
func TestPing(t *testing.T) {
	w := newWorld(t)
	same(t, "ping", canonical(t, w.do("GET", "/ping", "").body), canonical(t,
		`{"config": {"fabrics_enabled": true, "subnet_alloc_enabled": true}, "healthy": true, "services": {"moray": "online"}, "status": "OK"}`))
	w.store.serving = errTest
	a := w.do("GET", "/ping", "")
	same(t, "status", a.status, 503)
	same(t, "ping of a server that cannot serve", canonical(t, a.body), canonical(t,
		`{"config": {"fabrics_enabled": true, "subnet_alloc_enabled": true}, "healthy": false, "services": {"moray": "offline"}, "status": "initializing"}`))
	same(t, "read of it", w.do("GET", "/nics", "").status, 503)
}

// TestPrimary: setting it clears it on the other NICs of the same thing.
func TestPrimary(t *testing.T) {
	w := furnished(t)
	a := w.make("/nics", nicBody("primary", "true"))["mac"].(string)
	b := w.make("/nics", nicBody())["mac"].(string)
	other := w.make("/nics", nicBody("primary", "true", "belongs_to_uuid", `"`+vm2+`"`))["mac"].(string)
	w.ok(w.do("PUT", "/nics/"+b, `{"primary": true}`))
	same(t, "the old one", w.ok(w.do("GET", "/nics/"+a, ""))["primary"], false)
	same(t, "the new one", w.ok(w.do("GET", "/nics/"+b, ""))["primary"], true)
	same(t, "another VM's", w.ok(w.do("GET", "/nics/"+other, ""))["primary"], true)
}

// TestNICFilters: lists by one value, by several, and by flags.
func TestNICFilters(t *testing.T) {
	w := furnished(t)
	w.make("/networks/"+net1+"/nics", nicBody("cn_uuid", `"`+cn1+`"`))
	w.make("/networks/"+net2+"/nics", nicBody("belongs_to_uuid", `"`+vm2+`"`, "cn_uuid", `"`+cn2+`"`, "allow_ip_spoofing", "true"))
	w.make("/nics", nicBody("belongs_to_type", `"server"`, "belongs_to_uuid", `"`+cn1+`"`, "owner_uuid", `"`+owner2+`"`, "nic_tags_provided", `["external"]`))
	for query, want := range map[string]int{
		"": 3, "?belongs_to_uuid=" + vm1: 1, "?belongs_to_uuid=" + vm1 + "," + vm2: 2, "?belongs_to_uuid=" + vm1 + "," + vm1: 1,
		"?belongs_to_uuid=" + absent: 0, "?belongs_to_type=zone": 2, "?belongs_to_type=zone,server": 3, "?owner_uuid=" + owner2: 1,
		"?owner_uuid=" + owner1 + "," + owner2: 3, "?cn_uuid=" + cn1: 1, "?network_uuid=" + net1 + "," + net2: 2, "?nic_tag=external": 1,
		"?nic_tag=external,admin": 2, "?nic_tags_provided=external": 1, "?allow_ip_spoofing=true": 1, "?allow_ip_spoofing=false": 2,
		"?state=provisioning": 3, "?underlay=true": 0, "?limit=2": 2, "?offset=2": 1, "?belongs_to_uuid=" + vm1 + "," + vm2 + "&limit=1&offset=1": 1,
		"?belongs_to_uuid=" + vm1 + "&belongs_to_uuid=" + vm2: 2,
	} {
		if got := len(w.listed("/nics" + query)); got != want {
			t.Errorf("/nics%s: got %d, want %d", query, got, want)
		}
	}
	for query, want := range map[string]int{
		"": 4, "?nic_tag=external": 2, "?nic_tag=external,admin": 3, "?name=admin,big": 2, "?vlan_id=5": 1, "?fabric=true": 0, "?family=ipv4": 4,
		"?owner_uuid=" + owner1: 1, "?provisionable_by=" + owner1: 4, "?provisionable_by=" + owner2: 3, "?provisionable_by=" + admin: 4,
		"?uuid=" + net1: 1, "?uuid=00000000-0000-4000-8000-00000000001*": 4,
	} {
		if got := len(w.listed("/networks" + query)); got != want {
			t.Errorf("/networks%s: got %d, want %d", query, got, want)
		}
	}
}

// TestIPs: what a network's addresses show.
func TestIPs(t *testing.T) {
	w := furnished(t)
	nic := w.make("/networks/"+net2+"/nics", nicBody())
	ip := func(text string) map[string]any { return w.ok(w.do("GET", "/networks/"+net2+"/ips/"+text, "")) }
	free := ip("10.2.0.99")
	sameKeys(t, "a free IP", free, "free ip network_uuid reserved")
	same(t, "free", free["free"], true)
	used := ip(nic["ip"].(string))
	sameKeys(t, "an IP in use", used, "belongs_to_type belongs_to_uuid free ip network_uuid owner_uuid reserved")
	same(t, "belongs_to_uuid", used["belongs_to_uuid"], vm1)
	same(t, "free in use", used["free"], false)
	gateway := ip("10.2.0.1")
	same(t, "gateway reserved", gateway["reserved"], true)
	same(t, "gateway's owner", gateway["owner_uuid"], admin)
	var listed []string
	for _, f := range w.listed("/networks/" + net2 + "/ips") {
		listed = append(listed, f["ip"].(string))
	}
	same(t, "list", strings.Join(listed, " "), "10.2.0.1 10.2.0.2 10.2.0.10 10.2.0.255")
	same(t, "list by owner", len(w.listed("/networks/"+net2+"/ips?owner_uuid="+owner1)), 1)
	same(t, "page", w.listed("/networks/" + net2 + "/ips?limit=1&offset=2")[0]["ip"], "10.2.0.10")
	same(t, "search", len(w.listed("/search/ips?ip="+nic["ip"].(string))), 1)
}
