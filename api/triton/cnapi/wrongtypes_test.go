package cnapi

import (
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"rutter/log"
)

// wrongValues are values of each JSON type, of which most are wrong for any parameter.
var wrongValues = []string{
	`null`, `true`, `0`, `-1`, `1.5`, `1e400`, `123456789012345678901234567890`, `""`, `"x"`, `"-1"`, `"true"`, `"\u0000"`, `[]`, `[null]`, `[[]]`, `[{}]`, `["x"]`, `[1]`, `{}`, `{"x":null}`,
	`{"a":{"b":[1]}}`,
}

// wrongNames are the parameters of CNAPI's calls, in query or body.
var wrongNames = strings.Fields("action after attribute boot_modules boot_params boot_platform comments created datacenter default_console deadline disk_spares docker endpoint " +
	"etag_retries event expires_at extra extras fields force full headnode hostname id image image_uuid kernel_flags limit macs memo message meta networks next_reboot nic_tag_requirements nic_tags nics offset " +
	"order os overprovision_ratios owner_uuid package params platform postsetup_script primary req_id reqid reservation_ratio reserved reservoir scope server_uuid servers setup setting_up status sysinfo " +
	"task timeout traits transitional_status uuid uuids vm vms")

// wrongStep takes every eleventh pair of a name and a value; those of always are all tried.
const wrongStep = 11

var always = []string{"etag_retries", "limit", "networks", "nics", "os", "params", "sysinfo", "uuid", "vms"}

// TestWrongTypes: whatever is sent as a parameter of any call, in the query or the body, no
// answer is 500 or worse, unless CNAPI's documentation has that status for it; and nothing
// panics.
func TestWrongTypes(t *testing.T) {
	var s *Service
	calls := 0
	try := func(method, path, body string) {
		calls++
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.RemoteAddr = "127.0.0.1:1"
		s.Handler().ServeHTTP(w, r)
		if w.Code < 500 || w.Code == 501 {
			return
		}
		var answer struct{ Code string }
		_ = json.Unmarshal(w.Body.Bytes(), &answer)
		if w.Code != 500 || answer.Code != log.CodeInvalidParameters {
			t.Errorf("%s %s %.100s: %d %s", method, path, body, w.Code, w.Body)
		}
	}
	for _, e := range newService(t, newMemory(), nil).endpoints() {
		store := newMemory()
		store.SetFeature(log.FeatureVersion)
		s = newService(t, store, nil)
		method, pattern, _ := strings.Cut(e.pattern, " ")
		path := strings.NewReplacer("{server}", cn1, "{vm}", vm1, "{task}", vm1, "{ticket}", vm1).Replace(pattern)
		if method == "DELETE" && pattern == "/servers/{server}" {
			path = "/servers/" + cn2 // the others need the server
		}
		wait := "?timeout=0&"
		if !strings.HasSuffix(pattern, "/wait") {
			wait = "?"
		}
		for i, value := range wrongValues {
			for j, name := range wrongNames {
				if (i+j)%wrongStep != 0 && !slices.Contains(always, name) {
					continue
				}
				text := strings.Trim(value, `"`)
				if name != "timeout" || wait == "?" {
					try(method, path+wait+name+"="+url.QueryEscape(text), "")
				}
				if method != "GET" {
					try(method, path, `{"`+name+`":`+value+`}`)
				}
			}
			if method != "GET" {
				try(method, path, value)
			}
		}
	}
	if calls < 5_000 {
		t.Errorf("%d calls", calls)
	}
}

// TestTicketsHaveABound: over it, CNAPI asks to come again, and an old ticket's end makes
// room.
func TestTicketsHaveABound(t *testing.T) {
	store := newMemory()
	s := newService(t, store, nil)
	s.room.Server = 2
	path := "POST /servers/" + cn1 + "/tickets"
	first := ask(t, s, path, `{"scope":"vm","id":"a"}`, 202)["uuid"].(string)
	ask(t, s, path, `{"scope":"vm","id":"b"}`, 202)
	if got := ask(t, s, path, `{"scope":"vm","id":"c"}`, 503); got["code"] != "Overloaded" || !strings.Contains(got["message"].(string), "server_tickets") {
		t.Errorf("one too many: %v", got)
	}
	ask(t, s, "DELETE /tickets/"+first, "", 204)
	ask(t, s, path, `{"scope":"vm","id":"c"}`, 202)
}

// documented500 are the calls at which CNAPI answers 500 InvalidParameters to parameters of
// the wrong type, as docs/triton.md lists them.
var documented500 = []string{
	"POST /allocate", "POST /capacity", "GET /servers", "PUT /servers/{server}/nics",
}

// TestInvalidParametersAreListed: 500 is answered by those calls only.
func TestInvalidParametersAreListed(t *testing.T) {
	store := newMemory()
	s := newService(t, store, nil)
	for _, e := range s.endpoints() {
		method, pattern, _ := strings.Cut(e.pattern, " ")
		if slices.Contains(documented500, e.pattern) || strings.HasSuffix(pattern, "/wait") {
			continue
		}
		path := strings.NewReplacer("{server}", cn1, "{vm}", vm1, "{task}", vm1, "{ticket}", vm1).Replace(pattern)
		for _, query := range []string{"os=-1", "limit=-1", "offset=x", "setup=7", "timeout=x"} {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), method, path+"?"+query, strings.NewReader(""))
			r.RemoteAddr = "127.0.0.1:1"
			if s.Handler().ServeHTTP(w, r); w.Code == 500 {
				t.Errorf("%s?%s: %s", e.pattern, query, w.Body)
			}
		}
	}
}
