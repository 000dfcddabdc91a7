package api

import (
	"net/http"
	"testing"
)

// TestTagOfOneLife: the tag of an object that was deleted matches none of the
// same id that is made later, not for a write, a deletion nor a cache.
func TestTagOfOneLife(t *testing.T) {
	b := newBed(t)
	b.furnish()
	body := `{"mac":"90:b8:d0:00:00:09","belongs_to_type":"zone","belongs_to_uuid":"` + ownerB.String() + `","owner_uuid":"` + ownerA.String() + `"}`
	b.must("POST", "/nics", body)
	const path = "/nics/90:b8:d0:00:00:09"
	first := b.call("GET", path, "").Header().Get("Etag")
	if w := b.call("DELETE", path, "", "If-Match", first); w.Code != http.StatusNoContent {
		t.Fatalf("delete: %s", pretty(w))
	}
	b.must("POST", "/nics", body)
	second := b.call("GET", path, "").Header().Get("Etag")
	for _, c := range []struct {
		method, body, header, tag string
		want                      int
	}{
		{"DELETE", "", "If-Match", first, http.StatusPreconditionFailed},
		{"PUT", `{"state":"running"}`, "If-Match", first, http.StatusPreconditionFailed},
		{"GET", "", "If-None-Match", first, http.StatusOK},
		{"GET", "", "If-None-Match", second, http.StatusNotModified},
		{"PUT", `{"state":"running"}`, "If-Match", second, http.StatusOK},
	} {
		if w := b.call(c.method, path, c.body, c.header, c.tag); w.Code != c.want {
			t.Errorf("%s with %s %s: got %d %s, want %d", c.method, c.header, c.tag, w.Code, pretty(w), c.want)
		}
	}
	for _, c := range []struct {
		fields string
		want   int
	}{{`"if_match":2,"if_seq":1`, 412}, {`"if_match":2`, 200}} { // a revision alone does, too
		w := b.call("POST", "/changes", `{"ops":[{"action":"update","kind":"nic","id":"90:b8:d0:00:00:09",`+c.fields+`,"object":{"model":"x"}}]}`)
		if w.Code != c.want {
			t.Errorf("%s: got %d %s, want %d", c.fields, w.Code, pretty(w), c.want)
		}
	}
}

// TestVMConditionWithNICs: what is asked of a VM's NICs alone is not done either
// if the VM is not what its tag says.
func TestVMConditionWithNICs(t *testing.T) {
	b := newBed(t)
	b.furnish()
	id := b.must("POST", "/vms", `{"owner_uuid":"`+ownerA.String()+`","server_uuid":"`+cn1.String()+`","state":"running"}`)["uuid"].(string)
	vm := "/vms/" + id
	tag := b.call("GET", vm, "").Header().Get("Etag")
	b.must("PUT", vm, `{"alias":"other"}`)
	mac := b.must("POST", "/nics", `{"belongs_to_type":"zone","belongs_to_uuid":"`+id+`","owner_uuid":"`+ownerA.String()+`"}`)["mac"].(string)
	body := `{"update_nics":[{"mac":"` + mac + `","allow_ip_spoofing":true}]}`
	if w := b.call("PUT", vm, body, "If-Match", tag); w.Code != http.StatusPreconditionFailed {
		t.Errorf("with the VM's old tag: %s", pretty(w))
	}
	b.must("PUT", vm, body, "If-Match", b.call("GET", vm, "").Header().Get("Etag"))
	if nic := b.must("GET", "/nics/"+mac, ""); nic["allow_ip_spoofing"] != true {
		t.Errorf("with its tag: %v", nic)
	}
}
