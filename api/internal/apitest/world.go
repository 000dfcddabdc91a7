package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"rutter/log"
)

// T has the methods of *testing.T and *rapid.T that helpers need.
type T interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// UUID returns a UUID that ends in n.
func UUID(n int) log.UUID {
	u, err := log.ParseUUID(fmt.Sprintf("00000000-0000-4000-8000-%012x", n))
	if err != nil {
		panic(err)
	}
	return u
}

// World is a store, and the API for it.
type World struct {
	T       T
	Store   *Memory
	Handler http.Handler
}

// Call makes a request; headers are name, value, name, value…
func (world *World) Call(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	world.T.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	world.Handler.ServeHTTP(w, r)
	return w
}

// Must is Call for a request that must succeed; it decodes the answer.
func (world *World) Must(method, path, body string, headers ...string) map[string]any {
	world.T.Helper()
	w := world.Call(method, path, body, headers...)
	if w.Code >= 300 {
		world.T.Fatalf("%s %s %s: %d %s", method, path, body, w.Code, w.Body)
	}
	var o map[string]any
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil {
			world.T.Fatalf("%s %s: %v: %s", method, path, err, w.Body)
		}
	}
	return o
}

// Ids of a furnished world.
var (
	OwnerA, OwnerB   = UUID(0xa), UUID(0xb)
	FabricA, FabricB = UUID(0xfa), UUID(0xfb)
	External         = UUID(0xe0)
	CN1, CN2, CN3    = UUID(0x101), UUID(0x102), UUID(0x103)
)

const (
	VNetA, VNetB = 1001, 1002
	UnderlayMAC  = "00:00:5e:00:00:0%d"
)

// Furnish makes two tags, an External network, two fabrics and three CNs with
// underlay NICs.
func (world *World) Furnish() {
	world.T.Helper()
	world.Must("POST", "/nic_tags", `{"name":"external"}`)
	world.Must("POST", "/nic_tags", `{"name":"sdc_underlay","mtu":9000}`)
	world.Must("POST", "/nic_tags", `{"name":"sdc_overlay","mtu":9000}`)
	network := func(u log.UUID, fields string) {
		world.Must("POST", "/networks", fmt.Sprintf(`{"uuid":%q,"vlan_id":0,%s}`, u, fields))
	}
	network(External, `"name":"external","nic_tag":"external","subnet":"192.0.2.0/24","provision_start_ip":"192.0.2.10","provision_end_ip":"192.0.2.200","gateway":"192.0.2.1","resolvers":["192.0.2.53"]`)
	network(UUID(0xe1), `"name":"underlay","nic_tag":"sdc_underlay","subnet":"198.51.100.0/24","provision_start_ip":"198.51.100.10","provision_end_ip":"198.51.100.200"`)
	fabric := `"name":"net","nic_tag":"sdc_overlay","subnet":"10.0.0.0/24","provision_start_ip":"10.0.0.5","provision_end_ip":"10.0.0.250","gateway":"10.0.0.1","resolvers":[],"fabric":true,"vnet_id":%d,"owner_uuids":[%q]`
	network(FabricA, fmt.Sprintf(fabric, VNetA, OwnerA))
	network(FabricB, fmt.Sprintf(fabric, VNetB, OwnerB))
	for i, cn := range []log.UUID{CN1, CN2, CN3} {
		world.Must("POST", "/servers", fmt.Sprintf(`{"uuid":%q,"hostname":"cn%d"}`, cn, i+1))
		world.Underlay(i)
	}
}

// Underlay gives the i-th CN its underlay NIC.
func (world *World) Underlay(i int) {
	cn := []log.UUID{CN1, CN2, CN3}[i]
	world.Must("POST", fmt.Sprintf("/networks/%s/nics", UUID(0xe1)),
		fmt.Sprintf(`{"mac":%q,"belongs_to_type":"server","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q,"underlay":true}`, fmt.Sprintf(UnderlayMAC, i+1), cn, OwnerA, cn))
}

// NIC provisions a NIC and returns its MAC.
func (world *World) NIC(network, cn log.UUID) string {
	world.T.Helper()
	o := world.Must("POST", fmt.Sprintf("/networks/%s/nics", network), NICBody(network, cn))
	return o["mac"].(string)
}

// NICBody is the body of a request that provisions a NIC.
func NICBody(network, cn log.UUID) string {
	owner := OwnerA
	if network == FabricB {
		owner = OwnerB
	}
	return fmt.Sprintf(`{"belongs_to_type":"zone","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q}`, UUID(0x77), owner, cn)
}
