package serviceaddr

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/cmd/rutter/netlab"
)

// disks makes a disk for each server of a world, and returns their places.
func disks(t *testing.T, dir string) (places []string) {
	t.Helper()
	for _, id := range []string{"s1", "s2", "s3"} {
		image, at := filepath.Join(dir, id+".disk"), filepath.Join(dir, id+"-data")
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(image, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(image, 96<<20); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("mkfs.ext4", "-q", "-E", "nodiscard", image).CombinedOutput(); err != nil {
			t.Skipf("needs mkfs.ext4, of the Debian package e2fsprogs: %v: %s", err, out)
		}
		if out, err := exec.Command("mount", "-o", "loop", image, at).CombinedOutput(); err != nil {
			t.Skipf("needs to mount file systems: %v: %s", err, out)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(at, 0); err != nil {
				_ = unix.Unmount(at, unix.MNT_DETACH) // a server that failed to end has it
			}
		})
		places = append(places, at)
	}
	return places
}

// freeze makes every write to a disk hang until thaw, which may be called twice (FIFREEZE
// and FITHAW, linux/fs.h).
func freeze(t *testing.T, at string) (thaw func()) {
	t.Helper()
	const fifreeze, fithaw = 0xc0045877, 0xc0045878
	folder, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetInt(int(folder.Fd()), fifreeze, 0); err != nil {
		folder.Close()
		t.Skipf("needs a file system that can be frozen: %v", err)
	}
	thaw = sync.OnceFunc(func() {
		if err := unix.IoctlSetInt(int(folder.Fd()), fithaw, 0); err != nil {
			t.Errorf("thaw %s: %v", at, err)
		}
		folder.Close()
	})
	t.Cleanup(thaw)
	return thaw
}

// TestDiskOfHolderHangs: the process of the holder runs, and its disk takes nothing. Its
// address goes to a server that can write, and at no time two have it; when the disk goes
// on, it follows. Then a server that is given other addresses than the rest says so.
func TestDiskOfHolderHangs(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts servers as processes: skipped with -short")
	}
	if !netlab.Inside() || os.Geteuid() != 0 {
		t.Skip(netlab.ErrForbidden.Error())
	}
	dir := t.TempDir()
	places := disks(t, dir)
	ctx, w, v := startIn(t, dir)
	holder, began := holds(ctx, t, w, v), time.Now()
	thaw := freeze(t, places[holder.number-1])
	var writing sync.WaitGroup
	writing.Go(func() { // something that the holder must put on its disk
		for ctx.Err() == nil && v.Holder(IPv4) == holder {
			_ = postTag(ctx, holder)
			time.Sleep(20 * time.Millisecond)
		}
	})
	passes(ctx, t, w, v, "its disk hangs", holder, began)
	for _, ip := range []netip.Addr{IPv4, IPv6} {
		if err := v.AwaitNone(ctx, ip, holder); err != nil {
			t.Error(err)
		}
	}
	writing.Wait()
	thaw()
	if err := holder.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	otherList(ctx, t, w)
}

// postTag makes a NIC tag at a server's own API.
func postTag(ctx context.Context, h *Host) error {
	soon, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err := h.Post(soon, "/nic_tags", `{"name": "t`+strings.ReplaceAll(time.Now().Format("150405.000"), ".", "_")+`"}`)
	return err
}

// otherList starts a server anew without one of the addresses: it says so.
func otherList(ctx context.Context, t *testing.T, w *World) {
	t.Helper()
	h := w.Hosts[2]
	if err := h.Stop(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, arg := range h.Args {
		if strings.HasPrefix(arg, IPv6.String()+"/") || arg == net.JoinHostPort(IPv6.String(), "80") {
			args = args[:len(args)-1] // with the name of the flag
			continue
		}
		args = append(args, arg)
	}
	h.Args = args
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	for {
		body, err := h.Get(ctx, "/readyz?verbose")
		if strings.Contains(body, "has other service addresses: it "+IPv4.String()+"/24 and "+IPv6.String()+"/64, this server "+IPv4.String()+"/24;") {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s does not say that the lists differ: %v\n%s", h.Name, err, body)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
