package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"rutter/api/client"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

// Workload makes changes whose events are all of about the same size: the
// creation of a VM, or an update of one.
type Workload struct {
	texts [3]string // alias, brand and zone_state, which fill an event up
	space [6]byte   // in the UUIDs, so that two workloads do not make the same VMs
	next  atomic.Uint64
	// updated counts the updates by Update.
	updated atomic.Uint64
}

// SetSpace sets the part of the VMs' UUIDs that differs between workloads to a fixed
// value, so that one bench can continue with the VMs of another.
func (w *Workload) SetSpace() *Workload {
	w.space = [6]byte{}
	return w
}

// ContinueUpdates makes Update continue after the first events of another run. Without
// it, Update would repeat values that the VMs have already, which is no event.
func (w *Workload) ContinueUpdates(events uint64) { w.updated.Store(events) }

// padding is how many bytes the texts of a VM take together.
const padding = len(Workload{}.texts) * (projections.MaxNameBytes - 1)

// NewWorkload returns one whose events have size bytes.
func NewWorkload(size int) (*Workload, error) {
	id := client.NewChangeID()
	w := &Workload{space: [6]byte(id[10:])}
	defer w.next.Store(0) // the changes made to find the size are never sent
	least, err := w.eventSize(0)
	if err != nil {
		return nil, err
	}
	pad := size - least
	if pad < 0 || pad > padding {
		return nil, fmt.Errorf("events of %d bytes: want %d to %d, which is what the event of a VM can have", size, least, least+padding)
	}
	// A longer text may take a longer length before it.
	for got := 0; pad >= 0; pad-- {
		if got, err = w.eventSize(pad); err != nil || got <= size {
			return w, err
		}
	}
	return w, nil
}

// eventSize returns the bytes of an event whose texts have pad bytes more than the
// shortest, and stores those texts.
func (w *Workload) eventSize(pad int) (int, error) {
	for i := range w.texts {
		n := min(pad, projections.MaxNameBytes-1)
		w.texts[i] = strings.Repeat("x", 1+n)
		pad -= n
	}
	c := w.Create()
	c.Time, c.Actor = log.TimeOf(time.Now()), "anonymous@127.0.0.1"
	events, result := rules.Decide(projections.NewState(), c)
	if result.Refusal != nil {
		return 0, result.Refusal
	}
	if len(events) != 1 {
		return 0, errors.New("the workload's change is not one event")
	}
	b, err := log.NewEncoder().Event(events[0])
	return len(b), err
}

// vmSet are the fields that a create sets.
var vmSet = []string{"alias", "brand", "cpu_cap", "image_uuid", "max_physical_memory", "owner_uuid", "quota", "server_uuid", "state", "uuid", "zone_state"}

// id names the nth VM of the workload, from 1.
func (w *Workload) id(n uint64) (id log.UUID) {
	copy(id[10:], w.space[:])
	binary.BigEndian.PutUint64(id[:8], n)
	return id
}

// vm returns a VM that the log does not have yet.
func (w *Workload) vm() *log.VM {
	id := w.id(w.next.Add(1))
	return &log.VM{
		UUID: id, Alias: w.texts[0], OwnerUUID: id, Brand: w.texts[1], State: "running", ZoneState: w.texts[2],
		ServerUUID: log.UUID{15: 1}, MaxPhysicalMemory: 1024, Quota: 10, CPUCap: 100, ImageUUID: id,
	}
}

// Create returns a change that creates a VM.
func (w *Workload) Create() *log.Change { return w.createMany(1) }

// createMany returns a change that creates n VMs.
func (w *Workload) createMany(n uint64) *log.Change {
	c := &log.Change{ID: client.NewChangeID(), Ops: make([]log.Op, n)}
	for i := range c.Ops {
		c.Ops[i] = log.Op{Action: log.Create, Kind: log.KindVM, Set: vmSet, Object: w.vm()}
	}
	return c
}

// Update returns a change that updates one of the first objects VMs, one after another.
// They must exist. The log grows by it, the state does not.
func (w *Workload) Update(objects uint64) *log.Change {
	n := w.updated.Add(1) - 1
	return w.updateMany(n, 1, objects, n/objects)
}

// updateMany returns a change that updates n of the first objects VMs, from the nth on,
// and begins again at the end. They must exist. round makes the values differ from
// those of the last time.
func (w *Workload) updateMany(first, n, objects, round uint64) *log.Change {
	c := &log.Change{ID: client.NewChangeID(), Ops: make([]log.Op, n)}
	for i := range c.Ops {
		c.Ops[i] = log.Op{
			Action: log.Update, Kind: log.KindVM, ID: w.id((first+uint64(i))%objects + 1).String(),
			Set: []string{"quota"}, Object: &log.VM{Quota: 100 + round},
		}
	}
	return c
}
