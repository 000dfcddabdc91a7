package importcmd

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

// read reads objects as a source has them, each as FILE and JSON.
func read(t testing.TB, files ...string) *installation {
	t.Helper()
	in := newInstallation()
	for i := 0; i < len(files); i += 2 {
		if err := in.readFile(strings.NewReader(files[i+1]), files[i]); err != nil {
			t.Fatalf("%s: %v", files[i], err)
		}
	}
	return in
}

// carried is a state with what a plan says carried out on it, as servers do: in
// changes of their own, in an order of their own within each group.
func carried(t interface{ Fatalf(string, ...any) }, p *plan, before *projections.State, shuffle func(n int) []int) *projections.State {
	seq := log.Seq(1) // behind everything that the state has
	for _, kind := range order {
		for r := range before.List(kind) {
			seq = max(seq, r.Seq)
		}
	}
	for from := 0; from < len(p.steps); {
		to := from
		for to < len(p.steps) && p.steps[to].group == p.steps[from].group {
			to++
		}
		for _, i := range shuffle(to - from) {
			s := p.steps[from+i]
			events, result := rules.Decide(before, &log.Change{ID: log.UUID{7, byte(seq >> 16), byte(seq >> 8), byte(seq)}, Time: before.Time() + 1, Ops: []log.Op{s.op}})
			if result.Refusal != nil {
				t.Fatalf("%s %s %s is refused: %v", s.op.Action, s.op.Kind, s.op.Object.ID(), result.Refusal)
			}
			for _, e := range events {
				seq++
				if _, err := before.Apply(seq, e); err != nil {
					t.Fatalf("%v", err)
				}
			}
		}
		from = to
	}
	return before
}

func inOrder(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

const (
	anOwner = "9dce1460-0c4c-4417-ab8b-25ca478c5a78"
	admin   = "930896af-bf8c-48d4-885c-6573a94b1853"
	aVM     = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"
	aCN     = "44454c4c-5300-1058-8050-b5c04f4c4432"
	netA    = "0e70de36-a40b-4ac0-9429-819f5ff82011"
	netB    = "0e70de36-a40b-4ac0-9429-819f5ff82012"
	netU    = "0e70de36-a40b-4ac0-9429-819f5ff82013"
	tags    = `[{"name": "external", "uuid": "` + netA + `", "mtu": 1500}, {"name": "sdc_overlay", "uuid": "` + netB + `", "mtu": 9000}]`
	nets    = `[{"uuid": "` + netA + `", "name": "a", "family": "ipv4", "vlan_id": 4, "nic_tag": "sdc_overlay", "subnet": "10.1.0.0/24", "netmask": "255.255.255.0",
		"provision_start_ip": "10.1.0.5", "provision_end_ip": "10.1.0.250", "gateway": "10.1.0.1", "resolvers": ["8.8.8.8", "10.1.0.2"], "mtu": 1400,
		"owner_uuids": ["` + anOwner + `"], "owner_uuid": "` + anOwner + `", "fabric": true, "vnet_id": 7, "internet_nat": true, "gateway_provisioned": false,
		"routes": {"10.2.0.0/24": "10.1.0.9", "10.9.0.0/16": "10.1.0.77"}},
		{"uuid": "` + netB + `", "name": "b", "family": "ipv4", "vlan_id": 4, "nic_tag": "sdc_overlay", "subnet": "10.2.0.0/24",
		"provision_start_ip": "10.2.0.5", "provision_end_ip": "10.2.0.250", "resolvers": [], "mtu": 1400,
		"owner_uuids": ["` + anOwner + `"], "fabric": true, "vnet_id": 7, "internet_nat": false, "gateway_provisioned": false, "routes": {"10.1.0.0/24": "10.2.0.9"}}]
		{"uuid": "` + netU + `", "name": "underlay", "family": "ipv4", "vlan_id": 0, "nic_tag": "external", "subnet": "192.168.9.0/24",
		"provision_start_ip": "192.168.9.5", "provision_end_ip": "192.168.9.250", "resolvers": [], "mtu": 1500}`
	vlans = `{"name": "v", "owner_uuid": "` + anOwner + `", "vlan_id": 4, "vnet_id": 7}`
	nics  = `[{"mac": "90:b8:d0:00:00:01", "belongs_to_type": "zone", "belongs_to_uuid": "` + aVM + `", "owner_uuid": "` + admin + `", "primary": true, "state": "running",
		"created_timestamp": "2020-01-02T03:04:05.678Z", "modified_timestamp": "2021-01-02T03:04:05.678Z", "ip": "10.1.0.7", "network_uuid": "` + netA + `",
		"nic_tag": "sdc_overlay/7", "vlan_id": 4, "mtu": 1400, "netmask": "255.255.255.0", "resolvers": ["8.8.8.8"], "cn_uuid": "` + aCN + `", "fabric": true, "allow_ip_spoofing": true},
		{"mac": "90:b8:d0:00:00:02", "belongs_to_type": "server", "belongs_to_uuid": "` + aCN + `", "owner_uuid": "` + admin + `", "primary": false, "state": "running",
		"ip": "192.168.9.7", "network_uuid": "` + netU + `", "nic_tag": "external", "vlan_id": 0, "underlay": true, "nic_tags_provided": ["external"]}]`
	aggrs   = `{"id": "` + aCN + `-aggr0", "belongs_to_uuid": "` + aCN + `", "name": "aggr0", "lacp_mode": "off", "macs": ["90:b8:d0:00:00:02"], "nic_tags_provided": ["external"]}`
	pools   = `{"uuid": "` + aVM + `", "name": "p", "networks": ["` + netB + `", "` + netA + `"], "family": "ipv4", "nic_tag": "sdc_overlay", "nic_tags_present": ["sdc_overlay"], "owner_uuids": ["` + anOwner + `"]}`
	routerz = `{"uuid": "` + aVM + `", "name": "r", "networks": ["` + netA + `", "` + netB + `"], "addresses": ["10.1.0.9", "10.2.0.9"], "family": "ipv4", "owner_uuid": "` + anOwner + `"}`
	ips     = `[{"ip": "10.1.0.1", "network_uuid": "` + netA + `", "reserved": true, "free": false, "belongs_to_type": "other", "belongs_to_uuid": "` + admin + `", "owner_uuid": "` + admin + `"},
		{"ip": "10.1.0.255", "network_uuid": "` + netA + `", "reserved": true, "free": false},
		{"ip": "10.1.0.4", "network_uuid": "` + netA + `", "reserved": false, "free": true},
		{"ip": "10.1.0.7", "network_uuid": "` + netA + `", "reserved": true, "free": false, "belongs_to_type": "zone", "belongs_to_uuid": "` + aVM + `", "owner_uuid": "` + admin + `"},
		{"ip": "10.1.0.9", "network_uuid": "` + netA + `", "reserved": true, "free": false, "belongs_to_type": "router", "belongs_to_uuid": "` + aVM + `", "owner_uuid": "` + anOwner + `"},
		{"ip": "10.1.0.50", "network_uuid": "` + netA + `", "reserved": true, "free": false, "owner_uuid": "` + anOwner + `"},
		{"ip": "10.1.0.51", "network_uuid": "` + netA + `", "reserved": false, "free": false, "belongs_to_type": "zone", "belongs_to_uuid": "` + netB + `", "owner_uuid": "` + admin + `"}]`
)

// everything is a source that has every kind.
var everything = []string{
	"ips.json", ips, "routers.json", routerz, "aggregations.json", aggrs, "network_pools.json", pools,
	"nics.json", nics, "vlans.ndjson", vlans, "networks.json", nets, "nic_tags.json", tags,
}

func TestEveryKind(t *testing.T) {
	p := makePlan(read(t, everything...), projections.NewState(), 0)
	for _, problem := range p.problems {
		t.Errorf("problem: %s", problem.line())
	}
	for kind, want := range map[log.Kind]int{
		log.KindNICTag: 2, log.KindFabricVLAN: 1, log.KindNetwork: 3, log.KindNetworkPool: 1, log.KindNIC: 2, log.KindAggregation: 1, log.KindRouter: 1, log.KindIP: 3,
	} {
		if got := p.tallies[kind].Create; got != want {
			t.Errorf("%s: %d to create, want %d", kind, got, want)
		}
	}
	state := carried(t, p, projections.NewState(), inOrder)
	r, _ := state.Get(log.KindNIC, "90:b8:d0:00:00:01")
	nic := r.Object.(*log.NIC)
	if got := nic.Created.String() + " " + nic.Modified.String(); got != "2020-01-02T03:04:05.678Z 2021-01-02T03:04:05.678Z" {
		t.Errorf("times of the NIC: %s", got)
	}
	if n := state.Network(log.UUID(uuidOf(t, netA))); len(n.Routes) != 2 {
		t.Errorf("routes of a network with a router: %v, want its own and the router's", n.Routes)
	}
	twice(t, state, everything...)
}

func uuidOf(t testing.TB, text string) log.UUID {
	u, err := log.ParseUUID(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// twice sees that a second import finds nothing to do.
func twice(t testing.TB, state *projections.State, files ...string) {
	t.Helper()
	second := makePlan(read(t, files...), state, 1<<40)
	for _, s := range second.steps {
		t.Errorf("the second time: %s", formOf(s).line())
	}
	for kind, n := range second.tallies {
		if n.Here != 0 && kind != log.KindIP {
			t.Errorf("%s: %d are said to be known here only", kind, n.Here)
		}
	}
}

// What differs is changed, and nothing else.
func TestChanges(t *testing.T) {
	state := carried(t, makePlan(read(t, everything...), projections.NewState(), 0), projections.NewState(), inOrder)
	changed := slices.Clone(everything)
	swap := func(old, fresh string) {
		for i := range changed {
			changed[i] = strings.Replace(changed[i], old, fresh, 1)
		}
	}
	swap(`"gateway": "10.1.0.1", `, ``)                                                                     // NAPI leaves out what is not set
	swap(`"internet_nat": true`, `"internet_nat": false`)                                                   // which nothing may change
	swap(`"state": "running"`, `"state": "stopped"`)                                                        // of the first NIC
	swap(`"reserved": true, "free": false, "owner_uuid"`, `"reserved": false, "free": false, "owner_uuid"`) // 10.1.0.50
	swap(`"lacp_mode": "off"`, `"lacp_mode": "active"`)
	p := makePlan(read(t, changed...), state, 1<<40)
	var lines []string
	for _, s := range p.steps {
		lines = append(lines, formOf(s).line())
	}
	want := []string{
		`~ nic 90:b8:d0:00:00:01  state: "running" -> "stopped"`,
		`~ aggregation ` + aCN + `-aggr0  lacp_mode: "off" -> "active"`,
		`~ ip ` + netA + `:10.1.0.50  reserved: true -> false`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("steps:\n%s\nwant:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if len(p.problems) == 0 || p.problems[0].Field != "internet_nat" || p.problems[0].Remedy == "" {
		t.Errorf("problems: %+v, want internet_nat's with a remedy", p.problems)
	}
}

// What cannot come over is named with a field and a remedy, and the rest comes.
func TestProblems(t *testing.T) {
	for _, test := range []struct {
		name, file, text string
		field, message   string
	}{
		{"no network", "nics.json", strings.Replace(nics, netA, anOwner, 1), "network_uuid", "does not exist"},
		{"same address", "nics.json", nics + strings.ReplaceAll(strings.Replace(nics, "00:01", "00:03", 1), aVM, netB), "ip", "IP in use by zone"},
		{"two primaries", "nics.json", nics + strings.NewReplacer("00:01", "00:03", "10.1.0.7", "10.1.0.8").Replace(nics), "primary", "is primary too"},
		{"no address", "nics.json", strings.Replace(nics, `"ip": "10.1.0.7"`, `"ip": null`, 1), "ip", "has no address"},
		{"no CN", "nics.json", strings.Replace(nics, `"cn_uuid"`, `"cn"`, 1), "cn_uuid", "Missing parameter"},
		{"bad MAC", "nics.json", strings.Replace(nics, `90:b8:d0:00:00:01`, `90:b8:d0`, 1), "mac", "want 12 hexadecimal digits"},
		{"bad state", "nics.json", strings.Replace(nics, `running`, `walking`, 1), "state", "is not known"},
		{"bad subnet", "networks.json", strings.Replace(nets, `"subnet": "10.2.0.0/24"`, `"subnet": "10.2.0.1/24"`, 1), "subnet", "invalid CIDR"},
		{"bad VLAN", "networks.json", strings.Replace(nets, `"vlan_id": 4`, `"vlan_id": -4`, 1), "vlan_id", "no whole number"},
		{"read twice", "nic_tags.json", tags + `{"name": "external", "mtu": 9000}`, "uuid", "read before"},
		{"other tag", "nics.json", strings.Replace(nics, `"nic_tag": "external"`, `"nic_tag": "other"`, 1), "nic_tag", "the network's is taken"},
	} {
		t.Run(test.name, func(t *testing.T) {
			files := slices.Clone(everything)
			files[slices.Index(files, test.file)+1] = test.text
			p := makePlan(read(t, files...), projections.NewState(), 0)
			if !slices.ContainsFunc(p.problems, func(got problem) bool {
				return got.Field == test.field && strings.Contains(got.Message, test.message) && got.Remedy != "" && got.ID != ""
			}) {
				t.Errorf("problems %+v, want one of %s with %q", p.problems, test.field, test.message)
			}
			state := carried(t, p, projections.NewState(), inOrder)
			if again := makePlan(read(t, files...), state, 1<<40); len(again.steps) > 0 {
				t.Errorf("the second time: %s", formOf(again.steps[0]).line())
			}
		})
	}
}

// Buckets have the same under other names.
func TestBuckets(t *testing.T) {
	row := func(bucket, value string) string {
		return `{"bucket": "` + bucket + `", "key": "k", "value": ` + value + `, "_etag": "ABC", "_id": 7}` + "\n"
	}
	dump := row("napi_nic_tags", `{"name": "external", "uuid": "`+netA+`", "mtu": 1500, "v": 1}`) +
		row("napi_nic_tags", `{"name": "sdc_overlay", "uuid": "`+netB+`", "mtu": 9000}`) +
		row("napi_fabrics", `{"owner_uuid": "`+anOwner+`", "vnet_id": 7}`) +
		row("napi_fabric_vlans", `{"name": "v", "owner_uuid": "`+anOwner+`", "vlan_id": 4, "uuid": "`+netA+`"}`) +
		row("napi_networks", `{"uuid": "`+netA+`", "name_str": "`+anOwner+`:a:b", "subnet_type": "ipv4", "vlan_id": 4, "nic_tag": "sdc_overlay", "subnet": "10.1.0.0/24", "subnet_start": "10.1.0.0",
			"provision_start_ip_addr": "10.1.0.5", "provision_end_ip_addr": "10.1.0.250", "resolvers": ["8.8.8.8"], "mtu": 1400, "owner_uuids": ",`+anOwner+`,", "owner_uuids_arr": ["`+anOwner+`"],
			"fabric": true, "vnet_id": 7, "internet_nat": false}`) +
		row("napi_networks", `{"uuid": "`+netU+`", "name": "underlay", "family": "ipv4", "vlan_id": 0, "nic_tag": "external", "subnet": "192.168.9.0/24", "fabric": false, "internet_nat": true,
			"provision_start_ip": 3232237829, "provision_end_ip": "192.168.9.250", "resolvers": [], "mtu": 1500}`) +
		row("napi_nics", `{"mac": 159123438043137, "belongs_to_type": "zone", "belongs_to_uuid": "`+aVM+`", "owner_uuid": "`+anOwner+`", "primary_flag": true, "state": "running",
			"created_timestamp": 1577934245678, "modified_timestamp": 1577934245678, "ip": 167837703, "ipaddr": "10.1.0.7", "network_uuid": "`+netA+`", "cn_uuid": "`+aCN+`", "nic_tag": "sdc_overlay"}`) +
		row("napi_ips_"+strings.ReplaceAll(netA, "-", "_"), `{"ip": "10.1.0.50", "reserved": true, "use_strings": true, "owner_uuid": "`+anOwner+`"}`) +
		row("napi_changes", `{"what": "ever"}`)
	in := read(t, "dump.json", dump)
	p := makePlan(in, projections.NewState(), 0)
	if len(p.problems) > 0 || len(in.ignored) > 0 || !slices.Equal(in.skipped, []string{"napi_changes"}) {
		t.Errorf("problems %+v, fields %v, skipped %v", p.problems, in.ignored, in.skipped)
	}
	state := carried(t, p, projections.NewState(), inOrder)
	r, ok := state.Get(log.KindNIC, "90:b8:d0:00:00:01")
	if !ok || r.Object.(*log.NIC).Created.String() != "2020-01-02T03:04:05.678Z" {
		t.Errorf("the NIC of the bucket: %+v", r.Object)
	}
	if n := state.Network(uuidOf(t, netA)); n == nil || n.Name != "a:b" {
		t.Errorf("the network of the bucket: %+v", n)
	}
	if n := state.Network(uuidOf(t, netU)); n == nil || n.ProvisionStart != netip.MustParseAddr("192.168.9.5") {
		t.Errorf("the network of the bucket: %+v", n)
	}
	twice(t, state, "dump.json", dump)
}

// Portolan's rows are compared with what Rutter answers.
func TestPortolan(t *testing.T) {
	overlay := func(ip, mac, cn, deleted string) string {
		return `{"bucket": "portolan_vnet_mac_ip", "key": "k", "value": {"ip": "` + ip + `", "mac": ` + mac + `, "cn_uuid": "` + cn + `", "vnet_id": 7, "version": 1, "deleted": ` + deleted + `}}` + "\n"
	}
	files := append(slices.Clone(everything), "portolan.json",
		overlay("::ffff:a01:7", "159123438043137", aCN, "false")+overlay("::ffff:a01:7", "159123438043137", aVM, "false")+
			overlay("::ffff:a01:8", "159123438043137", aCN, "false")+overlay("::ffff:a01:9", "7", aCN, "false")+
			overlay("::ffff:a01:7", "7", aCN, "true")+overlay("::ffff:a01:8", "7", aCN, "true"),
		"portolan_underlay_mappings.json", `[{"cn_uuid": "`+aCN+`", "ip": "::ffff:c0a8:907", "port": 4789}, {"cn_uuid": "`+aVM+`", "ip": "192.168.9.8", "port": 4789}, {"cn_uuid": "`+aVM+`"}]`)
	p := makePlan(read(t, files...), projections.NewState(), 0)
	r := newReport(p, true)
	if want := (compared{Rows: 8, Same: 2, Tombstones: 2}); *r.Portolan != want {
		t.Errorf("compared: %+v, want %+v", *r.Portolan, want)
	}
	var causes []string
	for _, d := range r.Differences {
		causes = append(causes, d.Cause)
	}
	want := []string{
		"no NIC of this server is marked underlay and has an address", "the NIC is on another server: the row is older than it",
		"the NIC has the address 10.1.0.7", "there is no such NIC", "a NIC has the address, and portolan did not hear of it",
	}
	if !slices.Equal(causes, want) {
		t.Errorf("causes %q, want %q", causes, want)
	}
	if len(p.problems) != 1 || !strings.Contains(p.problems[0].Message, "ip is missing; port is missing") {
		t.Errorf("problems: %+v", p.problems)
	}
}

// Random installations are imported whole or with a reason, in each order of the
// servers, and a second import finds nothing to do.
func TestAnyInstallation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state := projections.NewState()
		for range rapid.IntRange(1, 3).Draw(t, "imports") {
			text := anyInstallation(t)
			in := newInstallation()
			if err := in.readFile(strings.NewReader(text), "dump.json"); err != nil {
				t.Fatalf("%v", err)
			}
			copied := copyOf(t, state)
			p := makePlan(in, state, 1<<40)
			shuffle := func(n int) []int { return rapid.Permutation(inOrder(n)).Draw(t, "order") }
			if !anyOrder(p) {
				shuffle = inOrder
			}
			state = carried(t, p, copied, shuffle)
			again := newInstallation()
			if err := again.readFile(strings.NewReader(text), "dump.json"); err != nil {
				t.Fatalf("%v", err)
			}
			if second := makePlan(again, copyOf(t, state), 1<<41); len(second.steps) > 0 {
				t.Fatalf("the second time: %s\nafter %s", formOf(second.steps[0]).line(), text)
			}
		}
	})
}

// anyOrder: new objects do not depend on others of their kind; what changes may,
// which the writer meets by trying it again alone.
func anyOrder(p *plan) bool {
	return !slices.ContainsFunc(p.steps, func(s step) bool { return s.op.Action == log.Update && s.op.Kind != log.KindIP })
}

func copyOf(t *rapid.T, s *projections.State) *projections.State {
	c := projections.NewState()
	for _, kind := range order {
		for r := range s.List(kind) {
			if err := c.Load(r); err != nil {
				t.Fatalf("%v", err)
			}
		}
	}
	return c
}

// anyInstallation draws a dump of a small installation, in which much clashes.
func anyInstallation(t *rapid.T) string {
	var b strings.Builder
	put := func(bucket string, value map[string]any) {
		line, err := json.Marshal(map[string]any{"bucket": bucket, "key": "k", "value": value})
		if err != nil {
			t.Fatalf("%v", err)
		}
		b.Write(append(line, '\n'))
	}
	small := func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) }
	id := func(kind, n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%06d%06d", kind, n) }
	for i := range 2 {
		put("napi_nic_tags", map[string]any{"name": fmt.Sprintf("tag%d", i), "mtu": 1500 + 1000*small("mtu", 2)})
	}
	for i := range small("networks", 4) {
		n := map[string]any{
			"uuid": id(1, i), "name": fmt.Sprintf("n%d", small("name", 9)), "nic_tag": fmt.Sprintf("tag%d", small("tag", 3)), "vlan_id": small("vlan", 4),
			"subnet": fmt.Sprintf("10.%d.0.0/24", small("subnet", 3)), "mtu": 1400, "resolvers": []string{},
		}
		if prefix := strings.TrimSuffix(n["subnet"].(string), "0/24"); small("gateway", 2) == 0 {
			n["gateway"] = prefix + "1"
		}
		if small("fabric", 2) == 0 {
			n["fabric"], n["vnet_id"], n["owner_uuids"] = true, 7+small("vnet", 2), []string{id(2, small("owner", 2))}
		}
		put("napi_networks", n)
	}
	for i := range small("nics", 8) {
		n := map[string]any{
			"mac": 0x90b8d0000000 + i, "belongs_to_type": []string{"zone", "server", "other"}[small("type", 3)], "belongs_to_uuid": id(3, small("vm", 3)),
			"owner_uuid": id(2, small("owner", 2)), "primary_flag": small("primary", 2) == 0, "state": []string{"running", "stopped"}[small("state", 2)],
		}
		if small("placed", 4) > 0 {
			n["network_uuid"], n["ipaddr"] = id(1, small("network", 4)), fmt.Sprintf("10.%d.0.%d", small("subnet", 3), 5+small("host", 6))
		}
		if small("cn", 3) > 0 {
			n["cn_uuid"] = id(3, small("cn", 3))
		}
		put("napi_nics", n)
	}
	for range small("ips", 5) {
		ip := map[string]any{"ip": fmt.Sprintf("10.%d.0.%d", small("subnet", 3), small("host", 12)), "network_uuid": id(1, small("network", 3)), "reserved": small("reserved", 2) == 0}
		if small("belongs", 2) == 0 {
			ip["belongs_to_type"], ip["belongs_to_uuid"], ip["owner_uuid"] = "zone", id(3, small("vm", 3)), id(2, small("owner", 2))
		}
		put("napi_ips_x", ip)
	}
	if small("aggregation", 2) == 0 {
		put("napi_aggregations", map[string]any{"belongs_to_uuid": id(3, small("server", 3)), "name": "aggr0", "lacp_mode": "off", "macs": []int{0x90b8d0000000 + small("mac", 4)}})
	}
	if small("pool", 2) == 0 {
		put("napi_network_pools", map[string]any{"uuid": id(4, 0), "name": "p", "networks": []string{id(1, small("network", 3))}})
	}
	return b.String()
}
