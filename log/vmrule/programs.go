package vmrule

import (
	"encoding/json"
	"slices"
)

// programFields are the fields of a VM that choose a program that runs on its compute
// node, options of one, or what of the node it reaches: of Rutter's manifests, and of
// vmadm's, which a cn-agent takes.
var programFields = []string{
	"accel", "add_filesystems", "append", "bhyve_extra_opts", "bootrom", "filesystems", "hooks", "init", "initrd", "kernel", "limit_priv",
	"qemu_extra_opts", "qemu_opts", "root", "spice_opts", "update_filesystems", "vga_opts",
}

// diskFields are lists of disks. A disk with a path is a file or a device of the node.
var diskFields = []string{"add_disks", "disks", "update_disks"}

// nicFields are lists of NICs. A NIC with an attach chooses the name of a device of the node,
// and which user of the node may open it.
var nicFields = []string{"add_nics", "nics", "update_nics"}

// Programs returns the fields of a VM, or of an update of one, that only a client may
// send that may choose what runs on compute nodes, sorted: those that choose a program
// or its options, files of the node (a kernel, disks by their path), how a NIC is attached,
// and a zonename other than the VM's UUID, because it chooses a network namespace of the
// node.
func Programs(uuid string, fields map[string]json.RawMessage) (names []string) {
	for name, raw := range fields {
		switch {
		case slices.Contains(programFields, name):
		case slices.Contains(diskFields, name) && named(raw, "path"):
		case slices.Contains(nicFields, name) && attached(raw):
		case name == "zonename" && string(raw) != `"`+uuid+`"`:
		default:
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// attached reports whether a NIC of a list has an attach. What is no list of objects has no
// NICs, and is refused as that.
func attached(raw json.RawMessage) bool {
	var list []map[string]json.RawMessage
	return json.Unmarshal(raw, &list) == nil && named(raw, "attach")
}

// named reports whether an object of a list has a field. What is no list of objects
// counts as having it.
func named(raw json.RawMessage, field string) bool {
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return true
	}
	return slices.ContainsFunc(list, func(one map[string]json.RawMessage) bool { _, is := one[field]; return is })
}
