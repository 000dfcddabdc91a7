package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Versions are legal ones of Debian packages, and a later commit has a higher one.
func TestVersions(t *testing.T) {
	need(t, "git")
	script, err := filepath.Abs(filepath.Join("..", "..", "scripts", "release", "version.sh"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	in := func(when, name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir),
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
			"GIT_AUTHOR_DATE="+when, "GIT_COMMITTER_DATE="+when)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if got := in("", script); got != "0.0~unknown" {
		t.Errorf("without git the version is %q", got)
	}
	in("", "git", "init", "-q")
	var versions []string
	commit := func(when, tag, want string) {
		t.Helper()
		in(when, "git", "commit", "-q", "--allow-empty", "-m", when)
		if tag != "" {
			in(when, "git", "tag", tag)
		}
		want = strings.ReplaceAll(want, "HASH", in("", "git", "rev-parse", "--short=12", "HEAD"))
		if got := in("", script); got != want {
			t.Errorf("at %s, tag %q, the version is %q, want %q", when, tag, got, want)
		} else {
			versions = append(versions, got)
		}
	}
	commit("2026-11-23T09:10:11+0000", "", "0.0~git20261123.091011.HASH")
	commit("2026-11-23T11:10:12+0200", "", "0.0~git20261123.091012.HASH")
	commit("2026-11-23T10:00:00+0000", "v1.2.0-rc.1", "1.2.0~rc.1")
	commit("2026-11-23T10:00:01+0000", "", "1.2.0~rc.1+1.gHASH")
	commit("2026-11-23T10:00:02+0000", "v1.2.0", "1.2.0")
	commit("2026-11-23T10:00:03+0000", "", "1.2.0+1.gHASH")
	commit("2026-11-23T10:00:04+0000", "v1.2.1", "1.2.1")
	if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	in("", "git", "add", "a")
	versions = append(versions, in("", script))
	if versions[len(versions)-1] != "1.2.1+dirty" {
		t.Errorf("with a changed file the version is %q", versions[len(versions)-1])
	}
	need(t, "dpkg")
	for i, version := range versions {
		in("", "dpkg", "--validate-version", version)
		if i > 0 {
			in("", "dpkg", "--compare-versions", versions[i-1], "lt", version)
		}
	}
}
