package tinyguest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"rutter/integration/rig"
)

// Append is the kernel's command line: quiet, and without what an emulated processor takes
// long for. A word Peer with an address after it has the guest ask for its own address by
// DHCP and ping that peer before it does what it is told on its console.
const Append = "console=ttyS0 quiet loglevel=1 panic=-1 no_timer_check nokaslr mitigations=off cryptomgr.notests tsc=reliable random.trust_cpu=on"

// Peer begins the word of the kernel's command line that names a peer.
const Peer = "peer="

// Guest is what a machine boots: the paths of its kernel and its initramfs.
type Guest struct{ Kernel, Initrd string }

// modules are what a guest needs for virtio-net, a disk, its power button, and to report
// that its kernel cannot go on, in the order of loading.
var modules = []string{
	"drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_pci_legacy_dev", "drivers/virtio/virtio_pci_modern_dev", "drivers/virtio/virtio_pci",
	"net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net", "drivers/block/virtio_blk",
	"drivers/input/evdev", "drivers/acpi/button", "drivers/misc/pvpanic/pvpanic", "drivers/misc/pvpanic/pvpanic-mmio",
}

// programs are those of busybox that the guest has.
var programs = []string{"acpid", "cat", "dd", "echo", "head", "insmod", "ip", "mount", "ping", "poweroff", "reboot", "sh", "sleep", "stty", "udhcpc"}

// initText is the guest's first process.
const initText = `#!/bin/busybox sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
exec </dev/ttyS0 >/dev/ttyS0 2>&1
stty -echo
for m in %s; do insmod /modules/$m.ko || echo "guest: no module $m"; done
acpid
ip link set eth0 up
read -r line </proc/cmdline
for word in $line; do case $word in peer=*) peer=${word#peer=};; esac; done
if [ "$peer" ]; then
	until udhcpc -i eth0 -n -q -f -t 10 -T 1 -s /lease; do echo "guest: no lease yet"; done
	until ping -c 1 -W 1 "$peer" >/dev/null; do sleep 0.2; done
	echo "guest: reached $peer"
fi
while :; do
	read -r line || sleep 1
	case $line in panic) exit 1;; esac
	(eval "$line") # a part of a line, as it is read early, may be none of the shell's
done
`

// lease is udhcpc's script.
const lease = `#!/bin/busybox sh
[ "$1" = bound ] || exit 0
ip addr flush dev $interface
ip addr add $ip/$mask dev $interface
for r in $router; do ip route add default via $r; break; done
echo "guest: leased $ip/$mask mtu $(cat /sys/class/net/$interface/mtu)"
`

// Lease is the command by which the guest asks for its address.
const Lease = "until udhcpc -i eth0 -n -q -f -t 10 -T 1 -s /lease >/dev/null 2>&1; do :; done"

// panicLine is the line on the console by which the guest's first process ends.
const panicLine = "panic"

// powerButton is what acpid(8) runs.
const powerButton = "#!/bin/busybox sh\nexec poweroff -f\n"

// roots are the folders with Debian's kernel for virtual machines: where
// scripts/install-packages.sh unpacks it, and where it is if it is installed.
var roots = []string{"/var/cache/rutter-tests/linux-image-cloud-amd64", "/"}

// errMissing: a part of the guest is not on this machine.
var errMissing = errors.New("no guest here")

// Build makes the guest in a folder. Where a part of it or one of the programs is missing, t
// is skipped; in make test as root on a Debian of the right kind it fails instead, because
// make test has installed them.
func Build(t testing.TB, dir string, needed ...string) Guest {
	t.Helper()
	g, err := build(dir, append(needed, "qemu-system-x86_64"))
	switch {
	case errors.Is(err, errMissing) && installed():
		t.Fatalf("%v: make test has installed it by scripts/install-packages.sh, so nothing is to be skipped", err)
	case errors.Is(err, errMissing):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	return g
}

// byMake: make test names a program. It is read before rig.Run names one.
var byMake = os.Getenv(rig.Env) != ""

// installed reports whether make test runs this test, and could install what it needs.
func installed() bool {
	_, err := exec.LookPath("dpkg")
	return err == nil && byMake && os.Geteuid() == 0 && runtime.GOARCH == "amd64"
}

func build(dir string, needed []string) (Guest, error) {
	for _, program := range needed {
		if _, err := exec.LookPath(program); err != nil {
			return Guest{}, fmt.Errorf("%w: %w (run scripts/install-packages.sh)", errMissing, err)
		}
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return Guest{}, fmt.Errorf("%w: %w (package busybox-static)", errMissing, err)
	}
	for _, root := range roots {
		found, _ := filepath.Glob(filepath.Join(root, "boot/vmlinuz-*-cloud-amd64"))
		if len(found) == 0 {
			continue
		}
		version := strings.TrimPrefix(filepath.Base(found[0]), "vmlinuz-")
		text, err := initramfs(busybox, filepath.Join(root, "lib/modules", version, "kernel"))
		if err != nil {
			return Guest{}, err
		}
		g := Guest{Kernel: found[0], Initrd: filepath.Join(dir, "initrd")}
		return g, os.WriteFile(g.Initrd, text, 0o600)
	}
	return Guest{}, fmt.Errorf("%w: no kernel of linux-image-cloud-amd64 (run scripts/install-packages.sh)", errMissing)
}

// initramfs is not compressed: an emulated processor takes longer to unpack it than to copy it.
func initramfs(busybox []byte, folder string) ([]byte, error) {
	var a archive
	for _, name := range []string{"bin", "dev", "proc", "sys", "modules", "etc", "etc/acpi", "etc/acpi/PWRF", "var", "var/log", "var/run"} {
		a.add(name, modeFolder, nil)
	}
	a.add("bin/busybox", modeProgram, busybox)
	for _, name := range programs {
		a.add("bin/"+name, modeLink, []byte("busybox"))
	}
	a.add("lease", modeProgram, []byte(lease))
	a.add("etc/acpi/PWRF/00000080", modeProgram, []byte(powerButton))
	var names []string
	for _, module := range modules {
		text, err := os.ReadFile(filepath.Join(folder, module+".ko"))
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w: %w", errMissing, err)
		}
		if err != nil {
			return nil, err
		}
		names = append(names, filepath.Base(module))
		a.add("modules/"+filepath.Base(module)+".ko", modeFile, text)
	}
	a.add("init", modeProgram, fmt.Appendf(nil, initText, strings.Join(names, " ")))
	a.add("TRAILER!!!", 0, nil)
	return a.Bytes(), nil
}

// Modes of an archive's files, as stat(2) has them.
const (
	modeFolder  = 0o040755
	modeProgram = 0o100755
	modeFile    = 0o100644
	modeLink    = 0o120777 // its text is the target
)

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
