package vmrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/internal/guesttest"
	"rutter/agent/vminfo/internal/vmtest"
	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmrun/internal/isolate"
	"rutter/log"
)

// bed runs VMs, each in a network namespace of its own.
type bed struct {
	*Runner
	t    *testing.T
	site *vmtest.Site
	zone string
}

func newBed(t *testing.T, name string) *bed {
	t.Helper()
	vmtest.NeedRoot(t)
	s := vmtest.NewSite(t)
	s.Cgroups = filepath.Join(filepath.Dir(system.DefaultCgroup()), fmt.Sprintf("rutter-%s-%d", name, os.Getpid()))
	if err := os.Mkdir(s.Cgroups, 0o755); err != nil {
		t.Skipf("no cgroups of our own here: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(s.Cgroups) })
	b := &bed{t: t, site: s, zone: fmt.Sprintf("vminfo-%s-%d", name, os.Getpid())}
	vmtest.Shell(t, "ip", "netns", "add", b.zone) // whether it can be done here
	_ = exec.Command("ip", "netns", "del", b.zone).Run()
	var err error
	if b.Runner, err = New(Config{Manifests: s.Manifests, PIDs: s.PIDs, Cgroup: s.Cgroups, Grace: time.Second}); err != nil {
		t.Fatal(err)
	}
	return b
}

// write writes the manifest of the nth VM.
func (b *bed) write(n int, fields string) log.UUID {
	b.t.Helper()
	b.site.WriteVM(n, fmt.Sprintf(`,"zonename":"%s-%d"%s`, b.zone, n, fields))
	b.t.Cleanup(func() {
		if err := b.Stop(context.WithoutCancel(b.t.Context()), vmID(n), true); err != nil && !errors.Is(err, ErrNotRunning) {
			b.t.Error(err)
		}
	})
	return vmID(n)
}

// start starts the nth VM with an action of the guest program in a root folder.
func (b *bed) start(n int, root, fields string, line ...string) int {
	b.t.Helper()
	init := `"` + guesttest.Program + `"`
	for _, word := range line {
		init += `,"` + word + `"`
	}
	id := b.write(n, fmt.Sprintf(`,"root":%q,"init":[%s]%s`, root, init, fields))
	if err := b.Start(b.t.Context(), id); err != nil {
		b.t.Fatal(err)
	}
	text, err := os.ReadFile(b.pidFile(id))
	pid, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err = errors.Join(err, bad); err != nil {
		b.t.Fatal(err)
	}
	return pid
}

// report waits for what the guest wrote, as a line for each try.
func report(t *testing.T, root string) map[string]string {
	t.Helper()
	lines := make(map[string]string)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(filepath.Join(root, "report"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			lines[name] = value
		}
		return lines
	}
	t.Fatal("the guest wrote no report")
	return nil
}

// firstDisk is a block device of this machine, as MAJOR:MINOR.
func firstDisk(t *testing.T) string {
	t.Helper()
	names, _ := filepath.Glob("/sys/class/block/*/dev")
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil {
			return strings.TrimSpace(string(text))
		}
	}
	t.Skip("this machine has no block device")
	return ""
}

// TestGuestIsNotTheNode: root in a VM reads no file of the node, sees and signals no
// process of it, opens no disk of it, joins no namespace of it, and changes neither its
// kernel nor the links of the VM, which the agent programs.
func TestGuestIsNotTheNode(t *testing.T) {
	b := newBed(t, "guest")
	root, secret := guesttest.Root(t), filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	disk := firstDisk(t)
	major, minor, _ := strings.Cut(disk, ":")
	m, _ := strconv.ParseUint(major, 10, 32)
	n, _ := strconv.ParseUint(minor, 10, 32)
	if err := unix.Mknod(filepath.Join(root, "disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(uint32(m), uint32(n)))); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RUTTER_SECRET", "of the agent")
	pid := b.start(1, root, `,"max_lwps":77,"max_physical_memory":64,"cpu_cap":50,"hostname":"web0"`, "attack", secret, strconv.Itoa(os.Getpid()), disk, "lo")
	got := report(t, root)
	refused := "operation not permitted"
	for what, want := range map[string]string{
		"uid": "0", "pid": "1",
		"file of the node": "no such file", "file of the node by /proc": "no such file",
		"signal to a process of the node": "no such process",
		"device file":                     refused, "device of the root folder": "permission denied",
		"mount": refused, "user namespace": "", "setting of the kernel": "", "more user namespaces": "", "link lo down": refused,
		"namespace net": refused, "namespace pid": refused, "namespace mnt": refused, "namespace user": refused,
		"NoNewPrivs": "1", "Seccomp": "2", "oom": "0", "port 80": "DONE", "echo socket": "DONE", "packet socket": refused,
		"environment": "PATH=" + "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root",
	} {
		if value, said := got[what]; !said || !strings.Contains(value, want) || value == "DONE" && want != "DONE" {
			t.Errorf("%s: %q, want %q", what, value, want)
		}
		delete(got, what)
	}
	caps, err := strconv.ParseUint(got["CapBnd"], 16, 64)
	for _, number := range []int{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_MKNOD, unix.CAP_SYS_MODULE, unix.CAP_NET_RAW, unix.CAP_DAC_READ_SEARCH} {
		if err != nil || caps&(1<<number) != 0 {
			t.Errorf("the bounding set %s has capability %d (%v)", got["CapBnd"], number, err)
		}
	}
	users := strings.Fields(got["users"])
	if len(users) != 3 || users[0] != "0" || users[1] == "0" {
		t.Errorf("users: %s", got["users"])
	}
	for _, name := range []string{"CapBnd", "CapEff", "users"} {
		delete(got, name)
	}
	for what, value := range got {
		t.Errorf("it found more: %s: %s", what, value)
	}
	b.limits(1, map[string]string{"memory": "67108864", "pids": "77", "cpu": "50000"})
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/proc/sys/kernel/hostname", pid)); err == nil && strings.TrimSpace(string(text)) == "" {
		t.Errorf("its host name: %q", text)
	}
	if info, err := os.Stat(filepath.Join(root, "report")); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("on disk, what the VM's root writes is not of user 0: %v, %v", info, err)
	}
}

// limits compares the limits of the nth VM's cgroups.
func (b *bed) limits(n int, want map[string]string) {
	b.t.Helper()
	files := map[string][]string{"memory": system.MemoryFiles, "pids": {"pids.max"}, "cpu": {"cpu.max", "cpu.cfs_quota_us"}}
	for controller, names := range files {
		got := ""
		for _, folder := range b.cgroups(vmID(n)) {
			for _, name := range names {
				if text, err := os.ReadFile(filepath.Join(folder, name)); err == nil {
					got, _, _ = strings.Cut(strings.TrimSpace(string(text)), " ")
				}
			}
		}
		if got != want[controller] {
			b.t.Errorf("its limit of %s is %q, want %q", controller, got, want[controller])
		}
	}
}

// TestGuestsShareNoUsers: two VMs run as different users of the node, none of them one
// that another program has, and give them back.
func TestGuestsShareNoUsers(t *testing.T) {
	b := newBed(t, "users")
	bases := make(map[uint32]int)
	for n := 1; n <= 3; n++ {
		pid := b.start(n, guesttest.Root(t), "", "sleep")
		var st unix.Stat_t
		if err := unix.Stat(fmt.Sprintf("/proc/%d", pid), &st); err != nil {
			t.Fatal(err)
		}
		if st.Uid < firstUser || st.Uid > lastUser || (st.Uid-firstUser)%isolate.UserCount != 0 {
			t.Errorf("VM %d runs as user %d", n, st.Uid)
		}
		if other, taken := bases[st.Uid]; taken {
			t.Errorf("VMs %d and %d run as user %d", n, other, st.Uid)
		}
		bases[st.Uid] = n
	}
	// Two VMs whose ranges begin at the same number.
	first, second := vmID(1), vmID(1)
	second[0]++
	one, err := b.takeUsers(first)
	two, err2 := b.takeUsers(second)
	if err = errors.Join(err, err2); err != nil || one == two {
		t.Errorf("both have the users from %d on (%v)", one, err)
	}
	if again, err := b.takeUsers(second); again != two || err != nil {
		t.Errorf("taken again: %d, %v, want %d", again, err, two)
	}
	if err := b.freeUsers(second); err != nil {
		t.Error(err)
	}
	for n := 1; n <= 3; n++ {
		if err := b.Stop(t.Context(), vmID(n), false); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(b.cfg.PIDs, usersName)); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestInitNeedsARoot: an init without a folder of its own, or with one that others of
// the node can enter, is refused, with what to write; nothing is made.
func TestInitNeedsARoot(t *testing.T) {
	b := newBed(t, "root")
	open := t.TempDir()
	closed := filepath.Dir(guesttest.Root(t))
	if err := os.Symlink(filepath.Join(closed, "root"), filepath.Join(closed, "link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		root string
		want error
		says string
	}{
		{``, ErrNoRoot, `"root": "/var/lib/rutter-vms/` + vmID(1).String() + `"`},
		{`,"root":""`, ErrNoRoot, "below one that only root can enter"},
		{`,"root":"/"`, ErrRoot, "chmod 0700"},
		{`,"root":"/usr"`, ErrRoot, "chmod 0700"},
		{`,"root":"relative"`, ErrRoot, "a path from / on"},
		{fmt.Sprintf(`,"root":%q`, open+"/../x"), ErrRoot, "without . and .."},
		{fmt.Sprintf(`,"root":%q`, filepath.Join(closed, "none")), ErrRoot, "no such file"},
		{fmt.Sprintf(`,"root":%q`, filepath.Join(closed, "link")), ErrRoot, "name the folder itself"},
	} {
		id := b.write(1, c.root+`,"init":["/guest","sleep"]`)
		if err := b.Start(t.Context(), id); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v with %q", c.root, err, c.want, c.says)
		}
		for _, path := range append(b.cgroups(id), filepath.Join("/run/netns", b.zone+"-1"), b.pidFile(id)) {
			if system.Exists(path) {
				t.Errorf("%s: %s is left", c.root, path)
			}
		}
	}
}

// TestIdleHasNoFiles: the process of a VM without an init runs as a user of its own, and
// sees the node's programs only.
func TestIdleHasNoFiles(t *testing.T) {
	b := newBed(t, "idle")
	id := b.write(1, "")
	if err := b.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(b.pidFile(id))
	if err != nil {
		t.Fatal(err)
	}
	proc := "/proc/" + strings.TrimSpace(string(text))
	var st unix.Stat_t
	if err := unix.Stat(proc, &st); err != nil || st.Uid < firstUser {
		t.Errorf("it runs as user %d (%v)", st.Uid, err)
	}
	entries, err := os.ReadDir(proc + "/root")
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "lib") && !strings.Contains(" bin dev gnu nix proc sbin usr ", " "+e.Name()+" ") {
			t.Errorf("it sees /%s", e.Name())
		}
	}
	if err != nil || len(entries) == 0 {
		t.Errorf("its files: %v", err)
	}
	status, err := os.ReadFile(proc + "/status")
	if err != nil || !strings.Contains(string(status), "CapBnd:\t0000000000000000") {
		t.Errorf("its capabilities: %v\n%s", err, status)
	}
	b.cfg.Grace = time.Hour // it has no handler, and ends at once
	if err := b.Stop(t.Context(), id, false); err != nil {
		t.Error(err)
	}
}
