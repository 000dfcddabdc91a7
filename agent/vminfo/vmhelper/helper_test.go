package vmhelper

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/internal/guesttest"
	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmrun"
	"rutter/log"
)

// is fails the test unless an error is want.
func is(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// TestHelperRunsVMs: a VM is made, started, changed, stopped and removed by another process,
// with the errors of a runner of this one.
func TestHelperRunsVMs(t *testing.T) {
	t.Parallel()
	h := newHelper(t, "run")
	ctx := t.Context()
	id := h.write(1, "")
	manifest, err := h.Manifest(id)
	if err != nil {
		t.Fatal(err)
	}
	is(t, "created twice", h.Create(manifest), vmrun.ErrExists)
	is(t, "removed", h.Remove(ctx, id), nil)
	is(t, "removed twice", h.Remove(ctx, id), vmrun.ErrNoVM)
	is(t, "prepared without a manifest", h.Prepare(ctx, id), vmrun.ErrNoVM)
	is(t, "created", h.Create(manifest.With("max_physical_memory", vmdoc.IntValue(64))), nil)
	is(t, "stopped before", h.Stop(ctx, id, false), vmrun.ErrNotRunning)
	is(t, "prepared", h.Prepare(ctx, id), nil)
	is(t, "started", h.Start(ctx, id), nil)
	pid := h.process(id)
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err != nil || !strings.Contains(string(status), fmt.Sprintf("PPid:\t%d\n", h.cmd.Process.Pid)) {
		t.Errorf("process %d is no child of the helper %d: %v\n%s", pid, h.cmd.Process.Pid, err, status)
	}
	is(t, "started twice", h.Start(ctx, id), vmrun.ErrRunning)
	calls := 0
	is(t, "edited", h.Edit(id, func(v vmdoc.Value) vmdoc.Value {
		if calls++; calls == 1 { // another program writes the manifest meanwhile
			if err := h.reader.Edit(id, func(v vmdoc.Value) vmdoc.Value { return v.With("quota", vmdoc.IntValue(3)) }); err != nil {
				t.Error(err)
			}
		}
		return v.With("max_physical_memory", vmdoc.IntValue(128))
	}), nil)
	after, err := h.Manifest(id)
	if quota, _ := after.Get("quota"); err != nil || calls != 2 || quota.Literal() != "3" {
		t.Errorf("after %d calls quota is %q (%v): what was written meanwhile is lost", calls, quota.Literal(), err)
	}
	if limit := system.MemoryLimit(filepath.Join(h.site.Cgroups, id.String())); limit != 128<<20 {
		t.Errorf("its memory limit is %d", limit)
	}
	is(t, "stopped", h.Stop(ctx, id, false), nil)
	if left := h.left(1, id); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if r, err := h.Probe(ctx); err != nil || r.Working != 0 || r.Done < 10 || r.Version != "helper" {
		t.Errorf("its report: %+v, %v", r, err)
	}
}

// TestErrorsOfVMs: why a VM does not start is known by the client as by the helper.
func TestErrorsOfVMs(t *testing.T) {
	t.Parallel()
	h := newHelper(t, "errors")
	root := guesttest.Root(t)
	for _, c := range []struct {
		fields string
		want   error
		says   string
	}{
		{`,"init":["/guest","sleep"]`, vmrun.ErrNoRoot, "put the VM's files into a folder"},
		{`,"root":"/usr","init":["/guest","sleep"]`, vmrun.ErrRoot, "chmod 0700"},
		{fmt.Sprintf(`,"root":%q,"init":["/none"]`, root), vmrun.ErrNoInit, "there is no such file"},
		{fmt.Sprintf(`,"root":%q,"init":["/guest","sleep"]`, root), nil, ""},
	} {
		id := h.write(1, c.fields)
		err := h.Start(t.Context(), id)
		is(t, c.fields, err, c.want)
		if err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.fields, err, c.says)
		}
		if err == nil {
			is(t, "stopped", h.Stop(t.Context(), id, true), nil)
		}
	}
}

// TestVMsOutliveTheHelper: a VM goes on without its helper, however that ended, and the next
// helper stops it.
func TestVMsOutliveTheHelper(t *testing.T) {
	t.Parallel()
	h := newHelper(t, "outlive")
	id := h.write(1, "")
	is(t, "started", h.Start(t.Context(), id), nil)
	pid := h.process(id)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		h.signal(s)
		if now := h.process(id); now != pid || pid == 0 {
			t.Fatalf("after %v of the helper, process %d of the VM is %d", s, pid, now)
		}
		h.start()
		is(t, "started again", h.Start(t.Context(), id), vmrun.ErrRunning)
	}
	is(t, "stopped", h.Stop(t.Context(), id, false), nil)
	if left := h.left(1, id); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestKilledInAStart: a helper that is killed at any moment of a start leaves nothing that the
// next one cannot start or stop; the client's start succeeds by the next one.
func TestKilledInAStart(t *testing.T) {
	t.Parallel()
	h := newHelper(t, "killed")
	times := 20
	if testing.Short() {
		times = 5
	}
	again := 0
	for range times {
		id := h.write(1, "")
		started := make(chan error, 1)
		go func() { started <- h.Start(t.Context(), id) }()
		time.Sleep(rand.N(120 * time.Millisecond)) // any moment
		select {
		case err := <-started:
			is(t, "a start that was fast", err, nil)
			started <- nil
		default:
			again++
		}
		h.signal(syscall.SIGKILL)
		h.start()
		is(t, "started", <-started, nil)
		if h.reader.Start(t.Context(), id) == nil {
			t.Error("it was said to run, and did not")
		}
		is(t, "stopped", h.Stop(t.Context(), id, true), nil)
		if left := h.left(1, id); len(left) > 0 {
			t.Fatalf("left: %v", left)
		}
	}
	t.Logf("%d of %d were killed before the answer", again, times)
	if users, err := os.ReadDir(filepath.Join(h.site.PIDs, "users")); err != nil || len(users) > 0 {
		t.Errorf("user IDs that are still taken: %v, %v", users, err)
	}
}

// TestHung: a helper that stands still ends the requests under way and refuses new ones at
// once; VMs run on. When it goes on, it does nothing of what was given up, and serves.
func TestHung(t *testing.T) {
	t.Parallel()
	h := newHelper(t, "hung")
	running, waiting := h.write(1, ""), h.write(2, "")
	is(t, "started", h.Start(t.Context(), running), nil)
	pid := h.process(running)
	h.signal(syscall.SIGSTOP)
	began := time.Now()
	is(t, "started by one that stands still", h.Start(t.Context(), waiting), ErrNoHelper)
	if took := time.Since(began); took > 50*time.Second {
		t.Errorf("that took %v", took)
	}
	h.until("does not answer", func(s Status) bool { return !s.Answers && strings.Contains(s.Failure, "stands still") })
	if lines := h.Trouble(); len(lines) != 1 || !strings.Contains(lines[0], "systemctl restart rutter-vms ends no VM") {
		t.Errorf("trouble: %q", lines)
	}
	began = time.Now()
	for range 100 {
		is(t, "edited", h.Edit(waiting, func(v vmdoc.Value) vmdoc.Value { return v.With("quota", vmdoc.IntValue(1)) }), ErrNoHelper)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("100 refusals took %v", took)
	}
	if v, err := h.Manifest(running); err != nil || v.Text("uuid") == "" || h.process(running) != pid {
		t.Errorf("what runs: %v, process %d, want %d", err, h.process(running), pid)
	}
	h.signal(syscall.SIGCONT)
	h.until("answers", func(s Status) bool { return s.Answers })
	h.idle()
	if h.process(waiting) != 0 || len(h.left(2, waiting)) > 0 {
		t.Errorf("a start that was given up was made: %v", h.left(2, waiting))
	}
	is(t, "started afterwards", h.Start(t.Context(), waiting), nil)
}

// idle waits until the helper does nothing.
func (h *helper) idle() {
	h.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		r, err := h.Probe(context.Background())
		if err == nil && r.Working == 0 && r.Open == 1 {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("the helper is not idle: %+v, %v", r, err)
		}
	}
}

// TestNoHelper: without a helper a request waits for one for a while, and then fails; once
// that is known it fails at once.
func TestNoHelper(t *testing.T) {
	t.Parallel()
	h := newHelper(t, "none")
	id := h.write(1, "")
	h.signal(syscall.SIGKILL)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err := h.Start(ctx, id)
	is(t, "started", err, ErrNoHelper)
	h.until("does not answer", func(s Status) bool { return !s.Answers && s.Failure != "" })
	h.until("refused", func(Status) bool {
		_, err := h.Client.usable()
		return err != nil
	})
	is(t, "started", h.Start(t.Context(), id), ErrNoHelper)
	h.start()
	h.until("answers", func(s Status) bool { return s.Answers })
	is(t, "started", h.Start(t.Context(), id), nil)
}

// TestClientGone: what a client has asked for ends when it goes away.
func TestClientGone(t *testing.T) {
	t.Parallel()
	h := newHelper(t, "gone")
	id := h.write(1, "")
	unlock := h.locked(id)
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() { started <- h.Start(ctx, id) }()
	for { // until it waits for the VM
		if r, err := h.Probe(t.Context()); err == nil && r.Working == 1 {
			break
		}
	}
	cancel()
	is(t, "given up", <-started, context.Canceled)
	h.idle()
	unlock()
	if h.process(id) != 0 {
		t.Error("it was started all the same")
	}
}

// TestOtherFolders: a helper of other folders runs nothing for a client, and is named.
func TestOtherFolders(t *testing.T) {
	t.Parallel()
	h := newHelper(t, "folders")
	id := h.write(1, "")
	cfg := h.set.Config
	cfg.PIDs = t.TempDir()
	reader, err := vmrun.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(ClientConfig{Socket: h.set.Socket, Reader: reader})
	err = c.Start(t.Context(), id)
	is(t, "started", err, ErrFolders)
	if err == nil || !strings.Contains(err.Error(), "vm-run is ") || strings.Contains(err.Error(), "netns is") {
		t.Errorf("got %v", err)
	}
	if _, err := c.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.note(nil)
	if lines := c.Trouble(); len(lines) != 1 || !strings.Contains(lines[0], "vm-run is ") {
		t.Errorf("trouble: %q", lines)
	}
}

// TestEnds: a helper that is told to end finishes what it does, and cuts it short at the end
// of its time.
func TestEnds(t *testing.T) {
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprint("cut ", cut), func(t *testing.T) {
			h := newHelper(t, fmt.Sprint("ends", cut))
			if cut {
				h.signal(syscall.SIGTERM)
				h.set.Drain = time.Millisecond
				h.start()
			}
			id := h.write(1, "")
			unlock := h.locked(id)
			started := make(chan error, 1)
			go func() { started <- h.Start(t.Context(), id) }()
			h.until("works", func(Status) bool {
				r, err := h.Probe(t.Context())
				return err == nil && r.Working == 1
			})
			if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if cut {
				<-h.ended
				h.ended <- nil
				h.start()
			}
			unlock()
			is(t, "started", <-started, nil)
			if h.process(id) == 0 {
				t.Error("it does not run")
			}
		})
	}
}

// locked holds the lock of a VM.
func (h *helper) locked(id log.UUID) (unlock func()) {
	h.t.Helper()
	file, err := os.OpenFile(filepath.Join(h.site.PIDs, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		h.t.Fatal(err)
	}
	at := int64(binary.BigEndian.Uint64(id[8:]) >> 1) // vmrun.Runner's
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}); err != nil {
		h.t.Fatal(err)
	}
	return func() { _ = file.Close() }
}
