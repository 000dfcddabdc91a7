package manifests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
	"rutter/log"
)

// rootMask is the set of events in a watched folder. A file that is written is read
// when it is closed, not when it appears.
const rootMask = unix.IN_CLOSE_WRITE | unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// cgroupMask is the same for a VM's cgroup: writes, and the end.
const cgroupMask = unix.IN_MODIFY | unix.IN_ONLYDIR

// lostMask means that a watched folder was moved or removed.
const lostMask = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT | unix.IN_IGNORED

// listen waits for at most timeout, and marks what may have changed.
func (f *Folder) listen(timeout time.Duration) error {
	events, err := f.poll.wait(max(0, timeout))
	if err != nil {
		return err
	}
	for _, event := range events {
		switch fd := int(event.Fd); {
		case fd == f.poll.alarm:
			f.poll.silence()
		case fd == f.poll.notify:
			err = f.onFiles()
		case fd == f.poll.mounts:
			f.onMounts()
		case f.net != nil && fd == f.net.notifications:
			err = f.onAddresses()
		default:
			f.onProcessEnd(fd)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mark requests an inspection of a VM.
func (f *Folder) mark(vm *vmRecord) {
	if vm == nil {
		return
	}
	merged := f.dirty[vm]
	f.dirty[vm] = true
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.Events++
	if merged {
		f.status.Merged++
	}
}

func (f *Folder) markAll() {
	for _, vm := range f.byUUID {
		f.dirty[vm] = true
	}
}

// onProcessEnd handles the end of a process.
func (f *Folder) onProcessEnd(fd int) {
	if vm := f.byEndedFD[fd]; vm != nil {
		f.reaped(vm)
	} else if vm := f.byFD[fd]; vm != nil {
		f.ended(vm)
		f.mark(vm)
	}
}

// onMounts: a namespace may have been mounted on its file, or unmounted.
func (f *Folder) onMounts() {
	now := time.Now()
	if f.mounts.IsZero() {
		f.mounts = now.Add(mountsEvery)
	}
	for vm := range f.awaiting {
		f.mark(vm)
	}
	clear(f.awaiting)
}

// lookForNamespaces marks the VMs whose namespace has changed.
func (f *Folder) lookForNamespaces() {
	var nsfs, st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &nsfs); err != nil {
		f.fail(fmt.Errorf("vminfo: /proc/self/ns/net: %w", err))
		return
	}
	for _, vm := range f.byUUID {
		space := uint64(0)
		if unix.Stat(filepath.Join(f.cfg.NetNS, vm.zone), &st) == nil && st.Dev == nsfs.Dev {
			space = st.Ino
		}
		if space != vm.namespace {
			f.mark(vm)
		}
	}
}

func (f *Folder) onAddresses() error {
	nsids, all, err := f.net.changed()
	if err != nil {
		return err
	}
	if all {
		f.fail(errors.New("vminfo: more happened to addresses than the kernel could tell: every VM is looked at"))
		f.markAll()
	}
	for nsid := range nsids {
		f.mark(f.byNSID[nsid])
	}
	return nil
}

func (f *Folder) onFiles() error {
	events, err := f.poll.fileEvents()
	if err != nil {
		return err
	}
	for _, event := range events {
		if event.mask&unix.IN_Q_OVERFLOW != 0 {
			f.fail(errors.New("vminfo: more happened to files than inotify could tell: everything is scanned"))
			f.markAll()
			f.scanning.Store(true)
			continue
		}
		if vm := f.byCgroup[event.wd]; vm != nil {
			f.onCgroup(vm, event)
			continue
		}
		for kind := range f.roots {
			if f.roots[kind].wd == event.wd { // several, if one folder serves as both
				f.onRoot(rootKind(kind), event)
			}
		}
	}
	return nil
}

func (f *Folder) onCgroup(vm *vmRecord, event fileEvent) {
	if event.mask&unix.IN_IGNORED != 0 {
		delete(f.byCgroup, event.wd)
		vm.cgroup = -1
		f.mark(vm)
		return
	}
	if system.CgroupFiles[event.name] {
		f.mark(vm)
	}
}

func (f *Folder) onRoot(kind rootKind, event fileEvent) {
	if event.mask&lostMask != 0 {
		f.rootLost(kind, event)
		return
	}
	switch kind {
	case rootManifests:
		f.onManifest(event)
	case rootPIDs:
		if name, ok := strings.CutSuffix(event.name, ".pid"); ok && event.mask&unix.IN_CREATE == 0 {
			f.markUUID(name)
		}
	case rootCgroup:
		f.markUUID(event.name)
	case rootNetNS, rootMachines:
		f.mark(f.byZone[event.name])
	}
}

func (f *Folder) markUUID(text string) {
	if id, err := log.ParseUUID(text); err == nil {
		f.mark(f.byUUID[id])
	}
}

// isManifest reports whether a file of that name is a manifest: files that are being
// written have other names.
func isManifest(name string) bool {
	return strings.HasSuffix(name, ".json") && !strings.HasPrefix(name, ".")
}

func (f *Folder) onManifest(event fileEvent) {
	if !isManifest(event.name) {
		return
	}
	now := time.Now()
	if f.cameBackEmpty {
		f.cameBackEmpty = false
		for name := range f.byFile {
			f.files[name] = now
		}
	}
	switch {
	case event.mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		f.files[event.name] = now.Add(goneAfter)
	case event.mask&unix.IN_CREATE != 0:
		// A new file is read when it is closed; a link is complete at once.
		var st unix.Stat_t
		path := filepath.Join(f.cfg.Manifests, event.name)
		if unix.Lstat(path, &st) == nil && (st.Nlink > 1 || st.Mode&unix.S_IFMT == unix.S_IFLNK) {
			f.files[event.name] = now
		}
	default:
		f.files[event.name] = now
	}
}

// rootLost: a folder was moved or removed. Its known VMs stay.
func (f *Folder) rootLost(kind rootKind, event fileEvent) {
	r := &f.roots[kind]
	if event.mask&unix.IN_IGNORED == 0 {
		_, _ = unix.InotifyRmWatch(f.poll.notify, uint32(event.wd)) // it may have ended by itself
	}
	r.wd, r.cause = -1, r.path+" was moved, unmounted or removed"
	f.fail(fmt.Errorf("vminfo: %s was moved, unmounted or removed; it is looked for each %s", r.path, missingEvery))
	f.missing = time.Now()
	if kind != rootManifests {
		f.markAll()
	}
}

// attachMissing watches the folders that exist by now.
func (f *Folder) attachMissing(now time.Time) {
	f.missing = time.Time{}
	for kind := range f.roots {
		if f.roots[kind].wd < 0 && !f.attach(rootKind(kind), now) {
			f.missing = now.Add(missingEvery)
		}
	}
}

// attach watches a folder, then lists it: what comes in between is seen twice.
func (f *Folder) attach(kind rootKind, now time.Time) bool {
	r := &f.roots[kind]
	wd, err := unix.InotifyAddWatch(f.poll.notify, r.path, rootMask)
	if err != nil {
		r.cause = fmt.Sprintf("%s: %v", r.path, err)
		if kind == rootMachines {
			f.skip("systemd-machined: " + r.cause + ": no machine of its is looked for")
		}
		return false
	}
	back := r.ever
	r.wd, r.ever, r.cause = int32(wd), true, ""
	if kind != rootManifests {
		f.markAll()
		return true
	}
	f.closeFolder()
	names, err := listManifests(r.path)
	if err != nil {
		f.fail(fmt.Errorf("vminfo: %w", err))
		return true // the next scan lists again
	}
	if back && len(names) == 0 && len(f.byFile) > 0 {
		// A file system may have been unmounted: an empty folder does not mean that all
		// VMs were removed.
		f.cameBackEmpty = true
		f.fail(fmt.Errorf("vminfo: %s came back empty: %d VMs are kept; put a manifest into it to say that it is complete", r.path, len(f.byFile)))
		return true
	}
	for _, name := range names {
		f.files[name] = now
	}
	for name := range f.byFile {
		f.files[name] = now // missing ones count as removed
	}
	for name := range f.aside {
		f.files[name] = now
	}
	return true
}

func listManifests(path string) ([]string, error) {
	folder, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	all, err := folder.Readdirnames(-1)
	names := all[:0]
	for _, name := range all {
		if isManifest(name) {
			names = append(names, name)
		}
	}
	return names, err
}
