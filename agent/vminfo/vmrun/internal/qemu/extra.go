package qemu

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"rutter/agent/vminfo/vmdoc"
)

// allowed are the options that qemu_extra_opts may have, and whether each has a value. All
// others are refused: there are many that open files, sockets or programs, read further
// options from a file, or lift what confines QEMU.
var allowed = map[string]bool{
	"action": true, "bios": true, "cpu": true, "device": true, "drive": true, "fw_cfg": true, "global": true, "icount": true, "machine": true, "M": true,
	"name": true, "netdev": true, "no-acpi": false, "no-fd-bootchk": false, "no-hpet": false, "no-reboot": false, "no-shutdown": false, "numa": true,
	"object": true, "overcommit": true, "rtc": true, "smbios": true, "smp": true, "usb": false, "vga": true, "watchdog": true, "watchdog-action": true,
}

// objects and netdevs are the types of these options that use what QEMU has, and nothing else.
var (
	objects = []string{"iothread", "memory-backend-memfd", "memory-backend-ram", "rng-builtin", "throttle-group"}
	netdevs = []string{"hubport", "socket", "tap", "user"}
)

// refusedKeys are the parts of values by which QEMU runs a program, takes a descriptor that
// was opened for something else, or does what the manifest's other fields say.
var refusedKeys = []string{
	"accel", "append", "dtb", "dumpdtb", "evdev", "fd", "fds", "firmware", "guestfwd", "helper", "initrd", "kernel", "listen-fd", "mem-path", "memory-backend",
	"opaque", "property", "rrfile", "smb", "tftp", "vhostfd", "vhostfds",
}

// fileKeys are those that name a file. QEMU sees only those of /usr, and may open no other.
var fileKeys = []string{"backing.file.filename", "file", "file.filename", "filename", "path", "romfile"}

func (q *Machine) readExtra(v vmdoc.Value) error {
	extra, _ := v.Get("qemu_extra_opts")
	option := "" // whose value is next
	for _, item := range extra.Items() {
		word, isText := item.String()
		if !isText {
			return errors.New("qemu_extra_opts is no list of strings")
		}
		if option != "" {
			if err := checkValue(option, word); err != nil {
				return fmt.Errorf("qemu_extra_opts: -%s %s: %w", option, clipped(word), err)
			}
			option = ""
		} else {
			name := strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-")
			hasValue, is := allowed[name]
			if !is || name == word {
				return fmt.Errorf("qemu_extra_opts: %s: the agent chooses that by the manifest's other fields, or it would open what QEMU is kept from: leave it out", clipped(word))
			}
			if hasValue {
				option = name
			}
		}
		q.Extra = append(q.Extra, word)
	}
	if option != "" {
		return fmt.Errorf("qemu_extra_opts: -%s has no value after it", option)
	}
	return nil
}

// checkValue refuses a value by which an option opens what QEMU is kept from.
func checkValue(option, value string) error {
	parts := strings.Split(value, ",")
	kind := parts[0]
	for _, prefix := range []string{"qom-type=", "type="} {
		kind = strings.TrimPrefix(kind, prefix)
	}
	switch {
	case strings.HasPrefix(value, "{"), strings.Contains(value, "json:"), strings.Contains(value, "/dev/fdset"):
		return errors.New("write it as key=value: a value in JSON, or a set of descriptors, is not taken")
	case option == "object" && !slices.Contains(objects, kind):
		return fmt.Errorf("of this option only %s are taken", strings.Join(objects, ", "))
	case option == "netdev" && !slices.Contains(netdevs, kind):
		return fmt.Errorf("of this option only %s are taken", strings.Join(netdevs, ", "))
	case option == "netdev" && kind == "tap" && !(slices.Contains(parts, "script=no") && slices.Contains(parts, "downscript=no")):
		return errors.New("QEMU may run no program: add script=no,downscript=no")
	case option == "bios" && !underUsr(value):
		return errors.New("want a file under /usr: QEMU sees no other")
	}
	for _, part := range parts {
		key, text, _ := strings.Cut(part, "=")
		if option == "global" {
			key = key[strings.LastIndex(key, ".")+1:]
		}
		switch {
		case slices.Contains(refusedKeys, key), (key == "script" || key == "downscript") && text != "no":
			return fmt.Errorf("%s: it would run a program, take a descriptor, or do what the manifest's other fields say: leave it out", key)
		case slices.Contains(fileKeys, key) && text != "" && !underUsr(text):
			return fmt.Errorf("%s: want a file under /usr: QEMU sees no other (disks, kernel and initrd of the manifest are opened for it)", key)
		}
	}
	return nil
}

// underUsr reports whether a file is one under /usr, as it is written.
func underUsr(name string) bool { return path.Clean(name) == name && strings.HasPrefix(name, "/usr/") }

// clipped bounds what an error repeats, in bytes.
func clipped(text string) string {
	const most = 100
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}
