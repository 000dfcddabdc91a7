package designation

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/projections"
)

const (
	ownerA = "73fa296f-a9dc-4677-9c06-4c610fc57160"
	ownerB = "930896af-bf8c-48d4-885c-6573a94b1853"
)

func uuidOf(kind byte, n int) (u log.UUID) {
	u[0], u[6], u[8] = kind, 0x40, 0x80
	binary.BigEndian.PutUint32(u[12:], uint32(n))
	return u
}

func cn(n int) log.UUID { return uuidOf(0xc0, n) }
func vm(n int) log.UUID { return uuidOf(0xa0, n) }

// cloud is a state that a test fills.
type cloud struct {
	*projections.State
	t interface{ Fatal(...any) }
	n log.Seq
}

func newCloud(t interface{ Fatal(...any) }) *cloud {
	return &cloud{State: projections.NewState(), t: t}
}

func (c *cloud) put(o log.Object) {
	c.n++
	if err := c.Load(projections.Record{Object: o, Revision: 1, Seq: c.n}); err != nil {
		c.t.Fatal(err)
	}
}

// server puts a server of 16 cores, 100 GiB of memory without a reserve, and a pool of
// 1000 GiB.
func (c *cloud) server(n int, edit func(s *log.Server)) *log.Server {
	s := &log.Server{
		UUID: cn(n), Hostname: fmt.Sprint("cn", n), Status: "running", Setup: true, RAM: 100 << 10, ReservationRatio: "0", CurrentPlatform: "20260101T000000Z",
		Sysinfo: `{"CPU Total Cores":16,"Zpool Size in GiB":1000,"Live Image":"20260101T000000Z","SDC Version":"7.0","Bhyve Capable":true,
			"Network Interfaces":{"e0":{"Link Status":"up","NIC Names":["admin","external"]},"e1":{"Link Status":"down","NIC Names":["storage"]}},
			"Virtual Network Interfaces":{"u0":{"Link Status":"up","Overlay Nic Tags":["sdc_overlay"]}}}`,
	}
	if edit != nil {
		edit(s)
	}
	c.put(s)
	return s
}

// ofAgent makes a server one of Rutter's agent.
func ofAgent(s *log.Server) { s.Sysinfo = strings.Replace(s.Sysinfo, "{", `{"Rutter Agent":"v1",`, 1) }

// underlayNIC puts the underlay NIC of the first server.
func underlayNIC(c *cloud) {
	net := &log.Network{UUID: vm(900), NICTag: "underlay"}
	c.put(net)
	c.put(&log.NIC{MAC: log.MAC{2, 0, 0, 0, 9, 1}, BelongsToType: "server", BelongsToUUID: cn(1), NetworkUUID: net.UUID, Underlay: true})
}

func (c *cloud) vm(n, on int, owner string, ram uint64, edit func(v *log.VM)) {
	o, _ := log.ParseUUID(owner)
	v := &log.VM{UUID: vm(n), OwnerUUID: o, ServerUUID: cn(on), State: "running", Brand: "joyent", MaxPhysicalMemory: ram, CPUCap: 100, Quota: 10}
	if edit != nil {
		edit(v)
	}
	c.put(v)
}

func request(t interface{ Fatal(...any) }, vm, pkg, rest string) *Request {
	body := `{"vm":{"vm_uuid":"` + uuidOf(0xee, 1).String() + `","owner_uuid":"` + ownerA + `"` + vm + `},"image":{},"package":{"cpu_cap":100` + pkg + `},"nic_tags":["external"]` + rest + `}`
	var b Body
	if err := json.Unmarshal([]byte(body), &b); err != nil {
		t.Fatal(err, body)
	}
	r, err := Parse(&b)
	if err != nil {
		t.Fatal(err, body)
	}
	return r
}

func (c *cloud) ask(r *Request, text string) *Result {
	d, err := ParseDefaults(text)
	if err != nil {
		c.t.Fatal(err)
	}
	return Allocate(ViewOf(c.State), &Memo{}, &d, r)
}

// chosen is the last byte of the server, 0 of none.
func chosen(r *Result) int {
	if r.Server == nil {
		return 0
	}
	return int(binary.BigEndian.Uint32(r.Server.UUID[12:]))
}

// TestFilters: each filter leaves out what it should, with a reason in its step.
func TestFilters(t *testing.T) {
	for _, c := range []struct {
		name, vm, pkg, rest, defaults string
		edit                          func(s *log.Server) // of server 1
		more                          func(c *cloud)
		want                          int
		step, why                     string
	}{
		{name: "fits", vm: `,"ram":1024`, want: 1},
		{name: "not set up", vm: `,"ram":1024`, edit: func(s *log.Server) { s.Setup = false }, step: "have been setup", why: "not set up"},
		{name: "not running", vm: `,"ram":1024`, edit: func(s *log.Server) { s.Status = "unknown" }, step: "currently running", why: "status: unknown"},
		{name: "no cores", vm: `,"ram":1024`, edit: func(s *log.Server) { s.Sysinfo = "{}" }, step: "are valid", why: "CPU Total Cores"},
		{name: "no memory", vm: `,"ram":1024`, edit: func(s *log.Server) { s.RAM = 0 }, step: "are valid", why: "ram is not a number"},
		{name: "reserved", vm: `,"ram":1024`, edit: func(s *log.Server) { s.Reserved = true }, step: "not reserved", why: "reserved"},
		{name: "reservoir", vm: `,"ram":1024`, edit: func(s *log.Server) { s.Reservoir = true }, want: 1},
		{name: "headnode", vm: `,"ram":1024`, edit: func(s *log.Server) { s.Headnode = true }, step: "not headnodes", why: "headnode"},
		{name: "headnode allowed", vm: `,"ram":1024`, defaults: "filter_headnode=false", edit: func(s *log.Server) { s.Headnode = true }, want: 1},
		{name: "tag missing", vm: `,"ram":1024`, rest: `,"nic_tag_requirements":[["external"],["manta","mantanat"]]`, step: "NIC Tags", why: "manta, mantanat"},
		{name: "tag down", vm: `,"ram":1024`, rest: `,"nic_tag_requirements":[["storage"]]`, step: "NIC Tags", why: `NIC e1 for tag "storage" is down`},
		{name: "tag of several", vm: `,"ram":1024`, rest: `,"nic_tag_requirements":[["r1","external"],["sdc_overlay"]]`, want: 1},
		{name: "tag of a NIC of Rutter's agent", vm: `,"ram":1024`, rest: `,"nic_tag_requirements":[["other","underlay"]]`, edit: ofAgent, more: underlayNIC, want: 1},
		{name: "tag of a NIC of another agent", vm: `,"ram":1024`, rest: `,"nic_tag_requirements":[["underlay"]]`, more: underlayNIC, step: "NIC Tags", why: "underlay"},
		{name: "tag of another server's NIC", vm: `,"ram":1024`, rest: `,"nic_tag_requirements":[["underlay"]]`, edit: ofAgent, step: "NIC Tags", why: "underlay"},
		{name: "old platform", vm: `,"ram":1024`, pkg: `,"min_platform":{"7.0":"20270101T000000Z"}`, step: "platform", why: "Package requires min platforms"},
		{name: "new version", vm: `,"ram":1024`, pkg: `,"min_platform":{"6.5":"20270101T000000Z","smartos":"20270101T000000Z"}`, want: 1},
		{name: "traits", vm: `,"ram":1024,"traits":{"ssd":true}`, step: "traits", why: `require {"ssd":true} but server has {}`},
		{name: "traits of the server", vm: `,"ram":1024`, edit: func(s *log.Server) { s.Traits = `{"ssd":true}` }, step: "traits", why: "require no traits"},
		{name: "traits in lists", vm: `,"ram":1024,"traits":{"hw":["b","a"],"ssd":true}`, edit: func(s *log.Server) { s.Traits = `{"hw":["c","a"],"ssd":true}` }, want: 1},
		{name: "memory to the last", vm: `,"ram":102400`, want: 1},
		{name: "memory", vm: `,"ram":102401`, step: "unreserved RAM", why: "102401 MiB RAM is more than server's spare 102400"},
		{name: "memory without limit", vm: `,"ram":102401`, defaults: "filter_min_resources=false", want: 1},
		{name: "memory twice", vm: `,"ram":204800`, defaults: "overprovision_ratio_ram=2", want: 1},
		{name: "memory with the reserve of none", vm: `,"ram":87041`, edit: func(s *log.Server) { s.ReservationRatio = "" }, step: "unreserved RAM", why: "spare 87040"},
		{name: "memory of the package", pkg: `,"max_physical_memory":102401`, step: "unreserved RAM", why: "102401"},
		{name: "CPU", vm: `,"ram":1024,"cpu_cap":6401`, step: "unreserved CPU", why: "1601 CPU is more than server's spare 1600"},
		{name: "CPU to the last", vm: `,"ram":1024,"cpu_cap":6400`, want: 1},
		{name: "disk", vm: `,"ram":1024,"quota":931`, step: "unreserved disk", why: "963584 MiB disk is more than server's spare 962560"},
		{name: "disk to the last", vm: `,"ram":1024,"quota":930`, want: 1},
		{name: "disk not known", vm: `,"ram":1024,"quota":9300`, edit: func(s *log.Server) { s.Sysinfo = strings.Replace(s.Sysinfo, "Zpool Size", "Size", 1) }, want: 1},
		{name: "disks of bhyve", vm: `,"ram":1024,"brand":"bhyve","vcpus":2,"quota":10,"disks":[{"image_uuid":"x"},{"size":950000}]`, step: "unreserved disk", why: "970480"},
		{name: "vcpus", vm: `,"ram":1024,"brand":"bhyve","vcpus":17`, step: "virtualization", why: "17 vcpus whereas server supports 1 - 16"},
		{name: "kvm beside bhyve", vm: `,"ram":1024,"brand":"kvm"`, more: func(c *cloud) { c.vm(1, 1, ownerB, 1, func(v *log.VM) { v.Brand = "bhyve" }) }, step: "virtualization", why: "has brand bhyve"},
		{name: "capless beside capped", vm: `,"ram":1024`, more: func(c *cloud) { c.vm(1, 1, ownerB, 1, func(v *log.VM) { v.CPUCap = 0 }) }, step: "cpu_cap", why: "has no cpu_cap"},
		{name: "VMs over the limit", vm: `,"ram":1024`, defaults: "filter_vm_limit=1", more: func(c *cloud) { c.vm(1, 1, ownerB, 1, nil) }, step: "more VMs than limit", why: "Server has 1 VMs (limit is 1)"},
		{name: "the failed takes nothing", vm: `,"ram":102400`, more: func(c *cloud) {
			c.vm(1, 1, ownerB, 1024, func(v *log.VM) { v.State = "failed" })
			c.vm(2, 1, ownerB, 1024, func(v *log.VM) { v.State = "destroyed" })
		}, want: 1},
		{name: "what runs takes", vm: `,"ram":102400`, more: func(c *cloud) { c.vm(1, 1, ownerB, 1024, nil) }, step: "unreserved RAM", why: "spare 101376"},
		{name: "ratios of packages", vm: `,"ram":1024`, pkg: `,"overprovision_memory":1.5`, defaults: "disable_override_overprovisioning=true", step: "same overprovision", why: "of ram of 1.50 does not match server's 1.00"},
		{name: "near what is not there", vm: `,"ram":1024,"locality":{"near":"` + vm(9).String() + `","strict":true}`, step: "hard locality", why: "near"},
		{name: "far", vm: `,"ram":1024,"locality":{"far":["` + vm(1).String() + `"],"strict":true}`, more: func(c *cloud) { c.vm(1, 1, ownerA, 1, nil) }, step: "hard locality", why: "far"},
		{name: "far from another's", vm: `,"ram":1024,"locality":{"far":["` + vm(1).String() + `"],"strict":true}`, more: func(c *cloud) { c.vm(1, 1, ownerB, 1, nil) }, want: 1},
		{name: "far if possible", vm: `,"ram":1024,"locality":{"far":["` + vm(1).String() + `"]}`, more: func(c *cloud) { c.vm(1, 1, ownerA, 1, nil) }, want: 1},
		{name: "volumes", vm: `,"ram":1024,"docker":true,"internal_metadata":{"docker:volumesfrom":"[\"` + vm(9).String() + `\"]"}`, step: "volumes-from", why: "VM needs volumes from"},
		{name: "other servers", vm: `,"ram":1024`, rest: `,"servers":[["` + cn(7).String() + `"]]`, step: "Received"},
	} {
		t.Run(c.name, func(t *testing.T) {
			world := newCloud(t)
			world.server(1, c.edit)
			if c.more != nil {
				c.more(world)
			}
			got := world.ask(request(t, c.vm, c.pkg, c.rest), c.defaults)
			last := got.Steps[len(got.Steps)-1]
			if chosen(got) != c.want || c.want == 0 && (!strings.Contains(last.Step, c.step) || !strings.Contains(fmt.Sprint(last.Reasons), c.why)) {
				t.Errorf("chose %d, want %d; last step %+v", chosen(got), c.want, last)
			}
		})
	}
}

// TestTickets: open tickets to provision count, once for each VM, and those that do not
// say how large their VM is close the server.
func TestTickets(t *testing.T) {
	ticket := func(n int, of log.UUID, extra string) *log.Ticket {
		return &log.Ticket{UUID: uuidOf(0x70, n), ServerUUID: cn(1), Scope: "vm", OfID: of.String(), Action: "provision", Status: log.TicketActive, Extra: extra}
	}
	c := newCloud(t)
	c.server(1, nil)
	ask := func(ram int) int { return chosen(c.ask(request(t, fmt.Sprintf(`,"ram":%d`, ram), "", ""), "")) }
	extra := `{"max_physical_memory":40960,"cpu_cap":100,"quota":10,"brand":"joyent","owner_uuid":"` + ownerB + `"}`
	c.put(ticket(1, vm(1), extra))
	if ask(61440) != 1 || ask(61441) != 0 {
		t.Error("a ticket of 40 GiB does not count as 40 GiB")
	}
	c.put(ticket(2, vm(1), extra))
	if ask(61440) != 1 {
		t.Error("two tickets of one VM count twice")
	}
	c.vm(1, 1, ownerB, 0, func(v *log.VM) { v.State = "provisioning" })
	if ask(61440) != 1 || ask(61441) != 0 {
		t.Error("a VM that is being made counts beside its ticket, or in its place")
	}
	c.put(&log.Ticket{UUID: uuidOf(0x70, 3), ServerUUID: cn(1), Scope: "vm", OfID: "x", Action: "reboot", Status: log.TicketActive})
	if ask(61440) != 1 {
		t.Error("a ticket of another action counts")
	}
	c.put(ticket(4, vm(4), ""))
	if ask(1) != 0 {
		t.Error("a server of which a ticket does not say how large its VM is was chosen")
	}
}

// TestAffinity: rules by name, glob, expression, tag and UUID, near and far.
func TestAffinity(t *testing.T) {
	c := newCloud(t)
	for i := 1; i <= 4; i++ {
		c.server(i, func(s *log.Server) { s.RackIdentifier = fmt.Sprint("r", (i+1)/2) })
	}
	c.vm(1, 1, ownerA, 1, func(v *log.VM) { v.Alias, v.Properties = "db0", `{"tags":{"role":"db","docker:label:x":"1"}}` })
	c.vm(2, 2, ownerA, 1, func(v *log.VM) { v.Alias = "web0" })
	c.vm(3, 3, ownerB, 1, func(v *log.VM) { v.Alias, v.Properties = "db0", `{"tags":{"role":"db"}}` })
	for _, one := range []struct {
		vm   string
		want []int // any of them
	}{
		{`"affinity":["instance==db0"]`, []int{1}},
		{`"affinity":["instance==d*"]`, []int{1}},
		{`"affinity":["container==/^d.0$/"]`, []int{1}},
		{`"affinity":["role==db"]`, []int{1}},
		{`"affinity":["x==1"]`, []int{1}},
		{`"affinity":[{"key":"instance","operator":"==","value":"` + vm(1).String() + `","valueType":"exact"}]`, []int{1}},
		{`"affinity":["instance!=*"]`, []int{3, 4}},
		{`"affinity":["instance!=db0"]`, []int{2, 3, 4}},
		{`"affinity":["instance!=~*0"]`, []int{3, 4}},
		{`"affinity":["instance==~nothing"]`, []int{3, 4}},
		{`"affinity":["instance==nothing"]`, []int{0}},
		{`"affinity":["instance==db0","instance==web0"]`, []int{0}},
		{`"affinity":["instance==db0","instance!=~db0"]`, []int{1}},
		{`"locality":{"near":["` + vm(1).String() + `"]}`, []int{1}},
		{`"locality":{"far":["` + vm(1).String() + `"]}`, []int{3, 4}},
		{`"locality":{"near":["` + vm(3).String() + `"]}`, []int{1, 2, 3, 4}}, // another's
		{`"alias":"x"`, []int{3, 4}},                                          // other racks than those of the owner
	} {
		if got := chosen(c.ask(request(t, `,"ram":1024,`+one.vm, "", ""), "")); !slices.Contains(one.want, got) {
			t.Errorf("%s: server %d, want one of %v", one.vm, got, one.want)
		}
	}
}

// TestSpread: VMs are packed, or spread by the package or the configuration.
func TestSpread(t *testing.T) {
	c := newCloud(t)
	for i := 1; i <= 3; i++ {
		c.server(i, nil)
	}
	c.vm(1, 1, ownerB, 8192, nil)
	c.vm(2, 2, ownerB, 4096, nil)
	c.vm(3, 1, ownerA, 1, nil)
	for _, one := range []struct {
		pkg, defaults string
		want          int
	}{
		{``, "weight_uniform_random=0,weight_unreserved_disk=0", 2}, // not beside the owner's, and the least memory
		{`,"alloc_server_spread":"max-ram"`, "weight_uniform_random=0,weight_unreserved_disk=0", 3},
		{``, "server_spread=max-ram,weight_uniform_random=0,weight_unreserved_disk=0", 3},
	} {
		if got := chosen(c.ask(request(t, `,"ram":1024`, one.pkg, ""), one.defaults)); got != one.want {
			t.Errorf("%s %s: server %d, want %d", one.pkg, one.defaults, got, one.want)
		}
	}
}

// world draws a cloud and a request.
func world(t *rapid.T) (*cloud, *Request, string) {
	c := newCloud(t)
	servers := rapid.IntRange(0, 12).Draw(t, "servers")
	for i := 1; i <= servers; i++ {
		drawServer(t, c, i)
	}
	for i := range rapid.IntRange(0, 30).Draw(t, "vms") {
		c.vm(i+1, rapid.IntRange(1, 13).Draw(t, "on"), rapid.SampledFrom([]string{ownerA, ownerB}).Draw(t, "owner"), uint64(rapid.IntRange(0, 60<<10).Draw(t, "ram")), func(v *log.VM) {
			v.State = rapid.SampledFrom([]string{"running", "stopped", "failed", "destroyed", "provisioning"}).Draw(t, "state")
			v.Quota, v.CPUCap = uint64(rapid.IntRange(0, 300).Draw(t, "quota")), uint64(rapid.SampledFrom([]int{0, 100, 1600}).Draw(t, "cap"))
			v.Alias = fmt.Sprint("v", i)
		})
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "tickets") {
		c.put(&log.Ticket{
			UUID: uuidOf(0x70, i), ServerUUID: cn(rapid.IntRange(1, 13).Draw(t, "at")), Scope: "vm", Action: "provision", OfID: vm(rapid.IntRange(1, 40).Draw(t, "of")).String(), Status: log.TicketActive,
			Extra: fmt.Sprintf(`{"max_physical_memory":%d,"cpu_cap":100,"quota":50,"owner_uuid":%q}`, rapid.IntRange(0, 50<<10).Draw(t, "mem"), ownerB),
		})
	}
	vm := fmt.Sprintf(`,"ram":%d,"quota":%d%s`, rapid.IntRange(1, 80<<10).Draw(t, "want"), rapid.IntRange(0, 500).Draw(t, "disk"),
		rapid.SampledFrom([]string{"", `,"locality":{"far":["` + vm(1).String() + `"],"strict":true}`, `,"affinity":["instance!=v*"]`, `,"affinity":["instance==v1"]`}).Draw(t, "locality"))
	text := rapid.SampledFrom([]string{"", "filter_large_servers=false", "overprovision_ratio_ram=1.5,overprovision_ratio_disk=2", "filter_capness=false,server_spread=random"}).Draw(t, "defaults")
	return c, request(t, vm, "", ""), text
}

func drawServer(t *rapid.T, c *cloud, i int) {
	c.server(i, func(s *log.Server) {
		s.Reserved = rapid.IntRange(0, 5).Draw(t, "reserved") == 0
		s.Reservoir = rapid.IntRange(0, 3).Draw(t, "reservoir") == 0
		s.Setup = rapid.IntRange(0, 9).Draw(t, "setup") != 0
		s.RAM = uint64(rapid.IntRange(1, 120<<10).Draw(t, "memory"))
		s.ReservationRatio = rapid.SampledFrom([]string{"", "0", "0.25", "1"}).Draw(t, "ratio")
		s.RackIdentifier = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "rack")
	})
}

// TestNeverWithoutCapacity: by a plain count, apart from the code under test, the server
// that is chosen has room for the VM; and the same state gives the same answer, also with
// a Memo that has been used.
func TestNeverWithoutCapacity(t *testing.T) {
	memo := &Memo{}
	rapid.Check(t, func(t *rapid.T) {
		c, r, text := world(t)
		d, _ := ParseDefaults(text)
		first, second := c.ask(r, text), Allocate(ViewOf(c.State), memo, &d, r)
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("two answers by one state: %+v and %+v", first, second)
		}
		if first.Server == nil {
			return
		}
		s := first.Server
		var ram, disk, cpu float64
		met := map[string]bool{}
		for rec := range c.TicketsBy(true) {
			ticket := rec.Object.(*log.Ticket)
			var extra struct {
				RAM float64 `json:"max_physical_memory"`
			}
			_ = json.Unmarshal([]byte(ticket.Extra), &extra)
			v := c.VM(mustUUID(ticket.OfID))
			made := v != nil && v.ServerUUID == s.UUID && counts(v) && v.State != "provisioning"
			if ticket.ServerUUID == s.UUID && !made && !met[ticket.OfID] && (v == nil || v.ServerUUID != s.UUID || !counts(v)) {
				met[ticket.OfID] = true
				ram, disk, cpu = ram+extra.RAM, disk+50<<10, cpu+100
			}
		}
		for rec := range c.VMsOn(s.UUID) {
			if v := rec.Object.(*log.VM); counts(v) {
				ram, disk, cpu = ram+float64(v.MaxPhysicalMemory), disk+float64(v.Quota)*1024, cpu+float64(v.CPUCap)
			}
		}
		reserve := map[string]float64{"": 0.15, "0": 0, "0.25": 0.25, "1": 1}[s.ReservationRatio]
		if got := float64(s.RAM) * (1 - reserve) * float64(d.RatioRAM) / 100; ram+float64(r.ram) > got+1 {
			t.Fatalf("%v MiB of memory are promised of %v", ram+float64(r.ram), got)
		}
		if got := 1600 * float64(d.RatioCPU) / 100; cpu+float64(r.cpu) > got {
			t.Fatalf("%v %% of CPU are promised of %v", cpu+float64(r.cpu), got)
		}
		if got := 962560 * float64(d.RatioDisk) / 100; r.quota > 0 && disk+float64(r.quota) > got {
			t.Fatalf("%v MiB of disk are promised of %v", disk+float64(r.quota), got)
		}
		if s.Reserved || !s.Setup {
			t.Fatalf("chose %+v", s)
		}
	})
}

func mustUUID(text string) log.UUID {
	u, err := log.ParseUUID(text)
	if err != nil {
		panic(err)
	}
	return u
}

// TestMoreServersAreNoWorse: what could be placed can be placed when there is one server
// more.
func TestMoreServersAreNoWorse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, r, text := world(t)
		before := c.ask(r, text)
		drawServer(t, c, 14)
		if after := c.ask(r, text); before.Server != nil && after.Server == nil {
			t.Fatalf("a server more, and none is fit: %+v", after.Steps)
		}
	})
}

// TestMany: among 10,000 servers with 100,000 VMs, a VM is placed within the time that a
// client waits; the figure itself is make bench-triton's. The steps stay short.
func TestMany(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes 110,000 objects")
	}
	c := manyServers(t)
	d := Standard()
	memo := &Memo{}
	r := request(t, `,"ram":1024,"quota":10`, "", "")
	begin := time.Now()
	first := Allocate(ViewOf(c.State), memo, &d, r)
	t.Logf("first %s", time.Since(begin))
	begin = time.Now()
	got := Allocate(ViewOf(c.State), memo, &d, r)
	t.Logf("next %s", time.Since(begin))
	if got.Server == nil || got.Server != first.Server || got.Looked < 10_000 {
		t.Fatalf("chose %v and %v", first.Server, got.Server)
	}
	if b, _ := json.Marshal(got.Steps); len(b) > 256<<10 {
		t.Errorf("the steps have %d bytes", len(b))
	}
}

func manyServers(t interface{ Fatal(...any) }) *cloud {
	c := newCloud(t)
	for i := range 10_000 {
		c.server(i+1, func(s *log.Server) { s.RackIdentifier = fmt.Sprint("r", i/40) })
	}
	for i := range 100_000 {
		owner := ownerB
		if i%100 == 0 {
			owner = ownerA
		}
		c.vm(i+1, i%10_000+1, owner, uint64(1024+i%7*512), nil)
	}
	return c
}

func BenchmarkAllocate(b *testing.B) {
	c := manyServers(b)
	d, memo := Standard(), &Memo{}
	r := request(b, `,"ram":1024,"quota":10`, "", "")
	Allocate(ViewOf(c.State), memo, &d, r)
	b.ReportAllocs()
	for b.Loop() {
		Allocate(ViewOf(c.State), memo, &d, r)
	}
}
