package netsync

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"rutter/log"
)

// ledgerName is the ledger's file in the agent's folder.
const ledgerName = "nics.json"

// maxClaims bounds the NICs of one compute node that are remembered.
const maxClaims = 1 << 16

// claim is what is remembered of a NIC.
type claim struct {
	MAC log.MAC  `json:"mac"`
	VM  log.UUID `json:"vm"`
	// Create is the id of the change that creates it, until its result is known; then
	// zero.
	Create log.UUID `json:"create,omitzero"`
	// Held: the log had it as this VM's. If it is missing there now, it was deleted.
	Held bool `json:"held,omitempty"`
}

// ledger is what must be remembered across restarts. One goroutine uses it.
type ledger struct {
	cluster log.UUID // whose log it is about
	claims  map[log.MAC]*claim
	reboots map[log.UUID]bool // VMs that lost a NIC and were not rebooted yet
	dirty   bool              // the file is older than this
}

type ledgerJSON struct {
	Cluster log.UUID   `json:"cluster"`
	NICs    []claim    `json:"nics"`
	Reboots []log.UUID `json:"reboots,omitempty"`
}

func newLedger() *ledger {
	return &ledger{claims: make(map[log.MAC]*claim), reboots: make(map[log.UUID]bool)}
}

// loadLedger reads the ledger in folder. One that cannot be read is put aside and
// ignored: NICs that were deleted meanwhile are created again.
func loadLedger(folder string) (*ledger, error) {
	b := newLedger()
	name := filepath.Join(folder, ledgerName)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, fmt.Errorf("netsync: %w", err)
	}
	var form ledgerJSON
	if err := json.Unmarshal(text, &form); err != nil {
		return b, os.Rename(name, name+".damaged")
	}
	b.cluster = form.Cluster
	for _, c := range form.NICs {
		b.claims[c.MAC] = &c
	}
	for _, vm := range form.Reboots {
		b.reboots[vm] = true
	}
	return b, nil
}

// save writes the ledger atomically, if it changed.
func (b *ledger) save(folder string) error {
	if !b.dirty || folder == "" {
		b.dirty = false
		return nil
	}
	form := ledgerJSON{Cluster: b.cluster, NICs: []claim{}}
	for _, mac := range b.macs() {
		form.NICs = append(form.NICs, *b.claims[mac])
	}
	for vm := range b.reboots {
		form.Reboots = append(form.Reboots, vm)
	}
	slices.SortFunc(form.Reboots, compareUUID)
	text, err := json.Marshal(form)
	if err != nil {
		return fmt.Errorf("netsync: book: %w", err)
	}
	f, err := os.CreateTemp(folder, "."+ledgerName+"-*")
	if err != nil {
		return fmt.Errorf("netsync: book: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // it was renamed, unless something failed
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(folder, ledgerName))
	}
	if err == nil {
		err = syncFolder(folder) // or an older ledger may be back after a power failure
	}
	if err != nil {
		return fmt.Errorf("netsync: book: %w", err)
	}
	b.dirty = false
	return nil
}

func syncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// belongTo clears the ledger if it is about another cluster's log.
func (b *ledger) belongTo(cluster log.UUID) {
	if b.cluster == cluster {
		return
	}
	b.cluster, b.claims, b.dirty = cluster, make(map[log.MAC]*claim), true
}

// macs are those of all claims, sorted.
func (b *ledger) macs() []log.MAC {
	macs := make([]log.MAC, 0, len(b.claims))
	for mac := range b.claims {
		macs = append(macs, mac)
	}
	slices.SortFunc(macs, func(x, y log.MAC) int { return slices.Compare(x[:], y[:]) })
	return macs
}

// take records a NIC of a VM, and returns its claim; nil if there are too many.
func (b *ledger) take(mac log.MAC, vm log.UUID) *claim {
	if c := b.claims[mac]; c != nil {
		return c
	}
	if len(b.claims) >= maxClaims {
		return nil
	}
	c := &claim{MAC: mac, VM: vm}
	b.claims[mac], b.dirty = c, true
	return c
}

// hold: the log has the NIC, as its VM's.
func (b *ledger) hold(c *claim) {
	if !c.Held || !c.Create.IsZero() {
		c.Held, c.Create, b.dirty = true, log.UUID{}, true
	}
}

func (b *ledger) create(c *claim, id log.UUID) { c.Create, b.dirty = id, true }

func (b *ledger) drop(mac log.MAC) {
	if b.claims[mac] != nil {
		delete(b.claims, mac)
		b.dirty = true
	}
}

func (b *ledger) reboot(vm log.UUID, due bool) {
	if b.reboots[vm] == due {
		return
	}
	b.dirty = true
	if due {
		b.reboots[vm] = true
	} else {
		delete(b.reboots, vm)
	}
}

func compareUUID(a, b log.UUID) int { return cmp.Compare(string(a[:]), string(b[:])) }
