package log

import (
	"slices"
	"strings"
	"testing"
)

// TestFieldDocs: each field of each kind says what it is, and each row is of a field.
func TestFieldDocs(t *testing.T) {
	for _, kind := range Kinds() {
		docs := FieldDocs(kind)
		var names []string
		for _, d := range docs {
			names = append(names, d.Name)
			if !strings.HasSuffix(d.Text, ".") || strings.Contains(strings.TrimSuffix(d.Text, "."), ". ") || len(d.Text) > 160 {
				t.Errorf("%s.%s: want one sentence in the docs of its row in the table of kinds, got %q", kind, d.Name, d.Text)
			}
			if d.JSON && d.Type != TypeText {
				t.Errorf("%s.%s: only texts hold JSON", kind, d.Name)
			}
			if d.By != SetByPeople && d.Default != "" {
				t.Errorf("%s.%s: a default of what people do not set", kind, d.Name)
			}
			if d.Refers != 0 && !d.Refers.Known() {
				t.Errorf("%s.%s refers to objects of %s", kind, d.Name, d.Refers)
			}
		}
		if !slices.Equal(names, FieldNames(kind)) {
			t.Errorf("%s: fields %q, want %q", kind, names, FieldNames(kind))
		}
		for _, d := range kind.row().docs {
			if n := len(slices.DeleteFunc(slices.Clone(kind.row().docs), func(o FieldDoc) bool { return o.Name != d.Name })); n != 1 || !slices.Contains(names, d.Name) {
				t.Errorf("%s: %d rows are about %q, which must be one, of a field", kind, n, d.Name)
			}
		}
	}
}

// TestFieldDocsFollow: what follows from the table of kinds is in the docs of its fields.
func TestFieldDocsFollow(t *testing.T) {
	field := func(kind Kind, name string) FieldDoc {
		docs := FieldDocs(kind)
		i := slices.IndexFunc(docs, func(d FieldDoc) bool { return d.Name == name })
		if i < 0 {
			t.Fatalf("%s has no field %s", kind, name)
		}
		return docs[i]
	}
	if d := field(KindNetwork, "subnet"); d.Type != TypeSubnet || !d.Immutable || d.Since != FeatureFirst {
		t.Errorf("network.subnet: %+v", d)
	}
	if d := field(KindNetwork, "self_provision"); d.Since != FeatureConfined || d.Immutable {
		t.Errorf("network.self_provision: %+v", d)
	}
	if d := field(KindNetwork, "dhcp"); d.Since != FeatureWire {
		t.Errorf("network.dhcp: %+v", d)
	}
	if d := field(KindVM, "owner_uuid"); !d.Required {
		t.Errorf("vm.owner_uuid: %+v", d)
	}
	if of, list := field(KindAggregation, "macs").Type.Element(); of != TypeMAC || !list {
		t.Errorf("aggregation.macs: %v, %v", of, list)
	}
}
