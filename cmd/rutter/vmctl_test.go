package main

import (
	"net/url"
	"strings"
	"testing"

	"rutter/agent/vminfo/vmdoc"
)

// Flags and arguments of rutter vm that make no sense: exit code 2, and what to do.
func TestVMWrongUsage(t *testing.T) {
	const uuid = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"
	for _, test := range []struct{ args, want string }{
		{"vm start", "want the UUID of one VM"},
		{"vm start web0", "want 36 characters"},
		{"vm stop " + uuid + " --wait=everywhere", "want here, cluster or fabric"},
		{"vm create alias=web0", "owner_uuid is missing"},
		{"vm create alias", "want FIELD=VALUE"},
		{"vm create owner_uuid=" + uuid + " state=running", "is what the system says"},
		{"vm create owner_uuid=" + uuid + " uuid=1", "uuid: "},
		{"vm create -f x.json alias=a", "exclude each other"},
		{"vm create -f vmctl_test.go", "want a JSON object"},
		{"vm update", "want the UUID of one VM and FIELD=VALUE"},
		{"vm update " + uuid, "no fields"},
		{"vm update " + uuid + " uuid=" + uuid, "keeps its UUID"},
		{"vm get", "want the UUID of one VM"},
		{"vm list web0", "want FIELD=VALUE"},
		{"vm lookup nonsense=1", "is no field of a VM in the log: they are uuid"},
		{"vmm show", "the id is missing"},
		{"vmm history", "want the id of one VMM"},
		{"vmm history web0", "want 36 characters"},
	} {
		t.Run(test.args, func(t *testing.T) {
			code, _, stderr := rutter(t, strings.Fields(test.args)...)
			if code != exitUsage || !strings.Contains(stderr, test.want) {
				t.Errorf("exit code %d, want %d; it said %q, want %q in it", code, exitUsage, stderr, test.want)
			}
		})
	}
}

func TestVMWithoutVminfod(t *testing.T) {
	code, _, stderr := rutter(t, "vm", "list", "--address", "127.0.0.1:1")
	if code != exitNoReply || !strings.Contains(stderr, "no vminfod answers at 127.0.0.1:1") || !strings.Contains(stderr, "--address names another)\n") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

// What a command on a VM wants to see of it.
func TestHasFields(t *testing.T) {
	vm := func(text string) vmdoc.Value {
		v, err := vmdoc.ParseValue([]byte(text))
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
