package nodes

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/feed"
	"rutter/projections/desired"
)

// A node that answers what it likes fills no memory, writes nothing to a terminal, and
// cannot speak of another's NIC.
func TestHostileView(t *testing.T) {
	cn, nic := log.UUID{15: 1}, log.MAC{2, 5: 1}
	long := strings.Repeat("x", 10_000)
	v := desired.KernelView{NIC: nic, Namespace: "\x1b[2J" + long, Drops: map[string]uint64{}, Security: desired.KernelSecurity{Mode: long, Why: "\x1b[31m", Rules: &desired.KernelRules{Port: long}}}
	for range 1000 {
		v.Links = append(v.Links, desired.KernelLink{Name: "\x07" + long[:20]})
		v.Addresses = append(v.Addresses, netip.MustParsePrefix("10.0.0.1/8"))
		v.Unknown = append(v.Unknown, "\r"+long[:20])
		v.Security.Rules.Addresses = append(v.Security.Rules.Addresses, netip.MustParseAddr("10.0.0.1"))
		v.Security.Rules.Relaxed = append(v.Security.Rules.Relaxed, "\n\x1b")
		v.Drops[string(rune('a'+len(v.Links)%26))+strings.Repeat("\x1b", len(v.Links))] = 1
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	got, err := viewOf(cn, nic, &feed.Response{Status: 200, Body: text})
	if err != nil {
		t.Fatal(err)
	}
	text, err = json.Marshal(got)
	if err != nil || len(text) > 64<<10 || strings.Contains(string(text), `\u001b`) || strings.Contains(string(text), `\u0007`) {
		t.Errorf("%v: %d bytes: %.2000s", err, len(text), text)
	}
	for name, c := range map[string]struct {
		nic    log.MAC
		answer feed.Response
		want   string
	}{
		"another NIC":  {log.MAC{2, 5: 2}, feed.Response{Status: 200, Body: text}, "answers about another NIC"},
		"no JSON":      {nic, feed.Response{Status: 200, Body: []byte("<html>")}, "no view of a kernel"},
		"no body":      {nic, feed.Response{Status: 501}, "upgrade it"},
		"not here":     {nic, feed.Response{Status: 501, Body: []byte(`{"message":"it has\u001b[2J no kernel"}`)}, "it has?[2J no kernel"},
		"older":        {nic, feed.Response{Status: 404, Body: []byte("404 page not found\n")}, "upgrade it"},
		"redirections": {nic, feed.Response{Status: 302}, "status 302"},
	} {
		if _, err := viewOf(cn, c.nic, &c.answer); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
