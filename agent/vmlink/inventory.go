package vmlink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmstore"
	"rutter/log"
	"rutter/log/feed"
	"rutter/log/vmobject"
)

const (
	// maxRefused bounds the list of VMs in the status that cannot be reported.
	maxRefused = 16
	// inventoryBytes bounds the bytes of one frame's VMs, well under feed.MaxPayload.
	inventoryBytes = 256 << 10
	// completeEvery is how often the reporter checks whether the set of VMs has become
	// complete.
	completeEvery = 250 * time.Millisecond
	// eventBatch is how many events are taken from the store at once.
	eventBatch = 256
)

// reporter sends the inventory over one connection: the complete set once it is
// complete, and then the changes.
type reporter struct {
	*Link
	state    State
	conn     connection
	number   uint64
	seq      uint64 // of the store's events: everything up to here was sent
	complete bool   // the complete set was sent
	// part: of VMs that sources do not show, the set has those that may exist, as the log has
	// them. The complete set is sent when each source is complete.
	part  bool
	began time.Time
}

// reportAll sends the inventory over each connection in turn.
func (l *Link) reportAll(ctx context.Context, state State) {
	select {
	case <-l.cfg.Service.Ready():
	case <-ctx.Done():
		return
	}
	for {
		select {
		case c := <-l.linked:
			r := &reporter{Link: l, state: state, conn: c, began: time.Now()}
			r.run(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// run reports until the connection ends.
func (r *reporter) run(ctx context.Context) {
	store := r.cfg.Service.Store()
	_, _, r.seq = store.Kept()
	look := time.NewTicker(completeEvery)
	defer look.Stop()
	for {
		if !r.complete && r.cfg.Service.Complete() {
			if r.all(nil) != nil {
				return
			}
		} else if !r.complete && !r.part && time.Since(r.began) >= r.cfg.PartAfter {
			unseen, known := r.unseen()
			if known && r.all(unseen) != nil {
				return
			}
		}
		events, changed, err := store.Since(r.seq, eventBatch)
		if err != nil { // events were lost
			_, _, r.seq = store.Kept()
			r.complete, r.part = false, false
			continue
		}
		if len(events) > 0 {
			if r.increment(events) != nil {
				return
			}
			continue
		}
		tick := look.C
		if r.complete {
			tick = nil
		} else {
			r.wait()
		}
		select {
		case <-changed:
		case <-tick:
		case <-r.conn.ctx.Done():
			r.become("waiting: no server")
			return
		case <-ctx.Done():
			return
		}
	}
}

// reportedPart is the status while a source is not complete.
const reportedPart = "reported; a source of VMs is not complete, so none of its VMs is taken for gone"

// wait shows for what the complete set waits.
func (r *reporter) wait() {
	if !r.part {
		r.become("waiting: a source of VMs is not complete, so none is taken for gone")
	}
}

func (r *reporter) become(what string) {
	r.update(func(s *Status) {
		if s.Inventory != what {
			s.Inventory, s.Since = what, time.Now().UTC()
		}
	})
}

// unseen are the VMs that the log has on this node, and no source shows, although they may
// exist: those of sources that are not complete. known is false while this node's part of the
// log may lack some.
func (r *reporter) unseen() (vms []log.UUID, known bool) {
	gone, store := r.cfg.Service.Gone(), r.cfg.Service.Store()
	vms, known = r.state.VMsHere()
	vms = slices.DeleteFunc(vms, func(id log.UUID) bool { return store.Holder(id) != "" || gone(id) })
	return append([]log.UUID{}, vms...), known // never nil
}

// all sends the complete set, if unseen is nil. Otherwise it has unseen too, as the log has
// them, so that none of them is taken for gone.
func (r *reporter) all(unseen []log.UUID) error {
	store := r.cfg.Service.Store()
	vms, seq := store.List()
	r.update(func(s *Status) { s.Refused, s.LeftOut = nil, nil })
	list := make([]feed.InventoryVM, 0, len(vms))
	for _, vm := range vms {
		if item, ok := r.item(vm); ok {
			list = append(list, item)
		}
	}
	list = append(list, r.aside(store, unseen)...)
	for first := true; first || len(list) > 0; first = false {
		n := count(list)
		m := &feed.Inventory{Whole: true, First: first, Last: n == len(list), VMs: list[:n]}
		if err := r.send(m); err != nil {
			return err
		}
		list = list[n:]
	}
	r.seq = seq
	r.update(func(s *Status) { s.Inventories++ })
	if r.part = unseen != nil; r.part {
		r.become(reportedPart)
		return nil
	}
	r.complete = true
	r.become("reported")
	return nil
}

// count is how many elements of the list fit into one frame.
func count(list []feed.InventoryVM) int {
	size := 0
	for i, vm := range list {
		if size += len(vm.Object); i == feed.MaxInventory || i > 0 && size > inventoryBytes {
			return i
		}
	}
	return len(list)
}

func (r *reporter) send(m *feed.Inventory) error {
	r.number++
	m.Number = r.number
	err := r.conn.conn.Send(r.conn.ctx, m)
	if err == nil {
		r.update(func(s *Status) { s.Reported += uint64(len(m.VMs)) })
	}
	return err
}

// increment sends the current state of the VMs in the events.
func (r *reporter) increment(events []vmstore.Event) error {
	store := r.cfg.Service.Store()
	var list []feed.InventoryVM
	seen := make(map[log.UUID]bool, len(events))
	for _, event := range events {
		r.seq = event.Seq
		if seen[event.UUID] {
			continue
		}
		seen[event.UUID] = true
		vm, here := store.Get(event.UUID)
		if !here {
			list = append(list, feed.InventoryVM{UUID: event.UUID})
			continue
		}
		if item, ok := r.item(vm); ok {
			list = append(list, item)
		}
	}
	for len(list) > 0 {
		n := count(list)
		if err := r.send(&feed.Inventory{VMs: list[:n]}); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// item is a VM in the log's form; false if the log cannot have it.
func (r *reporter) item(vm vmdoc.VM) (feed.InventoryVM, bool) {
	object, err := ObjectOf(vm, r.cfg.CN)
	if err != nil {
		r.refuse(vm.UUID, err)
		return r.asRecorded(vm.UUID)
	}
	if object.OwnerUUID.IsZero() {
		known, _ := r.state.Object(log.KindVM, vm.UUID.String())
		recorded, ok := known.(*log.VM)
		if !ok {
			r.refuse(vm.UUID, errors.New("owner_uuid is missing: put the owner's UUID into its manifest"))
			return feed.InventoryVM{}, false
		}
		object.OwnerUUID = recorded.OwnerUUID
	}
	if r.conn.conn.Knows() >= log.FeatureTriton {
		var left []string
		if object.Properties, left, err = PropertiesOf(vm, r.cfg.Metadata); err != nil {
			r.refuse(vm.UUID, err)
		}
		r.leaveOut(vm.UUID, left)
	}
	return r.encode(object)
}

func (r *reporter) encode(object log.Object) (feed.InventoryVM, bool) {
	id, err := log.ParseUUID(object.ID())
	if err != nil {
		return feed.InventoryVM{}, false
	}
	raw, err := new(log.Encoder).Object(object)
	if err != nil {
		r.refuse(id, err)
		return feed.InventoryVM{}, false
	}
	return feed.InventoryVM{UUID: id, Object: raw}, true
}

// refuse records a VM that cannot be reported.
func (r *reporter) refuse(vm log.UUID, cause error) {
	line := fmt.Sprintf("VM %s is not in the log as it is here: %v", vm, cause)
	r.update(func(s *Status) {
		if !slices.Contains(s.Refused, line) && len(s.Refused) < maxRefused {
			s.Refused = append(slices.Clip(s.Refused), line)
			r.cfg.Logger.Warn("a VM cannot be reported", "vm", vm, "error", cause)
		}
	})
}

// leaveOut records what of a VM's properties is too large to be reported.
func (r *reporter) leaveOut(vm log.UUID, left []string) {
	if len(left) == 0 {
		return
	}
	line := fmt.Sprintf("VM %s: %s are not in the log: its properties are over %d bytes", vm, strings.Join(left, ", "), log.MaxNodeProperties)
	r.update(func(s *Status) {
		if !slices.Contains(s.LeftOut, line) && len(s.LeftOut) < maxRefused {
			s.LeftOut = append(slices.Clip(s.LeftOut), line)
		}
	})
}

// PropertiesOf returns what VMAPI has of a VM beside the fields of log.VM: canonical JSON
// of at most log.MaxNodeProperties bytes, never "". Metadata, which may have secrets that
// every reader of the log would see, is left out unless it is asked for. Left names what
// was left out because it is too large.
func PropertiesOf(vm vmdoc.VM, metadata bool) (text string, left []string, err error) {
	object, err := vmobject.Parse(vm.JSON)
	if err != nil {
		return "", nil, err
	}
	for name := range object {
		if !vmobject.IsReported(name, metadata) {
			delete(object, name)
		}
	}
	taken, _, err := vmobject.TakeObject(object)
	if err != nil {
		return "", nil, err
	}
	if text, left, err = vmobject.Bound(vmobject.Properties(taken), log.MaxNodeProperties); text == "" {
		text = "{}"
	}
	return text, left, err
}

// asRecorded is a VM as the log has it already: a VM whose current state is unknown is
// not reported as gone.
func (r *reporter) asRecorded(vm log.UUID) (feed.InventoryVM, bool) {
	object, known := r.state.Object(log.KindVM, vm.String())
	if recorded, ok := object.(*log.VM); !known || !ok || recorded.ServerUUID != r.cfg.CN {
		return feed.InventoryVM{}, false
	}
	return r.encode(object)
}

// aside are the VMs whose manifests cannot be read, as the log has them: the VMs that
// the manifests, or their names, are about; and unseen.
func (r *reporter) aside(store *vmstore.Store, unseen []log.UUID) []feed.InventoryVM {
	var list []feed.InventoryVM
	seen := make(map[log.UUID]bool)
	for _, id := range unseen {
		seen[id] = true
		if item, ok := r.asRecorded(id); ok {
			list = append(list, item)
		}
	}
	for _, source := range r.cfg.Service.Status(false).Rutter.Sources {
		for _, a := range source.Aside {
			named, _ := log.ParseUUID(strings.TrimSuffix(a.Name, ".json")) // zero: its name says nothing
			for _, id := range []log.UUID{a.UUID, named} {
				if _, here := store.Get(id); here || seen[id] {
					continue
				}
				seen[id] = true
				if item, ok := r.asRecorded(id); ok {
					list = append(list, item)
				}
			}
		}
	}
	return list
}

// fields are the fields of a VM that the log keeps, by their names in both.
var fields = strings.Fields("uuid alias owner_uuid brand state zone_state zonename max_physical_memory quota cpu_cap image_uuid create_timestamp last_modified do_not_inventory")

// ObjectOf returns a VM of the compute node cn in the log's form. Fields that the log
// does not keep are left out. A VM that the log cannot keep is an error.
func ObjectOf(vm vmdoc.VM, cn log.UUID) (*log.VM, error) {
	v, err := vmdoc.ParseValue(vm.JSON)
	if err != nil {
		return nil, err
	}
	kept := make(map[string]vmdoc.Value, len(fields))
	for _, name := range fields {
		if field, ok := v.Get(name); ok && !field.IsNull() {
			kept[name] = field
		}
	}
	if owner, _ := kept["owner_uuid"].String(); owner == "00000000-0000-0000-0000-000000000000" {
		delete(kept, "owner_uuid") // vmadm's value for no owner
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return nil, err
	}
	object, _, err := log.ParseObject(log.KindVM, text)
	if err != nil {
		return nil, err
	}
	parsed, ok := object.(*log.VM)
	if !ok {
		return nil, errors.New("vmlink: not a VM")
	}
	parsed.UUID, parsed.Zonename, parsed.ServerUUID = vm.UUID, vm.Zonename, cn
	return parsed, nil
}
