package vmrun

import (
	"bytes"
	"crypto/sha256"
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

// Digest identifies the text of a manifest.
type Digest [sha256.Size]byte

// Edit writes the manifest of a VM as change makes it from the current one. It does not
// restore a VM that is removed meanwhile. Nothing that other programs write meanwhile
// is lost: change is then called again. The limits also change for a running VM.
// Errors: ErrNoVM, ErrBusyManifest.
func (r *Runner) Edit(id log.UUID, change func(vmdoc.Value) vmdoc.Value) error {
	return r.EditBy(id, change, func(before Digest, after vmdoc.Value) (bool, error) { return r.Exchange(id, before, after) })
}

// EditBy is Edit with another Exchange: that of a process which may write manifests, while
// this one reads them only.
func (r *Runner) EditBy(id log.UUID, change func(vmdoc.Value) vmdoc.Value, exchange func(before Digest, after vmdoc.Value) (done bool, err error)) error {
	for range maxEdits {
		text, m, err := r.read(id)
		if err != nil {
			return err
		}
		if done, err := exchange(sha256.Sum256(text), change(m.Value)); err != nil || done {
			return err
		}
	}
	return fmt.Errorf("%w: VM %s", ErrBusyManifest, id)
}

// Exchange writes the manifest of a VM if the present one has the digest before; otherwise
// done is false. It exchanges the manifest for the new one in one step, reads the old one,
// and exchanges them back if it was another. The limits also change for a running VM.
// Error: ErrNoVM.
func (r *Runner) Exchange(id log.UUID, before Digest, after vmdoc.Value) (done bool, err error) {
	old, m, err := r.read(id)
	if err != nil || sha256.Sum256(old) != before {
		return false, err
	}
	if after.Equal(m.Value) {
		return true, r.limitAnew(id)
	}
	text := append(after.AppendJSON(nil), '\n')
	next, err := system.ParseManifest(text)
	if err == nil && next.UUID != id {
		err = fmt.Errorf("it is that of VM %s", next.UUID)
	}
	if err != nil || len(text) > system.MaxManifest {
		return false, fmt.Errorf("vminfo: VM %s: what its manifest should become cannot be one (%d bytes): %w", id, len(text), err)
	}
	if done, err = r.exchange(id, old, text); err != nil || !done {
		return false, err
	}
	return true, r.limitAnew(id)
}

// read reads the manifest of a VM.
func (r *Runner) read(id log.UUID) (text []byte, m system.Manifest, err error) {
	name := r.manifestOf(id)
	text, _, err = system.ReadManifest(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, m, fmt.Errorf("%w: %s", ErrNoVM, id)
	}
	if err != nil {
		return nil, m, fmt.Errorf("vminfo: VM %s: %w", id, err)
	}
	if m, err = system.ParseManifest(text); err != nil {
		return nil, m, fmt.Errorf("vminfo: %s: %w", name, err)
	}
	return text, m, nil
}

// exchange exchanges the manifest of a VM, of which old is the text, for another.
func (r *Runner) exchange(id log.UUID, old, text []byte) (done bool, err error) {
	name := r.manifestOf(id)
	temp, err := os.CreateTemp(r.cfg.Manifests, ".new-*")
	if err != nil {
		return false, fmt.Errorf("vminfo: manifests: %w", err)
	}
	defer func() { _ = os.Remove(temp.Name()) }() // its last content is not needed
	_, err = temp.Write(text)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return false, fmt.Errorf("vminfo: manifest: %w", err)
	}
	swap := func() error {
		return unix.Renameat2(unix.AT_FDCWD, temp.Name(), unix.AT_FDCWD, name, unix.RENAME_EXCHANGE)
	}
	if err := swap(); errors.Is(err, unix.ENOENT) {
		return false, fmt.Errorf("%w: %s", ErrNoVM, id)
	} else if err != nil {
		return false, fmt.Errorf("vminfo: manifest: %w", err)
	}
	if out, err := os.ReadFile(temp.Name()); err == nil && !bytes.Equal(out, old) {
		if err := swap(); err != nil {
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
