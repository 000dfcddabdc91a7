package vmrun

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// TestEdit: an edit loses nothing of what others write meanwhile, and brings no
// VM back.
func TestEdit(t *testing.T) {
	folder, id := t.TempDir(), log.UUID{0xb, 15: 1}
	r, err := New(Config{Manifests: folder, PIDs: t.TempDir(), NetNS: t.TempDir(), Cgroup: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(folder, id.String()+".json")
	write := func(more string) {
		if err := os.WriteFile(name, []byte(`{"uuid":"`+id.String()+`"`+more+`}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	calls := 0
	if err := r.Edit(id, func(v vmdoc.Value) vmdoc.Value {
		if calls++; calls == 1 {
			write(`,"theirs":1`)
		}
		return v.With("ours", vmdoc.StringValue("x"))
	}); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(name); calls != 2 || !strings.Contains(string(text), "theirs") || !strings.Contains(string(text), "ours") {
		t.Errorf("after %d calls: %s", calls, text)
	}
	before := r.Stamp(id)
	if err := r.Edit(id, func(v vmdoc.Value) vmdoc.Value { return v }); err != nil || r.Stamp(id) != before {
		t.Errorf("an edit that changes nothing: %v", err)
	}
	err = r.Edit(id, func(v vmdoc.Value) vmdoc.Value {
		_ = os.Remove(name)
		return v.With("ours", vmdoc.StringValue("y"))
	})
	if _, there := os.Stat(name); !errors.Is(err, ErrNoVM) || there == nil {
		t.Errorf("a VM that is removed meanwhile: %v, its manifest: %v", err, there)
	}
	if left, _ := filepath.Glob(filepath.Join(folder, ".new-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// What the runner writes is readable by its user only, whatever the umask is, and
// even if others could read the manifest before.
func TestManifestFilesArePrivate(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "vms")
	r, err := New(Config{Manifests: folder, PIDs: t.TempDir(), NetNS: t.TempDir(), Cgroup: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	m := manifestFor(t, `,"root_pw":"x"`)
	name := filepath.Join(folder, m.UUID.String()+".json")
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"Create", func() error { return r.Create(m.Value) }},
		{"Replace", func() error { return r.Replace(m.Value.With("quota", vmdoc.IntValue(1))) }},
		{"Edit", func() error {
			return r.Edit(m.UUID, func(v vmdoc.Value) vmdoc.Value { return v.With("quota", vmdoc.IntValue(2)) })
		}},
	} {
		if step.name != "Create" {
			if err := os.Chmod(name, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		for path, want := range map[string]os.FileMode{name: 0o600, folder: 0o700} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %s has mode %v, %v; want %v", step.name, path, info.Mode(), err, want)
			}
		}
	}
}
