package vmapi

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// wrongValues are values of each JSON type, of which most are wrong for any parameter.
var wrongValues = []string{
	`null`, `true`, `0`, `-1`, `1.5`, `1e400`, `123456789012345678901234567890`, `""`, `"x"`, `"-1"`, `"true"`, `"\u0000"`, `[]`, `[null]`, `[[]]`, `[{}]`, `["x"]`, `[1]`, `{}`, `{"x":null}`,
	`{"a":{"b":[1]}}`,
}

// wrongNames are the parameters of VMAPI's calls that have a form of their own.
var wrongNames = strings.Fields("action add_nics affinity alias billing_id brand create_timestamp customer_metadata destroyed disks execution fields firewall_rules idempotent image_uuid " +
	"internal_metadata last_modified limit locality macs marker max_physical_memory networks nics offset owner_uuid predicate query quota ram remove_nics resolvers role_tags server_uuid signal sort " +
	"state sync tags task update_nics uuid uuids vm_uuid vms volumes zonename")

// TestWrongTypes: whatever is sent as a parameter of any call, in the query or the body, no
// answer is 500 or 503, and nothing panics. sync=true waits, and is tried elsewhere.
func TestWrongTypes(t *testing.T) {
	m, h := placing(t, nil)
	s, err := New(Config{Store: m})
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	try := func(method, path, body string) {
		calls++
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
		if w.Code >= http.StatusInternalServerError && w.Code != http.StatusNotImplemented {
			t.Errorf("%s %s %.100s: %d %s", method, path, body, w.Code, w.Body)
		}
	}
	valid := func(name, value string) string { // with it alone wrong
		return newMachine(`,"` + name + `":` + value)
	}
	for i, value := range wrongValues {
		for j, name := range wrongNames {
			if name == "sync" && value == `"true"` || name == "sync" && value == "true" {
				continue
			}
			try("POST", "/vms", valid(name, value))
			for _, action := range []string{"add_nics", "remove_nics", "update", "update_nics", "stop", ""} {
				if name != "alias" && (i+j)%3 != 0 {
					continue
				}
				try("POST", "/vms/"+theVM.String()+"?owner_uuid="+theOwner.String()+"&action="+action, `{"`+name+`":`+value+`}`)
			}
			for k, route := range s.Table().Routes {
				if (i+j+k)%7 != 0 {
					continue
				}
				path := strings.NewReplacer("{uuid}", theVM.String(), "{job}", newVM.String(), "{key}", "k").Replace(route.Pattern)
				try(route.Method, path+"?"+name+"="+url.QueryEscape(strings.Trim(value, `"`)), value)
				if route.Method != "GET" && route.Method != "HEAD" {
					try(route.Method, path, `{"`+name+`":`+value+`}`)
				}
			}
		}
	}
	if calls < 5000 {
		t.Errorf("%d calls", calls)
	}
}
