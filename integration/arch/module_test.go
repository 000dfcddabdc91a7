package arch

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// make module renames a copy of the tree, in which each import then leads somewhere.
func TestModuleIsRenamed(t *testing.T) {
	to := t.TempDir()
	if err := copyTree(moduleRoot(t), to); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = to, append(os.Environ(), "GOFLAGS=-mod=mod")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	const path = "git.example.org/some-team/rutter"
	run("make", "module", "PATH="+path)
	if got := strings.TrimSpace(run("go", "list", "-m")); got != path {
		t.Fatalf("the module is %s, want %s", got, path)
	}
	run("go", "list", "-deps", "-test", "./...") // each import leads somewhere
	run("go", "vet", "./log/query")
	err := eachFile(to, func(name string, text []byte) error {
		if strings.HasSuffix(name, ".go") && bytes.Contains(text, []byte(`"`+modulePath+`/log"`)) {
			t.Errorf("%s still names the old module", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sh", filepath.Join(to, "scripts", "module.sh"), "no good").CombinedOutput(); err == nil || !bytes.Contains(out, []byte("want a module's path")) {
		t.Errorf("a path that is none: %v, %s", err, out)
	}
}

// eachFile calls fn with every file below root, except those of hidden folders and
// those that were built.
func eachFile(root string, fn func(name string, text []byte) error) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() && (name == "bin" || len(name) > 1 && strings.HasPrefix(entry.Name(), ".")) {
			return filepath.SkipDir
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return fn(name, text)
	})
}

func copyTree(from, to string) error {
	return eachFile(from, func(name string, text []byte) error {
		info, err := os.Stat(filepath.Join(from, name))
		if err != nil {
			return err
		}
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.WriteFile(path, text, info.Mode().Perm())
	})
}
