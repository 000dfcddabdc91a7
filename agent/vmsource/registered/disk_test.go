package registered

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/log"
)

// TestDiskThatHangs: while the disk hangs that a registration is written to, what reads the
// registrations answers, and what is known there is as it was.
func TestDiskThatHangs(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	s := m.start(t.TempDir(), newSink())
	defer s.stop()
	if _, err := s.Put(t.Context(), webVM, web("eth0"), within(time.Minute)); err != nil {
		t.Fatal(err)
	}
	hangs, goesOn, real := make(chan bool), make(chan bool), s.save
	s.disk.Lock()
	s.save = func(r *record) error {
		if r.Alias == "web1" {
			close(hangs)
			<-goesOn
		}
		return real(r)
	}
	s.disk.Unlock()
	done := make(chan error)
	go func() {
		_, err := s.Put(t.Context(), webVM, Registration{Alias: "web1"}, within(time.Minute))
		done <- err
	}()
	<-hangs
	read := make(chan VM)
	go func() {
		_, _, _ = s.List(), s.Status(), s.Attachments()
		vm, _ := s.Get(webVM)
		read <- vm
	}()
	select {
	case vm := <-read:
		if vm.Alias != "web0" {
			t.Errorf("before it is on disk it is %q", vm.Alias)
		}
	case <-time.After(time.Minute):
		t.Error("those who read wait for the disk")
	}
	close(goesOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if vm, err := s.Get(webVM); err != nil || vm.Alias != "web1" {
		t.Errorf("then: %+v, %v", vm, err)
	}
}

// TestFullDisk: on a full disk a registration is refused with the reason and what to do,
// nothing of it is left, and what was registered before stays.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size=16k"); err != nil {
		t.Skipf("a small disk cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(folder, unix.MNT_DETACH) })
	m := newModel(t, 1)
	s := m.start(folder, newSink())
	defer s.stop()
	id := func(n byte) log.UUID { return log.UUID{1, 15: n} }
	for n := byte(1); ; n++ {
		r := web("eth0")
		r.Zonename = id(n).String()
		_, err := s.Put(t.Context(), id(n), r, within(time.Minute))
		if err == nil && n < 100 {
			continue
		}
		if codeOf(err) != CodeDisk || !strings.Contains(err.Error(), "df "+folder) || !errors.As(err, new(*Error)) {
			t.Errorf("registration %d: got %s %v, want %s with what to do", n, codeOf(err), err, CodeDisk)
		}
		if _, err := s.Get(id(n)); codeOf(err) != CodeUnknown || len(m.nics(id(n))) != 0 {
			t.Errorf("it is registered: %v, with %v", err, m.nics(id(n)))
		}
		break
	}
	if vm, err := s.Get(id(1)); err != nil || len(vm.NICs) != 1 {
		t.Errorf("the first: %+v, %v", vm, err)
	}
}
