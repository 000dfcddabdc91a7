package vmrule

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"rutter/log"
)

var (
	network = log.UUID{1}
	mac     = log.MAC{0x90, 0xb8, 0xd0, 1, 2, 3}
	vm      = VM{
		Network: func(m log.MAC) (log.UUID, netip.Prefix, bool) {
			return network, netip.MustParsePrefix("10.0.0.0/24"), m == mac
		},
		Networks: []log.UUID{network},
	}
)

// TestRefused: each field that is a network's is refused by its name, and the
// network to update instead is named (spec/vmapi-rule.md).
func TestRefused(t *testing.T) {
	nic := func(rest string) string { return `{"nics":[{"mac":"90:b8:d0:01:02:03",` + rest + `}]}` }
	for _, c := range []struct{ body, field, message string }{
		{nic(`"netmask":"255.255.0.0"`), "nics.0.netmask", "PUT /networks/" + network.String()},
		{nic(`"gateways":["10.0.0.1"]`), "nics.0.gateways", "PUT /networks/" + network.String()},
		{nic(`"gateway":"10.0.0.1"`), "nics.0.gateway", "PUT /networks/" + network.String()},
		{nic(`"vlan_id":7`), "nics.0.vlan_id", "PUT /networks/" + network.String()},
		{nic(`"nic_tag":"other"`), "nics.0.nic_tag", "PUT /networks/" + network.String()},
		{`{"update_nics":[{"mac":"90:b8:d0:01:02:03","vlan_id":7}]}`, "update_nics.0.vlan_id", "PUT /networks/" + network.String()},
		{`{"resolvers":["8.8.8.8"]}`, "resolvers", "PUT /networks/" + network.String()},
		{`{"routes":{"10.2.0.0/16":"10.0.0.3"}}`, "routes", "PUT /networks/" + network.String()},
		{`{"set_routes":{}}`, "set_routes", "PUT /networks/"},
		{nic(`"model":"e1000"`), "nics.0.model", "'model' is not a valid property to update"},
		{nic(`"ips":["10.0.0.7/16"]`), "nics.0.ips", "10.0.0.0/24"},
		{nic(`"ips":["10.0.0.7/24","10.0.0.8/24"]`), "nics.0.ips", "one address"},
		{nic(`"ips":"dhcp"`), "nics.0.ips", "one address"},
		{nic(`"ips":["dhcp"]`), "nics.0.ips", "no address"},
		{nic(`"ip":"10.0.0.7","ips":["10.0.0.8"]`), "nics.0.ips", "different addresses"},
		{nic(`"primary":"maybe"`), "nics.0.primary", "true or false"},
		{`{"nics":[{"mac":"90:b8:d0:01:02:04"}]}`, "nics.0.mac", "no NIC"},
		{`{"nics":[{"primary":true}]}`, "nics.0.mac", "by its MAC"},
		{`{"nics":{}}`, "nics", "list"},
		{`[]`, FieldBody, "JSON object"},
		{`null`, FieldBody, "JSON object"},
	} {
		_, err := Check([]byte(c.body), vm)
		var r *log.Refusal
		if !errors.As(err, &r) || r.Code != Code || len(r.Errors) != 1 || r.Errors[0].Field != c.field || r.Errors[0].Code != ElementInvalid || !strings.Contains(r.Errors[0].Message, c.message) {
			t.Errorf("%s: got %+v, want %s: … %s", c.body, err, c.field, c.message)
		}
	}
	_, err := Check([]byte(`{"resolvers":[],"routes":{},"nics":[{"mac":"90:b8:d0:01:02:03","netmask":"","vlan_id":1}]}`), vm)
	var r *log.Refusal
	if !errors.As(err, &r) || len(r.Errors) != 4 {
		t.Errorf("four fields: got %+v, want one element for each", err)
	}
}

// TestAllowed: what is a NIC's own, and the VM's.
func TestAllowed(t *testing.T) {
	u, err := Check([]byte(`{"alias":"web0","quota":10,"nics":[{"mac":"90:b8:d0:01:02:03","ips":["10.0.0.7/24"],"ip":"10.0.0.7","allow_ip_spoofing":true,"primary":true,"interface":"net0"}]}`), vm)
	if err != nil || len(u.NICs) != 1 || len(u.Rest) != 2 {
		t.Fatalf("got %+v, %v", u, err)
	}
	nic := u.NICs[0]
	if fmt.Sprint(nic.Set) != "[allow_ip_spoofing ip primary]" || nic.Fields.IP.String() != "10.0.0.7" || !nic.Fields.AllowIPSpoofing || !nic.Fields.Primary || nic.MAC != mac {
		t.Errorf("got %+v", nic)
	}
}

// FuzzCheck: each input is accepted or refused, without a panic.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(`{"nics":[{"mac":"90:b8:d0:01:02:03","ips":["10.0.0.7/24"]}],"alias":null}`))
	f.Add([]byte(`{"update_nics":[null],"resolvers":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if u, err := Check(body, vm); err == nil {
			for _, nic := range u.NICs {
				if nic.MAC != mac {
					t.Errorf("a NIC that is not the VM's was accepted: %+v", nic)
				}
			}
		}
	})
}
