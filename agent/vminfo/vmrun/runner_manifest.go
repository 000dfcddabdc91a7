package vmrun

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// ErrExists: there is a manifest of that VM already.
var ErrExists = errors.New("vminfo: the VM has a manifest already")

// createTimestamp is the field of a manifest with the time at which the VM was made.
const createTimestamp = "create_timestamp"

func (r *Runner) manifestOf(id log.UUID) string {
	return filepath.Join(r.cfg.Manifests, id.String()+".json")
}

// Manifest returns the manifest of a VM. Error: ErrNoVM.
func (r *Runner) Manifest(id log.UUID) (vmdoc.Value, error) {
	m, err := r.load(id)
	return m.Value, err
}

// Create writes the manifest of a new VM atomically, with the time as its
// create_timestamp unless it has one, and makes the folder of manifests if it does not
// exist: modes 0600 and 0700, because metadata has passwords. Error: ErrExists.
func (r *Runner) Create(v vmdoc.Value) error {
	if err := os.MkdirAll(r.cfg.Manifests, 0o700); err != nil {
		return fmt.Errorf("vminfo: manifests: %w", err)
	}
	if v.Text(createTimestamp) == "" && v.IsObject() {
		v = v.With(createTimestamp, vmdoc.StringValue(vmdoc.FormatDate(time.Now())))
	}
	return r.write(v, unix.RENAME_NOREPLACE)
}

// Made reports whether a manifest is what Create makes of v.
func Made(manifest, v vmdoc.Value) bool {
	if v.Text(createTimestamp) == "" {
		manifest = manifest.Without(createTimestamp)
	}
	return manifest.Equal(v)
}

// Replace writes the manifest of a VM again. The memory limit also changes for a
// running VM.
func (r *Runner) Replace(v vmdoc.Value) error {
	if err := r.write(v, 0); err != nil {
		return err
	}
	m, err := system.ParseManifest(v.AppendJSON(nil))
	if err != nil {
		return err
	}
	if !system.Exists(r.finder.CgroupOf(m.UUID)) {
		return nil
	}
	return r.limit(m)
}

// Remove removes the manifest of a VM that does not run, after a running Stop has
// finished. Error: ErrNoVM.
func (r *Runner) Remove(ctx context.Context, id log.UUID) error {
	unlock, err := r.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	err = os.Remove(r.manifestOf(id))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNoVM, id)
	}
	return err
}

// write renames a manifest into its folder, so that it is never read half-written.
func (r *Runner) write(v vmdoc.Value, flags uint) error {
	text := v.AppendJSON(nil)
	m, err := system.ParseManifest(text)
	if err != nil {
		return err
	}
	if len(text) > system.MaxManifest {
		return fmt.Errorf("vminfo: a manifest of %d bytes, it may have %d", len(text), system.MaxManifest)
	}
	temp, err := os.CreateTemp(r.cfg.Manifests, ".new-*")
	if err != nil {
		return fmt.Errorf("vminfo: manifests: %w", err)
	}
	defer func() { _ = os.Remove(temp.Name()) }() // it was renamed, unless something failed
	_, err = temp.Write(append(text, '\n'))
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return fmt.Errorf("vminfo: manifest: %w", err)
	}
	err = unix.Renameat2(unix.AT_FDCWD, temp.Name(), unix.AT_FDCWD, r.manifestOf(m.UUID), flags)
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: %s", ErrExists, r.manifestOf(m.UUID))
	}
	if err != nil {
		return fmt.Errorf("vminfo: manifest: %w", err)
	}
	return system.SyncFolder(r.cfg.Manifests)
}
