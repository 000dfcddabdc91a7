package vminfo_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/agent/vminfo"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vmsource"
	"rutter/log"
)

// scripted is a source whose runs are functions, one after the other; the last is repeated.
type scripted struct {
	name string
	runs []func(ctx context.Context, sink vmsource.Sink) error

	mu    sync.Mutex
	began int
	refer error // of its Control
	// status, if not nil, is its status but for the name.
	status *vmsource.Status
	ctl    vmsource.Control
}

func (s *scripted) Name() string { return s.name }
func (s *scripted) Scan()        {}
func (s *scripted) Status() vmsource.Status {
	if s.status != nil {
		st := *s.status
		st.Name = s.name
		return st
	}
	return vmsource.Status{Name: s.name, State: "runs", Complete: true}
}
func (s *scripted) Control() (vmsource.Control, error) { return s.ctl, s.refer }

func (s *scripted) Run(ctx context.Context, sink vmsource.Sink) error {
	s.mu.Lock()
	run := s.runs[min(s.began, len(s.runs)-1)]
	s.began++
	s.mu.Unlock()
	return run(ctx, sink)
}

func (s *scripted) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.began
}

func vmNamed(t *testing.T, id log.UUID, alias string) vmdoc.VM {
	t.Helper()
	v, err := vmdoc.ParseValue([]byte(`{"uuid":"` + id.String() + `","alias":"` + alias + `","state":"running"}`))
	if err != nil {
		t.Fatal(err)
	}
	vm, err := vmdoc.ParseVM(v)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// has tells VMs, and waits for the end.
func has(vms ...vmdoc.VM) func(ctx context.Context, sink vmsource.Sink) error {
	return func(ctx context.Context, sink vmsource.Sink) error {
		for _, vm := range vms {
			if _, _, err := sink.Put(vm); err != nil {
				return err
			}
		}
		sink.Loaded()
		<-ctx.Done()
		return nil
	}
}

func runService(t *testing.T, cfg vminfo.Config) *vminfo.Service {
	t.Helper()
	cfg.RestartMin, cfg.RestartMax, cfg.LoadWithin = time.Millisecond, 8*time.Millisecond, 50*time.Millisecond
	service, err := vminfo.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx, nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the service ended: %v", err)
		}
	})
	<-service.Ready()
	return service
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not in time", what)
		}
	}
}

// TestSourceThatDies: a source that fails again and again takes nothing away: its VMs stay,
// none is taken for gone, the status says why, and the other source and the service go on.
func TestSourceThatDies(t *testing.T) {
	t.Parallel()
	mine, others := log.UUID{1, 15: 1}, log.UUID{1, 15: 2}
	broken := errors.New("its socket is gone")
	failing := func(context.Context, vmsource.Sink) error { return broken }
	dying := &scripted{name: "dying", runs: []func(context.Context, vmsource.Sink) error{
		func(_ context.Context, sink vmsource.Sink) error {
			_, _, err := sink.Put(vmNamed(t, mine, "a"))
			sink.Loaded()
			return errors.Join(err, broken)
		},
		failing, failing,
	}}
	other := &scripted{name: "other", runs: []func(context.Context, vmsource.Sink) error{has(vmNamed(t, others, "b"))}}
	service := runService(t, vminfo.Config{Sources: []vmsource.Source{dying, other}})
	eventually(t, "it was begun again", func() bool { return dying.count() > 4 })
	for _, id := range []log.UUID{mine, others} {
		if _, ok := service.Store().Get(id); !ok {
			t.Errorf("VM %s is gone", id)
		}
	}
	eventually(t, "the status says why", func() bool {
		st := service.Status(false).Rutter.Sources[0]
		return strings.Contains(st.State, broken.Error()) && strings.Contains(st.State, "begins again") && !st.Complete
	})
	eventually(t, "what it lacks is not taken for gone", func() bool { return !service.Complete() })
}

// TestSourceThatHangs: a source that tells nothing holds up neither the service nor the VMs of
// other sources.
func TestSourceThatHangs(t *testing.T) {
	t.Parallel()
	id := log.UUID{1, 15: 1}
	hanging := &scripted{name: "hanging", runs: []func(context.Context, vmsource.Sink) error{func(ctx context.Context, _ vmsource.Sink) error {
		<-ctx.Done()
		return nil
	}}}
	service := runService(t, vminfo.Config{Sources: []vmsource.Source{hanging, &scripted{name: "other", runs: []func(context.Context, vmsource.Sink) error{has(vmNamed(t, id, "b"))}}}})
	if _, ok := service.Store().Get(id); !ok || service.Complete() {
		t.Errorf("the VM of the other is there: %v; complete: %v, want it and not complete", ok, service.Complete())
	}
}

// starts is a control that records what it was asked.
type starts struct{ started []log.UUID }

func (c *starts) Start(_ context.Context, vm log.UUID) error {
	c.started = append(c.started, vm)
	return nil
}
func (c *starts) Stop(context.Context, log.UUID, bool) error { return nil }

// TestRouter: what is asked about a VM goes to its own source; one that starts none says what
// to do.
func TestRouter(t *testing.T) {
	t.Parallel()
	mine, others := log.UUID{1, 15: 1}, log.UUID{1, 15: 2}
	control := new(starts)
	service := runService(t, vminfo.Config{Sources: []vmsource.Source{
		&scripted{name: "cni", refer: vmsource.NoControl("cni", "use podman"), runs: []func(context.Context, vmsource.Sink) error{has(vmNamed(t, others, "b"))}},
		&scripted{name: "hypervisor", ctl: control, runs: []func(context.Context, vmsource.Sink) error{has(vmNamed(t, mine, "a"))}},
	}})
	router := vminfo.Router{Service: service}
	if err := router.Start(t.Context(), mine); err != nil || len(control.started) != 1 || control.started[0] != mine {
		t.Errorf("started %v, %v", control.started, err)
	}
	if err := router.Stop(t.Context(), others, true); !errors.Is(err, vmsource.ErrNoControl) || !strings.Contains(err.Error(), "use podman") {
		t.Errorf("got %v", err)
	}
	if err := router.Refuses(others); !errors.Is(err, vmsource.ErrNoControl) {
		t.Errorf("got %v", err)
	}
	if err := router.Prepare(t.Context(), mine); !errors.Is(err, vmsource.ErrNoPreparation) {
		t.Errorf("got %v", err)
	}
	if _, err := vminfo.New(vminfo.Config{Sources: []vmsource.Source{&scripted{name: "a"}, &scripted{name: "a"}}}); err == nil {
		t.Error("two sources of one name are one")
	}
}

// TestGoneBySource: what a source lets go is gone although another one does not list its VMs.
// What that one may have is not, nor what a damaged file may be about.
func TestGoneBySource(t *testing.T) {
	t.Parallel()
	gone, damaged, unknown := log.UUID{1, 15: 1}, log.UUID{1, 15: 2}, log.UUID{1, 15: 3}
	for _, c := range []struct {
		what    string
		other   vmsource.Status
		unknown bool // is taken for gone
	}{
		{"it is complete", vmsource.Status{Complete: true}, true},
		{"it does not see its VMs, and lists them", vmsource.Status{Listed: true, Aside: []vmsource.Aside{{Name: damaged.String() + ".json"}}}, true},
		{"it does not list them", vmsource.Status{Aside: []vmsource.Aside{{UUID: damaged}}}, false},
	} {
		let := make(chan struct{})
		lets := func(ctx context.Context, sink vmsource.Sink) error {
			_, _, err := sink.Put(vmNamed(t, gone, "a"))
			sink.Loaded()
			<-let
			sink.Delete(gone)
			<-ctx.Done()
			return err
		}
		service := runService(t, vminfo.Config{Sources: []vmsource.Source{
			&scripted{name: "folder", runs: []func(context.Context, vmsource.Sink) error{lets}},
			&scripted{name: "other", status: &c.other, runs: []func(context.Context, vmsource.Sink) error{has()}},
		}})
		if service.Gone()(gone) {
			t.Errorf("%s: a VM that is there is gone", c.what)
		}
		close(let)
		eventually(t, c.what+": what was let go is gone", func() bool { return service.Gone()(gone) })
		if len(c.other.Aside) > 0 && service.Gone()(damaged) {
			t.Errorf("%s: the VM of a damaged file is gone", c.what)
		}
		if got := service.Gone()(unknown); got != c.unknown || service.Complete() != c.unknown {
			t.Errorf("%s: a VM that no source had: gone %v, complete %v, want %v", c.what, got, service.Complete(), c.unknown)
		}
	}
}

// TestAsideIsNotStarted: a VM that its source has put aside, because of its zonename for one,
// is not started: the error has the reason. One that another source shows is.
func TestAsideIsNotStarted(t *testing.T) {
	t.Parallel()
	aside, shown := log.UUID{1, 15: 1}, log.UUID{1, 15: 2}
	source := &scripted{
		name: "folder", runs: []func(context.Context, vmsource.Sink) error{has(vmNamed(t, shown, "web0"))}, ctl: new(starts),
		status: &vmsource.Status{Complete: true, Aside: []vmsource.Aside{{UUID: aside, Reason: "the zonename web0 is that of another VM"}, {UUID: shown, Reason: "its new manifest is damaged"}}},
	}
	router := vminfo.Router{Service: runService(t, vminfo.Config{Sources: []vmsource.Source{source}})}
	for _, start := range []func(context.Context, log.UUID) error{router.Start, router.Prepare} {
		if err := start(t.Context(), aside); !errors.Is(err, vmsource.ErrNoControl) || !strings.Contains(err.Error(), "the zonename web0") {
			t.Errorf("got %v, want the reason", err)
		}
	}
	if err := router.Start(t.Context(), shown); err != nil {
		t.Errorf("one that is shown: %v", err)
	}
}
