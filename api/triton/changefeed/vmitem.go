package changefeed

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"rutter/log"
	"rutter/log/vmobject"
)

// subNICs and the following are subresources of VMs that are no field of log.VM.
const (
	subNICs      = "nics"
	subDestroyed = "destroyed"
)

// vmSubResources are the subresources of VMs: the log's, and the keys of VMAPI's object.
func vmSubResources() []string {
	all := append([]string{subCreate, subDelete, subNICs, "resolvers", "routes", "disks"}, log.FieldNames(log.KindVM)...)
	all = append(all, vmobject.Always()...)
	slices.Sort(all)
	return slices.Compact(all)
}

// subsOfVM names what happened to a VM: the keys of VMAPI's object that differ, and
// properties if one of those is none of the log's own fields. A new VM has each key, and
// create; one that is gone has those of a VM that was destroyed, and delete.
func subsOfVM(event *log.Event) []string {
	vm := event.Object.(*log.VM)
	var subs []string
	switch event.Action {
	case log.Create:
		subs = append(subs, subCreate, subNICs)
		for key := range vmobject.Show(vm) {
			subs = append(subs, key)
		}
	case log.Delete:
		subs = append(subs, subDelete, subDestroyed, "state", "zone_state")
	default:
		subs = changedOfVM(event, vm)
	}
	slices.Sort(subs)
	return slices.Compact(subs)
}

// changedOfVM are the keys that an update changed.
func changedOfVM(event *log.Event, vm *log.VM) []string {
	var subs, kept []string
	for _, c := range event.Changed {
		switch {
		case notTritons(c.Path):
		case isBookkeeping(c.Path):
			kept = append(kept, c.Path)
		case c.Path == "properties":
			old, _ := c.Old.(string)
			subs = append(append(subs, c.Path), changedProperties(old, vm.Properties)...)
		case c.Path == "max_physical_memory":
			subs = append(subs, c.Path, "ram")
		default:
			subs = append(subs, c.Path)
		}
	}
	if len(subs) == 0 {
		return kept
	}
	return subs
}

// changedProperties are the keys whose values differ.
func changedProperties(before, after string) (keys []string) {
	x, y := members(before), members(after)
	for _, both := range []map[string]json.RawMessage{x, y} {
		for key := range both {
			if string(x[key]) == string(y[key]) {
				continue
			}
			if key == vmobject.NICExtras {
				key = subNICs
			}
			keys = append(keys, key)
		}
	}
	return keys
}

// members are the members of a canonical JSON object, as texts.
func members(object string) (m map[string]json.RawMessage) {
	_ = json.Unmarshal([]byte(object), &m) // the log took it as an object, or has none
	return m
}

// vmsOfNIC are the VMs that a NIC's event concerns: the one that has it, and the one that
// had it before.
func vmsOfNIC(event *log.Event) (ids []string) {
	nic := event.Object.(*log.NIC)
	if nic.BelongsToType == "zone" && !nic.BelongsToUUID.IsZero() {
		ids = append(ids, nic.BelongsToUUID.String())
	}
	for _, c := range event.Changed {
		if was, ok := c.Old.(string); ok && c.Path == "belongs_to_uuid" && was != "" {
			ids = append(ids, was)
		}
	}
	return ids
}

// stamps are the times of items of VMs, which have no fraction of a millisecond. Two items
// of one VM never have the same: a listener that gets two items with the same VM and time
// in turn drops the second (CloudAPI).
type stamps struct {
	at   log.Cursor       // of the last entry
	last map[string]int64 // by VM, in milliseconds since 1970
}

const (
	// stampEntries is how many earlier entries are read to know the times of the last
	// items, so that each server gives an item the same time.
	stampEntries = 512
	maxStamps    = 4096 // VMs; those whose last time is over are forgotten then
)

// of returns the time of an item.
func (s *stamps) of(vm string, at log.Time) int64 {
	now := int64(at) / int64(time.Millisecond)
	stamp := now
	if last, ok := s.last[vm]; ok && last >= now {
		stamp = last + 1
	}
	if len(s.last) >= maxStamps {
		for id, last := range s.last {
			if last < now {
				delete(s.last, id)
			}
		}
	}
	s.last[vm] = stamp
	return stamp
}

// stampsAfter returns the times of items up to a position.
func (h *hub) stampsAfter(after log.Cursor) (*stamps, error) {
	s := &stamps{at: after, last: make(map[string]int64)}
	from := after.Seq - min(after.Seq, stampEntries)
	entries, err := h.store.Entries(from, int(after.Seq-from))
	if err != nil {
		return s, nil // they are not kept, and so old
	}
	for _, e := range entries {
		if e.Seq > after.Seq { // a change is not cut
			break
		}
		if _, err := newItem(after.Cluster, e, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// addVM gives an item of a VM's event, and one of a NIC's event, what its listeners need.
func (it *item) addVM(event *log.Event, stamps *stamps) {
	switch event.Kind {
	case log.KindVM:
		it.subs = subsOfVM(event)
		it.published = stamps.of(event.ID, event.Time)
	case log.KindNIC:
		for _, id := range vmsOfNIC(event) {
			of := &item{cursor: it.cursor, resource: log.KindVM.String(), subs: []string{subNICs}, vm: id, published: stamps.of(id, event.Time)}
			it.also = append(it.also, of)
		}
	}
}

// encodeVM prints an item of a VM. A VM that the log does not have gives no text.
func (it *item) encodeVM(object func(id log.UUID, vm *log.VM) map[string]any) ([]byte, error) {
	var vm *log.VM
	id := it.vm
	if it.event != nil {
		vm, id = it.event.Object.(*log.VM), it.event.ID
		if it.event.Action == log.Delete {
			var err error
			if vm, err = vmobject.Destroyed(vm, it.event.Time); err != nil {
				return nil, err
			}
		}
	}
	uuid, err := log.ParseUUID(id)
	if err != nil {
		return nil, err
	}
	shown := object(uuid, vm)
	if shown == nil && vm == nil {
		return nil, nil
	}
	var h head
	h.ChangeKind.Resource, h.ChangeKind.SubResources, h.ChangedResourceID = it.resource, it.subs, id
	h.Published = strconv.FormatInt(it.published, 10)
	b, err := json.Marshal(&h)
	if err != nil {
		return nil, err
	}
	b = b[:len(b)-1] // without the brace
	fields := []struct {
		name  string
		value any
	}{{"resourceObject", shown}, {"resourceState", shown["state"]}, {"uuid", id}, {"alias", shown["alias"]}, {"server_uuid", shown["server_uuid"]}, {"seq", uint64(it.cursor.Seq)}}
	for _, f := range fields {
		if f.value == nil {
			continue
		}
		if b, err = appendField(b, f.name, f.value); err != nil {
			return nil, err
		}
	}
	if it.event != nil && it.event.Action != log.Delete {
		if b, err = appendField(b, "etag", log.ETag(it.event.Revision, it.cursor.Seq)); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}
