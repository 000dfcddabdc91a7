package plan

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"rutter/agent/link/internal/linktest"
)

func TestNumbersRefuse(t *testing.T) {
	for _, text := range []string{
		`{"02:00:00:00:00:01":{"n":1},"02:00:00:00:00:02":{"n":1}}`,
		`{"02:00:00:00:00:01":{"n":1000000000}}`,
		`{"02":{"n":1}}`,
		`[]`,
	} {
		var n Numbers
		if err := json.Unmarshal([]byte(text), &n); err == nil || len(n.MACs()) != 0 {
			t.Errorf("%s: got %v, want an error", text, n.MACs())
		}
	}
}

func TestNumbersRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var n Numbers
		for range rapid.IntRange(0, 30).Draw(t, "operations") {
			m := linktest.MAC(rapid.IntRange(1, 6).Draw(t, "mac"))
			switch rapid.IntRange(0, 3).Draw(t, "operation") {
			case 0:
				n.Assign(m, func(number uint32) bool { return number == 2 })
			case 1:
				n.Release(m)
			case 2:
				n.Adopt(m, rapid.Uint32Range(0, 5).Draw(t, "number"))
			case 3:
				n.Put(m, "z1")
			}
			for _, m := range n.MACs() {
				number, _ := n.Lookup(m)
				if owner, ok := n.Owner(number); !ok || owner != m {
					t.Fatalf("owner of %d: got %s, want %s", number, owner, m)
				}
			}
		}
		text, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		var read Numbers
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		if again, _ := json.Marshal(read); string(again) != string(text) {
			t.Fatalf("read back: got %s, want %s", again, text)
		}
	})
}

func TestKindOfName(t *testing.T) {
	tests := map[string]string{
		"sdcvxl0": KindVXLAN, "sdcvxl16777215": KindVXLAN, "sdcvxl16777216": "", "sdcvxl": "", "sdcvxl05": "", "sdcvxl-1": "",
		"vx5v7": KindVLAN, "vx5v0": "", "vx5v4095": "", "vx16777215v4094": KindVLAN, "vx5": "", "vxlan0": "",
		"fabric0": KindMacvlan, "fabric999999999": KindMacvlan, "fabric": "", "fabric01": "", "fabric1x": "", "eth0": "",
	}
	for name, want := range tests {
		if got := KindOfName(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
