package cnapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rutter/api/internal/apitest"
	"rutter/log"
)

const (
	network1 = "0e70de36-a40b-4ac0-9429-819f5ff82011"
	absent   = "00000000-0000-4000-8000-0000000000ff"
)

// withNetwork is a service whose log has a network of two addresses.
func withNetwork(t *testing.T) (*apitest.Memory, *Service) {
	t.Helper()
	store := newMemory()
	s := newService(t, store, nil)
	for _, one := range []struct {
		kind log.Kind
		text string
	}{
		{log.KindNICTag, `{"name":"external","mtu":1500}`},
		{log.KindNetwork, `{"uuid":"` + network1 + `","name":"n","nic_tag":"external","vlan_id":7,"subnet":"10.1.0.0/24","provision_start_ip":"10.1.0.10","provision_end_ip":"10.1.0.11","gateway":"10.1.0.1"}`},
	} {
		object, set, err := log.ParseObject(one.kind, []byte(one.text))
		if err != nil {
			t.Fatal(err)
		}
		if refusal := change(t, store, log.Op{Action: log.Create, Kind: one.kind, Set: set, Object: object}); refusal != nil {
			t.Fatal(refusal)
		}
	}
	return store, s
}

// A VM whose networks are given: its NICs, with addresses, are in the log with the
// task, and gone again when the task has failed.
func TestNetworksOfAMachine(t *testing.T) {
	store, s := withNetwork(t)
	path := "POST /servers/" + cn1 + "/vms"
	body := `{"uuid":"` + vm1 + `","owner_uuid":"` + cn2 + `","alias":"a","autoboot":false,"networks":[{"uuid":"` + network1 + `"},{"ipv4_uuid":"` + network1 + `","ip":"10.1.0.99","primary":true}]}`
	id := ask(t, s, path, body, 200)["id"].(string)
	head := store.Head().Seq
	params := ask(t, s, "GET /tasks/"+id, "", 200)["params"].(map[string]any)
	nics := params["nics"].([]any)
	if len(nics) != 2 {
		t.Fatalf("the task has %v", params)
	}
	for i, want := range []string{"10.1.0.10 false zone provisioning", "10.1.0.99 true zone provisioning"} {
		mac := nics[i].(map[string]any)["mac"].(string)
		rec, ok := stateOf(store).Get(log.KindNIC, mac)
		if !ok {
			t.Fatalf("the log has no NIC %s", mac)
		}
		nic := rec.Object.(*log.NIC)
		if got := fmt.Sprint(nic.IP, nic.Primary, " ", nic.BelongsToType, " ", nic.State); got != want || nic.BelongsToUUID.String() != vm1 || nic.OwnerUUID.String() != cn2 || nic.CNUUID.String() != cn1 {
			t.Errorf("NIC %d: %s of %s, want %s", i, got, nic.BelongsToUUID, want)
		}
	}
	// A VM that is made does not change its NICs, whatever becomes of its task.
	s.sweep(t.Context())
	if store.Head().Seq != head {
		t.Errorf("a task that is open lost something: %d events", store.Head().Seq-head)
	}
	fail := log.Op{Action: log.Update, Kind: log.KindTask, ID: id, Set: []string{"failure", "status"}, Object: &log.Task{Status: log.TaskFailure, Failure: "no room"}}
	if refusal := change(t, store, fail); refusal != nil {
		t.Fatal(refusal)
	}
	s.sweep(t.Context())
	for _, kind := range []log.Kind{log.KindNIC, log.KindVM} {
		if n := stateOf(store).Count(kind); n != 0 {
			t.Errorf("%d of %s are left", n, kind)
		}
	}
	head = store.Head().Seq
	s.sweep(t.Context())
	if store.Head().Seq != head {
		t.Error("it is freed again")
	}
	// Its addresses can be had again; and a VM that its node knows of keeps them.
	id = ask(t, s, path, body, 200)["id"].(string)
	if refusal := change(t, store, log.Op{Action: log.Update, Kind: log.KindVM, ID: vm1, Set: []string{"state"}, Object: &log.VM{State: "stopped"}}); refusal != nil {
		t.Fatal(refusal)
	}
	fail.ID = id
	if refusal := change(t, store, fail); refusal != nil {
		t.Fatal(refusal)
	}
	s.sweep(t.Context())
	if n := stateOf(store).Count(log.KindNIC); n != 2 {
		t.Errorf("a VM that is there has %d NICs, want 2", n)
	}
}

// What cannot be provisioned is refused whole, in the request's words.
func TestNetworksRefused(t *testing.T) {
	store, s := withNetwork(t)
	of := func(more string) string {
		return `{"uuid":"` + vm1 + `","owner_uuid":"` + cn2 + `",` + more + `}`
	}
	head := store.Head().Seq
	for _, c := range []struct{ what, body, want string }{
		{"no list", of(`"networks":7`), `422 InvalidParameters: Invalid parameters | networks InvalidParameter: it is no list of networks, but of kind number`},
		{"none", of(`"networks":[]`), `422 InvalidParameters: Invalid parameters | networks InvalidParameter: there are 0`},
		{"no UUID", of(`"networks":["x"]`), `422 InvalidParameters: Invalid parameters | networks.0.uuid InvalidParameter: "x" is not a UUID`},
		{"no address", of(`"networks":[{"uuid":"` + network1 + `","ip":"x"}]`), `422 InvalidParameters: Invalid parameters | networks.0.ip InvalidParameter: "x" is no address`},
		{"two addresses", of(`"networks":[{"uuid":"` + network1 + `","ipv4_ips":["10.1.0.8","10.1.0.9"]}]`), `422 InvalidParameters: Invalid parameters | networks.0.ipv4_ips InvalidParameter: a NIC has one address`},
		{"NICs as well", of(`"networks":["` + network1 + `"],"nics":[]`), `422 InvalidParameters: Invalid parameters | nics InvalidParameter: networks are given as well`},
		{"no VM", `{"owner_uuid":"` + cn2 + `","networks":["` + network1 + `"]}`, `422 InvalidParameters: Missing parameters | uuid MissingParameter: Missing parameter`},
		{"no owner", `{"uuid":"` + vm1 + `","networks":["` + network1 + `"]}`, `422 InvalidParameters: Missing parameters | owner_uuid MissingParameter: Missing parameter`},
		{"unknown network", of(`"networks":["` + network1 + `","` + absent + `"]`), `422 InvalidParameters: Invalid parameters | networks.1.network_uuid InvalidParameter: network "` + absent + `" does not exist`},
		{"outside", of(`"networks":[{"uuid":"` + network1 + `","ip":"10.2.0.9"}]`), `422 InvalidParameters: Invalid parameters | networks.0.ip InvalidParameter: ip cannot be outside subnet`},
		{"full", of(`"networks":["` + network1 + `","` + network1 + `","` + network1 + `"]`), `507 SubnetFull: no more free IPs | networks.2.network_uuid InvalidParameter: every address from 10.1.0.10 to 10.1.0.11 of network "` + network1 + `" is in use`},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/servers/"+cn1+"/vms", strings.NewReader(c.body)))
			if got := said(t, w.Code, w.Body.Bytes()); got != c.want {
				t.Errorf("%s\n got %s\nwant %s", c.body, got, c.want)
			}
		})
	}
	if store.Head().Seq != head {
		t.Errorf("what was refused made %d events", store.Head().Seq-head)
	}
}

// A cn-agent, which does not follow the log, gets the NICs whole.
func TestNetworksForACNAgent(t *testing.T) {
	_, s := withNetwork(t)
	id := ask(t, s, "POST /servers/"+cn1+"/vms", `{"uuid":"`+vm1+`","owner_uuid":"`+cn2+`","networks":["`+network1+`"]}`, 200)["id"].(string)
	var params struct {
		Networks []string
		NICs     []map[string]any
	}
	if err := json.Unmarshal(s.filled(s.task(testUUID(t, id))), &params); err != nil {
		t.Fatal(err)
	}
	if len(params.NICs) != 1 || params.Networks != nil {
		t.Fatalf("got %+v", params)
	}
	delete(params.NICs[0], "mac")
	got, err := json.Marshal(params.NICs[0])
	want := `{"gateway":"10.1.0.1","ip":"10.1.0.10","ips":["10.1.0.10/24"],"mtu":1500,"network_uuid":"` + network1 + `","nic_tag":"external","primary":true,"vlan_id":7}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}
