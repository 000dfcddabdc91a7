package vmrun

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rutter/agent/vminfo/internal/vmtest"
	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
)

func manifestFor(t *testing.T, fields string) system.Manifest {
	t.Helper()
	m, err := system.ParseManifest(fmt.Appendf(nil, `{"uuid":%q%s}`, vmID(1).String(), fields))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestProgram(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	kvm := `,"brand":"kvm","ram":512,"vcpus":2,"disks":[{"path":"/dev/zvol/a"}],"root":"/vms/a","init":["/sbin/init"],"qemu_extra_opts":["-cpu","max"]`
	if p, err := programOf(manifestFor(t, kvm)); err != nil || !slices.Equal(p.line, []string{"/sbin/init"}) || p.root != "/vms/a" {
		t.Errorf("without QEMU: %+v, %v", p, err)
	}
	for _, name := range system.QEMUNames {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path, err := system.QEMU()
	if err != nil {
		t.Skipf("nobody knows the name of QEMU for this machine: %v", err)
	}
	p, err := programOf(manifestFor(t, kvm))
	if err != nil || !slices.Equal(p.line, []string{path}) || p.root != "" || p.machine == nil {
		t.Errorf("with QEMU: %+v, %v", p, err)
	}
	for fields, want := range map[string]string{
		``: "sleep infinity",
		`,"brand":"joyent","root":"/r","init":["a","b"]`: "a b",
		`,"init":["a"]`:               "put the VM's files into a folder",
		`,"init":[]`:                  "init is no list",
		`,"init":[1]`:                 "init is no list",
		`,"brand":"kvm","disks":[{}]`: "disks.0.path",
	} {
		p, err := programOf(manifestFor(t, fields))
		if got := strings.Join(p.line, " ") + fmt.Sprint(err); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, %v, want %s", fields, p.line, err, want)
		}
	}
}

// TestRunnerElsewhere: namespaces in another folder than ip-netns(8)'s are used,
// and not made.
func TestRunnerElsewhere(t *testing.T) {
	s := vmtest.NewSite(t)
	s.WriteVM(1, "")
	runner, err := New(Config{Manifests: s.Manifests, PIDs: s.PIDs, Cgroup: s.Cgroups, NetNS: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := runner.Prepare(t.Context(), vmID(1)); err == nil || !strings.Contains(err.Error(), "make it there") {
		t.Errorf("Prepare: %v", err)
	}
}

func TestRunnerManifests(t *testing.T) {
	s := vmtest.NewSite(t)
	s.Run(0)
	runner, err := New(Config{Manifests: s.Manifests, PIDs: s.PIDs, Cgroup: s.Cgroups})
	if err != nil {
		t.Fatal(err)
	}
	vm := manifestFor(t, `,"quota":1`)
	if err := runner.Create(vm.Value); err != nil {
		t.Fatal(err)
	}
	e := s.Until(0, `"quota":1`)
	if err := runner.Create(vm.Value); err == nil || !strings.Contains(err.Error(), "has a manifest already") {
		t.Errorf("a second Create: %v", err)
	}
	if err := runner.Replace(vm.Value.With("quota", vmdoc.IntValue(2))); err != nil {
		t.Fatal(err)
	}
	e = s.Until(e.Seq, `"newValue":2`)
	if err := runner.Replace(vmdoc.StringValue("a")); err == nil {
		t.Error("Replace by what is no manifest: no error")
	}
	if err := runner.Remove(t.Context(), vm.UUID); err != nil {
		t.Fatal(err)
	}
	s.Until(e.Seq, `"type":"delete"`)
	if err := runner.Remove(t.Context(), vm.UUID); err == nil || !strings.Contains(err.Error(), "no manifest") {
		t.Errorf("a second Remove: %v", err)
	}
	if names, err := os.ReadDir(s.Manifests); err != nil || len(names) != 0 {
		t.Errorf("left: %v, %v", names, err)
	}
}
