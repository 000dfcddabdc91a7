package napi

import (
	"strings"
	"testing"

	"rutter/log"
)

// TestNoSecondAdmin: a second network of the name admin takes nothing over: it is refused,
// in NAPI's words, and in a log that has one from before, the one that servers are on stays
// what /networks/admin and network_uuid: admin mean.
func TestNoSecondAdmin(t *testing.T) {
	const second = "00000000-0000-4000-8000-000000000001" // before net1 in each order by UUID
	body := `{"uuid": "` + second + `", "name": "admin", "nic_tag": "admin", "vlan_id": 9, "subnet": "10.99.0.0/24",
		"provision_start_ip": "10.99.0.5", "provision_end_ip": "10.99.0.250"}`
	w := furnished(t)
	refused := w.do("POST", "/networks", body)
	if refused.status != 422 || !strings.Contains(refused.body, `"message":"name is in use by another network"`) || !strings.Contains(refused.body, `"field":"name","code":"Duplicate","message":"Already exists"`) {
		t.Errorf("a second network admin: %d %s", refused.status, refused.body)
	}
	nic := w.make("/networks/admin/nics", nicBody())
	same(t, "a NIC's network", nic["network_uuid"], net1)
	w.store.state.SetFeature(log.FeatureWire) // as before
	w.make("/networks", body)
	w.store.state.SetFeature(log.FeatureTriton)
	same(t, "a NIC's network, with two", w.make("/networks/admin/nics", nicBody())["network_uuid"], net1)
	same(t, "and by the alias in a body", w.make("/nics", nicBody("network_uuid", `"admin"`))["network_uuid"], net1)
	if got := w.do("GET", "/networks/admin", ""); !strings.Contains(got.body, net1) {
		t.Errorf("GET /networks/admin: %s", got.body)
	}
}

// TestGatewayAfterTheRaise: what a log of before feature version 6 says wrong of a gateway is
// right in each of NAPI's forms from the raise on, before anything is written: VMAPI makes a
// second NAT zone where it reads false.
func TestGatewayAfterTheRaise(t *testing.T) {
	const held, free = "10.21.0.1", "10.22.0.1"
	w := furnished(t)
	w.store.state.SetFeature(log.FeatureWire)
	w.make("/fabrics/"+owner1+"/vlans", `{"vlan_id": 7, "name": "seven"}`)
	made := map[string]string{} // UUIDs, by the gateway
	for gateway, says := range map[string]string{held: "false", free: "true"} {
		prefix := strings.TrimSuffix(gateway, ".1")
		f := w.make("/networks", netBody("name", `"`+gateway+`"`, "nic_tag", `"sdc_overlay"`, "vlan_id", "7", "fabric", "true", "owner_uuids", `["`+owner1+`"]`,
			"subnet", `"`+prefix+`.0/24"`, "provision_start_ip", `"`+prefix+`.5"`, "provision_end_ip", `"`+prefix+`.50"`,
			"gateway", `"`+gateway+`"`, "internet_nat", "true", "gateway_provisioned", says))
		made[gateway] = f["uuid"].(string)
	}
	nat := w.make("/networks/"+made[held]+"/nics", nicBody("cn_uuid", `"`+cn1+`"`, "ip", `"`+held+`"`, "owner_uuid", `"`+owner1+`"`))
	other := w.make("/networks/"+made[free]+"/nics", nicBody("cn_uuid", `"`+cn1+`"`, "owner_uuid", `"`+owner1+`"`))
	w.store.state.SetFeature(log.FeatureTriton)
	all := w.do("GET", "/networks?fabric=true", "").body + w.do("GET", "/fabrics/"+owner1+"/vlans/7/networks", "").body
	if n := strings.Count(all, `"gateway_provisioned":true`); n != 2 || strings.Count(all, `"gateway_provisioned":false`) != 2 {
		t.Errorf("lists: %s", all)
	}
	for gateway, nic := range map[string]any{held: nat["mac"], free: other["mac"]} {
		want := `"gateway_provisioned":false`
		if gateway == held {
			want = `"gateway_provisioned":true`
		}
		for _, path := range []string{"/networks/" + made[gateway], "/fabrics/" + owner1 + "/vlans/7/networks/" + made[gateway], "/nics/" + nic.(string)} {
			if got := w.do("GET", path, ""); got.status != 200 || !strings.Contains(got.body, want) {
				t.Errorf("%s (gateway %s): %d %s, want %s", path, gateway, got.status, got.body, want)
			}
		}
	}
}
