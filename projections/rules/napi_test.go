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

// TestAsNAPITakesIt: what NAPI takes and refuses is taken and refused from feature version 6
// on; before, all is as programs of before decide it.
func TestAsNAPITakesIt(t *testing.T) {
	long, longest := strings.Repeat("d", maxDescription+1), strings.Repeat("é", maxDescription)
	pool := `create network_pool {"uuid": "#70#", "name": "p", "networks": ["#30#"]}`
	fabric := `create network {"uuid": "#50#", "name": "six", "nic_tag": "overlay", "fabric": true, "owner_uuids": ["#1#"], "subnet": "fd00:7::/64"}`
	for _, c := range []struct {
		before     []string
		op         string
		five, six  string // the refusals of versions 5 and 6; "": none
		what, says string // a field of the object after it, and its value, in version 6
	}{
		{nil, `create fabric_vlan {"owner_uuid": "#1#", "vlan_id": 7}`, "name: must have 1 to 64 characters", "", "name", ""},
		{nil, `create fabric_vlan {"owner_uuid": "#1#", "vlan_id": 7, "name": ""}`, "name: must have", "name: must have 1 to 64 characters", "", ""},
		{[]string{`create fabric_vlan {"owner_uuid": "#1#", "vlan_id": 7, "name": "x"}`}, `update fabric_vlan #1#:7 {"name": ""}`, "name: must have", "name: must have", "", ""},
		{nil, `create nic {"mac": "010000000001", "belongs_to_type": "other", "belongs_to_uuid": "#21#", "owner_uuid": "#1#"}`, "mac: it is a multicast address", "", "mac", "01:00:00:00:00:01"},
		{nil, `create nic {"mac": "010000000001", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "#30#"}`, "mac: it is a multicast address", "", "", ""},
		{nil, `create nic {"mac": "010000000001", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "#31#"}`, "mac: it is a multicast", "mac: it is a multicast address", "", ""},
		{nil, `create nic {"mac": "000000000901", "belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "nic_tags_provided": ["overlay", "external"]}`, "nic_tags_provided can only be set on server NICs", "", "nic_tags_provided", "[overlay external]"},
		{[]string{pool, fabric}, `update network_pool #70# {"networks": ["#50#"]}`, "", "networks: all networks of a network pool must be of one family", "", ""},
		{[]string{pool}, `update network_pool #70# {"networks": ["#32#", "#30#"]}`, "", "", "networks", ""},
		{nil, `create network {"uuid": "#51#", "name": "x", "nic_tag": "external", "subnet": "10.51.0.0/24", "description": "` + long + `"}`, "", "description: must not be longer than 64 characters", "", ""},
		{nil, `create network_pool {"uuid": "#70#", "name": "p", "networks": ["#30#"], "description": "` + long + `"}`, "", "description: must not be longer than 64 characters", "", ""},
		{nil, `create fabric_vlan {"owner_uuid": "#1#", "vlan_id": 7, "name": "x", "description": "` + long + `"}`, "", "description: must not be longer than 64 characters", "", ""},
		{nil, `update network #30# {"description": "` + longest + `"}`, "", "", "description", longest},
	} {
		for _, v := range []struct {
			feature uint32
			want    string
		}{{log.FeatureWire, c.five}, {log.FeatureTriton, c.six}} {
			w := worldtest.Settled(t, Decide)
			w.State.SetFeature(v.feature)
			if c.before != nil {
				w.Must(c.before...)
			}
			op := changetest.Op(t, c.op)
			result := w.Try(w.Change(op))
			if r := result.Refusal; v.want == "" && r != nil || v.want != "" && (r == nil || !strings.Contains(r.Error(), v.want)) {
				t.Errorf("version %d: %s: %v, want %q", v.feature, c.op, r, v.want)
			}
			if c.what == "" || v.feature < log.FeatureTriton || result.Refusal != nil || c.says == "" {
				continue
			}
			r, _ := w.State.Get(op.Kind, result.IDs[0])
			if got, _ := log.Field(r.Object, c.what); fmt.Sprint(got) != c.says {
				t.Errorf("%s: %s is %v, want %s", c.op, c.what, got, c.says)
			}
		}
	}
}

// TestLongDescriptionsOfBefore: a network that has one keeps it while other fields change.
func TestLongDescriptionsOfBefore(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	w.State.SetFeature(log.FeatureWire)
	w.Must(`update network #30# {"description": "` + strings.Repeat("d", 200) + `"}`)
	w.State.SetFeature(log.FeatureTriton)
	w.Must(`update network #30# {"name": "other"}`)
}

// TestNoGroupOfANode: a compute node makes no NIC with a multicast MAC.
func TestNoGroupOfANode(t *testing.T) {
	w := newPlacementWorld(t)
	op := hostNICAt(10, w.cn, adminNet, "")
	op.Object.(*log.NIC).MAC[0] |= 1
	if r := decideBy(w.s, w.cn, op); r == nil || !strings.Contains(r.Error(), "it is a multicast address") {
		t.Errorf("got %v", r)
	}
}

// TestAggregationsKeepTheirOrder: of MACs, each once, as they were given.
func TestAggregationsKeepTheirOrder(t *testing.T) {
	for feature, want := range map[uint32]string{
		log.FeatureWire:   "[00:00:00:00:01:00 00:00:00:00:09:01] [external overlay]",
		log.FeatureTriton: "[00:00:00:00:09:01 00:00:00:00:01:00] [external overlay]",
	} {
		w := worldtest.Settled(t, Decide)
		w.State.SetFeature(feature)
		w.Must(`create nic {"mac": "000000000901", "belongs_to_type": "server", "belongs_to_uuid": "#11#", "owner_uuid": "#1#"}`)
		r := w.Must(`create aggregation {"name": "aggr0", "macs": ["000000000901", "000000000100", "000000000901"], "nic_tags_provided": ["overlay", "external", "overlay"]}`)
		got, _ := w.State.Get(log.KindAggregation, r.IDs[0])
		a := got.Object.(*log.Aggregation)
		if text := fmt.Sprint(a.MACs, a.NICTagsProvided); text != want {
			t.Errorf("version %d: %s, want %s", feature, text, want)
		}
	}
}

// TestRenameTag: a tag that no network is on takes another name, and all that names it
// follows in the same change.
func TestRenameTag(t *testing.T) {
	world := func() *worldtest.World {
		w := worldtest.Settled(t, Decide)
		w.Must(`create nic_tag {"name": "rack1", "uuid": "#93#", "mtu": 2000}`)
		w.Must(`create nic {"mac": "000000000901", "belongs_to_type": "server", "belongs_to_uuid": "#11#", "owner_uuid": "#1#", "nic_tag": "rack1", "vlan_id": 3}`,
			`create nic {"mac": "000000000902", "belongs_to_type": "server", "belongs_to_uuid": "#11#", "owner_uuid": "#1#", "nic_tags_provided": ["external", "rack1"]}`,
			`create aggregation {"name": "aggr0", "macs": ["000000000902"], "nic_tags_provided": ["rack1"]}`)
		return w
	}
	w := world()
	head := len(w.Events)
	result := w.Must(`update nic_tag rack1 {"name": "rack2", "mtu": 3000}`)
	if !slices.Equal(result.IDs, []string{"rack2"}) {
		t.Errorf("the result names %v", result.IDs)
	}
	for _, e := range w.Events[head:] {
		if e.ChangeID != w.Events[head].ChangeID {
			t.Errorf("event %+v is of another change", e)
		}
	}
	if _, there := w.State.Get(log.KindNICTag, "rack1"); there {
		t.Error("the old name stays")
	}
	if r, _ := w.State.Get(log.KindNICTag, "rack2"); r.Object == nil || !log.Equal(r.Object, &log.NICTag{Name: "rack2", UUID: changetest.UUID(93), MTU: 3000}) {
		t.Errorf("the tag is %+v", r.Object)
	}
	for _, c := range []struct {
		kind            log.Kind
		id, field, want string
	}{
		{log.KindNIC, "000000000901", "nic_tag", "rack2"},
		{log.KindNIC, "000000000902", "nic_tags_provided", "[external rack2]"},
		{log.KindAggregation, changetest.UUID(11).String() + "-aggr0", "nic_tags_provided", "[rack2]"},
	} {
		r, _ := w.State.Get(c.kind, c.id)
		if got, _ := log.Field(r.Object, c.field); fmt.Sprint(got) != c.want {
			t.Errorf("%s of %s is %v, want %s", c.field, c.id, got, c.want)
		}
	}
	w.Must(`update nic_tag rack2 {"name": "rack1"}`, `update nic_tag rack1 {"name": "rack3"}`, `create nic_tag {"name": "rack1"}`) // in one change
	for _, c := range []struct{ op, want string }{
		{`update nic_tag rack1 {"name": "external"}`, `name: Already exists`},
		{`update nic_tag rack1 {"name": "a b"}`, `name: must only contain numbers, letters and underscores`},
		{`update nic_tag rack1 {"name": "rack9", "uuid": "#94#"}`, `uuid: NIC tag updates for this field are not supported`},
		{`update nic_tag rack1 {"name": "rack9", "mtu": 100}`, `mtu: mtu must be a number`},
		{`update nic_tag rack1 @7 {"name": "rack9"}`, `PreconditionFailed`},
		{`update nic_tag gone {"name": "rack9"}`, `nic tag not found`},
		{`update nic_tag overlay {"name": "rack9"}`, `nic_tag: In use by network "` + changetest.UUID(31).String()},
	} {
		w := world()
		w.Must(`update nic_tag rack1 {"name": "rack3"}`, `create nic_tag {"name": "rack1"}`)
		if r := w.Try(w.Change(changetest.Op(t, c.op))).Refusal; r == nil || !strings.Contains(r.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.op, r, c.want)
		}
	}
	w = world()
	w.State.SetFeature(log.FeatureWire)
	if r := w.Try(w.Change(changetest.Op(t, `update nic_tag rack1 {"name": "rack2"}`))).Refusal; r == nil || !strings.Contains(r.Error(), "name: NIC tag updates for this field are not supported") {
		t.Errorf("before version 6: %v", r)
	}
}

// TestManyUsersOfATag: what follows a tag is bounded, and past the bound nothing is done.
func TestManyUsersOfATag(t *testing.T) {
	w := newPlacementWorld(t)
	w.do(log.Op{Action: log.Create, Kind: log.KindNICTag, Object: &log.NICTag{Name: "rack1"}})
	for n := range maxRetagged {
		w.do(log.Op{Action: log.Create, Kind: log.KindNIC, Object: &log.NIC{
			MAC: log.MAC{6, 4: byte(n >> 8), 5: byte(n)}, BelongsToType: "other", BelongsToUUID: w.cn, OwnerUUID: w.cn, NICTag: "rack1",
		}})
	}
	w.do(updateOf("rack1", &log.NICTag{Name: "rack2"}, "name"))
	w.do(log.Op{Action: log.Create, Kind: log.KindNIC, Object: &log.NIC{MAC: log.MAC{8, 5: 2}, BelongsToType: "other", BelongsToUUID: w.cn, OwnerUUID: w.cn, NICTag: "rack2"}})
	events, result := Decide(w.s, &log.Change{ID: log.UUID{9, 6: 0x70}, Ops: []log.Op{updateOf("rack2", &log.NICTag{Name: "rack3"}, "name")}})
	if r := result.Refusal; r == nil || len(events) > 0 || !strings.Contains(r.Error(), "limit retagged") {
		t.Errorf("one more: %v", r)
	}
}

// TestAllocateSubnet: subnets are chosen as NAPI chooses them.
func TestAllocateSubnet(t *testing.T) {
	alloc := func(vnet string, more string) string {
		return `create network {"name": "NAME", "nic_tag": "overlay", "fabric": true, "owner_uuids": ["#1#"], "subnet": "0.0.0.0/24"` + more + `}`
	}
	for _, c := range []struct{ taken, want string }{
		{"", "10.0.0.0/24"},
		{"10.0.0.0/24", "10.0.1.0/24"},
		{"10.0.0.0/24 10.0.1.0/24", "10.0.2.0/24"},
		{"10.0.0.0/24 10.0.1.0/24 10.0.3.0/24", "10.0.2.0/24"},
		{"10.0.3.0/24", "10.0.4.0/24"},
		{"10.0.3.0/24 10.0.4.0/24", "10.0.2.0/24"}, // below before above
		{"10.0.0.0/25 10.0.0.192/26 10.0.2.0/23", "10.0.1.0/24"},
		{"10.0.0.0/8", "172.16.0.0/24"},
		{"10.255.255.0/24 172.16.0.0/24", "10.255.254.0/24"},
		{"10.0.0.0/8 172.16.0.0/12", "192.168.0.0/24"},
		{"192.168.255.0/24", "192.168.254.0/24"},
		{"10.0.0.0/8 172.16.0.0/12 192.168.0.0/16", ""},
		{"fd00::/64", "10.0.0.0/24"},
	} {
		w := worldtest.New(t, Decide)
		w.Must(`create nic_tag {"name": "overlay"}`)
		w.Must(`create network {"name": "of another owner", "nic_tag": "overlay", "fabric": true, "owner_uuids": ["#2#"], "subnet": "10.0.0.0/8"}`)
		for i, subnet := range strings.Fields(c.taken) {
			w.Must(fmt.Sprintf(`create network {"name": "n%d", "nic_tag": "overlay", "fabric": true, "owner_uuids": ["#1#"], "subnet": "%s"}`, i, subnet))
		}
		op := changetest.Op(t, alloc("", `, "internet_nat": true`))
		op.Options = []log.Option{log.OptionAllocateSubnet}
		result := w.Try(w.Change(op))
		if r := result.Refusal; c.want == "" {
			if r == nil || r.Code != log.CodeSubnetsExhausted {
				t.Errorf("with all taken: %v", r)
			}
			continue
		} else if r != nil {
			t.Errorf("with %s: %v", c.taken, r)
			continue
		}
		r, _ := w.State.Get(log.KindNetwork, result.IDs[0])
		n, subnet := r.Object.(*log.Network), netip.MustParsePrefix(c.want)
		if first, last := usable(subnet); n.Subnet != subnet || n.ProvisionStart != first || n.ProvisionEnd != last || n.Gateway != first || n.Family != "ipv4" {
			t.Errorf("with %s: %+v, want %s", c.taken, n, c.want)
		}
	}
	// Two in one change, and what is refused.
	w := worldtest.Settled(t, Decide)
	ask := func(text string) log.Op {
		op := changetest.Op(t, text)
		op.Options = []log.Option{log.OptionAllocateSubnet}
		return op
	}
	one, two := ask(strings.Replace(alloc("", ""), "NAME", "x", 1)), ask(strings.Replace(alloc("", ""), "NAME", "y", 1))
	result := w.Try(w.Change(one, two))
	for i, want := range []string{"10.0.1.0/24", "10.0.2.0/24"} {
		if r, _ := w.State.Get(log.KindNetwork, result.IDs[i]); r.Object == nil || r.Object.(*log.Network).Subnet.String() != want {
			t.Errorf("in one change: %+v, want %s", r.Object, want)
		}
	}
	for _, c := range []struct {
		op   log.Op
		want string
	}{
		{ask(alloc("", `, "provision_start_ip": "10.0.9.1"`)), "provision_start_ip: Manual allocation parameter not allowed"},
		{ask(strings.Replace(alloc("", ""), "0.0.0.0/24", "10.0.9.0/24", 1)), "subnet: Manual allocation parameter not allowed"},
		{ask(strings.Replace(alloc("", ""), "0.0.0.0/24", "0.0.0.0/25", 1)), "subnet_prefix: Only /24 is supported"},
		{ask(`create network {"name": "n", "nic_tag": "external", "subnet": "0.0.0.0/24"}`), "subnet: only subnets of fabric networks are chosen"},
		{ask(`update network #31# {"name": "n"}`), `options: "allocate_subnet" does not fit an update of a network`},
		{changetest.Op(t, alloc("", "")), "subnet: the subnet is not of unicast addresses"},
	} {
		if r := w.Try(w.Change(c.op)).Refusal; r == nil || !strings.Contains(strings.Replace(r.Error(), "a update", "an update", 1), c.want) {
			t.Errorf("%+v: %v, want %s", c.op.Object, r, c.want)
		}
	}
	w.State.SetFeature(log.FeatureWire)
	if r := w.Try(w.Change(one)).Refusal; r == nil || !strings.Contains(r.Error(), `"allocate_subnet" does not fit a create of a network`) {
		t.Errorf("before version 6: %v", r)
	}
}

// TestTagsOfANode: of one compute node's reports at most so many NIC tags are made, whatever
// it says; a node makes none itself, and other nodes and operators are not concerned.
func TestTagsOfANode(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	tag := func(n int, cn string) string {
		return fmt.Sprintf(`create nic_tag {"name": "made%s_%d", "reported_by": "%s"}`, strings.Trim(cn, "#"), n, cn)
	}
	for n := range maxTagsOfNode {
		w.Must(tag(n, "#11#"))
	}
	one := w.Change(changetest.Op(t, tag(maxTagsOfNode, "#11#")))
	if r := w.Try(one).Refusal; r == nil || r.Code != log.CodeLimit || !strings.Contains(r.Error(), "limit cn_tags") {
		t.Errorf("one more: %v", r)
	}
	// What is there already is a duplicate, as before the limit.
	if r := w.Try(w.Change(changetest.Op(t, tag(0, "#11#")))).Refusal; r == nil || r.Errors[0].Code != log.ElementDuplicate {
		t.Errorf("one that is there: %v", r)
	}
	w.Must(tag(0, "#12#"), `create nic_tag {"name": "an_operators"}`, `delete nic_tag made11_0`, tag(maxTagsOfNode, "#11#"))
	for _, c := range []struct{ op, want string }{
		{tag(0, "#13#"), "reported_by: there is no server"},
		{`update nic_tag made12_0 {"reported_by": "#11#"}`, "reported_by: NIC tag updates for this field are not supported"},
		{`update nic_tag made12_0 {"name": "moved", "reported_by": "#11#"}`, "reported_by: NIC tag updates for this field are not supported"},
	} {
		if r := w.Try(w.Change(changetest.Op(t, c.op))).Refusal; r == nil || !strings.Contains(r.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.op, r, c.want)
		}
	}
	own := w.Change(changetest.Op(t, tag(99, "#12#")))
	own.By = log.Author{Role: log.RoleCN, CN: changetest.UUID(12)}
	if r := w.Try(own).Refusal; r == nil || !strings.Contains(r.Error(), "a compute node may not write a nic_tag") {
		t.Errorf("by the node itself: %v", r)
	}
	w.Must(`update nic_tag made12_0 {"name": "moved"}`) // a new name frees no room
	if r, _ := w.State.Get(log.KindNICTag, "moved"); r.Object.(*log.NICTag).ReportedBy != changetest.UUID(12) {
		t.Errorf("the renamed tag is %+v", r.Object)
	}
}
