package desired_test

import (
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/desired"
	"rutter/projections/internal/worldtest"
	"rutter/projections/rules"
)

// ready is how far a CN is that has everything.
func ready(log.UUID) desired.Far {
	return desired.Far{Known: true, Alive: true, Applied: 1e6, Programmed: 1e6}
}

// Each fault is made in a fabric that is well, and must be named.
func TestTrace(t *testing.T) {
	vm1, vm2 := changetest.UUID(21).String(), changetest.UUID(22).String()
	for _, c := range []struct {
		name     string
		ops      []string // what was done
		from, to string
		far      func(log.UUID) desired.Far
		verdict  string
		code     string // of a finding; "" for none that is a fault or a doubt
	}{
		{name: "well", verdict: desired.Reachable},
		{name: "well, by address", to: "10.0.0.4", verdict: desired.Reachable},
		{name: "well, by MAC", from: "00:00:00:00:02:00", to: "00:00:00:00:02:01", verdict: desired.Reachable},
		{name: "well, by mapped address", to: "::ffff:10.0.0.4", verdict: desired.Reachable},
		{name: "well, by alias", ops: []string{`update vm #21# {"alias": "web"}`}, from: "web", verdict: desired.Reachable},
		{name: "well, from an address", from: "10.0.0.3", to: "10.0.0.4", verdict: desired.Reachable},
		{name: "well, by the beginning of a MAC", to: "00:00:00:00:02:01"[:16], ops: []string{`delete nic 00:00:00:00:02:00`, `create nic {"mac": "020000000008", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "cn_uuid": "#11#", "network_uuid": "#31#"}`}, verdict: desired.Reachable},
		{name: "alias of two VMs", ops: []string{
			`update vm #22# {"alias": "web"}`, `create vm {"uuid": "#25#", "owner_uuid": "#1#", "alias": "web", "state": "running"}`,
		}, to: "web", verdict: desired.Doubtful, code: "to-ambiguous"},
		{name: "alias that is the UUID of another VM", ops: []string{`create vm {"uuid": "#25#", "owner_uuid": "#1#", "alias": "` + vm2 + `", "state": "stopped"}`}, verdict: desired.Reachable},
		{name: "address of NICs of two owners", ops: []string{
			`create nic {"mac": "020000000015", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#2#", "cn_uuid": "#12#", "network_uuid": "#32#", "ip": "10.0.0.3"}`,
		}, from: "10.0.0.3", verdict: desired.Doubtful, code: "from-ambiguous"},
		{name: "VM nobody knows", from: "nobody", verdict: desired.Unreachable, code: "from-unknown"},
		{name: "address nobody has", to: "10.0.0.77", verdict: desired.Unreachable, code: "to-unknown"},
		{name: "address of another vnet", ops: []string{`create nic {"mac": "020000000008", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#2#", "cn_uuid": "#12#", "network_uuid": "#32#"}`}, to: "10.0.0.10", verdict: desired.Unreachable, code: "to-unknown"},
		{name: "VM without a NIC", ops: []string{`delete nic 00:00:00:00:02:01`}, verdict: desired.Unreachable, code: "no-nic"},
		{name: "VM that is stopped", ops: []string{`update vm #22# {"state": "stopped"}`}, verdict: desired.Unreachable, code: "vm-not-running"},
		{name: "NIC on another vnet", ops: []string{`delete nic 00:00:00:00:02:01`, `create nic {"mac": "020000000008", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#2#", "cn_uuid": "#12#", "network_uuid": "#32#"}`}, verdict: desired.Unreachable, code: "other-vnet"},
		{name: "routed by gateways", ops: []string{
			`create network {"uuid": "#35#", "name": "more", "nic_tag": "overlay", "subnet": "10.5.0.0/24", "gateway": "10.5.0.1", "mtu": 1400, "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10}`,
			`create nic {"mac": "020000000011", "belongs_to_type": "other", "belongs_to_uuid": "#40#", "owner_uuid": "#1#", "cn_uuid": "#11#", "network_uuid": "#35#", "ip": "10.5.0.1"}`,
			`create nic {"mac": "020000000012", "belongs_to_type": "other", "belongs_to_uuid": "#40#", "owner_uuid": "#1#", "cn_uuid": "#11#", "network_uuid": "#31#", "ip": "10.0.0.1"}`,
			`delete nic 00:00:00:00:02:01`,
			`create nic {"mac": "020000000009", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "cn_uuid": "#12#", "network_uuid": "#35#"}`,
		}, verdict: desired.Routed, code: "routed"},
		{name: "gateway without a NIC", ops: []string{
			`create network {"uuid": "#35#", "name": "more", "nic_tag": "overlay", "subnet": "10.5.0.0/24", "gateway": "10.5.0.1", "mtu": 1400, "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10}`,
			`create nic {"mac": "020000000012", "belongs_to_type": "other", "belongs_to_uuid": "#40#", "owner_uuid": "#1#", "cn_uuid": "#11#", "network_uuid": "#31#", "ip": "10.0.0.1"}`,
			`delete nic 00:00:00:00:02:01`,
			`create nic {"mac": "020000000009", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "cn_uuid": "#12#", "network_uuid": "#35#"}`,
		}, verdict: desired.Unreachable, code: "gateway-nobody"},
		{name: "VM that is made", ops: []string{`update vm #22# {"state": "provisioning"}`}, verdict: desired.Doubtful, code: "vm-provisioning"},
		{name: "NIC on another CN than its VM", ops: []string{`update nic 00:00:00:00:02:01 {"cn_uuid": "#11#"}`}, verdict: desired.Unreachable, code: "nic-elsewhere"},
		{name: "VM on no CN", ops: []string{
			`create vm {"uuid": "#25#", "owner_uuid": "#1#", "state": "running"}`,
			`create nic {"mac": "020000000014", "belongs_to_type": "zone", "belongs_to_uuid": "#25#", "owner_uuid": "#1#", "cn_uuid": "#12#", "network_uuid": "#31#"}`,
		}, to: "02:00:00:00:00:14", verdict: desired.Doubtful, code: "vm-unplaced"},
		{name: "VMM on another CN", ops: []string{`create vmm {"id": "#40#", "instance_id": "#22#", "sled_id": "#11#", "state": "running", "gen": 1}`}, verdict: desired.Unreachable, code: "vmm-elsewhere"},
		{name: "VMM that ended on another CN", ops: []string{`create vmm {"id": "#40#", "instance_id": "#22#", "sled_id": "#11#", "state": "destroyed", "gen": 1}`}, verdict: desired.Reachable},
		{name: "VMM where the NIC is", ops: []string{`create vmm {"id": "#40#", "instance_id": "#22#", "sled_id": "#12#", "state": "running", "gen": 1}`}, verdict: desired.Reachable},
		{name: "VMMs on both CNs", ops: []string{
			`create vmm {"id": "#40#", "instance_id": "#22#", "sled_id": "#12#", "state": "migrating", "gen": 1}`,
			`create vmm {"id": "#41#", "instance_id": "#22#", "sled_id": "#11#", "state": "migrating", "gen": 1}`,
		}, verdict: desired.Doubtful, code: "vm-migrating"},
		{name: "NIC of no VM", ops: []string{
			`create nic {"mac": "020000000014", "belongs_to_type": "other", "belongs_to_uuid": "#40#", "owner_uuid": "#1#", "cn_uuid": "#12#", "network_uuid": "#31#"}`,
		}, to: "02:00:00:00:00:14", verdict: desired.Doubtful, code: "not-a-vm"},
		{name: "another network without a gateway, of another MTU", ops: []string{
			`create network {"uuid": "#35#", "name": "more", "nic_tag": "overlay", "subnet": "10.5.0.0/24", "mtu": 1300, "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10}`,
			`delete nic 00:00:00:00:02:01`,
			`create nic {"mac": "020000000009", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "cn_uuid": "#12#", "network_uuid": "#35#"}`,
		}, verdict: desired.Unreachable, code: "mtu-differs"},
		{name: "no underlay NIC", ops: []string{`delete nic 00:00:00:00:01:01`}, verdict: desired.Unreachable, code: "no-underlay"},
		{name: "underlay of two families", ops: []string{
			`create network {"uuid": "#36#", "name": "under6", "nic_tag": "external", "vlan_id": 5, "subnet": "fd00:5::/64"}`,
			`delete nic 00:00:00:00:01:01`,
			`create nic {"mac": "020000000013", "belongs_to_type": "server", "belongs_to_uuid": "#12#", "owner_uuid": "#1#", "network_uuid": "#36#", "underlay": true, "nic_tags_provided": ["external"]}`,
		}, verdict: desired.Unreachable, code: "underlay-family"},
		{name: "CN that is unknown", ops: []string{`update server #12# {"status": "unknown"}`}, verdict: desired.Doubtful, code: "cn-unknown"},
		{name: "CN that lags", far: func(cn log.UUID) desired.Far {
			f := ready(cn)
			if cn == changetest.UUID(12) {
				f.Programmed = 3
			}
			return f
		}, verdict: desired.Unreachable, code: "cn-lagging"},
		{name: "CN that was never heard", far: func(log.UUID) desired.Far { return desired.Far{} }, verdict: desired.Unreachable, code: "cn-silent"},
		{name: "CN whose session ended", far: func(log.UUID) desired.Far { return desired.Far{Known: true, Programmed: 1e6} }, verdict: desired.Doubtful, code: "cn-gone"},
		{name: "CN whose steps fail", far: func(log.UUID) desired.Far {
			return desired.Far{Known: true, Alive: true, Programmed: 1e6, Failing: 2}
		}, verdict: desired.Doubtful, code: "cn-failing"},
		{name: "CN whose digest differs", far: func(log.UUID) desired.Far {
			return desired.Far{Known: true, Alive: true, Programmed: 1e6, Differs: true}
		}, verdict: desired.Doubtful, code: "cn-digest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := worldtest.Settled(t, rules.Decide)
			for _, op := range append([]string{`update network #31# {"mtu": 1400}`, `update server #11# {"status": "running"}`, `update server #12# {"status": "running"}`}, c.ops...) {
				w.Must(op)
			}
			if c.from == "" {
				c.from = vm1
			}
			if c.to == "" {
				c.to = vm2
			}
			if c.far == nil {
				c.far = ready
			}
			got := desired.NewTrace(w.State, c.from, c.to)
			got.Judge(c.far)
			var codes, worrying []string
			for _, f := range got.Findings {
				codes = append(codes, f.Code)
				if f.Level != desired.Note {
					worrying = append(worrying, f.Code)
				}
			}
			if got.Verdict != c.verdict || c.code != "" && !slices.Contains(codes, c.code) || c.code == "" && len(worrying) > 0 {
				t.Errorf("%s: %s, with %v; want %s with %q\n%+v", got.Verdict, got.Summary, codes, c.verdict, c.code, got.Findings)
			}
			if c.verdict == desired.Reachable && len(got.Entries) != 6 {
				t.Errorf("%d entries, want a link, a neighbour and a forwarding entry on each side: %+v", len(got.Entries), got.Entries)
			}
			if !strings.Contains(got.Summary, c.from) {
				t.Errorf("the summary does not name %s: %s", c.from, got.Summary)
			}
		})
	}
}

// What a trace says a CN must have is what its desired links have.
func TestTraceEntriesAreDesired(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	got := desired.NewTrace(w.State, changetest.UUID(21).String(), changetest.UUID(22).String())
	for _, e := range got.Entries {
		if !e.Wanted {
			t.Errorf("CN %s must not have %s, in a fabric that is well", e.CN, e.What)
		}
		text := text(desired.Of(w.State, e.CN))
		mac := got.To.NIC
		if e.CN == got.To.CN {
			mac = got.From.NIC
		}
		if !strings.Contains(text, mac.String()) {
			t.Errorf("%s is in no desired link of %s:\n%s", e.What, e.CN, text)
		}
	}
}
