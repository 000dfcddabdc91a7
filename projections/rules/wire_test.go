package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/internal/worldtest"
)

// allowed returns n addresses in text, as a list of JSON.
func allowed(n int) string {
	list := make([]string, n)
	for i := range n {
		list[i] = fmt.Sprintf(`"10.0.0.%d"`, 100+i)
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func TestWireFields(t *testing.T) {
	const zoned = `"belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#"`
	for _, c := range []struct{ op, want string }{
		{`update network #31# {"dhcp": true, "broadcast": true}`, ``},
		{`update network #30# {"dhcp": true}`, `dhcp: only fabric networks have it: the wire of another network is not the nodes' (leave it out; `},
		{`update network #30# {"broadcast": true}`, `broadcast: only fabric networks have it`},
		{`update network #30# {"broadcast": false, "dhcp": false}`, ``},
		{`create network {"name": "n", "nic_tag": "external", "subnet": "10.7.0.0/24", "dhcp": true}`, `dhcp: only fabric networks have it`},
		{`create network {"name": "n", "nic_tag": "overlay", "subnet": "10.7.0.0/24", "owner_uuids": ["#1#"], "fabric": true, "broadcast": true, "dhcp": true}`, ``},
		{`update nic 00:00:00:00:02:00 {"allowed_ips": ` + allowed(log.MaxAllowedIPs) + `}`, ``},
		{`update nic 00:00:00:00:02:00 {"allowed_ips": ` + allowed(log.MaxAllowedIPs+1) + `}`, `allowed_ips: there are 17 addresses (name at most 16, or send allow_ip_spoofing: true)`},
		{`update nic 00:00:00:00:02:00 {"allowed_ips": ["fd00::1"]}`, `allowed_ips: fd00::1 is not of the network's family (ipv4)`},
		{`update nic 00:00:00:00:02:00 {"allowed_ips": ["224.0.0.1"]}`, `allowed_ips: 224.0.0.1 is not the unicast address of a host`},
		{`update nic 00:00:00:00:02:00 {"allowed_ips": ["0.0.0.0"]}`, `allowed_ips: 0.0.0.0 is not`},
		{`update nic 00:00:00:00:02:00 {"allowed_ips": ["255.255.255.255"]}`, `allowed_ips: 255.255.255.255 is not`},
		{`update nic 00:00:00:00:02:00 {"allowed_ips": ["172.16.0.9"]}`, ``}, // routed to the VM
		{`create nic {` + zoned + `, "network_uuid": "#31#", "allowed_ips": ["10.0.0.100"]}`, ``},
		{`create nic {` + zoned + `, "allowed_ips": ["10.0.0.100"]}`, `allowed_ips: only NICs of VMs on fabric networks have it`},
		{`update nic 00:00:00:00:01:00 {"allowed_ips": ["10.0.0.100"]}`, `allowed_ips: only NICs of VMs on fabric networks have it`},
		{`update nic 00:00:00:00:02:00 {"allowed_ips": []}`, ``},
	} {
		w := worldtest.Settled(t, Decide)
		r := w.Try(w.Change(changetest.Op(t, c.op))).Refusal
		switch {
		case c.want == "" && r != nil:
			t.Errorf("%s: %v", c.op, r)
		case c.want != "" && (r == nil || !strings.Contains(r.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.op, r, c.want)
		}
	}
}

// TestAllowedIPsHaveOneForm: they are stored sorted, each once, and IPv4 as IPv4; a NIC
// does not take them to a network of another family.
func TestAllowedIPsHaveOneForm(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	w.Must(`create network {"uuid": "#35#", "name": "six", "nic_tag": "overlay", "subnet": "fd00:5::/64", "owner_uuids": ["#1#"], "fabric": true}`)
	nic := func() *log.NIC {
		r, _ := w.State.Get(log.KindNIC, "00:00:00:00:02:00")
		return r.Object.(*log.NIC)
	}
	w.Must(`update nic 00:00:00:00:02:00 {"allowed_ips": ["10.0.0.102", "::ffff:10.0.0.101", "10.0.0.102"]}`)
	if want := []netip.Addr{netip.MustParseAddr("10.0.0.101"), netip.MustParseAddr("10.0.0.102")}; !slices.Equal(nic().AllowedIPs, want) {
		t.Errorf("stored %v, want %v", nic().AllowedIPs, want)
	}
	n := len(w.Events)
	if w.Must(`update nic 00:00:00:00:02:00 {"allowed_ips": ["10.0.0.102", "10.0.0.101"]}`); len(w.Events) > n {
		t.Error("the same in another order is a change")
	}
	move := changetest.Op(t, `update nic 00:00:00:00:02:00 {"network_uuid": "#35#"}`)
	if r := w.Try(w.Change(move)).Refusal; r == nil || !strings.Contains(r.Error(), "is not of the network's family (ipv6)") {
		t.Errorf("to a network of the other family: %v", r)
	}
	w.Must(`update nic 00:00:00:00:02:00 {"network_uuid": "#35#", "allowed_ips": ["fd00:5::99"]}`)
	if w.Must(`update nic 00:00:00:00:02:00 {"allowed_ips": []}`); nic().AllowedIPs != nil {
		t.Errorf("cleared, it has %v", nic().AllowedIPs)
	}
}

// TestNodeDoesNotWidenWhatItsVMsAre: which further addresses a NIC may send from, and what
// a network asks of all its nodes, a compute node does not say, also not of what is its own.
func TestNodeDoesNotWidenWhatItsVMsAre(t *testing.T) {
	for feature := uint32(log.FeatureFirst); feature <= log.FeatureVersion; feature++ {
		w := worldtest.Settled(t, Decide)
		w.State.SetFeature(feature)
		for _, text := range []string{
			`update nic 00:00:00:00:02:00 {"allowed_ips": ["10.0.0.100"]}`,
			`create nic {"mac": "02:00:00:00:00:01", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "cn_uuid": "#11#", "network_uuid": "#31#", "allowed_ips": ["10.0.0.100"]}`,
			`update network #31# {"broadcast": true}`,
			`update network #31# {"dhcp": true}`,
		} {
			c := w.Change(changetest.Op(t, text))
			c.By = log.Author{Role: log.RoleCN, CN: changetest.UUID(11)}
			if w.Try(c).Refusal == nil {
				t.Errorf("version %d: %s: accepted from a compute node", feature, text)
			}
		}
	}
}

// TestWireBeforeFeatureWire: below version 5 nothing has the fields, and what a program of
// that version stores unread is neither looked at nor altered.
func TestWireBeforeFeatureWire(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	w.State.SetFeature(log.FeaturePerNode)
	for op, want := range map[string]string{
		`update network #31# {"dhcp": true}`:                            `network has no field "dhcp"`,
		`update network #31# {"self_provision": "any", "broadcast": 1}`: `network has no field "broadcast"`,
		`update nic 00:00:00:00:02:00 {"allowed_ips": []}`:              `nic has no field "allowed_ips"`,
	} {
		o := changetest.Op(t, strings.ReplaceAll(op, `"broadcast": 1`, `"broadcast": true`))
		if r := w.Try(w.Change(o)).Refusal; r == nil || !strings.Contains(r.Error(), want) {
			t.Errorf("%s: %v, want %s", op, r, want)
		}
	}
	w.Must(`update network #31# {"self_provision": "any"}`)
	// Of a new object they do not know what it may not have, and keep it as it is.
	w.Must(`create nic {"mac": "02:00:00:00:00:01", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "#31#", "allowed_ips": ["fd00::2", "fd00::1"]}`,
		`create network {"uuid": "#39#", "name": "n", "nic_tag": "external", "subnet": "10.7.0.0/24", "broadcast": true}`)
	r, _ := w.State.Get(log.KindNIC, "02:00:00:00:00:01")
	if got := fmt.Sprint(r.Object.(*log.NIC).AllowedIPs); got != "[fd00::2 fd00::1]" {
		t.Errorf("stored %s", got)
	}
	// Then the version rises: other changes of these objects go on.
	w.State.SetFeature(log.FeatureWire)
	w.Must(`update nic 02:00:00:00:00:01 {"state": "running"}`)
	w.Must(`update network #39# {"description": "d"}`)
	w.Must(`update network #39# {"broadcast": false}`)
	w.Must(`update nic 02:00:00:00:00:01 {"allowed_ips": []}`)
}
