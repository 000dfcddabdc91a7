package api

import (
	"net/http"
	"strings"
	"testing"

	"rutter/log"
)

func TestJSONDepth(t *testing.T) {
	b := newBed(t)
	for _, body := range []string{strings.Repeat("[", 100_000), `{"ops":` + strings.Repeat(`{"a":`, 100)} {
		if w := b.call("POST", "/changes", body); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "nested") {
			t.Errorf("nested body: %s", pretty(w))
		}
	}
}

// What the roles get at the door, and that a refusal names what is missing.
func TestRolesAtTheDoor(t *testing.T) {
	b := bedOf(t, Config{Identify: byHeader})
	b.furnish()
	b.nic(fabricA, cn1)
	b.nic(fabricB, cn2)
	me := cn1.String()
	for _, c := range []struct {
		as, method, path, body string
		want                   int
	}{
		{"reader", "GET", "/networks", "", 200},
		{"reader", "POST", "/nic_tags", `{"name":"x"}`, 403},
		{"operator", "POST", "/nic_tags", `{"name":"x"}`, 200},
		{"server", "POST", "/nic_tags", `{"name":"y"}`, 403},
		{"foreign", "POST", "/nic_tags", `{"name":"y"}`, 403},
		{"join", "GET", "/networks", "", 403},
		{"join", "GET", "/livez", "", 200},
		{"reader", "GET", "/snapshot", "", 403},
		{"reader", "PUT", "/cluster/retention", `{}`, 403},
		{me, "GET", "/servers/" + me, "", 200},
		{me, "GET", "/servers/" + cn2.String(), "", 404},
		{me, "GET", "/networks/" + fabricA.String(), "", 200},
		{me, "GET", "/networks/" + fabricB.String(), "", 404},
		{me, "GET", "/log", "", 403},
		{me, "GET", "/servers/" + me + "?at=3", "", 403},
		{me, "PUT", "/servers/" + me, `{"current_platform":"x"}`, 200},
		{me, "PUT", "/servers/" + me, `{"comments":"x"}`, 403},
		{me, "PUT", "/servers/" + cn2.String(), `{"current_platform":"x"}`, 403},
		{me, "POST", "/changes", `{"ops":[{"action":"create","kind":"nic_tag","object":{"name":"z"}}]}`, 403},
		{me, "POST", "/networks/" + fabricA.String() + "/nics", "{}", 403},
		{me, "DELETE", "/cluster/members/s1", "", 403},
	} {
		w := b.call(c.method, c.path, c.body, asHeader, c.as)
		if w.Code != c.want {
			t.Errorf("%s: %s %s: %s, want %d", c.as, c.method, c.path, pretty(w), c.want)
		}
		if w.Code == 403 && !strings.Contains(w.Body.String(), log.CodeNotAuthorized) {
			t.Errorf("%s: %s %s: the refusal has no code: %s", c.as, c.method, c.path, pretty(w))
		}
	}
}
