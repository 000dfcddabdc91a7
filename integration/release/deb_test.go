package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// deb is the package of this machine's architecture.
func (a artefacts) deb() string {
	return filepath.Join(a.dir, "rutter_"+a.version+"_"+runtime.GOARCH+".deb")
}

// unpacked are the files of the package in a folder of the test.
func (a artefacts) unpacked(t *testing.T) string {
	t.Helper()
	need(t, "dpkg-deb")
	dir := t.TempDir()
	printed(t, "dpkg-deb", "-R", a.deb(), dir)
	return dir
}

// wanted are files that a package without them would not be one of Rutter.
var wanted = []string{
	"etc/rutter/rutter.toml", "usr/bin/rutter",
	"usr/lib/systemd/system/rutter-server.service", "usr/lib/systemd/system/rutter-agent.service", "usr/lib/systemd/system/rutter-varpd.service",
	"usr/lib/systemd/system/rutter-vms.service", "usr/share/lintian/overrides/rutter",
	"usr/share/rutter/monitoring/prometheus.yml", "usr/share/rutter/monitoring/alerts.yml", "usr/share/rutter/monitoring/alerts_test.yml", "usr/share/rutter/monitoring/dashboard.json",
	"usr/lib/sysusers.d/rutter.conf", "usr/lib/tmpfiles.d/rutter.conf",
	"usr/share/bash-completion/completions/rutter", "usr/share/zsh/vendor-completions/_rutter", "usr/share/fish/vendor_completions.d/rutter.fish",
	"usr/share/doc/rutter/README.md", "usr/share/doc/rutter/deploy.md", "usr/share/doc/rutter/copyright", "usr/share/doc/rutter/changelog.gz",
	"usr/share/man/man1/rutter.1.gz", "usr/share/man/man1/rutter-nic.1.gz",
}

func TestPackage(t *testing.T) {
	a := made(t)
	dir := a.unpacked(t)
	for field, want := range map[string]string{
		"Package": "rutter", "Version": a.version, "Architecture": runtime.GOARCH, "Section": "net", "Priority": "optional",
	} {
		if got := strings.TrimSpace(printed(t, "dpkg-deb", "-f", a.deb(), field)); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	if size := strings.TrimSpace(printed(t, "dpkg-deb", "-f", a.deb(), "Installed-Size")); len(size) < 5 {
		t.Errorf("Installed-Size is %q KiB, and the program alone has 30 MiB", size)
	}
	for _, name := range wanted {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if got := string(read(t, dir, "DEBIAN/conffiles")); got != "/etc/rutter/rutter.toml\n" {
		t.Errorf("conffiles are %q", got)
	}
	modes := regexp.MustCompile(`^(d|-)rwx?r-x?r-x? root/root `)
	lines := printed(t, "sh", "-c", `dpkg-deb -c "$0"`, a.deb())
	for line := range strings.Lines(lines) {
		executable := strings.HasPrefix(line, "-rwx")
		if !strings.HasPrefix(line, "drwxr-xr-x root/root ") && !strings.HasPrefix(line, "-rw-r--r-- root/root ") && !strings.HasPrefix(line, "-rwxr-xr-x root/root ") || !modes.MatchString(strings.Replace(line, "rw-r--r--", "rwxr-xr-x", 1)) {
			t.Errorf("owner or mode: %s", line)
		}
		if executable && !strings.HasSuffix(line, "/usr/bin/rutter\n") && !strings.HasSuffix(line, "/qemu-hook\n") {
			t.Errorf("may be run: %s", line)
		}
	}
	sums := exec.Command("md5sum", "--quiet", "-c", "DEBIAN/md5sums")
	sums.Dir = dir
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("md5sums: %v\n%s", err, out)
	}
	listed := strings.Count(string(read(t, dir, "DEBIAN/md5sums")), "\n")
	if files := strings.Count(lines, "\n-") + 1; strings.HasPrefix(lines, "d") && listed != files-1 {
		t.Errorf("md5sums has %d files of %d", listed, files-1)
	}
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		printed(t, "sh", "-n", filepath.Join(dir, "DEBIAN", name))
	}
	if text := string(unzipped(t, read(t, dir, "usr/share/doc/rutter/changelog.gz"))); !strings.HasPrefix(text, "rutter ("+a.version+") ") || !regexp.MustCompile(`\n -- .+ <.+@.+>  \w{3}, \d\d \w{3} \d{4} `).MatchString(text) {
		t.Errorf("changelog.gz begins %.200q", text)
	}
}

// starts finds the programs that a unit runs.
var starts = regexp.MustCompile(`(?m)^Exec\w+=[-+!@:]*(\S+)`)

// Debian's own checks have nothing to say of the package but what its overrides answer.
func TestLintian(t *testing.T) {
	need(t, "lintian")
	a := made(t)
	out, err := exec.Command("lintian", "--allow-root", "--no-tag-display-limit", "--fail-on", "error,warning", a.deb()).CombinedOutput()
	if err != nil || strings.Contains(string(out), "W: ") || strings.Contains(string(out), "E: ") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// What a unit of the package runs is where the package puts it.
func TestUnitsRunThePackagedProgram(t *testing.T) {
	dir := made(t).unpacked(t)
	units, err := filepath.Glob(filepath.Join(dir, "usr/lib/systemd/system/*.service"))
	if err != nil || len(units) < 3 {
		t.Fatalf("units %v, %v", units, err)
	}
	for _, unit := range units {
		found := false
		for _, start := range starts.FindAllStringSubmatch(string(read(t, unit)), -1) {
			if filepath.Base(start[1]) != "rutter" {
				continue
			}
			found = true
			if _, err := os.Stat(filepath.Join(dir, start[1])); err != nil {
				t.Errorf("%s runs %s, which the package does not have", filepath.Base(unit), start[1])
			}
		}
		if !found {
			t.Errorf("%s runs no rutter", filepath.Base(unit))
		}
	}
}

// A purge takes the server's log, the agent's cache and the certificates away, and
// leaves what belongs to VMs, with a word about it.
func TestPurge(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("chroot needs root")
	}
	need(t, "busybox")
	busybox, _ := exec.LookPath("busybox")
	control := made(t).unpacked(t)
	for _, vms := range []bool{false, true} {
		root := t.TempDir()
		write := func(name string, mode os.FileMode, data []byte) {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, mode); err != nil {
				t.Fatal(err)
			}
		}
		write("bin/busybox", 0o755, read(t, busybox))
		for _, applet := range []string{"sh", "rm", "rmdir", "ls"} {
			if err := os.Symlink("busybox", filepath.Join(root, "bin", applet)); err != nil {
				t.Fatal(err)
			}
		}
		write("dev/null", 0o666, nil) // a file: what is written to it is not read
		write("postrm", 0o755, read(t, control, "DEBIAN/postrm"))
		for _, name := range []string{
			"var/lib/rutter/raft.db", "var/lib/rutter-agent/cache", "etc/rutter/tls/tls.key",
			"etc/systemd/system/multi-user.target.wants/rutter-agent.service", "var/lib/other/kept",
		} {
			write(name, 0o600, nil)
		}
		for _, name := range []string{"etc/rutter/vms", "var/lib/rutter-vms"} {
			if err := os.MkdirAll(filepath.Join(root, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		var keep []string
		if vms {
			keep = []string{"etc/rutter/vms/a.json", "run/rutter/vms/a.pid", "var/lib/rutter-vms/a/disk"}
			for _, name := range keep {
				write(name, 0o600, nil)
			}
		}
		for _, action := range []string{"remove", "purge"} {
			out, err := exec.Command("chroot", root, "/bin/sh", "/postrm", action).CombinedOutput()
			if err != nil {
				t.Fatalf("postrm %s: %v\n%s", action, err, out)
			}
			if said := strings.Contains(string(out), "has VMs and is kept"); said != (vms && action == "purge") {
				t.Errorf("postrm %s, with VMs %t, said %q", action, vms, out)
			}
			if action == "remove" {
				read(t, root, "var/lib/rutter/raft.db")
			}
		}
		want := append([]string{"bin/busybox", "dev/null", "postrm", "var/lib/other/kept"}, keep...)
		slices.Sort(want)
		if got := filesBelow(t, root); !slices.Equal(got, want) {
			t.Errorf("with VMs %t, a purge left %q, want %q", vms, got, want)
		}
	}
}

// filesBelow are the regular files of a folder, relative to it, sorted.
func filesBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}
