package disk

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// copy lets all later operations that change something fail, and puts what the folder has now
// into another; if the power fails, without some of what was not synced.
func (f *faults) copy(to string, power bool, seed uint64) error {
	f.count, f.after, f.only, f.errno = 0, 0, "", syscall.EIO
	there := side{base: filepath.Clean(to), files: make(map[uint64]*os.File)}
	defer func() {
		for _, file := range there.files {
			file.Close()
		}
	}()
	if err := f.copyTree(f.backing, there.base, there.files); err != nil || !power {
		return err
	}
	if err := f.copyTree(f.backing+aside, there.base+aside, there.files); err != nil {
		return err
	}
	defer os.RemoveAll(there.base + aside)
	return f.powerCut(seed, there)
}

// copyTree copies a folder, and keeps those copies open of which something is not synced.
func (f *faults) copyTree(from, to string, files map[uint64]*os.File) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if path == from && os.IsNotExist(err) {
				return nil
			}
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		switch into := filepath.Join(to, rel); {
		case entry.IsDir():
			return os.MkdirAll(into, 0o700)
		case entry.Type().IsRegular():
			copied, err := copyFile(path, into, info)
			if err != nil {
				return err
			}
			if ino := info.Sys().(*syscall.Stat_t).Ino; f.inodes[ino] != nil && files[ino] == nil {
				files[ino] = copied
				return nil
			}
			return copied.Close()
		}
		return nil
	})
}

// copyFile copies a file without the zeros in it, and leaves the copy open.
func copyFile(from, to string, info fs.FileInfo) (*os.File, error) {
	in, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_RDWR|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return nil, err
	}
	if err = out.Truncate(info.Size()); err == nil {
		err = copyBytes(in, out)
	}
	if err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

var zeros [64 << 10]byte

func copyBytes(in, out *os.File) error {
	var b [len(zeros)]byte
	for at := int64(0); ; {
		n, err := in.ReadAt(b[:], at)
		if n > 0 && !bytes.Equal(b[:n], zeros[:n]) {
			if _, err := out.WriteAt(b[:n], at); err != nil {
				return err
			}
		}
		if at += int64(n); err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
