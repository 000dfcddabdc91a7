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
	id   string // of SPDX, if it is one of knownLicences
	text string
}

// goModule names the standard library and the runtime as a module.
const goModule = "stdlib"

// modulesOf are what the build information of a program names, with the licences that
// are in the module cache, and the standard library. It is sorted by path.
func modulesOf(program string) ([]module, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	folders, err := moduleFolders()
	if err != nil {
		return nil, err
	}
	version := strings.TrimPrefix(info.GoVersion, "go")
	if version != strings.TrimPrefix(runtime.Version(), "go") {
		return nil, fmt.Errorf("%s was built by %s, and this is %s: the licence of another standard library may differ; build it anew", program, info.GoVersion, runtime.Version())
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	folders[goModule] = strings.TrimSpace(string(root))
	all := []module{{path: goModule, version: "v" + version}}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		all = append(all, module{path: dep.Path, version: dep.Version, sum: dep.Sum})
	}
	var errs []error
	for i := range all {
		if all[i].licences, err = licencesIn(folders[all[i].path]); err != nil {
			errs = append(errs, fmt.Errorf("module %s: %w", all[i].path, err))
		}
	}
	slices.SortFunc(all, func(a, b module) int { return strings.Compare(a.path, b.path) })
	return all, errors.Join(errs...)
}

// moduleFolders are the folders of the modules of go.mod, which are downloaded if they
// are not there.
func moduleFolders() (map[string]string, error) {
	out, err := exec.Command("go", "mod", "download", "-json").Output()
	if err != nil {
		return nil, fmt.Errorf("go mod download: %w", err)
	}
	folders := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Dir, Error string }
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			return folders, nil
		} else if err != nil {
			return nil, err
		}
		folders[m.Path] = m.Dir
	}
}

// knownLicences are recognised by sentences that no other of them has; the first that
// matches counts.
var knownLicences = []struct {
	id   string
	text *regexp.Regexp
}{
	{"Apache-2.0", regexp.MustCompile(`Apache License,? Version 2\.0`)},
	{"MPL-2.0", regexp.MustCompile(`(?i)Mozilla Public License,? (Version|v\.) ?2\.0`)},
	{"MIT", regexp.MustCompile(`Permission is hereby granted, free of charge, to any person obtaining a copy`)},
	{"ISC", regexp.MustCompile(`Permission to use, copy, modify,? and/?(or)? distribute this software for any purpose`)},
	{"BSD-3-Clause", regexp.MustCompile(`Redistribution and use in source and binary forms(.*)(Neither the name|The name of the author may not|nor the names of)`)},
	{"BSD-2-Clause", regexp.MustCompile(`Redistribution and use in source and binary forms`)},
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// licencesIn reads the licences of a module. Without any it is an error: what may not be
// copied may not be published.
func licencesIn(folder string) ([]licenceText, error) {
	if folder == "" {
		return nil, errors.New("it is not in go.mod")
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
			if known.text.MatchString(words) {
				l.id = known.id
				break
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
func copyright(o options, program string) ([]byte, error) {
	modules, err := modulesOf(program)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Rutter %s\n\n%s\n", o.version, ownLicence())
	b.WriteString("\nThe program is linked with the modules below, each under its own licence.\n")
	var order []string
	users, texts := map[string][]string{}, map[string]string{}
	for _, m := range modules {
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
	return []byte(b.String()), nil
}

// ownLicence is what the source says of itself.
func ownLicence() string {
	if text, err := os.ReadFile("LICENSE"); err == nil {
		return strings.TrimSpace(string(text))
	}
	return "Its maintainers have not chosen a licence yet: until they do, other people may not copy it."
}
