package manifests

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
)

// exit is how the last init process of a VM ended.
type exit struct {
	at     time.Time // zero: no end is known
	status int
	known  bool   // status
	reason string // of QEMU's end, by QEMU itself; "": not known
}

// exitFile is the form of UUID.exit beside the manifest: it outlives the agent and the
// machine, as SmartOS's file lastexited does.
type exitFile struct {
	Timestamp time.Time `json:"exit_timestamp"`
	Status    *int      `json:"exit_status,omitempty"`
	Reason    string    `json:"exit_reason,omitempty"`
}

// exitSuffix is that of a VM's exitFile.
const exitSuffix = ".exit"

// maxExitFile bounds the bytes of an exitFile; one has about 70.
const maxExitFile = 4096

func (f *Folder) exitPath(vm *vmRecord) string {
	return filepath.Join(f.cfg.Manifests, vm.uuid.String()+exitSuffix)
}

// loadExit reads how a VM ended before this program ran. A file that cannot be read
// counts as none.
func (f *Folder) loadExit(vm *vmRecord) {
	file, err := os.OpenFile(f.exitPath(vm), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return // a pipe would hold up all VMs
	}
	text := make([]byte, maxExitFile)
	n, _ := file.Read(text) // an empty text is no JSON
	var saved exitFile
	if json.Unmarshal(text[:n], &saved) != nil || saved.Timestamp.IsZero() {
		return
	}
	vm.exit = exit{at: saved.Timestamp, reason: saved.Reason}
	if saved.Status != nil {
		vm.exit.status, vm.exit.known = *saved.Status, true
	}
	// A time to come, of a clock that was wrong, would stay the VM's last change.
	if saved.Timestamp.After(vm.modified) && !saved.Timestamp.After(time.Now()) {
		vm.modified = saved.Timestamp
	}
}

// saveExit writes it. Without permission it is known until this program ends.
func (f *Folder) saveExit(vm *vmRecord) {
	path := f.exitPath(vm)
	saved := exitFile{Timestamp: vm.exit.at.UTC(), Reason: vm.exit.reason}
	if vm.exit.known {
		saved.Status = &vm.exit.status
	}
	text, err := json.Marshal(saved)
	if err == nil {
		err = writeNew(path+".new", text)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		f.skip(fmt.Sprintf("how VMs ended, after a restart: %v", err))
	}
}

// writeNew writes a file that is not there. What is there by that name is removed, and
// not followed: the folder may be open to others (closeFolder).
func writeNew(path string, text []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// forgetExit: the VM runs again, or is gone.
func (f *Folder) forgetExit(vm *vmRecord) {
	f.closeEnded(vm)
	vm.exit = exit{}
	if err := os.Remove(f.exitPath(vm)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.skip(fmt.Sprintf("how VMs ended, after a restart: %v", err))
	}
}

// ended: the init process of a VM has ended. Its status comes when it is reaped.
func (f *Folder) ended(vm *vmRecord) {
	f.closeEnded(vm)
	pid, fd := vm.pid, vm.pidfd
	delete(f.byFD, fd)
	vm.pid, vm.pidfd, vm.boot = 0, -1, time.Time{}
	vm.exit = exit{at: time.Now(), reason: f.machineEnded(vm)}
	status, err := system.ExitStatus(pid, fd)
	if errors.Is(err, system.ErrNotReaped) && f.poll.hangup(fd) == nil {
		vm.endedPID, vm.endedFD, f.byEndedFD[fd] = pid, fd, vm
		return
	}
	_ = unix.Close(fd)
	if err != nil {
		f.skip("exit statuses: " + err.Error())
	}
	vm.exit.status, vm.exit.known = status, err == nil
	f.saveExit(vm)
}

// reaped: the status of a process that has ended can be read.
func (f *Folder) reaped(vm *vmRecord) {
	status, err := system.ExitStatus(vm.endedPID, vm.endedFD)
	f.closeEnded(vm)
	if err != nil {
		f.skip("exit statuses: " + err.Error())
	}
	vm.exit.status, vm.exit.known = status, err == nil
	f.saveExit(vm)
	f.mark(vm)
}

// closeEnded ends the wait for a status.
func (f *Folder) closeEnded(vm *vmRecord) {
	if vm.endedFD >= 0 {
		delete(f.byEndedFD, vm.endedFD)
		_ = unix.Close(vm.endedFD) // this also removes it from epoll
		vm.endedFD = -1
	}
}
