package api

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"rutter/api/auth/matrix"
	"rutter/log"
)

// The world of a reader who lies: a tenant's own things, and another's. Words of the
// other's stand nowhere else; there is one that nothing has for each of them.
const (
	readerOwner, otherOwner, noOwner = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed31", "7f136432-7a5c-4c1d-8b5e-3d9d1c9e6c11", "00000000-aaaa-4c1d-8b5e-3d9d1c9e6c11"
	readerNet, otherNet, noNet       = "0e70de36-a40b-4ac0-9429-819f5ff82011", "0e70de36-a40b-4ac0-9429-819f5ff82021", "0e70de36-aaaa-4ac0-9429-819f5ff82021"
	readerVM, otherVM, noVM          = "5595d88c-6e4d-4bda-b58e-97dd02e30001", "5595d88c-6e4d-4bda-b58e-97dd02e30007", "5595d88c-aaaa-4bda-b58e-97dd02e30007"
	otherVMM, noVMM                  = "6695d88c-6e4d-4bda-b58e-97dd02e30007", "6695d88c-aaaa-4bda-b58e-97dd02e30007"
	otherMAC, noMAC                  = "90:b8:d0:77:66:55", "90:b8:d0:aa:aa:aa"
	otherIP, noIP                    = "10.77.66.55", "10.99.99.99"
	otherName, noName                = "their-network", "none-network"
	otherVNet, noVNet                = "7654321", "1234567"
)

// things are pairs of what the other has and what nothing has.
var things = [][2]string{
	{otherOwner, noOwner}, {otherNet, noNet}, {otherVM, noVM}, {otherVMM, noVMM}, {otherMAC, noMAC}, {otherIP, noIP}, {otherName, noName}, {otherVNet, noVNet},
}

// hiddenWords are what no answer may have, unless the question did.
var hiddenWords = []string{otherOwner, otherNet, otherVM, otherVMM, otherMAC, "90b8d0776655", otherIP, "10.77.66.0", otherName, otherVNet, "their-alias", "their-zone"}

// lyingReader asks what a reader who is limited to a tenant may think of.
type lyingReader struct {
	*bed
	rng  *rand.Rand
	seqs int
}

func pick[T any](r *lyingReader, list ...T) T { return list[r.rng.IntN(len(list))] }

func (r *lyingReader) name() string {
	if r.rng.IntN(4) > 0 {
		return things[r.rng.IntN(len(things))][0]
	}
	return pick(r, readerOwner, readerNet, readerVM, cn1.String(), cn2.String(), "x", "%2e%2e", "..", "1")
}

// request draws a method, a path with its query, and a body.
func (r *lyingReader) request(endpoints []string) (method, path, body string) {
	method, pattern, _ := strings.Cut(pick(r, endpoints...), " ")
	var parts []string
	for part := range strings.SplitSeq(strings.TrimPrefix(pattern, "/"), "/") {
		if strings.HasPrefix(part, "{") {
			part = r.name()
		}
		parts = append(parts, part)
	}
	path = "/" + strings.Join(parts, "/")
	query := url.Values{}
	if strings.HasPrefix(pattern, "/log") && r.rng.IntN(4) > 0 {
		query.Set("after", "0")
	}
	for range max(0, r.rng.IntN(6)-2) { // mostly few: one that does not fit is refused as a whole
		query.Set(pick(r, "at", "after", "until", "owner_uuid", "uuid", "network_uuid", "belongs_to_uuid", "cn_uuid", "ip", "mac", "name", "kind", "id", "vnet", "vnet_id", "sort", "limit",
			"field", "fields", "where", "to", "from", "follow", "format", "actor", "scope", "fabric", "seq", "wait", "consistent"),
			pick(r, r.name(), r.name(), fmt.Sprint(r.rng.IntN(r.seqs+2)), "networks", "nic", "true", "json", "-1", `"`, "owner_uuid="+otherOwner))
	}
	if query.Get("follow") != "" {
		query.Del("follow") // an answer without end
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	if method != http.MethodGet && method != http.MethodHead {
		body = pick(r, `{}`, `{"name":"`+r.name()+`","uuid":"`+r.name()+`","owner_uuid":"`+r.name()+`"}`, `{"state":"stopped"}`, `[`,
			`{"ops":[{"action":"update","kind":"vm","id":"`+r.name()+`","object":{"alias":"x"},"if_match":1}]}`,
			`{"ops":[{"action":"delete","kind":"nic","id":"`+r.name()+`"}]}`, `{"owner_uuids":["`+otherOwner+`"]}`)
	}
	return method, path, body
}

// TestLyingReader: whatever a reader asks who is limited to a tenant, by any route, list,
// filter, time or order, nothing of others is in an answer, the answer is the same of what
// another has and of what there is not, and nothing changes.
func TestLyingReader(t *testing.T) {
	requests, seed := 3000, uint64(17)
	if os.Getenv("RUTTER_LONG") != "" {
		requests, seed = 50_000, rand.Uint64()
	}
	store := newMemory()
	server, err := New(Config{Store: store, Identify: byHeader, Past: folded{store}})
	if err != nil {
		t.Fatal(err)
	}
	b := bedWith(t, store, server)
	b.furnishTwo()
	b.must("PUT", "/grants/reader:test", `{"owner_uuids":["`+readerOwner+`"]}`)
	r := &lyingReader{b, rand.New(rand.NewPCG(seed, 1)), int(b.Store.Head().Seq)}
	before, head := b.Store.Dump(), b.Store.Head().Seq
	endpoints := b.s.Endpoints()
	found := 0
	for range requests {
		method, path, body := r.request(endpoints)
		if strings.HasPrefix(path, "/feed") || strings.HasPrefix(path, "/write") || strings.HasPrefix(path, "/wait") {
			continue // upgraded connections, which have their own tests; waits
		}
		code, text := r.asks(method, path, body)
		if code == http.StatusOK {
			found++
		}
		for _, word := range hiddenWords {
			if strings.Contains(strings.ToLower(text), word) && !strings.Contains(path+body, word) && !strings.Contains(path+body, url.QueryEscape(word)) {
				t.Fatalf("seed %d: %s %s %s: %d has %q: %s", seed, method, path, body, code, word, text)
			}
		}
		twin := func(s string) string {
			for _, thing := range things {
				s = strings.NewReplacer(thing[0], thing[1], url.QueryEscape(thing[0]), url.QueryEscape(thing[1])).Replace(s)
			}
			return s
		}
		if otherPath, otherBody := twin(path), twin(body); otherPath != path || otherBody != body {
			if code2, text2 := r.asks(method, otherPath, otherBody); code2 != code || twin(text) != text2 {
				t.Fatalf("seed %d: %s %s %s: %d %s\n  of what there is not: %d %s", seed, method, path, body, code, text, code2, text2)
			}
		}
	}
	if b.Store.Head().Seq != head || b.Store.Dump() != before {
		t.Error("a reader changed something")
	}
	if found < requests/50 {
		t.Errorf("%d of %d requests were answered: the test asks nothing that there is", found, requests)
	}
	if row := matrix.Find("GET /networks"); row == nil || row.For(matrix.Identity{Role: matrix.Reader, Owners: []log.UUID{{1}}}) != matrix.Own {
		t.Error("a limited reader is not limited")
	}
}

func (r *lyingReader) asks(method, path, body string) (code int, text string) {
	w := r.call(method, path, body, asHeader, "reader")
	return w.Code, fmt.Sprint(w.Header()["Etag"], w.Header()["X-Total-Count"], w.Body)
}

// furnishTwo makes the things of both tenants, then changes and deletes some, so that the
// past has them too.
func (b *bed) furnishTwo() {
	b.T.Helper()
	b.must("POST", "/nic_tags", `{"name":"overlay","mtu":9000}`)
	for i, cn := range []log.UUID{cn1, cn2} {
		b.must("POST", "/servers", fmt.Sprintf(`{"uuid":%q,"hostname":"cn%d"}`, cn, i+1))
	}
	for _, one := range []struct{ owner, net, name, vnet, prefix, vm, alias, mac, cn string }{
		{readerOwner, readerNet, "our-network", "4385813", "10.21.12", readerVM, "our-alias", "90:b8:d0:10:02:00", cn1.String()},
		{otherOwner, otherNet, otherName, otherVNet, "10.77.66", otherVM, "their-alias", otherMAC, cn2.String()},
	} {
		b.must("POST", "/networks", fmt.Sprintf(`{"uuid":%q,"name":%q,"fabric":true,"vnet_id":%s,"vlan_id":4,"nic_tag":"overlay","subnet":"%[4]s.0/24","provision_start_ip":"%[4]s.5","provision_end_ip":"%[4]s.250","owner_uuids":[%q]}`,
			one.net, one.name, one.vnet, one.prefix, one.owner))
		b.must("POST", "/vms", fmt.Sprintf(`{"uuid":%q,"alias":%q,"owner_uuid":%q,"state":"running","server_uuid":%q}`, one.vm, one.alias, one.owner, one.cn))
		b.must("POST", "/nics", fmt.Sprintf(`{"mac":%q,"belongs_to_type":"zone","belongs_to_uuid":%q,"owner_uuid":%q,"cn_uuid":%q,"network_uuid":%q,"ip":"%s.55"}`, one.mac, one.vm, one.owner, one.cn, one.net, one.prefix))
		b.must("POST", "/vms/"+one.vm, `{"state":"stopped"}`)
	}
	b.must("POST", "/vmms", fmt.Sprintf(`{"id":%q,"instance_id":%q,"sled_id":%q,"state":"running","gen":1}`, otherVMM, otherVM, cn2))
}
