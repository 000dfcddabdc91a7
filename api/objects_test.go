package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"rutter/api/backend"
	"rutter/api/internal/apitest"
	"rutter/api/internal/rest"
	"rutter/log"
)

func TestObjects(t *testing.T) {
	b := newBed(t)
	b.furnish()
	mac := b.nic(fabricA, cn1)

	nic := b.must("GET", "/nics/"+strings.ReplaceAll(mac, ":", ""), "")
	for name, want := range map[string]any{
		"mac": mac, "nic_tag": "sdc_overlay/1001", "fabric": true, "gateway": "10.0.0.1", "netmask": "255.255.255.0",
		"network_uuid": fabricA.String(), "ip": "10.0.0.5", "vlan_id": 0.0, "primary": false, "cn_uuid": cn1.String(),
	} {
		if nic[name] != want {
			t.Errorf("nic: %s is %v, want %v", name, nic[name], want)
		}
	}
	if list, ok := nic["resolvers"].([]any); !ok || len(list) != 0 {
		t.Errorf("nic: resolvers are %v, want an empty list", nic["resolvers"])
	}
	network := b.must("GET", "/networks/"+fabricA.String(), "")
	if network["owner_uuid"] != ownerA.String() || network["netmask"] != "255.255.255.0" || network["vnet_id"] != float64(vnetA) {
		t.Errorf("network: got %v", network)
	}

	w := b.call("GET", "/nics/"+mac, "")
	tag := w.Header().Get("Etag")
	if !strings.HasPrefix(tag, `"1-`) || w.Header().Get("Rutter-Seq") != b.store.Head().Seq.String() {
		t.Errorf("headers: got %v", w.Header())
	}
	if w := b.call("HEAD", "/nics/"+mac, ""); w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Etag") != tag {
		t.Errorf("HEAD: got %s, %v", pretty(w), w.Header())
	}
	if w := b.call("GET", "/nics/"+mac, "", "If-None-Match", tag); w.Code != http.StatusNotModified {
		t.Errorf("If-None-Match: got %s", pretty(w))
	}
	if nic := b.must("PUT", "/nics/"+mac, `{"state":"running"}`, "If-Match", tag); nic["state"] != "running" {
		t.Errorf("PUT: got %v", nic)
	}
	tag = strings.Trim(b.call("GET", "/nics/"+mac, "").Header().Get("Etag"), `"`) // as old clients send it
	if nic := b.must("POST", "/nics/"+mac, `{"state":"stopped"}`, "If-Match", tag); nic["state"] != "stopped" {
		t.Errorf("POST: got %v", nic)
	}
	if w := b.call("DELETE", "/nics/"+mac, ""); w.Code != http.StatusNoContent {
		t.Errorf("DELETE: got %s", pretty(w))
	}
	if w := b.call("GET", "/nics/"+mac, ""); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "nic not found") {
		t.Errorf("GET after DELETE: got %s", pretty(w))
	}
}

func TestLists(t *testing.T) {
	b := newBed(t)
	b.furnish()
	for range 5 {
		b.nic(fabricA, cn1)
	}
	b.nic(fabricB, cn2)
	b.nic(external, cn2)
	for path, want := range map[string]int{
		"/nics":                                          10,
		"/nics?limit=4":                                  4,
		"/nics?limit=4&offset=8":                         2,
		"/nics?offset=99":                                0,
		"/nics?network_uuid=" + fabricA.String():         5,
		"/nics?cn_uuid=" + cn2.String():                  3,
		"/nics?vnet_id=1002":                             1,
		"/nics?vnet_id=1001,1002":                        6,
		"/nics?nic_tag=sdc_overlay/1001":                 5,
		"/nics?underlay=true":                            3,
		"/nics?belongs_to_uuid=" + cn1.String():          1,
		"/nics?owner_uuid=" + ownerB.String():            1,
		"/nics?state=running,provisioning&underlay=true": 3,
		"/networks?fabric=true":                          2,
		"/networks?owner_uuid=" + ownerA.String():        1,
		"/networks?nic_tag=external":                     1,
		"/nic_tags":                                      3,
		"/servers?hostname=cn1":                          1,
		"/vms":                                           0,
		"/vmms?state=running":                            0,
	} {
		w := b.call("GET", path, "")
		var list []any
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 {
			t.Errorf("%s: %v: %s", path, err, pretty(w))
			continue
		}
		if len(list) != want {
			t.Errorf("%s: %d objects, want %d", path, len(list), want)
		}
	}
}

// What is refused: each with its status, code, message and remedy, and nothing changes.
func TestBadInput(t *testing.T) {
	b := newBed(t)
	b.furnish()
	mac := b.nic(fabricA, cn1)
	big := `{"description":"` + strings.Repeat("x", MaxBody) + `"}`
	nics := "/networks/" + fabricA.String() + "/nics"
	zone := fmt.Sprintf(`"belongs_to_type":"zone","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q`, ownerA, ownerA, cn1)
	for _, test := range []struct {
		name, method, path, body, header string
		status                           int
		want                             []string // parts of the answer
	}{
		{"unknown field", "POST", "/nic_tags", `{"name":"a","colour":1}`, "", 422, []string{"InvalidParameters", "UnknownParameters", `"field":"colour"`, "remedy"}},
		{"wrong type", "POST", "/nic_tags", `{"name":"a","mtu":"big"}`, "", 422, []string{"InvalidParameter", `"field":"mtu"`, "whole number"}},
		{"not JSON", "POST", "/nic_tags", `{`, "", 422, []string{"not one JSON object", "remedy"}},
		{"two objects", "POST", "/nic_tags", `{} {}`, "", 422, []string{"text after the object"}},
		{"over the limit", "PUT", "/networks/" + fabricA.String(), big, "", 413, []string{"RequestTooLarge", "1048576", "remedy"}},
		{"content type", "POST", "/nic_tags", `{"name":"a"}`, "Content-Type: text/plain", 415, []string{"UnsupportedMediaType", "application/json"}},
		{"duplicate MAC", "POST", nics, `{"mac":"` + mac + `",` + zone + `}`, "", 422, []string{"Duplicate", `"field":"mac"`}},
		{"duplicate IP", "POST", nics, `{"ip":"10.0.0.5",` + zone + `}`, "", 422, []string{`"field":"ip"`}},
		{"network in use", "DELETE", "/networks/" + fabricA.String(), "", "", 422, []string{"InUse", "UsedBy"}},
		{"tag in use", "DELETE", "/nic_tags/external", "", "", 422, []string{"InUse"}},
		{"other network in body", "POST", nics, `{"network_uuid":"` + fabricB.String() + `"}`, "", 422, []string{"network_uuid", "remedy"}},
		{"malformed MAC", "GET", "/nics/nonsense", "", "", 422, []string{`"field":"mac"`, "remedy"}},
		{"malformed UUID", "GET", "/networks/nonsense", "", "", 422, []string{`"field":"uuid"`}},
		{"unknown object", "PUT", "/vms/" + ownerA.String(), `{"alias":"a"}`, "", 404, []string{"ResourceNotFound"}},
		{"unknown query parameter", "GET", "/nics?colour=red", "", "", 422, []string{"UnknownParameters", "colour", "belongs_to_uuid"}},
		{"parameter twice", "GET", "/nics?limit=1&limit=2", "", "", 422, []string{"more than once"}},
		{"empty filter", "GET", "/nics?cn_uuid=", "", "", 422, []string{"cn_uuid", "empty"}},
		{"filter not an id", "GET", "/nics?cn_uuid=a", "", "", 422, []string{"cn_uuid"}},
		{"limit zero", "GET", "/nics?limit=0", "", "", 422, []string{"limit", "1 to 1000"}},
		{"limit too high", "GET", "/nics?limit=1001", "", "", 422, []string{"limit"}},
		{"query on a write", "POST", "/nic_tags?force=1", `{"name":"a"}`, "", 422, []string{"force"}},
		{"if-match", "PUT", "/nics/" + mac, `{"state":"running"}`, `If-Match: "7-7"`, 412, []string{"PreconditionFailed", "if-match '7-7' didn't match etag '1-"}},
		{"if-match of a revision", "PUT", "/nics/" + mac, `{"state":"running"}`, `If-Match: "1"`, 412, []string{"PreconditionFailed"}},
		{"if-match nonsense", "PUT", "/nics/" + mac, `{"state":"running"}`, `If-Match: abc`, 412, []string{"PreconditionFailed", "abc"}},
		{"if-none-match on a write", "PUT", "/nics/" + mac, `{"state":"running"}`, `If-None-Match: *`, 400, []string{"reads only"}},
		{"change id not a UUID", "POST", "/nic_tags", `{"name":"a"}`, "Rutter-Change-Id: x", 400, []string{"Rutter-Change-Id", "version 7"}},
		{"change id of version 4", "POST", "/nic_tags", `{"name":"a"}`, "Rutter-Change-Id: " + ownerA.String(), 400, []string{"version 7"}},
		{"no path", "GET", "/nothing", "", "", 404, []string{"ResourceNotFound", "/nothing"}},
		{"no method", "PATCH", "/nics", "", "", 405, []string{"MethodNotAllowed", "GET, HEAD, POST"}},
		{"malformed cursor", "GET", "/log?cursor=abc", "", "", 422, []string{"cursor", "CLUSTER-UUID.SEQ.CHAIN", "remedy"}},
		{"cursor of another log", "GET", "/log?cursor=" + ownerA.String() + ".1.0011223344556677", "", "", 409, []string{"CursorOfOtherLog", "remedy"}},
		{"cursor and after", "GET", "/log?after=1&cursor=x", "", "", 422, []string{"one of them"}},
		{"after the head", "GET", "/log?after=1000", "", "", 409, []string{"CursorAhead"}},
		{"log of an unknown kind", "GET", "/log?kind=cat", "", "", 422, []string{"kind"}},
		{"log of a vnet too high", "GET", "/log?vnet=16777216", "", "", 422, []string{"vnet"}},
		{"feed without upgrade", "GET", "/feed", "", "", 426, []string{"rutter-feed"}},
		{"lookup without mac", "GET", "/lookup/vl2?vnet=1", "", "", 422, []string{"MissingParameter", "mac"}},
		{"lookup of nobody", "GET", "/lookup/vl3?vnet=1&ip=10.9.9.9", "", "", 404, []string{"ResourceNotFound", "remedy"}},
		{"lookup of no address", "GET", "/lookup/vl3?vnet=1&ip=ten", "", "", 422, []string{`"field":"ip"`}},
		{"change without ops", "POST", "/changes", `{}`, "", 422, []string{"ops", "1 to 1024"}},
		{"change with unknown field", "POST", "/changes", `{"op":[]}`, "", 422, []string{"not a change"}},
		{"change with bad op", "POST", "/changes", `{"ops":[{"action":"delete","kind":"nic_tag","id":"x"},{"action":"create","kind":"nic_tag","object":{"mtu":true}}]}`, "", 422, []string{`ops[1].mtu`}},
		{"change of unknown kind", "POST", "/changes", `{"ops":[{"action":"create","kind":"cat","object":{}}]}`, "", 422, []string{"cat"}},
		{"update without id", "POST", "/changes", `{"ops":[{"action":"update","kind":"nic_tag","object":{}}]}`, "", 422, []string{"ops[0].id"}},
		{"half of a change is bad", "POST", "/changes", `{"ops":[{"action":"create","kind":"nic_tag","object":{"name":"fine"}},{"action":"delete","kind":"nic_tag","id":"nowhere"}]}`, "", 404, []string{"ResourceNotFound"}},
		{"CN not here", "GET", "/cns/" + cn1.String(), "", "", 404, []string{"other servers"}},
		{"no cluster", "POST", "/cluster/transfer", `{}`, "", 501, []string{"NotImplemented"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			before, seq := b.store.Dump(), b.store.Head().Seq
			var headers []string
			if name, value, ok := strings.Cut(test.header, ": "); ok {
				headers = []string{name, value}
			}
			w := b.call(test.method, test.path, test.body, headers...)
			if w.Code != test.status {
				t.Errorf("got %s, want status %d", pretty(w), test.status)
			}
			var answer struct{ Code, Message string }
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Code == "" || answer.Message == "" {
				t.Errorf("answer has no code and message: %v: %s", err, pretty(w))
			}
			for _, part := range test.want {
				if !strings.Contains(w.Body.String(), part) {
					t.Errorf("answer lacks %q: %s", part, pretty(w))
				}
			}
			if b.store.Dump() != before || b.store.Head().Seq != seq {
				t.Errorf("the state changed")
			}
		})
	}
}

func TestRetryIsAppliedOnce(t *testing.T) {
	b := newBed(t)
	id, err := rest.NewChangeID()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w := b.call("POST", "/nic_tags", `{"name":"external"}`, "Rutter-Change-Id", id.String())
		if w.Code != 200 || w.Header().Get("Rutter-Change-Id") != id.String() {
			t.Fatalf("got %s, %v", pretty(w), w.Header())
		}
	}
	if head := b.store.Head().Seq; head != 1 {
		t.Errorf("head is %d, want 1", head)
	}
}

func TestChanges(t *testing.T) {
	b := newBed(t)
	result := b.must("POST", "/changes", `{"ops":[{"action":"create","kind":"nic_tag","object":{"name":"one"}},{"action":"create","kind":"nic_tag","object":{"name":"two"}}]}`)
	if result["first"] != 1.0 || result["last"] != 2.0 || fmt.Sprint(result["ids"]) != "[one two]" {
		t.Errorf("got %v", result)
	}
	w := b.call("POST", "/changes", `{"ops":[{"action":"update","kind":"nic_tag","id":"one","if_match":9,"object":{"mtu":9000}}]}`)
	if w.Code != http.StatusPreconditionFailed {
		t.Errorf("if_match: got %s", pretty(w))
	}
}

func TestWritesThatFail(t *testing.T) {
	b := newBed(t)
	for err, code := range map[error]string{
		backend.ErrNoLeader: rest.CodeNoLeader, backend.ErrOverloaded: rest.CodeOverloaded, errors.New("leadership lost"): rest.CodeUnknown,
	} {
		b.store.FailWrites(1, fmt.Errorf("store: %w", err))
		w := b.call("POST", "/nic_tags", `{"name":"a"}`)
		if w.Code != 503 || !strings.Contains(w.Body.String(), code) || w.Header().Get("Retry-After") == "" || w.Header().Get("Rutter-Change-Id") == "" {
			t.Errorf("%v: got %s, %v", err, pretty(w), w.Header())
		}
	}
}

func TestFreshness(t *testing.T) {
	b := newBed(t)
	b.must("POST", "/nic_tags", `{"name":"a"}`)
	for _, path := range []string{"/nic_tags?consistent", "/nic_tags/a?consistent=true&min_seq=1", "/log?min_seq=1&consistent=0"} {
		if w := b.call("GET", path, ""); w.Code != 200 {
			t.Errorf("%s: got %s", path, pretty(w))
		}
	}
	b.store.Fail(apitest.Errors{Consistent: errors.New("no quorum")})
	if w := b.call("GET", "/nic_tags?consistent", ""); w.Code != 503 || !strings.Contains(w.Body.String(), rest.CodeNoLeader) {
		t.Errorf("consistent without a leader: got %s", pretty(w))
	}
}

func TestHealth(t *testing.T) {
	b := newBed(t)
	b.furnish()
	for path, want := range map[string]string{
		"/ping": `"status":"OK"`, "/livez": "ok\n", "/readyz": "ok\n", "/readyz?verbose": "leader s1",
		"/metrics": "rutter_head_seq", "/status": `"leader_id":"s1"`, "/cluster": `"members":[{"id":"s1"`, "/cns": "[]",
	} {
		if w := b.call("GET", path, ""); w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %s, want %q", path, pretty(w), want)
		}
	}
	b.store.Fail(apitest.Errors{Ready: errors.New("catching up")})
	for path, want := range map[string]string{"/ping": "initializing", "/readyz": "catching up"} {
		if w := b.call("GET", path, ""); w.Code != 503 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s when not ready: got %s", path, pretty(w))
		}
	}
	if w := b.call("GET", "/livez", ""); w.Code != 200 {
		t.Errorf("/livez when not ready: got %s", pretty(w))
	}
}

func TestLookups(t *testing.T) {
	b := newBed(t)
	b.furnish()
	mac := b.nic(fabricA, cn2)
	for _, path := range []string{"/lookup/vl2?vnet=1001&mac=" + mac, "/lookup/vl3?vnet=1001&ip=10.0.0.5"} {
		o := b.must("GET", path, "")
		if o["mac"] != mac || o["cn_uuid"] != cn2.String() || o["underlay_ip"] != "198.51.100.11" || o["underlay_port"] != 4789.0 {
			t.Errorf("%s: got %v", path, o)
		}
	}
}

func TestLog(t *testing.T) {
	b := newBed(t)
	b.furnish()
	mac := b.nic(fabricA, cn1)
	head := b.store.Head()
	for path, want := range map[string]int{
		"/log":                                   int(head.Seq),
		"/log?after=3":                           int(head.Seq) - 3,
		"/log?limit=2":                           2,
		"/log?kind=nic_tag":                      3,
		"/log?object=" + mac:                     1,
		"/log?vnet=1001&kind=nic":                1,
		"/log?cn=" + cn1.String():                3, // server, underlay NIC, NIC
		"/log?cn=" + cn1.String() + "&vnet=1001": 1,
		"/log?cursor=" + head.String():           0,
	} {
		w := b.call("GET", path, "")
		if w.Code != 200 || w.Header().Get("Rutter-Cursor") != head.String() {
			t.Errorf("%s: got %s %v", path, pretty(w), w.Header())
			continue
		}
		lines := strings.Split(strings.TrimSuffix(w.Body.String(), "\n"), "\n")
		if w.Body.Len() == 0 {
			lines = nil
		}
		if len(lines) != want {
			t.Errorf("%s: %d lines, want %d: %s", path, len(lines), want, w.Body)
		}
		for _, text := range lines {
			var line log.Line
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Errorf("%s: %v: %s", path, err, text)
			}
		}
	}
	b.store.Compact()
	if w := b.call("GET", "/log?after=1", ""); w.Code != http.StatusGone || !strings.Contains(w.Body.String(), rest.CodeCompacted) {
		t.Errorf("after compaction: got %s", pretty(w))
	}
}

// A server that differs from the others shows nothing of its state, on any read.
func TestAServerThatDiffersShowsNothing(t *testing.T) {
	b := newBed(t)
	b.furnish()
	b.store.Fail(apitest.Errors{Serving: errors.New("it differs from s2 and s3")})
	for _, path := range []string{"/networks", "/nics", "/servers/" + cn1.String(), "/lookup/vl3?vnet=1001&ip=10.0.0.5", "/log"} {
		w := b.call("GET", path, "")
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "differs from s2 and s3") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestLabelsAndReverts: lists are filtered by labels, a change says what it takes back, and
// its entries say it; what cannot be read is refused.
func TestLabelsAndReverts(t *testing.T) {
	b := newBed(t)
	b.must("POST", "/nic_tags", `{"name":"one","labels":["tier=1","set=web=2"]}`)
	b.must("POST", "/nic_tags", `{"name":"two"}`)
	for query, want := range map[string]string{"labels=set=web%3D2": "one", "labels=tier=1,set=x": "one", "labels=set=web": "", "labels=set": ""} {
		w := b.call("GET", "/nic_tags?"+query, "")
		if got := w.Body.String(); w.Code != 200 || strings.Contains(got, `"one"`) != (want == "one") || strings.Contains(got, `"two"`) {
			t.Errorf("%s: %s", query, pretty(w))
		}
	}
	b.must("POST", "/changes", `{"reverts":"#1-#2","ops":[{"action":"delete","kind":"nic_tag","id":"two"}]}`)
	if w := b.call("GET", "/log?after=2", ""); !strings.Contains(w.Body.String(), `"reverts":"#1-#2"`) {
		t.Errorf("the entry is %s", w.Body)
	}
	for _, bad := range []string{"x", "#2-#1", "#0"} {
		if w := b.call("POST", "/changes", `{"reverts":"`+bad+`","ops":[{"action":"delete","kind":"nic_tag","id":"one"}]}`); w.Code != http.StatusBadRequest && w.Code != 422 && w.Code != 409 {
			t.Errorf("%s: %s", bad, pretty(w))
		}
	}
}
