package plan

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rutter/agent/link/internal/linktest"
	"rutter/log"
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

// TestNumbersOfVersions: numbers of versions without marks are read, those versions read
// ours, and what they save makes this version adopt their links again.
func TestNumbersOfVersions(t *testing.T) {
	const old = `{"02:00:00:00:00:01":{"n":7,"namespaces":["z1"]}}`
	var n Numbers
	if err := json.Unmarshal([]byte(old), &n); err != nil || n.Marked() || !n.Cluster().IsZero() {
		t.Fatalf("read: %v, marked %v, cluster %s", err, n.Marked(), n.Cluster())
	}
	for i := range byte(6) {
		if !n.Follow(log.UUID{15: i + 1}) || n.Follow(log.UUID{15: i + 1}) {
			t.Fatal("a cluster is followed once")
		}
	}
	if !n.SetMarked() || n.SetMarked() {
		t.Error("marked: it is new once")
	}
	text, err := json.Marshal(n)
	const written = `{"00:00:00:00:00:00":{"n":999999999,"namespaces":null,"clusters":[` +
		`"00000000-0000-0000-0000-000000000006","00000000-0000-0000-0000-000000000005","00000000-0000-0000-0000-000000000004","00000000-0000-0000-0000-000000000003"],"marked":true},` +
		`"02:00:00:00:00:01":{"n":7,"namespaces":["z1"]}}`
	if err != nil || string(text) != written {
		t.Fatalf("written: %s, %v, want\n%s", text, err, written)
	}
	var read Numbers
	if err := json.Unmarshal(text, &read); err != nil || !read.Marked() || !slices.Equal(read.clusters, n.clusters) || len(read.MACs()) != 1 {
		t.Errorf("read again: %v, %+v", err, read)
	}
	// What a version without marks makes of it: each number once, below a billion.
	var entries map[log.MAC]struct {
		N          uint32   `json:"n"`
		Namespaces []string `json:"namespaces"`
	}
	if err := json.Unmarshal(text, &entries); err != nil || len(entries) != 2 || entries[log.MAC{}].N > 999_999_999 {
		t.Fatalf("an older version: %v, %v", entries, err)
	}
	delete(entries, log.MAC{}) // its NIC is not wanted, and has no link
	text, _ = json.Marshal(entries)
	var again Numbers
	if err := json.Unmarshal(text, &again); err != nil || again.Marked() || string(text) != old {
		t.Errorf("after an older version: %s, marked %v, %v", text, again.Marked(), err)
	}
	if with, changed := n.With([]log.UUID{{15: 9}}); changed || with.isMine(log.UUID{15: 9}) {
		t.Errorf("a cluster beyond %d", maxClusters)
	}
}

func TestMarks(t *testing.T) {
	cluster := log.UUID{1, 2, 3}
	mark := Mark{Cluster: cluster, Object: "nic " + linktest.MAC(3).String()}
	if got, ok := ParseMark(mark.String()); !ok || got != mark || got.nic() != linktest.MAC(3) {
		t.Errorf("%s: read as %+v", mark, got)
	}
	for _, alias := range []string{"", "rutter", "rutter x", "rutter x vxlan 5", "uplink " + cluster.String() + " vxlan 5", cluster.String()} {
		if m, ok := ParseMark(alias); ok {
			t.Errorf("%q was read as the mark %+v", alias, m)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var id log.UUID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "cluster"))
		if group := GroupOf(id); group < groupBase || group > groupBase|groupBits || group == TrashGroup {
			t.Fatalf("group of %s: %d", id, group)
		}
		ParseMark(rapid.String().Draw(t, "alias"))
	})
}
