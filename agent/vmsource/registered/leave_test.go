package registered

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"rutter/log"
)

// TestDeletedWhileTold: a VM whose deletion comes while the log was told of all else, and
// before that is concluded, has its NICs deleted in the log, and not only its file.
func TestDeletedWhileTold(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	folder := t.TempDir()
	s := m.start(folder, newSink())
	if _, err := s.Put(t.Context(), webVM, web("eth0"), within(time.Minute)); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s.disk.Lock() // another file is written
	told := make(chan error, 1)
	go func() { told <- s.tell(t.Context(), webVM) }()
	until(t, "all but the end is done", func() bool { return waitsForDisk("registered.left(") })
	s.mu.Lock()
	gone := s.vms[webVM].clone()
	gone.Leaving = true
	err := s.keepLocked(s.vms[webVM], gone)
	s.mu.Unlock()
	s.disk.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := <-told; err != nil {
		t.Fatal(err)
	}
	if files, _ := os.ReadDir(folder); len(m.nics(webVM)) != 0 || len(files) != 0 {
		t.Errorf("the log has %v, the folder %v; want neither", m.nics(webVM), files)
	}
}

// waitsForDisk reports whether that function waits for a lock.
func waitsForDisk(function string) bool {
	text := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(text[:runtime.Stack(text, true)]), "\n\n") {
		if head, _, _ := strings.Cut(g, "\n"); strings.Contains(head, "Mutex.Lock") && strings.Contains(g, function) {
			return true
		}
	}
	return false
}

// TestRefusedBesideUnknown: of a VM that is deleted, a NIC that the log refuses does not hide
// another of which no answer came: the log may have that one, and it is deleted there.
func TestRefusedBesideUnknown(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	folder := t.TempDir()
	s := m.start(folder, newSink())
	defer func() { s.stop() }()
	if _, err := s.Put(t.Context(), webVM, web("eth0"), within(time.Minute)); err != nil {
		t.Fatal(err)
	}
	m.set(func() { m.down = true })
	refused := web("eth1")
	refused.NICs[0].Network = closedNet.String()
	for _, r := range []Registration{refused, web("eth2")} {
		if _, err := s.Put(t.Context(), webVM, r, within(50*time.Millisecond)); codeOf(err) != CodeServers {
			t.Fatalf("got %v, want %s", err, CodeServers)
		}
	}
	r := s.recordOf(webVM) // the creation of eth2 arrives, and its answer does not
	c := s.creation(r, r.nic("eth2").Change)
	c.Actor, c.By = "cn", log.Author{Role: log.RoleCN, CN: modelCN}
	m.set(func() { m.decide(c) })
	if len(m.nics(webVM)) != 2 {
		t.Fatalf("the log has %v, want eth0 and eth2", m.nics(webVM))
	}
	if err := s.Delete(t.Context(), webVM); err != nil {
		t.Fatal(err)
	}
	m.set(func() { m.down = false })
	until(t, "the registration is gone", func() bool { files, _ := os.ReadDir(folder); return len(files) == 0 })
	if nics := m.nics(webVM); len(nics) != 0 {
		t.Errorf("the log has %v, want none", nics)
	}
}
