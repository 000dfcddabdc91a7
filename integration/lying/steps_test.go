package lying

import (
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
)

// TestStepsOfAttacks: each attack that was made on a real cluster, and what follows from
// it, by name. All steps but the operator's are the lying CN's.
func TestStepsOfAttacks(t *testing.T) {
	for _, attack := range []struct {
		name  string
		steps []string // an operator's begin with a !
	}{
		{"the NIC of a VM that is not in the log yet", []string{
			`create vm {"uuid": "#41#", "owner_uuid": "#2#", "server_uuid": "#11#", "state": "running"}`,
			`update nic 02:00:00:00:00:31 {"cn_uuid": "#11#"}`,
		}},
		{"the NIC of a VM that is not in the log yet, in one change", []string{
			`create vm {"uuid": "#41#", "owner_uuid": "#2#", "server_uuid": "#11#", "state": "running"}; update nic 02:00:00:00:00:31 {"cn_uuid": "#11#"}`,
		}},
		{"an imported NIC that nobody placed", []string{
			`create vm {"uuid": "#42#", "owner_uuid": "#2#", "server_uuid": "#11#", "state": "running"}`,
			`update nic 02:00:00:00:00:32 {"cn_uuid": "#11#"}`,
		}},
		{"an imported NIC that nobody placed, without its VM", []string{`update nic 02:00:00:00:00:32 {"cn_uuid": "#11#"}`}},
		{"blind, with VM uuid and MAC", []string{
			`!create nic {"mac": "02:00:00:00:00:40", "belongs_to_type": "zone", "belongs_to_uuid": "#46#", "owner_uuid": "#2#", "network_uuid": "#36#", "cn_uuid": "#14#"}`,
			`create vm {"uuid": "#46#", "owner_uuid": "#2#", "server_uuid": "#11#", "state": "running"}`,
			`update nic 02:00:00:00:00:40 {"cn_uuid": "#11#", "primary": true}`,
		}},
		{"a VM that nobody placed", []string{`update vm #27# {"server_uuid": "#11#"}`, `create vmm {"id": "#55#", "instance_id": "#27#", "sled_id": "#11#", "state": "running", "gen": 1}`, `update vm #27# {"server_uuid": "#11#"}`}},
		{"a VMM registered before its VM captures the VM", []string{
			`create vmm {"id": "#55#", "instance_id": "#46#", "sled_id": "#11#", "state": "running", "gen": 1}`,
			`!create vm {"uuid": "#46#", "owner_uuid": "#2#", "server_uuid": "#14#", "state": "running"}`,
			`!create nic {"mac": "02:00:00:00:00:40", "belongs_to_type": "zone", "belongs_to_uuid": "#46#", "owner_uuid": "#2#", "network_uuid": "#36#"}`,
			`update vm #46# {"server_uuid": "#11#"}`,
			`update nic 02:00:00:00:00:40 {"cn_uuid": "#11#"}`,
		}},
		{"a VMM that has ended comes back", []string{
			`!create vmm {"id": "#55#", "instance_id": "#24#", "sled_id": "#11#", "state": "migrating", "gen": 1}`,
			`update vmm #55# {"state": "destroyed", "gen": 2}`,
			`update vmm #55# {"state": "running", "gen": 3}`,
			`update vm #24# {"server_uuid": "#11#"}`,
		}},
		{"a VM that an operator took away is taken back", []string{
			`!update vm #21# {"server_uuid": "#13#"}`,
			`!update nic 02:00:00:00:00:21 {"cn_uuid": "#13#"}`,
			`update vm #21# {"server_uuid": "#11#"}`,
			`update nic 02:00:00:00:00:21 {"cn_uuid": "#11#"}`,
		}},
		{"an MTU and paths that would narrow others' networks", []string{
			`!create setting {"name": "fabric.mtu", "value": "clamp"}`,
			`update server #11# {"underlay_mtu": 576, "underlay_paths": ["192.168.0.2 576", "192.168.0.3 576"]}`,
			`!create network {"uuid": "#38#", "name": "b3", "nic_tag": "overlay", "vlan_id": 4, "subnet": "10.0.4.0/24", "owner_uuids": ["#2#"], "fabric": true, "vnet_id": 20, "mtu": 1400}`,
			`update server #11# {"vxlan_port": 4790}`,
			`update server #12# {"underlay_mtu": 576}`,
			`update nic 02:00:00:00:00:02 {"underlay_mtu": 576}`,
		}},
		{"the gateway's address", []string{
			`create nic {"mac": "02:00:00:00:00:40", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "#34#", "cn_uuid": "#11#", "ip": "10.0.0.1"}`,
			`update nic 02:00:00:00:00:21 {"ip": "10.0.0.1"}`,
		}},
		{"the admin network's gateway", []string{
			`create nic {"mac": "02:00:00:00:00:40", "belongs_to_type": "server", "belongs_to_uuid": "#11#", "owner_uuid": "#3#", "network_uuid": "#30#", "ip": "10.99.99.1"}`,
			`update nic 02:00:00:00:00:11 {"ip": "10.99.99.1"}`,
		}},
		{"a resolver's address", []string{
			`create nic {"mac": "02:00:00:00:00:40", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "#34#", "cn_uuid": "#11#", "ip": "10.0.0.2"}`,
		}},
		{"a reserved address", []string{
			`create nic {"mac": "02:00:00:00:00:40", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "#34#", "cn_uuid": "#11#", "ip": "10.0.0.50"}`,
		}},
		{"an address out of the range", []string{
			`create nic {"mac": "02:00:00:00:00:40", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "#34#", "cn_uuid": "#11#", "ip": "10.0.0.250"}`,
		}},
		{"another network of its vnet", []string{
			`create nic {"mac": "02:00:00:00:00:40", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "#35#", "cn_uuid": "#11#"}`,
		}},
		{"a NIC create tells whether a network exists", []string{
			`create nic {"mac": "02:00:00:00:00:40", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "#36#", "cn_uuid": "#11#"}`,
		}},
		{"a NIC create tells a network's subnet", []string{
			`create nic {"mac": "02:00:00:00:00:40", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "#33#", "cn_uuid": "#11#", "ip": "192.0.2.1"}`,
		}},
		{"a NIC create tells a network by tag, VLAN and address", []string{
			`create nic {"mac": "02:00:00:00:00:40", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#2#", "nic_tag": "overlay/20", "vlan_id": 2, "cn_uuid": "#11#", "ip": "10.0.2.9"}`,
		}},
		{"a NIC create tells whether a MAC is in use", []string{
			`create nic {"mac": "02:00:00:00:00:25", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#2#", "network_uuid": "#38#", "cn_uuid": "#11#"}`,
		}},
		{"a VMM create tells whether a VM exists", []string{`create vmm {"id": "#55#", "instance_id": "#25#", "sled_id": "#11#", "state": "running", "gen": 1}`}},
		{"an aggregation tells whether a NIC exists", []string{`create aggregation {"name": "aggr1", "macs": ["02:00:00:00:00:25"]}`, `create aggregation {"name": "aggr1", "macs": ["02:00:00:00:00:03"]}`}},
	} {
		t.Run(attack.name, func(t *testing.T) {
			var steps []step
			for _, text := range attack.steps {
				s := step{party: lies, cn: liar}
				if text[0] == '!' {
					s, text = step{}, text[1:]
				}
				s.ops = parse(t, text)
				steps = append(steps, s)
			}
			if b, at := run(t, steps); b != nil {
				t.Errorf("step %d: %s: %s", at, b.sort, short(b.what))
			}
			if b, _ := runAt(t, log.FeatureContained, steps); b == nil && !neverWorked[attack.name] {
				t.Error("the model finds nothing in what the rules of before accepted")
			}
		})
	}
}

// neverWorked are attacks that the rules of before refused too; that a MAC is taken, a
// node learns of its own new NIC.
var neverWorked = map[string]bool{
	"an MTU and paths that would narrow others' networks": true, // there were no such fields
	"an imported NIC that nobody placed, without its VM":  true,
	"a NIC create tells whether a MAC is in use":          true,
}

// parse reads operations, divided by ;.
func parse(t *testing.T, text string) (ops []log.Op) {
	for one := range strings.SplitSeq(text, "; ") {
		ops = append(ops, changetest.Op(t, one))
	}
	return ops
}
