package manifests

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmrun/qmp"
	"rutter/log"
)

const (
	// machineAgain is the pause before a QEMU that did not answer is asked again.
	machineAgain = 2 * time.Second
	// lastWords bounds the wait for what a QEMU sent before it ended. It is in the socket
	// already, so the wait is one of this program for itself.
	lastWords = time.Second
	// eventEvery and eventBurst bound how fast the events of one QEMU are taken: a few at
	// once, then one each 50 ms. The rest stays in the socket, and QEMU's memory.
	eventEvery = 50 * time.Millisecond
	eventBurst = 64
)

// unanswered is the state of a machine whose QEMU does not answer.
const unanswered = "unknown"

// machine is a QEMU that runs a VM, as its events tell. A goroutine keeps the connection; a
// QEMU that does not answer costs that goroutine, and nothing else.
type machine struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended
	hurry  chan struct{} // closed when the process has ended: what is left is taken at once

	mu        sync.Mutex
	connected bool
	closed    chan struct{} // closed when the connection that was last made has ended
	runState  string        // QEMU's; unanswered
	reason    string        // of the end, once QEMU sent it
}

// machineChanges are the VMs whose machines changed.
type machineChanges struct {
	mu  sync.Mutex
	vms map[log.UUID]bool
}

func (t *machineChanges) add(id log.UUID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.vms == nil {
		t.vms = make(map[log.UUID]bool)
	}
	t.vms[id] = true
}

func (t *machineChanges) take() []log.UUID {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]log.UUID, 0, len(t.vms))
	for id := range t.vms {
		list = append(list, id)
	}
	clear(t.vms)
	return list
}

// followMachine follows the QEMU of a VM whose process has just been found, if it has a
// socket for events.
func (f *Folder) followMachine(vm *vmRecord) {
	socket := filepath.Join(system.QEMUFolder(f.cfg.PIDs, vm.uuid), system.QEMUEvents)
	if !system.Exists(socket) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &machine{cancel: cancel, done: make(chan struct{}), hurry: make(chan struct{}), runState: unanswered}
	vm.machine = m
	id, poll := vm.uuid, f.poll
	go func() {
		defer close(m.done)
		m.run(ctx, socket, func() {
			f.machines.add(id)
			poll.wake()
		})
	}()
}

// machineEnded ends following the machine of a VM whose process has ended, and returns the
// reason that QEMU gave; "" if none.
func (f *Folder) machineEnded(vm *vmRecord) string {
	m := vm.machine
	if m == nil {
		return ""
	}
	vm.machine = nil
	defer m.close()
	close(m.hurry)
	m.mu.Lock()
	connected, closed := m.connected, m.closed
	m.mu.Unlock()
	if connected {
		late := time.NewTimer(lastWords)
		defer late.Stop()
		select {
		case <-closed:
		case <-late.C:
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reason
}

// close ends the goroutine of a machine.
func (m *machine) close() {
	m.cancel()
	<-m.done
}

// state is QEMU's word for what the machine does, or unanswered.
func (m *machine) state() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runState
}

// run keeps a connection to QEMU until ctx ends. changed is called after each change.
func (m *machine) run(ctx context.Context, socket string, changed func()) {
	for ctx.Err() == nil {
		if conn, err := qmp.Open(ctx, socket); err == nil {
			m.follow(ctx, conn, changed)
		}
		select {
		case <-time.After(machineAgain):
		case <-ctx.Done():
		}
	}
}

// follow reads the events of one connection to its end, and closes it.
func (m *machine) follow(ctx context.Context, conn *qmp.Conn, changed func()) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	closed := make(chan struct{})
	defer close(closed)
	m.mu.Lock()
	m.connected, m.closed = true, closed
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.connected = false
		if m.reason == "" {
			m.runState = unanswered
		}
		m.mu.Unlock()
		changed()
	}()
	asked := func() error {
		state, err := conn.RunState(ctx)
		m.mu.Lock()
		if err == nil {
			m.runState = state
		}
		m.mu.Unlock()
		changed()
		if err != nil {
			for _, event := range conn.Kept() {
				m.take(event)
			}
		}
		return err
	}
	if asked() != nil {
		return
	}
	var due time.Time
	for {
		event, err := conn.Next()
		if err != nil {
			return // QEMU ended, or is none
		}
		if asks := m.take(event); asks && asked() != nil {
			return
		}
		now := time.Now()
		if due.Before(now) {
			due = now
		}
		due = due.Add(eventEvery)
		if wait := time.Until(due.Add(-eventBurst * eventEvery)); wait > 0 {
			select {
			case <-time.After(wait):
			case <-m.hurry: // the socket has no more than its buffer, and then its end
			case <-ctx.Done():
				return
			}
		}
	}
}

// take notes an event, and reports whether QEMU's state is to be asked for again.
func (m *machine) take(event qmp.Event) (ask bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch event.Name {
	case qmp.Shutdown:
		// A second one, of the quit that follows, says less.
		if m.reason == "" {
			m.reason = event.Reason
		}
	case qmp.Panicked, qmp.Stop, qmp.Resume, qmp.Reset:
		return true
	}
	return false
}
