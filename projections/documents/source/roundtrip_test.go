package source_test

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/documents"
	"rutter/projections/documents/source"
	"rutter/projections/internal/worldtest"
	"rutter/projections/rules"
)

// text is the export of a whole state.
func text(t changetest.Tester, state *projections.State, json bool) []byte {
	t.Helper()
	var b []byte
	for _, doc := range documents.Export(state, documents.Selection{}) {
		if !json {
			b = source.AppendYAML(b, &doc)
			continue
		}
		var err error
		if b, err = source.AppendJSON(b, &doc); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// plan reads documents and makes the plan that brings a state to them.
func plan(t changetest.Tester, state *projections.State, text []byte) *documents.Plan {
	t.Helper()
	docs, err := source.Read("test", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	objects, err := documents.Resolve(state, docs)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	p, err := documents.Diff(state, objects, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// apply makes the change of a plan.
func apply(t changetest.Tester, w *worldtest.World, p *documents.Plan) {
	t.Helper()
	if len(p.Ops) == 0 {
		return
	}
	if result := w.Try(w.Change(p.Ops...)); result.Refusal != nil {
		var last log.Op
		if n := len(result.IDs); n > 0 && n <= len(p.Ops) {
			last = p.Ops[n-1]
		}
		t.Fatalf("%v, at %+v %+v", result.Refusal, last, last.Object)
	}
}

// more draws an operation of the kinds and fields that worldtest leaves out.
func more(t *rapid.T) log.Op {
	pick := func(all ...string) string { return rapid.SampledFrom(all).Draw(t, "pick") }
	switch worldtest.Even(t, 18, "more") {
	case 16, 17:
		return changetest.Op(t, fmt.Sprintf(`update %s {"labels": [%s]}`, pick("network #31#", "vm #21#", "server #11#", "nic 00:00:00:00:01:00", "nic_tag external", "ip #31#:10.0.0.3"), pick(``, `"set=web"`, `"app/x=~", "set=12:30"`)))
	case 0:
		return changetest.Op(t, fmt.Sprintf(`create network_pool {"name": %q, "networks": [%s]}`, pick("pool", "one", "yes"), pick(`"#30#"`, `"#31#"`, `"#32#", "#31#"`, `"#31#", "#33#"`)))
	case 1:
		return changetest.Op(t, fmt.Sprintf(`create router {"name": %q, "networks": [%s]}`, pick("r", "12"), pick(`"#34#", "#31#"`, `"#31#", "#34#"`, `"#34#", "#35#"`)))
	case 2, 3:
		return changetest.Op(t, fmt.Sprintf(`create ip {"network_uuid": "#%d#", "ip": %q, "reserved": %s}`, 30+worldtest.Even(t, 6, "net"), pick("10.0.0.3", "10.0.0.12", "10.1.0.2", "192.168.0.2"), pick("true", "false")))
	case 4:
		return changetest.Op(t, fmt.Sprintf(`create ip {"network_uuid": "#%d#", "ip": %q, "reserved": %s, "belongs_to_type": %q, "belongs_to_uuid": "#2%d#", "owner_uuid": "#1#"}`,
			30+worldtest.Even(t, 6, "net"), pick("10.0.0.4", "10.1.0.2", "192.168.0.1"), pick("true", "false"), pick("zone", "other", "server"), 1+worldtest.Even(t, 3, "vm")))
	case 5:
		return changetest.Op(t, fmt.Sprintf(`create fabric_vlan {"owner_uuid": "#%d#", "vlan_id": %s, "name": "v"}`, 1+worldtest.Even(t, 2, "owner"), pick("0", "4")))
	case 6:
		return changetest.Op(t, fmt.Sprintf(`create aggregation {"name": "aggr0", "macs": [%s]}`, pick(`"00:00:00:00:01:00"`, `"00:00:00:00:01:01"`)))
	case 7:
		return changetest.Op(t, fmt.Sprintf(`update server #1%d# {"hostname": %q, "comments": %q, "traits": %q, "vxlan_port": %s}`, 1+worldtest.Even(t, 3, "cn"),
			pick("cn1", "cn2", "0x10"), pick("", "line\nand: line", "~", "12:30:45"), pick("", `{"ssd":true,"n":1.50,"deep":{"a":[1,null,"2"]}}`), pick("0", "4790")))
	case 8, 9:
		return changetest.Op(t, fmt.Sprintf(`update vm #2%d# {"alias": %q, "properties": %q, "quota": 10}`, 1+worldtest.Even(t, 3, "vm"),
			pick("web", "web", "a/b", "00000000-0000-0000-0000-000000000021"), pick("", `{"tags":{"a":"b"}}`, `{"internal_metadata":{"pw":"secret"},"disks":[]}`)))
	case 10:
		return changetest.Op(t, fmt.Sprintf(`create setting {"name": "napi.network_immutable", "value": %q}`, pick("false", "true")))
	case 11:
		return changetest.Op(t, fmt.Sprintf(`create grant {"subject": %q, "owner_uuids": ["#2#", "#1#"]}`, pick("reader:a", "reader:b")))
	case 12, 13:
		return changetest.Op(t, fmt.Sprintf(`update network #3%d# {"name": %q, "routes": {%s}, "resolvers": [%s], "dhcp": %s, "description": "x #y"}`, worldtest.Even(t, 6, "net"),
			pick("n", "blue", "on"), pick(``, `"10.9.0.0/16": "10.0.0.2"`, `"10.8.0.1": "linklocal"`), pick(``, `"10.0.0.9", "8.8.8.8"`), pick("true", "false")))
	case 14:
		op := changetest.Op(t, fmt.Sprintf(`create nic {"belongs_to_type": "zone", "belongs_to_uuid": "#2%d#", "owner_uuid": "#7#", "network_uuid": "#3%d#", "allowed_ips": ["10.7.0.1"]}`, 1+worldtest.Even(t, 3, "vm"), worldtest.Even(t, 6, "net")))
		op.Options = []log.Option{log.OptionAnyOwner}
		return op
	default:
		return changetest.Op(t, fmt.Sprintf(`create nic {"belongs_to_type": "other", "belongs_to_uuid": "#77#", "owner_uuid": "#1#", "nic_tag": "one", "vlan_id": %s}`, pick("0", "5")))
	}
}

// TestExportIsWhatThereIs: for random states, a plan of the export has nothing to do, in
// YAML as in JSON; and where the state is empty, its apply makes a state whose export has
// the same bytes.
func TestExportIsWhatThereIs(t *testing.T) {
	documented := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := worldtest.Settled(rt, rules.Decide)
		w.Must(`create network {"uuid": "#34#", "name": "two", "nic_tag": "overlay", "subnet": "10.1.0.0/24", "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10}`)
		w.Must(`create network {"uuid": "#35#", "name": "one", "nic_tag": "overlay", "subnet": "10.2.0.0/24", "owner_uuids": ["#2#"], "fabric": true, "vnet_id": 20}`)
		for range 1 + worldtest.Even(rt, 40, "changes") {
			op := worldtest.DrawOp
			if worldtest.Even(rt, 2, "more") > 0 {
				op = more
			}
			w.Try(w.Change(op(rt)))
		}
		exported := text(rt, w.State, false)
		for _, form := range [][]byte{exported, text(rt, w.State, true)} {
			p := plan(rt, w.State, form)
			for _, s := range p.Steps {
				rt.Fatalf("%s %s %s: %+v\nis\n%+v\n%s", s.Verb, s.Kind, s.ID, s.Before, s.After, form)
			}
			documented += len(p.Same)
		}
		empty := worldtest.New(rt, rules.Decide)
		apply(rt, empty, plan(rt, empty.State, exported))
		if again := text(rt, empty.State, false); !bytes.Equal(again, exported) {
			rt.Fatalf("exported\n%s\nafter an apply elsewhere\n%s", exported, again)
		}
		if p := plan(rt, empty.State, exported); len(p.Ops) != 0 {
			rt.Fatalf("a second apply would do %+v", p.Ops)
		}
	})
	if documented == 0 {
		t.Error("no document was written: the test sees nothing")
	}
}
