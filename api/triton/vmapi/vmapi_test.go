package vmapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

// memory is a log of one server.
type memory struct {
	mu      sync.RWMutex
	state   *projections.State
	seq     log.Seq
	events  []*log.Event
	changed chan struct{}
	down    error
}

func (m *memory) Ready() error                                { return m.down }
func (m *memory) AwaitReady(context.Context) error            { return m.down }
func (m *memory) Serving() error                              { return m.down }
func (m *memory) WaitSeq(context.Context, log.Seq) error      { return nil }
func (m *memory) Consistent(context.Context) (log.Seq, error) { return m.seq, nil }

func (m *memory) View(fn func(*projections.State, log.Cursor)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	fn(m.state, log.Cursor{Seq: m.seq})
}

func (m *memory) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}

func (m *memory) Propose(_ context.Context, c *log.Change) (log.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.Time = max(c.Time, log.Time(1e18), m.state.Time())
	events, result := rules.Decide(m.state, c)
	for _, e := range events {
		m.seq++
		if _, err := m.state.Apply(m.seq, e); err != nil {
			return result, err
		}
		m.events = append(m.events, e)
	}
	result.Last = m.seq
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
	return result, nil
}

var (
	theNetwork = log.UUID{0xe, 15: 1}
	theVM      = log.UUID{0xb, 15: 1}
	newVM      = log.UUID{0xb, 15: 2}
	theCN      = log.UUID{0xc, 15: 1}
	theOwner   = log.UUID{0xa, 15: 1}
	theMAC     = log.MAC{0x90, 0xb8, 0xd0, 1, 2, 3}
)

func world(t *testing.T) (*memory, http.Handler) {
	t.Helper()
	m := &memory{state: projections.NewState()}
	create := func(set string, o log.Object) log.Op {
		return log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o}
	}
	result, err := m.Propose(t.Context(), &log.Change{ID: log.UUID{1}, Ops: []log.Op{
		create("mtu name", &log.NICTag{Name: "ext", MTU: 1500}),
		create("gateway mtu name nic_tag provision_end_ip provision_start_ip resolvers subnet uuid vlan_id", &log.Network{
			UUID: theNetwork, Name: "net", NICTag: "ext", VLANID: 7, MTU: 1400, Subnet: netip.MustParsePrefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.1"),
			ProvisionStart: netip.MustParseAddr("10.0.0.10"), ProvisionEnd: netip.MustParseAddr("10.0.0.250"), Resolvers: log.Addresses{netip.MustParseAddr("10.0.0.2")},
		}),
		create("hostname status uuid", &log.Server{UUID: theCN, Hostname: "cn1", Status: "running"}),
		create("alias owner_uuid server_uuid state uuid", &log.VM{UUID: theVM, Alias: "web0", OwnerUUID: theOwner, ServerUUID: theCN, State: "running"}),
		create("alias owner_uuid state uuid", &log.VM{UUID: newVM, Alias: "web1", OwnerUUID: theOwner, State: "provisioning"}),
		create("belongs_to_type belongs_to_uuid cn_uuid ip mac network_uuid owner_uuid", &log.NIC{MAC: theMAC, BelongsToType: "zone", BelongsToUUID: theVM, OwnerUUID: theOwner, CNUUID: theCN, NetworkUUID: theNetwork, IP: netip.MustParseAddr("10.0.0.5")}),
	}})
	if err != nil || result.Refusal != nil {
		t.Fatal(err, result.Refusal)
	}
	s, err := New(Config{Store: m})
	if err != nil {
		t.Fatal(err)
	}
	return m, s.Handler()
}

func ask(h http.Handler, method, path, body string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

// TestRule: the fields of networks are refused on each way, and change nothing;
// ips does what the NIC's own update does.
func TestRule(t *testing.T) {
	m, h := world(t)
	before := m.seq
	nic := `{"nics":[{"mac":"90:b8:d0:01:02:03","netmask":"255.0.0.0","gateways":["10.0.0.9"],"vlan_id":9,"nic_tag":"x"}]}`
	for _, path := range []string{"", "?action=update", "?action=update_nics"} {
		for _, method := range []string{http.MethodPost, http.MethodPut} {
			for body, want := range map[string][]string{
				nic:                                     {"nics.0.gateways", "nics.0.netmask", "nics.0.nic_tag", "nics.0.vlan_id"},
				`{"resolvers":["8.8.8.8"]}`:             {"resolvers"},
				`{"routes":{"10.2.0.0/16":"10.0.0.3"}}`: {"routes"},
			} {
				status, text := ask(h, method, "/vms/"+theVM.String()+path, body)
				var p rest.Error
				if err := json.Unmarshal([]byte(text), &p); err != nil {
					t.Fatal(err)
				}
				var fields []string
				for _, e := range p.Errors {
					fields = append(fields, e.Field)
					if e.Code != "Invalid" || !strings.Contains(e.Message, "PUT /networks/"+theNetwork.String()) {
						t.Errorf("%s %s %s: %+v does not name the network", method, path, body, e)
					}
				}
				if status != http.StatusConflict || p.Code != "ValidationFailed" || !slices.Equal(fields, want) {
					t.Errorf("%s %s %s: got %d %s", method, path, body, status, text)
				}
			}
		}
	}
	if m.seq != before {
		t.Errorf("%d events of updates that were refused", m.seq-before)
	}
	if status, text := ask(h, http.MethodPost, "/vms/"+theVM.String()+"?action=update_nics", `{"nics":[{"mac":"90:b8:d0:01:02:03","ips":["10.0.0.77/24"]}]}`); status != http.StatusAccepted {
		t.Fatalf("ips: got %d %s", status, text)
	}
	ours := m.events[len(m.events)-1]
	other, _ := world(t)
	if _, err := other.Propose(t.Context(), &log.Change{ID: log.UUID{2}, Ops: []log.Op{{
		Action: log.Update, Kind: log.KindNIC, ID: theMAC.String(), Set: []string{"ip"}, Object: &log.NIC{IP: netip.MustParseAddr("10.0.0.77")},
	}}}); err != nil {
		t.Fatal(err)
	}
	theirs := other.events[len(other.events)-1]
	if m.seq != before+1 || other.seq != m.seq || !log.Equal(ours.Object, theirs.Object) || fmt.Sprint(ours.Changed) != fmt.Sprint(theirs.Changed) {
		t.Errorf("ips: got %v of %v, want what the NIC's own update makes: %v of %v", ours.Changed, ours.Object, theirs.Changed, theirs.Object)
	}
}

// TestBad: answers to what cannot be done.
func TestBad(t *testing.T) {
	m, h := world(t)
	vm := "/vms/" + theVM.String()
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/vms/" + newVM.String(), `{"alias":"x"}`, 409, "UnallocatedVM"},
		{"POST", "/vms/" + newVM.String() + "?action=update_nics", `{"nics":[]}`, 409, "UnallocatedVM"},
		{"POST", "/vms/" + theCN.String(), `{}`, 404, "not found"},
		{"POST", "/vms/x", `{}`, 409, "Invalid UUID"},
		{"POST", vm + "?action=fly", `{}`, 409, "fly"},
		{"POST", vm, `no`, 409, "body"},
		{"POST", vm + "?action=update_nics", `{"nics":[{"mac":"90:b8:d0:01:02:03","model":"x"}]}`, 409, "'model' is not a valid property to update"},
		{"POST", vm + "?action=update_nics", `{"alias":"x"}`, 409, "'alias' is not a valid property to update"},
		{"POST", vm, `{"nics":[{"mac":"90:b8:d0:01:02:03","ip":"10.0.1.7"}]}`, 409, "subnet"},
		{"GET", "/vms?owner_uuid=x", "", 409, "owner_uuid"},
		{"GET", "/vms?limit=0", "", 409, "limit"},
		{"GET", "/vms/" + theCN.String(), "", 404, "ResourceNotFound"},
		{"DELETE", vm, "", 501, "--vmapi-behind"},
		{"GET", "/ping", "", 200, "OK"},
		{"GET", vm, "", 200, `"gateways":["10.0.0.1"]`},
		{"GET", "/vms?state=active&alias=web0", "", 200, `"netmask":"255.255.255.0"`},
		{"GET", "/vms?state=running", "", 200, `"resolvers":["10.0.0.2"]`},
		{"GET", "/vms?alias=none", "", 200, "[]"},
	} {
		if status, text := ask(h, c.method, c.path, c.body); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s %s %s: got %d %s, want %d … %s", c.method, c.path, c.body, status, text, c.status, c.want)
		}
	}
	m.down = errors.New("behind")
	for _, path := range []string{"/ping", "/vms", vm} {
		if status, _ := ask(h, "GET", path, ""); status != http.StatusServiceUnavailable {
			t.Errorf("%s on a server that cannot serve: %d, want 503", path, status)
		}
	}
}

// TestTask: fields of the VM itself are its compute node's to change.
func TestTask(t *testing.T) {
	m, h := world(t)
	m.agent(t)
	status, text := ask(h, http.MethodPut, "/vms/"+theVM.String(), `{"alias":"web9","nics":[{"mac":"90:b8:d0:01:02:03","primary":true}]}`)
	last := m.events[len(m.events)-1]
	task, is := last.Object.(*log.Task)
	if status != http.StatusAccepted || !is || task.Task != "machine_update" || task.ServerUUID != theCN || !strings.Contains(task.Params, `"alias":"web9"`) || !strings.Contains(text, task.UUID.String()) {
		t.Errorf("got %d %s and %v", status, text, last.Object)
	}
}

// TestUpdateThatNothingDoes: an update that would be a task without a taker is refused, and
// writes nothing: of a VM on a node without our agent, of one that is destroyed, and of one
// that there is not. An address is the log's, so it is changed on each node.
func TestUpdateThatNothingDoes(t *testing.T) {
	m, h := world(t)
	m.feature()
	vm := "/vms/" + theVM.String()
	refused := func(what, method, path, body string, status int, want string) {
		t.Helper()
		before := m.seq
		if got, text := ask(h, method, path, body); got != status || !strings.Contains(text, want) {
			t.Errorf("%s: %s %s %s: %d %s, want %d %s", what, method, path, body, got, text, status, want)
		}
		if m.seq != before {
			t.Errorf("%s: %s %s %s was written", what, method, path, body)
		}
	}
	for _, body := range []string{`{"quota":10}`, `{"alias":"x","nics":[{"mac":"90:b8:d0:01:02:03","primary":true}]}`} {
		refused("no agent", http.MethodPost, vm+"?action=update", body, http.StatusNotImplemented, "--vmapi-behind")
	}
	refused("no agent", http.MethodPut, vm, `{"quota":10}`, http.StatusNotImplemented, "--vmapi-behind")
	if status, text := ask(h, http.MethodPost, vm+"?action=update_nics", `{"nics":[{"mac":"90:b8:d0:01:02:03","ips":["10.0.0.77/24"]}]}`); status != http.StatusAccepted {
		t.Errorf("an address: %d %s", status, text)
	}
	m.agent(t)
	result, err := m.Propose(t.Context(), &log.Change{ID: log.UUID{6}, Ops: []log.Op{{Action: log.Update, Kind: log.KindVM, ID: theVM.String(), Set: []string{"state"}, Object: &log.VM{State: destroyed}}}})
	if err != nil || result.Refusal != nil {
		t.Fatal(err, result.Refusal)
	}
	for path, body := range map[string]string{
		"?action=update": `{"quota":10}`, "": `{"quota":10}`, "?action=update_nics": `{"nics":[{"mac":"90:b8:d0:01:02:03","ips":["10.0.0.78/24"]}]}`,
		"?action=kill": `{}`, "?action=start": `{"idempotent":true}`, "/tags": `{"a":"b"}`,
	} {
		refused("destroyed", http.MethodPost, vm+path, body, http.StatusConflict, "the VM is destroyed")
	}
	result, err = m.Propose(t.Context(), &log.Change{ID: log.UUID{7}, Ops: []log.Op{{Action: log.Delete, Kind: log.KindNIC, ID: theMAC.String()}, {Action: log.Delete, Kind: log.KindVM, ID: theVM.String()}}})
	if err != nil || result.Refusal != nil {
		t.Fatal(err, result.Refusal)
	}
	refused("gone", http.MethodPost, vm+"?action=update", `{"quota":10}`, http.StatusNotFound, "VM not found")
}

// behind is the store of a server that has applied nothing until it asks the leader.
type behind struct {
	*memory
	confirmed bool
}

func (b *behind) View(fn func(*projections.State, log.Cursor)) {
	if !b.confirmed {
		fn(projections.NewState(), log.Cursor{})
		return
	}
	b.memory.View(fn)
}

func (b *behind) Consistent(ctx context.Context) (log.Seq, error) {
	b.confirmed = true
	return b.memory.Consistent(ctx)
}

// A VM that was made through another server a moment ago is found here.
func TestAtAServerBehind(t *testing.T) {
	m, _ := world(t)
	m.agent(t)
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodGet, "/vms/" + theVM.String(), "", http.StatusOK},
		{http.MethodPost, "/vms/" + theVM.String(), `{"alias":"web9"}`, http.StatusAccepted},
		{http.MethodGet, "/vms/" + theCN.String(), "", http.StatusNotFound},
	} {
		s, err := New(Config{Store: &behind{memory: m}})
		if err != nil {
			t.Fatal(err)
		}
		if status, text := ask(s.Handler(), c.method, c.path, c.body); status != c.status {
			t.Errorf("%s %s: got %d %s, want %d", c.method, c.path, status, text, c.status)
		}
	}
}
