// Package vmtest has a compute node for tests of code that watches or runs its VMs: the
// folders of a node, a source of VMs over them, and the resulting events.
package vmtest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/agent/vminfo"
	"rutter/agent/vminfo/manifests"
	"rutter/agent/vminfo/vmstore"
	"rutter/agent/vmsource"
)

// patience bounds each wait of a test.
const patience = time.Minute

// Site is a compute node of a test: its folders, and a Folder over them with its
// store. Machines, if set before Run, is systemd-machined's folder.
type Site struct {
	T                        *testing.T
	Manifests, PIDs, Cgroups string
	Machines                 string
	Folder                   *manifests.Folder
	Store                    *vmstore.Store
	Service                  *vminfo.Service
	Stop                     func() // the source; the test's end does so as well
}

// NewSite makes the folders of a node, empty.
func NewSite(t *testing.T) *Site {
	t.Helper()
	dir := t.TempDir()
	s := &Site{T: t, Manifests: filepath.Join(dir, "manifests"), PIDs: filepath.Join(dir, "pids"), Cgroups: filepath.Join(dir, "cgroups")}
	for _, path := range []string{s.Manifests, s.PIDs} {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Run starts the source, and waits until it is loaded.
func (s *Site) Run(scanEvery time.Duration) {
	s.T.Helper()
	folder, err := manifests.New(manifests.Config{Manifests: s.Manifests, PIDs: s.PIDs, NetNS: "/run/netns", Cgroup: s.Cgroups, Machines: cmp.Or(s.Machines, filepath.Join(s.PIDs, "none")), ScanEvery: scanEvery})
	if err != nil {
		s.T.Fatal(err)
	}
	if s.Service, err = vminfo.New(vminfo.Config{Sources: []vmsource.Source{folder}}); err != nil {
		s.T.Fatal(err)
	}
	s.Folder, s.Store = folder, s.Service.Store()
	ctx, cancel := context.WithCancel(s.T.Context())
	done := make(chan error, 1)
	go func() { done <- s.Service.Run(ctx, nil) }()
	s.Stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.T.Errorf("Run: %v", err)
		}
	})
	s.T.Cleanup(s.Stop)
	select {
	case <-s.Service.Ready():
	case <-time.After(patience):
		s.T.Fatal("the folder is not loaded")
	}
}

// UUID returns the UUID of the nth VM of a test.
func UUID(n int) string { return fmt.Sprintf("5595d88c-6e4d-4bda-b58e-%012x", n) }

// Write renames a manifest into the folder, as it must be done.
func (s *Site) Write(name, text string) {
	s.T.Helper()
	temp := filepath.Join(s.Manifests, "."+name+".new")
	if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
		s.T.Fatal(err)
	}
	if err := os.Rename(temp, filepath.Join(s.Manifests, name)); err != nil {
		s.T.Fatal(err)
	}
}

// WriteVM writes the manifest of the nth VM; fields begin with a comma, or are empty.
func (s *Site) WriteVM(n int, fields string) {
	s.Write(UUID(n)+".json", fmt.Sprintf(`{"uuid":%q%s}`, UUID(n), fields))
}

// Next waits for the event after seq.
func (s *Site) Next(seq uint64) vmstore.Event {
	s.T.Helper()
	deadline := time.After(patience)
	for {
		events, changed, err := s.Store.Since(seq, 1)
		if err != nil {
			s.T.Fatal(err)
		}
		if len(events) > 0 {
			return events[0]
		}
		select {
		case <-changed:
		case <-deadline:
			events, _, _ := s.Store.Since(0, 100)
			for _, e := range events {
				s.T.Logf("%s", e.Line)
			}
			s.T.Fatalf("no event after %d; status %+v", seq, s.Folder.Status())
		}
	}
}

// Until waits for an event after seq whose line has want, and returns it.
func (s *Site) Until(seq uint64, want string) vmstore.Event {
	s.T.Helper()
	for {
		event := s.Next(seq)
		if strings.Contains(string(event.Line), want) {
			return event
		}
		seq = event.Seq
	}
}

// Eventually waits for something that makes no event.
func (s *Site) Eventually(what string, ok func() bool) {
	s.T.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			s.T.Fatalf("%s: not within %s; status %+v", what, patience, s.Folder.Status())
		}
		time.Sleep(time.Millisecond)
	}
}

// Aside returns what the source cannot use, each as "name: reason".
func (s *Site) Aside() []string {
	var names []string
	for _, a := range s.Folder.Status().Aside {
		names = append(names, a.Name+": "+a.Reason)
	}
	return names
}

// NeedRoot skips a test that may not make namespaces and cgroups.
func NeedRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces and cgroups need root")
	}
}

// Shell runs a command, and skips the test if it cannot be run here.
func Shell(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Skipf("%s %v: %v: %s", name, args, err, out)
	}
}
