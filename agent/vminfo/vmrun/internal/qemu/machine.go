package qemu

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// Bounds of a machine. A PCI bus has 32 slots, of which the chipset and QEMU's other
// devices need some.
const (
	MaxDisks = 16
	MaxNICs  = 8
	// MaxAppend bounds the bytes of the kernel's command line: COMMAND_LINE_SIZE of x86.
	MaxAppend = 2047
)

// Accelerators that a manifest's field accel may name.
const (
	KVM = "kvm"
	TCG = "tcg" // emulation
)

// Disk is a disk of a machine.
type Disk struct {
	Path, Format string // Format is raw or qcow2
	Boot         bool
}

// NIC is a network interface whose packets go through a tap of the node.
type NIC struct {
	MAC     log.MAC
	Tap     string // the name of the device
	Primary bool
}

// Machine is what a manifest says of the virtual hardware.
type Machine struct {
	UUID        log.UUID
	Accel       string
	RAM, VCPUs  int64 // MiB, processors
	Disks       []Disk
	NICs        []NIC
	OwnNetworks bool   // a NIC is attached in the namespace, where qemu_extra_opts may use it
	Boot        string // letters c (disks) and n (network), in their order
	Kernel      string
	Initrd      string
	Append      string
	Extra       []string
}

// Read reads a manifest. The errors name fields.
func Read(m system.Manifest) (Machine, error) {
	v := m.Value
	q := Machine{UUID: m.UUID, Accel: KVM, RAM: m.Number("ram", vmdoc.DefaultRAM), VCPUs: m.Number("vcpus", vmdoc.DefaultVCPUs)}
	if accel, has := v.Get("accel"); has && !accel.IsNull() {
		q.Accel = v.Text("accel")
	}
	if q.Accel != KVM && q.Accel != TCG {
		return q, fmt.Errorf(`accel %q: want "kvm", or "tcg" for emulation, which is slow`, q.Accel)
	}
	for _, read := range []func(vmdoc.Value) error{q.readDisks, q.readNICs, q.readBoot, q.readKernel, q.readExtra} {
		if err := read(v); err != nil {
			return q, err
		}
	}
	return q, nil
}

func (q *Machine) readDisks(v vmdoc.Value) error {
	disks, _ := v.Get("disks")
	if n := len(disks.Items()); n > MaxDisks {
		return fmt.Errorf("disks: %d, a VM may have %d", n, MaxDisks)
	}
	for i, item := range disks.Items() {
		d := Disk{Path: item.Text("path"), Format: "raw", Boot: vmdoc.IsTrue(item, "boot")}
		if !filepath.IsAbs(d.Path) {
			return fmt.Errorf("disks.%d.path %q: want the path of an image or device, from / on", i, d.Path)
		}
		if format, has := item.Get("format"); has && !format.IsNull() {
			d.Format = item.Text("format")
		}
		if d.Format != "raw" && d.Format != "qcow2" {
			return fmt.Errorf("disks.%d.format %q: want raw or qcow2", i, d.Format)
		}
		q.Disks = append(q.Disks, d)
	}
	return nil
}

// readNICs reads the NICs that get a tap: all, except those whose attach says otherwise.
func (q *Machine) readNICs(v vmdoc.Value) error {
	nics, _ := v.Get("nics")
	for i, item := range nics.Items() {
		mac, err := log.ParseMAC(item.Text("mac"))
		if err != nil {
			return fmt.Errorf("nics.%d.mac: %w", i, err)
		}
		attach, err := system.QEMUAttach(item)
		if err != nil {
			return fmt.Errorf("nics.%d.%w", i, err)
		}
		if attach.Kind != vmdoc.AttachTap {
			q.OwnNetworks = true
			continue
		}
		q.NICs = append(q.NICs, NIC{MAC: mac, Tap: attach.Device, Primary: vmdoc.IsTrue(item, "primary")})
	}
	if n := len(q.NICs); n > MaxNICs {
		return fmt.Errorf("nics: %d with a tap, a VM of QEMU may have %d", n, MaxNICs)
	}
	if len(q.NICs) > 0 && !slices.ContainsFunc(q.NICs, func(n NIC) bool { return n.Primary }) {
		q.NICs[0].Primary = true
	}
	return nil
}

// defaultBoot is the order of a machine whose manifest names none: its disks, then the
// network.
const defaultBoot = "cn"

// readBoot reads vmadm's form of the field boot, order=LETTERS: c the disks, n the network
// by the primary NIC, d a CD drive, which a machine here has not.
func (q *Machine) readBoot(v vmdoc.Value) error {
	field, has := v.Get("boot")
	q.Boot = defaultBoot
	if !has || field.IsNull() {
		return nil
	}
	text, _ := field.String()
	order, ok := strings.CutPrefix(text, "order=")
	if !ok || order == "" || strings.Trim(order, "cdn") != "" {
		return fmt.Errorf(`boot %q: want order= and letters of c (disks) and n (network), as in "order=nc"`, text)
	}
	q.Boot = ""
	for _, letter := range order {
		if letter != 'd' && !strings.ContainsRune(q.Boot, letter) {
			q.Boot += string(letter)
		}
	}
	return nil
}

func (q *Machine) readKernel(v vmdoc.Value) error {
	q.Kernel, q.Initrd, q.Append = v.Text("kernel"), v.Text("initrd"), v.Text("append")
	for _, file := range []struct{ name, path string }{{"kernel", q.Kernel}, {"initrd", q.Initrd}} {
		if file.path != "" && !filepath.IsAbs(file.path) {
			return fmt.Errorf("%s %q: want the path of a file, from / on", file.name, file.path)
		}
	}
	if q.Kernel == "" && (q.Initrd != "" || q.Append != "") {
		return errors.New("initrd and append are for a kernel that the manifest names: add kernel, or leave them out")
	}
	if len(q.Append) > MaxAppend || strings.ContainsRune(q.Append, 0) {
		return fmt.Errorf("append: %d bytes, a kernel's command line may have %d, without a zero", len(q.Append), MaxAppend)
	}
	return nil
}

// machineOption is the value of -machine or -M among the extra options, "" if none: what
// is before a comma, which may be written type=NAME.
func (q *Machine) machineOption() string {
	for i, word := range q.Extra {
		name := strings.TrimLeft(word, "-")
		if word == name || name != "machine" && name != "M" || i+1 == len(q.Extra) {
			continue
		}
		kind, _, _ := strings.Cut(q.Extra[i+1], ",")
		return strings.TrimPrefix(kind, "type=")
	}
	return ""
}

// bus is the ending of the virtio devices of the machine: by PCI, on microvm by the virtio
// bus, on s390 by channels.
func (q *Machine) bus() string {
	switch kind := q.machineOption(); {
	case kind == "microvm":
		return "device"
	case strings.HasPrefix(kind, "s390-"):
		return "ccw"
	}
	return "pci"
}

// hostArch is a variable for tests.
var hostArch = runtime.GOARCH
