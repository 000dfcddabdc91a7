package api

import (
	"net/http"
	"strings"
	"testing"
)

// A reader with a grant sees what is of its tenants, in lists, by id and in the
// log, and nothing of others anywhere; only operators write grants.
func TestReaderIsLimitedByGrant(t *testing.T) {
	b := bedOf(t, Config{Identify: byHeader})
	const ours, theirs = "564d69b1-a178-3fbe-b36f-3f2b7fd7ed31", "930896af-bf8c-48d4-885c-6573a94b1853"
	must := func(as, method, path, body string, want int) string {
		t.Helper()
		w := b.call(method, path, body, asHeader, as)
		if w.Code != want {
			t.Fatalf("%s: %s %s: %d, want %d: %s", as, method, path, w.Code, want, pretty(w))
		}
		return w.Body.String()
	}
	must("operator", "POST", "/nic_tags", `{"name":"overlay"}`, http.StatusOK)
	ids := make(map[string]string)
	for name, owner := range map[string]string{"mine": ours, "foreign": theirs} {
		text := must("operator", "POST", "/networks", `{"name":"`+name+`","nic_tag":"overlay","vlan_id":0,"subnet":"10.0.0.0/24","provision_start_ip":"10.0.0.2","provision_end_ip":"10.0.0.9","owner_uuids":["`+owner+`"]}`, http.StatusOK)
		_, rest, _ := strings.Cut(text, `"uuid":`)
		ids[name] = strings.Trim(rest, " \"")[:36]
	}
	all := must("reader", "GET", "/networks", "", http.StatusOK)
	if !strings.Contains(all, "mine") || !strings.Contains(all, "foreign") {
		t.Fatalf("a reader without a grant sees %s", all)
	}
	for _, as := range []string{"reader", cn1.String(), "foreign", "join"} {
		must(as, "PUT", "/grants/reader:test", `{"owner_uuids":["`+ours+`"]}`, http.StatusForbidden)
	}
	must("operator", "PUT", "/grants/operator:test", `{"owner_uuids":["`+ours+`"]}`, http.StatusUnprocessableEntity)
	must("operator", "PUT", "/grants/reader:test", `{"owner_uuids":["`+ours+`"]}`, http.StatusOK)
	for path, want := range map[string]int{
		"/networks": http.StatusOK, "/log?after=0": http.StatusOK, "/networks/" + ids["mine"]: http.StatusOK, "/networks/" + ids["foreign"]: http.StatusNotFound,
		"/log/state": http.StatusForbidden, "/cns": http.StatusForbidden, "/networks/" + ids["mine"] + "/history": http.StatusForbidden,
	} {
		if text := must("reader", "GET", path, "", want); strings.Contains(text, `"foreign"`) || strings.Contains(text, theirs) {
			t.Errorf("GET %s shows another tenant's: %s", path, text)
		}
	}
	if text := must("reader", "GET", "/networks", "", http.StatusOK); !strings.Contains(text, "mine") {
		t.Errorf("its own network is not there: %s", text)
	}
	must("operator", "PUT", "/grants/reader:test", `{"owner_uuids":["`+theirs+`"]}`, http.StatusOK)
	must("reader", "GET", "/networks/"+ids["mine"], "", http.StatusNotFound)
	must("operator", "DELETE", "/grants/reader:test", "", http.StatusNoContent)
	must("reader", "GET", "/networks/"+ids["mine"], "", http.StatusOK)
}
