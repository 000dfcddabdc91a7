package vmobject

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

// anyValue draws a JSON value of a property.
func anyValue(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		switch n := rapid.IntRange(0, 6).Draw(t, "what"); {
		case n == 0:
			return rapid.Bool().Draw(t, "bool")
		case n == 1:
			return json.Number(fmt.Sprint(rapid.Int64().Draw(t, "number")))
		case n == 2:
			return json.Number(fmt.Sprint(rapid.Float64Range(-9, 9).Draw(t, "fraction")))
		case n == 3 && depth > 0:
			return Object(rapid.MapOfN(rapid.String(), anyValue(depth-1), 0, 3).Draw(t, "object"))
		case n == 4 && depth > 0:
			return rapid.SliceOfN(anyValue(depth-1), 0, 3).Draw(t, "list")
		case n == 5:
			return nil
		default:
			return rapid.String().Draw(t, "text")
		}
	})
}

// object draws an object of VMAPI or vmadm: typed fields, fields that VMAPI always
// shows, and others.
func object() *rapid.Generator[Object] {
	return rapid.Custom(func(t *rapid.T) Object {
		o := Object{}
		for _, name := range slices.Concat(Always(), []string{"vcpus", "disks", "pid", "docker", "zoneid", "dns_domain", "resolvers", "<&>"}) {
			if rapid.Bool().Draw(t, name) && !slices.Contains(typed, name) && name != "destroyed" {
				o[name] = anyValue(2).Draw(t, "value of "+name)
			}
		}
		some := func(name string, g *rapid.Generator[any]) {
			if rapid.Bool().Draw(t, name) {
				o[name] = g.Draw(t, "value of "+name)
			}
		}
		id := rapid.SampledFrom([]any{nil, "5595d88c-6e4d-4bda-b58e-97dd02e30001", "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"})
		number := rapid.Custom(func(t *rapid.T) any {
			return rapid.SampledFrom([]any{nil, json.Number("0"), json.Number("512"), json.Number("1.5"), json.Number("-1"), "350"}).Draw(t, "number")
		})
		at := rapid.Custom(func(t *rapid.T) any {
			ms := rapid.Int64Range(1, 4e12).Draw(t, "ms")
			return rapid.SampledFrom([]any{nil, json.Number(fmt.Sprint(ms)), fmt.Sprint(ms), log.Time(ms * 1e6).String()}).Draw(t, "form")
		})
		for _, name := range []string{"uuid", "owner_uuid", "server_uuid", "image_uuid"} {
			some(name, id)
		}
		for _, name := range []string{"quota", "cpu_cap", "max_physical_memory", "ram"} {
			some(name, number)
		}
		for _, name := range []string{"create_timestamp", "last_modified", "destroyed"} {
			some(name, at)
		}
		for _, name := range []string{"alias", "brand", "state", "zone_state", "zonename"} {
			some(name, rapid.SampledFrom([]any{nil, "", "kvm", "bhyve", "joyent", "running", json.Number("3")}))
		}
		some("do_not_inventory", rapid.SampledFrom([]any{true, false}))
		return o
	})
}

func textOf(t *rapid.T, o Object) string {
	text, err := Text(o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRoundTrip: what Show makes of what Take took is taken to the same VM, and shown the
// same again; and each field of the object is shown as it was, unless the log has it
// elsewhere or it says nothing.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := object().Draw(t, "object")
		vm, _, err := Take([]byte(textOf(t, given)))
		if err != nil {
			t.Fatalf("%v: %v", given, err)
		}
		shown := Show(vm)
		again, _, err := Take([]byte(textOf(t, shown)))
		if err != nil {
			t.Fatal(err)
		}
		if again.Properties != vm.Properties || textOf(t, Show(again)) != textOf(t, shown) {
			t.Fatalf("not the same:\n%s\n%s", textOf(t, shown), textOf(t, Show(again)))
		}
		for _, name := range Always() {
			if _, has := shown[name]; !has && (name != "image_uuid" || !hvm(vm.Brand)) {
				t.Fatalf("%s is not shown", name)
			}
		}
		for name, value := range given {
			if value == nil || value == "" || slices.Contains(elsewhere, name) || name == "do_not_inventory" && value == false {
				continue
			}
			if at, isTime := moment(value); isTime && slices.Contains([]string{"create_timestamp", "last_modified", "destroyed"}, name) {
				value = at.String()
			}
			if got := shown[name]; textOf(t, Object{"": got}) != textOf(t, Object{"": value}) {
				t.Fatalf("%s: %v is shown as %v", name, value, got)
			}
		}
	})
}

// TestTake: what cannot be is refused, and what the log has elsewhere is not taken.
func TestTake(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                           "no JSON object",
		`null`:                         "it is null",
		`{} {}`:                        "text follows",
		`{"owner_uuid":"me"}`:          "owner_uuid",
		`{"server_uuid":3}`:            "server_uuid",
		`{"last_modified":"tomorrow"}`: "last_modified",
	} {
		if _, _, err := Take([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want … %s", text, err, want)
		}
	}
	vm, set, err := Take([]byte(`{"zoneid":7,"v":1,"resolvers":["8.8.8.8"],"routes":{},"tags":{},"snapshots":[],"firewall_enabled":false,
		"nics":[{"mac":"90:b8:d0:1:2:3"},{"mac":"90:b8:d0:01:02:03","ip":"10.0.0.5","netmask":"255.0.0.0","interface":"net0","kernel_ips":["10.0.0.5/24"],"x":null}],
		"ram":1024,"max_physical_memory":1024,"quota":0,"destroyed":1448150400000,"role_tags":[]}`))
	const want = `{"destroyed":"2015-11-22T00:00:00.000Z","nic_extras":{"90:b8:d0:01:02:03":{"interface":"net0"}},"quota":0}`
	if err != nil || vm.Properties != want || strings.Join(set, " ") != "max_physical_memory properties quota" {
		t.Errorf("got %s, %v, %v, want %s", vm.Properties, set, err, want)
	}
}

// TestReplace: a whole object clears what it does not have, and keeps what no such object
// names: role tags, the time of creation, the name of the zone.
func TestReplace(t *testing.T) {
	read := func(text string) (*log.VM, []string) {
		vm, set, err := Take([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return vm, set
	}
	before, _ := read(`{"uuid":"5595d88c-6e4d-4bda-b58e-97dd02e30001","owner_uuid":"564d69b1-a178-4fbe-b36f-3f2b7fd7ed01","alias":"a","quota":10,"cpu_cap":100,
		"state":"running","zonename":"z","create_timestamp":"2020-01-01T00:00:00.000Z","role_tags":["564d69b1-a178-4fbe-b36f-3f2b7fd7ed02"],"tags":{"a":1},"do_not_inventory":true}`)
	taken, set := read(`{"uuid":"5595d88c-6e4d-4bda-b58e-97dd02e30001","alias":"b","quota":10,"cpu_cap":null,"state":"stopped","create_timestamp":null,"tags":{"b":true}}`)
	after, changed, err := Replace(before, taken, set)
	if err != nil || strings.Join(changed, " ") != "alias cpu_cap properties state" {
		t.Errorf("changed: %v, %v", changed, err)
	}
	if after.Zonename != "z" || after.OwnerUUID != before.OwnerUUID || after.CreateTimestamp != before.CreateTimestamp || !after.DoNotInventory ||
		after.Properties != `{"role_tags":["564d69b1-a178-4fbe-b36f-3f2b7fd7ed02"],"tags":{"b":true}}` {
		t.Errorf("got %+v", after)
	}
	shown := Show(before)
	text, _ := Text(shown)
	taken, set = read(text)
	if _, changed, err = Replace(before, taken, set); err != nil || len(changed) > 0 {
		t.Errorf("the same object again changed %v, %v", changed, err)
	}
}

// TestBound: what is too large is left out, the largest part first, and named; the
// properties that were given stay as they were.
func TestBound(t *testing.T) {
	properties := Object{
		"tags":              Object{"role": "web"},
		"customer_metadata": Object{"user-script": strings.Repeat("x", 5000), "a": strings.Repeat("y", 300)},
		"disks":             []any{strings.Repeat("z", 2000)},
		RoleTags:            []any{"t"},
	}
	whole, _ := Text(properties)
	for most, want := range map[int]string{
		len(whole): "",
		4000:       "customer_metadata.user-script",
		1000:       "customer_metadata.user-script disks",
		230:        "customer_metadata.user-script disks customer_metadata",
	} {
		text, left, err := Bound(properties, most)
		if err != nil || len(text) > most || text == "" || strings.Join(left, " ") != want {
			t.Errorf("%d: %d bytes without %v, %v, want without %s", most, len(text), left, err, want)
		}
		if want != "" && !strings.Contains(text, `"`+LeftOut+`":["customer_metadata.user-script"`) {
			t.Errorf("%d: %s does not name what is left out", most, text)
		}
	}
	if again, _ := Text(properties); again != whole {
		t.Errorf("the properties were changed: %s", again)
	}
}

// TestCreated: VMAPI's record of a VM that is being made has a time of its own, and the
// node's reports have another, which is shown from then on; the same report again changes
// nothing, so that an agent that compares at its start has nothing to send.
func TestCreated(t *testing.T) {
	take := func(at string) (*log.VM, []string) {
		vm, set, err := Take([]byte(`{"uuid":"5595d88c-6e4d-4bda-b58e-97dd02e30001","state":"running","create_timestamp":"` + at + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		return vm, set
	}
	vm, _ := take("2020-01-01T00:00:00.000Z")
	for _, c := range []struct{ at, changed string }{
		{"2020-01-01T00:00:00.000Z", ""},
		{"2020-01-01T00:00:09.000Z", "properties"},
		{"2020-01-01T00:00:09.000Z", ""},
		{"2020-01-01T00:00:00.000Z", "properties"},
	} {
		taken, set := take(c.at)
		after, changed, err := Replace(vm, taken, set)
		if err != nil || strings.Join(changed, " ") != c.changed || Show(after)["create_timestamp"] != c.at || after.CreateTimestamp != vm.CreateTimestamp {
			t.Errorf("%s: %v changed, %v; it shows %v", c.at, changed, err, Show(after)["create_timestamp"])
		}
		vm = after
	}
	if vm.Properties != "" {
		t.Errorf("the log's own time is kept twice: %s", vm.Properties)
	}
}

// TestReplaceIsBounded: role tags, which no report has, and a report that fills the
// properties have room together, and what is left out is named with what was before.
func TestReplaceIsBounded(t *testing.T) {
	tags := make([]any, 1000)
	for i := range tags {
		tags[i] = fmt.Sprintf("564d69b1-a178-4fbe-b36f-%012d", i)
	}
	text, _ := Text(Object{RoleTags: tags})
	full, _ := Text(Object{"customer_metadata": Object{"a": strings.Repeat("x", log.MaxProperties-8<<10), "b": "y"}, LeftOut: []any{"tags.large"}})
	after, _, err := Replace(&log.VM{Properties: text}, &log.VM{Properties: full}, []string{"properties"})
	if err != nil || len(after.Properties) > log.MaxProperties || len(RoleTagsOf(after)) != len(tags) || !strings.Contains(after.Properties, `"rutter_left_out":["tags.large","customer_metadata.a"]`) || !strings.Contains(after.Properties, `"b":"y"`) {
		t.Errorf("%d bytes, %d tags, %v", len(after.Properties), len(RoleTagsOf(after)), err)
	}
}
