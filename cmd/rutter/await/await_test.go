package await

import (
	"strings"
	"testing"

	"rutter/api/client"
)

// TestVerdictNamesObjects: what is printed names each object that a compute node lacks, with
// its cause, and what is not there because a VM is not to run.
func TestVerdictNamesObjects(t *testing.T) {
	absent := client.Waiting{Object: "fabric link of 02:00:00:00:00:03: its VM is not to run"}
	absent.CN[0] = 1
	cn := absent.CN
	v := client.Verdict{Seq: 7, CNs: 2, Total: 1, Missing: []client.Laggard{{
		CN: cn, Reason: "its kernel lacks vxlan sdcvxl7: file exists, and 2 more", Waiting: 3,
		Objects: []client.Waiting{{Object: "vxlan sdcvxl7: file exists"}, {Object: "fabric link of 02:00:00:00:00:01: no such network namespace"}},
	}}, Absent: []client.Waiting{absent}, AbsentTotal: 3}
	var out strings.Builder
	PrintVerdict(&out, v)
	for _, want := range []string{"sdcvxl7: file exists, and 2 more", cn.String() + ": fabric link of 02:00:00:00:00:01: no such", cn.String() + ": and 1 more", "not there yet: CN " + cn.String() + ": " + absent.Object, "not there yet: 2 more"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", out.String(), want)
		}
	}
	out.Reset()
	v.Done, v.Missing, v.Total = true, nil, 0
	if PrintVerdict(&out, v); !strings.Contains(out.String(), "is programmed on all 2") || !strings.Contains(out.String(), absent.Object) {
		t.Errorf("done: %q", out.String())
	}
}
