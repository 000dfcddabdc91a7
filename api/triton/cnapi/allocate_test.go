package cnapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"rutter/agent/sysinfo"
	"rutter/api/internal/apitest"
	"rutter/log"
	"rutter/log/budget"
	"rutter/projections"
)

const allocBody = `{"vm":{"vm_uuid":"` + vm1 + `","owner_uuid":"` + cn2 + `","ram":1024},"image":{},"package":{"cpu_cap":100},"nic_tags":["external"]}`

// placeable makes cn1 a server that VMs can go to: 10 GiB of memory, 8 cores.
func placeable(t *testing.T, s *Service, store *apitest.Memory) {
	t.Helper()
	ask(t, s, "POST /servers/"+cn1+"/sysinfo", `{"sysinfo":{"UUID":"`+cn1+`","Hostname":"cn1","Setup":"true","Rutter Agent":"test","MiB of Memory":"10240","CPU Total Cores":8,"Zpool Size in GiB":100,
		"Network Interfaces":{"e0":{"MAC Address":"00:50:56:34:60:4c","ip4addr":"","Link Status":"up","NIC Names":["external"]}}}}`, 200)
	if refusal := change(t, store, log.Op{Action: log.Update, Kind: log.KindServer, ID: cn1, Set: []string{"reservation_ratio", "status"}, Object: &log.Server{Status: "running", ReservationRatio: "0"}}); refusal != nil {
		t.Fatal(refusal)
	}
}

// TestAllocate: a server is chosen, with the steps; what a ticket announces counts; and a
// refusal has CNAPI's codes.
func TestAllocate(t *testing.T) {
	store := newMemory()
	s := newService(t, store, nil)
	if got := ask(t, s, "POST /allocate", allocBody, 409); got["code"] != codeNoServers || got["steps"] == nil {
		t.Errorf("without a server that runs: %v", got)
	}
	placeable(t, s, store)
	got := ask(t, s, "POST /allocate", allocBody, 200)
	server, _ := got["server"].(map[string]any)
	if server["uuid"] != cn1 || server["sysinfo"] == nil || fmt.Sprint(got["imgapiPeers"]) != "[]" || server["unreserved_ram"] != 10240.0 {
		t.Errorf("chose %v", server)
	}
	if steps := got["steps"].([]any); len(steps) < 20 || steps[0].(map[string]any)["step"] != "Received by DAPI" {
		t.Errorf("steps %v", steps)
	}
	// The same answer again, byte for byte.
	if a, b := askRaw(t, s, "POST /allocate", allocBody, 200), askRaw(t, s, "POST /allocate", allocBody, 200); string(a) != string(b) {
		t.Errorf("two answers: %s and %s", a, b)
	}
	ticket := ask(t, s, "POST /servers/"+cn1+"/tickets", `{"scope":"vm","id":"`+vm1[:35]+`2","action":"provision","extra":{"owner_uuid":"`+cn2+`","max_physical_memory":9217,"cpu_cap":100,"quota":1,"brand":"joyent"}}`, 202)["uuid"].(string)
	if got := ask(t, s, "POST /allocate", allocBody, 409); !strings.Contains(fmt.Sprint(got["steps"]), "RAM is more than server's spare 1023") {
		t.Errorf("beside a ticket of 9217 MiB: %v", got)
	}
	capacity := ask(t, s, "POST /capacity", `{"servers":[["`+cn1+`"]]}`, 200)
	if b, _ := json.Marshal(capacity); string(b) != `{"capacities":{"`+cn1+`":{"cpu":775,"disk":95232,"ram":1023}},"errors":{}}` {
		t.Errorf("capacity %s", b)
	}
	ask(t, s, "PUT /tickets/"+ticket+"/release", "", 204)
	ask(t, s, "POST /allocate", allocBody, 200)
	if got := ask(t, s, "POST /allocate", strings.Replace(allocBody, `"ram":1024`, `"ram":1024,"docker":true,"internal_metadata":{"docker:volumesfrom":"[\"`+cn2+`\"]"}`, 1), 409); got["code"] != codeNoVolumes {
		t.Errorf("volumes of a VM that there is none of: %v", got)
	}
	if got := ask(t, s, "POST /capacity", `{"servers":["`+cn2+`"]}`, 200); fmt.Sprint(got) != "map[capacities:map[] errors:map["+cn2+":Server not found]]" {
		t.Errorf("capacity of no server: %v", got)
	}
	if got := ask(t, s, "GET /servers/"+cn1, "", 200); got["unreserved_cpu"] != 800.0 || got["memory_total_bytes"] != float64(10240<<20) || fmt.Sprint(got["overprovision_ratios"]) != "map[cpu:4 disk:1 ram:1]" {
		t.Errorf("the server: %v", got)
	}
}

// What the agents of compute nodes send, by their own keys and forms (spec/cnapi.md 4.1):
// SmartOS's cn-agent, Linux's, and Rutter's.
var sysinfos = map[string]string{
	"SmartOS": `{"Live Image":"20260101T000000Z","System Type":"SunOS","Boot Time":"1767225600","Datacenter Name":"dc1","SDC Version":"7.0","Manufacturer":"Maker",
		"Product":"Server","Serial Number":"S1","SKU Number":"","HW Version":"","HW Family":"","Setup":"true","VM Capable":true,"Bhyve Capable":true,"Bhyve Max Vcpus":32,
		"HVM API":true,"CPU Type":"Fast","CPU Virtualization":"vmx","CPU Physical Cores":2,"UUID":"` + cn1 + `","Hostname":"cn1","CPU Total Cores":16,"MiB of Memory":"65522",
		"Zpool":"zones","Zpool Disks":"c1t0d0","Zpool Profile":"striped","Zpool Creation":1767225000,"Zpool Size in GiB":1612,"Disks":{"c1t0d0":{"Size in GB":1798}},
		"Boot Parameters":{"hostname":"cn1","admin_nic":"00:50:56:34:60:4c","console":"ttyb","boot_args":"","bootargs":""},"SDC Agents":[{"name":"cn-agent","version":"2.0.2"}],
		"Network Interfaces":{"ixgbe0":{"MAC Address":"00:50:56:34:60:4c","ip4addr":"10.99.99.39","Link Status":"up","NIC Names":["admin"]},
			"ixgbe1":{"MAC Address":"00:50:56:34:60:4d","ip4addr":"","Link Status":"up","NIC Names":["external","sdc_underlay"]},
			"igb0":{"MAC Address":"00:50:56:34:60:4e","ip4addr":"","Link Status":"down","NIC Names":[]}},
		"Virtual Network Interfaces":{"sdc_underlay0":{"MAC Address":"00:50:56:34:60:4f","ip4addr":"172.31.1.6","Link Status":"up","Host Interface":"ixgbe1","Overlay Nic Tags":["sdc_overlay"],"VLAN":"2701"}},
		"Link Aggregations":{},"CN Agent Port":5309}`,
	"Linux": `{"SDC Version":"7.0","Hostname":"cn1","System Type":"linux","VM Capable":false,"Bhyve Capable":false,"HVM API":false,"Live Image":"20260101T000000Z",
		"Admin NIC Tag":"admin","Boot Time":1767225600,"Setup":true,"CPU Type":"Fast","CPU Physical Cores":1,"CPU Online Count":8,"CPU Virtualization":"vmx","MiB of Memory":16000,
		"MiB of Memory Free":9000,"Disks":{"sda":{"Size in GB":447}},"Zpool":"triton","Zpool Creation":1767225000,"Zpool Size in GiB":400,"UUID":"` + cn1 + `","Boot Parameters":"boot=live console=ttyS0",
		"Network Interfaces":{"eth0":{"MAC Address":"00:50:56:34:60:4c","ip4addr":"10.99.99.39","Link Status":"up","NIC Names":["admin","external"]}},
		"Virtual Network Interfaces":{"u0":{"MAC Address":"00:50:56:34:60:4f","ip4addr":"172.31.1.6","Link Status":"up","Host Interface":"eth0","VLAN":3304,"Overlay Nic Tags":"sdc_overlay,other"}},"Link Aggregations":{}}`,
	"Rutter": string((&sysinfo.Info{
		UUID: log.UUID{0x56, 0x4d, 0x69, 0xb1, 0xa1, 0x78, 0x4f, 0xbe, 0xb3, 0x6f, 0x3f, 0x2b, 0x7f, 0xd7, 0xed, 0x01}, Hostname: "cn1", SystemType: "Linux", LiveImage: "6.12.0", MemoryMiB: 16000, TotalCores: 8, Setup: true, ZpoolGiB: 400, Agent: "test",
		NICs: []sysinfo.NIC{{Name: "eth0", MAC: log.MAC{0, 0x50, 0x56, 1, 2, 3}, Up: true, Tags: []string{"external", "sdc_overlay"}}},
	}).JSON()),
}

// TestAllocateByReports: a node that has sent its sysinfo, and gives signs of life, gets
// VMs, with disk counted; nothing else has to be written about it.
func TestAllocateByReports(t *testing.T) {
	for name, text := range sysinfos {
		t.Run(name, func(t *testing.T) {
			store := newMemory()
			s := newService(t, store, nil)
			ask(t, s, "POST /servers/"+cn1+"/sysinfo", `{"sysinfo":`+text+`}`, 200)
			if refusal := change(t, store, log.Op{Action: log.Update, Kind: log.KindServer, ID: cn1, Set: []string{"status"}, Object: &log.Server{Status: "running"}}); refusal != nil {
				t.Fatal(refusal)
			}
			ask(t, s, "POST /servers/"+cn1+"/events/status", `{"vms":{},"zpoolStatus":{"zones":{"bytes_available":1,"bytes_used":2}},"meminfo":{"availrmem_bytes":1,"arcsize_bytes":2,"total_bytes":3},
				"diskinfo":{"kvm_zvol_used_bytes":0,"pool_size_bytes":4,"pool_alloc_bytes":5},"boot_time":"2026-01-01T00:00:00.000Z","timestamp":"2026-01-02T00:00:00.000Z"}`, 204)
			body := strings.Replace(allocBody, `"external"]`, `"external","sdc_overlay"]`, 1)
			if got := ask(t, s, "POST /allocate", body, 200); got["server"].(map[string]any)["uuid"] != cn1 {
				t.Errorf("chose %v", got)
			}
			large := strings.Replace(body, `"ram":1024`, `"ram":1024,"quota":2000`, 1)
			if got := ask(t, s, "POST /allocate", large, 409); !strings.Contains(fmt.Sprint(got["steps"]), "MiB disk is more than server's spare") {
				t.Errorf("a quota of 2000 GiB: %v", got["steps"])
			}
		})
	}
}

// TestAllocateBadInput: what is wrong is answered as CNAPI's own suite wants it.
func TestAllocateBadInput(t *testing.T) {
	s := newService(t, newMemory(), nil)
	for _, c := range []struct{ path, from, to, field, message string }{
		{"/allocate", `"vm_uuid":"` + vm1 + `",`, ``, "vm", `"vm.vm_uuid" is an invalid UUID`},
		{"/allocate", `"nic_tags":["external"]`, `"nic_tags":["external"],"servers":["` + cn1 + `","foo"]`, "servers", "invalid server UUID"},
		{"/allocate", `,"nic_tags":["external"]`, ``, "nic_tags", "value was not an array"},
		{"/allocate", `"image":{},`, ``, "image", "value is not an object. (was: [object Undefined])"},
		{"/allocate", `"image":{}`, `"image":7`, "image", "value is not an object. (was: [object Number])"},
		{"/allocate", `"ram":1024`, `"ram":"much"`, "vm", `VM "ram" is not a number`},
		{"/allocate", `"nic_tags":["external"]`, `"nic_tags":[7]`, "nic_tags", "invalid nic_tag"},
		{"/allocate", `"ram":1024`, `"ram":1024,"affinity":["instance==/(/"]`, "vm", "VM \"affinity\" has a regular expression that cannot be read: error parsing regexp: missing closing ): `(`"},
		{"/capacity", allocBody, `{"servers":["` + cn1 + `","foo"]}`, "servers", "invalid server UUID"},
		{"/capacity", allocBody, `{"servers":7}`, "servers", "value was not an array"},
	} {
		body := strings.Replace(allocBody, c.from, c.to, 1)
		got := askRaw(t, s, "POST "+c.path, body, 500)
		want, _ := json.Marshal(map[string]any{"code": "InvalidParameters", "message": "Request parameters failed validation", "errors": []any{map[string]string{"field": c.field, "code": "Invalid", "message": c.message}}})
		var a, b any
		if json.Unmarshal(got, &a) != nil || json.Unmarshal(want, &b) != nil || fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("%s %s: %s, want %s", c.path, body, got, want)
		}
	}
}

// TestPlacementsAreBudgeted: a client that asks for placements without end is refused when
// its account is empty, and another is not.
func TestPlacementsAreBudgeted(t *testing.T) {
	store := newMemory()
	set, err := budget.Parse([]string{"placements=1:3"})
	if err != nil {
		t.Fatal(err)
	}
	who := "ada"
	s := newService(t, store, func(c *Config) {
		c.Budgets, c.Asker = set, func(*http.Request) (string, log.Author) { return who, log.Author{} }
	})
	placeable(t, s, store)
	refused := 0
	for range 10 {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/allocate", strings.NewReader(allocBody)))
		if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") != "" && strings.Contains(w.Body.String(), "placements") {
			refused++
		}
	}
	if refused == 0 {
		t.Error("ten searches of an account of three were all done")
	}
	who = "bob"
	ask(t, s, "POST /allocate", allocBody, 200)
}

// TestWaitlist: CNAPI's own suite, in short: tickets of a server and of none, their order,
// their turns, and DELETE of all of them, which its setup begins with.
func TestWaitlist(t *testing.T) {
	store := newMemory()
	s := newService(t, store, nil)
	for _, of := range []string{cn1, defaultServer} {
		all := "/servers/" + of + "/tickets"
		if got := ask(t, s, "DELETE "+all, "", 412); got["code"] != log.CodePreconditionFailed {
			t.Errorf("without force: %v", got)
		}
		ask(t, s, "DELETE "+all+"?force=true", "", 204)
		body := `{"scope":"test","id":"123","expires_at":"2126-10-10T00:00:00","action":"a"}`
		first := ask(t, s, "POST "+all, body, 202)
		second := ask(t, s, "POST "+all, body, 202)
		other := ask(t, s, "POST "+all, strings.Replace(body, "123", "234", 1), 202)
		if queue := second["queue"].([]any); len(queue) != 2 || queue[0].(map[string]any)["uuid"] != first["uuid"] {
			t.Errorf("the line %v", queue)
		}
		var list []map[string]any
		if err := json.Unmarshal(askRaw(t, s, "GET "+all, "", 200), &list); err != nil || len(list) != 3 {
			t.Fatalf("%v, %v", list, err)
		}
		for i, want := range []any{first["uuid"], second["uuid"], other["uuid"]} {
			if list[i]["uuid"] != want || list[i]["server_uuid"] != of || list[i]["status"] != []string{"active", "queued", "active"}[i] || list[i]["expires_at"] != "2126-10-10T00:00:00.000Z" {
				t.Errorf("ticket %d: %v", i, list[i])
			}
		}
		if got := askList(t, s, "GET "+all+"?limit=1&offset=1&order=DESC"); len(got) != 1 || got[0]["uuid"] != second["uuid"] {
			t.Errorf("the second from the end: %v", got)
		}
		ask(t, s, "PUT /tickets/"+first["uuid"].(string)+"/release", "", 204)
		ask(t, s, "PUT /tickets/"+first["uuid"].(string)+"/release", "", 204) // again
		ask(t, s, "GET /tickets/"+second["uuid"].(string)+"/wait", "", 204)
		ask(t, s, "DELETE "+all+"?force=true", "", 204)
		if got := askList(t, s, "GET "+all); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
		ask(t, s, "GET /tickets/"+second["uuid"].(string), "", 404)
	}
	// Before the feature version there is no ticket of no server.
	store.SetFeature(log.FeatureTriton - 1)
	ask(t, s, "POST /servers/default/tickets", `{"scope":"test","id":"1"}`, 422)
}

// TestDeleteManyTickets: more tickets than one change deletes go, and none of them gets
// its turn meanwhile.
func TestDeleteManyTickets(t *testing.T) {
	store := newMemory()
	s := newService(t, store, nil)
	for i := range maxDeleted + 20 {
		ask(t, s, "POST /servers/"+cn1+"/tickets", fmt.Sprintf(`{"scope":"vm","id":"%d"}`, i/10), 202)
	}
	ask(t, s, "DELETE /servers/"+cn1+"/tickets", `{"force":true}`, 204)
	if got := askList(t, s, "GET /servers/"+cn1+"/tickets"); len(got) != 0 {
		t.Errorf("%d are left", len(got))
	}
}

// TestDefaultBoot: PUT replaces the record of nodes that have none, POST merges into it,
// null takes a key away; a server has it where it has nothing of its own.
func TestDefaultBoot(t *testing.T) {
	s := newService(t, newMemory(), nil)
	ask(t, s, "PUT /boot/default", `{"platform":"20261101T000000Z","kernel_args":{"a":"1","b":"2"},"boot_modules":[{"path":"p","content":"AA=="}]}`, 204)
	ask(t, s, "POST /boot/default", `{"kernel_args":{"a":null,"c":"3"},"kernel_flags":{"-k":true}}`, 204)
	b, _ := json.Marshal(ask(t, s, "GET /boot/default", "", 200))
	if string(b) != `{"boot_modules":[{"content":"AA==","path":"p"}],"default_console":"serial","kernel_args":{"b":"2","c":"3"},"kernel_flags":{"-k":true},"platform":"20261101T000000Z","serial":"ttyb"}` {
		t.Errorf("default: %s", b)
	}
	if got := ask(t, s, "GET /boot/"+cn1, "", 200); fmt.Sprint(got["kernel_args"]) != "map[b:2 c:3 hostname:cn1]" || got["platform"] != "20261101T000000Z" {
		t.Errorf("cn1 boots with %v", got)
	}
	ask(t, s, "POST /boot/"+cn1, `{"kernel_args":{"x":"1","y":"2"},"platform":"20261201T000000Z"}`, 204)
	ask(t, s, "POST /boot/"+cn1, `{"kernel_args":{"x":null}}`, 204)
	if got := ask(t, s, "GET /boot/"+cn1, "", 200); fmt.Sprint(got["kernel_args"]) != "map[hostname:cn1 y:2]" || got["platform"] != "20261201T000000Z" {
		t.Errorf("cn1 boots with %v", got)
	}
	if got := ask(t, s, "GET /servers/default", "", 200); got["uuid"] != "default" || got["boot_platform"] != "20261101T000000Z" {
		t.Errorf("the default server: %v", got)
	}
	if got := ask(t, s, "GET /platforms?os=true", "", 200); fmt.Sprint(got) != "map[20261201T000000Z:map[latest:true os:smartos]]" {
		t.Errorf("platforms %v", got)
	}
	ask(t, s, "PUT /boot/default", `{}`, 204)
	if got := ask(t, s, "GET /boot/default", "", 200); got["platform"] != latest || fmt.Sprint(got["kernel_args"]) != "map[]" {
		t.Errorf("after PUT of nothing: %v", got)
	}
	ask(t, s, "GET /platforms?color=red", "", 409)
}

// TestUpdateNICs: nic tags of a server's NICs by action, refused for NICs of others.
func TestUpdateNICs(t *testing.T) {
	store := newMemory()
	s := newService(t, store, nil)
	placeable(t, s, store)
	for _, tag := range []string{"manta", "mantanat"} {
		if refusal := change(t, store, log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: tag}}); refusal != nil {
			t.Fatal(refusal)
		}
	}
	nic := func(mac byte, kind, of string) {
		t.Helper()
		if refusal := change(t, store, log.Op{Action: log.Create, Kind: log.KindNIC, Set: []string{"belongs_to_type", "belongs_to_uuid", "mac", "owner_uuid"}, Object: &log.NIC{
			MAC: log.MAC{0, 0x0c, 0x29, 0, 0, mac}, BelongsToType: kind, BelongsToUUID: testUUID(t, of), OwnerUUID: testUUID(t, cn2),
		}}); refusal != nil {
			t.Fatal(refusal)
		}
	}
	nic(1, "server", cn1)
	nic(2, "server", cn2)
	put := func(action, mac, tags string, want int) map[string]any {
		t.Helper()
		return ask(t, s, "PUT /servers/"+cn1+"/nics", `{"action":"`+action+`","nics":[{"mac":"00:0c:29:00:00:0`+mac+`","nic_tags_provided":`+tags+`}]}`, want)
	}
	for _, c := range []struct{ action, tags, want string }{
		{"update", `["manta"]`, "[manta]"},
		{"update", `["mantanat","manta"]`, "[manta mantanat]"},
		{"replace", `["external","mantanat"]`, "[external mantanat]"},
		{"delete", `["mantanat"]`, "[external]"},
	} {
		job := put(c.action, "1", c.tags, 202)["job_uuid"]
		var got []string
		store.View(func(state *projections.State, _ log.Cursor) {
			rec, _ := state.Get(log.KindNIC, "00:0c:29:00:00:01")
			got = rec.Object.(*log.NIC).NICTagsProvided
		})
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s %s: %v, want %s", c.action, c.tags, got, c.want)
		}
		ask(t, s, fmt.Sprint("GET /tasks/", job), "", 200)
	}
	for _, c := range []struct{ action, mac, tags string }{{"rename", "1", "[]"}, {"update", "2", "[]"}, {"update", "3", "[]"}, {"update", "1", "7"}, {"update", "1", "null"}} {
		if got := put(c.action, c.mac, c.tags, 500); got["code"] != "InvalidParameters" {
			t.Errorf("%v: %v", c, got)
		}
	}
	ask(t, s, "PUT /servers/"+cn2+"/nics", `{"action":"update","nics":[]}`, 404)
	ask(t, s, "PUT /servers/"+cn1+"/setup", `{}`, 204)
	ask(t, s, "PUT /servers/"+cn1+"/setup", `{"color":1}`, 409)
}

// TestTagsOfSysinfo: a sysinfo makes the nic tags that it names, a bounded number of them,
// and none of a name that is not one: a node chooses them.
func TestTagsOfSysinfo(t *testing.T) {
	store := newMemory()
	s := newService(t, store, nil)
	say := func(tags ...string) {
		t.Helper()
		nics := map[string]any{}
		for i := 0; i < len(tags); i += 30 {
			nics[fmt.Sprint("e", i)] = map[string]any{"MAC Address": fmt.Sprintf("00:50:56:34:60:%02x", i/30), "Link Status": "up", "NIC Names": tags[i:min(i+30, len(tags))]}
		}
		b, _ := json.Marshal(map[string]any{"sysinfo": map[string]any{"UUID": cn1, "Setup": "true", "Network Interfaces": nics}})
		ask(t, s, "POST /servers/"+cn1+"/sysinfo", string(b), 200)
	}
	count := func() (n int) {
		store.View(func(state *projections.State, _ log.Cursor) { n = state.Count(log.KindNICTag) })
		return n
	}
	say("admin", "external", "a/b", "", strings.Repeat("x", 40))
	if count() != 2 {
		t.Errorf("%d tags", count())
	}
	many := make([]string, 3*MaxTagsMade)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	if say(many...); count() != 2+MaxTagsMade {
		t.Errorf("%d tags, of one sysinfo more than %d", count(), MaxTagsMade)
	}
	// Before the feature version a sysinfo makes none.
	store.SetFeature(log.FeatureTriton - 1)
	if before := count(); true {
		if say(many...); count() != before {
			t.Errorf("%d tags at an old feature version, %d before", count(), before)
		}
	}
}

// TestBootTimes: Boot Time as nodes send it: a number, a text, with a fraction.
func TestBootTimes(t *testing.T) {
	s := newService(t, newMemory(), nil)
	for _, v := range []string{`1577836800`, `"1577836800"`, `1577836800.75`, `"1577836800.75"`, `" 1577836800 "`} {
		ask(t, s, "POST /servers/"+cn2+"/sysinfo", `{"sysinfo":{"UUID":"`+cn2+`","Boot Time":`+v+`}}`, 200)
		if got := ask(t, s, "GET /servers/"+cn2, "", 200)["last_boot"]; got != "2020-01-01T00:00:00.000Z" {
			t.Errorf("Boot Time %s: last_boot %v", v, got)
		}
		ask(t, s, "DELETE /servers/"+cn2, "", 204)
	}
	for _, v := range []string{`"1577836800."`, `"15778.36.800"`, `"-1"`, `"soon"`} {
		status := 422
		if v == `"1577836800."` {
			status = 200 // no digit after the point is no fraction
		}
		askRaw(t, s, "POST /servers/"+cn2+"/sysinfo", `{"sysinfo":{"UUID":"`+cn2+`","Boot Time":`+v+`}}`, status)
	}
}

// TestPauseAndResume: a cn-agent is asked at its own paths; our agent has none.
func TestPauseAndResume(t *testing.T) {
	store := newMemory()
	var asked []string
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("x-request-id"))
		w.WriteHeader(http.StatusNoContent)
	}))
	defer node.Close()
	s := newService(t, store, func(c *Config) { c.HTTP = reaching(t, store) })
	at := netip.MustParseAddrPort(node.Listener.Addr().String())
	ask(t, s, "POST /servers/"+cn2+"/sysinfo", fmt.Sprintf(`{"sysinfo":{"UUID":%q,"Setup":"true","CN Agent Port":%d,
		"Network Interfaces":{"e0":{"MAC Address":"00:50:56:34:60:4c","ip4addr":"127.0.0.1","Link Status":"up","NIC Names":["admin"]}}}}`, cn2, at.Port()), 200)
	ask(t, s, "POST /servers/"+cn2+"/cn-agent/pause", "", 204)
	ask(t, s, "POST /servers/"+cn2+"/cn-agent/resume", "", 204)
	if got := strings.Join(asked, ","); !strings.HasPrefix(got, "POST /pause ") || !strings.Contains(got, ",POST /resume ") {
		t.Errorf("asked %q", got)
	}
	if got := ask(t, s, "POST /servers/"+cn1+"/cn-agent/pause", "", 409); got["code"] != "UnsupportedTask" {
		t.Errorf("our agent: %v", got)
	}
	if s.Ours(testUUID(t, cn2)) || !s.Ours(testUUID(t, cn1)) {
		t.Error("whose agent is whose is wrong")
	}
	node.Close()
	ask(t, s, "POST /servers/"+cn2+"/cn-agent/pause", "", 500)
	ask(t, s, "PUT /servers/"+vm1+"/setup", "", 404)
}

// TestServerFieldsAndUpdates: ?fields=, HEAD, etag_retries and what is strict.
func TestServerFieldsAndUpdates(t *testing.T) {
	s := newService(t, newMemory(), nil)
	if got := askList(t, s, "GET /servers?fields=uuid,status"); len(got) != 1 || len(got[0]) != 2 || got[0]["uuid"] != cn1 {
		t.Errorf("fields: %v", got)
	}
	askRaw(t, s, "HEAD /servers", "", 200)
	askRaw(t, s, "HEAD /servers/"+cn1, "", 200)
	ask(t, s, "POST /servers/"+cn1, `{"etag_retries":3,"comments":"x"}`, 204)
	ask(t, s, "POST /servers/"+cn1, `{"etag_retries":"x"}`, 500)
	ask(t, s, "POST /servers/"+cn1, `{"nics":[]}`, 204)
	ask(t, s, "GET /servers/"+cn1+"?color=red", "", 409)
	if got := ask(t, s, "GET /servers/"+cn1, "", 200); got["vms"] == nil || got["agents"] == nil || got["sysinfo"] == nil || got["comments"] != "x" {
		t.Errorf("the server: %v", got)
	}
}

// TestListInSlices: a list of servers holds the state for some of them at a time, so that
// changes are applied between; and it has all of them, with what they have left.
func TestListInSlices(t *testing.T) {
	const servers = 3*formsAtOnce + 1
	store := newMemory()
	counted := &viewed{Memory: store}
	s := newService(t, store, nil)
	for n := range servers {
		o := &log.Server{UUID: log.UUID{0xab, 14: byte(n >> 8), 15: byte(n)}, Hostname: fmt.Sprint("h", n), RAM: 1024, Sysinfo: `{"CPU Total Cores":8}`}
		if refusal := change(t, store, log.Op{Action: log.Create, Kind: log.KindServer, Object: o}); refusal != nil {
			t.Fatal(refusal)
		}
	}
	s.store = counted
	var list []map[string]any
	if err := json.Unmarshal(askRaw(t, s, "GET /servers?extras=capacity", "", 200), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) < servers || list[len(list)-1]["unreserved_cpu"] != 800.0 {
		t.Errorf("%d servers, the last %v", len(list), list[len(list)-1])
	}
	counted.views = 0
	all := askRaw(t, s, "GET /servers", "", 200)
	if counted.views < servers/formsAtOnce || len(all) == 0 {
		t.Errorf("%d servers were shown in %d views", servers, counted.views)
	}
}

// viewed counts views, none of which is within another.
type viewed struct {
	*apitest.Memory
	views, within int
}

func (v *viewed) View(fn func(*projections.State, log.Cursor)) {
	if v.within++; v.within > 1 {
		panic("a view within a view")
	}
	v.views++
	v.Memory.View(fn)
	v.within--
}
