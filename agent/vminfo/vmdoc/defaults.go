package vmdoc

import (
	"slices"
	"strconv"
)

// HardwareBrands are the brands of VMs that have virtual hardware (vmadm(8)).
var HardwareBrands = []string{"kvm", "bhyve"}

// What a VM gets whose manifest does not say; the numbers are vmadm's, except that a VM
// which only sleeps has no limit of memory. MiB, CPUs, and processes.
const (
	DefaultRAM     = 256
	HardwareMemory = 1024 // that the program of a VM with virtual hardware may need besides its ram
	DefaultVCPUs   = 1
	DefaultMemory  = 256 // of a VM with an init
	DefaultLWPs    = 2000

	defaultShares    = 100
	defaultSemaphore = 4096
)

// zeroUUID is vmadm's UUID of an owner or a package that was not given.
const zeroUUID = "00000000-0000-0000-0000-000000000000"

// Hardware reports whether a VM has virtual hardware.
func (v Value) Hardware() bool { return slices.Contains(HardwareBrands, v.Text("brand")) }

// Memory is the limit of memory in MiB that a manifest gives its VM; 0: none.
func (v Value) Memory() int64 {
	memory := int64(0)
	if v.Hardware() {
		memory = v.positive("ram", DefaultRAM) + HardwareMemory
	} else if _, has := v.Get("init"); has {
		memory = DefaultMemory
	}
	return v.positive("max_physical_memory", memory)
}

// positive is a number above 0 of an object; none if it has no such number.
func (v Value) positive(name string, none int64) int64 {
	field, _ := v.Get(name)
	if n, err := strconv.ParseInt(field.Literal(), 10, 64); err == nil && field.IsNumber() && n > 0 {
		return n
	}
	return none
}

// Completed returns a VM with the fields that SmartOS's vminfod shows of every VM, and
// without the fields that are null: what the manifest does not say has vmadm's default,
// by its brand. Programs that were written for SmartOS do not look whether they are
// there (docs/spec/vminfod.md, 5.7).
func Completed(v Value) Value {
	if _, has := v.Get("brand"); !has {
		v = v.With("brand", StringValue("joyent"))
	}
	c := completion{v: v}
	c.v.keys, c.v.items = make([]string, 0, len(v.keys)+completedFields), make([]Value, 0, len(v.keys)+completedFields)
	for i, key := range v.keys {
		if !v.items[i].IsNull() {
			c.add(key, v.items[i])
		}
	}
	c.limits(IntValue(v.Memory()))
	for _, name := range objectFields {
		c.missing(name, Value{kind: kindObject})
	}
	for _, name := range []string{"nics", "resolvers", "snapshots"} {
		c.missing(name, ArrayValue())
	}
	c.missing("autoboot", BoolValue(true))
	c.missing("firewall_enabled", BoolValue(false))
	c.missing("billing_id", StringValue(zeroUUID))
	c.missing("owner_uuid", StringValue(zeroUUID))
	c.missing("dns_domain", StringValue("local"))
	c.missing("limit_priv", StringValue("default"))
	c.missing("quota", IntValue(0))
	c.missing("v", IntValue(1))
	return c.v
}

// completedFields is about how many fields Completed adds.
const completedFields = 32

// completion is an object that fields are added to.
type completion struct{ v Value }

func (c *completion) add(name string, field Value) {
	c.v.keys, c.v.items = append(c.v.keys, name), append(c.v.items, field)
}

// missing adds a field that is not there.
func (c *completion) missing(name string, field Value) {
	if !slices.Contains(c.v.keys, name) {
		c.add(name, field)
	}
}

// limits adds the limits of a VM with that memory in MiB.
func (c *completion) limits(memory Value) {
	if c.v.Hardware() {
		c.missing("ram", IntValue(DefaultRAM))
		c.missing("vcpus", IntValue(DefaultVCPUs))
		c.missing("disks", ArrayValue())
	} else {
		c.missing("tmpfs", memory)
	}
	for _, name := range []string{"max_physical_memory", "max_locked_memory", "max_shm_memory", "max_swap"} {
		c.missing(name, memory)
	}
	c.missing("max_lwps", IntValue(DefaultLWPs))
	for _, name := range []string{"max_msg_ids", "max_sem_ids", "max_shm_ids"} {
		c.missing(name, IntValue(defaultSemaphore))
	}
	c.missing("cpu_shares", IntValue(defaultShares))
	c.missing("zfs_io_priority", IntValue(defaultShares))
}

// IsDefault reports whether a VM as vminfod shows it does not say of the field name what
// no manifest says: the field is not there, or is what Completed gives.
func IsDefault(vm Value, name string) bool {
	got, has := vm.Get(name)
	if !has {
		return true
	}
	want, fills := Completed(vm.Without(name)).Get(name)
	return fills && got.Equal(want)
}
