package miss

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOneNamespaceHangsAlone: of 300 namespaces of which 100 hang, the other 200 are
// read, and those that hang are not read again before they answer.
func TestOneNamespaceHangsAlone(t *testing.T) {
	hang := make(chan struct{})
	var r Readers
	reads := make(chan string, 1000)
	read := func(name string) ([]Miss, error) {
		reads <- name
		if name[0] == 'h' {
			<-hang
		}
		return []Miss{{Kind: Neighbour, IP: ip4}}, nil
	}
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("%c%d", "hgg"[i%3], i))
	}
	for round := range 2 {
		good, hanging := 0, 0
		r.Each(t.Context(), names, read, func(name string, misses []Miss, err error) {
			switch {
			case err == nil && len(misses) == 1 && name[0] == 'g':
				good++
			case errors.Is(err, ErrHangs) && name[0] == 'h':
				hanging++
			default:
				t.Errorf("%s: got %v, %v", name, misses, err)
			}
		})
		if good != 200 || hanging != 100 {
			t.Errorf("round %d: %d were read and %d hang, want 200 and 100", round, good, hanging)
		}
	}
	if got := len(reads); got != 500 {
		t.Errorf("%d reads, want 500: those that hang once", got)
	}
	close(hang)
	for running := 1; running > 0; runtime.Gosched() {
		r.mu.Lock()
		running = len(r.running)
		r.mu.Unlock()
	}
	if r.left != 0 {
		t.Errorf("%d reads are left of none", r.left)
	}
}

// TestPendingLeavesThreads: reading in another namespace leaves no thread there, and
// never uses the process's first one, which would stay.
func TestPendingLeavesThreads(t *testing.T) {
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	made := make(chan error)
	end, path := make(chan struct{}), ""
	moved := make(chan struct{})
	var stay func()
	stay = func() { // its thread has the other namespace, and ends with it
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			go stay() // on another thread, because this one is held
			<-moved
			runtime.UnlockOSThread()
			return
		}
		close(moved)
		path = fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		made <- unix.Unshare(unix.CLONE_NEWNET)
		<-end
	}
	go stay()
	defer close(end)
	if err := <-made; err != nil {
		t.Skip("needs a namespace of its own:", err)
	}
	onFirstThread(t, func() {
		for range 100 {
			if _, err := Pending(path); err != nil {
				t.Error(err)
			}
		}
	})
	if now, err := os.Readlink("/proc/self/ns/net"); err != nil || now != home {
		t.Errorf("the process's first thread is in %s (%v), want %s", now, err, home)
	}
	other, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	in := 0
	for _, task := range tasks {
		if ns, err := os.Readlink("/proc/self/task/" + task.Name() + "/ns/net"); err == nil && ns == other {
			in++
		}
	}
	if in != 1 {
		t.Errorf("%d threads are in the other namespace, want the one of the test", in)
	}
}

// onFirstThread calls fn on the process's first thread, where goroutines that fn starts
// run as soon as it waits.
func onFirstThread(t *testing.T, fn func()) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	done, release := make(chan bool), make(chan struct{})
	defer close(release)
	for range 100 { // each takes a thread, until the first one is taken
		time.Sleep(time.Millisecond) // it may wait for timers
		go func() {
			runtime.LockOSThread()
			if unix.Gettid() != unix.Getpid() {
				done <- false
				<-release
				return
			}
			runtime.UnlockOSThread()
			fn()
			done <- true
		}()
		if <-done {
			return
		}
	}
	t.Skip("the first thread of the process runs no goroutine")
}
