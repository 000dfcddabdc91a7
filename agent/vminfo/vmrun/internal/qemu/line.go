package qemu

import (
	"fmt"
	"strconv"
)

// sandbox are QEMU's own restrictions: its filter of system calls, which lets it start no
// program and change no user.
const sandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"

// Descriptors are the numbers in QEMU of what Open has opened.
type Descriptors struct {
	Control, Events, Console int
	Disks                    []int
	Taps                     []Tap
	Kernel, Initrd           int // 0: none
}

// Tap is an open tap: its number in QEMU, its MTU in bytes, and the number of its
// /dev/vhost-net, 0 if the node has none.
type Tap struct {
	FD, MTU, Vhost int
}

// Line is the command line of QEMU (qemu(1)), with the program's path first. Disks come
// before NICs, and both before the extra options.
func (q *Machine) Line(path string, d Descriptors) []string {
	line := []string{path, "-name", q.UUID.String(), "-uuid", q.UUID.String(), "-nodefaults", "-no-user-config", "-display", "none", "-accel", q.Accel}
	if hostArch == "arm64" && q.machineOption() == "" { // QEMU has no default there
		cpu := map[string]string{KVM: "host", TCG: "max"}
		line = append(line, "-machine", "virt", "-cpu", cpu[q.Accel])
	}
	line = append(line, "-m", strconv.FormatInt(q.RAM, 10), "-smp", strconv.FormatInt(q.VCPUs, 10), "-sandbox", sandbox)
	for _, m := range []struct {
		name string
		fd   int
	}{{"control", d.Control}, {"events", d.Events}} {
		line = append(line, "-chardev", fmt.Sprintf("socket,id=%s,fd=%d,server=on,wait=off", m.name, m.fd), "-mon", "chardev="+m.name+",mode=control")
	}
	line = append(line, "-chardev", fmt.Sprintf("socket,id=console,fd=%d,server=on,wait=off", d.Console), "-serial", "chardev:console")
	if hostArch == "amd64" && q.bus() == "pci" {
		line = append(line, "-device", "pvpanic") // by it a guest's kernel reports its end
	}
	disks, nic := q.bootIndexes()
	for i, disk := range q.Disks {
		set := i + 1
		// QEMU would open a disk for reading first, which the descriptor for both is refused for.
		line = append(line, "-add-fd", fmt.Sprintf("fd=%d,set=%d", d.Disks[i], set),
			"-drive", fmt.Sprintf("id=disk%d,if=none,format=%s,auto-read-only=off,file=/dev/fdset/%d", i, disk.Format, set),
			"-device", fmt.Sprintf("virtio-blk-%s,drive=disk%d%s", q.bus(), i, bootIndex(disks[i])))
	}
	for i, n := range q.NICs {
		t := d.Taps[i]
		backend := fmt.Sprintf("tap,id=nic%d,fd=%d", i, t.FD)
		if t.Vhost != 0 {
			backend += fmt.Sprintf(",vhost=on,vhostfd=%d", t.Vhost)
		}
		device := fmt.Sprintf("virtio-net-%s,netdev=nic%d,mac=%s,host_mtu=%d", q.bus(), i, n.MAC, t.MTU)
		if n.Primary {
			device += bootIndex(nic)
		}
		line = append(line, "-netdev", backend, "-device", device)
	}
	if q.Kernel != "" {
		line = append(line, "-kernel", inherited(d.Kernel))
		if q.Initrd != "" {
			line = append(line, "-initrd", inherited(d.Initrd))
		}
		if q.Append != "" {
			line = append(line, "-append", q.Append)
		}
	}
	return append(line, q.Extra...)
}

// inherited is the path by which QEMU reads a file that it has open: it takes no descriptor
// for a kernel.
func inherited(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// bootIndexes are the places of each disk and of the primary NIC in the order of boot, from
// 1 on; 0: not in it. Among the disks, those with boot are first.
func (q *Machine) bootIndexes() (disks []int, nic int) {
	disks = make([]int, len(q.Disks))
	next := 1
	for _, letter := range q.Boot {
		if letter == 'n' {
			nic = next
			next++
			continue
		}
		for _, boot := range []bool{true, false} {
			for i, disk := range q.Disks {
				if disk.Boot == boot {
					disks[i] = next
					next++
				}
			}
		}
	}
	return disks, nic
}

func bootIndex(place int) string {
	if place == 0 {
		return ""
	}
	return ",bootindex=" + strconv.Itoa(place)
}
