package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vmsource"
	"rutter/log"
)

// readFile reads a manifest that may have changed.
func (f *Folder) readFile(name string, now time.Time) {
	delete(f.files, name)
	if f.roots[rootManifests].wd < 0 {
		return // the content of a missing folder is unknown
	}
	text, modified, err := system.ReadManifest(filepath.Join(f.cfg.Manifests, name))
	if errors.Is(err, fs.ErrNotExist) {
		f.forget(name, now)
		return
	}
	var m system.Manifest
	if err == nil {
		m, err = system.ParseManifest(text)
	}
	if err != nil {
		f.putAside(name, f.identify(name), false, err.Error())
		return
	}
	f.closeManifest(name)
	if other := f.byUUID[m.UUID]; other != nil && other.file != name {
		if name != m.UUID.String()+".json" {
			f.putAside(name, m.UUID, true, fmt.Sprintf("VM %s has a manifest already: %s", m.UUID, other.file))
			return
		}
		f.replace(other, name)
	}
	if other := f.byZone[m.Zone]; other != nil && other.uuid != m.UUID {
		f.putAside(name, m.UUID, true, fmt.Sprintf("the zonename %s is that of VM %s", m.Zone, other.uuid))
		return
	}
	f.takeBack(name)
	f.adopt(name, m, modified, now)
}

// replace gives a VM the manifest that has its name. Which of two is read first is
// chance, and the other one may be the new form of another VM's manifest.
func (f *Folder) replace(vm *vmRecord, name string) {
	old := vm.file
	delete(f.byFile, old)
	vm.file, f.byFile[name] = name, vm
	f.putAside(old, vm.uuid, true, fmt.Sprintf("VM %s has a manifest already: %s", vm.uuid, name))
}

// adopt uses a valid manifest for a VM.
func (f *Folder) adopt(name string, m system.Manifest, modified, now time.Time) {
	if before := f.byFile[name]; before != nil && before.uuid != m.UUID {
		f.forget(name, now)
	}
	vm := f.byUUID[m.UUID]
	if vm == nil {
		if len(f.byUUID) >= maxManifests {
			f.putAside(name, m.UUID, true, fmt.Sprintf("there are %d VMs already, no more are watched", maxManifests))
			return
		}
		vm = &vmRecord{uuid: m.UUID, file: name, zone: m.Zone, modified: modified, pidfd: -1, endedFD: -1, nsid: -1, cgroup: -1}
		f.loadExit(vm)
		f.byUUID[m.UUID], f.byFile[name], f.byZone[m.Zone] = vm, vm, vm
	}
	if vm.zone != m.Zone {
		delete(f.byZone, vm.zone)
		vm.zone, f.byZone[m.Zone] = m.Zone, vm
	}
	vm.text, vm.fresh, vm.nics = bytes.Clone(m.Value.AppendJSON(f.scratch[:0])), m.Value, m.Nics
	vm.hardware = m.Value.Hardware()
	f.mark(vm)
}

// forget: the manifest is gone, so the VM is gone.
func (f *Folder) forget(name string, now time.Time) {
	f.takeBack(name)
	vm := f.byFile[name]
	if vm == nil {
		return
	}
	f.dropProcess(vm)
	f.forgetExit(vm)
	f.dropNamespace(vm)
	if vm.cgroup >= 0 {
		_, _ = unix.InotifyRmWatch(f.poll.notify, uint32(vm.cgroup)) // it may have ended by itself
		delete(f.byCgroup, vm.cgroup)
	}
	delete(f.byFile, name)
	delete(f.byUUID, vm.uuid)
	delete(f.byZone, vm.zone)
	delete(f.dirty, vm)
	delete(f.awaiting, vm)
	f.sink.Delete(vm.uuid)
	for other, a := range f.aside { // manifests that conflicted with this one
		if a.duplicate {
			f.files[other] = now
		}
	}
}

// identify returns the VM of a manifest that cannot be read: the VM of its earlier
// content, or the VM in its name.
func (f *Folder) identify(name string) log.UUID {
	if vm := f.byFile[name]; vm != nil {
		return vm.uuid
	}
	id, _ := log.ParseUUID(strings.TrimSuffix(name, ".json")) // zero: it may be about any VM
	return id
}

func (f *Folder) putAside(name string, id log.UUID, duplicate bool, reason string) {
	known, ok := f.aside[name]
	if ok && known.Reason == reason {
		return
	}
	if !ok && len(f.aside) >= vmsource.MaxAside {
		f.unidentified = true
		return
	}
	f.aside[name] = asideFile{vmsource.Aside{Name: name, UUID: id, Reason: reason, Since: time.Now().UTC()}, duplicate}
	f.cfg.Logger.Warn("a manifest is put aside", "manifest", name, "reason", reason)
	f.reportAside()
}

func (f *Folder) takeBack(name string) {
	if _, ok := f.aside[name]; ok {
		delete(f.aside, name)
		f.reportAside()
	}
}

func (f *Folder) reportAside() {
	list := make([]vmsource.Aside, 0, len(f.aside))
	f.unidentified = len(f.aside) >= vmsource.MaxAside
	for _, a := range f.aside {
		f.unidentified = f.unidentified || a.UUID.IsZero()
	}
	for _, name := range slices.Sorted(maps.Keys(f.aside)) {
		list = append(list, f.aside[name].Aside)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.Aside = list
}

// inspect reads the running state of a VM, and reports changes.
func (f *Folder) inspect(vm *vmRecord, now time.Time) {
	body, hash := f.observe(vm)
	if hash != vm.body {
		f.publish(vm, body, hash, now)
	}
}

// observe composes the text of a VM as it is now, without last_modified, and its hash
// for comparing. The text is valid until the next call.
func (f *Folder) observe(vm *vmRecord) (body []byte, hash uint64) {
	facts := f.gather(vm)
	value := vm.fresh
	vm.fresh = vmdoc.Value{}
	if value.IsNull() {
		var err error
		if value, err = vmdoc.ParseValue(vm.text); err != nil {
			panic("vminfo: a manifest that was parsed is not JSON")
		}
	}
	body = compose(system.Manifest{Value: value, UUID: vm.uuid, Zone: vm.zone, Nics: vm.nics}, facts).AppendJSON(f.scratch[:0])
	f.scratch = body[:0]
	return body, maphash.Bytes(f.seed, body) | 1 // 0 means nothing
}

// publish puts a VM into the sink, and returns what changed.
func (f *Folder) publish(vm *vmRecord, body []byte, hash uint64, now time.Time) ([]vmdoc.Change, bool) {
	if vm.body != 0 {
		vm.modified = now
	}
	text := make([]byte, 0, len(body)+len(vmdoc.LastModified)+len(vmdoc.DateFormat)+6)
	text = append(text, body[:len(body)-1]...)
	text = fmt.Appendf(text, `,%q:%q}`, vmdoc.LastModified, vmdoc.FormatDate(vm.modified))
	changes, changed, err := f.sink.Put(vmdoc.VM{UUID: vm.uuid, Zonename: vm.zone, JSON: text})
	if err != nil {
		f.putAside(vm.file, vm.uuid, true, err.Error())
		return nil, false
	}
	if vm.body == 0 {
		f.takeBack(vm.file) // another source let the VM go
	}
	vm.body = hash
	if changed && f.loaded {
		if vm.nextPublish.Before(now) {
			vm.nextPublish = now
		}
		vm.nextPublish = vm.nextPublish.Add(publishEvery)
	}
	return changes, changed
}

// gather reads the running state of a VM, and keeps watching it.
func (f *Folder) gather(vm *vmRecord) observed {
	ns := system.Namespace{Fd: -1}
	if f.roots[rootNetNS].wd >= 0 {
		ns = system.OpenNamespace(f.cfg.NetNS, vm.zone)
	}
	defer ns.Close()
	f.watchCgroup(vm)
	f.watchProcess(vm, ns)
	facts := observed{namespace: ns.Fd >= 0, pid: vm.pid, boot: vm.boot, memory: -1, exit: vm.exit, cn: f.cfg.CN, machine: vm.machine}
	if vm.hardware {
		_, err := system.QEMU()
		facts.qemu = err == nil
	}
	if vm.cgroup >= 0 {
		facts.memory = system.MemoryLimit(f.find.CgroupOf(vm.uuid))
	}
	vm.namespace = ns.Ino
	if ns.Fd < 0 {
		f.dropNamespace(vm)
		if system.Exists(filepath.Join(f.cfg.NetNS, vm.zone)) {
			f.awaiting[vm] = true
		}
		return facts
	}
	if vm.nics && f.net != nil {
		addresses, err := f.addresses(vm, ns)
		if err != nil {
			f.fail(fmt.Errorf("vminfo: VM %s: %w", vm.uuid, err))
		}
		facts.addresses = addresses
	}
	return facts
}

func (f *Folder) addresses(vm *vmRecord, ns system.Namespace) (map[log.MAC][]netip.Prefix, error) {
	// The number is requested each time, because inodes of namespaces are reused.
	nsid, err := f.net.nsid(ns.Fd)
	if err != nil {
		f.dropNamespace(vm)
		return nil, err
	}
	if nsid != vm.nsid || f.byNSID[nsid] != vm {
		f.dropNamespace(vm)
		vm.nsid, f.byNSID[nsid] = nsid, vm
	}
	return f.net.addresses(nsid)
}

func (f *Folder) dropNamespace(vm *vmRecord) {
	if f.byNSID[vm.nsid] == vm {
		delete(f.byNSID, vm.nsid)
	}
	vm.nsid = -1
}

// watchCgroup watches writes in the VM's cgroup. A cgroup that was removed and made
// again is another one, even before the removal is reported.
func (f *Folder) watchCgroup(vm *vmRecord) {
	if f.roots[rootCgroup].wd < 0 {
		return
	}
	if wd, err := unix.InotifyAddWatch(f.poll.notify, f.find.CgroupOf(vm.uuid), cgroupMask); err == nil && vm.cgroup != int32(wd) {
		delete(f.byCgroup, vm.cgroup)
		vm.cgroup = int32(wd)
		f.byCgroup[vm.cgroup] = vm
	}
}

// watchProcess keeps the init process while it runs, or finds it.
func (f *Folder) watchProcess(vm *vmRecord, ns system.Namespace) {
	if vm.pidfd >= 0 && system.Lives(vm.pidfd) {
		return
	}
	if vm.pidfd >= 0 {
		f.ended(vm)
	}
	p, ok := f.find.InitProcess(system.VM{UUID: vm.uuid, Zone: vm.zone, HasCgroup: vm.cgroup >= 0, Machined: f.roots[rootMachines].wd >= 0}, ns)
	if !ok {
		return
	}
	if err := f.poll.add(p.Fd, unix.EPOLLIN); err != nil {
		f.fail(fmt.Errorf("vminfo: VM %s: process %d: %w", vm.uuid, p.Pid, err))
		_ = unix.Close(p.Fd)
		return
	}
	if vm.exit.at != (time.Time{}) {
		f.forgetExit(vm)
	}
	vm.pid, vm.pidfd, vm.boot = p.Pid, p.Fd, p.Boot
	f.byFD[p.Fd] = vm
	f.followMachine(vm)
}

func (f *Folder) dropProcess(vm *vmRecord) {
	if vm.pidfd < 0 {
		return
	}
	if vm.machine != nil {
		vm.machine.close() // nothing waits for the reason of its end
		vm.machine = nil
	}
	delete(f.byFD, vm.pidfd)
	_ = unix.Close(vm.pidfd) // this also removes it from epoll
	vm.pid, vm.pidfd, vm.boot = 0, -1, time.Time{}
}
