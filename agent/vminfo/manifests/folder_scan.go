package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"rutter/agent/vminfo/system"
	"rutter/agent/vmsource"
)

// scan is a full inspection, in slices between events. A difference that it finds was
// missed by the events.
type scan struct {
	began  time.Time
	names  []string // manifests still to be inspected
	missed []vmsource.Missed
}

// beginScan begins a scan that is due or was requested.
func (f *Folder) beginScan(now time.Time) {
	if f.scan != nil || !f.loaded || !f.scanning.Load() && f.nextScan.After(now) {
		return
	}
	f.scanning.Store(false)
	f.nextScan = now.Add(f.cfg.ScanEvery)
	if f.roots[rootManifests].wd < 0 {
		f.fail(fmt.Errorf("vminfo: no scan: %s", f.roots[rootManifests].cause))
		return
	}
	names, err := listManifests(f.cfg.Manifests)
	if err != nil {
		f.fail(fmt.Errorf("vminfo: no scan: %w", err))
		return
	}
	if f.cameBackEmpty && len(names) == 0 {
		return // the error stays until the folder has files again
	}
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
	}
	for name := range f.byFile {
		if !there[name] {
			names = append(names, name)
		}
	}
	f.scan = &scan{began: now, names: names}
}

// scanOn inspects the next slice.
func (f *Folder) scanOn(now time.Time) {
	s := f.scan
	for range min(scanSlice, len(s.names)) {
		f.scanFile(s.names[len(s.names)-1], now)
		if !f.mounts.IsZero() {
			return // this one again, after the namespaces were inspected
		}
		s.names = s.names[:len(s.names)-1]
	}
	if len(s.names) > 0 {
		return
	}
	f.scan = nil
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.Scans++
	f.status.LastScan = now.UTC()
	if len(s.missed) > 0 {
		f.status.Missed += len(s.missed)
		f.status.Log = vmsource.KeepLast(f.status.Log, vmsource.Refresh{Date: now.UTC(), Took: vmsource.PrettySeconds(now.Sub(s.began)), VMChanges: s.missed})
		f.cfg.Logger.Warn("a scan found changes without events", "changes", len(s.missed), "first", s.missed[0].Zonename)
	}
}

func (f *Folder) recordMissed(m vmsource.Missed) {
	if len(f.scan.missed) < vmsource.MaxMissed {
		f.scan.missed = append(f.scan.missed, m)
	}
}

// scanFile compares one manifest and its VM with what was reported. A change whose
// event is waiting is left to that event.
func (f *Folder) scanFile(name string, now time.Time) {
	text, modified, err := system.ReadManifest(filepath.Join(f.cfg.Manifests, name))
	gone := errors.Is(err, fs.ErrNotExist)
	var m system.Manifest
	if err == nil {
		m, err = system.ParseManifest(text)
	}
	if f.noteFile(name) {
		return
	}
	vm := f.byFile[name]
	switch {
	case gone && vm != nil:
		// Checked again, after the waiting events.
		if f.roots[rootManifests].wd < 0 || system.Exists(filepath.Join(f.cfg.Manifests, name)) {
			return
		}
		f.recordMissed(vmsource.Missed{Zonename: vm.zone, Action: "delete"})
		f.forget(name, now)
		return
	case err != nil || vm == nil || vm.uuid != m.UUID:
		if vm == nil && err == nil && f.byUUID[m.UUID] == nil {
			f.recordMissed(vmsource.Missed{Zonename: m.Zone, Action: "create"})
		}
		f.readFile(name, now)
		return
	}
	unheard := string(m.Value.AppendJSON(nil)) != string(vm.text)
	if unheard {
		f.adopt(name, m, modified, now)
		delete(f.dirty, vm)
	}
	body, hash := f.observe(vm)
	if hash == vm.body || !unheard && f.noteFile(name) {
		return
	}
	if changes, changed := f.publish(vm, body, hash, now); changed {
		f.recordMissed(vmsource.Missed{Zonename: vm.zone, Action: "modify", Changes: changes})
	}
}

// noteFile takes the waiting events, and reports whether one of them, or something that
// is due later, is about this manifest or its VM.
func (f *Folder) noteFile(name string) bool {
	if err := f.listen(0); err != nil {
		f.fail(err)
	}
	_, reading := f.files[name]
	vm := f.byFile[name]
	return reading || !f.mounts.IsZero() || vm != nil && f.dirty[vm]
}
