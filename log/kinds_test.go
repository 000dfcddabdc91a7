package log

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// tags are the JSON names of a struct's fields, in their order.
func tags(o Object) (names []string) {
	t := reflect.TypeOf(o).Elem()
	for i := range t.NumField() {
		if f := t.Field(i); !f.Anonymous {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

// The table has each kind at its number, with each field of its struct in the
// struct's order.
func TestTableOfKinds(t *testing.T) {
	for _, kind := range Kinds() {
		o := NewObject(kind)
		if o.Kind() != kind || kinds[kind].Name != kind.String() {
			t.Errorf("%s stands at the place of %s (%s)", o.Kind(), kind, kinds[kind].Name)
		}
		if got, want := FieldNames(kind), tags(o); !slices.Equal(got, want) {
			t.Errorf("%s: the fields are\n%q\nand the struct has\n%q", kind, got, want)
		}
	}
}

// What the table says of a kind's fields names fields that there are.
func TestDescriptionsNameFields(t *testing.T) {
	for _, kind := range Kinds() {
		d, names := kind.Describe(), FieldNames(kind)
		if d.Noun == "" || d.Title == "" || d.IDField == "" {
			t.Errorf("%s: noun %q, title %q, id %q: want all of them", kind, d.Noun, d.Title, d.IDField)
		}
		of := map[string][]string{"immutable": d.Immutable, "filters": d.Filters}
		if d.TenantField != "" {
			of["tenant"] = []string{d.TenantField}
		}
		if d.CN != nil {
			of["create"], of["update"] = d.CN.Create, d.CN.Update
			if d.CN.Why == "" || !slices.IsSorted(d.CN.Create) || !slices.IsSorted(d.CN.Update) {
				t.Errorf("%s: the rights of a compute node are not sorted, or do not say why", kind)
			}
		}
		for _, c := range d.Command.Columns {
			of["columns"] = append(of["columns"], c.Field)
		}
		for what, fields := range of {
			for _, name := range fields {
				if !slices.Contains(names, name) {
					t.Errorf("%s: %s has %q, which is no field", kind, what, name)
				}
			}
		}
		if d.Command.Name != "" && (d.Path == "" || len(d.Command.Columns) == 0 || d.Command.Usage == "" || d.Command.Example == Example{}) {
			t.Errorf("%s: the command %s wants a path, columns, a usage and an example", kind, d.Command.Name)
		}
	}
}

func TestFieldHas(t *testing.T) {
	network := &Network{
		UUID: mustUUID("0e70de36-a40b-4ac0-9429-819f5ff822bd"), Name: "blue", VLANID: 7, Fabric: true,
		OwnerUUIDs: []UUID{mustUUID("930896af-bf8c-48d4-885c-6573a94b1853")}, Resolvers: Addresses{},
	}
	for _, have := range [][2]string{
		{"uuid", "0e70de36-a40b-4ac0-9429-819f5ff822bd"},
		{"name", "blue"},
		{"vlan_id", "7"},
		{"fabric", "true"},
		{"owner_uuids", "930896af-bf8c-48d4-885c-6573a94b1853"},
		{"gateway", "invalid IP"},
	} {
		if !FieldHas(network, have[0], have[1]) {
			t.Errorf("%s has not %s", have[0], have[1])
		}
		if FieldHas(network, have[0], have[1]+"0") || FieldHas(network, "no_field", have[1]) {
			t.Errorf("%s has what it has not", have[0])
		}
	}
}

func TestCompareIsTheOrderOfTexts(t *testing.T) {
	a, b := mustUUID("0e70de36-a40b-4ac0-9429-819f5ff822bd"), mustUUID("930896af-bf8c-48d4-885c-6573a94b1853")
	m, n := mustMAC("90:b8:d0:01:02:03"), mustMAC("a0:00:00:00:00:00")
	if a.Compare(b) != -1 || b.Compare(a) != 1 || a.Compare(a) != 0 || m.Compare(n) != -1 || n.Compare(m) != 1 || m.Compare(m) != 0 {
		t.Error("UUIDs or MACs are not in the order of their texts")
	}
}

// What stands in for an example is filled in every field, and survives the codec.
func TestFilledObjects(t *testing.T) {
	for _, kind := range Kinds() {
		o := filled(t, kind)
		for _, s := range slots(o) {
			if value := s.value(); value == nil || value == false || value == uint64(0) {
				t.Errorf("%s: the field %s is empty", kind, s.name)
			}
		}
		b, err := NewEncoder().Object(o)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeObject(kind, o.ID(), b); err != nil || !Equal(back, o) {
			t.Errorf("%s: %+v, %v, want %+v", kind, back, err, o)
		}
	}
}
