package documents_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/documents"
	"rutter/projections/documents/source"
	"rutter/projections/internal/worldtest"
	"rutter/projections/rules"
)

// planned is the plan of documents in YAML.
func planned(t *testing.T, state *projections.State, text string, prune *documents.Selection) (*documents.Plan, error) {
	t.Helper()
	docs, err := source.Read("test", []byte(text))
	if err != nil {
		return nil, err
	}
	objects, err := documents.Resolve(state, docs)
	if err != nil {
		return nil, err
	}
	return documents.Diff(state, objects, prune)
}

// applied makes the plan of documents in a world, and shows that a second plan has nothing
// to do.
func applied(t *testing.T, w *worldtest.World, text string, prune *documents.Selection) *documents.Plan {
	t.Helper()
	p, err := planned(t, w.State, text, prune)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if result := w.Try(w.Change(p.Ops...)); result.Refusal != nil {
		t.Fatalf("%v\n%s", result.Refusal, text)
	}
	again, err := planned(t, w.State, text, prune)
	if err != nil || len(again.Steps) > 0 {
		t.Fatalf("the second plan: %v, %+v", err, again)
	}
	return p
}

// verbs are the steps of a plan in words.
func verbs(p *documents.Plan) string {
	var all []string
	for _, s := range p.Steps {
		all = append(all, string(s.Verb)+" "+s.Kind.String())
	}
	return strings.Join(all, ", ")
}

const cloud = `
kind: vm
name: web
labels: {set: web}
spec: {owner_uuid: 00000000-0000-0000-0000-000000000001, server: cn1}
---
kind: network
name: blue
labels: {set: web}
spec:
  nic_tag: overlay
  subnet: 10.7.0.0/24
  fabric: true
  owner_uuids: [00000000-0000-0000-0000-000000000001]
---
kind: router
name: edge
labels: {set: web}
spec: {networks: [blue, one], vm: web}
---
kind: nic
labels: {set: web}
spec: {vm: web, network: blue}
---
kind: network_pool
name: "007"
labels: {set: web}
spec: {networks: [blue]}
`

// TestApply: names stand for objects of the state and of the set; what has no id gets the
// same one in each plan; a second apply finds what the first one made.
func TestApply(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	first, err := planned(t, w.State, cloud, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := applied(t, w, cloud, nil)
	if verbs(p) != "create vm, create network, create network_pool, create router, create nic" {
		t.Errorf("steps: %s", verbs(p))
	}
	for i, s := range p.Steps {
		if s.ID != first.Steps[i].ID || strings.HasPrefix(s.ID, "00000000") {
			t.Errorf("%s has the id %s, in an earlier plan %s", s.Kind, s.ID, first.Steps[i].ID)
		}
		if rec, ok := w.State.Get(s.Kind, s.ID); !ok || documents.LabelsOf(rec.Object)["set"] != "web" {
			t.Errorf("%s %s: %v", s.Kind, s.ID, rec.Object)
		}
	}
	rec, _ := w.State.Get(log.KindNIC, p.Steps[4].ID)
	if nic := rec.Object.(*log.NIC); nic.OwnerUUID.String() != "00000000-0000-0000-0000-000000000001" || nic.CNUUID.String() != "00000000-0000-0000-0000-00000000000b" {
		t.Errorf("the NIC: %+v", nic)
	}
	elsewhere := worldtest.Settled(t, rules.Decide)
	if q := applied(t, elsewhere, cloud, nil); q.Steps[1].ID != p.Steps[1].ID {
		t.Errorf("the network is %s in one cluster and %s in another", p.Steps[1].ID, q.Steps[1].ID)
	}
}

// TestUpdates: a document speaks of the fields that it has; null takes a value away; a
// rename keeps the id; each operation asks for the seq that the plan saw.
func TestUpdates(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	applied(t, w, cloud, nil)
	for _, c := range []struct{ text, want string }{
		{"kind: network\nname: blue\nspec: {fabric: true, dhcp: true, description: a}\n", "update network"},
		{"kind: network\nname: blue\nspec: {fabric: true, description: null}\n", "update network"},
		{"kind: server\nname: cn1\nspec: {comments: 12:30:45, traits: {ssd: true}}\n", "update server"},
		{"kind: vm\nname: web\nlabels: {}\nspec: {properties: {tags: {a: b}}}\n", "update vm"},
		{"kind: nic\nspec: {vm: web, network: blue, ip: 10.7.0.77}\n", "update nic"},
		{"kind: setting\nname: napi.strict\nspec: {value: true}\n", "create setting"},
		{"kind: ip\nspec: {network: blue, ip: 10.7.0.99, reserved: true}\n", "create ip"},
		{"kind: network\nname: blue\nspec: {fabric: true, routes: {10.99.0.7/32: 10.7.0.5}}\n", "update network"},
	} {
		p := applied(t, w, c.text, nil)
		if verbs(p) != c.want {
			t.Errorf("%s: %s, want %s", c.text, verbs(p), c.want)
		}
		for _, op := range p.Ops {
			if op.Action != log.Create && op.IfSeq == 0 {
				t.Errorf("%s: an operation without the seq that the plan saw", c.text)
			}
		}
	}
	docs := documents.Export(w.State, documents.Selection{Kinds: []log.Kind{log.KindNetwork}, Labels: map[string]string{"set": "web"}})
	if len(docs) != 1 || docs[0].Spec["dhcp"] != documents.Plain("true") || docs[0].Spec["description"] != nil {
		t.Fatalf("exported: %+v", docs)
	}
	if routes := docs[0].Spec["routes"].(map[string]any); len(routes) != 1 || routes["10.99.0.7"] != "10.7.0.5" {
		t.Errorf("the network's own routes: %v", routes)
	}
	p := applied(t, w, "kind: network\nname: green\nuuid: "+docs[0].UUID.String()+"\nspec: {}\n", nil)
	if verbs(p) != "update network" || p.Steps[0].ID != docs[0].UUID.String() {
		t.Errorf("a rename: %s", verbs(p))
	}
	if _, err := planned(t, w.State, "kind: network\nname: blue\nspec: {fabric: true, owner_uuids: [00000000-0000-0000-0000-000000000001], nic_tag: overlay, subnet: 10.8.0.0/24}\n", nil); err == nil || !strings.Contains(err.Error(), `is now network "green"`) {
		t.Errorf("the old name of a renamed network: %v", err)
	}
}

// A value is given up before another object takes it, whatever the order of the documents.
// A document that lacks what a new network needs means the only network of its name, also
// if that is a fabric network.
func TestChain(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	w.Must(`create network {"uuid": "#80#", "name": "a", "nic_tag": "external", "subnet": "10.9.0.0/24"}`, `create network {"uuid": "#81#", "name": "b", "nic_tag": "external", "subnet": "10.10.0.0/24"}`)
	p := applied(t, w, "kind: network\nname: b\nuuid: 00000000-0000-0000-0000-000000000050\n---\nkind: network\nname: c\nuuid: 00000000-0000-0000-0000-000000000051\n", nil)
	if len(p.Ops) != 2 || p.Ops[0].Object.(*log.Network).Name != "c" {
		t.Errorf("%s: %+v", verbs(p), p.Ops)
	}
	w.Must(`create network {"uuid": "#82#", "name": "fab", "fabric": true, "nic_tag": "overlay", "vlan_id": 9, "subnet": "10.11.0.0/24", "owner_uuids": ["#1#"]}`)
	p = applied(t, w, "kind: network\nname: fab\nspec: {description: changed}\n", nil)
	if verbs(p) != "update network" || p.Steps[0].ID != "00000000-0000-0000-0000-000000000052" {
		t.Errorf("a fabric network by its name: %s %+v", verbs(p), p.Steps)
	}
}

// TestReplace: an immutable field that differs deletes the object and makes it again with
// its id and its other fields.
func TestReplace(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	w.Must(`create network {"uuid": "#40#", "name": "old", "nic_tag": "external", "subnet": "10.9.0.0/24", "description": "kept"}`)
	p := applied(t, w, "kind: network\nname: old\nspec: {subnet: 10.10.0.0/24, provision_start_ip: 10.10.0.5, provision_end_ip: 10.10.0.9}\n", nil)
	if verbs(p) != "replace network" || !slices.Equal(p.Steps[0].Because, []string{"subnet"}) || len(p.Ops) != 2 || p.Ops[0].Action != log.Delete {
		t.Fatalf("%s because of %v: %+v", verbs(p), p.Steps[0].Because, p.Ops)
	}
	rec, _ := w.State.Get(log.KindNetwork, p.Steps[0].ID)
	if n := rec.Object.(*log.Network); n.Description != "kept" || n.Subnet.String() != "10.10.0.0/24" || !strings.HasSuffix(n.ID(), "28") {
		t.Errorf("the new one: %+v", n)
	}
}

// TestPrune: only what is selected and not declared goes, in an order that references
// allow; without a selection nothing does.
func TestPrune(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	applied(t, w, cloud, nil)
	if _, err := planned(t, w.State, cloud, &documents.Selection{}); !errors.Is(err, documents.ErrPruneAll) {
		t.Errorf("pruning all: %v", err)
	}
	web := &documents.Selection{Labels: map[string]string{"set": "web"}}
	before := w.State.Len()
	kept := cloud[:strings.Index(cloud, "---\nkind: router")]
	if p := applied(t, w, kept, web); verbs(p) != "delete nic, delete router, delete network_pool" {
		t.Errorf("steps: %s", verbs(p))
	}
	p := applied(t, w, "kind: nic_tag\nname: external\nspec: {mtu: 1500}\n", web)
	if verbs(p) != "delete network, delete vm" {
		t.Errorf("steps: %s", verbs(p))
	}
	if w.State.Len() >= before-4 {
		t.Errorf("%d objects of %d are left", w.State.Len(), before)
	}
	// A network that a pool names goes after the pool was changed.
	applied(t, w, cloud+"---\nkind: network\nname: red\nlabels: {set: web}\nspec: {nic_tag: overlay, subnet: 10.6.0.0/24, fabric: true, owner_uuids: [00000000-0000-0000-0000-000000000001]}\n---\nkind: network_pool\nname: both\nspec: {networks: [blue, red]}\n", nil)
	if p := applied(t, w, cloud+"---\nkind: network_pool\nname: both\nspec: {networks: [blue]}\n", web); verbs(p) != "update network_pool, delete network" {
		t.Errorf("steps: %s", verbs(p))
	}
}

// TestProblems: each error names the file, the line, the object, the field, and what to do.
func TestProblems(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	w.Must(`create network_pool {"uuid": "#41#", "name": "twice", "networks": ["#30#"]}`, `create network_pool {"uuid": "#42#", "name": "twice", "networks": ["#30#"]}`)
	w.Must(`create nic {"belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#", "network_uuid": "#31#"}`)
	w.Must(`create network {"uuid": "#80#", "name": "a", "nic_tag": "external", "subnet": "10.9.0.0/24"}`, `create network {"uuid": "#81#", "name": "b", "nic_tag": "external", "subnet": "10.10.0.0/24"}`)
	vm := "00000000-0000-0000-0000-000000000015"
	for _, c := range []struct{ text, want string }{
		{"kind: network\nname: a\nspec:\n  nic_tag: overlay\n  subnte: 10.0.0.0/24\n", `test:5: network "a": subnte: a network has no such field; did you mean subnet?`},
		{"kind: network\nname: a\nspec: {mtu: big}\n", `test:3: network "a": mtu: "big" is no whole number`},
		{"kind: network\nname: a\nspec: {dhcp: yes}\n", `"yes" is neither true nor false`},
		{"kind: network\nname: a\nspec: {gateway_provisioned: true}\n", "documents do not have it"},
		{"kind: network\nname: a\nspec: {name: b}\n", "write it as name beside kind"},
		{"kind: network\nname: a\nspec: {subnet: 10.0.0.0/99}\n", "send a subnet"},
		{"kind: network\nname: a\nspec: {self_provision: maybe}\n", "send one of: off, joined, any"},
		{"kind: nic\nspec: {vm: nobody, network: one}\n", `there is no vm "nobody"`},
		{"kind: nic\nspec: {vm: " + vm + ", network: one, network_uuid: one}\n", "it says the same as network"},
		{"kind: nic\nspec: {vm: " + vm + ", network: one}\n", "2 NICs are of this VM or server and this network; send the mac of one: 00:00:00:00:02:00"},
		{"kind: nic\nspec: {vm: " + vm + ", network: one}\n---\nkind: nic\nspec: {vm: " + vm + ", network: one}\n", "send the mac or the ip of each"},
		{"kind: nic\nspec: {network: twice, vm: " + vm + "}\n", "2 objects are called \"twice\"; send OWNER/NAME, or the UUID of one: 00000000-0000-0000-0000-000000000029"},
		{"kind: nic\nname: a\nspec: {mac: 00:00:00:00:02:00}\n", "a nic has no name"},
		{"kind: nic\nspec: {owner_uuid: " + vm + "}\n", "send the mac, or what it belongs to"},
		{"kind: network_pool\nname: twice\nspec: {networks: [one]}\n", "2 objects have the name; send the uuid of one"},
		{"kind: server\nname: new\nspec: {}\n", "a new server needs one"},
		{"kind: task\nspec: {}\n", "documents do not declare a task: a task is an act"},
		{"kind: setting\nname: cluster.time\nspec: {value: x}\n", "rutter cluster time set"},
		{"kind: grant\nname: reader:x\nlabels: {a: b}\n", "a grant has no labels"},
		{"kind: network\nname: a\noptions: [reserve_ip]\n", "is no option"},
		{"kind: nic_tag\nname: a\n---\nkind: nic_tag\nname: a\n", "another document declares it, at test:1; declare it once"},
		{"kind: nic\nspec: {vm: " + vm + ", network: onee}\n", `there is no network "onee"; did you mean one?`},
		{"kind: nic_tag\nname: outside\nuuid: 00000000-0000-0000-0000-00000000005a\n", `NIC tag "external" has this uuid, and a tag cannot be renamed; use the name external`},
		{"kind: network\nname: b\nuuid: 00000000-0000-0000-0000-000000000050\n---\nkind: network\nname: a\nuuid: 00000000-0000-0000-0000-000000000051\n", "each takes a value that another of them has, which one change cannot do; apply one of them with another name"},
		{"kind: ip\nspec: {network: one}\n", "ip: objects of kind ip are found by it"},
	} {
		if _, err := planned(t, w.State, c.text, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
}

// TestSecretsStay: an export has no metadata of VMs, and its apply leaves them.
func TestSecretsStay(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	w.Must(`update vm #21# {"alias": "web", "properties": "{\"customer_metadata\":{\"k\":\"s\"},\"internal_metadata\":{\"pw\":\"hunter2\"},\"tags\":{\"a\":\"b\"}}"}`)
	var text []byte
	for _, doc := range documents.Export(w.State, documents.Selection{}) {
		text = source.AppendYAML(text, &doc)
	}
	if strings.Contains(string(text), "hunter2") || strings.Contains(string(text), "metadata") || documents.Withheld(w.State, documents.Selection{}) != 1 {
		t.Errorf("secrets in\n%s", text)
	}
	changed := strings.Replace(string(text), "a: b", "a: c", 1)
	if p := applied(t, w, changed, nil); verbs(p) != "update vm" {
		t.Errorf("steps: %s", verbs(p))
	}
	rec, _ := w.State.Get(log.KindVM, "00000000-0000-0000-0000-000000000015")
	if properties := rec.Object.(*log.VM).Properties; !strings.Contains(properties, "hunter2") || !strings.Contains(properties, `"a":"c"`) {
		t.Errorf("properties: %s", properties)
	}
}
