//go:build release

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// entry is one file, or one folder if data is nil and mode says so, of a tar archive.
type entry struct {
	name     string // relative; that of a folder ends with a slash
	mode     fs.FileMode
	uid, gid int
	data     []byte
}

// writeTarball makes the tarball of an architecture: all of it is below one folder.
func writeTarball(o options, arch string, items []item) error {
	root := fmt.Sprintf("rutter-%s-linux-%s", o.version, arch)
	var entries []entry
	for _, it := range items {
		if it.flat != "" {
			entries = append(entries, entry{name: path.Join(root, it.flat), mode: it.mode, data: it.data})
		}
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.DefaultCompression)
	if err != nil {
		return err
	}
	if err := writeTar(w, o.built, entries); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, root+".tar.gz"), b.Bytes(), 0o644)
}

// writeTar writes entries in the order of their names, and the folders above them. The
// owner of what names none is root, by number only.
func writeTar(w interface{ Write([]byte) (int, error) }, at time.Time, entries []entry) error {
	all := slices.Clone(entries)
	have := map[string]bool{}
	for _, e := range entries {
		have[e.name] = true
	}
	for _, e := range entries {
		for folder := path.Dir(strings.TrimSuffix(e.name, "/")); folder != "."; folder = path.Dir(folder) {
			if !have[folder+"/"] {
				have[folder+"/"] = true
				all = append(all, entry{name: folder + "/", mode: 0o755})
			}
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	out := tar.NewWriter(w)
	for _, e := range all {
		header := &tar.Header{Name: e.name, Mode: int64(e.mode), Uid: e.uid, Gid: e.gid, ModTime: at, Size: int64(len(e.data)), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if strings.HasSuffix(e.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := out.WriteHeader(header); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		if _, err := out.Write(e.data); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return out.Close()
}
