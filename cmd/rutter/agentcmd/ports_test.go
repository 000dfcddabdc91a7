package agentcmd

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"rutter/agent/filter"
	"rutter/agent/ports"
	"rutter/log"
	"rutter/projections/desired"
)

func TestSecurityTexts(t *testing.T) {
	s := ports.Status{Mode: ports.Mode{Mode: desired.SecurityEnforced, Since: time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC)}, Underlay: map[filter.Reason]filter.Count{filter.ReasonPeer: {Packets: 4}}}
	for i := range 14 {
		s.Ports = append(s.Ports, ports.Port{
			NIC: log.MAC{2, 5: byte(i)}, Alias: fmt.Sprintf("vm%d", i), Name: fmt.Sprintf("port%d", i), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})},
			Drops: ports.Drops{},
		})
		if i > 0 {
			s.Ports[i].Drops = ports.Drops{filter.ReasonIP: {Packets: uint64(i)}, filter.ReasonDHCPServer: {Packets: 100}}
		}
	}
	s.Ports[0].Relaxed = []string{"allow_ip_spoofing"}
	var status, few, all strings.Builder
	writeSecurity(&status, &s)
	writePorts(&few, &s, 2)
	writePorts(&all, &s, 0)
	for _, want := range []string{
		"port security enforced since 2026-11-22T01:02:03Z, 14 ports\n", "dropped       at 02:00:00:00:00:0d (vm13): dhcp 100, ip 13\n",
		"and at 3 more ports (rutter agent ports)\n", "at the underlay: peer 4\n",
	} {
		if !strings.Contains(status.String(), want) {
			t.Errorf("status lacks %q:\n%s", want, status.String())
		}
	}
	if n := strings.Count(status.String(), "(vm"); n != dropsShown {
		t.Errorf("status names %d ports:\n%s", n, status.String())
	}
	if text := few.String(); strings.Count(text, "port1") != 2 || !strings.HasSuffix(text, "and 12 more (--limit 0 shows all)\n") {
		t.Errorf("two ports:\n%s", text)
	}
	if text := all.String(); strings.Count(text, "\n") != 2+14 || !strings.Contains(text, "10.0.0.0 allow_ip_spoofing") {
		t.Errorf("all ports:\n%s", text)
	}
	for want, s := range map[string]ports.Status{
		"port security off\n": {},
		"port security unsupported: no nf_tables (no link of a VM is brought up)\n":     {Mode: ports.Mode{Mode: desired.SecurityUnsupported, Why: "no nf_tables", Required: true}},
		"port security enforced, 0 ports\n              it cannot be read: no answer\n": {Mode: ports.Mode{Mode: desired.SecurityEnforced}, Failure: "no answer"},
	} {
		var out strings.Builder
		if writeSecurity(&out, &s); out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}
