//go:build release

package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// module is a module of others that is linked into a program.
type module struct {
	path, version, sum string
	licences           []licenceText
}

// licenceText is a file of a module that says on which conditions it may be copied.
type licenceText struct {
	ids  []string // of SPDX, if they are of knownLicences
	text string
}

// goModule names the standard library and the runtime as a module.
const goModule = "stdlib"

// linked is what is linked into a program of one architecture.
type linked struct {
	modules []module // sorted by path; the standard library is goModule
	// needs are the modules that packages of a module import, by its path; the program's
	// own module has the path "".
	needs map[string][]string
}

// linkedInto reads the build information of a program, and finds the licences in the
// module cache, which has the modules because the program was built here.
func linkedInto(program, arch string) (linked, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return linked{}, err
	}
	if info.GoVersion != runtime.Version() {
		return linked{}, fmt.Errorf("%s was built by %s, and this is %s, which may have another licence: build it anew", program, info.GoVersion, runtime.Version())
	}
	root, err := outputOf(exec.Command("go", "env", "GOROOT"))
	if err != nil {
		return linked{}, err
	}
	folders, needs, err := imports(arch)
	if err != nil {
		return linked{}, err
	}
	folders[goModule] = strings.TrimSpace(string(root))
	l := linked{needs: needs, modules: []module{{path: goModule, version: strings.Replace(info.GoVersion, "go", "v", 1)}}}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		l.modules = append(l.modules, module{path: dep.Path, version: dep.Version, sum: dep.Sum})
	}
	var errs []error
	for i, m := range l.modules {
		if l.modules[i].licences, err = licencesIn(folders[m.path]); err != nil {
			errs = append(errs, fmt.Errorf("module %s: %w", m.path, err))
		}
	}
	slices.SortFunc(l.modules, func(a, b module) int { return strings.Compare(a.path, b.path) })
	return l, errors.Join(errs...)
}

// imports returns the folders of the modules that the program is made of, and which of
// them imports which.
func imports(arch string) (folders map[string]string, needs map[string][]string, err error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Module,Standard", "./cmd/rutter")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=")
	out, err := outputOf(cmd)
	if err != nil {
		return nil, nil, err
	}
	folders, needs = map[string]string{}, map[string][]string{}
	of := map[string]string{} // modules by package; what a package imports is listed before it
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
			Standard   bool
			Module     *struct {
				Path, Dir string
				Main      bool
			}
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return folders, needs, nil
		} else if err != nil {
			return nil, nil, err
		}
		switch {
		case p.Standard:
			of[p.ImportPath] = goModule
			continue
		case !p.Module.Main:
			of[p.ImportPath] = p.Module.Path
			folders[p.Module.Path] = p.Module.Dir
		}
		from := of[p.ImportPath]
		for _, name := range p.Imports {
			if to := of[name]; to != "" && to != from && !slices.Contains(needs[from], to) {
				needs[from] = append(needs[from], to)
			}
		}
	}
}

// knownLicences are recognised by sentences that no other of them has, except that the
// BSD licence of three clauses has all of that of two. A file may have several.
var knownLicences = []struct {
	id   string
	text *regexp.Regexp
}{
	{"Apache-2.0", regexp.MustCompile(`Apache License,? Version 2\.0`)},
	{"MPL-2.0", regexp.MustCompile(`(?i)Mozilla Public License,? (Version|v\.) ?2\.0`)},
	{"MIT", regexp.MustCompile(`(?i)Permission is hereby granted, free of charge, to any person obtaining a ?copy`)},
	{"ISC", regexp.MustCompile(`Permission to use, copy, modify,? and/?(or)? distribute this software for any purpose`)},
	{"BSD-3-Clause", regexp.MustCompile(`Redistribution and use in source and binary forms(.*)(Neither the name|The name of the author may not|nor the names of)`)},
	{"BSD-2-Clause", regexp.MustCompile(`Redistribution and use in source and binary forms`)},
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// licencesIn reads the licences of a module. Without any it is an error: what may not be
// copied may not be published.
func licencesIn(folder string) ([]licenceText, error) {
	if folder == "" {
		return nil, errors.New("it is not in the module cache: go mod download brings it")
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var all []licenceText
	for _, e := range entries {
		if !e.Type().IsRegular() || !licenceFile.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		l := licenceText{text: strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n"))}
		words := strings.Join(strings.Fields(l.text), " ")
		for _, known := range knownLicences {
			if known.text.MatchString(words) && !(known.id == "BSD-2-Clause" && slices.Contains(l.ids, "BSD-3-Clause")) {
				l.ids = append(l.ids, known.id)
			}
		}
		all = append(all, l)
	}
	if len(all) == 0 {
		return nil, errors.New("no file LICENSE, COPYING or NOTICE is in it")
	}
	return all, nil
}

// copyright is the file of that name: on which conditions the program and each module in
// it may be copied. A text that several modules have stands once.
func copyright(o options, l linked) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "Rutter %s\n\n%s\n", o.version, ownLicence())
	b.WriteString("\nThe program is linked with the modules below, each under its own licence.\n")
	var order []string
	users, texts := map[string][]string{}, map[string]string{}
	for _, m := range l.modules {
		for _, l := range m.licences {
			key := fmt.Sprintf("%x", sha256.Sum256([]byte(l.text)))
			if users[key] == nil {
				order = append(order, key)
			}
			users[key], texts[key] = append(users[key], m.path+" "+m.version), l.text
		}
	}
	for _, key := range order {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("-", 80), strings.Join(users[key], "\n"), texts[key])
	}
	return []byte(b.String())
}

// ownLicence is what the source says of itself.
func ownLicence() string {
	if text, err := os.ReadFile("LICENSE"); err == nil {
		return strings.TrimSpace(string(text))
	}
	return "Its maintainers have not chosen a licence yet: until they do, other people may not copy it."
}
