package vmapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/vmobject"
	"rutter/projections"
)

// vmadmVM is a VM as vmadm has it, and vm-agent puts it.
func vmadmVM(id log.UUID, more string) string {
	return fmt.Sprintf(`{"zonename":%q,"zoneid":7,"v":1,"uuid":%q,"owner_uuid":%q,"state":"running","zone_state":"running","brand":"lx","alias":"web0",
		"quota":0,"cpu_cap":100,"ram":512,"max_physical_memory":512,"create_timestamp":"2020-01-01T00:00:00.000Z","last_modified":"2020-01-02T00:00:00.000Z",
		"boot_timestamp":"2020-01-02T00:00:00.000Z","pid":77,"resolvers":["8.8.8.8"],"routes":{},"snapshots":[],"tags":{"a":"b"},"customer_metadata":{"k":"v"},
		"internal_metadata":{},"firewall_enabled":false,"autoboot":true,"image_uuid":%q,
		"nics":[{"mac":"90:b8:d0:01:02:03","ip":"10.9.9.9","netmask":"255.0.0.0","gateway":"10.9.9.1","vlan_id":99,"nic_tag":"evil","interface":"net0","primary":true}]%s}`,
		id, id, theOwner, theNetwork, more)
}

// TestVMAgent: vm-agent's round. Its first PUT of several makes and changes VMs; what it
// then reads is equal to what it has in each field that it compares, so that a second
// start writes nothing; a VM of its own PUT changes by event; one that is gone is
// destroyed, once.
func TestVMAgent(t *testing.T) {
	m, h := world(t)
	m.feature()
	networks, nic := m.networkText(t), m.nicText(t)
	fresh := log.UUID{0xb, 15: 9}
	put := func(path, body string, status int) {
		t.Helper()
		if got, text := ask(h, http.MethodPut, path, body); got != status {
			t.Fatalf("PUT %s: %d %s", path, got, text)
		}
	}
	first := fmt.Sprintf(`{"vms":{%q:%s,%q:%s}}`, theVM, vmadmVM(theVM, ""), fresh, vmadmVM(fresh, ""))
	put("/vms?server_uuid="+theCN.String(), first, http.StatusOK)
	written := m.seq
	put("/vms?server_uuid="+theCN.String(), first, http.StatusOK)
	put("/vms/"+theVM.String(), vmadmVM(theVM, ""), http.StatusOK)
	if m.seq != written {
		t.Errorf("what is in the log already made %d events", m.seq-written)
	}
	_, text := ask(h, http.MethodGet, "/vms?state=active&server_uuid="+theCN.String(), "")
	var list []map[string]any
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != 2 {
		t.Fatalf("%v %s", err, text)
	}
	var want map[string]any
	_ = json.Unmarshal([]byte(vmadmVM(theVM, "")), &want)
	for _, vm := range list {
		if vm["uuid"] != theVM.String() {
			continue
		}
		for _, name := range vmobject.Always() {
			if _, has := vm[name]; !has {
				t.Errorf("%s is not shown", name)
			}
		}
		for name, value := range want {
			if !slices.Contains([]string{"create_timestamp", "nics", "resolvers", "routes", "v", "zoneid"}, name) && fmt.Sprint(vm[name]) != fmt.Sprint(value) {
				t.Errorf("%s is shown as %v, and is %v", name, vm[name], value)
			}
		}
		shown := vm["nics"].([]any)[0].(map[string]any)
		if shown["ip"] != "10.0.0.5" || shown["netmask"] != "255.255.255.0" || shown["interface"] != "net0" || shown["vlan_id"] != 7.0 {
			t.Errorf("the NIC is shown as %v", shown)
		}
	}
	put("/vms/"+theVM.String(), vmadmVM(theVM, `,"exit_status":0,"state":"stopped"`), http.StatusOK)
	if _, text := ask(h, http.MethodGet, "/vms/"+theVM.String()+"?fields=state,exit_status", ""); strings.TrimSpace(text) != `{"exit_status":0,"state":"stopped"}` {
		t.Errorf("after an event: %s", text)
	}
	put("/vms/"+fresh.String(), vmadmVM(fresh, `,"state":"destroyed"`), http.StatusOK)
	_, gone := ask(h, http.MethodGet, "/vms/"+fresh.String()+"?fields=state,zone_state,destroyed", "")
	if !strings.Contains(gone, `"state":"destroyed","zone_state":"destroyed"`) || strings.Contains(gone, `"destroyed":null`) {
		t.Errorf("destroyed: %s", gone)
	}
	written = m.seq
	put("/vms/"+fresh.String(), vmadmVM(fresh, `,"state":"destroyed"`), http.StatusOK)
	put("/vms/"+log.UUID{0xb, 15: 77}.String(), vmadmVM(log.UUID{0xb, 15: 77}, `,"state":"destroyed"`), http.StatusOK)
	if m.seq != written {
		t.Error("what was destroyed before is written again")
	}
	if m.networkText(t) != networks || m.nicText(t) != nic {
		t.Errorf("the report changed networks or NICs:\n%s\n%s", nic, m.nicText(t))
	}
}

func (m *memory) networkText(t *testing.T) string {
	t.Helper()
	b, err := json.Marshal(m.state.Network(theNetwork))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// nicText is the NIC without its state, which follows its VM.
func (m *memory) nicText(t *testing.T) string {
	t.Helper()
	rec, _ := m.state.Get(log.KindNIC, theMAC.String())
	nic := *rec.Object.(*log.NIC)
	nic.State, nic.Modified = "", 0
	b, err := json.Marshal(&nic)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestBadPuts: what cannot be a VM's object is refused whole, and writes nothing.
func TestBadPuts(t *testing.T) {
	m, h := world(t)
	m.feature()
	before := m.seq
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/vms", `{"vms":{}}`, 409, "server_uuid"},
		{"/vms?server_uuid=" + theCN.String(), `{}`, 409, "vms"},
		{"/vms?server_uuid=" + theCN.String(), `{"vms":{"x":{}}}`, 409, "vms"},
		{"/vms?server_uuid=" + theCN.String(), `{"vms":{"` + theVM.String() + `":[]}}`, 409, "vm"},
		{"/vms/" + theVM.String(), `{"state":"running","uuid":"` + theCN.String() + `"}`, 409, "uuid"},
		{"/vms/" + theVM.String(), `{"state":"running","uuid":"` + theVM.String() + `","owner_uuid":"me"}`, 409, "owner_uuid"},
		{"/vms/x", `{"state":"running","uuid":"x"}`, 409, "uuid"},
	} {
		if status, text := ask(h, http.MethodPut, c.path, c.body); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("PUT %s %s: %d %s", c.path, c.body, status, text)
		}
	}
	if m.seq != before {
		t.Errorf("%d events of what was refused", m.seq-before)
	}
	huge := vmadmVM(theVM, `,"customer_metadata":{"user-script":"`+strings.Repeat("x", log.MaxProperties)+`"}`)
	if status, text := ask(h, http.MethodPut, "/vms/"+theVM.String(), huge); status != http.StatusOK {
		t.Fatalf("metadata over the bound: %d %s", status, text)
	}
	if _, text := ask(h, http.MethodGet, "/vms/"+theVM.String(), ""); !strings.Contains(text, `"rutter_left_out":["customer_metadata`) || !strings.Contains(text, `"tags":{"a":"b"}`) {
		t.Errorf("what was left out is not named: %.300s", text)
	}
}

// interfering is a store in which another program writes a VM before each of the first
// changes.
type interfering struct {
	*memory
	times *int
}

func (i interfering) View(fn func(*projections.State, log.Cursor)) {
	i.memory.View(fn)
	if *i.times > 0 {
		*i.times--
		rec, _ := i.state.Get(log.KindVM, theVM.String())
		vm := *rec.Object.(*log.VM)
		properties := vmobject.Properties(&vm)
		list, _ := properties[vmobject.RoleTags].([]any)
		properties[vmobject.RoleTags] = append(list, fmt.Sprintf("564d69b1-a178-4fbe-b36f-%012d", *i.times))
		vm.Properties, _ = vmobject.Text(properties)
		_, _ = i.memory.Propose(context.Background(), &log.Change{ID: log.UUID{7, 15: byte(*i.times)}, Ops: []log.Op{{Action: log.Update, Kind: log.KindVM, ID: vm.ID(), Set: []string{"properties"}, Object: &vm}}})
	}
}

// TestWritesAtOnce: role tags that are written while a report is, and reports while role
// tags are, are not lost.
func TestWritesAtOnce(t *testing.T) {
	for name, request := range map[string][3]string{
		"a report":  {http.MethodPut, "/vms/" + theVM.String(), vmadmVM(theVM, "")},
		"role tags": {http.MethodPost, "/vms/" + theVM.String() + "/role_tags", `{"role_tags":["` + tagRed + `"]}`},
	} {
		m, _ := world(t)
		m.feature()
		times := 4
		s, err := New(Config{Store: interfering{m, &times}})
		if err != nil {
			t.Fatal(err)
		}
		status, text := ask(s.Handler(), request[0], request[1], request[2])
		rec, _ := m.state.Get(log.KindVM, theVM.String())
		vm := rec.Object.(*log.VM)
		want := 4
		if name == "role tags" {
			want++
		} else if vm.Brand != "lx" {
			t.Errorf("%s is lost: %+v", name, vm)
		}
		if status != http.StatusOK || len(vmobject.RoleTagsOf(vm)) != want {
			t.Errorf("%s: %d %s; %v", name, status, text, vmobject.RoleTagsOf(vm))
		}
	}
}

// TestTags: role tags are the log's; tags and metadata are read from it, and changed by
// the VM's compute node, if it has our agent.
func TestTags(t *testing.T) {
	m, h := world(t)
	m.feature()
	vm := "/vms/" + theVM.String()
	if status, text := ask(h, http.MethodPut, vm, vmadmVM(theVM, "")); status != http.StatusOK {
		t.Fatal(status, text)
	}
	const second = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed02"
	m.agent(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/tags", "", 200, `{"a":"b"}`},
		{"GET", "/tags/a", "", 200, `"b"`},
		{"GET", "/tags/c", "", 404, "Metadata key not found"},
		{"GET", "/customer_metadata", "", 200, `{"k":"v"}`},
		{"GET", "/internal_metadata", "", 200, `{}`},
		{"POST", "/tags", `{"c":1,"d":true}`, 202, "job_uuid"},
		{"POST", "/tags", `{}`, 409, "Invalid Metadata parameters"},
		{"POST", "/tags", `{"c":{}}`, 409, "ValidationFailed"},
		{"PUT", "/customer_metadata", `{"n":"m"}`, 202, "job_uuid"},
		{"DELETE", "/tags/a", "", 202, "job_uuid"},
		{"DELETE", "/tags/c", "", 404, "ResourceNotFound"},
		{"DELETE", "/tags", "", 202, "job_uuid"},
		{"POST", "/role_tags", `{"role_tags":["` + tagRed + `"]}`, 200, `["` + tagRed + `"]`},
		{"POST", "/role_tags", `{"role_tags":["` + second + `"]}`, 200, `["` + tagRed + `","` + second + `"]`},
		{"PUT", "/role_tags", `{"role_tags":["` + second + `"]}`, 200, `["` + second + `"]`},
		{"PUT", "/role_tags", `{"role_tags":["x"]}`, 409, "Invalid Role Tags"},
		{"PUT", "/role_tags", `{"role_tags":[]}`, 409, "Must be an array of UUIDs"},
		{"DELETE", "/role_tags/" + tagRed, "", 404, "Role Tag not found"},
		{"DELETE", "/role_tags/" + second, "", 200, "[]"},
		{"DELETE", "/role_tags", "", 200, ""},
		{"GET", "?fields=role_tags", "", 200, `{"role_tags":[]}`},
	} {
		if status, text := ask(h, c.method, vm+c.path, c.body); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s %s %s: %d %s, want %d %s", c.method, c.path, c.body, status, text, c.status, c.want)
		}
	}
	var params []string
	for _, e := range m.events {
		if task, is := e.Object.(*log.Task); is {
			params = append(params, task.Params)
		}
	}
	id := `"uuid":"` + theVM.String() + `"}`
	want := []string{`{"set_tags":{"c":1,"d":true},` + id, `{"remove_customer_metadata":["k"],"set_customer_metadata":{"n":"m"},` + id, `{"remove_tags":["a"],` + id, `{"remove_tags":["a"],` + id}
	if !slices.Equal(params, want) {
		t.Errorf("tasks %q, want %q", params, want)
	}
}

// agent gives the compute node of the test Rutter's agent.
func (m *memory) agent(t *testing.T) {
	t.Helper()
	info := fmt.Sprintf(`{"UUID":%q,"Hostname":"cn1","Rutter Agent":"1"}`, theCN)
	result, err := m.Propose(t.Context(), &log.Change{ID: log.UUID{5}, Ops: []log.Op{{Action: log.Update, Kind: log.KindServer, ID: theCN.String(), Set: []string{"sysinfo"}, Object: &log.Server{Sysinfo: info}}}})
	if err != nil || result.Refusal != nil {
		t.Fatal(err, result.Refusal)
	}
}

// TestActions: an action of a VM on a node with our agent is a task of that node, and a
// job that can be read; of one without it, and what no agent does, is refused with the
// name of the setting.
func TestActions(t *testing.T) {
	m, h := world(t)
	m.feature()
	vm := "/vms/" + theVM.String()
	for _, path := range []string{vm + "?action=start&x=1", vm + "?action=create_snapshot", vm + "?action=migrate", vm + "?action=add_nics", vm + "?action=remove_nics"} {
		if status, text := ask(h, http.MethodPost, path, `{"idempotent":true}`); status != http.StatusNotImplemented || !strings.Contains(text, "--vmapi-behind") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	m.agent(t)
	wants := map[string]string{"stop": "machine_shutdown", "reboot": "machine_reboot", "kill": "machine_shutdown"}
	for _, action := range slices.Sorted(maps.Keys(wants)) {
		status, text := ask(h, http.MethodPost, vm+"?action="+action+"&sync=false", `{}`)
		task, is := m.events[len(m.events)-1].Object.(*log.Task)
		if status != http.StatusAccepted || !is || task.Task != wants[action] || task.ServerUUID != theCN || !strings.Contains(text, task.UUID.String()) || strings.Contains(task.Params, "force") != (action == "kill") {
			t.Errorf("%s: %d %s, %+v", action, status, text, task)
		}
		if status, text := ask(h, http.MethodGet, "/jobs/"+task.UUID.String(), ""); status != http.StatusOK || !strings.Contains(text, `"execution":"queued"`) || !strings.Contains(text, theVM.String()) {
			t.Errorf("its job: %d %s", status, text)
		}
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", vm + "?action=start", `{}`, 409, "the VM is running"},
		{"POST", vm, `{"action":"start","idempotent":true}`, 202, "job_uuid"},
		{"POST", vm + "?action=kill", `{"signal":"SIGHUP"}`, 409, "signal"},
		{"POST", vm + "?action=stop&owner_uuid=" + theCN.String(), `{}`, 404, "VM not found"},
		{"POST", "/vms/" + newVM.String() + "?action=start", `{"idempotent":true}`, 409, "UnallocatedVM"},
		{"DELETE", "/vms/" + newVM.String(), "", 409, "UnallocatedVM"},
		{"DELETE", vm, "", 202, "job_uuid"},
		{"GET", vm + "/jobs?task=destroy", "", 200, `"name":"destroy"`},
		{"GET", vm + "/jobs?execution=failed", "", 200, `[]`},
		{"GET", vm + "/jobs?offset=9223372036854775807&limit=1000", "", 200, `[]`},
		{"GET", "/jobs/" + theVM.String(), "", 404, "ResourceNotFound"},
		{"POST", "/job_results", `{"execution":"failed","vm_uuid":"` + newVM.String() + `"}`, 200, ""},
		{"GET", "/vms/" + newVM.String() + "?fields=state,zone_state", "", 200, `{"state":"failed","zone_state":"failed"}`},
		{"POST", "/job_results", `{"execution":"succeeded","vm_uuid":"` + theVM.String() + `"}`, 200, ""},
		{"GET", "/vms/" + theVM.String() + "?fields=state", "", 200, `{"state":"running"}`},
	} {
		if status, text := ask(h, c.method, c.path, c.body); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s %s %s: %d %s, want %d %s", c.method, c.path, c.body, status, text, c.status, c.want)
		}
	}
}

// TestLargeVM: of a VM whose object is larger than the log keeps of one, the largest part
// is left out, which is named, and the rest is taken, also beside role tags; a smaller
// report brings it back. kernel_ips, which a node tells its own programs, is not kept.
func TestLargeVM(t *testing.T) {
	m, h := world(t)
	m.feature()
	vm := "/vms/" + theVM.String()
	report := func(script string) string {
		return vmadmVM(theVM, `,"customer_metadata":{"user-script":"`+script+`","small":"s"},"nics":[{"mac":"90:b8:d0:01:02:03","interface":"net0","kernel_ips":["10.0.0.5/24"]}]`)
	}
	var roles []string
	for i := range maxRoleTags {
		roles = append(roles, fmt.Sprintf("%q", uuidOf(i)))
	}
	if status, text := ask(h, http.MethodPost, vm+"/role_tags", `{"role_tags":[`+strings.Join(roles, ",")+`]}`); status != http.StatusOK {
		t.Fatal(status, text)
	}
	for _, c := range []struct {
		size int // of the largest part
		left bool
	}{{200 << 10, true}, {log.MaxProperties - 1<<10, true}, {1 << 10, false}, {log.MaxProperties, true}} {
		if status, text := ask(h, http.MethodPut, vm, report(strings.Repeat("x", c.size))); status != http.StatusOK {
			t.Fatalf("%d bytes: %d %.300s", c.size, status, text)
		}
		_, text := ask(h, http.MethodGet, vm+"?fields=*", "")
		if c.left != strings.Contains(text, `"rutter_left_out":["customer_metadata.user-script"]`) || c.left == strings.Contains(text, `"user-script":"xxx`) || !strings.Contains(text, `"small":"s"`) {
			t.Errorf("%d bytes, left out: %t: %.300s", c.size, c.left, text)
		}
		if !strings.Contains(text, uuidOf(maxRoleTags-1)) || !strings.Contains(text, `"interface":"net0"`) || strings.Contains(text, "kernel_ips") {
			t.Errorf("%d bytes: role tags or NICs differ: %.300s", c.size, text)
		}
	}
}
