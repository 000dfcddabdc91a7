package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// brokenNamespace is a way in which the file of a VM's namespace cannot be used.
type brokenNamespace struct {
	name  string
	make  func(w *world, path string) error
	cause string // in the failure's text
}

var brokenNamespaces = []brokenNamespace{
	{"orphan of another mount namespace", func(_ *world, path string) error { return os.WriteFile(path, nil, 0) }, "is a plain file of mode 0000"},
	{"plain file", func(_ *world, path string) error { return os.WriteFile(path, []byte("x"), 0o644) }, "is a plain file of mode 0644"},
	{"FIFO", func(_ *world, path string) error { return unix.Mkfifo(path, 0o600) }, "is a FIFO of mode 0600"},
	{"folder", func(_ *world, path string) error { return os.Mkdir(path, 0o700) }, "is a folder of mode 0700"},
	{"namespace of another kind", func(w *world, path string) error {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
		w.t.Cleanup(func() {
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				w.t.Error(err)
			}
		})
		return unix.Mount("/proc/self/ns/uts", path, "", unix.MS_BIND, "")
	}, "is a namespace of another kind"},
	{"file of a program that does not answer", func(w *world, path string) error {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
		device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			w.t.Skipf("no FUSE here: %v", err)
		}
		w.t.Cleanup(func() { // ends what waits for an answer
			if err := unix.Close(device); err != nil {
				w.t.Error(err)
			}
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				w.t.Error(err)
			}
		})
		err = unix.Mount("silent", path, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=100600,user_id=%d,group_id=%d", device, os.Geteuid(), os.Getegid()))
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV) {
			w.t.Skipf("no FUSE here: %v", err)
		}
		return err
	}, "is a plain file of mode 0600"},
	{"loop", func(_ *world, path string) error { return os.Symlink(path, path) }, "(ELOOP)"},
	{"no permission", func(_ *world, path string) error { return os.Symlink("/proc/1/ns/net", path) }, "(EACCES)"},
}

// mend puts a good namespace in the place of a broken one.
func (w *world) mend(name string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
		w.t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		w.t.Fatal(err)
	}
	w.namespace(name)
}

// withVM adds a VM with a link in a namespace to what a node wants.
func withVM(want desired.Links, i int, namespace string) desired.Links {
	want.Fabrics = append(slices.Clone(want.Fabrics), desired.Fabric{
		MAC: mac(50 + i), VNet: 5, MTU: want.VXLANs[0].MTU, VM: vmUUID(i), Namespace: namespace,
		Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 5, byte(100 + i)}), 24)},
	})
	want.Neighs = append(slices.Clone(want.Neighs), desired.Neigh{Link: mac(50 + i), IP: addr("192.168.5.2"), MAC: mac(2)})
	return want
}

func vmUUID(i int) log.UUID { return log.UUID{0: 0xaa, 15: byte(i)} }

// skipIfReadable skips the case of a file that this machine lets us read after all.
func skipIfReadable(t *testing.T, path string) {
	t.Helper()
	if file, err := os.Open(path); err == nil {
		file.Close()
		t.Skip("nothing is forbidden here: the test runs without a user namespace of its own")
	}
}

// TestOneNamespaceFailsAlone: what is wrong with the namespace of one VM is the failure of
// that VM, with its cause. The other VMs of the node are programmed and healed, also by
// what is noticed between passes, and the VM is programmed when its namespace is good.
func TestOneNamespaceFailsAlone(t *testing.T) {
	for _, broken := range brokenNamespaces {
		t.Run(broken.name, func(t *testing.T) {
			w := newWorld(t)
			w.namespace("zA")
			path := filepath.Join(w.dir, "zBad")
			if err := broken.make(w, path); err != nil {
				t.Fatal(err)
			}
			if broken.cause == "(EACCES)" {
				skipIfReadable(t, path)
			}
			a, _ := w.two(0, false)
			want := withVM(a, 1, "zBad")
			g := guard(w, want, time.Hour)
			result := g.passWith(1)
			f := result.Failures[0]
			if !errors.Is(f.Err, plan.ErrBadNamespace) || f.RetryAt.IsZero() || result.RetryAt.IsZero() {
				t.Errorf("failure: got %v, retry at %v, want ErrBadNamespace and a time", f.Err, f.RetryAt)
			}
			for _, part := range []string{mac(51).String(), vmUUID(1).String(), path, broken.cause} {
				if !strings.Contains(f.String(), part) {
					t.Errorf("failure %q lacks %q", f, part)
				}
			}
			if have, _ := g.h.Dump(context.Background(), []string{"zA"}); len(plan.Plan(a, have, g.m.numbers, false).Steps) != 0 {
				t.Errorf("the other VM was held up: %v", texts(plan.Plan(a, have, g.m.numbers, false).Steps))
			}
			g.healsOthers(a)
			w.mend("zBad")
			drift := 0
			g.wait("mended namespace", &drift, g.matches)
			if drift != 0 {
				t.Errorf("the steps for the mended VM were counted as corrections: %d", drift)
			}
			if result := w.pass(g.m, want); result.Unread != 0 {
				t.Errorf("unread after all is well: %d", result.Unread)
			}
		})
	}
}

// passWith makes one pass and wants it to fail for that many links only.
func (g *guarded) passWith(failures int) Result {
	g.w.t.Helper()
	result, err := g.m.Pass(context.Background(), g.want, true)
	if err != nil || len(result.Failures) != failures || result.Unread != failures || result.Matched {
		g.w.t.Fatalf("pass: %v, %d failures %v, %d unread, want %d of each", err, len(result.Failures), result.Failures, result.Unread, failures)
	}
	return result
}

// healsOthers damages an entry and a link of a VM, and wants both corrected and counted,
// while another VM fails. A change of an entry of the failing VM causes no pass.
func (g *guarded) healsOthers(others desired.Links) {
	t := g.w.t
	t.Helper()
	vandal := g.w.open("cn1")
	for _, damage := range []plan.Step{
		{Op: plan.OpDelNeigh, Namespace: "zA", Link: "fabric0", Addr: addr("192.168.5.2")},
		{Op: plan.OpDelAddress, Namespace: "zA", Link: "fabric0", Prefix: prefix("192.168.5.1/24")},
	} {
		if _, err := vandal.Dump(context.Background(), []string{"zA"}); err != nil {
			t.Fatal(err)
		}
		if errs := vandal.Do(context.Background(), []plan.Step{damage}); errs != nil {
			t.Fatal(errors.Join(errs...))
		}
		drift := 0
		g.wait(damage.String(), &drift, func() bool {
			have, err := g.w.open("cn1").Dump(context.Background(), []string{"zA"})
			return err == nil && len(plan.Plan(others, have, g.m.numbers, false).Steps) == 0
		})
		if drift == 0 {
			t.Errorf("%s: the correction was not counted", damage)
		}
	}
	if _, err := g.m.Pass(context.Background(), g.want, true); err != nil {
		t.Fatal(err)
	}
	delta := desired.LinksDelta{Neighs: []desired.Neigh{{Link: mac(51), IP: addr("192.168.5.9"), MAC: mac(9)}}}
	if result := g.m.Apply(context.Background(), delta); result.Look || len(result.Steps) != 0 || result.Matched {
		t.Errorf("an entry of the failing VM: look %v, steps %v, matched %v, want none of them", result.Look, texts(result.Steps), result.Matched)
	}
}

// TestManyBrokenNamespaces: 100 of them cost one failure each, and are tried again
// together. Until then they are not read, and other VMs wait for none of them.
func TestManyBrokenNamespaces(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	a, _ := w.two(0, false)
	want := a
	const many = 100
	for i := range many {
		kinds := brokenNamespaces[:4] // those that this machine cannot refuse to make
		name := fmt.Sprintf("zBad%d", i)
		if err := kinds[i%len(kinds)].make(w, filepath.Join(w.dir, name)); err != nil {
			t.Fatal(err)
		}
		want = withVM(want, i, name)
	}
	g := guard(w, want, time.Hour)
	// The comparison before a first removal reads every namespace of the node.
	if s, err := g.m.Surplus(context.Background(), nil, want); err != nil || len(s.Gone) != 0 {
		t.Errorf("surplus: %+v, %v, want nothing that would go", s, err)
	}
	g.passWith(many)
	times := map[time.Time]bool{}
	before := map[string]unread{}
	for range 3 {
		for _, f := range g.passWith(many).Failures {
			times[f.RetryAt] = true
		}
	}
	if len(times) > 4 {
		t.Errorf("%d failures are to be tried at %d different times", many, len(times))
	}
	for name, u := range g.h.unread {
		u.until = time.Now().Add(time.Hour)
		g.h.unread[name], before[name] = u, u
	}
	g.passWith(many)
	for name, u := range g.h.unread {
		if u != before[name] {
			t.Fatalf("%s was read before its time", name)
		}
	}
	g.healsOthers(a)
	for i := range many {
		if i%20 == 0 {
			w.mend(fmt.Sprintf("zBad%d", i)) // another file: it is read at once
		}
	}
	g.passWith(many - many/20)
}

// TestPausesGrowAndAreShared: the pause doubles to maxPause, and namespaces that failed at
// different times are tried again at the same ones.
func TestPausesGrowAndAreShared(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	tries := map[time.Time]bool{}
	for i := range 100 {
		now, pause := began.Add(time.Duration(i)*137*time.Millisecond), time.Duration(0)
		for now.Before(began.Add(10 * time.Minute)) {
			before := pause
			var next time.Time
			if next, pause = nextTry(now, pause); !next.After(now) || next.Sub(now) > pause || pause < before || pause > maxPause {
				t.Fatalf("after a pause of %v: next try %v later, pause %v", before, next.Sub(now), pause)
			}
			now = next
			if now.After(began.Add(5 * time.Minute)) {
				tries[now] = true
			}
		}
		if pause != maxPause {
			t.Fatalf("pause after 10 minutes: got %v, want %v", pause, maxPause)
		}
	}
	if most := int(5*time.Minute/maxPause) + 2; len(tries) > most {
		t.Errorf("100 namespaces that failed for long cause %d passes in 5 minutes, want at most %d", len(tries), most)
	}
}

// TestMissingNamespaceIsTriedLessAndLess: a VM that is not started causes passes after
// pauses that grow.
func TestMissingNamespaceIsTriedLessAndLess(t *testing.T) {
	f := &plan.Fake{}
	m, now := fakeManager(f)
	want := withVM(desired.Links{VXLANs: []desired.VXLAN{{VNet: 5, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450}}}, 1, "zLate")
	passes, end := 0, now.Add(10*time.Minute)
	for ; now.Before(end); passes++ {
		result := mustPass(t, m, want)
		if len(result.Failures) != 1 || !errors.Is(result.Failures[0].Err, plan.ErrNoNamespace) || !strings.Contains(result.Failures[0].String(), vmUUID(1).String()) {
			t.Fatalf("failures: got %v, want the missing namespace with its VM", result.Failures)
		}
		*now = result.RetryAt
	}
	if most := int(10*time.Minute/maxPause) + 7; passes > most {
		t.Errorf("passes in 10 minutes: got %d, want at most %d", passes, most)
	}
	f.AddNamespace("zLate")
	if result := mustPass(t, m, want); !result.Matched || len(m.absent) != 0 {
		t.Errorf("with the namespace: matched %v, failures %v, absent %v", result.Matched, result.Failures, m.absent)
	}
}

// TestOrphanWithoutPowers: without CAP_DAC_OVERRIDE, which the agent gives up, a file of
// mode 000 is still known for what it is.
func TestOrphanWithoutPowers(t *testing.T) {
	needNamespaces(t)
	path := filepath.Join(t.TempDir(), "z")
	if err := os.WriteFile(path, nil, 0); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			failed <- fmt.Errorf("give up all capabilities: %w", err)
			return
		}
		if file, err := os.Open(path); err == nil {
			file.Close()
			failed <- errors.New("the file can be opened: the test shows nothing")
			return
		}
		_, err := openNamespaceFile(path)
		failed <- err
	}()
	if err := <-failed; !errors.Is(err, plan.ErrBadNamespace) || !strings.Contains(err.Error(), "a plain file of mode 0000") {
		t.Errorf("got %v, want ErrBadNamespace and what the file is", err)
	}
}

// TestResolversFailAlone: a resolv.conf that cannot be read, whose open would not even
// return, is one failure. The links of the same VM are programmed.
func TestResolversFailAlone(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	path := filepath.Join(w.etc, "zA", "resolv.conf")
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o755), unix.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	a, _ := w.two(0, false)
	m := NewManager(ManagerConfig{Kernel: w.open("cn1")})
	result, err := m.Pass(context.Background(), a, true)
	if err != nil || len(result.Failures) != 1 || !strings.Contains(result.Failures[0].String(), path) || result.Failures[0].Object.Kind != plan.ObjectResolvers {
		t.Fatalf("got %v, %v, want one failure with the path", result.Failures, err)
	}
	if have, err := w.open("cn1").Dump(context.Background(), []string{"zA"}); err != nil || len(have.Links) != 2 || len(have.Links[1].Neighs) != 2 {
		t.Errorf("links: got %v, %v, want both with their entries", have.Links, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.pass(m, a)
}

// TestNumbersOfOthersAreFreed: the number of a NIC that is gone is freed although another
// VM's namespace cannot be read, and kept while its own cannot be.
func TestNumbersOfOthersAreFreed(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	w.namespace("zB")
	a, _ := w.two(0, false)
	want := withVM(withVM(a, 1, "zA"), 2, "zB")
	m := NewManager(ManagerConfig{Kernel: w.open("cn1")})
	w.pass(m, want)
	if err := unix.Unmount(filepath.Join(w.dir, "zB"), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second pass is that of a NIC less
		if _, err := m.Pass(context.Background(), want, true); err != nil {
			t.Fatal(err)
		}
		want = withVM(a, 3, "zB")
	}
	if _, has := m.numbers.Lookup(mac(51)); has {
		t.Error("the number of the NIC in the good namespace was not freed")
	}
	if _, has := m.numbers.Lookup(mac(52)); !has {
		t.Error("the number of the NIC in the unreadable namespace was freed")
	}
	w.mend("zB")
}

// TestOneVNetFailsAlone: a vnet whose device the kernel refuses, because another program's
// has its number and port, is one vnet's failure. Another vnet is programmed and healed,
// and entries of the failing one cause no pass.
func TestOneVNetFailsAlone(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	w.namespace("zBad")
	foreign := plan.Link{Name: "other0", Kind: plan.KindVXLAN, MTU: 1400, VNI: 6, Local: addr("10.99.0.1"), Port: 4789}
	w.raw("cn1", unix.RTM_NEWLINK, flagsCreate, func(e *wire.Encoder) { e.VXLAN(&foreign, 300) })
	a, _ := w.two(0, false)
	want := withVM(a, 1, "zBad")
	want.VXLANs = append(slices.Clone(want.VXLANs), desired.VXLAN{VNet: 6, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450})
	want.Fabrics[1].VNet = 6
	g := guard(w, want, time.Hour)
	result, err := g.m.Pass(context.Background(), want, true)
	if err != nil || len(result.Failures) != 2 || !errors.Is(result.Failures[0].Err, unix.EEXIST) || !strings.Contains(result.Failures[0].String(), "sdcvxl6") {
		t.Fatalf("pass: %v, failures %v, want those of the device, EEXIST, and of the link on it", err, result.Failures)
	}
	g.healsOthers(a)
	delta := desired.LinksDelta{FDB: []desired.FDB{{VNet: 6, MAC: mac(9), Dst: addr("10.99.0.2"), Port: 4789}}}
	if result := g.m.Apply(context.Background(), delta); result.Look || len(result.Steps) != 0 {
		t.Errorf("an entry of the failing vnet: look %v, steps %v, want no pass and none", result.Look, texts(result.Steps))
	}
}
