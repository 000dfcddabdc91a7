package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/vmobject"
)

// object is a VM in VMAPI's form.
func object(id, cn, state, modified string, more ...string) string {
	text := `{"uuid":"` + id + `","owner_uuid":"` + owner + `","server_uuid":"` + cn + `","alias":"x","brand":"joyent","state":"` + state + `","zone_state":"` + state + `","last_modified":"` + modified + `"`
	for _, m := range more {
		text += "," + m
	}
	return text + "}"
}

// old answers as an old VMAPI with these VMs.
func old(vms map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := strings.TrimPrefix(r.URL.Path, "/vms/")
		switch {
		case r.Method == "POST" && r.URL.Path == "/vms":
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"vm_uuid":"`+freshVM+`","job_uuid":"`+freshVM+`"}`)
		case r.Method == "GET" && vms[id] != "":
			_, _ = io.WriteString(w, vms[id])
		case r.Method == "GET" && r.URL.Path != "/vms":
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"code":"ResourceNotFound","message":"VM not found"}`)
		default:
			_, _ = io.WriteString(w, "{}")
		}
	}
}

// TestRuleBeforeHandingOn: network-wide fields are refused before anything is handed on,
// wherever the action and the fields stand; addresses are the log's.
func TestRuleBeforeHandingOn(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	for _, c := range [][2]string{
		{"?action=update", `{"resolvers":["8.8.8.8"]}`},
		{"?action=update&resolvers=8.8.8.8", `{}`},
		{"", `{"action":"update","routes":{}}`},
		{"?action=update_nics", `{"nics":[{"mac":"` + oldNIC + `","netmask":"255.0.0.0"}]}`},
		{"", `{"action":"update_nics","update_nics":[{"mac":"` + oldNIC + `","vlan_id":3}]}`},
		{"?action=update", `{"update_nics":[{"mac":"` + oldNIC + `","ips":["10.0.0.17/24"],"primary":true}]}`},
		{"?action=update", `{"quota":10,"nics":[{"mac":"` + oldNIC + `","ips":["10.0.0.17/24"]}]}`},
	} {
		if got := b.ask("POST", "/vms/"+oldVM+c[0], c[1]); got.status != 409 || got.code() != "ValidationFailed" {
			t.Errorf("%s %s: %d %s", c[0], c[1], got.status, got.body)
		}
	}
	got := b.ask("POST", "/vms/"+oldVM+"?action=update_nics&origin=cloudapi", `{"owner_uuid":"`+owner+`","nics":[{"mac":"`+oldNIC+`","ips":["10.0.0.17/24"]}]}`)
	if got.status != 202 {
		t.Errorf("an address: %d %s", got.status, got.body)
	}
	if asked := b.asked(); len(asked) != 0 {
		t.Errorf("handed on: %q", asked)
	}
	if got := b.ask("POST", "/vms/"+oldVM+"?action=update", `{"quota":10}`); got.status != 200 {
		t.Errorf("a field of the VM: %d %s", got.status, got.body)
	}
	if got := b.ask("POST", "/vms/"+oldVM+"?action=update_nics", `{"nics":[{"mac":"`+oldNIC+`","primary":true}]}`); got.status != 200 {
		t.Errorf("a field of the NIC: %d %s", got.status, got.body)
	}
}

// TestProvisioningRecord: when the answer to a creation arrives, the log has the record
// (rule 1), and a GET needs nothing of the old service.
func TestProvisioningRecord(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	vms := map[string]string{freshVM: object(freshVM, newCN, "provisioning", "")}
	b.answerWith(old(vms))
	if got := b.ask("POST", "/vms", `{"owner_uuid":"`+owner+`"}`); got.status != 202 || !strings.Contains(got.body, freshVM) {
		t.Fatalf("%d %s", got.status, got.body)
	}
	before := len(b.asked())
	if got := b.ask("GET", "/vms/"+freshVM+"?owner_uuid="+owner, ""); got.status != 200 || !strings.Contains(got.body, `"provisioning"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if n := len(b.asked()); n != before {
		t.Errorf("the old service was asked for a VM of the log: %q", b.asked()[before:])
	}
	// A job that failed (rule 11).
	vms[freshVM] = object(freshVM, newCN, "failed", "")
	b.ask("POST", "/job_results", `{"execution":"failed","vm_uuid":"`+freshVM+`"}`)
	if vm := b.vm(freshVM); vm == nil || vm.State != "failed" {
		t.Errorf("after a failed job: %+v", vm)
	}
}

// TestReadThrough: a VM that only the old VMAPI knows is found at the first question, and
// is in the log then.
func TestReadThrough(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	b.answerWith(old(map[string]string{freshVM: object(freshVM, oldCN, "running", "2026-01-01T00:00:00.000Z")}))
	if got := b.ask("GET", "/vms/"+freshVM, ""); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if b.vm(freshVM) == nil {
		t.Error("the log does not have it")
	}
	if got := b.ask("GET", "/vms/"+oldCN, ""); got.status != 404 || got.code() != "ResourceNotFound" {
		t.Errorf("one that neither knows: %d %s", got.status, got.body)
	}
}

// TestPut: what a vm-agent puts is in the log and with the old VMAPI; if that fails, the
// agent hears of it and puts it again (rule 5).
func TestPut(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	fails := true
	b.answerWith(func(w http.ResponseWriter, r *http.Request) {
		if fails && r.Method == "PUT" {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"code":"ServiceUnavailable"}`)
			return
		}
		old(nil)(w, r)
	})
	put := object(oldVM, oldCN, "stopped", "2026-01-02T00:00:00.000Z", `"tags":{"a":"b"}`)
	if got := b.ask("PUT", "/vms/"+oldVM, put); got.status != 503 {
		t.Errorf("the old one fails: %d %s", got.status, got.body)
	}
	if vm := b.vm(oldVM); vm.State != "stopped" {
		t.Errorf("the log: %+v", vm)
	}
	b.mu.Lock()
	fails = false
	b.mu.Unlock()
	head := b.store.Head().Seq
	if got := b.ask("PUT", "/vms/"+oldVM, put); got.status != 200 || b.last().body != put {
		t.Errorf("again: %d %s", got.status, got.body)
	}
	if b.store.Head().Seq != head {
		t.Error("the same again was written again")
	}
	whole := `{"vms":{"` + oldVM + `":` + object(oldVM, oldCN, "running", "2026-01-03T00:00:00.000Z") + `}}`
	if got := b.ask("PUT", "/vms?server_uuid="+oldCN, whole); got.status != 200 || b.last().uri != "/vms?server_uuid="+oldCN {
		t.Errorf("all of a node: %d %s", got.status, got.body)
	}
	if vm := b.vm(oldVM); vm.State != "running" {
		t.Errorf("the log: %+v", vm)
	}
	if got := b.ask("PUT", "/vms/"+oldVM, object(freshVM, oldCN, "running", "")); got.status != 422 {
		t.Errorf("another VM's: %d", got.status)
	}
}

// TestMoving: between the two flips of do_not_inventory a VM that moves is not destroyed
// by its first node, in neither inventory (rule 11).
func TestMoving(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	migration := `{"state":"running","phase":"switch"}`
	b.answerWith(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/migrations/") && r.Method == "GET" {
			_, _ = io.WriteString(w, migration)
			return
		}
		old(map[string]string{oldVM: object(oldVM, nextCN, "running", "2026-01-01T00:00:00.000Z")})(w, r)
	})
	gone := object(oldVM, oldCN, "destroyed", "2026-01-05T00:00:00.000Z")
	if got := b.ask("PUT", "/vms/"+oldVM, gone); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	b.ask("PUT", "/vms?server_uuid="+oldCN, `{"vms":{"`+oldVM+`":`+gone+`}}`)
	if vm := b.vm(oldVM); vm.State != "running" {
		t.Errorf("a VM that moves was destroyed: %+v", vm)
	}
	if got := b.ask("POST", "/migrations/"+oldVM+"/updateVmServerUuid", `{"server_uuid":"`+nextCN+`"}`); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if vm := b.vm(oldVM); vm.ServerUUID.String() != nextCN {
		t.Errorf("the log has it on %s", vm.ServerUUID)
	}
	migration = `{"state":"successful","phase":"switch"}`
	if b.ask("PUT", "/vms/"+oldVM, gone); b.vm(oldVM).State != "running" { // the first node, late
		t.Error("its former node destroyed it")
	}
	for _, r := range b.got {
		if strings.Contains(r.body, "destroyed") && r.body != `{"vms":{}}` {
			t.Errorf("the old VMAPI was told: %s %s", r.method, r.body)
		}
	}
}

// TestNodeWins: of a VM whose node has Rutter's agent, the old VMAPI's record gives role
// tags, and nothing that the node reports.
func TestNodeWins(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	vms := map[string]string{newVM: object(newVM, newCN, "stopped", "2031-01-01T00:00:00.000Z", `"role_tags":["r1","r2"]`)}
	b.answerWith(old(vms))
	if got := b.ask("POST", "/vms/"+newVM+"/role_tags", `{"role_tags":["r1","r2"]}`); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	vm := b.vm(newVM)
	if vm.State != "running" || vm.Alias != "web1" || !slices.Equal(vmobject.RoleTagsOf(vm), []string{"r1", "r2"}) {
		t.Errorf("%+v", vm)
	}
	vms[newVM] = object(newVM, newCN, "destroyed", "2031-01-01T00:00:00.000Z", `"role_tags":[]`)
	b.ask("DELETE", "/vms/"+newVM+"/role_tags", "")
	if vm = b.vm(newVM); vm.State != "running" || len(vmobject.RoleTagsOf(vm)) != 0 {
		t.Errorf("%+v", vm)
	}
	if got := b.ask("GET", "/vms/"+newVM+"?fields=*", ""); got.status != 200 {
		t.Errorf("%d", got.status)
	}
	// A VM that the agent does not have any more does not come back by an old record.
	b.propose(log.Op{Action: log.Delete, Kind: log.KindVM, ID: newVM})
	vms[newVM] = object(newVM, newCN, "running", "2031-01-01T00:00:00.000Z")
	if got := b.ask("GET", "/vms/"+newVM, ""); got.status != 404 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestLyingServer: an old VMAPI that has a VM on another node than the log, of which one has
// Rutter's agent, moves it neither away from that node nor onto it, on any way that it is
// read; its role tags are taken. Between nodes without it, it is the old VMAPI that says.
func TestLyingServer(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	later := "2031-01-01T00:00:00.000Z"
	vms := map[string]string{
		newVM: object(newVM, oldCN, "stopped", later, `"role_tags":["r1"]`), // away from the agent's node
		oldVM: object(oldVM, newCN, "stopped", later, `"role_tags":["r2"]`), // onto it
	}
	b.answerWith(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/vms" && r.Method == "GET" {
			_, _ = io.WriteString(w, "["+vms[newVM]+","+vms[oldVM]+"]")
			return
		}
		old(vms)(w, r)
	})
	stays := func(what string) {
		t.Helper()
		for id, cn := range map[string]string{newVM: newCN, oldVM: oldCN} {
			if vm := b.vm(id); vm.ServerUUID.String() != cn || vm.State != "running" {
				t.Errorf("%s: VM %s is %s on %s", what, id, vm.State, vm.ServerUUID)
			}
		}
	}
	for _, id := range []string{newVM, oldVM} {
		b.ask("POST", "/migrations/"+id+"/updateVmServerUuid", `{"server_uuid":"`+oldCN+`"}`)
		b.ask("POST", "/vms/"+id+"/role_tags", `{"role_tags":["r"]}`)
		b.ask("GET", "/vms/"+id+"?sync=true", "")
		if tags := vmobject.RoleTagsOf(b.vm(id)); len(tags) != 1 {
			t.Errorf("role tags of %s: %v", id, tags)
		}
	}
	stays("a write is handed on")
	if err := b.g.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	stays("a sweep")
	b.ask("PUT", "/vms/"+newVM, object(newVM, oldCN, "stopped", later))
	b.ask("PUT", "/vms?server_uuid="+newCN, `{"vms":{"`+oldVM+`":`+object(oldVM, newCN, "stopped", later)+`}}`)
	stays("a PUT")
	// One that is being made has its node from the record, and keeps it.
	vms[freshVM] = object(freshVM, newCN, "provisioning", "")
	b.ask("GET", "/vms/"+freshVM, "")
	vms[freshVM] = object(freshVM, oldCN, "running", later)
	b.ask("POST", "/vms/"+freshVM+"/role_tags", `{}`)
	if vm := b.vm(freshVM); vm.ServerUUID.String() != newCN || vm.State != "provisioning" {
		t.Errorf("a VM that is being made: %s on %s", vm.State, vm.ServerUUID)
	}
	vms[oldVM] = object(oldVM, nextCN, "stopped", later)
	b.ask("POST", "/migrations/"+oldVM+"/updateVmServerUuid", `{"server_uuid":"`+nextCN+`"}`)
	if vm := b.vm(oldVM); vm.ServerUUID.String() != nextCN {
		t.Errorf("a migration between old nodes: on %s", vm.ServerUUID)
	}
}

// TestOutflow: the old VMAPI gets the VMs of nodes with Rutter's agent, each change, and
// the last object of a VM that is gone; those of other nodes it has itself (rules 5, 7).
func TestOutflow(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	var refused bool
	b.answerWith(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "PUT" && !refused {
			refused = true
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if r.URL.Path == "/vms" {
			_, _ = io.WriteString(w, "[]")
			return
		}
		old(nil)(w, r)
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); newOutflow(b.g).run(ctx) }()
	defer func() { cancel(); <-ended }()
	put := func(part string) func() bool {
		return func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return slices.ContainsFunc(b.got, func(r request) bool {
				return r.method == "PUT" && r.uri == "/vms/"+newVM && strings.Contains(r.body, part)
			})
		}
	}
	await(t, "the VM is put, also after a failure", func() bool {
		return len(slices.DeleteFunc(b.asked(), func(s string) bool { return s != "PUT /vms/"+newVM })) > 1
	})
	b.propose(log.Op{Action: log.Update, Kind: log.KindVM, ID: newVM, Set: []string{"state"}, Object: &log.VM{State: "stopped"}})
	await(t, "its change is put", put(`"state":"stopped"`))
	b.propose(log.Op{Action: log.Delete, Kind: log.KindVM, ID: newVM})
	await(t, "its end is put", put(`"state":"destroyed"`))
	for _, asked := range b.asked() {
		if strings.Contains(asked, "PUT /vms/"+oldVM) {
			t.Errorf("%s: its vm-agent does that", asked)
		}
	}
}

// TestSweep: what the old VMAPI has and no feed said comes into the log.
func TestSweep(t *testing.T) {
	b := newBed(t, VMAPI, nil)
	list, err := json.Marshal([]json.RawMessage{
		json.RawMessage(object(freshVM, oldCN, "running", "2026-01-01T00:00:00.000Z", `"role_tags":["r"]`)),
		json.RawMessage(object(newVM, newCN, "stopped", "2031-01-01T00:00:00.000Z")),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.answerWith(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/vms" {
			_, _ = w.Write(list)
			return
		}
		old(map[string]string{oldVM: object(oldVM, oldCN, "destroyed", "2026-01-01T00:00:00.000Z")})(w, r)
	})
	if err := b.g.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if vm := b.vm(freshVM); vm == nil || vm.State != "running" || len(vmobject.RoleTagsOf(vm)) != 1 {
		t.Errorf("a VM that was missing: %+v", vm)
	}
	if vm := b.vm(newVM); vm.State != "running" {
		t.Errorf("a VM of an agent: %+v", vm)
	}
	if vm := b.vm(oldVM); vm.State != "destroyed" {
		t.Errorf("a VM that was destroyed unheard: %+v", vm)
	}
	head := b.store.Head().Seq
	if err := b.g.sweep(t.Context()); err != nil || b.store.Head().Seq != head {
		t.Errorf("a second sweep wrote: %v", err)
	}
}
