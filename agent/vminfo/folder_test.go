package vminfo

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/log"
)

// patience bounds each wait of a test.
const patience = time.Minute

// site is a compute node of a test: its folders, and a Folder over them with
// its store.
type site struct {
	t                        *testing.T
	manifests, pids, cgroups string
	machines                 string // of systemd-machined; "": there is none
	folder                   *Folder
	store                    *Store
	service                  *Service
	stop                     func()
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	s := &site{t: t, manifests: filepath.Join(dir, "manifests"), pids: filepath.Join(dir, "pids"), cgroups: filepath.Join(dir, "cgroups")}
	for _, path := range []string{s.manifests, s.pids} {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// run starts the source, and waits until it is loaded.
func (s *site) run(scanEvery time.Duration) {
	s.t.Helper()
	folder, err := NewFolder(FolderConfig{Manifests: s.manifests, PIDs: s.pids, NetNS: "/run/netns", Cgroup: s.cgroups, Machines: cmp.Or(s.machines, filepath.Join(s.pids, "none")), ScanEvery: scanEvery})
	if err != nil {
		s.t.Fatal(err)
	}
	if s.service, err = New(Config{Sources: []Source{folder}}); err != nil {
		s.t.Fatal(err)
	}
	s.folder, s.store = folder, s.service.Store()
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- s.service.Run(ctx, nil) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("Run: %v", err)
		}
	})
	s.t.Cleanup(s.stop)
	select {
	case <-s.service.Ready():
	case <-time.After(patience):
		s.t.Fatal("the folder is not loaded")
	}
}

func testUUID(n int) string { return fmt.Sprintf("5595d88c-6e4d-4bda-b58e-%012x", n) }

// write puts a manifest into the folder as it should be: by renaming.
func (s *site) write(name, text string) {
	s.t.Helper()
	temp := filepath.Join(s.manifests, "."+name+".new")
	if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(temp, filepath.Join(s.manifests, name)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) writeVM(n int, fields string) {
	s.write(testUUID(n)+".json", fmt.Sprintf(`{"uuid":%q%s}`, testUUID(n), fields))
}

// next waits for the event after seq.
func (s *site) next(seq uint64) Event {
	s.t.Helper()
	deadline := time.After(patience)
	for {
		events, changed, err := s.store.Since(seq, 1)
		if err != nil {
			s.t.Fatal(err)
		}
		if len(events) > 0 {
			return events[0]
		}
		select {
		case <-changed:
		case <-deadline:
			events, _, _ := s.store.Since(0, 100)
			for _, e := range events {
				s.t.Logf("%s", e.Line)
			}
			s.t.Fatalf("no event after %d; status %+v", seq, s.folder.Status())
		}
	}
}

// until waits for an event after seq whose line has want, and returns it.
func (s *site) until(seq uint64, want string) Event {
	s.t.Helper()
	for {
		event := s.next(seq)
		if strings.Contains(string(event.Line), want) {
			return event
		}
		seq = event.Seq
	}
}

// eventually waits for something that no event tells.
func (s *site) eventually(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: not within %s; status %+v", what, patience, s.folder.Status())
		}
		time.Sleep(time.Millisecond)
	}
}

func (s *site) aside() []string {
	var names []string
	for _, a := range s.folder.Status().Aside {
		names = append(names, a.Name+": "+a.Reason)
	}
	return names
}

func TestFolderCreateModifyDelete(t *testing.T) {
	s := newSite(t)
	s.writeVM(1, `,"alias":"web0","quota":10`)
	s.run(0)
	vms, seq := s.store.List()
	if len(vms) != 1 || seq != 0 {
		t.Fatalf("loaded %d VMs at seq %d, want 1 at 0", len(vms), seq)
	}
	for _, want := range []string{`"alias":"web0"`, `"state":"stopped"`, `"zone_state":"installed"`, `"zonename":"` + testUUID(1) + `"`, `"last_modified":"`} {
		if !strings.Contains(string(vms[0].JSON), want) {
			t.Errorf("the VM %s has no %s", vms[0].JSON, want)
		}
	}
	s.writeVM(2, "")
	if e := s.next(0); e.Type != "create" || e.UUID.String() != testUUID(2) {
		t.Errorf("got %s", e.Line)
	}
	s.writeVM(1, `,"alias":"web0","quota":20`)
	e := s.next(1)
	want := `"changes":[{"prettyPath":"quota","path":["quota"],"action":"changed","oldValue":10,"newValue":20}],"seq":2}`
	if e.Type != "modify" || !strings.Contains(string(e.Line), want) {
		t.Errorf("got %s, want %s", e.Line, want)
	}
	if err := os.Remove(filepath.Join(s.manifests, testUUID(1)+".json")); err != nil {
		t.Fatal(err)
	}
	if e := s.next(2); e.Type != "delete" || e.UUID.String() != testUUID(1) || strings.Contains(string(e.Line), `"vm"`) {
		t.Errorf("got %s", e.Line)
	}
}

// TestFolderExternalEdits: written in place, moved away and back, linked.
func TestFolderExternalEdits(t *testing.T) {
	s := newSite(t)
	s.writeVM(1, `,"quota":1`)
	s.run(0)
	path := filepath.Join(s.manifests, testUUID(1)+".json")
	if err := os.WriteFile(path, []byte(`{"uuid":"`+testUUID(1)+`","quota":2}`), 0o644); err != nil {
		t.Fatal(err)
	}
	e := s.until(0, `"newValue":2`)
	// What vim does.
	if err := os.Rename(path, path+"~"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"uuid":"`+testUUID(1)+`","quota":3}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if e = s.next(e.Seq); e.Type != "modify" {
		t.Errorf("an editor's backup made %s", e.Line)
	}
	if err := os.Link(filepath.Join(s.manifests, writeOther(t, s, 2)), filepath.Join(s.manifests, "linked.json")); err != nil {
		t.Fatal(err)
	}
	if e = s.next(e.Seq); e.Type != "create" {
		t.Errorf("a link made %s", e.Line)
	}
}

// writeOther writes a manifest under a name that is none.
func writeOther(t *testing.T, s *site, n int) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.manifests, "draft"), []byte(`{"uuid":"`+testUUID(n)+`"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	return "draft"
}

// TestFolderBadManifests: they are named, what was known stays, the rest goes on.
func TestFolderBadManifests(t *testing.T) {
	s := newSite(t)
	s.write("broken.json", `{"uuid":`)
	s.write("nouuid.json", `{"alias":"x"}`)
	s.write("list.json", `[]`)
	s.write("nics.json", `{"uuid":"`+testUUID(9)+`","nics":[{"mac":"zz"}]}`)
	s.write("zone.json", `{"uuid":"`+testUUID(9)+`","zonename":"../x"}`)
	s.write("empty.json", ``)
	if err := os.Mkdir(filepath.Join(s.manifests, "folder.json"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(s.manifests, "pipe.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.write("large.json", `{"uuid":"`+strings.Repeat("x", maxManifest)+`"}`)
	s.writeVM(1, `,"quota":1`)
	s.run(0)
	want := map[string]string{
		"broken.json": "ends early", "nouuid.json": "uuid", "list.json": "object", "nics.json": "nics.0.mac", "zone.json": "zonename",
		"empty.json": "empty", "folder.json": "regular", "pipe.json": "regular", "large.json": "a manifest may have",
	}
	aside := s.folder.Status().Aside
	if len(aside) != len(want) || s.store.Count() != 1 {
		t.Errorf("aside %v, %d VMs", s.aside(), s.store.Count())
	}
	for _, a := range aside {
		if !strings.Contains(a.Reason, want[a.Name]) {
			t.Errorf("%s: %s, want %q", a.Name, a.Reason, want[a.Name])
		}
	}
	// A VM whose manifest breaks stays as it was, and goes on when it is mended.
	s.write(testUUID(1)+".json", `{"uuid":"`+testUUID(1)+`","quo`)
	s.eventually("the broken manifest is aside", func() bool { return len(s.folder.Status().Aside) == len(want)+1 })
	if vm, ok := s.store.Find(testUUID(1)); !ok || !strings.Contains(string(vm.JSON), `"quota":1`) {
		t.Errorf("the VM became %s, %t", vm.JSON, ok)
	}
	s.writeVM(1, `,"quota":2`)
	s.until(0, `"newValue":2`)
	s.eventually("the mended manifest is not aside", func() bool { return len(s.folder.Status().Aside) == len(want) })
	if _, _, seq := s.store.Kept(); seq != 1 {
		t.Errorf("%d events, want 1", seq)
	}
}

func TestFolderDuplicates(t *testing.T) {
	s := newSite(t)
	s.writeVM(1, `,"quota":1`)
	s.run(0)
	s.write("other.json", `{"uuid":"`+testUUID(1)+`","quota":7}`)
	s.write("zone.json", `{"uuid":"`+testUUID(2)+`","zonename":"`+testUUID(1)+`"}`)
	s.eventually("both are aside", func() bool { return len(s.folder.Status().Aside) == 2 })
	for _, a := range s.aside() {
		if !strings.Contains(a, testUUID(1)) {
			t.Errorf("%s does not name the VM in the way", a)
		}
	}
	if err := os.Remove(filepath.Join(s.manifests, testUUID(1)+".json")); err != nil {
		t.Fatal(err)
	}
	// One of the two takes the place, by whichever is read first.
	e := s.until(0, `"type":"create"`)
	if e.UUID.String() != testUUID(1) && e.UUID.String() != testUUID(2) {
		t.Errorf("got %s", e.Line)
	}
}

// TestFolderDuplicatesAtStart: of two manifests of a VM the one with its name
// counts, whichever is read first.
func TestFolderDuplicatesAtStart(t *testing.T) {
	for range 8 { // the order is chance
		s := newSite(t)
		s.write(testUUID(2)+".json", `{"uuid":"`+testUUID(1)+`","quota":7}`)
		s.writeVM(1, `,"quota":1`)
		s.run(0)
		s.eventually("the other one is aside", func() bool {
			aside := s.folder.Status().Aside
			return len(aside) == 1 && aside[0].Name == testUUID(2)+".json"
		})
		vms, _ := s.store.List()
		if len(vms) != 1 || !strings.Contains(string(vms[0].JSON), `"quota":1`) {
			t.Fatalf("got %s, want the VM of the manifest with its name", vms)
		}
	}
}

// TestFolderVanishes: the VMs stay, and what changed meanwhile is found.
func TestFolderVanishes(t *testing.T) {
	s := newSite(t)
	s.writeVM(1, `,"quota":1`)
	s.writeVM(2, "")
	s.run(0)
	away := s.manifests + ".away"
	if err := os.Rename(s.manifests, away); err != nil {
		t.Fatal(err)
	}
	s.eventually("the loss is told", func() bool { return strings.Contains(s.folder.Status().State, "vanished") })
	if got := s.store.Count(); got != 2 {
		t.Errorf("%d VMs without the folder, want 2", got)
	}
	// It comes back empty, as when a file system is not mounted.
	if err := os.Mkdir(s.manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	s.eventually("it is watched again", func() bool { return s.folder.Status().State == "watching" })
	s.folder.Scan()
	if got := s.store.Count(); got != 2 {
		t.Errorf("%d VMs with an empty folder, want 2", got)
	}
	if err := os.Remove(s.manifests); err != nil {
		t.Fatal(err)
	}
	s.eventually("the second loss is told", func() bool { return strings.Contains(s.folder.Status().State, "vanished") })
	// It comes back with another state.
	if err := os.Remove(filepath.Join(away, testUUID(2)+".json")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(away, testUUID(1)+".json"), []byte(`{"uuid":"`+testUUID(1)+`","quota":5}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, s.manifests); err != nil {
		t.Fatal(err)
	}
	s.until(0, `"newValue":5`)
	s.until(0, `"type":"delete"`)
	if got := s.store.Count(); got != 1 {
		t.Errorf("%d VMs, want 1", got)
	}
	if got := s.folder.Status().Errors; len(got) == 0 {
		t.Error("no failure is remembered")
	}
}

// TestFolderFlapping: a VM that changes all the time is told of now and then,
// and at last as it is.
func TestFolderFlapping(t *testing.T) {
	s := newSite(t)
	s.writeVM(1, `,"quota":0`)
	s.run(0)
	began := time.Now()
	for i := 1; i <= 300; i++ {
		s.writeVM(1, `,"quota":`+strconv.Itoa(i))
	}
	last := s.until(0, `"newValue":300`)
	if most := uint64(time.Since(began)/tellEvery) + tellBurst + 2; last.Seq > most {
		t.Errorf("%d events in %s, want at most %d", last.Seq, time.Since(began), most)
	}
}

// writeUnheard gives a VM whose quota is 1 another one, through a shared mapping:
// it makes no event of inotify.
func (s *site) writeUnheard(n int, quota byte) {
	s.t.Helper()
	file, err := os.OpenFile(filepath.Join(s.manifests, testUUID(n)+".json"), os.O_RDWR, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { file.Close() }) // that would be heard
	info, err := file.Stat()
	if err != nil {
		s.t.Fatal(err)
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		s.t.Fatal(err)
	}
	memory[strings.Index(string(memory), `"quota":1`)+len(`"quota":`)] = quota
	if err := unix.Munmap(memory); err != nil {
		s.t.Fatal(err)
	}
}

// TestFolderScan: what no event told is found, reported and counted; nothing else is.
func TestFolderScan(t *testing.T) {
	s := newSite(t)
	for n := range 100 {
		s.writeVM(n, `,"quota":1`)
	}
	s.run(0)
	s.folder.Scan()
	s.eventually("a scan", func() bool { return s.folder.Status().Scans == 1 })
	if got := s.folder.Status(); got.Missed != 0 || len(got.Log) != 0 {
		t.Fatalf("a scan of what is known found %+v", got.Log)
	}
	s.writeUnheard(7, '9')
	s.folder.Scan()
	s.until(0, `"newValue":9`)
	s.eventually("a second scan", func() bool { return s.folder.Status().Scans == 2 })
	got := s.folder.Status()
	if got.Missed != 1 || len(got.Log) != 1 || got.Log[0].VMChanges[0].Zonename != testUUID(7) || got.Log[0].VMChanges[0].Action != "modify" {
		t.Errorf("got %+v, want VM 7 modified", got.Log)
	}
}

// TestFolderScanBesideMounts: what a scan finds while the mounts change is not
// left out.
func TestFolderScanBesideMounts(t *testing.T) {
	needRoot(t)
	s := newSite(t)
	s.writeVM(7, `,"quota":1`)
	s.run(0)
	s.writeUnheard(7, '9')
	other := t.TempDir()
	if err := unix.Mount("none", other, "tmpfs", 0, ""); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(other, 0) })
	s.folder.Scan()
	s.until(0, `"newValue":9`)
	s.eventually("the scan's end", func() bool { return s.folder.Status().Scans == 1 })
	if got := s.folder.Status().Missed; got != 1 {
		t.Errorf("%d changes were missed by events, want 1", got)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces and cgroups need root")
	}
}

func shell(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Skipf("%s %v: %v: %s", name, args, err, out)
	}
}

// startInit runs something that lasts in a namespace, and writes its pid file.
func (s *site) startInit(n int, zone string) *exec.Cmd {
	s.t.Helper()
	cmd := exec.Command("ip", "netns", "exec", zone, "sleep", "1000")
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	// ip becomes sleep in the namespace by exec.
	s.eventually("the process is in its namespace", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		return err == nil && strings.TrimSpace(string(text)) == "sleep"
	})
	s.writePID(n, cmd.Process.Pid)
	return cmd
}

func (s *site) writePID(n, pid int) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.pids, testUUID(n)+".pid"), []byte(strconv.Itoa(pid)+"\n"), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// TestFolderSystem: the state is what really runs, and each change of it by hand
// is an event.
func TestFolderSystem(t *testing.T) {
	needRoot(t)
	s := newSite(t)
	parent := DefaultCgroup()
	s.cgroups = filepath.Join(filepath.Dir(parent), fmt.Sprintf("rutter-test-%d", os.Getpid()))
	if err := os.Mkdir(s.cgroups, 0o755); err != nil {
		t.Skipf("no cgroups of our own here: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(s.cgroups) })
	zone := fmt.Sprintf("vminfo-test-%d", os.Getpid())
	const mac = "90:b8:d0:57:53:70"
	s.writeVM(1, fmt.Sprintf(`,"zonename":%q,"max_physical_memory":512,"pid":7,"state":"running","nics":[{"mac":%q,"ip":"10.9.9.9","ips":["10.9.9.9/24"]}]`, zone, mac))
	s.run(0)
	if vm, _ := s.store.Find(zone); !strings.Contains(string(vm.JSON), `"state":"stopped"`) || strings.Contains(string(vm.JSON), `"pid"`) {
		t.Fatalf("the manifest's word was taken: %s", vm.JSON)
	}
	shell(t, "ip", "netns", "add", zone)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", zone).Run() })
	e := s.until(0, `"newValue":"ready"`)
	if len(s.folder.Status().Skips) > 1 { // machined is one
		t.Logf("skips: %v", s.folder.Status().Skips)
	}
	shell(t, "ip", "-n", zone, "link", "add", "net0", "address", mac, "type", "bridge")
	shell(t, "ip", "-n", zone, "addr", "add", "10.1.2.3/24", "dev", "net0")
	e = s.until(e.Seq, `"newValue":"10.1.2.3/24"`)
	cmd := s.startInit(1, zone)
	e = s.until(e.Seq, `"newValue":"running"`)
	for _, want := range []string{`"state":"running"`, `"pid":` + strconv.Itoa(cmd.Process.Pid), `"boot_timestamp":"20`, `"ip":"10.1.2.3"`, `"netmask":"255.255.255.0"`} {
		if !strings.Contains(string(e.Line), want) {
			t.Errorf("%s has no %s", e.Line, want)
		}
	}
	// Addresses by hand.
	shell(t, "ip", "-n", zone, "addr", "del", "10.1.2.3/24", "dev", "net0")
	shell(t, "ip", "-n", zone, "addr", "add", "10.1.2.4/24", "dev", "net0")
	e = s.until(e.Seq, `"newValue":"10.1.2.4/24"`)
	e = s.memory(e)
	// Its end.
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	e = s.until(e.Seq, `"prettyPath":"pid"`)
	if !strings.Contains(string(e.Line), `"state":"stopped"`) {
		t.Errorf("after a SIGKILL: %s", e.Line)
	}
	shell(t, "ip", "netns", "del", zone)
	s.until(e.Seq, `"newValue":"installed"`)
	s.folder.Scan()
	s.eventually("a scan", func() bool { return s.folder.Status().Scans == 1 })
	if got := s.folder.Status(); got.Missed != 0 {
		t.Errorf("events missed %+v", got.Log)
	}
}

// TestFolderMachined: a machine that systemd-machined keeps tells the VM's init
// process; where there is no machined, the source says that it does without.
func TestFolderMachined(t *testing.T) {
	needRoot(t)
	s := newSite(t)
	s.machines = t.TempDir()
	zone := fmt.Sprintf("vminfo-machine-%d", os.Getpid())
	s.writeVM(1, fmt.Sprintf(`,"zonename":%q`, zone))
	s.run(0)
	if skips := s.folder.Status().Skips; slices.ContainsFunc(skips, func(skip string) bool { return strings.Contains(skip, "machined") }) {
		t.Errorf("it skips %q", skips)
	}
	shell(t, "ip", "netns", "add", zone)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", zone).Run() })
	e := s.until(0, `"newValue":"ready"`)
	cmd := s.startInit(2, zone) // the pid file is another VM's
	path := filepath.Join(s.machines, zone)
	text := fmt.Sprintf("# This is private data. Do not parse.\nNAME=%s\nCLASS=container\nLEADER=%d\n", zone, cmd.Process.Pid)
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	e = s.until(e.Seq, `"newValue":"running"`)
	if want := `"pid":` + strconv.Itoa(cmd.Process.Pid); !strings.Contains(string(e.Line), want) {
		t.Errorf("%s has no %s", e.Line, want)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.until(e.Seq, `"newValue":"stopped"`)

	without := newSite(t)
	without.run(0)
	if skips := without.folder.Status().Skips; !slices.ContainsFunc(skips, func(skip string) bool { return strings.HasPrefix(skip, "systemd-machined: ") }) {
		t.Errorf("without machined it skips %q", skips)
	}
}

// memory changes the limit of VM 1's cgroup by hand.
func (s *site) memory(e Event) Event {
	s.t.Helper()
	cgroup := filepath.Join(s.cgroups, testUUID(1))
	if err := os.Mkdir(cgroup, 0o755); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = os.Remove(cgroup) })
	for _, name := range memoryFiles {
		if err := os.WriteFile(filepath.Join(cgroup, name), []byte("268435456"), 0); err == nil {
			return s.until(e.Seq, `"newValue":256`)
		}
	}
	s.t.Log("no memory controller here: the limit is not tested")
	return e
}

// TestFolderOldPID: a pid file that names somebody else's process is not believed.
func TestFolderOldPID(t *testing.T) {
	s := newSite(t)
	s.writeVM(1, "")
	s.writePID(1, os.Getpid())
	s.run(0)
	if vm, _ := s.store.Find(testUUID(1)); !strings.Contains(string(vm.JSON), `"state":"stopped"`) {
		t.Errorf("a stranger's process was taken for the VM's: %s", vm.JSON)
	}
}

func TestComposeStates(t *testing.T) {
	for _, test := range []struct {
		wanted           string
		facts            facts
		state, zoneState string
	}{
		{"running", facts{memory: -1}, "stopped", "installed"},
		{"", facts{memory: -1, namespace: true}, "stopped", "ready"},
		{"provisioning", facts{memory: -1, namespace: true}, "provisioning", "ready"},
		{"provisioning", facts{memory: -1, namespace: true, pid: 1}, "running", "running"},
		{"", facts{memory: -1, pid: 1}, "stopping", "shutting_down"},
	} {
		state, zoneState := stateOf(test.wanted, test.facts)
		if state != test.state || zoneState != test.zoneState {
			t.Errorf("%q %+v: got %s, %s, want %s, %s", test.wanted, test.facts, state, zoneState, test.state, test.zoneState)
		}
	}
	mac := log.MAC{0x90, 0xb8, 0xd0, 0x57, 0x53, 0x70}
	m, err := parseManifest([]byte(`{"uuid":"` + testUUID(1) + `","nics":[{"mac":"90:b8:d0:57:53:70","ip":"1.2.3.4","gateway":"10.0.0.1"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	links := map[log.MAC][]netip.Prefix{mac: {netip.MustParsePrefix("fd00::1/64"), netip.MustParsePrefix("10.0.0.5/16")}}
	got := string(compose(m, facts{memory: -1, namespace: true, addresses: links}).AppendJSON(nil))
	if want := `"nics":[{"mac":"90:b8:d0:57:53:70","gateway":"10.0.0.1","ips":["10.0.0.5/16","fd00::1/64"],"ip":"10.0.0.5","netmask":"255.255.0.0"}]`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzManifest: whatever stands in a manifest, it is refused or makes a VM.
func FuzzManifest(f *testing.F) {
	for _, s := range []string{`{"uuid":"` + testUUID(1) + `","nics":[{"mac":"90:b8:d0:57:53:70"}]}`, `{"uuid":1}`, `{"uuid":"` + testUUID(1) + `","state":{},"zonename":"x"}`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseManifest(text)
		if err != nil {
			return
		}
		for _, facts := range []facts{{memory: -1}, {namespace: true, pid: 3, memory: mebi, addresses: map[log.MAC][]netip.Prefix{}}} {
			vm, err := ParseVM(compose(m, facts))
			if err != nil || vm.UUID != m.uuid || vm.Zonename != m.zone {
				t.Fatalf("%s made %s, %v", text, vm.JSON, err)
			}
		}
	})
}

// FuzzNetlink: no message makes the readers of netlink go wrong.
func FuzzNetlink(f *testing.F) {
	f.Add([]byte{20, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = answer(b, 1, true, func(_ uint16, body []byte) { _, _, _ = parseAddress(body) })
		_, _, _ = parseAddress(b)
		_ = slices.Grow(parseFileEvents(nil, b), 0)
	})
}
