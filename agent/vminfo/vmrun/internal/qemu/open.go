package qemu

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
)

// Bounds of the files of a direct boot, in bytes. They are copied into memory that counts
// until QEMU has ended.
const (
	MaxKernel = 128 << 20
	MaxInitrd = 512 << 20
)

// ErrNoKVM: the node cannot run machines by its processor's virtualization.
var ErrNoKVM = errors.New("this node has no KVM")

// kvmPath is the node's device of KVM; a variable for tests.
var kvmPath = "/dev/kvm"

// vhostPath is the node's device that moves the packets of taps in the kernel.
const vhostPath = "/dev/vhost-net"

// kvmVersion is KVM_API_VERSION, and kvmGetVersion KVM_GET_API_VERSION (linux/kvm.h).
const (
	kvmVersion    = 12
	kvmGetVersion = 0xae00
)

// Check refuses a machine that this node cannot run: ErrNoKVM, with the remedy.
func (q *Machine) Check() error {
	if q.Accel != KVM {
		return nil
	}
	if err := checkKVM(kvmPath); err != nil {
		return fmt.Errorf(`%w (%w): enable virtualization in this machine's firmware, or in the hypervisor below it, and load the module kvm_intel or kvm_amd; or set "accel": "tcg" in the manifest for emulation, which is ten times as slow or slower`, ErrNoKVM, err)
	}
	return nil
}

func checkKVM(path string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(fd)
	version, err := unix.IoctlRetInt(fd, kvmGetVersion)
	if err != nil || version != kvmVersion {
		return fmt.Errorf("%s: it is not the kernel's KVM (version %d, want %d)", path, version, kvmVersion)
	}
	return nil
}

// CheckTaps reports which tap of the machine's is not there. Error: ErrNoTap.
func (q *Machine) CheckTaps() error {
	for _, nic := range q.NICs {
		if err := CheckTap(nic.Tap, nic.MAC); err != nil {
			return fmt.Errorf("NIC %s: %w", nic.MAC, err)
		}
	}
	return nil
}

// Devices are the names in /dev that QEMU itself opens.
func (q *Machine) Devices() []string {
	var names []string
	if q.Accel == KVM {
		names = append(names, "kvm")
	}
	if q.OwnNetworks {
		names = append(names, "net/tun")
	}
	return names
}

// Opened is what is open for a machine. QEMU inherits Files, in their order; the caller
// closes it once QEMU runs.
type Opened struct {
	Files       []*os.File
	Descriptors Descriptors
	first       int
}

// Close closes the files.
func (o *Opened) Close() {
	for _, file := range o.Files {
		_ = file.Close()
	}
}

// add gives a file to QEMU, and returns its number there.
func (o *Opened) add(file *os.File) int {
	o.Files = append(o.Files, file)
	return o.first + len(o.Files) - 1
}

// Open opens what QEMU cannot open itself, as descriptors from first on: its sockets in a
// new folder, the taps in the network namespace of this thread, disks, and copies of the
// kernel and initrd. Errors name the field or the NIC.
func (q *Machine) Open(folder string, first int) (o *Opened, err error) {
	o = &Opened{first: first}
	defer func() {
		if err != nil {
			o.Close()
		}
	}()
	if err := q.openSockets(folder, o); err != nil {
		return o, err
	}
	for i, disk := range q.Disks {
		file, err := os.OpenFile(disk.Path, os.O_RDWR, 0)
		if err != nil {
			return o, fmt.Errorf("disks.%d: %w", i, err)
		}
		o.Descriptors.Disks = append(o.Descriptors.Disks, o.add(file))
	}
	for _, nic := range q.NICs {
		file, mtu, err := OpenTap(nic.Tap, nic.MAC)
		if err != nil {
			return o, fmt.Errorf("NIC %s: %w", nic.MAC, err)
		}
		tap := Tap{FD: o.add(file), MTU: mtu}
		if vhost, err := os.OpenFile(vhostPath, os.O_RDWR, 0); err == nil { // without it QEMU moves the packets itself
			tap.Vhost = o.add(vhost)
		}
		o.Descriptors.Taps = append(o.Descriptors.Taps, tap)
	}
	for _, boot := range []struct {
		name, path string
		max        int64
		fd         *int
	}{{"kernel", q.Kernel, MaxKernel, &o.Descriptors.Kernel}, {"initrd", q.Initrd, MaxInitrd, &o.Descriptors.Initrd}} {
		if boot.path == "" {
			continue
		}
		file, err := inMemory(boot.path, boot.max)
		if err != nil {
			return o, fmt.Errorf("%s: %w", boot.name, err)
		}
		*boot.fd = o.add(file)
	}
	return o, nil
}

// openSockets makes the folder of a machine's sockets anew, with the sockets.
func (q *Machine) openSockets(folder string, o *Opened) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	for _, s := range []struct {
		name string
		fd   *int
	}{{system.QEMUControl, &o.Descriptors.Control}, {system.QEMUEvents, &o.Descriptors.Events}, {system.QEMUConsole, &o.Descriptors.Console}} {
		file, err := listen(folder, s.name)
		if err != nil {
			return fmt.Errorf("socket %s: %w", filepath.Join(folder, s.name), err)
		}
		*s.fd = o.add(file)
	}
	return nil
}

// listen makes a socket by a short name of its folder, because a socket's address has 107
// bytes.
func listen(folder, name string) (*os.File, error) {
	at, err := os.OpenFile(folder, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", at.Fd(), name)})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	file, err := listener.File()
	return file, errors.Join(err, listener.Close())
}

// inMemory copies a file of at most limit bytes into memory that has no name, from which
// QEMU reads it whatever the rights of the file are.
func inMemory(path string, limit int64) (*os.File, error) {
	from, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%s: want a file of at most %d MiB: %w", path, limit>>20, fs.ErrInvalid)
	}
	fd, err := unix.MemfdCreate(filepath.Base(path), unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	to := os.NewFile(uintptr(fd), path)
	n, err := io.Copy(to, io.LimitReader(from, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("%s: it grew beyond %d MiB: %w", path, limit>>20, fs.ErrInvalid)
	}
	if err != nil {
		_ = to.Close()
		return nil, err
	}
	return to, nil
}
