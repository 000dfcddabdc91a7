package vminfo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"rutter/log"
)

// load reads what the folder keeps. A file that cannot be read is an error: a
// generation that began anew would be ignored by everybody.
func (m *VMMs) load() error {
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
		m.holdLocked(vmm) // nobody else has m yet
	}
	return nil
}

func (m *VMMs) path(id log.UUID) string {
	return filepath.Join(m.cfg.Folder, id.String()+".json")
}

// save writes a VMM's file so that it is whole after a crash, old or new.
func (m *VMMs) save(vmm VMM) error {
	text, err := json.Marshal(vmm)
	if err != nil {
		return err
	}
	temp := m.path(vmm.ID) + ".new"
	file, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, m.path(vmm.ID)); err != nil {
		return err
	}
	return syncFolder(m.cfg.Folder)
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Recorded states that the log has a VMM's state of generation gen. A VMM that
// ended in it is forgotten; an older generation, or one that this node never
// gave, changes nothing.
func (m *VMMs) Recorded(id log.UUID, gen uint64) error {
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
	// It goes to disk with the next state: after a restart the log says it again.
	m.holdLocked(&recorded)
	return nil
}

// Unrecorded returns the VMMs whose state the log may not have, by id.
func (m *VMMs) Unrecorded() []VMM {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]VMM, 0, len(m.unrecorded))
	for id := range m.unrecorded {
		list = append(list, *m.vmms[id])
	}
	slices.SortFunc(list, func(a, b VMM) int { return compareUUID(a.ID, b.ID) })
	return list
}

// RingAll rings for each VMM whose state the log may not have: after a start,
// and after each new connection to a server.
func (m *VMMs) RingAll() {
	for _, vmm := range m.Unrecorded() {
		if m.cfg.Ring != nil {
			m.cfg.Ring(vmm.ID)
		}
	}
}
