package netsync

import (
	"context"
	"testing"
	"time"

	"rutter/agent/vminfo"
	"rutter/agent/vmsource"
	"rutter/log"
)

// empty is a source without VMs.
type empty struct{ status vmsource.Status }

func (e empty) Name() string            { return e.status.Name }
func (e empty) Scan()                   {}
func (e empty) Status() vmsource.Status { return e.status }
func (e empty) Run(ctx context.Context, sink vmsource.Sink) error {
	sink.Loaded()
	<-ctx.Done()
	return nil
}

// TestGone: a VM is gone by what the sources say, and not before they have begun.
func TestGone(t *testing.T) {
	vm, aside := log.UUID{1, 15: 1}, log.UUID{1, 15: 2}
	service, err := vminfo.New(vminfo.Config{Sources: []vmsource.Source{empty{vmsource.Status{
		Name: "cni", Listed: true, Aside: []vmsource.Aside{{UUID: aside}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	local := NewLocal(service, nil, nil)
	if vms, gone := local.VMs(); len(vms) != 0 || gone(vm) {
		t.Error("a VM is gone before the source began")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx, nil) }()
	select {
	case <-service.Ready():
	case <-time.After(time.Minute):
		t.Fatal("not ready")
	}
	if _, gone := local.VMs(); !gone(vm) || gone(aside) {
		t.Errorf("gone: %v, want true; the VM of a damaged file: %v, want false", gone(vm), gone(aside))
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
