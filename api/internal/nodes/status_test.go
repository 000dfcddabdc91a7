package nodes

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"rutter/api/liveness"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections/desired"
)

// A node that says of itself what it likes fills no memory, writes nothing to a terminal,
// and cannot speak as another node.
func TestHostileReport(t *testing.T) {
	cn := log.UUID{15: 1}
	long := "\x1b[2J" + strings.Repeat("x", 10_000)
	r := desired.NodeReport{CN: cn, Version: long, State: long, Objects: map[string]int{}, Underlay: map[string]uint64{}}
	for i := range 1000 {
		r.Trouble = append(r.Trouble, long[:300])
		r.Kernel.Drift = append(r.Kernel.Drift, "\r"+long[:300])
		r.Objects[strings.Repeat("\x07", i)] = i
		r.Underlay[strings.Repeat("y", i)] = 1
		r.Ports = append(r.Ports, desired.NodePort{Alias: "\x1b]0;" + long[:20], Addresses: make([]string, 100), Relaxed: []string{"\n"}})
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := reportFrom(cn, &feed.Response{Status: 200, Body: text})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Ports) != desired.MaxReportPorts || len(got.Ports[0].Addresses) != desired.MaxReportLines || len(got.Trouble) != desired.MaxReportLines || len(got.Objects) > desired.MaxReportKinds {
		t.Errorf("%d ports, %d addresses, %d lines, %d kinds", len(got.Ports), len(got.Ports[0].Addresses), len(got.Trouble), len(got.Objects))
	}
	text, err = json.Marshal(got)
	if err != nil || len(text) > 256<<10 || strings.Contains(string(text), `\u001b`) || strings.Contains(string(text), `\u0007`) {
		t.Errorf("%v: %d bytes: %.2000s", err, len(text), text)
	}
	for name, c := range map[string]struct {
		cn     log.UUID
		answer feed.Response
		want   string
	}{
		"another node": {log.UUID{15: 2}, feed.Response{Status: 200, Body: text}, "answers as another CN"},
		"no JSON":      {cn, feed.Response{Status: 200, Body: []byte("<html>")}, "no report"},
		"older":        {cn, feed.Response{Status: 501}, "upgrade it"},
		"refuses":      {cn, feed.Response{Status: 503, Body: []byte(`{"message":"later\u001b[2J"}`)}, "later?[2J"},
	} {
		if _, err := reportFrom(c.cn, &c.answer); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Each link of a vnet is in one state, and a compute node in that of its worst.
func TestLinkStates(t *testing.T) {
	under := netip.MustParseAddr("172.16.0.2")
	nics := []*log.NIC{{MAC: log.MAC{5: 1}}, {MAC: log.MAC{5: 2}}, {MAC: log.MAC{5: 3}}}
	idle := liveness.Waiting{NIC: &nics[1].MAC, Idle: true}
	fails := liveness.Waiting{NIC: &nics[1].MAC}
	for name, c := range map[string]struct {
		session  *Session
		underlay netip.Addr
		want     LinkStates
		state    string
	}{
		"no session":         {nil, under, LinkStates{Unknown: 3}, vnetUnknown},
		"ended":              {&Session{Gone: true, Programmed: 30}, under, LinkStates{Unknown: 3}, vnetUnknown},
		"all there":          {&Session{Programmed: 30}, under, LinkStates{Programmed: 3}, vnetProgrammed},
		"newest not there":   {&Session{Programmed: 20}, under, LinkStates{Programmed: 2, Behind: 1}, vnetBehind},
		"one fails":          {&Session{Programmed: 5, Reached: 30, Waits: []liveness.Waiting{fails}}, under, LinkStates{Programmed: 2, Failing: 1}, vnetFailing},
		"one VM not to run":  {&Session{Programmed: 5, Reached: 30, Waits: []liveness.Waiting{idle}}, under, LinkStates{Programmed: 2, Idle: 1}, vnetProgrammed},
		"no underlay":        {&Session{Programmed: 30}, netip.Addr{}, LinkStates{Programmed: 3}, vnetFailing},
		"more wait than say": {&Session{Programmed: 30, Waiting: 40, Waits: []liveness.Waiting{fails}}, under, LinkStates{Programmed: 2, Failing: 1}, vnetFailing},
	} {
		cn := &VNetCN{Listed: true, networks: map[log.UUID]bool{}, nic: map[log.MAC]bool{}, Underlay: c.underlay}
		cn.seenBy(c.session)
		for i, nic := range nics {
			cn.count(nic, log.Seq(10*(i+1)))
		}
		cn.judge()
		if cn.Links != c.want || cn.State != c.state || cn.Listed != (name != "more wait than say") {
			t.Errorf("%s: %+v, %s, %v; want %+v, %s", name, cn.Links, cn.State, cn.Listed, c.want, c.state)
		}
	}
}
