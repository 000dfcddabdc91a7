// Package sourcetest has the test that each source of VMs passes: that it keeps what package
// vmsource asks of it, through a real service and store.
package sourcetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"rutter/agent/vminfo"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vmsource"
	"rutter/log"
)

// patience bounds each wait, of a machine that may be busy.
const patience = time.Minute

// Subject is a source under test, with what makes its VMs change.
type Subject struct {
	// New opens the source. It is called again after the first one ended, and finds the VMs
	// as they are then.
	New func(t *testing.T) vmsource.Source
	// Put makes a VM be there, with that alias, or changes it; Remove takes it away. Both
	// are about what the source watches, and are also called while it does not run.
	Put    func(t *testing.T, id log.UUID, alias string)
	Remove func(t *testing.T, id log.UUID)
}

// rival is another source, which has one VM until it is told to let it go.
type rival struct {
	vm  vmdoc.VM
	let chan struct{}
}

func (r *rival) Name() string { return "rival" }
func (r *rival) Scan()        {}
func (r *rival) Status() vmsource.Status {
	return vmsource.Status{Name: r.Name(), State: "runs", Complete: true}
}

func (r *rival) Run(ctx context.Context, sink vmsource.Sink) error {
	if _, _, err := sink.Put(r.vm); err != nil {
		return err
	}
	sink.Loaded()
	select {
	case <-r.let:
		sink.Delete(r.vm.UUID)
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

var (
	first  = log.UUID{1, 6: 0x40, 8: 0x80, 15: 1}
	second = log.UUID{2, 6: 0x40, 8: 0x80, 15: 2}
	shared = log.UUID{3, 6: 0x40, 8: 0x80, 15: 3}
)

// Run tests a source.
func Run(t *testing.T, s Subject) {
	s.Put(t, first, "a")
	value, err := vmdoc.ParseValue([]byte(`{"uuid":"` + shared.String() + `","alias":"rival","state":"stopped"}`))
	if err != nil {
		t.Fatal(err)
	}
	vm, err := vmdoc.ParseVM(value)
	if err != nil {
		t.Fatal(err)
	}
	other := &rival{vm, make(chan struct{})}
	source := s.New(t)
	service, stop := start(t, other, source)
	s.await(t, service, first, "a")
	if st := source.Status(); st.Name != source.Name() || !st.Complete || st.State == "" {
		t.Errorf("its status: %+v, want its name, a state, and complete", st)
	}
	// Changes are told as they happen.
	s.Put(t, first, "b")
	s.await(t, service, first, "b")
	s.Put(t, second, "c")
	s.await(t, service, second, "c")
	s.Remove(t, second)
	s.await(t, service, second, "")
	// A VM of another source is aside with its reason, and is taken over when it is let go.
	s.Put(t, shared, "mine")
	until(t, "a VM of another source is aside with the reason", func() bool {
		for _, a := range source.Status().Aside {
			if a.UUID == shared && strings.Contains(a.Reason, "rival") {
				return true
			}
		}
		return false
	})
	s.await(t, service, shared, "rival")
	if !service.Complete() {
		t.Error("a VM that another source has makes the source incomplete")
	}
	close(other.let)
	s.await(t, service, shared, "mine")
	until(t, "it is aside no more", func() bool { return len(source.Status().Aside) == 0 })
	// Its control is one, or the refusal says what to do.
	if controlled, is := source.(vmsource.Controlled); is {
		if _, err := controlled.Control(); err != nil && (!errors.Is(err, vmsource.ErrNoControl) || len(err.Error()) < len(vmsource.ErrNoControl.Error())+10) {
			t.Errorf("its control: %v, want an ErrNoControl that says what to do", err)
		}
	}
	stop()
	// What happened while it did not run is found.
	s.Remove(t, first)
	s.Put(t, second, "d")
	service, stop = start(t, s.New(t))
	defer stop()
	s.await(t, service, second, "d")
	s.await(t, service, first, "")
}

// start runs a service of sources.
func start(t *testing.T, sources ...vmsource.Source) (*vminfo.Service, func()) {
	t.Helper()
	service, err := vminfo.New(vminfo.Config{Sources: sources})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx, nil) }()
	select {
	case <-service.Ready():
	case <-time.After(patience):
		t.Fatal("the sources are not loaded in time")
	}
	return service, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// await waits until a VM has an alias; "": it is not there.
func (s Subject) await(t *testing.T, service *vminfo.Service, id log.UUID, alias string) {
	t.Helper()
	until(t, "VM "+id.String()+" is "+alias, func() bool {
		vm, ok := service.Store().Get(id)
		if !ok {
			return alias == ""
		}
		v, err := vmdoc.ParseValue(vm.JSON)
		return err == nil && v.Text("alias") == alias
	})
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not in time", what)
		}
	}
}
