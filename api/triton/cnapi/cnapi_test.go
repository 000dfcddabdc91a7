package cnapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rutter/api/internal/apitest"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// A sysinfo of SmartOS makes the record of spec/cnapi.md section 4.3.
func TestSysinfoMakesARecord(t *testing.T) {
	var beats []string
	store := newMemory()
	s := newService(t, store, func(c *Config) {
		c.Beat = func(cn log.UUID, announces bool) { beats = append(beats, fmt.Sprint(cn, announces)) }
	})
	beats = nil
	body := `{"sysinfo":{"UUID":"` + cn2 + `","Hostname":"headnode","System Type":"SunOS","Live Image":"20261101T000000Z","Boot Time":"1577836800",
		"MiB of Memory":"32755","CPU Total Cores":8,"Setup":"true","Boot Parameters":{"headnode":"true"},"Zpool Creation":1400000000,"CN Agent Port":5310,
		"Network Interfaces":{"e1000g0":{"MAC Address":"00:50:56:34:60:4c","ip4addr":"10.99.99.7","Link Status":"up","NIC Names":["admin"]}}}}`
	ask(t, s, "POST /servers/"+cn2+"/sysinfo", body, 200)
	got := ask(t, s, "GET /servers/"+cn2, "", 200)
	for name, want := range map[string]string{
		"hostname": "headnode", "headnode": "true", "setup": "true", "ram": "32755", "current_platform": "20261101T000000Z",
		"last_boot": "2020-01-01T00:00:00.000Z", "created": "2014-05-13T16:53:20.000Z", "status": "unknown", "unreserved_ram": "27841", "reservation_ratio": "0.15", "unreserved_cpu": "800",
	} {
		if fmt.Sprint(got[name]) != want {
			t.Errorf("%s: %v, want %s", name, got[name], want)
		}
	}
	if sys, ok := got["sysinfo"].(map[string]any); !ok || sys["System Type"] != "SunOS" {
		t.Errorf("sysinfo %v", got["sysinfo"])
	}
	if len(beats) != 1 || beats[0] != cn2+" false" {
		t.Errorf("beats %v", beats)
	}
	head := store.Head().Seq
	ask(t, s, "POST /servers/"+cn2+"/sysinfo", body, 200)
	if store.Head().Seq != head {
		t.Errorf("a sysinfo that is no news made %d events", store.Head().Seq-head)
	}
	// One that is not set up is listed as such, and announces itself.
	ask(t, s, "POST /servers/"+vm1+"/sysinfo", `{"sysinfo":{"UUID":"`+vm1+`","Hostname":"new"}}`, 200)
	if list := askList(t, s, "GET /servers?setup=false"); len(list) != 1 || list[0]["hostname"] != "new" || beats[len(beats)-1] != vm1+" true" {
		t.Errorf("not set up: %v, beats %v", list, beats)
	}
	if list := askList(t, s, "GET /servers?hostname=headnode&extras=agents"); len(list) != 1 || list[0]["sysinfo"] != nil || list[0]["agents"] == nil {
		t.Errorf("by hostname: %v", list)
	}
	if list := askList(t, s, "GET /servers?uuids="+cn1+","+cn2+"&limit=1&offset=1"); len(list) != 1 || list[0]["uuid"] != cn2 {
		t.Errorf("by uuids: %v", list)
	}
}

func TestUpdateServerAndBoot(t *testing.T) {
	s := newService(t, newMemory(), nil)
	ask(t, s, "POST /servers/"+cn1, `{"agents":[{"name":"net-agent","version":"1"}],"traits":{"ssd":true},"reservation_ratio":0.25,"comments":"x"}`, 204)
	ask(t, s, "POST /servers/"+cn1, `{"reserved":true,"boot_params":{"rabbitmq":"guest"},"transitional_status":"rebooting"}`, 204)
	got := ask(t, s, "GET /servers/"+cn1+"?extras=agents", "", 200)
	b, _ := json.Marshal([]any{got["agents"], got["traits"], got["reservation_ratio"], got["comments"], got["reserved"], got["boot_params"]})
	if string(b) != `[[{"name":"net-agent","version":"1"}],{"ssd":true},0.25,"x",true,{"rabbitmq":"guest"}]` {
		t.Errorf("got %s", b)
	}
	ask(t, s, "POST /boot/"+cn1, `{"platform":"20261121T000000Z","kernel_flags":{"-k":true}}`, 204)
	boot := ask(t, s, "GET /boot/"+cn1, "", 200)
	if boot["platform"] != "20261121T000000Z" || fmt.Sprint(boot["kernel_args"]) != "map[hostname:cn1 rabbitmq:guest]" || fmt.Sprint(boot["kernel_flags"]) != "map[-k:true]" {
		t.Errorf("boots with %v", boot)
	}
	if boot := ask(t, s, "GET /boot/default", "", 200); boot["platform"] != "latest" {
		t.Errorf("default boots with %v", boot)
	}
	ask(t, s, "DELETE /servers/"+cn1, "", 204)
	ask(t, s, "GET /servers/"+cn1, "", 404)
}

// A server that cannot serve answers 503, on each path.
func TestUnready(t *testing.T) {
	store := newMemory()
	s := newService(t, store, nil)
	store.Fail(apitest.Errors{Ready: errors.New("behind")})
	for _, e := range s.Table().Endpoints() {
		method, path, _ := strings.Cut(e, " ")
		for _, name := range []string{"{server}", "{vm}", "{task}", "{ticket}"} {
			path = strings.ReplaceAll(path, name, cn1)
		}
		askRaw(t, s, method+" "+path, "", 503)
	}
}

// TestProbeWithoutLeader: a probe is answered at once while there is no leader; what reads
// or writes waits for one.
func TestProbeWithoutLeader(t *testing.T) {
	store := newMemory()
	s := newService(t, store, nil)
	elected := make(chan struct{})
	store.Fail(apitest.Errors{Ready: errors.New("no leader"), Election: elected})
	ask(t, s, "GET /ping", "", 503)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/servers", nil))
		if w.Code != 200 {
			t.Errorf("a read in an election: %d %s", w.Code, w.Body)
		}
	}()
	store.Fail(apitest.Errors{Election: elected})
	select {
	case <-answered:
		t.Error("a read did not wait for the leader")
	case <-time.After(20 * time.Millisecond):
	}
	close(elected)
	<-answered
}

// A status that was made before vm-agent's PUT, and comes after it, takes no VM back.
func TestStaleStatus(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	at := func(seconds int) log.Time { return log.TimeOf(now.Add(time.Duration(seconds) * time.Second)) }
	for _, c := range []struct {
		has   int // last_modified in the log, seconds from now
		said  int // the report's; 99: none
		state string
		want  bool // it is left out
	}{
		{-1, -2, "stopped", true},
		{-1, -1, "stopped", false}, // a VM that stops by itself may keep its last_modified
		{-1, 0, "stopped", false},
		{-1, 99, "stopped", false},
		{-200, -300, "stopped", false}, // the log's own time of an operator's change
		{-1, -1, "destroyed", true},
		{-200, -300, "destroyed", true},
		{-1, 99, "destroyed", true},
		{-1, 0, "destroyed", false},
	} {
		store := newMemory()
		vm, cn, owner := mustUUID(t, vm1), mustUUID(t, cn1), mustUUID(t, cn2)
		if refusal := change(t, store, log.Op{
			Action: log.Create, Kind: log.KindVM, Object: &log.VM{UUID: vm, ServerUUID: cn, OwnerUUID: owner, State: c.state, LastModified: at(c.has)},
			Set: []string{"uuid", "server_uuid", "owner_uuid", "state", "last_modified"},
		}); refusal != nil {
			t.Fatal(refusal)
		}
		said := map[string]json.RawMessage{"state": json.RawMessage(`"running"`)}
		if c.said != 99 {
			said["last_modified"] = json.RawMessage(`"` + at(c.said).String() + `"`)
		}
		store.View(func(state *projections.State, _ log.Cursor) {
			if op, err := vmOp(state, cn, vm1, said, at(0)); err != nil || (op == nil) != c.want {
				t.Errorf("%+v: %v, %v", c, op, err)
			}
		})
	}
}

// The step before a VM is made: a node with Rutter's agent has no images to fetch, and the
// task that says so is one that each agent does.
func TestEnsureImage(t *testing.T) {
	store := newMemory()
	s := newService(t, store, nil)
	placeable(t, s, store)
	id := ask(t, s, "POST /servers/"+cn1+"/ensure-image", `{"image_uuid":"`+vm1+`","imgapiPeers":[]}`, 200)["id"].(string)
	if got := ask(t, s, "GET /tasks/"+id, "", 200); got["task"] != "nop" || got["server_uuid"] != cn1 {
		t.Errorf("the task %v", got)
	}
	for _, body := range []string{`{}`, `{"image_uuid":"x"}`} {
		ask(t, s, "POST /servers/"+cn1+"/ensure-image", body, 422)
	}
}

// The log's clock reads the state: within a view it would wait for a writer that waits for
// the view, and the server would answer nothing more.
func TestClockOutsideViews(t *testing.T) {
	store := newMemory()
	s := newService(t, store, func(c *Config) {
		c.LastSigns = func(context.Context) ([]LastSign, error) {
			return []LastSign{{CN: mustUUID(t, cn1), Server: "s1", Ago: time.Second}}, nil
		}
	})
	placeable(t, s, store)
	read := 0
	s.cfg.Now = func() time.Time {
		if !store.Idle() {
			t.Error("the clock is read while a view holds the state")
			return time.Now()
		}
		read++
		return time.Now()
	}
	for _, path := range []string{"/servers/" + cn1, "/servers?extras=status", "/servers/" + cn1 + "?extras=all"} {
		askRaw(t, s, "GET "+path, "", 200)
	}
	vms := map[string]map[string]json.RawMessage{vm1: {"owner_uuid": json.RawMessage(`"` + cn2 + `"`), "state": json.RawMessage(`"running"`)}}
	if err := s.takeReport(t.Context(), report{cn: mustUUID(t, cn1), vms: vms, asked: t.Context(), actor: Actor}); err != nil {
		t.Error(err)
	}
	s.sweep(t.Context())
	ask(t, s, "POST /allocate", allocBody, 409) // beside a VM without cpu_cap
	if read < 4 {
		t.Errorf("the clock was read %d times", read)
	}
}

func mustUUID(t *testing.T, text string) log.UUID {
	t.Helper()
	uuid, err := log.ParseUUID(text)
	if err != nil {
		t.Fatal(err)
	}
	return uuid
}

// status gives the log the VMs of a cn-agent, and takes none away.
func TestStatusReports(t *testing.T) {
	store := newMemory()
	s := newService(t, store, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	say := func(state string) {
		ask(t, s, "POST /servers/"+cn1+"/events/status", `{"vms":{"`+vm1+`":{"uuid":"`+vm1+`","owner_uuid":"`+cn2+`","brand":"joyent","state":"`+state+`",
			"zone_state":"`+state+`","max_physical_memory":256,"quota":10,"cpu_cap":100,"last_modified":"2026-11-21T12:00:00.000Z"}},
			"meminfo":{"availrmem_bytes":5,"arcsize_bytes":6,"total_bytes":7},"diskinfo":{"pool_size_bytes":8}}`, 204)
	}
	stateIs := func(want string) {
		t.Helper()
		await(t, store, func() bool {
			list := askList(t, s, "GET /servers/"+cn1+"/vms")
			return len(list) == 1 && list[0]["state"] == want
		})
	}
	say("running")
	stateIs("running")
	say("stopped")
	stateIs("stopped")
	ask(t, s, "POST /servers/"+cn1+"/events/status", `{"vms":{"`+vm1+`":{"owner_uuid":"`+cn1+`","state":"failed","last_modified":"2026-11-21T12:00:00.000Z"}}}`, 204)
	stateIs("failed")
	if got := askList(t, s, "GET /servers/"+cn1+"/vms")[0]["owner_uuid"]; got != cn2 {
		t.Errorf("a report has changed whose a VM is: %v", got)
	}
	ask(t, s, "POST /servers/"+cn1+"/events/status", `{"vms":{}}`, 204)
	ask(t, s, "POST /servers/"+cn2+"/events/status", `{"vms":{"`+vm1+`":{"state":"running"}}}`, 204)
	say("running")
	stateIs("running")
	got := ask(t, s, "GET /servers/"+cn1, "", 200)
	if fmt.Sprint(got["memory_total_bytes"], got["disk_pool_size_bytes"]) != "7 8" {
		t.Errorf("memory and disks: %v", got)
	}
}

// await looks again at each change of the log, until it is so.
func await(t *testing.T, store *apitest.Memory, is func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		changed := store.Changed()
		if is() {
			return
		}
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond): // what is not of the log
		case <-deadline:
			t.Fatal("it did not come to be")
		}
	}
}

// A task that one server started can be seen and waited for on another, which
// was there all along or came later.
func TestTaskIsOfTheLog(t *testing.T) {
	store := newMemory()
	a := newService(t, store, nil)
	b := newService(t, store, func(c *Config) { c.Self = "s2" })
	id := ask(t, a, "POST /servers/"+cn1+"/vms/"+vm1+"/start", `{"timeout":"60"}`, 200)["id"].(string)
	if got := ask(t, b, "GET /tasks/"+id, "", 200); got["status"] != "queued" || got["task"] != "machine_boot" || got["via"] != "feed" || fmt.Sprint(got["params"]) != "map[uuid:"+vm1+"]" {
		t.Errorf("task %v", got)
	}
	ended := make(chan string, 1)
	go func() {
		w := httptest.NewRecorder()
		b.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/tasks/"+id+"/wait?timeout=30", nil))
		ended <- w.Body.String()
	}()
	claim := log.Op{Action: log.Update, Kind: log.KindTask, ID: id, Set: []string{"claimed_by", "status"}, Object: &log.Task{Status: log.TaskActive, ClaimedBy: 3}}
	if refusal := change(t, store, claim); refusal != nil {
		t.Fatal(refusal)
	}
	claim.Object = &log.Task{Status: log.TaskComplete, ClaimedBy: 3}
	if refusal := change(t, store, claim); refusal != nil {
		t.Fatal(refusal)
	}
	if got := <-ended; !strings.Contains(got, `"status":"complete"`) {
		t.Errorf("waited for %s", got)
	}
	if got := ask(t, newService(t, store, nil), "GET /tasks/"+id+"/wait", "", 200); got["status"] != "complete" {
		t.Errorf("a server that came later has %v", got)
	}
	if list := askList(t, b, "GET /servers/"+cn1+"/task-history"); len(list) != 1 || list[0]["id"] != id {
		t.Errorf("history %v", list)
	}
	if list := askList(t, b, "GET /tasks?status=queued"); len(list) != 0 {
		t.Errorf("queued %v", list)
	}
	// A request that comes twice makes one task.
	change1, _ := newID()
	ids := map[string]bool{}
	for range 2 {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/servers/"+cn1+"/nop", nil)
		r.Header.Set(rest.HeaderChangeID, change1.String())
		w := httptest.NewRecorder()
		a.Handler().ServeHTTP(w, r)
		ids[w.Body.String()] = w.Code == 200
	}
	if len(ids) != 1 {
		t.Errorf("answers %v", ids)
	}
}

// A task for a CN without an agent of ours is posted to it by one server, once.
func TestTaskIsPosted(t *testing.T) {
	var posts atomic.Int32
	cn := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		posts.Add(1)
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "fail") {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, `{"message":"no such zone"}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"path":%q,"server":%q,"request":%q,"got":%s}`, r.URL.Path, r.Header.Get("x-server-uuid"), r.Header.Get("x-request-id"), body)
	}))
	defer cn.Close()
	host, port, _ := net.SplitHostPort(cn.Listener.Addr().String())
	store := newMemory()
	client := reaching(t, store)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var services []*Service
	for _, self := range []string{"s1", "s2", "s3"} { // each believes that it leads
		s := newService(t, store, func(c *Config) { c.Self, c.HTTP, c.Every = self, client, 20*time.Millisecond })
		services = append(services, s)
		running.Go(func() { _ = s.Run(ctx) })
	}
	defer running.Wait()
	defer cancel()
	ask(t, services[0], "POST /servers/"+cn2+"/sysinfo", `{"sysinfo":{"UUID":"`+cn2+`","Setup":"true","CN Agent Port":`+port+`,
		"Network Interfaces":{"net0":{"MAC Address":"00:50:56:34:60:4c","ip4addr":"`+host+`","Link Status":"up","NIC Names":["admin"]}}}}`, 200)
	id := ask(t, services[1], "POST /servers/"+cn2+"/tasks", `{"task":"machine_boot","params":{"uuid":"`+vm1+`"},"req_id":"r7"}`, 200)["id"].(string)
	got := ask(t, services[2], "GET /tasks/"+id+"/wait?timeout=20", "", 200)
	b, _ := json.Marshal(got["result"])
	if got["status"] != "complete" || posts.Load() != 1 ||
		string(b) != `{"got":{"params":{"uuid":"`+vm1+`"},"task":"machine_boot"},"path":"/tasks","request":"r7","server":"`+cn2+`"}` {
		t.Errorf("%d posts, %v: %s", posts.Load(), got, b)
	}
	if history, ok := got["history"].([]any); !ok || len(history) != 1 || history[0].(map[string]any)["name"] != "finish" {
		t.Errorf("history %v", got["history"])
	}
	id = ask(t, services[1], "POST /servers/"+cn2+"/tasks", `{"task":"fail"}`, 200)["id"].(string)
	got = ask(t, services[0], "GET /tasks/"+id+"/wait?timeout=20", "", 200)
	if got["status"] != "failure" || got["failure"] != "the compute node answered 500: no such zone" {
		t.Errorf("got %v", got)
	}
}

// What is over ends with a reason, and goes after its time.
func TestSweep(t *testing.T) {
	store := newMemory()
	now := time.Unix(1795251600, 0)
	store.SetClock(func() time.Time { return now })
	s := newService(t, store, func(c *Config) { c.Now = func() time.Time { return now }; c.MaxTasks = 2 })
	id := ask(t, s, "POST /servers/"+cn1+"/nop", `{"timeout":10}`, 200)["id"].(string)
	ask(t, s, "POST /servers/"+cn1+"/tickets", `{"scope":"vm","id":"a"}`, 202)
	second := ask(t, s, "POST /servers/"+cn1+"/tickets", `{"scope":"vm","id":"a"}`, 202)
	if queue := second["queue"].([]any); len(queue) != 2 {
		t.Errorf("line %v", queue)
	}
	s.sweep(t.Context())
	if got := ask(t, s, "GET /tasks/"+id, "", 200); got["status"] != "queued" {
		t.Errorf("before its time: %v", got)
	}
	now = now.Add(11 * time.Second)
	s.sweep(t.Context())
	if got := ask(t, s, "GET /tasks/"+id, "", 200); got["status"] != "failure" || !strings.Contains(fmt.Sprint(got["failure"]), "did not take it within 10 s") {
		t.Errorf("after its time: %v", got)
	}
	now = now.Add(time.Hour)
	s.sweep(t.Context()) // the first expires, and with it the second: one after the other
	s.sweep(t.Context())
	if list := askList(t, s, "GET /servers/"+cn1+"/tickets"); len(list) != 2 || list[0]["status"] != "expired" || list[1]["status"] != "expired" {
		t.Errorf("tickets %v", list)
	}
	now = now.Add(25 * time.Hour)
	s.sweep(t.Context())
	ask(t, s, "GET /tasks/"+id, "", 404)
	if list := askList(t, s, "GET /servers/"+cn1+"/tickets"); len(list) != 0 {
		t.Errorf("tickets that are kept: %v", list)
	}
	for range 5 {
		ask(t, s, "POST /servers/"+cn1+"/nop", `{"timeout":1}`, 200)
	}
	now = now.Add(time.Minute)
	s.sweep(t.Context())
	s.sweep(t.Context())
	if list := askList(t, s, "GET /tasks"); len(list) != 2 {
		t.Errorf("%d tasks are kept, want 2", len(list))
	}
	// A server that was started anew gives up what it was delivering.
	change(t, store, log.Op{Action: log.Create, Kind: log.KindTask, Object: &log.Task{UUID: testUUID(t, vm1), Task: "nop", ServerUUID: testUUID(t, cn1), Via: log.ViaHTTP}})
	change(t, store, log.Op{Action: log.Update, Kind: log.KindTask, ID: vm1, Set: []string{"claimant", "claimed_by", "status"}, Object: &log.Task{Status: log.TaskActive, ClaimedBy: 6, Claimant: "s1"}})
	s.sweep(t.Context())
	if got := ask(t, s, "GET /tasks/"+vm1, "", 200); !strings.HasPrefix(fmt.Sprint(got["failure"]), "interrupted: server s1") {
		t.Errorf("got %v", got)
	}
}

func TestTickets(t *testing.T) {
	store := newMemory()
	a, b := newService(t, store, nil), newService(t, store, nil)
	var ids []string
	for range 3 {
		ids = append(ids, ask(t, a, "POST /servers/"+cn1+"/tickets", `{"scope":"vm","id":"`+vm1+`","action":"boot","extra":{"a":1}}`, 202)["uuid"].(string))
	}
	ask(t, b, "GET /tickets/"+ids[0]+"/wait", "", 204)
	ask(t, b, "GET /tickets/"+ids[1]+"/wait?timeout=0", "", 409)
	turn := make(chan int, 1)
	go func() {
		w := httptest.NewRecorder()
		b.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/tickets/"+ids[2]+"/wait?timeout=30", nil))
		turn <- w.Code
	}()
	ask(t, b, "DELETE /tickets/"+ids[1], "", 204)
	ask(t, a, "PUT /tickets/"+ids[0]+"/release", "", 204)
	if code := <-turn; code != 204 {
		t.Errorf("the third was answered %d when it was its turn", code)
	}
	if got := ask(t, a, "GET /tickets/"+ids[2], "", 200); got["status"] != "active" || fmt.Sprint(got["extra"]) != "map[a:1]" {
		t.Errorf("got %v", got)
	}
	ask(t, a, "GET /tickets/"+ids[0]+"/wait", "", 409)
}

func FuzzSysinfo(f *testing.F) {
	f.Add([]byte(`{"sysinfo":{"UUID":"` + cn1 + `"}}`))
	f.Add([]byte(`{"sysinfo":{"Setup":true,"Disks":{"a":{"Size in GB":"1"}}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		s := newService(t, newMemory(), nil)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/servers/"+cn1+"/sysinfo", strings.NewReader(string(body))))
		if w.Code >= 500 {
			t.Errorf("%s: answered %d %s", body, w.Code, w.Body)
		}
	})
}

// A status report is written with the rights of who sent it: a compute node by its
// certificate makes no VM that another's NIC names.
func TestStatusReportHasItsSendersRights(t *testing.T) {
	store := newMemory()
	node := log.Author{Role: log.RoleCN, CN: testUUID(t, cn1)}
	s := newService(t, store, func(cfg *Config) {
		cfg.Asker = func(*http.Request) (string, log.Author) { return "cn:" + cn1, node }
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	const own = "5595d88c-6e4d-4bda-b58e-97dd02e30002"
	nic := &log.NIC{MAC: log.MAC{2, 5: 1}, BelongsToType: "zone", BelongsToUUID: testUUID(t, vm1), OwnerUUID: node.CN, CNUUID: testUUID(t, cn2)}
	if result, err := store.Propose(t.Context(), &log.Change{ID: log.UUID{9, 6: 0x70, 8: 0x80}, Ops: []log.Op{{Action: log.Create, Kind: log.KindNIC, Object: nic}}}); err != nil || result.Refusal != nil {
		t.Fatal(err, result.Refusal)
	}
	for _, vm := range []string{vm1, own} {
		ask(t, s, "POST /servers/"+cn1+"/events/status", `{"vms":{"`+vm+`":{"owner_uuid":"`+cn2+`","state":"running"}}}`, 204)
	}
	for {
		changed := store.Changed()
		has := make(map[string]bool)
		store.View(func(state *projections.State, _ log.Cursor) {
			for _, vm := range []string{vm1, own} {
				_, has[vm] = state.Get(log.KindVM, vm)
			}
		})
		if has[vm1] {
			t.Fatal("the node made a VM that another's NIC names")
		}
		if has[own] {
			return
		}
		<-changed
	}
}
