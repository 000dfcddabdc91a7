package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/log"
)

// taskAnswer is what a server says of a task.
type taskAnswer struct {
	ID      log.UUID `json:"id"`
	JobUUID log.UUID `json:"job_uuid"`
	Status  string   `json:"status"`
	Failure string   `json:"failure"`
}

// at asks one server, and returns its status.
func (a *netAgent) at(s *bench.Server, method, path, body string) (status int, answer taskAnswer) {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		a.t.Fatalf("%s %s: %d %s", method, path, response.StatusCode, text)
	}
	if answer.Failure == "" && response.StatusCode >= 400 {
		answer.Failure = string(text)
	}
	return response.StatusCode, answer
}

// begin starts a task of the node at one server.
func (a *netAgent) begin(s *bench.Server, path, body string) log.UUID {
	a.t.Helper()
	status, answer := a.at(s, http.MethodPost, "/cnapi/servers/"+a.cn.String()+path, body)
	if status != http.StatusOK {
		a.t.Fatalf("POST %s: %d %s", path, status, answer.Failure)
	}
	return answer.ID
}

// ends waits for a task at one server, which asks to come again while no server leads.
func (a *netAgent) ends(s *bench.Server, id log.UUID, want string) taskAnswer {
	a.t.Helper()
	var status int
	var answer taskAnswer
	a.await("task "+id.String()+" is known at "+s.ID, func() bool {
		status, answer = a.at(s, http.MethodGet, fmt.Sprintf("/cnapi/tasks/%s/wait?timeout=%d", id, vmPatience/time.Second), "")
		return status != http.StatusServiceUnavailable
	})
	if answer.Status != want {
		a.t.Fatalf("task %s: %s: %s, want %s", id, answer.Status, answer.Failure, want)
	}
	return answer
}

// tasks: what CNAPI and VMAPI are asked at one server is done by the agent, seen
// at another, and its result comes back into the log by itself.
func (a *netAgent) tasks(t *testing.T) {
	one, other := a.c.Servers[0], a.c.Servers[1]
	did := func(path, body string) { a.ends(other, a.begin(one, path, body), "complete") }
	first, second := a.newMAC(), a.newMAC()
	vm := log.UUID{0xab, 6: 0x40, 8: 0x80, 15: 9}
	path := "/vms/" + vm.String()
	did("/vms", fmt.Sprintf(`{"uuid":%q,"alias":"task0","owner_uuid":%q,"autoboot":false,"max_physical_memory":64,"nics":[{"mac":%q,"nic_tag":"u/7","ips":["10.0.0.130/24"],"primary":true},{"mac":%q,"nic_tag":"u/7","ips":["10.0.0.131/24"]}]}`, vm, a.vmWorld.owner, first, second))
	a.logged(first, map[string]string{"belongs_to_uuid": vm.String(), "primary": "true"})
	did(path+"/start", "{}")
	a.visibleEverywhere(vm, "running")
	before := a.pid(vm)
	did(path+"/reboot", "{}")
	if a.pid(vm) == before {
		t.Errorf("the VM still runs as process %d", before)
	}
	did(path+"/update", `{"quota":11}`)
	a.awaits("quota in the log", "11", func() string { return a.value(path, "quota") })
	if got := a.ends(other, a.begin(one, path+"/update", `{"resolvers":["8.8.8.8"]}`), "failure"); !strings.Contains(got.Failure, "PUT /networks/") {
		t.Errorf("an update of resolvers: %s", got.Failure)
	}
	// VMAPI's way: task, agent, manifest, inventory.
	status, job := a.at(other, http.MethodPost, "/vmapi"+path+"?action=update", `{"alias":"task1","max_physical_memory":96}`)
	if status != http.StatusAccepted {
		t.Fatalf("VMAPI: %d %s", status, job.Failure)
	}
	a.ends(a.c.Servers[2], job.JobUUID, "complete")
	for _, s := range a.c.Servers {
		a.until(s.ID+" has the alias", func() bool { return a.field(s, path, "alias") == "task1" })
	}
	if status, job = a.at(one, http.MethodPost, "/vmapi"+path+"?action=update_nics", fmt.Sprintf(`{"nics":[{"mac":%q,"primary":true}]}`, second)); status != http.StatusAccepted {
		t.Fatalf("VMAPI: %d %s", status, job.Failure)
	}
	a.ends(other, job.JobUUID, "complete")
	a.primary(vm, second, first)
	a.put(path, fmt.Sprintf(`{"update_nics":[{"mac":%q,"primary":true}]}`, first)) // the root's way
	a.primary(vm, first, second)
	did(path+"/stop", "{}")
	a.visibleEverywhere(vm, "stopped")
	if status, job = a.at(one, http.MethodDelete, "/cnapi/servers/"+a.cn.String()+path, ""); status != http.StatusOK {
		t.Fatalf("delete: %d %s", status, job.Failure)
	}
	a.ends(other, job.ID, "complete")
	for _, mac := range []string{first, second} {
		a.await("NIC "+mac+" is gone", func() bool { return strings.Contains(a.value("/nics/"+mac, "mac"), "nic not found") })
	}
}

// networksGiven: a server provisions the NICs of a VM that is made by a task, the
// agent gets them from the log, and they are let go with the VM, or if it is not made.
func (a *netAgent) networksGiven(t *testing.T) {
	one, other := a.c.Servers[0], a.c.Servers[1]
	vm := log.UUID{0xab, 6: 0x40, 8: 0x80, 15: 10}
	body := func(more string) string {
		return fmt.Sprintf(`{"uuid":%q,"alias":"given","owner_uuid":%q,"max_physical_memory":64,"networks":[{"uuid":%q}]%s}`, vm, a.vmWorld.owner, a.vmNode.vmWorld.network, more)
	}
	listed := func() string { return a.text(one, "/napi/nics?consistent&belongs_to_uuid="+vm.String()) }
	a.ends(other, a.begin(one, "/vms", body("")), "complete")
	a.visibleEverywhere(vm, "running")
	var nics []struct{ MAC, IP, State string }
	if err := json.Unmarshal([]byte(listed()), &nics); err != nil || len(nics) != 1 {
		t.Fatalf("the VM has %s (%v)", listed(), err)
	}
	a.hasLocal(vm, nics[0].MAC, map[string]string{"ip": nics[0].IP, "network_uuid": a.vmNode.vmWorld.network.String(), "netmask": "255.255.255.0", "nic_tag": "u/7", "primary": "true"})
	a.logged(nics[0].MAC, map[string]string{"state": "running"})
	status, gone := a.at(one, http.MethodDelete, "/cnapi/servers/"+a.cn.String()+"/vms/"+vm.String(), "")
	if status != http.StatusOK {
		t.Fatalf("delete: %d %s", status, gone.Failure)
	}
	a.ends(other, gone.ID, "complete")
	a.until("its NIC is gone", func() bool { return strings.TrimSpace(listed()) == "[]" })
	vm[15]++
	if got := a.ends(other, a.begin(one, "/vms", body(`,"state":"running"`)), "failure"); !strings.Contains(got.Failure, "params.state") {
		t.Errorf("a VM that is not made: %s", got.Failure)
	}
	a.until("the NIC of a VM that was not made is gone", func() bool { return strings.TrimSpace(listed()) == "[]" })
}

// madeByVMAPI: without an old VMAPI behind, a VM is made, gets NICs and loses them; an
// answer with sync=true is not before the node's report is in the log. What was made for a
// task that failed is freed at every server, also if the leader ends between.
func (a *netAgent) madeByVMAPI(t *testing.T) {
	one, other := a.c.Servers[0], a.c.Servers[1]
	vm := log.UUID{0xab, 6: 0x40, 8: 0x80, 15: 20}
	path := "/vmapi/vms/" + vm.String()
	body := func(more string) string {
		return fmt.Sprintf(`{"uuid":%q,"alias":"vmapi%d","brand":"lx","ram":64,"owner_uuid":%q,"networks":[{"uuid":%q}]%s}`, vm, vm[15], a.vmWorld.owner, a.vmNode.vmWorld.network, more)
	}
	onNode := fmt.Sprintf(`,"server_uuid":%q`, a.cn)
	did := func(s *bench.Server, path, body string) {
		t.Helper()
		if status, text, err := a.posts(s, path, body); status != http.StatusAccepted {
			t.Fatalf("POST %s: %d %s (%v)", path, status, text, err)
		}
	}
	macs := func(s *bench.Server) (list []string) {
		t.Helper()
		var nics []struct{ MAC string }
		if text := a.text(s, "/napi/nics?consistent&belongs_to_uuid="+vm.String()); json.Unmarshal([]byte(text), &nics) != nil {
			t.Fatalf("NICs of the VM: %s", text)
		}
		for _, nic := range nics {
			list = append(list, nic.MAC)
		}
		return list
	}
	a.awaits("the node's status", "running", func() string { return a.value("/servers/"+a.cn.String(), "status") }) // else each VM's state is unknown
	did(one, "/vmapi/vms?sync=true", body(onNode))
	if got := a.field(one, "/vms/"+vm.String(), "state"); got != "running" {
		t.Errorf("the VM is %s after the answer", got)
	}
	first := macs(other)
	did(other, path+"?action=add_nics&sync=true", fmt.Sprintf(`{"networks":[{"uuid":%q}]}`, a.vmNode.vmWorld.network))
	if got := macs(one); len(first) != 1 || len(got) != 2 || len(a.manifest(vm).NICs) != 2 {
		t.Fatalf("the VM had %v and has %v, in the manifest %v", first, got, a.manifest(vm).NICs)
	}
	own := a.newMAC() // a NIC that NAPI was asked for
	if status, answer := a.at(one, http.MethodPost, "/napi/nics", fmt.Sprintf(`{"mac":%q,"belongs_to_type":"zone","belongs_to_uuid":%q,"owner_uuid":%q,"network_uuid":%q,"cn_uuid":%q}`, own, vm, a.vmWorld.owner, a.vmNode.vmWorld.network, a.cn)); status != http.StatusOK {
		t.Fatalf("NAPI: %d %s", status, answer.Failure)
	}
	did(one, path+"?action=add_nics&sync=true", fmt.Sprintf(`{"macs":[%q]}`, own))
	if a.local(vm, own, "mac") != own {
		t.Errorf("the manifest has not NIC %s: %v", own, a.manifest(vm).NICs)
	}
	did(other, path+"?action=remove_nics&sync=true", fmt.Sprintf(`{"macs":[%q]}`, own))
	if got := macs(other); len(got) != 2 || a.local(vm, own, "mac") != "" {
		t.Errorf("after remove_nics the log has %v, the manifest %v", got, a.manifest(vm).NICs)
	}
	status, gone := a.at(other, http.MethodDelete, path+"?sync=true", "")
	if got := macs(one); status != http.StatusAccepted || len(got) != 0 {
		t.Errorf("delete: %d %s, and NICs %v are left", status, gone.Failure, got)
	}
	// A node that refuses, while the leader ends between the task and its end.
	vm[15]++
	a.stopAgent()
	leader := a.c.leader()
	asked := a.c.Servers[0]
	if asked == leader {
		asked = a.c.Servers[1]
	}
	answered := make(chan string, 1)
	go func() {
		status, text, err := a.posts(asked, "/vmapi/vms?sync=true", body(onNode+`,"init":["/bin/true"]`))
		answered <- fmt.Sprintf("%d %s (%v)", status, text, err)
	}()
	a.until("the VM is in the log", func() bool { return a.field(asked, "/vms/"+vm.String(), "state") == "provisioning" })
	a.c.signal(leader, syscall.SIGKILL)
	a.vmWorld.t = a.whole
	a.startAgentWith("--servers", strings.Join(a.c.Client.Servers(), ","))
	a.vmWorld.t = t
	if got := <-answered; !strings.HasPrefix(got, "500 ") || !strings.Contains(got, "params.init") {
		t.Errorf("the node's refusal: %s", got)
	}
	a.c.start(leader)
	a.c.waitReady(leader)
	for _, s := range a.c.Servers {
		a.until(s.ID+" has freed what was made", func() bool {
			return strings.Contains(a.field(s, "/vms/"+vm.String(), "state"), "not found") && len(macs(s)) == 0
		})
	}
}

// posts asks one server, also beside the test's own goroutine.
func (a *netAgent) posts(s *bench.Server, path, body string) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(a.whole.Context(), http.MethodPost, s.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	return response.StatusCode, string(read), err
}

// text is what a server answers to GET.
func (a *netAgent) text(s *bench.Server, path string) string {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		a.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(text)
}

// primary waits until one NIC is that, and not the other, here and in the log.
func (a *netAgent) primary(vm log.UUID, is, isNot string) {
	a.t.Helper()
	a.hasLocal(vm, is, map[string]string{"primary": "true"})
	a.settled()
	a.logged(is, map[string]string{"primary": "true"})
	a.logged(isNot, map[string]string{"primary": "false"})
	if got := a.local(vm, isNot, "primary"); got == "true" {
		a.t.Errorf("NIC %s is primary in the manifest besides %s", isNot, is)
	}
}

// ownProgram: a VM whose program root chose on the node runs, started by a task, by an
// agent that has dropped its capabilities. It is no user of the node, here a rutter that
// serves its own VMs at port 80.
func (a *netAgent) ownProgram(one, other *bench.Server) {
	a.t.Helper()
	root := filepath.Join(a.dir, "root-own")
	text, err := os.ReadFile(program)
	if err = errors.Join(err, os.MkdirAll(filepath.Join(root, "vms"), 0o755)); err == nil {
		err = os.WriteFile(filepath.Join(root, "rutter"), text, 0o755)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	vm := a.plain("own0", "root="+root, `init=["/rutter","vminfo","serve","--manifests","/vms","--vminfod","127.0.0.1:80"]`)
	a.ends(other, a.begin(one, "/vms/"+vm.String()+"/start", "{}"), "complete")
	a.visibleEverywhere(vm, "running")
	info, err := os.Stat(fmt.Sprintf("/proc/%d", a.pid(vm)))
	if err != nil {
		a.t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner < 1<<30 {
		a.t.Errorf("its program runs as user %d", owner)
	}
	a.must("vm", "delete", vm.String())
}

// commands: they are refused unless the agent may, are done once though agent and
// server die meanwhile, and end at their time.
func (a *netAgent) commands(t *testing.T) {
	one, other := a.c.Servers[0], a.c.Servers[1]
	if got := a.ends(other, a.begin(one, "/execute", `{"script":"true"}`), "failure"); !strings.Contains(got.Failure, "command_execute") {
		t.Errorf("a command that this node may not run: %s", got.Failure)
	}
	// A VM whose program a task chooses: no program of it runs, not even with TLS off.
	chosen := log.UUID{0xab, 6: 0x40, 8: 0x80, 15: 17}
	mark := filepath.Join(a.dir, "chosen")
	for _, more := range []string{`"init":["/bin/sh","-c","id > ` + mark + `"]`, `"root":"/","init":["/bin/sh","-c","id > ` + mark + `"]`} {
		body := fmt.Sprintf(`{"uuid":%q,"owner_uuid":%q,%s}`, chosen, a.vmWorld.owner, more)
		if got := a.ends(other, a.begin(one, "/vms", body), "failure"); !strings.Contains(got.Failure, "params.init") || !strings.Contains(got.Failure, "--allow-execute") {
			t.Errorf("a VM with %s: %s", more, got.Failure)
		}
	}
	if _, err := os.Stat(mark); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a program that a task chose has run: %v", err)
	}
	a.ownProgram(one, other)
	restart := func(flags ...string) {
		a.stopAgent()
		a.vmWorld.t = a.whole
		a.startAgentWith(append([]string{"--servers", strings.Join(a.c.Client.Servers(), ",")}, flags...)...)
		a.vmWorld.t = t
	}
	restart("--allow-execute")
	marks := filepath.Join(a.dir, "marks")
	script := fmt.Sprintf(`{"script":"echo did >> %s"}`, marks)
	a.ends(other, a.begin(one, "/execute", script), "complete")
	if got := a.ends(other, a.begin(one, "/execute", `{"script":"sleep 60","timeout":1}`), "failure"); !strings.Contains(got.Failure, "timed out") { // the node says so, or the servers if it is slow
		t.Errorf("a command beyond its time: %s", got.Failure)
	}
	// Server and agent die while it waits; it is done once, and known elsewhere.
	a.stopAgent()
	waiting := a.begin(one, "/execute", script)
	a.c.signal(one, syscall.SIGKILL)
	restart("--allow-execute")
	a.ends(other, waiting, "complete")
	// The agent dies while the task is done: the task is not done again.
	slow := a.begin(other, "/execute", fmt.Sprintf(`{"script":"echo did >> %s; sleep 60"}`, marks))
	a.until("it is begun", func() bool { text, _ := os.ReadFile(marks); return strings.Count(string(text), "did") == 3 })
	_ = a.agent.Signal(syscall.SIGKILL)
	restart("--allow-execute")
	if got := a.ends(a.c.Servers[2], slow, "failure"); !strings.Contains(got.Failure, "interrupted") {
		t.Errorf("a command whose agent died: %s", got.Failure)
	}
	a.c.start(one)
	a.c.waitReady(one)
	if text, err := os.ReadFile(marks); err != nil || strings.Count(string(text), "did") != 3 {
		t.Errorf("commands ran %q (%v), want three times", text, err)
	}
	restart()
}
