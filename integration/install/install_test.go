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
// two VMs that ping, a Prometheus whose alert fires when an agent stops and clears when it is
// back, a backup that is copied and restored, an upgrade under a writer, remove and purge. After a block its checks look whether it did what the page says.
func TestInstall(t *testing.T) {
	built, debian, inside := ready(t, oldVersion, newVersion)
	if !inside {
		return
	}
	begun := time.Now()
	w := &walk{machines: boot(t, debian, "s1", "s2", "s3", "cn1", "cn2", "admin")}
	t.Logf("six machines booted in %v", time.Since(begun).Round(time.Millisecond))
	w.putPackage("admin", built, oldVersion, "/root")
	w.putPackage("admin", built, newVersion, "/root/new")
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
			started := time.Now()
			out := w.must(name, block.Script)
			if counted(block.Section) {
				w.waited += time.Since(started)
			}
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
	w.underHalfAnHour(all)
	t.Logf("the walk took %v", time.Since(begun).Round(time.Millisecond))
}

// ready prepares packages and a Debian, and reports whether the test is in its namespaces.
func ready(t *testing.T, versions ...string) (built, debian string, inside bool) {
	t.Helper()
	needs(t)
	built, debian = os.Getenv(builtEnv), os.Getenv(baseEnv)
	if built == "" {
		debian, built = base(t), t.TempDir()
		for _, version := range versions {
			makePackage(t, built, version)
		}
	}
	return built, debian, inSpaces(t, builtEnv+"="+built, baseEnv+"="+debian)
}

// TestSupervision: what the units promise, on one machine.
func TestSupervision(t *testing.T) {
	built, debian, inside := ready(t, newVersion)
	if !inside {
		return
	}
	m := boot(t, debian, "s1")
	m.putPackage("s1", built, newVersion, "/root")
	m.must("s1", "apt-get install -y ./rutter_*.deb")
	supervision(t, m, "s1")
}

// putPackage puts the package of a version into a folder of a machine.
func (m *machines) putPackage(name, built, version, folder string) {
	m.t.Helper()
	arch := strings.TrimSpace(m.must(name, "dpkg --print-architecture"))
	file := "rutter_" + version + "_" + arch + ".deb"
	m.put(name, filepath.Join(built, file), filepath.Join(folder, file))
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
