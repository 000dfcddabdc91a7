package qemu

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// guestModules are what a guest needs for virtio-net and for its power button, in the order
// of loading.
var guestModules = []string{
	"drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_pci_legacy_dev", "drivers/virtio/virtio_pci_modern_dev", "drivers/virtio/virtio_pci",
	"net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net", "drivers/input/evdev", "drivers/acpi/button",
}

// guestInit is the guest's first process. It does what it is told on its console.
const guestInit = `#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for m in %s; do insmod /modules/$m.ko || echo "no module $m"; done
acpid
ip link set eth0 up
exec </dev/ttyS0 >/dev/ttyS0 2>&1
stty -echo
while :; do
	if read -r line; then eval "$line"; echo "@@$?"; fi
done
`

// guestLease is udhcpc's script.
const guestLease = `#!/bin/busybox sh
[ "$1" = bound ] || exit 0
ip addr flush dev $interface
ip addr add $ip/$mask dev $interface
for r in $router; do ip route add default via $r; break; done
`

// powerButton is what acpid(8) runs.
const powerButton = "#!/bin/busybox sh\nexec poweroff -f\n"

// kernels are the folders with Debian's kernel for virtual machines: where
// scripts/install-packages.sh unpacks it, and where it is if it is installed.
var kernels = []string{"/var/cache/rutter-tests/linux-image-cloud-amd64", "/"}

// guest is what a machine boots.
type guest struct{ kernel, initrd string }

// buildGuest makes the guest in a folder, or skips.
func buildGuest(t *testing.T, dir string) guest {
	t.Helper()
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Skipf("needs busybox-static: %v", err)
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skipf("needs qemu-system-x86: %v", err)
	}
	for _, root := range kernels {
		found, _ := filepath.Glob(filepath.Join(root, "boot/vmlinuz-*-cloud-amd64"))
		if len(found) == 0 {
			continue
		}
		version := strings.TrimPrefix(filepath.Base(found[0]), "vmlinuz-")
		g := guest{kernel: found[0], initrd: filepath.Join(dir, "initrd")}
		if err := os.WriteFile(g.initrd, initrd(t, busybox, filepath.Join(root, "lib/modules", version, "kernel")), 0o600); err != nil {
			t.Fatal(err)
		}
		return g
	}
	t.Skip("needs the kernel of linux-image-cloud-amd64: run scripts/install-packages.sh")
	return guest{}
}

func initrd(t *testing.T, busybox []byte, modules string) []byte {
	t.Helper()
	var a archive
	for _, folder := range []string{"bin", "dev", "proc", "sys", "modules", "etc", "etc/acpi", "etc/acpi/PWRF", "usr", "usr/share", "usr/share/udhcpc", "var", "var/log", "var/run"} {
		a.add(folder, 0o40755, nil)
	}
	a.add("bin/busybox", 0o100755, busybox)
	a.add("usr/share/udhcpc/default.script", 0o100755, []byte(guestLease))
	a.add("etc/acpi/PWRF/00000080", 0o100755, []byte(powerButton))
	var names []string
	for _, module := range guestModules {
		text, err := os.ReadFile(filepath.Join(modules, module+".ko"))
		if err != nil {
			t.Skipf("needs a module of linux-image-cloud-amd64: %v", err)
		}
		names = append(names, filepath.Base(module))
		a.add("modules/"+filepath.Base(module)+".ko", 0o100644, text)
	}
	a.add("init", 0o100755, fmt.Appendf(nil, guestInit, strings.Join(names, " ")))
	a.add("TRAILER!!!", 0, nil)
	return a.Bytes()
}

// archive is a cpio archive in the form newc, which Linux unpacks as its initramfs
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	bytes.Buffer
	files int
}

func (a *archive) add(name string, mode int, text []byte) {
	a.files++
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", a.files, mode, 0, 0, 1, 0, len(text), 0, 0, 0, 0, len(name)+1, 0)
	for _, part := range [][]byte{[]byte(name + "\x00"), text} {
		a.Write(part)
		for a.Len()%4 != 0 {
			a.WriteByte(0)
		}
	}
}

// console is the serial console of a guest.
type console struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

// openConsole connects to a guest's console, and waits until the guest answers.
func openConsole(t *testing.T, socket string) *console {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &console{t: t, conn: conn, in: bufio.NewReader(conn)}
	for deadline := time.Now().Add(patience); ; {
		if time.Now().After(deadline) {
			t.Fatal("the guest does not answer at its console")
		}
		if _, err := c.try("echo here; true", time.Second); err == nil {
			break
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("console: %v", err)
		}
	}
	// Earlier attempts may be answered late.
	if _, err := c.try("echo settled; true", patience); err != nil {
		t.Fatal(err)
	}
	for {
		_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := c.in.ReadString('\n'); err != nil {
			return c
		}
	}
}

// try runs a line in the guest, and returns what it printed.
func (c *console) try(line string, within time.Duration) (string, error) {
	_ = c.conn.SetDeadline(time.Now().Add(within))
	if _, err := fmt.Fprintf(c.conn, "%s\n", line); err != nil {
		return "", err
	}
	var out strings.Builder
	for {
		text, err := c.in.ReadString('\n')
		if err != nil {
			return out.String(), err
		}
		text = strings.TrimRight(text, "\r\n")
		if status, ok := strings.CutPrefix(text, "@@"); ok {
			if n, err := strconv.Atoi(status); err != nil || n != 0 {
				return out.String(), fmt.Errorf("status %s: %s", status, out.String())
			}
			return out.String(), nil
		}
		out.WriteString(text + "\n")
	}
}

// run is try of what must succeed.
func (c *console) run(line string) string {
	c.t.Helper()
	out, err := c.try(line, patience)
	if err != nil {
		c.t.Fatalf("in the guest: %s: %v", line, err)
	}
	return strings.TrimSpace(out)
}

// fails is try of what must not succeed.
func (c *console) fails(line string) {
	c.t.Helper()
	if out, err := c.try(line, patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("in the guest: %s: got %q, %v, want a status other than 0", line, out, err)
	}
}
