package vmapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/api/triton/internal/provision"
	"rutter/log"
	"rutter/log/vmobject"
	"rutter/projections"
	"rutter/projections/designation"
)

// placing is a server of VMAPI that chooses compute nodes, over a log with one node that
// has Rutter's agent and room for few VMs.
func placing(t *testing.T, edit func(*Config)) (*memory, http.Handler) {
	t.Helper()
	m, _ := world(t)
	m.feature()
	info := fmt.Sprintf(`{"UUID":%q,"Hostname":"cn1","Rutter Agent":"1","Setup":"true","CPU Total Cores":4,"MiB of Memory":"4096","Live Image":"20260101T000000Z","Network Interfaces":{"e0":{"MAC Address":"00:50:56:0c:0d:31","ip4addr":"","Link Status":"up","NIC Names":["ext"]}}}`, theCN)
	m.do(t, log.Op{Action: log.Update, Kind: log.KindServer, ID: theCN.String(), Set: []string{"ram", "setup", "sysinfo"}, Object: &log.Server{Sysinfo: info, Setup: true, RAM: 4096}})
	var drawn struct {
		sync.Mutex
		n byte
	}
	var memo designation.Memo
	cfg := Config{
		Store: m,
		NewID: func() (log.UUID, error) {
			drawn.Lock()
			defer drawn.Unlock()
			drawn.n++
			return log.UUID{0xd, 6: 0x70, 8: 0x80, 15: drawn.n}, nil
		},
		Place: func(_ *http.Request, req *designation.Request) (*designation.Result, error) {
			d := designation.Standard()
			return designation.Allocate(func(fn func(*projections.State)) {
				m.View(func(state *projections.State, _ log.Cursor) { fn(state) })
			}, &memo, &d, req), nil
		},
	}
	if edit != nil {
		edit(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m, s.Handler()
}

// do writes operations directly, as an agent or an operator does.
func (m *memory) do(t *testing.T, ops ...log.Op) {
	t.Helper()
	result, err := m.Propose(t.Context(), &log.Change{ID: randomUUID(), Ops: ops})
	if err != nil || result.Refusal != nil {
		t.Fatal(err, result.Refusal)
	}
}

// get is an object of the log; nil: there is none.
func get[T log.Object](m *memory, kind log.Kind, id string) (o T) {
	m.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(kind, id); ok {
			o = rec.Object.(T)
		}
	})
	return o
}

// answered reads the ids of a 202.
func answered(t *testing.T, status int, text string) (vm, job string) {
	t.Helper()
	var a struct {
		VM  string `json:"vm_uuid"`
		Job string `json:"job_uuid"`
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil || status != http.StatusAccepted || a.VM == "" || a.Job == "" {
		t.Fatalf("%d %s, want 202 with vm_uuid and job_uuid", status, text)
	}
	return a.VM, a.Job
}

func newMachine(more string) string {
	return fmt.Sprintf(`{"owner_uuid":%q,"brand":"joyent","ram":512,"networks":[{"uuid":%q}]%s}`, theOwner, theNetwork, more)
}

// nicsOfVM are the NICs that the log has of a VM.
func (m *memory) nicsOfVM(vm string) (nics []*log.NIC) {
	id, _ := log.ParseUUID(vm)
	m.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.NICsOf(id) {
			nics = append(nics, rec.Object.(*log.NIC))
		}
	})
	return nics
}

// TestCreate: POST /vms makes the VM, its NICs and the node's task in one change, on the
// server that is named or that is fit; the job can be read.
func TestCreate(t *testing.T) {
	m, h := placing(t, nil)
	before := len(m.events)
	status, text := ask(h, "POST", "/vms", newMachine(fmt.Sprintf(`,"server_uuid":%q,"alias":"new0","quota":"10","tags":{"role":"web"},"customer_metadata":{"secret":"s"},"role_tags":["%s"],"state":"running","sync":"false"`, theCN, tagRed)))
	vm, job := answered(t, status, text)
	made := m.events[before:]
	kinds := make([]string, len(made))
	for i, e := range made {
		kinds[i] = e.Kind.String()
		if e.ChangeID != made[0].ChangeID {
			t.Errorf("event %d is of another change", i)
		}
	}
	if !slices.Equal(kinds, []string{"vm", "nic", "task"}) {
		t.Errorf("made %v, want a VM, its NIC and its task", kinds)
	}
	o := get[*log.VM](m, log.KindVM, vm)
	if o.State != "provisioning" || o.ServerUUID != theCN || o.Alias != "new0" || o.MaxPhysicalMemory != 512 || o.Quota != 10 || strings.Contains(o.Properties, "secret") || !strings.Contains(o.Properties, `"role":"web"`) || !strings.Contains(o.Properties, tagRed) {
		t.Errorf("the log has %+v", o)
	}
	nics := m.nicsOfVM(vm)
	if len(nics) != 1 || !nics[0].Primary || nics[0].CNUUID != theCN || nics[0].NetworkUUID != theNetwork || !nics[0].IP.IsValid() || nics[0].State != provision.Unmade {
		t.Errorf("NICs %+v", nics)
	}
	task := get[*log.Task](m, log.KindTask, job)
	for _, want := range []string{`"alias":"new0"`, `"customer_metadata":{"secret":"s"}`, `"max_physical_memory":512`, `"quota":10`, `"mac":"` + nics[0].MAC.String(), `"networks":`} {
		if task.Task != "machine_create" || !strings.Contains(task.Params, want) {
			t.Errorf("the task is %s %s, want %s", task.Task, task.Params, want)
		}
	}
	for _, never := range []string{`"state"`, `"server_uuid"`, `"sync"`, `"role_tags"`} {
		if strings.Contains(task.Params, never) {
			t.Errorf("the task has %s: %s", never, task.Params)
		}
	}
	if status, text := ask(h, "GET", "/jobs/"+job, ""); status != 200 || !strings.Contains(text, `"name":"provision"`) || !strings.Contains(text, `"execution":"queued"`) {
		t.Errorf("its job: %d %s", status, text)
	}
	if status, text := ask(h, "GET", "/vms/"+vm+"?owner_uuid="+theOwner.String(), ""); status != 200 || !strings.Contains(text, `"state":"provisioning"`) {
		t.Errorf("its VM: %d %s", status, text)
	}
	// No server is named: one is chosen.
	status, text = ask(h, "POST", "/vms", newMachine(`,"quota":1,"uuid":"`+uuidOf(7)+`"`))
	if vm, _ = answered(t, status, text); vm != uuidOf(7) || get[*log.VM](m, log.KindVM, vm).ServerUUID != theCN {
		t.Errorf("placed: %s", text)
	}
	m.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.TicketsBy(true) {
			t.Errorf("ticket %+v is left", rec.Object)
		}
	})
}

// TestCreateAtOnce: many requests at once do not get more than the node has, because each
// is placed when the VM before it is in the log.
func TestCreateAtOnce(t *testing.T) {
	m, h := placing(t, nil)
	var mu sync.Mutex
	got := map[int]int{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			status, text := ask(h, "POST", "/vms", newMachine(`,"max_physical_memory":1024,"ram":1024`))
			mu.Lock()
			defer mu.Unlock()
			if got[status]++; status != 202 && !strings.Contains(text, "NoAllocatableServersError") {
				t.Errorf("%d %s", status, text)
			}
		})
	}
	all.Wait()
	if got[202] != 3 || got[409] != 5 { // 4,096 MiB, of which 0.15 are kept back
		t.Errorf("answered %v, want 3 VMs made and 5 refused", got)
	}
	if n := len(m.ticketsLeft()); n != 0 {
		t.Errorf("%d tickets are left", n)
	}
}

func (m *memory) ticketsLeft() (left []string) {
	m.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.TicketsBy(true) {
			left = append(left, rec.Object.ID())
		}
	})
	return left
}

// TestBadMachines: what is wrong with a new VM is refused with the field and VMAPI's code,
// and nothing is made.
func TestBadMachines(t *testing.T) {
	m, h := placing(t, nil)
	_, bare := placing(t, func(c *Config) { c.Place = nil })
	_, narrow := placing(t, func(c *Config) { c.Programs = func(*http.Request) bool { return false } })
	full := func(name, value string) string {
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(newMachine("")), &object); err != nil {
			t.Fatal(err)
		}
		if object[name] = json.RawMessage(value); value == "" {
			delete(object, name)
		}
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := m.seq
	for _, c := range []struct {
		body, field, code string
	}{
		{full("owner_uuid", ""), "owner_uuid", codeMissing},
		{full("owner_uuid", `"x"`), "owner_uuid", "Invalid"},
		{full("brand", ""), "brand", codeMissing},
		{full("brand", `"vax"`), "brand", "Invalid"},
		{full("ram", ""), "ram", codeMissing},
		{full("ram", `0`), "ram", "Invalid"},
		{full("ram", `1e99`), "ram", "Invalid"},
		{full("quota", `-1`), "quota", "Invalid"},
		{full("networks", ""), "networks", codeMissing},
		{full("networks", `[]`), "networks", "Invalid"},
		{full("networks", `[null]`), "networks", "Invalid"},
		{full("networks", `[7]`), "networks", "Invalid"},
		{full("networks", `{"a":1}`), "networks", "Invalid"},
		{full("networks", `["`+uuidOf(1)+`"]`), "networks", "Invalid"},
		{full("networks", `[{"name":"none"}]`), "networks", "Invalid"},
		{full("networks", fmt.Sprintf(`[{"uuid":%q,"primary":true},{"uuid":%q,"primary":true}]`, theNetwork, theNetwork)), "networks", "Invalid"},
		{full("alias", `"-x"`), "alias", "Invalid"},
		{full("alias", `"web0"`), "alias", "Duplicate"},
		{full("uuid", `"`+theVM.String()+`"`), "uuid", "Duplicate"},
		{full("server_uuid", `"`+uuidOf(3)+`"`), "server_uuid", "Invalid"},
		{full("role_tags", `["x"]`), "role_tags", "Invalid"},
		{full("customer_metadata", `{"a":{}}`), "customer_metadata", "Invalid"},
		{full("locality", `{"near":7}`), "vm", "Invalid"},
		{full("affinity", `7`), "affinity", "Invalid"},
		{`[]`, "body", "Invalid"},
		{`null`, "body", "Invalid"},
		{``, "body", "Invalid"},
	} {
		status, text := ask(h, "POST", "/vms", c.body)
		var p struct {
			Code   string
			Errors []log.FieldError
		}
		_ = json.Unmarshal([]byte(text), &p)
		if status != 409 || p.Code != "ValidationFailed" || !slices.ContainsFunc(p.Errors, func(e log.FieldError) bool { return e.Field == c.field && e.Code == c.code }) {
			t.Errorf("%s: %d %s, want 409 with %s of %s", c.body, status, text, c.code, c.field)
		}
	}
	for _, c := range []struct {
		h      http.Handler
		body   string
		status int
		want   string
	}{
		{bare, newMachine(""), 501, "server_uuid"},
		{h, newMachine(`,"firewall_rules":[{}]`), 501, "firewall rules"},
		{h, newMachine(`,"volumes":[{}]`), 501, "NFS volumes"},
		{narrow, newMachine(`,"init":["/bin/sh"]`), 403, "init"},
		{h, full("ram", `999999`), 409, "NoAllocatableServersError"},
		{h, full("networks", fmt.Sprintf(`[{"uuid":%q,"ip":"10.0.0.5"}]`, theNetwork)), 422, `"field":"ip","code":"UsedBy"`},
	} {
		if status, text := ask(c.h, "POST", "/vms", c.body); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s, want %d %s", c.body, status, text, c.status, c.want)
		}
	}
	if left := m.ticketsLeft(); len(left) > 0 {
		t.Errorf("tickets %v are left", left)
	}
	m.do(t, log.Op{Action: log.Update, Kind: log.KindServer, ID: theCN.String(), Set: []string{"sysinfo"}, Object: &log.Server{Sysinfo: "{}"}})
	for body, want := range map[string]string{newMachine(`,"server_uuid":"` + theCN.String() + `"`): "no agent of Rutter", newMachine(""): "NoAllocatableServersError"} {
		if status, text := ask(h, "POST", "/vms", body); status < 409 || !strings.Contains(text, want) {
			t.Errorf("no agent: %d %s", status, text)
		}
	}
	for _, e := range m.events[before:] {
		if e.Kind == log.KindVM || e.Kind == log.KindTask || e.Kind == log.KindNIC {
			t.Errorf("made: %v", e.Object)
		}
	}
}

// TestNICActions: add_nics makes NICs with the node's task, in one change; remove_nics is
// a task alone.
func TestNICActions(t *testing.T) {
	m, h := placing(t, nil)
	vm := "/vms/" + theVM.String()
	status, text := ask(h, "POST", vm+"?action=add_nics", fmt.Sprintf(`{"networks":[{"ipv4_uuid":%q,"ipv4_ips":["10.0.0.66"],"primary":true,"allow_ip_spoofing":"true"}]}`, theNetwork))
	_, job := answered(t, status, text)
	added := slices.DeleteFunc(m.nicsOfVM(theVM.String()), func(n *log.NIC) bool { return n.MAC == theMAC })
	if len(added) != 1 || added[0].IP.String() != "10.0.0.66" || !added[0].Primary || !added[0].AllowIPSpoofing || added[0].CNUUID != theCN || added[0].OwnerUUID != theOwner {
		t.Fatalf("added %+v", added)
	}
	mac := added[0].MAC.String()
	if task := get[*log.Task](m, log.KindTask, job); task.Task != "machine_update" || !strings.Contains(task.Params, `"add_nics":[{"mac":"`+mac) {
		t.Errorf("task %+v", task)
	}
	if status, text := ask(h, "GET", vm+"/jobs?task=add_nics", ""); status != 200 || !strings.Contains(text, job) {
		t.Errorf("its job: %d %s", status, text)
	}
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"add_nics", `{"macs":["` + mac + `"]}`, 202, "job_uuid"},
		{"remove_nics", `{"macs":["` + strings.ReplaceAll(mac, ":", "") + `"]}`, 202, "job_uuid"},
		{"remove_nics", `{"mac":"` + mac + `"}`, 202, "job_uuid"},
		{"add_nics", `{}`, 409, "macs"},
		{"add_nics", `{"networks":7}`, 409, "networks"},
		{"add_nics", `{"networks":[{"name":"none"}]}`, 409, "none"},
		{"add_nics", `{"macs":["90:b8:d0:00:00:01"]}`, 409, "not found"},
		{"remove_nics", `{"macs":["` + mac + `","` + mac + `"]}`, 409, "twice"},
		{"remove_nics", `{"macs":[]}`, 409, "macs"},
		{"remove_nics", `{"macs":{}}`, 409, "macs"},
		{"remove_nics", `{"macs":[7]}`, 409, "no MAC"},
		{"add_nics&owner_uuid=" + theCN.String(), `{}`, 404, "VM not found"},
	} {
		if status, text := ask(h, "POST", vm+"?action="+c.path, c.body); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s %s: %d %s, want %d %s", c.path, c.body, status, text, c.status, c.want)
		}
	}
	if status, text := ask(h, "POST", "/vms/"+newVM.String()+"?action=add_nics", `{}`); status != 409 || !strings.Contains(text, "UnallocatedVM") {
		t.Errorf("a VM on no node: %d %s", status, text)
	}
}

// later is the log's time d after the tests' begin.
func later(d time.Duration) log.Time { return log.Time(1e18) + log.Time(d) }

// asking sends a request, and returns a channel with its answer.
func asking(ctx context.Context, h http.Handler, method, path, body string) <-chan *httptest.ResponseRecorder {
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
		done <- w
	}()
	return done
}

// taken waits for a task of the node that is open, and claims it.
func (m *memory) taken(t *testing.T) *log.Task {
	t.Helper()
	var task *log.Task
	for task == nil {
		changed := m.Changed()
		m.View(func(state *projections.State, _ log.Cursor) {
			for rec := range state.OpenTasksOn(theCN) {
				task = rec.Object.(*log.Task)
			}
		})
		if task == nil {
			<-changed
		}
	}
	m.do(t, log.Op{Action: log.Update, Kind: log.KindTask, ID: task.ID(), Set: []string{"claimed_by", "status"}, Object: &log.Task{ClaimedBy: 1, Status: log.TaskActive}})
	return task
}

func (m *memory) ended(t *testing.T, task *log.Task, status, failure, result string) {
	t.Helper()
	m.do(t, log.Op{Action: log.Update, Kind: log.KindTask, ID: task.ID(), Set: []string{"claimed_by", "failure", "result", "status"}, Object: &log.Task{ClaimedBy: 1, Status: status, Failure: failure, Result: result}})
}

func (m *memory) reported(t *testing.T, vm log.UUID, state string, at log.Time) {
	t.Helper()
	m.do(t, log.Op{Action: log.Update, Kind: log.KindVM, ID: vm.String(), Set: []string{"last_modified", "state"}, Object: &log.VM{State: state, LastModified: at}})
}

// none fails if there is an answer already.
func none(t *testing.T, answer <-chan *httptest.ResponseRecorder, why string) {
	t.Helper()
	time.Sleep(3 * wakeGather) // an answer that is too early comes within it; a late one is no failure
	select {
	case w := <-answer:
		t.Fatalf("answered %d %s %s", w.Code, w.Body, why)
	default:
	}
}

// TestSync: the answer to sync=true comes when the task has ended and the log has what the
// node says since, so that the next read shows it; a failed task is the answer.
func TestSync(t *testing.T) {
	m, h := placing(t, nil)
	vm := "/vms/" + theVM.String()
	result := func(state string, at log.Time) string {
		return fmt.Sprintf(`{"vm":{"last_modified":%q,"state":%q}}`, at, state)
	}
	answer := asking(t.Context(), h, "POST", vm+"?action=stop&sync=true", `{}`)
	task := m.taken(t)
	none(t, answer, "while the task is active")
	m.ended(t, task, log.TaskComplete, "", result("stopped", later(time.Second)))
	none(t, answer, "before the node's report")
	m.do(t, log.Op{Action: log.Update, Kind: log.KindVM, ID: theVM.String(), Set: []string{"alias", "last_modified"}, Object: &log.VM{Alias: "other", LastModified: later(time.Millisecond)}})
	none(t, answer, "after an older report")
	m.reported(t, theVM, "stopped", later(time.Second))
	if w := <-answer; w.Code != 202 || !strings.Contains(w.Body.String(), task.ID()) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	// A VM that went on before the task's result came, as one that ended at once.
	answer = asking(t.Context(), h, "POST", vm, `{"action":"start","sync":"true"}`)
	task = m.taken(t)
	m.reported(t, theVM, "stopped", later(3*time.Second))
	m.ended(t, task, log.TaskComplete, "", result("running", later(2*time.Second)))
	if w := <-answer; w.Code != 202 {
		t.Errorf("it went on: %d %s", w.Code, w.Body)
	}
	answer = asking(t.Context(), h, "POST", vm+"?action=start&sync=true", `{}`)
	m.ended(t, m.taken(t), log.TaskFailure, "it has no init", "")
	if w := <-answer; w.Code != 500 || !strings.Contains(w.Body.String(), `"it has no init"`) || !strings.Contains(w.Body.String(), `"code":"Error"`) {
		t.Errorf("a failure: %d %s", w.Code, w.Body)
	}
	answer = asking(t.Context(), h, "POST", vm+"?action=remove_nics&sync=true", `{"macs":["`+theMAC.String()+`"]}`)
	m.ended(t, m.taken(t), log.TaskComplete, "", result("stopped", later(3*time.Second)))
	none(t, answer, "while the log has the NIC")
	m.do(t, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: theMAC.String()})
	if w := <-answer; w.Code != 202 {
		t.Errorf("remove_nics: %d %s", w.Code, w.Body)
	}
	answer = asking(t.Context(), h, "POST", "/vms?sync=true", newMachine(`,"server_uuid":"`+theCN.String()+`"`))
	task = m.taken(t)
	made := projections.VMOfTask(task)
	m.ended(t, task, log.TaskComplete, "", result("running", later(4*time.Second)))
	none(t, answer, "while the log has the VM as provisioning")
	m.reported(t, made, "running", later(4*time.Second))
	if w := <-answer; w.Code != 202 || !strings.Contains(w.Body.String(), made.String()) {
		t.Errorf("create: %d %s", w.Code, w.Body)
	}
	answer = asking(t.Context(), h, "DELETE", "/vms/"+made.String()+"?sync=true", "")
	m.ended(t, m.taken(t), log.TaskComplete, "", "")
	none(t, answer, "while the log has the VM")
	for _, nic := range m.nicsOfVM(made.String()) {
		m.do(t, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: nic.MAC.String()})
	}
	m.do(t, log.Op{Action: log.Delete, Kind: log.KindVM, ID: made.String()})
	if w := <-answer; w.Code != 202 {
		t.Errorf("delete: %d %s", w.Code, w.Body)
	}
	// A client that is gone waits no longer.
	ctx, cancel := context.WithCancel(t.Context())
	answer = asking(ctx, h, "POST", vm+"?action=start&sync=true", `{}`)
	m.taken(t)
	cancel()
	<-answer
}

// TestRequestsOwnFields: what is the request's does not reach the node's manifest.
func TestRequestsOwnFields(t *testing.T) {
	m, h := placing(t, nil)
	status, text := ask(h, "POST", "/vms/"+theVM.String(), `{"action":"update","alias":"x","sync":"false","context":{},"origin":"cloudapi","creator_uuid":"`+uuidOf(1)+`"}`)
	_, job := answered(t, status, text)
	object, err := vmobject.Parse([]byte(get[*log.Task](m, log.KindTask, job).Params))
	if err != nil || len(object) != 2 || object["alias"] != "x" {
		t.Errorf("the node is asked for %v, want the alias", object)
	}
}

// TestSyncFlood: so many answers to sync=true wait at a server, and no more: the next is
// refused before anything is written.
func TestSyncFlood(t *testing.T) {
	m, _ := placing(t, nil)
	s, err := New(Config{Store: m, SyncWaits: 1})
	if err != nil {
		t.Fatal(err)
	}
	h, vm := s.Handler(), "/vms/"+theVM.String()
	answer := asking(t.Context(), h, "POST", vm+"?action=stop&sync=true", `{}`)
	task := m.taken(t)
	for s.waits.waiting.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	before := m.seq
	for _, one := range []struct{ method, path, body string }{
		{"POST", vm + "?action=stop&sync=true", `{}`},
		{"POST", vm, `{"action":"stop","sync":"true"}`},
		{"DELETE", vm + "?sync=true", ""},
		{"POST", "/vms?sync=true", newMachine(`,"server_uuid":"` + theCN.String() + `"`)},
	} {
		if status, body := ask(h, one.method, one.path, one.body); status != http.StatusServiceUnavailable || !strings.Contains(body, "Overloaded") {
			t.Errorf("%s %s while one waits: %d %s", one.method, one.path, status, body)
		}
	}
	if m.seq != before {
		t.Error("a request that was refused has written")
	}
	m.ended(t, task, log.TaskFailure, "no", "")
	<-answer
	if n := s.waits.waiting.Load(); n != 0 {
		t.Errorf("%d wait after the last answer", n)
	}
}
