//go:build release

package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// writeSBOM makes the software bill of materials of a program, in CycloneDX: what the
// linker put into it by its own build information, and which of that needs which by
// go.mod.
func writeSBOM(o options, arch, program string) error {
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	modules, err := modulesOf(program)
	if err != nil {
		return err
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
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
	for _, m := range modules {
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
	if bom.Dependencies, err = dependencies(self, refs); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(o.out, fmt.Sprintf("rutter-%s-linux-%s.cdx.json", o.version, arch)))
	if err != nil {
		return err
	}
	if err := cdx.NewBOMEncoder(file, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
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
		if l.id != "" && !slices.Contains(seen, l.id) {
			seen = append(seen, l.id)
			all = append(all, cdx.LicenseChoice{License: &cdx.License{ID: l.id}})
		}
	}
	if all == nil {
		return nil
	}
	return &all
}

// dependencies are the edges of go.mod's graph between modules that are linked. refs are
// these modules' names in the document by path; self is the program's.
func dependencies(self string, refs map[string]string) (*[]cdx.Dependency, error) {
	out, err := exec.Command("go", "mod", "graph").Output()
	if err != nil {
		return nil, fmt.Errorf("go mod graph: %w", err)
	}
	needs := map[string][]string{self: {refs[goModule]}}
	for line := range strings.Lines(string(out)) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), " ")
		path, version, isModule := strings.Cut(from, "@")
		source := refs[path]
		switch {
		case !isModule: // the main module
			source = self
		case !strings.HasSuffix(source, "@"+version): // of a version that is not used
			continue
		}
		path, _, _ = strings.Cut(to, "@")
		if target := refs[path]; target != "" && path != goModule && !slices.Contains(needs[source], target) {
			needs[source] = append(needs[source], target)
		}
	}
	var all []cdx.Dependency
	for _, ref := range refs {
		all = append(all, cdx.Dependency{Ref: ref})
	}
	all = append(all, cdx.Dependency{Ref: self})
	slices.SortFunc(all, func(a, b cdx.Dependency) int { return strings.Compare(a.Ref, b.Ref) })
	for i, d := range all {
		if of := needs[d.Ref]; of != nil {
			slices.Sort(of)
			all[i].Dependencies = &of
		}
	}
	return &all, nil
}
