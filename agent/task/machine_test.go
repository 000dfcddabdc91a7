package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rutter/agent/internal/guesttest"
	"rutter/agent/vminfo"
	"rutter/agent/vminfo/manifests"
	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmmstate"
	"rutter/agent/vminfo/vmrun"
	"rutter/agent/vmsource"
	"rutter/log"
)

// node has VMs that are processes, as an agent has them.
type node struct {
	*Machines
	t       *testing.T
	dir     string
	cgroups string
	zone    string
	runner  *vmrun.Runner
	vmms    *vmmstate.Table
}

func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: VMs have cgroups and namespaces")
	}
	n := &node{t: t, dir: t.TempDir(), zone: fmt.Sprintf("task-%d", os.Getpid())}
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "add", n.zone+"x").CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: %s", out)
	}
	_ = exec.CommandContext(t.Context(), "ip", "netns", "del", n.zone+"x").Run() // what is left is the test's own
	n.cgroups = filepath.Join(filepath.Dir(system.DefaultCgroup()), "rutter-"+n.zone)
	if err := os.Mkdir(n.cgroups, 0o755); err != nil {
		t.Skipf("no cgroups of our own here: %v", err)
	}
	t.Cleanup(n.sweep)
	path := func(name string) string { return filepath.Join(n.dir, name) }
	folder, err := manifests.New(manifests.Config{Manifests: path("vms"), PIDs: path("run"), Cgroup: n.cgroups, Machines: path("none")})
	if err != nil {
		t.Fatal(err)
	}
	service, err := vminfo.New(vminfo.Config{Sources: []vmsource.Source{folder}})
	if err != nil {
		t.Fatal(err)
	}
	if n.runner, err = vmrun.New(vmrun.Config{Manifests: path("vms"), PIDs: path("run"), Cgroup: n.cgroups, Grace: time.Second}); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path("vms"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.vmms, err = vmmstate.New(vmmstate.Config{Folder: path("vmms"), Store: service.Store(), Ready: service.Ready(), Starter: n.runner, Adopts: []string{folder.Name()}})
	if err != nil {
		t.Fatal(err)
	}
	n.Machines = &Machines{Runner: n.runner, Store: service.Store(), VMMs: n.vmms, Programs: true}
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	parts.Go(func() { _ = service.Run(ctx, nil) })
	parts.Go(func() { _ = n.vmms.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		parts.Wait()
	})
	return n
}

// sweep ends what a test that failed has left.
func (n *node) sweep() {
	vms, _ := filepath.Glob(filepath.Join(n.cgroups, "*-*"))
	for _, vm := range vms {
		text, _ := os.ReadFile(filepath.Join(vm, "cgroup.procs"))
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	others, _ := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(n.cgroups) + "-*") // of other controllers, in version 1
	for _, vm := range append(vms, others...) {
		for range 1000 {
			if err := os.Remove(vm); err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	if err := os.Remove(n.cgroups); err != nil {
		n.t.Error(err)
	}
}

// do does a task, and returns the VM as the result has it.
func (n *node) do(kind, params string) (vm struct {
	State, Alias string
	PID          int
}, err error,
) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	result, err := n.Kinds()[kind](ctx, json.RawMessage(params))
	var shown struct{ VM json.RawMessage }
	text, failed := json.Marshal(result)
	if failed = errors.Join(failed, json.Unmarshal(text, &shown)); failed == nil && shown.VM != nil {
		failed = json.Unmarshal(shown.VM, &vm)
	}
	if failed != nil {
		n.t.Fatalf("%s: %s: %v", kind, text, failed)
	}
	return vm, err
}

func (n *node) must(kind, params string) (state string, pid int) {
	n.t.Helper()
	vm, err := n.do(kind, params)
	if err != nil {
		n.t.Fatalf("%s %s: %v", kind, params, err)
	}
	return vm.State, vm.PID
}

const machine = "5595d88c-6e4d-4bda-b58e-97dd02e30007"

// managed waits until the VM has a VMM, or has none.
func (n *node) managed(id log.UUID, want bool) {
	n.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if _, is := n.vmms.Active(id); is == want {
			return
		}
	}
	n.t.Fatalf("VM %s: whether it has a VMM is not %v", id, want)
}

// A VM is made, stopped, started, rebooted, changed and destroyed by tasks, with
// an init that ends when it is told to, and with one that must be killed.
func TestMachines(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	n := newNode(t)
	id, err := log.ParseUUID(machine)
	if err != nil {
		t.Fatal(err)
	}
	this := `{"uuid":"` + machine + `"}`
	root := guesttest.Root(t)
	for _, init := range []string{`["/guest","sleep"]`, `["/guest","stubborn"]`} {
		state, first := n.must("machine_create", fmt.Sprintf(`{"uuid":%q,"owner_uuid":%q,"alias":"a","zonename":%q,"max_physical_memory":64,"root":%q,"init":%s}`, machine, machine, n.zone, root, init))
		if state != "running" || first == 0 {
			t.Fatalf("created: it is %s, process %d", state, first)
		}
		n.managed(id, true)
		state, second := n.must("machine_reboot", this)
		if state != "running" || second == first || second == 0 {
			t.Errorf("rebooted: it is %s, process %d after %d", state, second, first)
		}
		n.managed(id, true)
		if state, third := n.must("machine_reboot", `{"uuid":"`+machine+`","force":"true"}`); state != "running" || third == second {
			t.Errorf("rebooted by force: it is %s, process %d after %d", state, third, second)
		}
		n.managed(id, true)
		if state, _ := n.must("machine_shutdown", this); state != "stopped" {
			t.Errorf("shut down: it is %s", state)
		}
		if state, _ := n.must("machine_shutdown", this); state != "stopped" {
			t.Errorf("shut down again: it is %s", state)
		}
		if state, _ := n.must("machine_boot", this); state != "running" {
			t.Errorf("booted: it is %s", state)
		}
		if state, _ := n.must("machine_boot", this); state != "running" {
			t.Errorf("booted again: it is %s", state)
		}
		if vm, err := n.do("machine_update", `{"uuid":"`+machine+`","alias":"b","max_physical_memory":128}`); err != nil || vm.Alias != "b" {
			t.Errorf("updated: %+v, %v", vm, err)
		}
		n.managed(id, true)
		n.must("machine_destroy", this)
		for _, path := range []string{filepath.Join("/run/netns", n.zone), filepath.Join(n.cgroups, machine), filepath.Join(n.dir, "run", machine+".pid"), filepath.Join(n.dir, "vms", machine+".json")} {
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left: %v", path, err)
			}
		}
		n.managed(id, false)
		if _, err := n.do("machine_destroy", this); !errors.Is(err, vmrun.ErrNoVM) {
			t.Errorf("destroyed again: %v", err)
		}
	}
}

// Once a VM's init has been killed the VM does not run, whatever its init has left.
func TestMachineWithoutInit(t *testing.T) {
	n := newNode(t)
	id, err := log.ParseUUID(machine)
	if err != nil {
		t.Fatal(err)
	}
	this := `{"uuid":"` + machine + `"}`
	_, pid := n.must("machine_create", fmt.Sprintf(`{"uuid":%q,"owner_uuid":%q,"zonename":%q,"root":%q,"init":["/guest","parent"]}`, machine, machine, n.zone, guesttest.Root(t)))
	n.managed(id, true)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	state, left := "", 0
	for deadline := time.Now().Add(time.Minute); state != "stopped" && time.Now().Before(deadline); {
		state, left = n.must("machine_update", `{"uuid":"`+machine+`","alias":"b"}`)
	}
	if state != "stopped" || left != 0 {
		t.Errorf("with its init, process %d, killed it is %s, process %d", pid, state, left)
	}
	if state, _ := n.must("machine_shutdown", this); state != "stopped" {
		t.Errorf("shut down: it is %s", state)
	}
	n.must("machine_destroy", this)
}

// A VM runs whose NICs are on no fabric, though its namespace has no link of theirs; and
// what VMAPI's jobs send beside NICs that they add, because it follows from the networks,
// is not held against them. Alone it is a wish to change a network.
func TestNICsOffFabric(t *testing.T) {
	n := newNode(t)
	asked := 0
	n.Check = func(_ context.Context, _, fields vmdoc.Value) error {
		asked++
		for _, name := range derived {
			if _, ok := fields.Get(name); ok {
				return fmt.Errorf("%s is a network's", name)
			}
		}
		return nil
	}
	nic := func(mac string) string {
		return `{"mac":"` + mac + `","nic_tag":"external","network_uuid":"6f6b2a0e-0001-4c3e-8f3a-0242ac120001","ip":"10.77.0.10","netmask":"255.255.255.0"}`
	}
	this := `{"uuid":"` + machine + `"}`
	state, _ := n.must("machine_create", fmt.Sprintf(`{"uuid":%q,"owner_uuid":%q,"zonename":%q,"nics":[%s]}`, machine, machine, n.zone, nic("02:00:00:00:00:01")))
	if state != "running" {
		t.Errorf("made: it is %s", state)
	}
	rest := `"resolvers":["8.8.8.8"],"set_routes":{}`
	n.must("machine_update", `{"uuid":"`+machine+`","add_nics":[`+nic("02:00:00:00:00:02")+`],`+rest+`}`)
	n.must("machine_update", `{"uuid":"`+machine+`","remove_nics":["02:00:00:00:00:01"],"remove_routes":[],"remove_ips":["10.77.0.10"],`+rest+`}`)
	if _, err := n.do("machine_update", `{"uuid":"`+machine+`",`+rest+`}`); err == nil || !strings.Contains(err.Error(), "is a network's") || asked != 3 {
		t.Errorf("what is a network's, alone: %v, asked %d times", err, asked)
	}
	v, err := n.runner.Manifest(mustID(t))
	if err != nil {
		t.Fatal(err)
	}
	nics, _ := v.Get("nics")
	if _, has := v.Get("resolvers"); has || len(nics.Items()) != 1 || nics.Items()[0].Text("mac") != "02:00:00:00:00:02" {
		t.Errorf("the manifest is %s", v.AppendJSON(nil))
	}
	if _, err := n.do("machine_kill", `{"uuid":"`+machine+`","signal":"SIGHUP"}`); err == nil || !strings.Contains(err.Error(), "params.signal") {
		t.Errorf("another signal: %v", err)
	}
	if state, _ := n.must("machine_kill", `{"uuid":"`+machine+`","signal":"SIGKILL"}`); state != "stopped" {
		t.Errorf("killed: it is %s", state)
	}
	if state, _ := n.must("machine_boot", this); state != "running" {
		t.Errorf("started: it is %s", state)
	}
	n.must("machine_destroy", this)
}

func mustID(t *testing.T) log.UUID {
	t.Helper()
	id, err := log.ParseUUID(machine)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestRAM: the ram of a zone is its memory limit, as for vmadm; that of a guest is its own.
func TestRAM(t *testing.T) {
	for _, c := range []struct{ brand, fields, want string }{
		{"joyent", `{"ram":64}`, `{"ram":64,"max_physical_memory":64}`},
		{"", `{"ram":64,"max_physical_memory":96}`, `{"ram":64,"max_physical_memory":96}`},
		{"kvm", `{"ram":64}`, `{"ram":64}`},
		{"lx", `{"quota":1}`, `{"quota":1}`},
	} {
		v, err := vmdoc.ParseValue([]byte(c.fields))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(withMemory(v, c.brand).AppendJSON(nil)); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.brand, c.fields, got, c.want)
		}
	}
}

// What cannot be done fails with its reason, at once.
func TestMachineFailures(t *testing.T) {
	n := newNode(t)
	create := func(more string) string {
		return fmt.Sprintf(`{"uuid":%q,"owner_uuid":%q,"zonename":%q%s}`, machine, machine, n.zone, more)
	}
	for _, c := range []struct{ kind, params, want string }{
		{"machine_boot", `{"uuid":"x"}`, "params.uuid"},
		{"machine_boot", `[]`, "params"},
		{"machine_boot", `{"uuid":"` + machine + `"}`, "no manifest"},
		{"machine_reboot", `{"uuid":"` + machine + `"}`, "no manifest"},
		{"machine_shutdown", `{"uuid":"` + machine + `"}`, "no manifest"},
		{"machine_destroy", `{"uuid":"` + machine + `"}`, "no manifest"},
		{"machine_update", `{"uuid":"` + machine + `","alias":"a"}`, "no manifest"},
		{"machine_update", `{"uuid":"` + machine + `","state":"running"}`, "params.state"},
		{"machine_create", `{"uuid":"` + machine + `"}`, "params.owner_uuid"},
		{"machine_create", `3`, "want the fields of a VM"},
		{"machine_create", create(`,"root":"` + guesttest.Root(t) + `","init":["/nowhere/init"]`), "is created, and does not run"},
		{"machine_create", create(``), "has a manifest already"},
		{"machine_destroy", `{"uuid":"` + machine + `"}`, ""},
	} {
		began := time.Now()
		_, err := n.do(c.kind, c.params)
		if took := time.Since(began); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || took > 45*time.Second {
			t.Errorf("%s %s: after %s: %v, want %q", c.kind, c.params, took, err, c.want)
		}
	}
}

// A reboot whose VM does not come again fails with what the VMM's failure says.
func TestRebootThatFails(t *testing.T) {
	n := newNode(t)
	this := `{"uuid":"` + machine + `"}`
	n.must("machine_create", fmt.Sprintf(`{"uuid":%q,"owner_uuid":%q,"zonename":%q,"root":%q,"init":["/guest","sleep"]}`, machine, machine, n.zone, guesttest.Root(t)))
	id, _ := log.ParseUUID(machine) // it is one
	n.managed(id, true)
	n.must("machine_update", `{"uuid":"`+machine+`","init":["/nowhere/init"]}`)
	if _, err := n.do("machine_reboot", this); err == nil || !strings.Contains(err.Error(), "there is no such file") {
		t.Errorf("rebooted: %v", err)
	}
	n.must("machine_destroy", this)
}

// TestProgramsAreNotChosen: a node that does not allow it takes no task that chooses
// what runs on it, and nothing of such a task is done. What root wrote on the node stays
// and runs, also after a task that changes other fields.
func TestProgramsAreNotChosen(t *testing.T) {
	n := newNode(t)
	n.Programs = false
	mark := filepath.Join(n.dir, "mark")
	vm := fmt.Sprintf(`{"uuid":%q,"owner_uuid":%q`, machine, machine)
	manifest := filepath.Join(n.dir, "vms", machine+".json")
	for more, name := range map[string]string{
		`,"init":["touch","` + mark + `"]`:                                                           "params.init",
		`,"root":"/","init":["/bin/sh"]`:                                                             "params.init, params.root",
		`,"brand":"kvm","qemu_extra_opts":["-cdrom","/x"]`:                                           "params.qemu_extra_opts",
		`,"brand":"kvm","disks":[{"path":"/dev/sda"}]`:                                               "params.disks",
		`,"zonename":"other"`:                                                                        "params.zonename",
		`,"brand":"kvm","kernel":"/etc/shadow","append":"x"`:                                         "params.append, params.kernel",
		`,"brand":"kvm","kernel":"/boot/vmlinuz","initrd":"/etc/shadow"`:                             "params.initrd, params.kernel",
		`,"brand":"kvm","accel":"tcg"`:                                                               "params.accel",
		`,"nics":[{"mac":"02:00:00:00:00:01","attach":{"kind":"tap","device":"eth1","user":65534}}]`: "params.nics",
	} {
		_, err := n.do("machine_create", vm+more+"}")
		if !errors.Is(err, ErrPrograms) || !strings.Contains(err.Error(), name+":") || !strings.Contains(err.Error(), "--allow-execute") {
			t.Errorf("create with %s: %v", more, err)
		}
		if _, err := os.Stat(manifest); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("create with %s: a manifest is there: %v", more, err)
		}
	}
	n.must("machine_create", vm+`,"autoboot":false}`)
	for _, more := range []string{
		`"init":["touch","` + mark + `"]`, `"root":"/"`, `"zonename":"other"`, `"disks":[{"path":"/dev/sda"}]`, `"kernel":"/etc/shadow"`, `"initrd":"/etc/shadow"`,
		`"nics":[{"mac":"02:00:00:00:00:01","attach":{"kind":"tap","device":"eth1"}}]`, `"add_nics":[{"mac":"02:00:00:00:00:01","attach":{"kind":"tap","device":"eth1"}}]`,
	} {
		before, _ := os.ReadFile(manifest)
		if _, err := n.do("machine_update", `{"uuid":"`+machine+`",`+more+`}`); !errors.Is(err, ErrPrograms) {
			t.Errorf("update with %s: %v", more, err)
		}
		if after, _ := os.ReadFile(manifest); string(after) != string(before) {
			t.Errorf("update with %s: the manifest has become %s", more, after)
		}
	}
	n.must("machine_destroy", `{"uuid":"`+machine+`"}`)
	if _, err := os.Stat(mark); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the program ran: %v", err)
	}
	// Root's own manifest.
	text := vm + fmt.Sprintf(`,"zonename":%q,"root":%q,"init":["/guest","sleep"]}`, n.zone, guesttest.Root(t))
	if err := errors.Join(os.WriteFile(manifest+".new", []byte(text), 0o600), os.Rename(manifest+".new", manifest)); err != nil {
		t.Fatal(err)
	}
	if state, _ := n.must("machine_boot", `{"uuid":"`+machine+`"}`); state != "running" {
		t.Errorf("booted: it is %s", state)
	}
	if vm, err := n.do("machine_update", `{"uuid":"`+machine+`","alias":"b","init":["/guest","sleep"]}`); err != nil || vm.Alias != "b" {
		t.Errorf("updated: %+v, %v", vm, err)
	}
	if _, err := n.do("machine_update", `{"uuid":"`+machine+`","init":null}`); !errors.Is(err, ErrPrograms) {
		t.Errorf("without an init: %v", err)
	}
	n.must("machine_destroy", `{"uuid":"`+machine+`"}`)
}
