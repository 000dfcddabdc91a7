package vmmstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmstore"
	"rutter/log"
)

// fakeStarter starts and stops by putting states into the store, as a Folder does.
type fakeStarter struct {
	store *vmstore.Store
	mu    sync.Mutex // protects pid
	pid   int
	fail  error
	hold  chan struct{} // if not nil, Stop waits until it is closed
}

func (f *fakeStarter) set(vm log.UUID, state string, pid int) {
	text := fmt.Appendf(nil, `{"uuid":%q,"state":%q,"pid":%d}`, vm, state, pid)
	if _, _, err := f.store.Put("fake", vmdoc.VM{UUID: vm, Zonename: vm.String(), JSON: text}); err != nil {
		panic(err)
	}
}

func (f *fakeStarter) Start(_ context.Context, vm log.UUID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return f.fail
	}
	f.pid++
	f.set(vm, "running", f.pid)
	return nil
}

func (f *fakeStarter) Stop(_ context.Context, vm log.UUID, _ bool) error {
	if f.hold != nil {
		<-f.hold
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set(vm, "stopped", 0)
	return nil
}

// vmmSite is VMMs that run, over a folder that outlives them.
type vmmSite struct {
	folder  string
	starter *fakeStarter
	vmms    *Table
	adopts  []string
	placed  func(vm log.UUID) (log.UUID, uint64, bool)
	stop    func()

	mu   sync.Mutex // protects rung
	rung map[log.UUID]int
}

func newVMMSite(folder string) *vmmSite {
	store := vmstore.New(vmstore.Config{})
	store.GoLive()
	return &vmmSite{folder: folder, starter: &fakeStarter{store: store}, rung: make(map[log.UUID]int)}
}

func (s *vmmSite) run(t interface{ Fatal(...any) }) {
	vmms, err := New(Config{Folder: s.folder, Store: s.starter.store, Starter: s.starter, Adopts: s.adopts, Placed: s.placed, Ring: func(id log.UUID) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rung[id]++
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- vmms.Run(ctx) }()
	s.vmms, s.stop = vmms, func() {
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// wait returns when a VMM has a state.
func (s *vmmSite) wait(t interface{ Fatalf(string, ...any) }, id log.UUID, state string) VMM {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Microsecond) {
		vmm, err := s.vmms.Get(id)
		if err == nil && vmm.State == state {
			return vmm
		}
		if time.Now().After(deadline) {
			t.Fatalf("VMM is %+v, %v, want %s", vmm, err, state)
		}
	}
}

func TestVMMLife(t *testing.T) {
	s := newVMMSite(t.TempDir())
	s.run(t)
	id, vm := vmmID(100), vmmID(1)
	if v, err := s.vmms.Register(id, vm); err != nil || v.State != VMMStarting || v.Gen != 1 {
		t.Fatalf("registered as %+v, %v", v, err)
	}
	if _, err := s.vmms.Register(vmmID(101), vm); !errors.Is(err, ErrVMMClash) {
		t.Errorf("a second VMM: %v", err)
	}
	if _, _, err := s.vmms.SetState(id, "running", log.UUID{}); err != nil {
		t.Fatal(err)
	}
	before := s.wait(t, id, VMMRunning)
	if v, _, err := s.vmms.SetState(id, "reboot", log.UUID{}); err != nil || v.State != VMMRebooting {
		t.Errorf("reboot: %+v, %v", v, err)
	}
	if after := s.wait(t, id, VMMRunning); after.PID == before.PID || after.Gen != before.Gen+2 {
		t.Errorf("rebooted from %+v to %+v", before, after)
	}
	s.starter.set(vm, "stopped", 0) // SIGKILL
	failed := s.wait(t, id, VMMFailed)
	if !strings.Contains(failed.Reason, "nobody had asked") {
		t.Errorf("failed because %q", failed.Reason)
	}
	s.stop()
	// The final state and its generation outlive the agent until they are recorded.
	s.rung = make(map[log.UUID]int)
	s.run(t)
	defer func() { s.stop() }()
	if again := s.wait(t, id, VMMFailed); again.Gen != failed.Gen || again.Reason != failed.Reason {
		t.Errorf("after a restart %+v, want %+v", again, failed)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		n := s.rung[id]
		s.mu.Unlock()
		if n > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the restart did not ring")
		}
	}
	for _, gen := range []uint64{failed.Gen - 1, failed.Gen + 1} {
		if err := s.vmms.Recorded(id, gen); err != nil {
			t.Fatal(err)
		}
		s.wait(t, id, VMMFailed)
	}
	if err := s.vmms.Recorded(id, failed.Gen); err != nil {
		t.Fatal(err)
	}
	if _, err := s.vmms.Get(id); !errors.Is(err, ErrNoVMM) {
		t.Errorf("recorded and still there: %v", err)
	}
}

// TestVMMQuickRestart: another process in place of the VMM's means that the VMM failed,
// even if the time between was not seen.
func TestVMMQuickRestart(t *testing.T) {
	s := newVMMSite(t.TempDir())
	s.run(t)
	defer func() { s.stop() }()
	id, vm := vmmID(100), vmmID(1)
	if _, err := s.vmms.Register(id, vm); err != nil {
		t.Fatal(err)
	}
	s.starter.set(vm, "running", 7)
	s.wait(t, id, VMMRunning)
	s.starter.set(vm, "running", 8)
	s.wait(t, id, VMMFailed)
}

// A VM whose process runs and was not seen yet has not ended when it is told to stop: it
// would get a second VMM when it is seen.
func TestStopBeforeItIsSeen(t *testing.T) {
	s := newVMMSite(t.TempDir())
	s.adopts = []string{"fake"}
	vm, id := vmmID(1), vmmID(100)
	s.starter.set(vm, "stopped", 0)
	s.starter.hold = make(chan struct{})
	s.run(t)
	defer func() { s.stop() }()
	if _, err := s.vmms.Register(id, vm); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.vmms.SetState(id, "stopped", log.UUID{}); err != nil {
		t.Fatal(err)
	}
	s.vmms.observe(vm) // an earlier inspection: nothing runs
	s.starter.set(vm, "running", 7)
	s.vmms.observe(vm)
	if list := s.vmms.List(); len(list) != 1 || list[0].State != VMMStopping {
		t.Errorf("before it has stopped: %+v, want one VMM that is stopping", list)
	}
	close(s.starter.hold)
	s.wait(t, id, VMMDestroyed)
	if list := s.vmms.List(); len(list) != 1 {
		t.Errorf("after it: %+v, want one VMM", list)
	}
}

func TestVMMStartFails(t *testing.T) {
	s := newVMMSite(t.TempDir())
	s.starter.fail = errors.New("no such image")
	s.run(t)
	defer func() { s.stop() }()
	id := vmmID(100)
	if _, err := s.vmms.Register(id, vmmID(1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.vmms.SetState(id, "migration_target", vmmID(200)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.vmms.SetState(id, "running", log.UUID{}); err != nil {
		t.Fatal(err)
	}
	v := s.wait(t, id, VMMFailed)
	if v.Reason != "no such image" || v.Migration.State != "failed" || v.Migration.Gen != 2 {
		t.Errorf("got %+v with %+v", v, v.Migration)
	}
}

func TestVMMHTTP(t *testing.T) {
	s := newVMMSite(t.TempDir())
	s.run(t)
	defer func() { s.stop() }()
	handler := s.vmms.Handler()
	id, vm := vmmID(100).String(), vmmID(1).String()
	for _, test := range []struct {
		method, path, version, body string
		code                        int
		want                        string
	}{
		{"GET", "/state", "", "", 400, "api-version is missing"},
		{"GET", "/state", "one", "", 400, "MAJOR.MINOR.PATCH"},
		{"GET", "/state", "1.0", "", 400, "MAJOR.MINOR.PATCH"},
		{"GET", "/state", "3.0.0", "", 400, "not served"},
		{"GET", "/state", "0.9.0", "", 400, "not served"},
		{"GET", "/state", "1.0.0", "", 404, `"error_code":"NO_SUCH_INSTANCE"`},
		{"PUT", "", "1.0.0", "{}", 400, "instance_id"},
		{"PUT", "", "1.0.0", `{"instance_id":"` + vm + `"}`, 200, `{"vmm_state":{"state":"starting","gen":1,"time_updated":"`},
		{"PUT", "", "1.0.0", `{"instance_id":"` + vm + `"}`, 200, `"gen":1`},
		{"PUT", "/state", "1.0.0", `{"state":{"type":"sideways"}}`, 400, "want running"},
		{"PUT", "/state", "1.0.0", `nonsense`, 400, "want {"},
		{"PUT", "/state", "2.0.0", `{"state":{"type":"stopped"}}`, 200, `{"updated_runtime":{"vmm_state":{"state":"stopping","gen":2`},
		{"PUT", "/state", "2.0.0", `{"state":{"type":"stopped"}}`, 200, `{"updated_runtime":null}`},
		{"DELETE", "", "2.0.0", "", 200, `"state":"destroyed","gen":3`},
		{"PUT", "/state", "2.0.0", `{"state":{"type":"running"}}`, 410, "has ended"},
		{"PUT", "/recorded", "2.0.0", `{"gen":3}`, 200, "{}"},
		{"GET", "/state", "2.0.0", "", 404, "NO_SUCH_INSTANCE"},
	} {
		request := httptest.NewRequestWithContext(t.Context(), test.method, "/vmms/"+id+test.path, strings.NewReader(test.body))
		if test.version != "" {
			request.Header.Set("api-version", test.version)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request)
		if w.Code != test.code || !strings.Contains(w.Body.String(), test.want) {
			t.Errorf("%s %s %s: got %d %s, want %d %s", test.method, test.path, test.version, w.Code, w.Body, test.code, test.want)
		}
		if strings.Contains(test.want, "stopping") {
			s.wait(t, vmmID(100), VMMDestroyed) // no VM of it runs
			s.vmms.mu.Lock()
			s.vmms.vmms[vmmID(100)] = &VMM{ID: vmmID(100), VM: vmmID(1), State: VMMStopping, Gen: 2}
			s.vmms.mu.Unlock()
		}
	}
}

// TestVMMVersions: the reason of a failure is version 2's; an old server does
// not see it, and nothing else differs.
func TestVMMVersions(t *testing.T) {
	vmm := VMM{State: VMMFailed, Gen: 4, Reason: "gone"}
	for version, want := range map[apiVersion]bool{vmmV1: false, {1, 9, 0}: false, vmmV2: true} {
		text, err := json.Marshal(sledState(vmm, version))
		if err != nil || strings.Contains(string(text), `"reason":"gone"`) != want {
			t.Errorf("%v: %s, %v", version, text, err)
		}
	}
}

// TestVMMHistory: over random acts, ends and restarts of the agent, a VMM's
// generation only grows, an end is final, and it is there until it is recorded.
func TestVMMHistory(t *testing.T) {
	dir := t.TempDir()
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		s := newVMMSite(fmt.Sprintf("%s/%d", dir, round))
		s.run(t)
		defer func() { s.stop() }()
		vm := vmmID(1)
		last := make(map[log.UUID]VMM)
		next := 0
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			id := vmmID(100 + next)
			switch rapid.IntRange(0, 6).Draw(t, "act") {
			case 0, 1:
				if _, err := s.vmms.Register(id, vm); errors.Is(err, ErrVMMClash) {
					t.Fatalf("%v", err)
				}
			case 2:
				want := rapid.SampledFrom([]string{"running", "stopped", "reboot"}).Draw(t, "want")
				_, _, _ = s.vmms.SetState(id, want, log.UUID{}) // some are refused
			case 3:
				s.starter.set(vm, "running", 1000+len(last))
			case 4:
				s.starter.set(vm, "stopped", 0)
			case 5:
				s.stop()
				s.run(t)
			case 6:
				if v, err := s.vmms.Get(id); err == nil && v.Final() {
					if err := s.vmms.Recorded(id, v.Gen); err != nil {
						t.Fatal(err)
					}
					delete(last, id)
					next++
				}
			}
			for known, before := range last {
				now, err := s.vmms.Get(known)
				if err != nil {
					t.Fatalf("VMM %s is not there any more: it was %+v", known, before)
				}
				if now.Gen < before.Gen || before.Final() && (now.State != before.State || now.Gen != before.Gen) || now.Gen == before.Gen && now.State != before.State {
					t.Fatalf("%+v became %+v", before, now)
				}
			}
			for _, v := range s.vmms.List() {
				last[v.ID] = v
			}
		}
	})
}

func FuzzVersion(f *testing.F) {
	f.Add("1.2.3")
	f.Add("01.2.3")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parseVersion(text)
		if err == nil && fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.patch) != text {
			t.Fatalf("%q was read as %v", text, v)
		}
	})
}

// TestVMMAdoption: a VM that another program started gets a VMM, whose end is a
// failure. A VM that was ended by request is not adopted while it still runs.
func TestVMMAdoption(t *testing.T) {
	s := newVMMSite(t.TempDir())
	s.adopts = []string{"fake"}
	vm := vmmID(1)
	s.starter.set(vm, "running", 7) // before the agent looks
	s.run(t)
	defer func() { s.stop() }()
	first := s.waitActive(t, vm, 7)
	s.starter.set(vm, "stopped", 0)
	s.wait(t, first.ID, VMMFailed)
	s.starter.set(vm, "running", 8)
	second := s.waitActive(t, vm, 8)
	s.starter.set(vm, "running", 9) // killed and started between two inspections
	s.wait(t, second.ID, VMMFailed)
	third := s.waitActive(t, vm, 9)
	s.starter.hold = make(chan struct{})
	if _, err := s.vmms.Unregister(third.ID); err != nil {
		t.Fatal(err)
	}
	s.starter.set(vm, "running", 9) // it is still there
	s.vmms.observe(vm)
	if again, ok := s.vmms.Active(vm); ok {
		t.Errorf("what was ended by word is adopted as %+v", again)
	}
	close(s.starter.hold)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Microsecond) {
		if text, ok := s.starter.store.Get(vm); ok && strings.Contains(string(text.JSON), "stopped") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it was not stopped")
		}
	}
	s.starter.set(vm, "running", 9) // the number is used again, later
	s.waitActive(t, vm, 9)
	other := vmmID(2)
	if _, _, err := s.starter.store.Put("another vminfod", vmdoc.VM{UUID: other, Zonename: "z", JSON: fmt.Appendf(nil, `{"uuid":%q,"state":"running","pid":5}`, other)}); err != nil {
		t.Fatal(err)
	}
	s.vmms.observe(other)
	if vmm, ok := s.vmms.Active(other); ok {
		t.Errorf("a VM of another source is adopted as %+v", vmm)
	}
}

// waitActive returns the VM's VMM that runs as pid.
func (s *vmmSite) waitActive(t *testing.T, vm log.UUID, pid int) VMM {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Microsecond) {
		if vmm, ok := s.vmms.Active(vm); ok && vmm.State == VMMRunning && vmm.PID == pid {
			return vmm
		}
		if time.Now().After(deadline) {
			t.Fatalf("no VMM of a VM that runs as %d: %+v", pid, s.vmms.List())
		}
	}
}

// TestVMMAdoptsMany: ten thousand VMs that run without a VMM have one soon, on
// disk, and still have it after a restart.
func TestVMMAdoptsMany(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	const number = 10_000
	s := newVMMSite(t.TempDir())
	s.adopts = []string{"fake"}
	for i := range number {
		s.starter.set(vmmID(i), "running", 100+i)
	}
	began := time.Now()
	s.run(t)
	for s.vmms.count() < number {
		if time.Sleep(time.Millisecond); time.Since(began) > time.Minute {
			t.Fatalf("%d of %d are adopted after %s", s.vmms.count(), number, time.Minute)
		}
	}
	t.Logf("%d adopted in %s", number, time.Since(began))
	s.stop()
	first := s.vmms.List()
	s.run(t)
	defer s.stop()
	if again := s.vmms.List(); !slices.EqualFunc(first, again, func(a, b VMM) bool { return a.ID == b.ID && a.Gen == b.Gen && a.PID == b.PID }) {
		t.Error("after a restart they are others")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rung) != number {
		t.Errorf("rang for %d", len(s.rung))
	}
}

func (m *Table) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.saving != nil {
		return 0
	}
	return len(m.vmms)
}

// TestVMMJobsTakeTurns: requests for one VM are done one after the other, in order;
// other VMs do not wait for them.
func TestVMMJobsTakeTurns(t *testing.T) {
	s := newVMMSite(t.TempDir())
	s.run(t)
	defer func() { s.stop() }()
	one, other := vmmID(1), vmmID(2)
	var mu sync.Mutex
	var order []int
	running, hold, passed := 0, make(chan struct{}), make(chan struct{})
	done := make(chan struct{}, 20)
	for i := range 5 {
		if err := s.enqueue(one, func(context.Context) {
			mu.Lock()
			running++
			if running > 1 {
				t.Errorf("%d jobs of one VM at once", running)
			}
			order = append(order, i)
			mu.Unlock()
			<-hold
			mu.Lock()
			running--
			mu.Unlock()
			done <- struct{}{}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.enqueue(other, func(context.Context) { close(passed) }); err != nil {
		t.Fatal(err)
	}
	<-passed
	close(hold)
	for range 5 {
		<-done
	}
	if !slices.IsSorted(order) || len(order) != 5 {
		t.Errorf("done in the order %v", order)
	}
}

// enqueue passes a job to the VMMs, as their methods do.
func (s *vmmSite) enqueue(vm log.UUID, do func(context.Context)) error {
	s.vmms.mu.Lock()
	defer s.vmms.mu.Unlock()
	return s.vmms.enqueueLocked(vm, do)
}

// After a wait for Settled, earlier requests do not run any more.
func TestVMMsSettled(t *testing.T) {
	s := newVMMSite(t.TempDir())
	s.run(t)
	defer s.stop()
	vm := vmmID(1)
	if err := s.vmms.Settled(t.Context(), vm); err != nil {
		t.Errorf("of a VM without jobs: %v", err)
	}
	hold, did := make(chan struct{}), 0
	for range 2 {
		if err := s.enqueue(vm, func(context.Context) { <-hold; did++ }); err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.vmms.Settled(short, vm); !errors.Is(err, context.Canceled) {
		t.Errorf("with two jobs held up: %v, want the end of the context", err)
	}
	close(hold)
	if err := s.vmms.Settled(t.Context(), vm); err != nil || did != 2 {
		t.Errorf("settled after %d of 2 jobs, error %v", did, err)
	}
}

// vmmID is the UUID of the nth VM or VMM of a test.
func vmmID(n int) log.UUID {
	id, err := log.ParseUUID(fmt.Sprintf("5595d88c-6e4d-4bda-b58e-%012x", n))
	if err != nil {
		panic(err)
	}
	return id
}
