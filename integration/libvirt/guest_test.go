package libvirt

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// guestModules are what a guest needs for virtio-net, in the order of loading.
var guestModules = []string{"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "failover", "net_failover", "virtio_net"}

// guestInit is the guest's first process. It asks for an address as any guest does, and
// pings the peer that the kernel's command line names.
const guestInit = `#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
exec </dev/console >/dev/console 2>&1
echo 5 >/proc/sys/kernel/printk
for m in %s; do insmod /modules/$m.ko || echo "guest: no module $m"; done
read -r line </proc/cmdline
for word in $line; do case $word in peer=*) peer=${word#peer=};; esac; done
ip link set eth0 up
until udhcpc -i eth0 -n -q -f -t 10 -T 1 -s /lease; do echo "guest: no lease yet"; sleep 1; done
until ping -c 1 -W 1 "$peer" >/dev/null; do sleep 0.2; done
echo "guest: reached $peer"
while sleep 1000; do :; done
`

// guestLease is udhcpc's script.
const guestLease = `#!/bin/busybox sh
[ "$1" = bound ] || exit 0
echo "guest: leased $ip/$mask mtu $(cat /sys/class/net/$interface/mtu)"
ip addr add $ip/$mask dev $interface
`

// errNoGuest: a part of the guest is not on this machine.
var errNoGuest = errors.New("no guest")

// buildGuest writes the guest's initramfs, and returns its kernel: Debian's, from
// linux-image-cloud-amd64 or linux-image-amd64.
func buildGuest(initrd string) (kernel string, err error) {
	kernels, _ := filepath.Glob("/boot/vmlinuz-*-amd64")
	if len(kernels) == 0 {
		return "", fmt.Errorf("%w: no kernel /boot/vmlinuz-*-amd64 (package linux-image-cloud-amd64)", errNoGuest)
	}
	slices.SortFunc(kernels, func(a, b string) int { return strings.Count(b, "cloud") - strings.Count(a, "cloud") })
	kernel = kernels[0]
	modules := filepath.Join("/lib/modules", strings.TrimPrefix(filepath.Base(kernel), "vmlinuz-"), "kernel")
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return "", fmt.Errorf("%w: %w (package busybox-static)", errNoGuest, err)
	}
	a := &archive{}
	for _, folder := range []string{"bin", "dev", "proc", "sys", "modules"} {
		a.add(folder, 0o40755, nil)
	}
	a.add("bin/busybox", 0o100755, busybox)
	a.add("lease", 0o100755, []byte(guestLease))
	var loaded []string
	for _, name := range guestModules {
		text, err := moduleOf(modules, name)
		if err != nil {
			return "", err
		}
		if text != nil { // else it is built in
			a.add("modules/"+name+".ko", 0o100644, text)
			loaded = append(loaded, name)
		}
	}
	a.add("init", 0o100755, fmt.Appendf(nil, guestInit, strings.Join(loaded, " ")))
	a.add("TRAILER!!!", 0, nil)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err = w.Write(a.Bytes())
	return kernel, errors.Join(err, w.Close(), os.WriteFile(initrd, packed.Bytes(), 0o644))
}

// moduleOf reads a kernel module; nil: the kernel has none of that name.
func moduleOf(folder, name string) ([]byte, error) {
	for _, at := range []string{"drivers/virtio", "net/core", "drivers/net"} {
		text, err := os.ReadFile(filepath.Join(folder, at, name+".ko"))
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return text, err
		}
	}
	return nil, nil
}

// archive is a cpio archive in the form "newc", which Linux unpacks as its initramfs
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	bytes.Buffer
	files int
}

func (a *archive) add(name string, mode int, text []byte) {
	a.files++
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", a.files, mode, 0, 0, 1, 0, len(text), 0, 0, 0, 0, len(name)+1, 0)
	a.WriteString(name + "\x00")
	a.pad()
	a.Write(text)
	a.pad()
}

func (a *archive) pad() {
	for a.Len()%4 != 0 {
		a.WriteByte(0)
	}
}
