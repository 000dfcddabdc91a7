package vmdoc

import "testing"

func TestUpdated(t *testing.T) {
	for _, c := range []struct{ name, manifest, fields, want string }{
		{"fields", `{"uuid":"a","alias":"x","quota":1}`, `{"alias":"y","quota":null,"ram":2}`, `{"uuid":"a","alias":"y","ram":2}`},
		{"primary", `{"nics":[{"mac":"a","primary":true},{"mac":"B"}]}`, `{"update_nics":[{"mac":"b","primary":true,"interface":"net1"}]}`, `{"nics":[{"mac":"a"},{"mac":"B","primary":true,"interface":"net1"}]}`},
		{"not there", `{"nics":[{"mac":"a"}]}`, `{"update_nics":[{"mac":"b","model":"x"}]}`, `{"nics":[{"mac":"a"}]}`},
		{"added", `{"nics":[{"mac":"a","primary":true}]}`, `{"add_nics":[{"mac":"b","primary":true}]}`, `{"nics":[{"mac":"a"},{"mac":"b","primary":true}]}`},
		{"first", `{}`, `{"add_nics":[{"mac":"b"}]}`, `{"nics":[{"mac":"b"}]}`},
		{"removed", `{"nics":[{"mac":"a","primary":true},{"mac":"b"}]}`, `{"remove_nics":["A"]}`, `{"nics":[{"mac":"b","primary":true}]}`},
		{"all removed", `{"nics":[{"mac":"a"}]}`, `{"remove_nics":["a"]}`, `{"nics":[]}`},
		{"tags", `{"tags":{"a":1,"b":2}}`, `{"set_tags":{"c":3},"remove_tags":["a"]}`, `{"tags":{"b":2,"c":3}}`},
		{"metadata", `{}`, `{"set_customer_metadata":{"k":"v"},"remove_internal_metadata":["x"]}`, `{"customer_metadata":{"k":"v"}}`},
	} {
		manifest, err := ParseValue([]byte(c.manifest))
		if err != nil {
			t.Fatal(err)
		}
		fields, err := ParseValue([]byte(c.fields))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(Updated(manifest, fields).AppendJSON(nil)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
		if again := string(manifest.AppendJSON(nil)); again != c.manifest {
			t.Errorf("%s: the manifest itself became %s", c.name, again)
		}
	}
	for name, want := range map[string]bool{"add_nics": true, "set_tags": true, "remove_routes": true, "nics": false, "set_alias": false} {
		if IsVerb(name) != want {
			t.Errorf("IsVerb(%q) = %v", name, !want)
		}
	}
}
