package vmrun

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// maxEdits bounds the attempts of an edit while other programs write too.
const maxEdits = 8

// ErrBusyManifest: other programs wrote the manifest during each attempt.
var ErrBusyManifest = errors.New("vminfo: the manifest changes all the time")

// Edit writes the manifest of a VM as change makes it from the current one. It does not
// restore a VM that is removed meanwhile. Nothing that other programs write meanwhile
// is lost: change is then called again. The limits also change for a running VM.
// Errors: ErrNoVM, ErrBusyManifest.
func (r *Runner) Edit(id log.UUID, change func(vmdoc.Value) vmdoc.Value) error {
	for range maxEdits {
		done, err := r.edit(id, change)
		if err != nil {
			return err
		}
		if done {
			return r.limitAnew(id)
		}
	}
	return fmt.Errorf("%w: VM %s", ErrBusyManifest, id)
}

// edit exchanges the manifest for another in one step, reads the old one, and exchanges
// them back if the other was made from a different version.
func (r *Runner) edit(id log.UUID, change func(vmdoc.Value) vmdoc.Value) (done bool, err error) {
	name := r.manifestOf(id)
	before, _, err := system.ReadManifest(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("%w: %s", ErrNoVM, id)
	}
	if err != nil {
		return false, fmt.Errorf("vminfo: VM %s: %w", id, err)
	}
	m, err := system.ParseManifest(before)
	if err != nil {
		return false, fmt.Errorf("vminfo: %s: %w", name, err)
	}
	after := change(m.Value)
	if after.Equal(m.Value) {
		return true, nil
	}
	text := append(after.AppendJSON(nil), '\n')
	if _, err := system.ParseManifest(text); err != nil || len(text) > system.MaxManifest {
		return false, fmt.Errorf("vminfo: VM %s: what its manifest should become cannot be one (%d bytes): %w", id, len(text), err)
	}
	temp, err := os.CreateTemp(r.cfg.Manifests, ".new-*")
	if err != nil {
		return false, fmt.Errorf("vminfo: manifests: %w", err)
	}
	defer func() { _ = os.Remove(temp.Name()) }() // its last content is not needed
	_, err = temp.Write(text)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return false, fmt.Errorf("vminfo: manifest: %w", err)
	}
	exchange := func() error {
		return unix.Renameat2(unix.AT_FDCWD, temp.Name(), unix.AT_FDCWD, name, unix.RENAME_EXCHANGE)
	}
	if err := exchange(); errors.Is(err, unix.ENOENT) {
		return false, fmt.Errorf("%w: %s", ErrNoVM, id)
	} else if err != nil {
		return false, fmt.Errorf("vminfo: manifest: %w", err)
	}
	if out, err := os.ReadFile(temp.Name()); err == nil && !bytes.Equal(out, before) {
		if err := exchange(); err != nil {
			return false, fmt.Errorf("vminfo: manifest: %w", err)
		}
		return false, nil
	}
	return true, system.SyncFolder(r.cfg.Manifests)
}

// Stamp identifies the version of a VM's manifest; "" if there is none.
func (r *Runner) Stamp(id log.UUID) string {
	var s unix.Stat_t
	if unix.Stat(r.manifestOf(id), &s) != nil {
		return ""
	}
	return fmt.Sprint(s.Ino, s.Size, s.Mtim, s.Ctim)
}

// limitAnew sets the limit of a VM that has a cgroup from its manifest.
func (r *Runner) limitAnew(id log.UUID) error {
	m, err := r.load(id)
	if errors.Is(err, ErrNoVM) {
		return nil // it was removed meanwhile
	}
	if err != nil || !system.Exists(r.finder.CgroupOf(id)) {
		return err
	}
	return r.limit(m)
}
