package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"rutter/integration/pages"
)

const page = "../../docs/install.md"

// The versions that are installed and upgraded to.
const (
	oldVersion = "0.9.0~test"
	newVersion = "0.9.1~test"
	// builtEnv is the variable with the folder of their packages.
	builtEnv = "RUTTER_INSTALL_BUILT"
	// baseEnv is the variable with the folder of the Debian.
	baseEnv = "RUTTER_INSTALL_BASE"
)

// TestInstall runs each command of docs/install.md word for word on six machines with a
// clean Debian and a systemd of their own: the package, three servers and two nodes with TLS,
// two VMs that ping, a node whose agent stops, an upgrade under a writer, remove and purge.
// After a block its checks look whether it did what the page says.
func TestInstall(t *testing.T) {
	needs(t)
	built, debian := os.Getenv(builtEnv), os.Getenv(baseEnv)
	if built == "" {
		debian, built = base(t), t.TempDir()
		for _, version := range []string{oldVersion, newVersion} {
			makePackage(t, built, version)
		}
	}
	if !inSpaces(t, builtEnv+"="+built, baseEnv+"="+debian) {
		return
	}
	begun := time.Now()
	w := &walk{machines: boot(t, debian, "s1", "s2", "s3", "cn1", "cn2", "admin")}
	t.Logf("six machines booted in %v", time.Since(begun).Round(time.Millisecond))
	arch := strings.TrimSpace(w.must("admin", "dpkg --print-architecture"))
	w.put("admin", filepath.Join(built, "rutter_"+oldVersion+"_"+arch+".deb"), "/root/rutter_"+oldVersion+"_"+arch+".deb")
	w.put("admin", filepath.Join(built, "rutter_"+newVersion+"_"+arch+".deb"), "/root/new/rutter_"+newVersion+"_"+arch+".deb")
	all, err := pages.Read(page)
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]bool{}
	for _, block := range all {
		for _, c := range checks {
			if c.section == block.Section && c.before != nil {
				c.before(w, block)
			}
		}
		for _, name := range block.Hosts {
			out := w.must(name, block.Script)
			for _, c := range checks {
				if c.section == block.Section && strings.Contains(block.Script, c.words) && c.after != nil {
					c.after(w, name, out)
					ran[c.section+c.words] = true
				}
			}
		}
	}
	for _, c := range checks {
		if !ran[c.section+c.words] {
			t.Errorf("no block of section %q of %s has the words %q: the check of it did not run", c.section, page, c.words)
		}
	}
	t.Logf("the walk took %v", time.Since(begun).Round(time.Millisecond))
}

// makePackage makes the Debian package of a version of this source, as make release does.
func makePackage(t *testing.T, folder, version string) {
	t.Helper()
	arch, err := output(exec.Command("go", "env", "GOARCH"))
	if err != nil {
		t.Fatal(err, arch)
	}
	arch = strings.TrimSpace(arch)
	for _, args := range [][]string{
		{"go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version=" + version, "-o", filepath.Join(folder, version), "./cmd/rutter"},
		{
			"go", "run", "-tags", "release", "-modfile=scripts/release.mod", "./scripts/release", "-version", version, "-maintainer", "Test <test@example.com>",
			"-arch", arch, "-only", "deb", "-out", folder, "-program", arch + "=" + filepath.Join(folder, version),
		},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "SOURCE_DATE_EPOCH="+strconv.FormatInt(time.Now().Unix(), 10))
		if out, err := output(cmd); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
}
