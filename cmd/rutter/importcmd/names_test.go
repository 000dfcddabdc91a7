package importcmd

import (
	"encoding/json"
	"strings"
	"testing"

	"rutter/log"
	"rutter/projections"
)

// TestDuplicateNames: of networks with one name the one that is here, or the one with the
// lowest UUID, is brought over; the others are named with what is wrong and what to do, and
// so is what lies on them. Of fabrics each owner has names of its own.
func TestDuplicateNames(t *testing.T) {
	network := func(uuid, name, subnet, more string) string {
		start := strings.TrimSuffix(subnet, "0/24")
		return `{"uuid": "` + uuid + `", "name": "` + name + `", "family": "ipv4", "vlan_id": 0, "nic_tag": "sdc_overlay", "subnet": "` + subnet + `",
			"provision_start_ip": "` + start + `5", "provision_end_ip": "` + start + `250", "resolvers": [], "mtu": 1400` + more + `}`
	}
	fabric := func(owner, vnet string) string {
		return `, "fabric": true, "owner_uuids": ["` + owner + `"], "vnet_id": ` + vnet
	}
	other := strings.Replace(netU, "2013", "2020", 1)
	files := []string{"nic_tags.json", tags, "networks.json", "[" + strings.Join([]string{
		network(netB, "admin", "10.2.0.0/24", ""), network(netA, "admin", "10.1.0.0/24", ""),
		network(netU, "admin", "10.3.0.0/24", fabric(anOwner, "7")), network(other, "admin", "10.4.0.0/24", fabric(admin, "8")),
	}, ",") + "]", "nics.json", `{"mac": "90:b8:d0:00:00:01", "belongs_to_type": "zone", "belongs_to_uuid": "` + aVM + `", "owner_uuid": "` + admin + `",
		"primary": false, "state": "running", "ip": "10.2.0.7", "network_uuid": "` + netB + `"}`}
	p := makePlan(read(t, files...), projections.NewState(), 0)
	if got := p.tallies[log.KindNetwork]; got.Create != 3 || got.Refuse != 1 {
		t.Errorf("of four networks %+v", got)
	}
	named := false
	for _, problem := range p.problems {
		named = named || problem.ID == netB && problem.Left && problem.Field == "name" &&
			problem.Message == "name is in use by another network: network "+netA+" has it" && problem.Remedy == "rename one of them in NAPI, and run again"
	}
	if !named || p.tallies[log.KindNIC].Refuse != 1 {
		t.Errorf("the second is not named, or its NIC is taken: %+v, %+v", p.problems, p.tallies[log.KindNIC])
	}
	// One that is here keeps its name, whatever its UUID.
	state := carried(t, makePlan(read(t, "nic_tags.json", tags, "networks.json", network(netB, "admin", "10.2.0.0/24", "")), projections.NewState(), 0), projections.NewState(), inOrder)
	if p := makePlan(read(t, files...), state, 1<<40); p.tallies[log.KindNetwork].Leave != 1 || p.state.Network(uuidOf(t, netA)) != nil {
		t.Errorf("with one here: %+v", p.tallies[log.KindNetwork])
	}
	// Renamed at the source, all come over.
	for i := range files {
		files[i] = strings.Replace(files[i], `"name": "admin"`, `"name": "second"`, 1)
	}
	if p := makePlan(read(t, files...), projections.NewState(), 0); len(p.problems) > 0 {
		t.Errorf("renamed: %+v", p.problems)
	}
}

// TestGatewayOfImports: gateway_provisioned follows from the NICs that come over. Where NAPI
// says otherwise it is named, and a second import finds nothing to do.
func TestGatewayOfImports(t *testing.T) {
	for _, c := range []struct {
		says, nic, want bool
	}{{false, false, false}, {true, true, true}, {true, false, false}, {false, true, true}} {
		files := append([]string(nil), everything...)
		for i := range files {
			if c.says {
				files[i] = strings.Replace(files[i], `"gateway_provisioned": false`, `"gateway_provisioned": true`, 1)
			}
			if c.nic {
				files[i] = strings.Replace(files[i], `"ip": "10.1.0.7", "network_uuid": "`+netA+`",
		"nic_tag"`, `"ip": "10.1.0.1", "network_uuid": "`+netA+`", "nic_tag"`, 1)
				files[i] = strings.Replace(files[i], `{"ip": "10.1.0.7", "network_uuid": "`+netA+`", "reserved": true, "free": false, "belongs_to_type": "zone"`, `{"ip": "10.1.0.77", "network_uuid": "`+netA+`", "reserved": true, "free": false, "belongs_to_type": "zone"`, 1)
			}
		}
		p := makePlan(read(t, files...), projections.NewState(), 0)
		named := 0
		for _, problem := range p.problems {
			if problem.Field == gatewayField && problem.ID == netA && !problem.Left {
				named++
			}
		}
		if want := map[bool]int{true: 1}[c.says != c.want]; named != want {
			t.Errorf("%+v: named %d times, want %d: %+v", c, named, want, p.problems)
		}
		state := carried(t, p, projections.NewState(), inOrder)
		if got := state.Network(uuidOf(t, netA)).GatewayProvisioned; got != c.want {
			t.Errorf("%+v: gateway_provisioned is %t", c, got)
		}
		for _, s := range makePlan(read(t, files...), state, 1<<40).steps {
			if s.op.Kind == log.KindNetwork {
				t.Errorf("%+v: the second time: %s", c, formOf(s).line())
			}
		}
	}
}

// TestNetworkUnderFabrics: NAPI shows a fabric network's one owner as owner_uuid under
// /fabrics, and in a list elsewhere: both are the same value.
func TestNetworkUnderFabrics(t *testing.T) {
	in := newInstallation()
	for _, owner := range []string{`"owner_uuids": ["` + anOwner + `"]`, `"owner_uuid": "` + anOwner + `"`} {
		var theirs map[string]json.RawMessage
		text := `{"uuid": "` + netA + `", "name": "a", "family": "ipv4", "vlan_id": 4, "nic_tag": "sdc_overlay", "subnet": "10.1.0.0/24",
			"provision_start_ip": "10.1.0.5", "provision_end_ip": "10.1.0.250", "fabric": true, "vnet_id": 7, ` + owner + `}`
		if err := json.Unmarshal([]byte(text), &theirs); err != nil {
			t.Fatal(err)
		}
		r, bad := in.readObject(log.KindNetwork, theirs, "NAPI")
		if bad != nil {
			t.Fatal(bad)
		}
		in.add(r)
	}
	if in.count != 1 || len(in.problems) != 0 {
		t.Errorf("%d objects, %+v", in.count, in.problems)
	}
}
