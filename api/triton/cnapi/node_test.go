package cnapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/internal/apitest"
	"rutter/api/reach"
	"rutter/log"
)

const cn3 = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed03"

// sysinfoAt is the sysinfo of a cn-agent with an address on the admin network.
func sysinfoAt(cn, ip string, port, boot int) string {
	return fmt.Sprintf(`{"sysinfo":{"UUID":%q,"Hostname":"n","Setup":"true","Boot Time":"%d","CN Agent Port":%d,
		"Network Interfaces":{"net0":{"MAC Address":"00:50:56:34:60:4c","ip4addr":%q,"Link Status":"up","NIC Names":["admin"]}}}}`, cn, boot, port, ip)
}

// A sysinfo cannot make servers post tasks where it likes: not to the address that it
// came from either, if no operator named it.
func TestWhereTasksMayGo(t *testing.T) {
	store := newMemory()
	s := newService(t, store, func(c *Config) { c.HTTP = reach.New(reach.Config{View: store.View}).Client(nil) })
	say := func(ip, want string) {
		t.Helper()
		ask(t, s, "POST /servers/"+cn2+"/sysinfo", sysinfoAt(cn2, ip, 5309, 1), 200)
		got := s.server(testUUID(t, cn2)).AdminIP
		if text := got.String(); text != want {
			t.Errorf("after a sysinfo with %s the server is reached at %s, want %s", ip, text, want)
		}
	}
	say("10.99.99.7", "invalid IP") // there is no admin network
	say("127.0.0.1", "invalid IP")  // it came from there
	say("169.254.169.254", "invalid IP")
	create := func(set []string, o log.Object) {
		t.Helper()
		if refusal := change(t, store, log.Op{Action: log.Create, Kind: o.Kind(), Set: set, Object: o}); refusal != nil {
			t.Fatal(refusal)
		}
	}
	network := testUUID(t, "0e70de36-a40b-4ac0-9429-819f5ff82011")
	create([]string{"mtu", "name", "nic_tag", "provision_end_ip", "provision_start_ip", "subnet", "uuid"}, &log.Network{
		UUID: network, Name: "admin", NICTag: "admin", MTU: 1500, Subnet: netip.MustParsePrefix("10.99.99.0/24"),
		ProvisionStart: netip.MustParseAddr("10.99.99.5"), ProvisionEnd: netip.MustParseAddr("10.99.99.250"),
	})
	create([]string{"belongs_to_type", "belongs_to_uuid", "ip", "mac", "network_uuid", "owner_uuid"}, &log.NIC{
		MAC: log.MAC{0, 0x50, 0x56, 0, 0, 1}, BelongsToType: "zone", BelongsToUUID: testUUID(t, vm1), OwnerUUID: testUUID(t, vm1), NetworkUUID: network, IP: netip.MustParseAddr("10.99.99.8"),
	})
	say("10.99.99.7", "10.99.99.7")
	say("10.99.99.8", "10.99.99.7") // that of a service on the admin network
	say("10.99.98.1", "10.99.99.7")

	// Two nodes at one address: the second is not reached there, nor any more where it was.
	second := func(ip, want string) {
		t.Helper()
		ask(t, s, "POST /servers/"+cn3+"/sysinfo", sysinfoAt(cn3, ip, 1, 1), 200)
		if got := s.server(testUUID(t, cn3)).AdminIP.String(); got != want {
			t.Errorf("after a sysinfo with %s the second server is reached at %s, want %s", ip, got, want)
		}
	}
	second("10.99.99.9", "10.99.99.9")
	refused := s.counts.refusedAddresses.Load()
	second("10.99.99.7", "invalid IP")
	second("10.99.99.7", "invalid IP")
	if got := s.counts.refusedAddresses.Load() - refused; got != 2 {
		t.Errorf("%d refused addresses are counted, want 2", got)
	}
	say("10.99.99.9", "10.99.99.9") // they change places
	second("10.99.99.7", "10.99.99.7")
}

// A task goes to no address that nothing named, even if the log has it already; the
// honest node gets its own.
func TestLyingNodeIsNotDialled(t *testing.T) {
	var secret, honest atomic.Int32
	serve := func(address string, connections *atomic.Int32) int {
		l, err := net.Listen("tcp", address+":0")
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) }))
		_ = server.Listener.Close()
		server.Listener = l
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		}
		server.Start()
		t.Cleanup(server.Close)
		return l.Addr().(*net.TCPAddr).Port
	}
	secretPort, honestPort := serve("127.0.0.2", &secret), serve("127.0.0.1", &honest)
	store := newMemory()
	s := newService(t, store, func(c *Config) { c.HTTP, c.Every = reaching(t, store), 20*time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	task := func(cn string) (status, failure string) {
		t.Helper()
		id := ask(t, s, "POST /servers/"+cn+"/tasks", `{"task":"nop"}`, 200)["id"].(string)
		got := ask(t, s, "GET /tasks/"+id+"/wait?timeout=20", "", 200)
		failure, _ = got["failure"].(string)
		return got["status"].(string), failure
	}
	ask(t, s, "POST /servers/"+cn2+"/sysinfo", sysinfoAt(cn2, "127.0.0.2", secretPort, 1), 200)
	if status, why := task(cn2); status != "failure" || !strings.Contains(why, "no admin address") {
		t.Errorf("of a sysinfo that lies: %s %q", status, why)
	}
	if refusal := change(t, store, log.Op{Action: log.Update, Kind: log.KindServer, ID: cn2, Set: []string{"admin_ip", "agent_port"}, Object: &log.Server{
		AdminIP: netip.MustParseAddr("127.0.0.2"), AgentPort: uint32(secretPort),
	}}); refusal != nil {
		t.Fatal(refusal)
	}
	if status, why := task(cn2); status != "failure" || !strings.Contains(why, "it was not sent") {
		t.Errorf("of an address that the log has: %s %q", status, why)
	}
	ask(t, s, "POST /servers/"+cn3+"/sysinfo", sysinfoAt(cn3, "127.0.0.1", honestPort, 1), 200)
	if status, why := task(cn3); status != "complete" {
		t.Errorf("of the honest node: %s %q", status, why)
	}
	if secret.Load() != 0 || honest.Load() != 1 {
		t.Errorf("%d connections for the node that lies, %d to the honest one; want 0 and 1", secret.Load(), honest.Load())
	}
}

// What an operator named a server stays; else it is called as it calls itself.
func TestHostname(t *testing.T) {
	s := newService(t, newMemory(), nil)
	say := func(name, want string) {
		t.Helper()
		ask(t, s, "POST /servers/"+cn1+"/sysinfo", `{"sysinfo":{"UUID":"`+cn1+`","Hostname":"`+name+`","Setup":"true"}}`, 200)
		if got := s.server(testUUID(t, cn1)).Hostname; got != want {
			t.Errorf("a node that calls itself %s is %s, want %s", name, got, want)
		}
	}
	say("a", "a")
	say("b", "b")
	ask(t, s, "POST /servers/"+cn1, `{"hostname":"named"}`, 204)
	say("b", "named")
	say("c", "named")
	say("named", "named")
	say("d", "d")
}

func TestReboot(t *testing.T) {
	cn := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) }))
	defer cn.Close()
	_, port, _ := net.SplitHostPort(cn.Listener.Addr().String())
	var at int
	_, _ = fmt.Sscan(port, &at)
	store := newMemory()
	s := newService(t, store, func(c *Config) { c.HTTP, c.Every = reaching(t, store), 20*time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	status := func() string { return s.server(testUUID(t, cn2)).TransitionalStatus }
	reboot := func() map[string]any {
		t.Helper()
		id := ask(t, s, "POST /servers/"+cn2+"/reboot", `{"timeout":20}`, 202)["id"].(string)
		if status() != "rebooting" {
			t.Errorf("asked to: %q", status())
		}
		return ask(t, s, "GET /tasks/"+id+"/wait?timeout=20", "", 200)
	}
	ask(t, s, "POST /servers/"+cn1+"/reboot", "", 409) // an agent of ours does not
	ask(t, s, "POST /servers/"+cn3+"/reboot", "", 404)
	ask(t, s, "POST /servers/"+cn2+"/sysinfo", sysinfoAt(cn2, "127.0.0.1", at, 100), 200)
	if done := reboot(); done["status"] != "complete" || status() != "rebooting" {
		t.Errorf("it is %v, the server %q", done["status"], status())
	}
	ask(t, s, "POST /servers/"+cn2+"/reboot", "", 409)
	ask(t, s, "POST /servers/"+cn2+"/sysinfo", sysinfoAt(cn2, "127.0.0.1", at, 100), 200)
	if status() != "rebooting" {
		t.Errorf("a sysinfo of the same boot made it %q", status())
	}
	ask(t, s, "POST /servers/"+cn2+"/sysinfo", sysinfoAt(cn2, "127.0.0.1", at, 200), 200)
	if status() != "" {
		t.Errorf("it came back, and is %q", status())
	}
	cn.Close()
	if done := reboot(); done["status"] != "failure" || status() != "" {
		t.Errorf("not reached, it is %v, the server %q", done["status"], status())
	}
}

func TestFiltersAndExtras(t *testing.T) {
	s := newService(t, newMemory(), nil)
	ask(t, s, "POST /servers/"+cn2+"/sysinfo", `{"sysinfo":{"UUID":"`+cn2+`","Hostname":"two","MiB of Memory":1024,"CPU Total Cores":2,"Boot Parameters":{"headnode":"true"}}}`, 200)
	ask(t, s, "POST /servers/"+cn2, `{"reserved":true,"reservoir":true,"datacenter":"west","reservation_ratio":0.25}`, 204)
	for query, want := range map[string]string{
		"": "cn1 two", "?setup=true": "cn1", "?setup=false": "two", "?headnode=true": "two", "?reserved=true": "two", "?reserved=false": "cn1",
		"?reservoir=true": "two", "?hostname=cn1": "cn1", "?datacenter=west": "two", "?status=running": "", "?uuids=" + cn2: "two",
		"?uuids=" + cn1 + "," + cn2: "cn1 two", "?setup=true&hostname=two": "", "?limit=1": "cn1", "?limit=1&offset=1": "two", "?offset=2": "",
	} {
		var got string
		for _, o := range askList(t, s, "GET /servers"+query) {
			got += " " + o["hostname"].(string)
		}
		if got != "" {
			got = got[1:]
		}
		if got != want {
			t.Errorf("GET /servers%s: %q, want %q", query, got, want)
		}
	}
	for extras, field := range map[string]string{"sysinfo": "sysinfo", "agents": "agents", "vms": "vms", "capacity": "unreserved_ram"} {
		with, without := askList(t, s, "GET /servers?uuids="+cn2+"&extras="+extras)[0], askList(t, s, "GET /servers?uuids="+cn2+"&extras=")[0]
		if _, ok := with[field]; !ok {
			t.Errorf("extras=%s has no %s", extras, field)
		}
		if _, ok := without[field]; ok {
			t.Errorf("without extras there is %s", field)
		}
	}
	if got := ask(t, s, "GET /servers/"+cn2, "", 200)["unreserved_ram"]; got != 768.0 {
		t.Errorf("unreserved_ram %v, want 768", got)
	}
}

func TestMetrics(t *testing.T) {
	s := newService(t, newMemory(), nil)
	ask(t, s, "POST /servers/"+cn1+"/events/heartbeat", "{}", 204)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			got[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	for key, want := range map[string]float64{"rutter_cnapi_messages_total heartbeat": 1, "rutter_cnapi_messages_total sysinfo": 1, "rutter_cnapi_servers_unsetup": 0} {
		if value, ok := got[key]; !ok || value != want {
			t.Errorf("%s is %v (%v), want %v", key, value, ok, want)
		}
	}
}

// senderKey is the key of a sender's identity in the context of a request.
type senderKey struct{}

// authored makes what a sender's context asks for the sender's, as the servers' store does.
type authored struct {
	*apitest.Memory
	node log.UUID
}

func (a authored) Propose(ctx context.Context, c *log.Change) (log.Result, error) {
	c.By = log.Author{Role: log.RoleForeign}
	if ctx.Value(senderKey{}) != nil {
		c.By = log.Author{Role: log.RoleCN, CN: a.node}
	}
	return a.Memory.Propose(ctx, c)
}

// A node that reports with its own certificate may not write where it is reached; the
// server that believes the report does.
func TestAddressOfNodeWithCertificate(t *testing.T) {
	store, node := newMemory(), testUUID(t, cn2)
	s := newService(t, store, func(c *Config) { c.Store, c.HTTP = authored{store, node}, reaching(t, store) })
	for range 2 { // the first makes the object
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), senderKey{}, true), http.MethodPost, "/servers/"+cn2+"/sysinfo", strings.NewReader(sysinfoAt(cn2, "127.0.0.1", 5309, 1)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if got := s.server(node); w.Code != http.StatusOK || got == nil || got.AdminIP != netip.MustParseAddr("127.0.0.1") {
			t.Fatalf("%d %s: the server is %+v", w.Code, w.Body, got)
		}
	}
}
