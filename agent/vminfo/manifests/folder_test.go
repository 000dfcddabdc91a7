package manifests_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/internal/vmtest"
	"rutter/agent/vminfo/manifests"
	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmstore"
)

// site is a vmtest.Site with more helpers for tests of a Folder.
type site struct{ *vmtest.Site }

func newSite(t *testing.T) *site { return &site{vmtest.NewSite(t)} }

func TestFolderCreateModifyDelete(t *testing.T) {
	s := newSite(t)
	s.WriteVM(1, `,"alias":"web0","quota":10`)
	s.Run(0)
	vms, seq := s.Store.List()
	if len(vms) != 1 || seq != 0 {
		t.Fatalf("loaded %d VMs at seq %d, want 1 at 0", len(vms), seq)
	}
	for _, want := range []string{`"alias":"web0"`, `"state":"stopped"`, `"zone_state":"installed"`, `"zonename":"` + vmtest.UUID(1) + `"`, `"last_modified":"`} {
		if !strings.Contains(string(vms[0].JSON), want) {
			t.Errorf("the VM %s has no %s", vms[0].JSON, want)
		}
	}
	s.WriteVM(2, "")
	if e := s.Next(0); e.Type != "create" || e.UUID.String() != vmtest.UUID(2) {
		t.Errorf("got %s", e.Line)
	}
	s.WriteVM(1, `,"alias":"web0","quota":20`)
	e := s.Next(1)
	want := `"changes":[{"prettyPath":"quota","path":["quota"],"action":"changed","oldValue":10,"newValue":20}],"seq":2}`
	if e.Type != "modify" || !strings.Contains(string(e.Line), want) {
		t.Errorf("got %s, want %s", e.Line, want)
	}
	if err := os.Remove(filepath.Join(s.Manifests, vmtest.UUID(1)+".json")); err != nil {
		t.Fatal(err)
	}
	if e := s.Next(2); e.Type != "delete" || e.UUID.String() != vmtest.UUID(1) || strings.Contains(string(e.Line), `"vm"`) {
		t.Errorf("got %s", e.Line)
	}
}

// TestFolderExternalEdits: written in place, moved away and back, linked.
func TestFolderExternalEdits(t *testing.T) {
	s := newSite(t)
	s.WriteVM(1, `,"quota":1`)
	s.Run(0)
	path := filepath.Join(s.Manifests, vmtest.UUID(1)+".json")
	if err := os.WriteFile(path, []byte(`{"uuid":"`+vmtest.UUID(1)+`","quota":2}`), 0o644); err != nil {
		t.Fatal(err)
	}
	e := s.Until(0, `"newValue":2`)
	// What vim does.
	if err := os.Rename(path, path+"~"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"uuid":"`+vmtest.UUID(1)+`","quota":3}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if e = s.Next(e.Seq); e.Type != "modify" {
		t.Errorf("an editor's backup made %s", e.Line)
	}
	if err := os.Link(filepath.Join(s.Manifests, writeOther(t, s, 2)), filepath.Join(s.Manifests, "linked.json")); err != nil {
		t.Fatal(err)
	}
	if e = s.Next(e.Seq); e.Type != "create" {
		t.Errorf("a link made %s", e.Line)
	}
}

// writeOther writes a manifest under a name that is none.
func writeOther(t *testing.T, s *site, n int) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.Manifests, "draft"), []byte(`{"uuid":"`+vmtest.UUID(n)+`"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	return "draft"
}

// TestFolderBadManifests: they are listed, their VMs stay, the rest continues.
func TestFolderBadManifests(t *testing.T) {
	s := newSite(t)
	s.Write("broken.json", `{"uuid":`)
	s.Write("nouuid.json", `{"alias":"x"}`)
	s.Write("list.json", `[]`)
	s.Write("nics.json", `{"uuid":"`+vmtest.UUID(9)+`","nics":[{"mac":"zz"}]}`)
	s.Write("zone.json", `{"uuid":"`+vmtest.UUID(9)+`","zonename":"../x"}`)
	s.Write("empty.json", ``)
	if err := os.Mkdir(filepath.Join(s.Manifests, "folder.json"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(s.Manifests, "pipe.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.Write("large.json", `{"uuid":"`+strings.Repeat("x", system.MaxManifest)+`"}`)
	s.WriteVM(1, `,"quota":1`)
	s.Run(0)
	want := map[string]string{
		"broken.json": "ends early", "nouuid.json": "uuid", "list.json": "object", "nics.json": "nics.0.mac", "zone.json": "zonename",
		"empty.json": "empty", "folder.json": "regular", "pipe.json": "regular", "large.json": "a manifest may have",
	}
	aside := s.Folder.Status().Aside
	if len(aside) != len(want) || s.Store.Count() != 1 {
		t.Errorf("aside %v, %d VMs", s.Aside(), s.Store.Count())
	}
	for _, a := range aside {
		if !strings.Contains(a.Reason, want[a.Name]) {
			t.Errorf("%s: %s, want %q", a.Name, a.Reason, want[a.Name])
		}
	}
	// A VM whose manifest breaks stays as it was, and continues when the manifest is
	// repaired.
	s.Write(vmtest.UUID(1)+".json", `{"uuid":"`+vmtest.UUID(1)+`","quo`)
	s.Eventually("the broken manifest is aside", func() bool { return len(s.Folder.Status().Aside) == len(want)+1 })
	if vm, ok := s.Store.Find(vmtest.UUID(1)); !ok || !strings.Contains(string(vm.JSON), `"quota":1`) {
		t.Errorf("the VM became %s, %t", vm.JSON, ok)
	}
	s.WriteVM(1, `,"quota":2`)
	s.Until(0, `"newValue":2`)
	s.Eventually("the mended manifest is not aside", func() bool { return len(s.Folder.Status().Aside) == len(want) })
	if _, _, seq := s.Store.Kept(); seq != 1 {
		t.Errorf("%d events, want 1", seq)
	}
}

func TestFolderDuplicates(t *testing.T) {
	s := newSite(t)
	s.WriteVM(1, `,"quota":1`)
	s.Run(0)
	s.Write("other.json", `{"uuid":"`+vmtest.UUID(1)+`","quota":7}`)
	s.Write("zone.json", `{"uuid":"`+vmtest.UUID(2)+`","zonename":"`+vmtest.UUID(1)+`"}`)
	s.Eventually("both are aside", func() bool { return len(s.Folder.Status().Aside) == 2 })
	for _, a := range s.Aside() {
		if !strings.Contains(a, vmtest.UUID(1)) {
			t.Errorf("%s does not name the VM in the way", a)
		}
	}
	if err := os.Remove(filepath.Join(s.Manifests, vmtest.UUID(1)+".json")); err != nil {
		t.Fatal(err)
	}
	// The one that is read first is used.
	e := s.Until(0, `"type":"create"`)
	if e.UUID.String() != vmtest.UUID(1) && e.UUID.String() != vmtest.UUID(2) {
		t.Errorf("got %s", e.Line)
	}
}

// TestFolderDuplicatesAtStart: of two manifests of a VM the one with its name counts,
// in any order of reading.
func TestFolderDuplicatesAtStart(t *testing.T) {
	for range 8 { // the order is chance
		s := newSite(t)
		s.Write(vmtest.UUID(2)+".json", `{"uuid":"`+vmtest.UUID(1)+`","quota":7}`)
		s.WriteVM(1, `,"quota":1`)
		s.Run(0)
		s.Eventually("the other one is aside", func() bool {
			aside := s.Folder.Status().Aside
			return len(aside) == 1 && aside[0].Name == vmtest.UUID(2)+".json"
		})
		vms, _ := s.Store.List()
		if len(vms) != 1 || !strings.Contains(string(vms[0].JSON), `"quota":1`) {
			t.Fatalf("got %s, want the VM of the manifest with its name", vms)
		}
	}
}

// TestFolderVanishes: the VMs stay, and what changed meanwhile is found.
func TestFolderVanishes(t *testing.T) {
	s := newSite(t)
	s.WriteVM(1, `,"quota":1`)
	s.WriteVM(2, "")
	s.Run(0)
	away := s.Manifests + ".away"
	if err := os.Rename(s.Manifests, away); err != nil {
		t.Fatal(err)
	}
	s.Eventually("the loss is told", func() bool { return strings.Contains(s.Folder.Status().State, "vanished") })
	if got := s.Store.Count(); got != 2 {
		t.Errorf("%d VMs without the folder, want 2", got)
	}
	// It comes back empty, as when a file system is not mounted.
	if err := os.Mkdir(s.Manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	s.Eventually("it is watched again", func() bool { return s.Folder.Status().State == "watching" })
	s.Folder.Scan()
	if got := s.Store.Count(); got != 2 {
		t.Errorf("%d VMs with an empty folder, want 2", got)
	}
	if err := os.Remove(s.Manifests); err != nil {
		t.Fatal(err)
	}
	s.Eventually("the second loss is told", func() bool { return strings.Contains(s.Folder.Status().State, "vanished") })
	// It comes back with another state.
	if err := os.Remove(filepath.Join(away, vmtest.UUID(2)+".json")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(away, vmtest.UUID(1)+".json"), []byte(`{"uuid":"`+vmtest.UUID(1)+`","quota":5}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, s.Manifests); err != nil {
		t.Fatal(err)
	}
	s.Until(0, `"newValue":5`)
	s.Until(0, `"type":"delete"`)
	if got := s.Store.Count(); got != 1 {
		t.Errorf("%d VMs, want 1", got)
	}
	if got := s.Folder.Status().Errors; len(got) == 0 {
		t.Error("no failure is remembered")
	}
}

// TestFolderFlapping: a VM that changes all the time is reported now and then, and
// finally in its last state.
func TestFolderFlapping(t *testing.T) {
	s := newSite(t)
	s.WriteVM(1, `,"quota":0`)
	s.Run(0)
	began := time.Now()
	for i := 1; i <= 300; i++ {
		s.WriteVM(1, `,"quota":`+strconv.Itoa(i))
	}
	last := s.Until(0, `"newValue":300`)
	if most := uint64(time.Since(began)/manifests.PublishEvery) + manifests.PublishBurst + 2; last.Seq > most {
		t.Errorf("%d events in %s, want at most %d", last.Seq, time.Since(began), most)
	}
}

// writeUnheard changes the quota of a VM from 1 through a shared mapping, which makes
// no event of inotify.
func (s *site) writeUnheard(n int, quota byte) {
	s.T.Helper()
	file, err := os.OpenFile(filepath.Join(s.Manifests, vmtest.UUID(n)+".json"), os.O_RDWR, 0)
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() { file.Close() }) // closing makes an event
	info, err := file.Stat()
	if err != nil {
		s.T.Fatal(err)
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		s.T.Fatal(err)
	}
	memory[strings.Index(string(memory), `"quota":1`)+len(`"quota":`)] = quota
	if err := unix.Munmap(memory); err != nil {
		s.T.Fatal(err)
	}
}

// TestFolderScan: a change without an event is found, reported and counted; nothing
// else is.
func TestFolderScan(t *testing.T) {
	s := newSite(t)
	for n := range 100 {
		s.WriteVM(n, `,"quota":1`)
	}
	s.Run(0)
	s.Folder.Scan()
	s.Eventually("a scan", func() bool { return s.Folder.Status().Scans == 1 })
	if got := s.Folder.Status(); got.Missed != 0 || len(got.Log) != 0 {
		t.Fatalf("a scan of what is known found %+v", got.Log)
	}
	s.writeUnheard(7, '9')
	s.Folder.Scan()
	s.Until(0, `"newValue":9`)
	s.Eventually("a second scan", func() bool { return s.Folder.Status().Scans == 2 })
	got := s.Folder.Status()
	if got.Missed != 1 || len(got.Log) != 1 || got.Log[0].VMChanges[0].Zonename != vmtest.UUID(7) || got.Log[0].VMChanges[0].Action != "modify" {
		t.Errorf("got %+v, want VM 7 modified", got.Log)
	}
}

// TestFolderScanBesideMounts: what a scan finds while the mounts change is reported.
func TestFolderScanBesideMounts(t *testing.T) {
	vmtest.NeedRoot(t)
	s := newSite(t)
	s.WriteVM(7, `,"quota":1`)
	s.Run(0)
	s.writeUnheard(7, '9')
	other := t.TempDir()
	if err := unix.Mount("none", other, "tmpfs", 0, ""); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(other, 0) })
	s.Folder.Scan()
	s.Until(0, `"newValue":9`)
	s.Eventually("the scan's end", func() bool { return s.Folder.Status().Scans == 1 })
	if got := s.Folder.Status().Missed; got != 1 {
		t.Errorf("%d changes were missed by events, want 1", got)
	}
}

// startInit runs a long process in a namespace, and writes its pid file.
func (s *site) startInit(n int, zone string) *exec.Cmd {
	s.T.Helper()
	cmd := exec.Command("ip", "netns", "exec", zone, "sleep", "1000")
	if err := cmd.Start(); err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	// ip becomes sleep in the namespace by exec.
	s.Eventually("the process is in its namespace", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		return err == nil && strings.TrimSpace(string(text)) == "sleep"
	})
	s.writePID(n, cmd.Process.Pid)
	return cmd
}

func (s *site) writePID(n, pid int) {
	s.T.Helper()
	if err := os.WriteFile(filepath.Join(s.PIDs, vmtest.UUID(n)+".pid"), []byte(strconv.Itoa(pid)+"\n"), 0o644); err != nil {
		s.T.Fatal(err)
	}
}

// TestFolderSystem: the state is what really runs, and each manual change is an event.
func TestFolderSystem(t *testing.T) {
	vmtest.NeedRoot(t)
	s := newSite(t)
	parent := system.DefaultCgroup()
	s.Cgroups = filepath.Join(filepath.Dir(parent), fmt.Sprintf("rutter-test-%d", os.Getpid()))
	if err := os.Mkdir(s.Cgroups, 0o755); err != nil {
		t.Skipf("no cgroups of our own here: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(s.Cgroups) })
	zone := fmt.Sprintf("vminfo-test-%d", os.Getpid())
	const mac = "90:b8:d0:57:53:70"
	s.WriteVM(1, fmt.Sprintf(`,"zonename":%q,"max_physical_memory":512,"pid":7,"state":"running","nics":[{"mac":%q,"ip":"10.9.9.9","ips":["10.9.9.9/24"]}]`, zone, mac))
	s.Run(0)
	if vm, _ := s.Store.Find(zone); !strings.Contains(string(vm.JSON), `"state":"stopped"`) || strings.Contains(string(vm.JSON), `"pid"`) {
		t.Fatalf("the manifest's word was taken: %s", vm.JSON)
	}
	vmtest.Shell(t, "ip", "netns", "add", zone)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", zone).Run() })
	e := s.Until(0, `"newValue":"ready"`)
	if len(s.Folder.Status().Skips) > 1 { // machined is one
		t.Logf("skips: %v", s.Folder.Status().Skips)
	}
	vmtest.Shell(t, "ip", "-n", zone, "link", "add", "net0", "address", mac, "type", "bridge")
	vmtest.Shell(t, "ip", "-n", zone, "addr", "add", "10.1.2.3/24", "dev", "net0")
	e = s.Until(e.Seq, `"newValue":"10.1.2.3/24"`)
	cmd := s.startInit(1, zone)
	e = s.Until(e.Seq, `"newValue":"running"`)
	for _, want := range []string{`"state":"running"`, `"pid":` + strconv.Itoa(cmd.Process.Pid), `"boot_timestamp":"20`, `"ip":"10.9.9.9"`, `"netmask":"255.255.255.0"`, `"kernel_ips":["10.1.2.3/24"]`} {
		if !strings.Contains(string(e.Line), want) {
			t.Errorf("%s has no %s", e.Line, want)
		}
	}
	// Addresses by hand.
	vmtest.Shell(t, "ip", "-n", zone, "addr", "del", "10.1.2.3/24", "dev", "net0")
	vmtest.Shell(t, "ip", "-n", zone, "addr", "add", "10.1.2.4/24", "dev", "net0")
	e = s.Until(e.Seq, `"newValue":"10.1.2.4/24"`)
	e = s.memory(e)
	// Its end.
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	e = s.Until(e.Seq, `"prettyPath":"pid"`)
	if !strings.Contains(string(e.Line), `"state":"stopped"`) {
		t.Errorf("after a SIGKILL: %s", e.Line)
	}
	vmtest.Shell(t, "ip", "netns", "del", zone)
	s.Until(e.Seq, `"newValue":"installed"`)
	s.Folder.Scan()
	s.Eventually("a scan", func() bool { return s.Folder.Status().Scans == 1 })
	if got := s.Folder.Status(); got.Missed != 0 {
		t.Errorf("events missed %+v", got.Log)
	}
}

// TestFolderMachined: a machine of systemd-machined has the VM's init process. Without
// machined, the source reports that it is missing.
func TestFolderMachined(t *testing.T) {
	vmtest.NeedRoot(t)
	s := newSite(t)
	s.Machines = t.TempDir()
	zone := fmt.Sprintf("vminfo-machine-%d", os.Getpid())
	s.WriteVM(1, fmt.Sprintf(`,"zonename":%q`, zone))
	s.Run(0)
	if skips := s.Folder.Status().Skips; slices.ContainsFunc(skips, func(skip string) bool { return strings.Contains(skip, "machined") }) {
		t.Errorf("it skips %q", skips)
	}
	vmtest.Shell(t, "ip", "netns", "add", zone)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", zone).Run() })
	e := s.Until(0, `"newValue":"ready"`)
	cmd := s.startInit(2, zone) // the pid file is another VM's
	path := filepath.Join(s.Machines, zone)
	text := fmt.Sprintf("# This is private data. Do not parse.\nNAME=%s\nCLASS=container\nLEADER=%d\n", zone, cmd.Process.Pid)
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	e = s.Until(e.Seq, `"newValue":"running"`)
	if want := `"pid":` + strconv.Itoa(cmd.Process.Pid); !strings.Contains(string(e.Line), want) {
		t.Errorf("%s has no %s", e.Line, want)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.Until(e.Seq, `"newValue":"stopped"`)

	without := newSite(t)
	without.Run(0)
	if skips := without.Folder.Status().Skips; !slices.ContainsFunc(skips, func(skip string) bool { return strings.HasPrefix(skip, "systemd-machined: ") }) {
		t.Errorf("without machined it skips %q", skips)
	}
}

// memory changes the limit of VM 1's cgroup by hand.
func (s *site) memory(e vmstore.Event) vmstore.Event {
	s.T.Helper()
	cgroup := filepath.Join(s.Cgroups, vmtest.UUID(1))
	if err := os.Mkdir(cgroup, 0o755); err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() { _ = os.Remove(cgroup) })
	for _, name := range system.MemoryFiles {
		if err := os.WriteFile(filepath.Join(cgroup, name), []byte("268435456"), 0); err == nil {
			return s.Until(e.Seq, `"newValue":256`)
		}
	}
	s.T.Log("no memory controller here: the limit is not tested")
	return e
}

// TestFolderOldPID: a pid file that names another program's process is not used.
func TestFolderOldPID(t *testing.T) {
	s := newSite(t)
	s.WriteVM(1, "")
	s.writePID(1, os.Getpid())
	s.Run(0)
	if vm, _ := s.Store.Find(vmtest.UUID(1)); !strings.Contains(string(vm.JSON), `"state":"stopped"`) {
		t.Errorf("a stranger's process was taken for the VM's: %s", vm.JSON)
	}
}
