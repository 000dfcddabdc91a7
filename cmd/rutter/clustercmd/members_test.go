package clustercmd

import (
	"strings"
	"testing"

	"rutter/api/client"
)

// A member is named by its id, its peer port or its host, if that is the host of one.
func TestMemberNamed(t *testing.T) {
	members := []client.Member{
		{ID: "s1", Address: "10.0.0.1:7421"},
		{ID: "s2", Address: "10.0.0.2:7421"},
		{ID: "s3", Address: "[fd00::3]:7421"},
		{ID: "s4", Address: "10.0.0.9:7421"},
		{ID: "s5", Address: "10.0.0.9:7431"},
		{ID: "10.0.0.1", Address: "cn7:7421"},
	}
	for text, want := range map[string]string{
		"s2": "s2", "10.0.0.2": "s2", "10.0.0.2:7421": "s2", "fd00::3": "s3", "[fd00::3]": "s3", "10.0.0.9:7431": "s5", "cn7": "10.0.0.1", "s9": "s9",
	} {
		if got, err := memberNamed(members, text); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %s", text, got, err, want)
		}
	}
	if _, err := memberNamed(members, "10.0.0.9"); err == nil || !strings.Contains(err.Error(), "s4, s5") {
		t.Errorf("the host of two: %v", err)
	}
	if got, err := memberNamed(members[:5], "10.0.0.1"); got != "s1" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
