package log

import (
	"slices"
	"testing"
)

// TestFieldsOfLaterVersions: an object is encoded up to the last feature version of which
// it has something, with all fields of the versions before; and what a program of an
// earlier version finds behind the fields that it knows is what Measure says of it.
func TestFieldsOfLaterVersions(t *testing.T) {
	t.Parallel()
	several := 0
	for _, kind := range Kinds() {
		names, full := FieldNames(kind), filled(t, kind)
		versions := 0
		for v := range uint32(FeatureVersion) {
			if len(kind.FieldsAfter(v)) > len(kind.FieldsAfter(v+1)) {
				versions++
			}
		}
		if versions > 1 {
			several++
		}
		if len(kind.FieldsAfter(FeatureVersion)) > 0 {
			t.Errorf("%s has fields of a version that is not known: %v", kind, kind.FieldsAfter(FeatureVersion))
		}
		for place, name := range names {
			o := NewObject(kind)
			Assign(o, full, []string{name})
			b, err := NewEncoder().Object(o)
			if err != nil {
				t.Fatal(err)
			}
			u := unpacker{b[1:]}
			written, err := u.arrayLen()
			if err != nil {
				t.Fatal(err)
			}
			at := uint32(FeatureFirst) // the version that brought the field
			for slices.Contains(kind.FieldsAfter(at), name) {
				at++
			}
			if want := len(names) - len(kind.FieldsAfter(at)); written != want || place >= written {
				t.Errorf("%s with %s, of version %d: %d fields are written, want %d", kind, name, at, written, want)
			}
			starts := make([]int, written+1) // how many bytes stand from each field on
			for i := range written {
				starts[i] = len(u.b)
				if _, err := u.skip(); err != nil {
					t.Fatal(err)
				}
			}
			for v := uint32(FeatureFirst); v <= FeatureVersion; v++ {
				known := len(names) - len(kind.FieldsAfter(v))
				if got, want := Measure(o, v).Unknown, starts[min(known, written)]; got != want {
					t.Errorf("%s with %s: a program of version %d has %d bytes of fields that it does not know, want %d", kind, name, v, got, want)
				}
			}
			back, err := DecodeObject(kind, o.ID(), b)
			if err != nil || !Equal(back, o) || HasUnknownFields(back) {
				t.Errorf("%s with %s: decoded %+v, %v", kind, name, back, err)
			}
		}
	}
	if several < 2 {
		t.Errorf("%d kinds have fields of several later versions", several)
	}
}
