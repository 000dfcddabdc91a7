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
	space [6]byte   // so that two workloads do not make the same VMs
	next  atomic.Uint64
	// updated are those by Update.
	updated atomic.Uint64
}

// Again makes the VMs of this workload those of every other that was told the
// same, so that one bench can go on with what another left.
func (w *Workload) Again() *Workload {
	w.space = [6]byte{}
	return w
}

// GoOn has Update go on in a log of some events, in which VMs were created and
// updated in their turn: an update to what is there already is no event.
func (w *Workload) GoOn(events uint64) { w.updated.Store(events) }

// padding is how many bytes the texts of a VM take together.
const padding = len(Workload{}.texts) * (projections.MaxNameBytes - 1)

// NewWorkload returns one whose events have size bytes.
func NewWorkload(size int) (*Workload, error) {
	id := client.NewChangeID()
	w := &Workload{space: [6]byte(id[10:])}
	defer w.next.Store(0) // those made for their size are never created
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

// eventSize returns the bytes of an event whose texts have pad bytes more than
// the shortest, and keeps those texts.
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

// vmSet are the fields that a creation gives.
var vmSet = []string{"alias", "brand", "cpu_cap", "image_uuid", "max_physical_memory", "owner_uuid", "quota", "server_uuid", "state", "uuid", "zone_state"}

// id names the nth VM of the workload, from 1.
func (w *Workload) id(n uint64) (id log.UUID) {
	copy(id[10:], w.space[:])
	binary.BigEndian.PutUint64(id[:8], n)
	return id
}

// vm returns a VM that is not there yet.
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

// Update returns a change that updates one of the first objects VMs, which are
// there, each in its turn: the log grows by it, and the state does not.
func (w *Workload) Update(objects uint64) *log.Change {
	n := w.updated.Add(1) - 1
	return w.updateMany(n, 1, objects, n/objects)
}

// updateMany returns a change that updates n of the first objects VMs, which
// are there, from the nth on, around the end; round tells this time from the last.
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
