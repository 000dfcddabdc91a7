package release

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// platformName is what names of artefacts end with.
func (a artefacts) named(arch, ending string) string {
	return filepath.Join(a.dir, "rutter-"+a.version+"-linux-"+arch+ending)
}

// The tarball has one folder, in it the program of the package and what belongs to it.
func TestTarball(t *testing.T) {
	a := made(t)
	dir := a.unpacked(t)
	root := "rutter-" + a.version + "-linux-" + runtime.GOARCH
	have := map[string][]byte{}
	for _, e := range entriesOf(t, read(t, a.named(runtime.GOARCH, ".tar.gz"))) {
		if e.header.Name != root+"/" && !strings.HasPrefix(e.header.Name, root+"/") || path.Clean(e.header.Name)+"/" != strings.TrimSuffix(e.header.Name, "/")+"/" {
			t.Errorf("%s is not below %s", e.header.Name, root)
		}
		if e.header.Uid != 0 || e.header.Gid != 0 || e.header.Uname != "" || fmt.Sprint(e.header.ModTime.Unix()) != epoch {
			t.Errorf("%s has owner %d:%d %q and time %s", e.header.Name, e.header.Uid, e.header.Gid, e.header.Uname, e.header.ModTime)
		}
		have[strings.TrimPrefix(e.header.Name, root+"/")] = e.data
	}
	for name, packaged := range map[string]string{
		"rutter": "usr/bin/rutter", "rutter.toml": "etc/rutter/rutter.toml", "copyright": "usr/share/doc/rutter/copyright",
		"systemd/rutter-server.service": "usr/lib/systemd/system/rutter-server.service", "sysusers.d/rutter.conf": "usr/lib/sysusers.d/rutter.conf",
		"tmpfiles.d/rutter.conf": "usr/lib/tmpfiles.d/rutter.conf", "docs/deploy.md": "usr/share/doc/rutter/deploy.md", "docs/install.md": "usr/share/doc/rutter/install.md",
		"completions/rutter.bash": "usr/share/bash-completion/completions/rutter",
	} {
		if got, ok := have[name]; !ok || !bytes.Equal(got, read(t, dir, packaged)) {
			t.Errorf("%s is there: %t; it is not %s of the package", name, ok, packaged)
		}
	}
	if !bytes.Equal(have["man/man1/rutter.1"], unzipped(t, read(t, dir, "usr/share/man/man1/rutter.1.gz"))) {
		t.Error("man/man1/rutter.1 is not that of the package")
	}
}

// Each checksum is right, and each file has one.
func TestSums(t *testing.T) {
	a := made(t)
	var want strings.Builder
	for _, name := range filesBelow(t, a.dir) {
		if name != "SHA256SUMS" {
			fmt.Fprintf(&want, "%x  %s\n", sha256.Sum256(read(t, a.dir, name)), name)
		}
	}
	if got := string(read(t, a.dir, "SHA256SUMS")); got != want.String() || strings.Count(got, "\n") != 5 {
		t.Errorf("SHA256SUMS is\n%swant these of 5 files\n%s", got, want.String())
	}
	check := exec.Command("sha256sum", "--quiet", "-c", "SHA256SUMS")
	check.Dir = a.dir
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum -c: %v\n%s", err, out)
	}
	notes := string(read(t, a.dir, "release-notes-"+a.version+".md"))
	if !strings.HasPrefix(notes, "# Rutter "+a.version+"\n\n- ") || strings.Contains(notes, "\n## ") {
		t.Errorf("the notes begin %.100q, or have other versions", notes)
	}
}

// bom is what the tests read of a CycloneDX document.
type bom struct {
	BOMFormat, SpecVersion string
	Metadata               struct{ Component component }
	Components             []component
	Dependencies           []struct {
		Ref       string
		DependsOn []string
	}
}

type component struct {
	Name, Version, PURL string
	Ref                 string `json:"bom-ref"`
	Hashes              []struct{ Alg, Content string }
	Licenses            []struct{ License struct{ ID string } }
}

// The bill of materials names exactly the modules that the linker put into the program.
func TestBillOfMaterials(t *testing.T) {
	a := made(t)
	file := filepath.Join(a.unpacked(t), "usr/bin/rutter")
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"stdlib " + strings.Replace(info.GoVersion, "go", "v", 1)}
	for _, dep := range info.Deps {
		want = append(want, dep.Path+" "+dep.Version)
	}
	var doc bom
	if err := json.Unmarshal(read(t, a.named(runtime.GOARCH, ".cdx.json")), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.BOMFormat != "CycloneDX" || doc.SpecVersion != "1.6" {
		t.Errorf("it is of format %s %s", doc.BOMFormat, doc.SpecVersion)
	}
	self := doc.Metadata.Component
	if sum := fmt.Sprintf("%x", sha256.Sum256(read(t, file))); self.Version != a.version || len(self.Hashes) != 1 || self.Hashes[0].Content != sum {
		t.Errorf("it is about %+v, want version %s and sum %s", self, a.version, sum)
	}
	var got []string
	refs := map[string]bool{self.Ref: true}
	for _, c := range doc.Components {
		got = append(got, c.Name+" "+c.Version)
		refs[c.Ref] = true
		if c.PURL != "pkg:golang/"+c.Name+"@"+c.Version {
			t.Errorf("%s has the package URL %s", c.Name, c.PURL)
		}
		if len(c.Licenses) == 0 {
			t.Errorf("the licence of %s is not known: see knownLicences in scripts/release", c.Name)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("modules are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	reached := map[string]bool{self.Ref: true}
	for _, d := range doc.Dependencies {
		for _, on := range d.DependsOn {
			reached[on] = true
		}
	}
	for ref := range refs {
		if !reached[ref] {
			t.Errorf("nothing imports %s", ref)
		}
		delete(reached, ref)
	}
	if len(reached) > 0 {
		t.Errorf("dependencies on what is no component: %v", reached)
	}
	licences := string(read(t, filepath.Dir(file), "../share/doc/rutter/copyright"))
	for _, module := range want {
		if !strings.Contains(licences, "\n"+module+"\n") {
			t.Errorf("copyright has no licence of %s", module)
		}
	}
}

// copyOf copies the source into another folder, as a release is made from an archive of
// it: without its history.
func copyOf(t *testing.T, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	printed(t, "sh", "-c", `cd ../.. && git ls-files -z --cached --others --exclude-standard |
		xargs -0 sh -c 'for f; do [ ! -f "$f" ] || printf "%s\0" "$f"; done' sh | tar -c --null -T - | tar -x -C "$0"`, to)
}

// The same source gives the same bytes, in another folder, time zone and language, by a
// user with another umask, of files that were made at another time.
func TestSameBytes(t *testing.T) {
	need(t, "git")
	a := made(t)
	source := filepath.Join(t.TempDir(), "a folder with a long name")
	copyOf(t, source)
	out := filepath.Join(t.TempDir(), "out")
	b, err := release(source, out, "", "TZ=Asia/Kathmandu", "LANG=tr_TR.UTF-8", "RUTTER_DATA=/elsewhere", "HOME="+os.Getenv("HOME"))
	if err != nil {
		t.Fatal(err)
	}
	names := filesBelow(t, a.dir)
	if other := filesBelow(t, b.dir); !slices.Equal(names, other) {
		t.Fatalf("artefacts are %q and %q", names, other)
	}
	for _, name := range names {
		if !bytes.Equal(read(t, a.dir, name), read(t, b.dir, name)) {
			t.Errorf("%s has other bytes the second time", name)
		}
	}
}

// A program of another commit is not packed as this one's.
func TestOtherVersionIsRefused(t *testing.T) {
	_, err := release(filepath.Join("..", ".."), t.TempDir(), "", "PROGRAM="+program, "VERSION=9.9.9", "ONLY=tar")
	if err == nil || !strings.Contains(err.Error(), "the artefacts are to be of version 9.9.9") {
		t.Errorf("got %v", err)
	}
	if _, err := release(filepath.Join("..", ".."), t.TempDir(), "", "VERSION=v1 2", "ONLY=tar"); err == nil || !strings.Contains(err.Error(), "is no version of a Debian package") {
		t.Errorf("got %v", err)
	}
}

// The artefacts of the other architecture have its program, and what a program of this
// machine said.
func TestOtherArchitecture(t *testing.T) {
	if os.Getenv("RUTTER_LONG") == "" {
		t.Skip("builds the program for arm64: make test-long")
	}
	a, err := release(filepath.Join("..", ".."), t.TempDir(), "arm64", "ONLY=tar,deb,image,sbom")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entriesOf(t, read(t, a.named("arm64", ".tar.gz"))) {
		if path.Base(e.header.Name) != "rutter" || e.header.Mode&0o100 == 0 || len(e.data) == 0 {
			continue
		}
		file, err := elf.NewFile(bytes.NewReader(e.data))
		if err != nil || file.Machine != elf.EM_AARCH64 || file.Type != elf.ET_EXEC {
			t.Errorf("the program is %+v, %v; want a static one of AArch64", file, err)
		}
	}
	need(t, "dpkg-deb")
	if got := printed(t, "dpkg-deb", "-f", filepath.Join(a.dir, "rutter_"+a.version+"_arm64.deb"), "Architecture"); got != "arm64\n" {
		t.Errorf("the package is for %q", got)
	}
}
