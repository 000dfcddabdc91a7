package disk

import (
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// sector is what a disk writes whole or not at all, in bytes.
const sector = 512

// inode is a file that is open, or of which something is not synced.
type inode struct {
	ino     uint64
	file    *os.File // of its own, so that it does not depend on names
	holders int
	undo    []written // writes that were not synced, oldest first
}

// written is what stood where a write went.
type written struct {
	at     int64
	old    []byte // zeros beyond the end
	size   int64  // of the file
	blocks int64  // that the file took, in bytes
}

// change is a change of names or sizes that was not synced.
type change struct {
	dirs []string // whose names it changed, without the folder's own path, as all paths here
	ino  uint64   // whose size or first name it is
	held *inode
	kept string // a second name of the file that it replaced or removed; "" if there is none
	undo func(s side) error
}

func (c *change) in(dir string) bool { return slices.Contains(c.dirs, dir) }

// side is where changes are taken back: in the folder, or in a copy of it.
type side struct {
	base  string
	files map[uint64]*os.File // of the copy; nil: those of the inodes
}

func (s side) path(rel string) string { return filepath.Join(s.base, rel) }

// file returns the file of an inode; nil if the copy has none, since it has no name any more.
func (s side) file(i *inode) *os.File {
	if s.files == nil {
		return i.file
	}
	return s.files[i.ino]
}

// rel returns a path without that of the folder.
func (f *faults) rel(path string) string { return strings.TrimPrefix(path, f.backing) }

// hold returns the inode of a path, until release; nil if it cannot be opened.
func (f *faults) hold(path string) *inode {
	opened, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	info, err := opened.Stat()
	if err != nil {
		opened.Close()
		return nil
	}
	ino := info.Sys().(*syscall.Stat_t).Ino
	i := f.inodes[ino]
	if i == nil {
		i = &inode{ino: ino, file: opened}
		f.inodes[ino] = i
	} else {
		opened.Close()
	}
	i.holders++
	return i
}

// release ends a hold.
func (f *faults) release(i *inode) {
	if i == nil {
		return
	}
	i.holders--
	f.drop(i)
}

// drop forgets an inode without holders, of which everything is synced.
func (f *faults) drop(i *inode) {
	if i.holders == 0 && len(i.undo) == 0 && f.inodes[i.ino] == i {
		delete(f.inodes, i.ino)
		i.file.Close()
	}
}

// before returns what stands where n bytes are about to be written.
func (i *inode) before(at int64, n int) written {
	stat := i.stat()
	w := written{at: at, old: make([]byte, n), size: stat.Size, blocks: stat.Blocks * 512}
	if at < w.size {
		_, _ = i.file.ReadAt(w.old, at)
	}
	return w
}

func (i *inode) stat() syscall.Stat_t { return statOf(i.file) }

func (i *inode) size() int64 { return i.stat().Size }

func sizeOf(file *os.File) int64 { return statOf(file).Size }

func statOf(file *os.File) (stat syscall.Stat_t) {
	_ = syscall.Fstat(int(file.Fd()), &stat)
	return stat
}

// blocks returns the bytes that the file takes.
func (i *inode) blocks() int64 { return i.stat().Blocks * 512 }

// putBack writes again a part of what stood there.
func (w written) putBack(file *os.File, from, to int) error {
	if from >= to {
		return nil
	}
	_, err := file.WriteAt(w.old[from:to], w.at+int64(from))
	return err
}

// lose takes back what was written to a file and not synced, in secret: the file's times are
// what they were, so that the kernel keeps what it has of it.
func (i *inode) lose() {
	stat := i.stat()
	for _, w := range slices.Backward(i.undo) {
		_ = w.putBack(i.file, 0, len(w.old))
	}
	i.undo = nil
	times := []syscall.Timeval{syscall.NsecToTimeval(stat.Mtim.Nano()), syscall.NsecToTimeval(stat.Mtim.Nano())}
	_ = syscall.Futimes(int(i.file.Fd()), times)
}

// takes counts bytes that a file takes more (or fewer), and reports whether there was room.
func (f *faults) takes(bytes int64) bool {
	if f.room < 0 {
		return true
	}
	if bytes > f.room {
		return false
	}
	f.room -= bytes
	return true
}

// keep gives a file that is about to be replaced or removed a second name, which it returns.
func (f *faults) keep(path string) string {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	if f.room >= 0 {
		f.room += info.Sys().(*syscall.Stat_t).Blocks * 512
	}
	f.kept++
	kept := strconv.Itoa(f.kept)
	if os.MkdirAll(f.backing+aside, 0o700) != nil || os.Link(path, filepath.Join(f.backing+aside, kept)) != nil {
		return ""
	}
	return kept
}

// aside is what is behind a folder's name in that of the folder with what was replaced in it.
const aside = ".unsynced"

// restore gives a file its name again.
func (s side) restore(kept, rel string) error {
	if kept == "" {
		return nil
	}
	return os.Rename(filepath.Join(s.base+aside, kept), s.path(rel))
}

// note adds a change to the journal.
func (f *faults) note(c *change) { f.journal = append(f.journal, c) }

// commit keeps everything up to the last change that a sync is for.
func (f *faults) commit(synced func(*change) bool) {
	for i, c := range slices.Backward(f.journal) {
		if synced(c) {
			f.settle(f.journal[:i+1])
			f.journal = slices.Delete(f.journal, 0, i+1)
			return
		}
	}
}

// settle forgets how changes are taken back.
func (f *faults) settle(changes []*change) {
	for _, c := range changes {
		if c.kept != "" {
			_ = os.Remove(filepath.Join(f.backing+aside, c.kept))
		}
		f.release(c.held)
	}
}

// forget lets everything be as if it were synced.
func (f *faults) forget() {
	f.settle(f.journal)
	f.journal = nil
	for _, i := range f.inodes {
		i.undo = nil
		f.drop(i)
	}
	clear(f.renamed)
	_ = os.RemoveAll(f.backing + aside)
}

// powerCut takes back some of what was not synced, there.
func (f *faults) powerCut(seed uint64, there side) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	inodes := make([]uint64, 0, len(f.inodes))
	for ino := range f.inodes {
		inodes = append(inodes, ino)
	}
	slices.Sort(inodes)
	for _, ino := range inodes {
		i := f.inodes[ino]
		if file := there.file(i); file != nil {
			if err := i.tear(file, rng); err != nil {
				return err
			}
		}
	}
	keep := rng.IntN(len(f.journal) + 1)
	for _, c := range slices.Backward(f.journal[keep:]) {
		if err := c.undo(there); err != nil {
			return err
		}
	}
	return nil
}

// tear takes back each write not at all, whole, in arbitrary sectors, or from a sector on.
func (i *inode) tear(file *os.File, rng *rand.Rand) error {
	for _, w := range slices.Backward(i.undo) {
		var err error
		switch rng.IntN(4) {
		case 0, 1:
			err = w.putBack(file, 0, len(w.old))
			if size := sizeOf(file); err == nil && rng.IntN(2) == 0 && size == w.at+int64(len(w.old)) && w.size < size {
				err = file.Truncate(w.size)
			}
		case 2:
			arbitrary, cut := rng.IntN(2) == 0, rng.Int64N(int64(len(w.old))+1)
			for from := 0; from < len(w.old) && err == nil; {
				to := min(len(w.old), from+sector-int((w.at+int64(from))%sector))
				if arbitrary && rng.IntN(2) == 0 || !arbitrary && int64(from) >= cut {
					err = w.putBack(file, from, to)
				}
				from = to
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// flip flips bits of files that have any, each file as likely as another.
func (f *faults) flip(seed uint64, bits int) error {
	var paths []string
	err := filepath.WalkDir(f.backing, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = entry.Info(); err == nil && info.Size() > 0 {
				paths = append(paths, path)
			}
		}
		return err
	})
	if err != nil || len(paths) == 0 {
		return err
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	for range bits {
		if err := flipIn(paths[rng.IntN(len(paths))], rng); err != nil {
			return err
		}
	}
	return nil
}

func flipIn(path string, rng *rand.Rand) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	at, b := rng.Int64N(info.Size()), []byte{0}
	if _, err := file.ReadAt(b, at); err != nil && err != io.EOF {
		return err
	}
	b[0] ^= 1 << rng.IntN(8)
	_, err = file.WriteAt(b, at)
	return err
}
