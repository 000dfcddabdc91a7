package main

import (
	"strings"
	"testing"

	"rutter/cmd/rutter/term"
)

// Flags and arguments of rutter vm that make no sense: exit code 2, and what to do.
func TestVMWrongUsage(t *testing.T) {
	const uuid = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"
	for _, test := range []struct{ args, want string }{
		{"vm start", "want one VM"},
		{"vm stop " + uuid + " --wait=everywhere", "want here, cluster or fabric"},
		{"vm create alias=web0", "owner_uuid is missing"},
		{"vm create alias", "want FIELD=VALUE"},
		{"vm create owner_uuid=" + uuid + " state=running", "is what the system says"},
		{"vm create owner_uuid=" + uuid + " uuid=1", "uuid: "},
		{"vm create -f x.json alias=a", "exclude each other"},
		{"vm create -f vmctl_test.go", "want a JSON object"},
		{"vm update", "want one VM"},
		{"vm update " + uuid, "no fields"},
		{"vm update " + uuid + " uuid=" + uuid, "keeps its UUID"},
		{"vm get", "want one VM"},
		{"vm list web0", "want FIELD=VALUE"},
		{"vm lookup nonsense=1", "is no field of a VM in the log: they are uuid"},
		{"vmm show", "the id is missing"},
		{"vmm history", "want the id of one VMM"},
	} {
		t.Run(test.args, func(t *testing.T) {
			code, _, stderr := rutter(t, strings.Fields(test.args)...)
			if code != term.ExitUsage || !strings.Contains(stderr, test.want) {
				t.Errorf("exit code %d, want %d; it said %q, want %q in it", code, term.ExitUsage, stderr, test.want)
			}
		})
	}
}

func TestVMWithoutVminfod(t *testing.T) {
	code, _, stderr := rutter(t, "vm", "list", "--address", "127.0.0.1:1")
	if code != term.ExitNoReply || !strings.Contains(stderr, "no vminfod answers at 127.0.0.1:1") || !strings.Contains(stderr, "--address names another)\n") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}
