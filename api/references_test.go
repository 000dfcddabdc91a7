package api

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"rutter/api/backend"
)

// Filters of lists that refer to objects, VMMs' paths and the scopes of waits take names.
func TestNamesOfReferences(t *testing.T) {
	b := newBed(t)
	b.furnish()
	mac := b.nic(fabricA, cn1)
	b.must("PUT", "/networks/"+fabricB.String(), `{"name":"blue"}`)
	name, host := url.QueryEscape(ownerA.String()+"/net"), "cn1"
	for query, has := range map[string]bool{
		"network_uuid=" + name: true, "network_uuid=" + fabricA.String(): true, "cn_uuid=" + host: true, "network_uuid=blue," + name: true, "network_uuid=blue": false, "belongs_to_type=server&belongs_to_uuid=cn1": false,
	} {
		w := b.call("GET", "/nics?"+query, "")
		if w.Code != http.StatusOK || strings.Contains(w.Body.String(), mac) != has || w.Header().Get(backend.HeaderID) != "" {
			t.Errorf("GET /nics?%s: %s, %v", query, pretty(w), w.Header())
		}
	}
	for query, code := range map[string]int{
		"network_uuid=nowhere": http.StatusUnprocessableEntity,
		"network_uuid=":        http.StatusUnprocessableEntity,
		"owner_uuid=nowhere":   http.StatusUnprocessableEntity,
		"network_uuid=" + strings.Repeat(name+",", maxNamedValues) + name: http.StatusUnprocessableEntity,
	} {
		if w := b.call("GET", "/nics?"+query, ""); w.Code != code {
			t.Errorf("GET /nics?%s: %s", query, pretty(w))
		}
	}
	for scope, code := range map[string]int{
		"vnet:nowhere": http.StatusUnprocessableEntity, "cn:nowhere": http.StatusUnprocessableEntity, "vnet:99999999": http.StatusUnprocessableEntity, "thing:a": http.StatusUnprocessableEntity,
	} {
		if w := b.call("GET", "/wait?timeout=0&scope="+scope, ""); w.Code != code {
			t.Errorf("GET /wait?scope=%s: %s", scope, pretty(w))
		}
	}
	for _, scope := range []string{"vnet:" + name, "network:" + name, "cn:" + host} {
		if w := b.call("GET", "/wait?timeout=0&scope="+scope, ""); strings.Contains(w.Body.String(), `"InvalidParameters"`) {
			t.Errorf("GET /wait?scope=%s: %s", scope, pretty(w))
		}
	}
}
