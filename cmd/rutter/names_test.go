package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Commands ask what a name means, write by the id under the condition that the object is
// still the same, and list the candidates of a name that several have.
func TestCommandsTakeNames(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("If-Match"))
		mu.Unlock()
		switch {
		case r.URL.Path == "/names" && r.URL.Query().Get("name") == "two":
			fmt.Fprintf(w, `{"found":[{"kind":"network","id":%q,"name":"two"},{"kind":"network","id":"0e70de36-a40b-4ac0-9429-819f5ff82011","name":"x\u001b[2J"}],"more":true}`, aUUID)
		case r.URL.Path == "/names" && r.URL.Query().Get("name") == "none":
			fmt.Fprint(w, `{"found":[]}`)
		case r.URL.Path == "/names":
			fmt.Fprintf(w, `{"found":[{"kind":%q,"id":%q,"name":"blue","etag":"\"1-5\"","vnet_id":7}]}`, r.URL.Query().Get("kind"), aUUID)
		case strings.HasSuffix(r.URL.Path, "s"):
			fmt.Fprint(w, `[]`)
		default:
			fmt.Fprint(w, `{}`)
		}
	}))
	t.Cleanup(server.Close)
	for _, test := range []struct {
		args string
		want string // the last request; "" for an error
		code int
		text string // of standard error
	}{
		{"network get blue", "GET /networks/" + aUUID + " ", 0, ""},
		{"network delete blue", "DELETE /networks/" + aUUID + ` "1-5"`, 0, ""},
		{"network update blue mtu=1400", "POST /networks/" + aUUID + ` "1-5"`, 0, ""},
		{"network delete " + aUUID, "DELETE /networks/" + aUUID + " ", 0, ""},
		{"network delete two", "", 2, "and others"},
		{"network delete none", "", 3, `no network is named`},
		{"nic list network_uuid=blue cn_uuid=cn1", "GET /nics ", 0, ""},
		{"wait --scope vnet:blue", "GET /wait ", 1, "is not everywhere yet"},
		{"wait --scope vnet:two", "", 2, "two names several"},
		{"lookup vl3 blue 10.0.0.5", "GET /lookup/vl3 ", 0, ""},
		{"lookup vl2 two 90:b8:d0:00:00:01", "", 2, "two names several"},
		{"lookup vl3 none 10.0.0.5", "", 3, "no network is named"},
		{"nic list network_uuid=two", "", 2, "network_uuid: two names several"},
	} {
		mu.Lock()
		asked = nil
		mu.Unlock()
		code, _, stderr := rutter(t, append(strings.Fields(test.args), "-s", server.URL)...)
		last := asked[len(asked)-1]
		if code != test.code || !strings.Contains(stderr, test.text) || test.want != "" && last != test.want || test.want == "" && !strings.HasPrefix(last, "GET /names") {
			t.Errorf("%s: %d, asked %q, %q", test.args, code, asked, stderr)
		}
		if strings.Contains(stderr, "\x1b") {
			t.Errorf("%s: a name moves the cursor: %q", test.args, stderr)
		}
	}
}
