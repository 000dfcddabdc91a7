//go:build release

package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// writeSBOM makes the software bill of materials of a program, in CycloneDX: what the
// linker put into it by its own build information, and which of that imports which.
func writeSBOM(o options, arch string, items []item, l linked) error {
	program := items[slices.IndexFunc(items, func(it item) bool { return it.path == programPath })]
	sum := fmt.Sprintf("%x", sha256.Sum256(program.data))
	self := "pkg:generic/rutter@" + o.version + "?arch=" + arch
	bom := cdx.NewBOM()
	bom.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceOID, []byte(self+sum)).String()
	bom.Metadata = &cdx.Metadata{
		Timestamp: o.built.Format("2006-01-02T15:04:05Z"),
		Component: &cdx.Component{
			BOMRef: self, Type: cdx.ComponentTypeApplication, Name: "rutter", Version: o.version, PackageURL: self,
			Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}},
		},
	}
	refs := map[string]string{}
	var components []cdx.Component
	for _, m := range l.modules {
		refs[m.path] = "pkg:golang/" + m.path + "@" + m.version
		component := cdx.Component{
			BOMRef: refs[m.path], PackageURL: refs[m.path], Type: cdx.ComponentTypeLibrary,
			Name: m.path, Version: m.version, Scope: cdx.ScopeRequired, Licenses: licenceChoices(m),
		}
		if m.sum != "" {
			component.Properties = &[]cdx.Property{{Name: "go.sum", Value: m.sum}}
		}
		components = append(components, component)
	}
	bom.Components = &components
	bom.Dependencies = dependencies(self, refs, l.needs)
	file, err := os.Create(filepath.Join(o.out, fmt.Sprintf("rutter-%s-linux-%s.cdx.json", o.version, arch)))
	if err != nil {
		return err
	}
	if err := cdx.NewBOMEncoder(file, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// licenceChoices names the licences of a module by their SPDX ids.
func licenceChoices(m module) *cdx.Licenses {
	var all cdx.Licenses
	var seen []string
	for _, l := range m.licences {
		for _, id := range l.ids {
			if !slices.Contains(seen, id) {
				seen = append(seen, id)
				all = append(all, cdx.LicenseChoice{License: &cdx.License{ID: id}})
			}
		}
	}
	if all == nil {
		return nil
	}
	return &all
}

// dependencies say which linked module imports which. refs are the modules' names in the
// document by path; self is the program's.
func dependencies(self string, refs map[string]string, needs map[string][]string) *[]cdx.Dependency {
	all := []cdx.Dependency{{Ref: self}}
	paths := map[string]string{self: ""}
	for path, ref := range refs {
		all, paths[ref] = append(all, cdx.Dependency{Ref: ref}), path
	}
	slices.SortFunc(all, func(a, b cdx.Dependency) int { return strings.Compare(a.Ref, b.Ref) })
	for i, d := range all {
		var on []string
		for _, path := range needs[paths[d.Ref]] {
			on = append(on, refs[path])
		}
		if on != nil {
			slices.Sort(on)
			all[i].Dependencies = &on
		}
	}
	return &all
}
