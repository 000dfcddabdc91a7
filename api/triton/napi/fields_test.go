package napi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"rutter/log"
	"rutter/projections"
)

// TestFields: the parameter fields cuts answers of fabrics, and of one network, in a
// query and in a body (NAPI's documentation, "Fabric VLAN fields" and "Fabric Network
// fields"; CloudAPI sends it with every call).
func TestFields(t *testing.T) {
	w := furnished(t)
	vlans := "/fabrics/" + owner1 + "/vlans"
	cut := w.make(vlans, `{"name": "a", "vlan_id": 2, "description": "<d>", "fields": ["name", "description"]}`)
	sameKeys(t, "created VLAN", cut, "description name")
	same(t, "description", cut["description"], "<d>")
	net := w.make(vlans+"/2/networks", fabricNet(1, "fields", `["uuid", "mtu", "owner_uuid", "owner_uuids", "gateway"]`))
	sameKeys(t, "created network", net, "gateway mtu owner_uuid uuid")
	path := vlans + "/2/networks/" + net["uuid"].(string)
	for _, c := range []struct{ method, path, body, want string }{
		{"GET", vlans + "/2?fields=name&fields=vnet_id", "", "name vnet_id"},
		{"GET", vlans + "/2?fields=name,vnet_id", "", "name vnet_id"},
		{"GET", vlans + "/2?fields=name", "", "name"},
		{"PUT", vlans + "/2", `{"name": "b", "fields": ["vlan_id", "name"]}`, "name vlan_id"},
		{"PUT", vlans + "/2?fields=vlan_id&fields=name", `{"name": "c"}`, "name vlan_id"},
		{"GET", path + "?fields=subnet&fields=uuid", "", "subnet uuid"},
		{"GET", "/networks/" + net["uuid"].(string) + "?fields=owner_uuid,owner_uuids,uuid", "", "owner_uuids uuid"},
		{"PUT", path, `{"description": "x", "fields": ["description"]}`, "description"},
		{"GET", path + "?fields=routes", "", ""},
	} {
		sameKeys(t, c.method+" "+c.path, w.ok(w.do(c.method, c.path, c.body)), c.want)
	}
	for _, list := range []struct{ path, want string }{
		{vlans + "?fields=name&fields=owner_uuid", "name owner_uuid"},
		{vlans + "?fields=name,owner_uuid", "name owner_uuid"},
		{vlans + "/2/networks?fields=name&fields=fabric&limit=1", "fabric name"},
		{vlans + "/2/networks", networkKeys + fabricKeys + " vnet_id owner_uuid gateway description"},
	} {
		got := w.listed(list.path)
		if len(got) != 1 {
			t.Fatalf("%s: got %d, want 1", list.path, len(got))
		}
		sameKeys(t, list.path, got[0], list.want)
	}
}

// TestBadFields: NAPI's words for fields that it does not take
// (test/integration/fabrics-invalid.test.js).
func TestBadFields(t *testing.T) {
	w := furnished(t)
	vlans := "/fabrics/" + owner1 + "/vlans"
	w.make(vlans, `{"vlan_id": 2, "name": "n"}`)
	var cases []refusal
	for _, c := range []struct{ value, want string }{
		{`1`, "must be an array of strings"},
		{`{}`, "must be an array of strings"},
		{`null`, "must be an array of strings"},
		{`[1]`, "must be an array of strings"},
		{`[{}]`, "must be an array of strings"},
		{`[]`, "must not be an empty array"},
		{`["foo"]`, "unknown field specified"},
		{`["a", "b", "c", "d", "e", "f"]`, "can only specify a maximum of 5 fields"},
	} {
		cases = append(cases, refusal{"VLAN " + c.value, "POST", vlans, `{"vlan_id": 3, "name": "m", "fields": ` + c.value + `}`, 422, badly("fields", c.want)})
	}
	many := `["` + strings.Repeat(`a", "`, 16) + `a"]`
	cases = append(cases,
		refusal{"network", "POST", vlans + "/2/networks", fabricNet(1, "fields", `["foo"]`), 422, badly("fields", "unknown field specified")},
		refusal{"network, too many", "POST", vlans + "/2/networks", fabricNet(1, "fields", many), 422, badly("fields", "can only specify a maximum of 16 fields")},
		refusal{"list", "GET", vlans + "?fields=foo", "", 422, badly("fields", "unknown field specified")},
		refusal{"list of networks", "GET", vlans + "/2/networks?fields=vnet_id", "", 422, badly("fields", "unknown field specified")},
		refusal{"one VLAN", "GET", vlans + "/2?fields=", "", 422, badly("fields", "must not be an empty array")},
		refusal{"one network", "GET", "/networks/" + net1 + "?fields=foo", "", 422, badly("fields", "unknown field specified")},
		refusal{
			"plain list", "GET", "/networks?fields=uuid", "", 422,
			`{"code": "InvalidParameters", "message": "Invalid parameters", "errors": [{"field": ["fields"], "code": "UnknownParameters", "message": "Unknown parameters: fields"}]}`,
		},
	)
	w.refuses(t, cases)
}

// TestNonObjects: a body of JSON that is no object (NAPI's test/unit/nics.test.js and
// network-pools.test.js, "invalid params (non-objects)").
func TestNonObjects(t *testing.T) {
	w := furnished(t)
	nic := "/nics/" + w.make("/nics", nicBody())["mac"].(string)
	var cases []refusal
	for _, at := range []string{
		"POST /nics", "PUT " + nic, "POST /networks", "PUT /networks/" + net1, "POST /networks/" + net1 + "/nics", "POST /nic_tags", "PUT /nic_tags/big",
		"POST /network_pools", "POST /aggregations", "PUT /networks/" + net1 + "/ips/10.1.0.50", "POST /fabrics/" + owner1 + "/vlans",
	} {
		method, path, _ := strings.Cut(at, " ")
		for _, body := range []string{`[]`, `[{}]`, `"text"`, `2`, `true`} {
			cases = append(cases, refusal{at + " " + body, method, path, body, 422, badly("parameters", "Parameters must be objects")})
		}
	}
	w.refuses(t, cases)
	same(t, "null is no body", w.do("PUT", nic, "null").status, 200)
}

// TestStrict: with napi.strict, a name that NAPI does not have is refused with all such
// names, and so nothing is written; without it NAPI's silence is kept. What NAPI answers,
// and what Triton's programs send beside it, is taken.
func TestStrict(t *testing.T) {
	w := furnished(t)
	unknown := func(names ...string) string {
		return `{"code": "InvalidParameters", "message": "Invalid parameters", "errors": [{"field": ["` + strings.Join(names, `", "`) +
			`"], "code": "UnknownParameters", "message": "Unknown parameters: ` + strings.Join(names, ", ") + `"}]}`
	}
	loose := w.make("/nics", nicBody("ipp", `"10.1.0.77"`))
	same(t, "without strict mode", loose["ip"], nil)
	w.set(projections.SettingNAPIStrict, "true")
	nic := w.make("/networks/"+net1+"/nics", nicBody("origin", `"cloudapi"`, "context", `{}`, "check_owner", "false", "reserved", "true", "nic_tags_available", `["admin"]`))
	path := "/nics/" + nic["mac"].(string)
	vlans := "/fabrics/" + owner1 + "/vlans"
	before := len(w.listed("/nics"))
	w.refuses(t, []refusal{
		{"an address", "POST", "/nics", nicBody("ipp", `"10.1.0.77"`), 422, unknown("ipp")},
		{"several", "POST", "/networks/" + net1 + "/nics", nicBody("zz", `1`, "aa", `1`), 422, unknown("aa", "zz")},
		{"in the query", "PUT", path + "?stat=running", `{}`, 422, unknown("stat")},
		{"update", "PUT", path, `{"modle": "virtio"}`, 422, unknown("modle")},
		{"network", "POST", "/networks", netBody("subnett", `"x"`), 422, unknown("subnett")},
		{"network update", "PUT", "/networks/" + net1, `{"resolver": []}`, 422, unknown("resolver")},
		{"tag", "POST", "/nic_tags", `{"name": "x", "mtus": 1500}`, 422, unknown("mtus")},
		{"pool", "POST", "/network_pools", `{"name": "x", "networks": ["` + net1 + `"], "owner": "x"}`, 422, unknown("owner")},
		{"address", "PUT", "/networks/" + net1 + "/ips/10.1.0.50", `{"reserve": true}`, 422, unknown("reserve")},
		{"VLAN", "POST", vlans, `{"vlan_id": 2, "nam": "x"}`, 422, unknown("nam")},
	})
	same(t, "NICs", len(w.listed("/nics")), before)
	w.ok(w.do("PUT", path+"?consistent=true", `{"mac": "`+nic["mac"].(string)+`", "interface": "net0", "primary": true, "check_owner": false}`))
	w.ok(w.do("PUT", path, w.do("GET", path, "").body))
	w.ok(w.do("PUT", "/networks/"+net2, w.do("GET", "/networks/"+net2, "").body))
	w.ok(w.do("PUT", "/networks/"+net1+"/ips/10.1.0.50", `{"ip": "10.1.0.50", "reserved": true, "check_owner": false, "unassign": false, "free": false}`))
	w.make(vlans, `{"vlan_id": 2, "name": "x", "fields": ["name"]}`)
	w.make(vlans+"/2/networks", fabricNet(1))
}

// TestAddressConditions: the Etag of an address, which is kept of one by its object, its
// NIC or its network (NAPI's test/unit/etags.test.js).
func TestAddressConditions(t *testing.T) {
	w := furnished(t)
	at := func(ip string) string { return "/networks/" + net2 + "/ips/" + ip }
	tag := func(ip string) string { t.Helper(); return w.do("GET", at(ip), "").header.Get("Etag") }
	const new = "10.2.0.50"
	same(t, "nothing kept", tag(new), `""`)
	a := w.do("PUT", at(new), `{"belongs_to_type": "other", "belongs_to_uuid": "`+vm1+`", "owner_uuid": "`+owner1+`"}`, "If-Match", `""`)
	same(t, "made", a.status, 200)
	first := a.header.Get("Etag")
	same(t, "the same to a read", tag(new), first)
	refused := func(what string, a answer, match, etag string) {
		t.Helper()
		if want := canonical(t, plainError("PreconditionFailed", "if-match '"+match+"' didn't match etag '"+etag+"'")); a.status != 412 || canonical(t, a.body) != want {
			t.Errorf("%s: got %d %s, want 412 %s", what, a.status, a.body, want)
		}
	}
	refused("read", w.do("GET", at(new), "", "If-Match", "X"), "X", first)
	refused("made again", w.do("PUT", at(new), `{"reserved": true}`, "If-Match", `""`), `""`, first)
	refused("old", w.do("PUT", at(new), `{"reserved": true}`, "If-Match", "X"), "X", first)
	same(t, "unchanged", tag(new), first)
	same(t, "not modified", w.do("GET", at(new), "", "If-None-Match", first).status, 304)
	same(t, "none of", w.do("PUT", at(new), `{"reserved": true}`, "If-None-Match", first).status, 412)
	a = w.do("PUT", at(new), `{"reserved": true}`, "If-Match", first)
	same(t, "as it is", a.status, 200)
	if a.header.Get("Etag") == first {
		t.Errorf("the tag stays %s over a change", first)
	}
	same(t, "any", w.do("PUT", at(new), `{"free": true}`, "If-Match", "*").status, 200)
	same(t, "freed", tag(new), `""`)
	refused("an empty change", w.do("PUT", at(new), `{}`, "If-Match", "X"), "X", `""`)
	// A NIC's, and the network's own.
	nic := w.make("/networks/"+net2+"/nics", nicBody())
	held := tag(nic["ip"].(string))
	w.ok(w.do("PUT", "/nics/"+nic["mac"].(string), `{"state": "running"}`))
	same(t, "the NIC's state is not shown", tag(nic["ip"].(string)), held)
	same(t, "reserved", w.do("PUT", at(nic["ip"].(string)), `{"reserved": true}`, "If-Match", held).status, 200)
	refused("again", w.do("PUT", at(nic["ip"].(string)), `{"reserved": false}`, "If-Match", held), held, tag(nic["ip"].(string)))
	gateway := tag("10.2.0.1")
	if gateway == `""` {
		t.Error("the gateway's tag is that of an address of which nothing is kept")
	}
	refused("the gateway", w.do("PUT", at("10.2.0.1"), `{"owner_uuid": "`+owner1+`"}`, "If-Match", `""`), `""`, gateway)
}

// TestRacingAddressWriters: of many writes with the same condition on an address exactly
// one is accepted, whichever server decides, because the condition is in the change.
// The writers have all read before the first is decided.
func TestRacingAddressWriters(t *testing.T) {
	for name, prepare := range map[string]func(w *world, path string){
		"of which nothing is kept": func(*world, string) {},
		"with an object":           func(w *world, path string) { w.ok(w.do("PUT", path, `{"reserved": true}`)) },
		"of a NIC": func(w *world, _ string) {
			w.make("/networks/"+net2+"/nics", nicBody("ip", `"10.2.0.50"`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := furnished(t)
			path := "/networks/" + net2 + "/ips/10.2.0.50"
			prepare(w, path)
			tag := w.do("GET", path, "").header.Get("Etag")
			const writers = 8
			all := newWorld(t, func(c *Config) { c.Store = &together{memory: w.store, writers: writers, all: make(chan struct{})} })
			var wg sync.WaitGroup
			statuses := make([]int, writers)
			for i := range writers {
				body := fmt.Sprintf(`{"reserved": true, "owner_uuid": "00000000-0000-4000-8000-00000000010%d"}`, i)
				wg.Go(func() { statuses[i] = all.do("PUT", path, body, "If-Match", tag).status })
			}
			wg.Wait()
			won := 0
			for _, status := range statuses {
				if status == http.StatusOK {
					won++
				} else if status != http.StatusPreconditionFailed {
					t.Errorf("a writer got %d", status)
				}
			}
			same(t, "winners", won, 1)
		})
	}
}

// together is a store that decides nothing until so many changes wait.
type together struct {
	*memory
	writers int64
	waiting atomic.Int64
	all     chan struct{}
}

// Propose implements Store.
func (g *together) Propose(ctx context.Context, c *log.Change) (log.Result, error) {
	if g.waiting.Add(1) == g.writers {
		close(g.all)
	}
	select {
	case <-g.all:
		return g.memory.Propose(ctx, c)
	case <-ctx.Done():
		return log.Result{}, ctx.Err()
	}
}

// TestAddressTakenMeanwhile: a NIC takes an address between the check of a condition and
// the decision. The change is refused there, and judged again by what there is.
func TestAddressTakenMeanwhile(t *testing.T) {
	w := furnished(t)
	path := "/networks/" + net2 + "/ips/10.2.0.50"
	taken := false
	late := &late{memory: w.store, before: func() {
		if !taken {
			taken = true
			w.make("/networks/"+net2+"/nics", nicBody("ip", `"10.2.0.50"`))
		}
	}}
	other := newWorld(t, func(c *Config) { c.Store = late })
	a := other.do("PUT", path, `{"reserved": true}`, "If-Match", `""`)
	same(t, "status", a.status, 412)
	same(t, "reserved", w.ok(w.do("GET", path, ""))["reserved"], false)
}

// late is a store in which something comes before each proposal.
type late struct {
	*memory
	before func()
}

// Propose implements Store.
func (l *late) Propose(ctx context.Context, c *log.Change) (log.Result, error) {
	l.before()
	return l.memory.Propose(ctx, c)
}
