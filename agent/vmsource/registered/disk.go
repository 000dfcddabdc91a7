package registered

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vmsource"
	"rutter/log"
)

const (
	fileSuffix    = ".json"
	damagedSuffix = ".damaged"
)

// load reads the folder. A file that is no record is moved aside and named in the status;
// its NICs stay in the log until an operator decides.
func (s *Source) load() error {
	if err := os.MkdirAll(s.cfg.Folder, 0o700); err != nil {
		return fmt.Errorf("registered: %s: %w", s.cfg.Name, err)
	}
	files, err := os.ReadDir(s.cfg.Folder)
	if err != nil {
		return fmt.Errorf("registered: %s: %w", s.cfg.Name, err)
	}
	for _, file := range files {
		name := file.Name()
		switch {
		case strings.HasSuffix(name, damagedSuffix):
			s.damaged(strings.TrimSuffix(name, damagedSuffix), errors.New("it was found damaged before; its NICs stay in the log: register the VM anew, or remove the file"))
		case strings.HasPrefix(name, "."):
			_ = os.Remove(filepath.Join(s.cfg.Folder, name)) // of a write that did not end
		case strings.HasSuffix(name, fileSuffix):
			if err := s.loadFile(name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Source) loadFile(name string) error {
	path := filepath.Join(s.cfg.Folder, name)
	info, err := os.Stat(path)
	var text []byte
	switch {
	case err != nil:
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		err = fmt.Errorf("%w: it is no file of at most %d bytes", errDamaged, maxFile)
	default:
		text, err = os.ReadFile(path)
	}
	if err != nil && !errors.Is(err, errDamaged) {
		return fmt.Errorf("registered: %s: %w", s.cfg.Name, err)
	}
	var r *record
	if err == nil {
		r, err = decodeRecord(text)
	}
	if err == nil && name != r.UUID.String()+fileSuffix {
		err = fmt.Errorf("%w: it is about VM %s", errDamaged, r.UUID)
	}
	if err == nil && len(s.vms) >= MaxVMs {
		err = fmt.Errorf("%w: there are %d VMs already", errDamaged, MaxVMs)
	}
	if err != nil {
		s.damaged(name, err)
		s.cfg.Logger.Error("a registration is damaged and put aside: its NICs stay in the log", "source", s.cfg.Name, "file", path+damagedSuffix, "error", err)
		if err := os.Rename(path, path+damagedSuffix); err != nil {
			return fmt.Errorf("registered: %s: %w", s.cfg.Name, err)
		}
		return nil
	}
	s.vms[r.UUID] = newEntry(r)
	return nil
}

// damaged names a file in the status. One whose name is not that of a VM, or that the status
// has no place for, may be about each VM that the log has.
func (s *Source) damaged(name string, cause error) {
	id, err := log.ParseUUID(strings.TrimSuffix(name, fileSuffix))
	if err != nil || len(s.bad) >= maxAside {
		s.nameless = true
	}
	if len(s.bad) >= maxAside {
		return
	}
	s.bad = append(s.bad, vmsource.Aside{Name: name, UUID: id, Reason: cause.Error(), Since: time.Now().UTC()})
}

// saveFile is Source.save.
func (s *Source) saveFile(r *record) error {
	text, err := r.encode()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(s.cfg.Folder, ".new-*")
	if err != nil {
		return fmt.Errorf("registered: VM %s is not on disk: %w", r.UUID, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // it was renamed, unless something failed
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), s.path(r.UUID))
	}
	if err == nil {
		err = syncFolder(s.cfg.Folder)
	}
	if err != nil {
		return fmt.Errorf("registered: VM %s is not on disk: %w", r.UUID, err)
	}
	return nil
}

// remove removes a record's file.
func (s *Source) remove(id log.UUID) error {
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("registered: VM %s: %w", id, err)
	}
	return syncFolder(s.cfg.Folder)
}

func (s *Source) path(id log.UUID) string {
	return filepath.Join(s.cfg.Folder, id.String()+fileSuffix)
}

func syncFolder(name string) error {
	folder, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("registered: %w", err)
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// diskFailed is the error of a registration that is not on disk: of a disk that has no room,
// or takes no writes, with what to do.
func diskFailed(folder string, err error) *Error {
	for cause, text := range map[error]string{
		unix.ENOSPC: "the disk is full", unix.EDQUOT: "the quota of the disk is used up", unix.EROFS: "the disk takes no writes (it may be mounted read-only because of a fault)",
	} {
		if errors.Is(err, cause) {
			return failed(CodeDisk, "%v: %s at %s: make room there (df %[3]s), and repeat it; what was registered before stays, and its VMs run on", err, text, folder)
		}
	}
	return failed(CodeInternal, "%v", err)
}

// mendedLocked removes a damaged file of a VM that was registered anew.
func (s *Source) mendedLocked(id log.UUID) {
	s.bad = slices.DeleteFunc(s.bad, func(a vmsource.Aside) bool {
		return a.Name == id.String()+fileSuffix && os.Remove(s.path(id)+damagedSuffix) == nil
	})
}
