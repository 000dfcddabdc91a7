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
