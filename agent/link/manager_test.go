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

	"rutter/projections/desired"

	"rutter/agent/link/internal/linktest"
	"rutter/agent/link/plan"
)

// fakeManager is a Manager over a fake kernel, with a clock of the test's.
func fakeManager(f *plan.Fake) (*Manager, *time.Time) {
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
	f := &plan.Fake{}
	f.AddNamespace("z1")
	tries := 0
	f.Fail = func(s plan.Step) error {
		if s.Op == plan.OpAddLink && s.Link == "sdcvxl6" {
			tries++
			return syscall.ENOMEM
		}
		return nil
	}
	m, now := fakeManager(f)
	result := mustPass(t, m, linktest.Sample())
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
	if f.Find(plan.LinkKey{Namespace: "z1", Name: "fabric0"}) == nil {
		t.Error("the other fabric was held up")
	}
	mustPass(t, m, linktest.Sample())
	if tries != 1 {
		t.Errorf("tries before the delay: got %d, want 1", tries)
	}
	delay := firstDelay
	for range 12 {
		*now = now.Add(delay)
		result = mustPass(t, m, linktest.Sample())
		delay = min(2*delay, maxDelay)
		if !result.RetryAt.Equal(now.Add(delay)) {
			t.Fatalf("retry: got %v, want %v later", result.RetryAt.Sub(*now), delay)
		}
	}
	f.Fail = nil
	*now = now.Add(delay)
	if result = mustPass(t, m, linktest.Sample()); !result.Matched || len(m.backoff) != 0 {
		t.Errorf("after the failure: matched %v, %d objects wait", result.Matched, len(m.backoff))
	}
}

func TestManagerTellsDriftFromChange(t *testing.T) {
	f := &plan.Fake{}
	f.AddNamespace("z1")
	m, _ := fakeManager(f)
	want := linktest.Sample()
	if result := mustPass(t, m, want); len(result.Drift) != 0 {
		t.Errorf("drift of the first pass: got %v", result.Drift)
	}
	want.FDB = slices.Clone(want.FDB)
	want.FDB[0].Dst = netip.MustParseAddr("10.99.0.3")
	if result := mustPass(t, m, want); len(result.Drift) != 0 || len(result.Steps) != 1 {
		t.Errorf("change: got drift %v, steps %v, want none and one", result.Drift, result.Steps)
	}
	f.Edit("", "sdcvxl5", func(l *plan.Link) { l.FDB = nil })
	if result := mustPass(t, m, want); len(result.Drift) != 1 || !result.Matched {
		t.Errorf("damage: got drift %v, want one step", result.Drift)
	}
}

func TestManagerNo8021Q(t *testing.T) {
	f := &plan.Fake{No8021Q: true}
	f.AddNamespace("z1")
	m, _ := fakeManager(f)
	result := mustPass(t, m, linktest.Sample())
	if result.Matched || len(result.Failures) == 0 || !errors.Is(result.Failures[0].Err, plan.ErrNo8021Q) {
		t.Errorf("got %v, want ErrNo8021Q", result.Failures)
	}
	if f.Find(plan.LinkKey{Namespace: "z1", Name: "fabric0"}) != nil {
		t.Error("the tagged fabric was made without its tag")
	}
}

func TestManagerKeepsNumbers(t *testing.T) {
	f := &plan.Fake{}
	f.AddNamespace("z1")
	if err := f.AddLink(plan.Link{Name: "fabric1", Kind: "dummy"}); err != nil {
		t.Fatal(err)
	}
	var saved []byte
	config := ManagerConfig{Kernel: f, Save: func(n plan.Numbers) (err error) {
		saved, err = json.Marshal(n)
		return err
	}}
	m := NewManager(config)
	want := linktest.Sample()
	mustPass(t, m, want)
	const expect = `{"00:00:00:00:00:00":{"n":999999999,"namespaces":null,"marked":true},"02:00:00:00:00:01":{"n":0,"namespaces":["z1"]},"02:00:00:00:00:02":{"n":2,"namespaces":null}}`
	if string(saved) != expect {
		t.Errorf("saved: got %s, want %s", saved, expect)
	}
	want.Fabrics = want.Fabrics[1:]
	want.Neighs = nil
	if err := json.Unmarshal(saved, &config.Numbers); err != nil {
		t.Fatal(err)
	}
	m = NewManager(config) // it must look for the link in z1, although z1 is not wanted
	if result := mustPass(t, m, want); !result.Matched || f.Find(plan.LinkKey{Namespace: "z1", Name: "fabric0"}) != nil {
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
	f := &plan.Fake{}
	m := NewManager(ManagerConfig{Kernel: f, Save: func(plan.Numbers) error { return syscall.EIO }})
	if _, err := m.Pass(context.Background(), linktest.Sample(), true); !errors.Is(err, syscall.EIO) || len(f.Links) != 0 {
		t.Errorf("got %v and %d links, want EIO and none", err, len(f.Links))
	}
}
