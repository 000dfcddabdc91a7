package vmcmd

import (
	"net/url"
	"testing"

	"rutter/agent/vminfo"
)

// What a command on a VM wants to see of it.
func TestHasFields(t *testing.T) {
	vm := func(text string) vminfo.Value {
		v, err := vminfo.ParseValue([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, test := range []struct {
		fields string
		want   bool
	}{
		{`{"quota":10}`, true},
		{`{"quota":11}`, false},
		{`{"quota":"10"}`, false},
		{`{"alias":null}`, false},
		{`{"gone":null}`, true},
		{`{"gone":1}`, false},
		{`{"nics":[]}`, true},
		{`{"tags":{"a":1}}`, true},
	} {
		if got := hasFields(vm(`{"quota":10,"alias":"web0","tags":{"a":1},"nics":[{}]}`), vm(test.fields)); got != test.want {
			t.Errorf("%s: got %t", test.fields, got)
		}
	}
}

func TestVMMatches(t *testing.T) {
	vm := map[string]any{"alias": "web12", "quota": float64(10), "state": "running"}
	for query, want := range map[string]bool{
		"": true, "alias=web12": true, "alias=web1": false, "alias=~web*": true, "alias=~*12": true, "alias=~*b*2": true, "alias=~w": false,
		"quota=10": true, "quota=1": false, "alias=~web*&state=stopped": false, "none=x": false, "none=-": true,
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got := matches(vm, q); got != want {
			t.Errorf("%s: got %t", query, got)
		}
	}
}
