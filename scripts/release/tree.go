//go:build release

package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// item is one file of an installed Rutter.
type item struct {
	path string // absolute, in a Debian package
	flat string // in a tarball, below its one folder; empty: not there
	mode fs.FileMode
	data []byte
	// conf says that operators change the file, and that an upgrade keeps their changes.
	conf bool
	// packed says that a Debian package has it compressed, with .gz after its name.
	packed bool
}

// programPath is where the program is installed.
const programPath = "/usr/bin/rutter"

// systemdDir has the units, and what belongs to them.
const systemdDir = "scripts/systemd"

// tree returns all files of one architecture, sorted by path. program is the one of that
// architecture, made what a program of this machine says about itself.
func tree(o options, program []byte, made made) ([]item, error) {
	items := []item{
		{path: programPath, flat: "rutter", mode: 0o755, data: program},
		{path: "/usr/share/bash-completion/completions/rutter", flat: "completions/rutter.bash", mode: 0o644, data: made.bash},
		{path: "/usr/share/zsh/vendor-completions/_rutter", flat: "completions/_rutter", mode: 0o644, data: made.zsh},
		{path: "/usr/share/fish/vendor_completions.d/rutter.fish", flat: "completions/rutter.fish", mode: 0o644, data: made.fish},
		{path: "/usr/share/doc/rutter/copyright", flat: "copyright", mode: 0o644, data: made.copyright},
		{path: "/usr/share/doc/rutter/changelog", mode: 0o644, data: made.changelog, packed: true},
	}
	for name, page := range made.pages {
		items = append(items, item{path: "/usr/share/man/man1/" + name, flat: "man/man1/" + name, mode: 0o644, data: page, packed: true})
	}
	var errs []error
	add := func(file, to, flat string, mode fs.FileMode, conf bool) {
		data, err := os.ReadFile(file)
		if err != nil {
			errs = append(errs, err)
		}
		items = append(items, item{path: to, flat: flat, mode: mode, data: data, conf: conf})
	}
	add("scripts/rutter.toml", "/etc/rutter/rutter.toml", "rutter.toml", 0o644, true)
	add(filepath.Join(debianDir, "lintian-overrides"), "/usr/share/lintian/overrides/rutter", "", 0o644, false)
	add("scripts/libvirt/qemu-hook", "/usr/share/rutter/libvirt/qemu-hook", "libvirt/qemu-hook", 0o755, false)
	for _, name := range below(systemdDir, &errs) {
		file := filepath.Join(systemdDir, name)
		switch path.Ext(name) {
		case ".service":
			add(file, "/usr/lib/systemd/system/"+name, "systemd/"+name, 0o644, false)
		case ".sysusers":
			add(file, "/usr/lib/sysusers.d/rutter.conf", "sysusers.d/rutter.conf", 0o644, false)
		case ".tmpfiles":
			add(file, "/usr/lib/tmpfiles.d/rutter.conf", "tmpfiles.d/rutter.conf", 0o644, false)
		default: // settings that an operator adds to a unit
			add(file, "/usr/share/rutter/systemd/"+name, "systemd/"+name, 0o644, false)
		}
	}
	monitoringDir := filepath.Join("scripts", "monitoring")
	if _, err := os.Stat(monitoringDir); err == nil {
		for _, name := range below(monitoringDir, &errs) {
			if path.Ext(name) != ".go" && !strings.Contains(name, "testdata/") {
				add(filepath.Join(monitoringDir, name), "/usr/share/rutter/monitoring/"+name, "monitoring/"+name, 0o644, false)
			}
		}
	}
	for _, name := range append(below("docs", &errs), "../README.md", "../CHANGELOG.md") {
		if ext := path.Ext(name); ext == ".md" || ext == ".json" || ext == ".png" || ext == ".svg" {
			add(filepath.Join("docs", name), "/usr/share/doc/rutter/"+path.Clean("/" + name)[1:], "docs/"+path.Clean("/" + name)[1:], 0o644, false)
			page := &items[len(items)-1]
			page.data = withLinks(page.data)
		}
	}
	if len(errs) > 0 {
		return nil, errs[0]
	}
	slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.path, b.path) })
	return items, nil
}

// below lists the files of a folder and of the folders in it, relative to it, sorted.
func below(folder string, errs *[]error) (names []string) {
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, file)
		names = append(names, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		*errs = append(*errs, err)
	}
	return names
}

// ofSource are the links of README.md into docs, which is where README.md is installed.
var ofSource = regexp.MustCompile(`\]\(docs/`)

func withLinks(page []byte) []byte { return ofSource.ReplaceAll(page, []byte("](")) }

// compressed is data as gzip has it, without a name and a time.
func compressed(data []byte) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression) // as Debian wants its pages
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(fmt.Sprintf("a buffer in memory takes every byte: %v", err))
	}
	return b.Bytes()
}
