package link

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rutter/projections/desired"
)

// fakeManager is a Manager over a fake kernel, with a clock of the test's.
func fakeManager(f *Fake) (*Manager, *time.Time) {
	now := time.Unix(1_000_000, 0)
	return NewManager(ManagerConfig{Kernel: f, Now: func() time.Time { return now }}), &now
}

func mustPass(t *testing.T, m *Manager, want desired.Links) Result {
	t.Helper()
	result, err := m.Pass(context.Background(), want, true)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestManagerBacksOffPerObject(t *testing.T) {
	f := &Fake{}
	f.AddNamespace("z1")
	tries := 0
	f.Fail = func(s Step) error {
		if s.Op == OpAddLink && s.Link == "sdcvxl6" {
			tries++
			return syscall.ENOMEM
		}
		return nil
	}
	m, now := fakeManager(f)
	result := mustPass(t, m, sample())
	if result.Matched || tries != 1 || !result.RetryAt.Equal(now.Add(firstDelay)) {
		t.Errorf("first pass: matched %v, tries %d, retry %v, want false, 1, +%v", result.Matched, tries, result.RetryAt, firstDelay)
	}
	var told []string
	for _, failure := range result.Failures {
		told = append(told, failure.Object.String())
	}
	if !slices.Contains(told, "vxlan sdcvxl6") || !slices.Contains(told, "fabric link of 02:00:00:00:00:02") {
		t.Errorf("failures: got %v, want the device and the link on it", result.Failures)
	}
	if f.find(place{"z1", "fabric0"}) == nil {
		t.Error("the other fabric was held up")
	}
	mustPass(t, m, sample())
	if tries != 1 {
		t.Errorf("tries before the delay: got %d, want 1", tries)
	}
	delay := firstDelay
	for range 12 {
		*now = now.Add(delay)
		result = mustPass(t, m, sample())
		delay = min(2*delay, maxDelay)
		if !result.RetryAt.Equal(now.Add(delay)) {
			t.Fatalf("retry: got %v, want %v later", result.RetryAt.Sub(*now), delay)
		}
	}
	f.Fail = nil
	*now = now.Add(delay)
	if result = mustPass(t, m, sample()); !result.Matched || len(m.backoff) != 0 {
		t.Errorf("after the failure: matched %v, %d objects wait", result.Matched, len(m.backoff))
	}
}

func TestManagerTellsDriftFromChange(t *testing.T) {
	f := &Fake{}
	f.AddNamespace("z1")
	m, _ := fakeManager(f)
	want := sample()
	if result := mustPass(t, m, want); len(result.Drift) != 0 {
		t.Errorf("drift of the first pass: got %v", result.Drift)
	}
	want.FDB = slices.Clone(want.FDB)
	want.FDB[0].Dst = netip.MustParseAddr("10.99.0.3")
	if result := mustPass(t, m, want); len(result.Drift) != 0 || len(result.Steps) != 1 {
		t.Errorf("change: got drift %v, steps %v, want none and one", result.Drift, result.Steps)
	}
	f.Edit("", "sdcvxl5", func(l *Link) { l.FDB = nil })
	if result := mustPass(t, m, want); len(result.Drift) != 1 || !result.Matched {
		t.Errorf("damage: got drift %v, want one step", result.Drift)
	}
}

func TestManagerNo8021Q(t *testing.T) {
	f := &Fake{No8021Q: true}
	f.AddNamespace("z1")
	m, _ := fakeManager(f)
	result := mustPass(t, m, sample())
	if result.Matched || len(result.Failures) == 0 || !errors.Is(result.Failures[0].Err, ErrNo8021Q) {
		t.Errorf("got %v, want ErrNo8021Q", result.Failures)
	}
	if f.find(place{"z1", "fabric0"}) != nil {
		t.Error("the tagged fabric was made without its tag")
	}
}

func TestManagerKeepsNumbers(t *testing.T) {
	f := &Fake{}
	f.AddNamespace("z1")
	if err := f.AddLink(Link{Name: "fabric1", Kind: "dummy"}); err != nil {
		t.Fatal(err)
	}
	var saved []byte
	config := ManagerConfig{Kernel: f, Save: func(n Numbers) (err error) {
		saved, err = json.Marshal(n)
		return err
	}}
	m := NewManager(config)
	want := sample()
	mustPass(t, m, want)
	const expect = `{"02:00:00:00:00:01":{"n":0,"namespaces":["z1"]},"02:00:00:00:00:02":{"n":2,"namespaces":null}}`
	if string(saved) != expect {
		t.Errorf("saved: got %s, want %s", saved, expect)
	}
	want.Fabrics = want.Fabrics[1:]
	want.Neighs = nil
	if err := json.Unmarshal(saved, &config.Numbers); err != nil {
		t.Fatal(err)
	}
	m = NewManager(config) // it must look for the link in z1, although nobody wants z1
	if result := mustPass(t, m, want); !result.Matched || f.find(place{"z1", "fabric0"}) != nil {
		t.Errorf("after a restart: matched %v\n%s", result.Matched, f)
	}
	if strings.Contains(string(saved), "02:00:00:00:00:01") {
		t.Errorf("saved: got %s, want the number of the NIC that is gone released", saved)
	}
	m = NewManager(ManagerConfig{Kernel: f}) // the file is lost
	if result := mustPass(t, m, want); len(result.Steps) != 0 {
		t.Errorf("without numbers: got %v, want the links adopted by MAC", texts(result.Steps))
	}
}

func TestManagerSavesBeforeItMakes(t *testing.T) {
	f := &Fake{}
	m := NewManager(ManagerConfig{Kernel: f, Save: func(Numbers) error { return syscall.EIO }})
	if _, err := m.Pass(context.Background(), sample(), true); !errors.Is(err, syscall.EIO) || len(f.links) != 0 {
		t.Errorf("got %v and %d links, want EIO and none", err, len(f.links))
	}
}

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
			m := mac(rapid.IntRange(1, 6).Draw(t, "mac"))
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
		"sdcvxl0": kindVXLAN, "sdcvxl16777215": kindVXLAN, "sdcvxl16777216": "", "sdcvxl": "", "sdcvxl05": "", "sdcvxl-1": "",
		"vx5v7": kindVLAN, "vx5v0": "", "vx5v4095": "", "vx16777215v4094": kindVLAN, "vx5": "", "vxlan0": "",
		"fabric0": kindMacvlan, "fabric999999999": kindMacvlan, "fabric": "", "fabric01": "", "fabric1x": "", "eth0": "",
	}
	for name, want := range tests {
		if got := kindOfName(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
