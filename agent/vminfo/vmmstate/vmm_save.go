package vmmstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmstore"
	"rutter/log"
)

// load reads the folder. A file that cannot be read is an error, because servers ignore
// a generation that starts again.
func (m *Table) load() error {
	names, err := filepath.Glob(filepath.Join(m.cfg.Folder, "*.json"))
	if err != nil {
		return fmt.Errorf("vminfo: VMMs: %w", err)
	}
	for _, name := range names {
		vmm := new(VMM)
		text, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, vmm)
		}
		if err == nil && filepath.Base(name) != vmm.ID.String()+".json" {
			err = errors.New("it is that of VMM " + vmm.ID.String())
		}
		if err != nil {
			return fmt.Errorf("vminfo: %s cannot be read, and its generation is needed: mend it, or move it away if the VMM is gone: %w", name, err)
		}
		m.holdLocked(vmm) // m is not shared yet
	}
	return nil
}

func (m *Table) path(id log.UUID) string {
	return filepath.Join(m.cfg.Folder, id.String()+".json")
}

// save writes a VMM's file atomically: after a crash it is complete, old or new.
func (m *Table) save(vmm VMM) error {
	file, err := m.writeNew(vmm)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(m.path(vmm.ID)+newSuffix, m.path(vmm.ID)); err != nil {
		return err
	}
	return system.SyncFolder(m.cfg.Folder)
}

// newSuffix ends the name of a file that is being written.
const newSuffix = ".new"

// writeNew writes a VMM beside its file. The caller closes it.
func (m *Table) writeNew(vmm VMM) (*os.File, error) {
	text, err := json.Marshal(vmm)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(m.path(vmm.ID)+newSuffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err = file.Write(text); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// saveBatch is how many VMMs are written at once when all are inspected: two fsyncs
// each would take an agent minutes when it adopts 10,000.
const saveBatch = 1024

// batch has VMMs with a new state, in order.
type batch struct{ vmms []VMM }

// saveAllLocked writes the collected VMMs, with two waits for the disk in all, and
// reports them. The lock is held since the collecting began, so that a state which is
// not on disk is not visible.
func (m *Table) saveAllLocked() {
	vmms := m.saving.vmms
	m.saving = nil
	if len(vmms) == 0 {
		return
	}
	if err := m.saveAll(vmms); err != nil {
		// They are visible all the same: after a restart they are observed again.
		m.cfg.Logger.Error("the states of VMMs are not on disk", "vmms", len(vmms), "error", err)
	}
	for _, vmm := range vmms {
		m.notifyLocked(vmm)
	}
}

func (m *Table) saveAll(vmms []VMM) error {
	for _, vmm := range vmms {
		file, err := m.writeNew(vmm)
		if err != nil {
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	folder, err := os.Open(m.cfg.Folder)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := unix.Syncfs(int(folder.Fd())); err != nil {
		return fmt.Errorf("vminfo: syncfs %s: %w", m.cfg.Folder, err)
	}
	for _, vmm := range vmms {
		path := m.path(vmm.ID)
		// A VMM that changed twice was renamed with its last state.
		if err := os.Rename(path+newSuffix, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return folder.Sync()
}

// Recorded records that the log has a VMM's state of generation gen. A VMM that ended
// in that state is removed. An older generation, or one that this node never gave,
// changes nothing.
func (m *Table) Recorded(id log.UUID, gen uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.vmms[id]
	if held == nil || gen <= held.Recorded || gen > held.Gen {
		return nil
	}
	if held.Final() && gen == held.Gen {
		if err := os.Remove(m.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("vminfo: VMM %s: %w", id, err)
		}
		delete(m.vmms, id)
		delete(m.unrecorded, id)
		return nil
	}
	recorded := *held
	recorded.Recorded = gen
	// It is written with the next state: after a restart the log reports it again.
	m.holdLocked(&recorded)
	return nil
}

// Unrecorded returns the VMMs whose state the log may not have, by id.
func (m *Table) Unrecorded() []VMM {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]VMM, 0, len(m.unrecorded))
	for id := range m.unrecorded {
		list = append(list, *m.vmms[id])
	}
	slices.SortFunc(list, func(a, b VMM) int { return vmstore.CompareUUID(a.ID, b.ID) })
	return list
}

// RingAll rings for each VMM whose state the log may not have: after a start,
// and after each new connection to a server.
func (m *Table) RingAll() {
	for _, vmm := range m.Unrecorded() {
		if m.cfg.Ring != nil {
			m.cfg.Ring(vmm.ID)
		}
	}
}
