package vmlink

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/agent/vmsource"
	"rutter/log"
	"rutter/log/feed"
)

const owned = `,"owner_uuid":"930896af-bf8c-48d4-885c-6573a94b1853"`

// recorded puts what an inventory says into the log.
func (n *node) recorded(m *feed.Inventory) {
	n.t.Helper()
	for _, vm := range m.VMs {
		o, err := log.DecodeObject(log.KindVM, vm.UUID.String(), vm.Object)
		if err != nil {
			n.t.Fatal(err)
		}
		n.log.put(o)
	}
}

// until waits for what is so sooner or later.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not so: " + what)
		}
	}
}

// A manifest that turns bad, while the agent runs or while it is away, is never
// the end of its VM: half a file, another's UUID, none, a folder in its place.
func TestBadManifestsAreNoDeletion(t *testing.T) {
	for name, text := range map[string]string{
		"half": `{"uuid":"5595d88c-6e4d-4b`, "empty": "", "no object": "[1]", "another UUID": `{"uuid":"` + id(2).String() + `"}`, "no UUID": `{"alias":"web"}`,
		"deep": strings.Repeat("[", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			n := newNodeOn(t, dir, &fakeLog{objects: make(map[string]log.Object)})
			n.write(1, owned)
			n.write(2, owned)
			n.run()
			first := n.connect()
			n.recorded(next[*feed.Inventory](t, first))
			first.end()
			break1 := func() {
				path := filepath.Join(n.manifests, id(1).String()+".json")
				if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o644), os.Rename(path+".new", path)); err != nil {
					t.Fatal(err)
				}
			}
			check := func(n *node) {
				t.Helper()
				until(t, "it is named", func() bool { return len(n.service.Status(false).Rutter.Sources[0].Aside) == 1 })
				s := n.connect()
				m := next[*feed.Inventory](t, s)
				if !m.Whole || len(m.VMs) != 2 {
					t.Fatalf("got %+v, want both VMs", m)
				}
				if vm := decoded(t, m, id(1)); vm.State != "stopped" {
					t.Errorf("got %+v, want the VM as it was", vm)
				}
				n.write(3, owned) // the rest continues
				if m := next[*feed.Inventory](t, s); decoded(t, m, id(3)).UUID != id(3) {
					t.Errorf("got %+v", m)
				}
				if err := os.Remove(filepath.Join(n.manifests, id(3).String()+".json")); err != nil {
					t.Fatal(err)
				}
				if m := next[*feed.Inventory](t, s); len(m.VMs) != 1 || m.VMs[0].UUID != id(3) {
					t.Errorf("got %+v", m)
				}
			}
			break1()
			check(n)
			n.stop()
			again := newNodeOn(t, dir, n.log)
			again.run()
			check(again)
		})
	}
}

// stuck is a source that is never complete, and has told no VM.
type stuck struct{}

func (stuck) Name() string { return "stuck" }

func (stuck) Scan() {}

func (stuck) Status() vmsource.Status {
	return vmsource.Status{Name: "stuck", State: "cannot be read"}
}

func (stuck) Run(ctx context.Context, sink vmsource.Sink) error {
	sink.Loaded()
	<-ctx.Done()
	return ctx.Err()
}

// TestSourceThatCannotBeRead: a source that cannot be read holds up its own VMs only. On a new
// connection the VMs of the others are reported as they are, those that it may have as the log
// has them, and none is taken for gone.
func TestSourceThatCannotBeRead(t *testing.T) {
	n := newNode(t)
	n.more = []vmsource.Source{stuck{}}
	n.make(t.TempDir())
	var err error
	if n.link, err = New(Config{CN: id(1), Service: n.service, VMMs: n.vmms, Servers: n.servers, PartAfter: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	n.write(1, owned+`,"quota":10`)
	for vm, cn := range map[int]log.UUID{1: id(1), 7: id(1), 8: id(2)} {
		n.log.put(&log.VM{UUID: id(vm), ServerUUID: cn, OwnerUUID: id(900), Zonename: id(vm).String(), State: "running"})
	}
	n.run()
	s := n.connect()
	m := next[*feed.Inventory](t, s)
	if !m.Whole || !m.Last || len(m.VMs) != 2 {
		t.Fatalf("got %+v, want the VM of the folder and the one that the source may have", m)
	}
	if vm := decoded(t, m, id(1)); vm.Quota != 10 || vm.State != "stopped" {
		t.Errorf("got %+v, want the VM of the folder as it is", vm)
	}
	if vm := decoded(t, m, id(7)); vm.State != "running" {
		t.Errorf("got %+v, want the VM that may exist as the log has it", vm)
	}
	if status := n.link.Status().Inventory; !strings.Contains(status, "not complete") {
		t.Errorf("the status is %q", status)
	}
	n.write(2, owned)
	if m := next[*feed.Inventory](t, s); m.Whole || decoded(t, m, id(2)).UUID != id(2) {
		t.Errorf("got %+v, want what changes", m)
	}
}

// A folder that goes takes no VM with it; when it is back, what is in it counts.
func TestFolderGoesAndComes(t *testing.T) {
	n := newNode(t)
	n.write(1, owned)
	n.write(2, owned)
	n.run()
	s := n.connect()
	n.recorded(next[*feed.Inventory](t, s))
	if err := os.Rename(n.manifests, n.manifests+".away"); err != nil {
		t.Fatal(err)
	}
	until(t, "it is seen that the folder is not there", func() bool { return !n.service.Complete() })
	s.end()
	again := n.connect()
	until(t, "the inventory waits", func() bool { return strings.HasPrefix(n.link.Status().Inventory, "waiting: a source") })
	for _, s := range []*server{s, again} {
		select {
		case m := <-s.frames:
			if m, is := m.(*feed.Inventory); is {
				t.Errorf("got %+v of a folder that is not there", m)
			}
		default:
		}
	}
	if err := errors.Join(os.Remove(filepath.Join(n.manifests+".away", id(2).String()+".json")), os.Rename(n.manifests+".away", n.manifests)); err != nil {
		t.Fatal(err)
	}
	var whole *feed.Inventory
	gone := false
	for !gone || whole == nil {
		m := next[*feed.Inventory](t, again)
		if m.Whole {
			whole = m
			gone = len(m.VMs) == 1
			continue
		}
		for _, vm := range m.VMs {
			gone = gone || vm.UUID == id(2) && len(vm.Object) == 0
		}
	}
	decoded(t, whole, id(1))
}

// A VM that changes 100 times a second is reported a bounded number of times, and
// its last state is.
func TestFlapping(t *testing.T) {
	n := newNode(t)
	n.write(1, owned+`,"quota":0`)
	n.run()
	s := n.connect()
	next[*feed.Inventory](t, s)
	const changes = 100
	began := time.Now()
	for i := range changes {
		n.write(1, owned+`,"quota":`+string(rune('1'+i%2)))
		time.Sleep(10 * time.Millisecond) // the rate that the test is about
	}
	n.write(1, owned+`,"quota":9`)
	told := 0
	for {
		m := next[*feed.Inventory](t, s)
		if told++; decoded(t, m, id(1)).Quota == 9 {
			break
		}
	}
	if most := 25 + int(time.Since(began)/(50*time.Millisecond)); told > most {
		t.Errorf("told %d times in %s, want at most %d", told, time.Since(began), most)
	}
	t.Logf("%d changes in %s, told %d times", changes, time.Since(began), told)
}
