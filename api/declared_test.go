package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"rutter/log"
)

// TestEachKindHasPaths: what people declare, and migrations, are lists, objects and
// histories of the API by the table of kinds, and have a command.
func TestEachKindHasPaths(t *testing.T) {
	b := newBed(t)
	b.furnish()
	mac := b.nic(external, cn1)
	second := b.must("POST", "/networks", fmt.Sprintf(`{"name":"second","nic_tag":"sdc_overlay","subnet":"10.9.0.0/24","owner_uuids":[%q],"fabric":true,"vnet_id":%d}`, ownerA, vnetA))
	for _, c := range []struct {
		kind          log.Kind
		body, change  string
		filter, field string
	}{
		{log.KindNetworkPool, fmt.Sprintf(`{"name":"pool","networks":[%q]}`, external), `{"description":"x"}`, "name=pool", "description"},
		{log.KindRouter, fmt.Sprintf(`{"name":"r","networks":[%q,%q]}`, fabricA, second["uuid"]), `{"description":"x"}`, "name=r", "description"},
		{log.KindFabricVLAN, fmt.Sprintf(`{"owner_uuid":%q,"vlan_id":7,"name":"v"}`, ownerA), `{"description":"x"}`, "vlan_id=7", "description"},
		{log.KindIP, fmt.Sprintf(`{"network_uuid":%q,"ip":"10.9.0.9","reserved":true}`, second["uuid"]), `{"owner_uuid":"` + ownerA.String() + `"}`, "reserved=true&network_uuid=" + fmt.Sprint(second["uuid"]) + "&owner_uuid=" + ownerA.String() + "&ip=10.9.0.9", "owner_uuid"},
		{log.KindMigration, fmt.Sprintf(`{"instance_id":%q,"source_propolis_id":%q,"source_gen":1,"source_state":"pending"}`, ownerA, ownerB), "", "instance_id=" + ownerA.String(), ""},
		{log.KindAggregation, "", "", "name=aggr0", ""},
	} {
		d := c.kind.Describe()
		if d.Path == "" || d.Command.Name == "" {
			t.Errorf("%s: path %q, command %q", c.kind, d.Path, d.Command.Name)
			continue
		}
		if c.body == "" {
			continue // its NICs would have to be a server's; the paths are those of the others
		}
		created := b.call("POST", "/"+d.Path, c.body)
		if created.Code != http.StatusOK {
			t.Fatalf("%s: %s", c.kind, pretty(created))
		}
		o, _, err := log.ParseObject(c.kind, created.Body.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		one := "/" + d.Path + "/" + o.ID()
		if c.change != "" {
			if changed := b.must("PUT", one, c.change); changed[c.field] == nil {
				t.Errorf("%s: %v", one, changed)
			}
		}
		var list []any
		if w := b.call("GET", "/"+d.Path+"?"+c.filter, ""); json.Unmarshal(w.Body.Bytes(), &list) != nil || len(list) != 1 {
			t.Errorf("%s?%s: %s", d.Path, c.filter, pretty(w))
		}
		if w := b.call("GET", one, ""); w.Code != http.StatusOK || w.Header().Get("Etag") == "" {
			t.Errorf("%s: %s", one, pretty(w))
		}
		if w := b.call("GET", one+"/history", ""); w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%s/history: %s", one, pretty(w))
		}
		if w := b.call("DELETE", one, ""); w.Code != http.StatusNoContent {
			t.Errorf("DELETE %s: %s", one, pretty(w))
		}
	}
	if w := b.call("GET", "/nics/"+mac, ""); w.Code != http.StatusOK {
		t.Error(pretty(w))
	}
}
