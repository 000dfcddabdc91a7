package vmapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rutter/log"
	"rutter/projections"
)

// feature makes a memory's log one of the newest feature version.
func (m *memory) feature() *memory {
	m.state.SetFeature(log.FeatureVersion)
	return m
}

// put writes VMs in VMAPI's form.
func (m *memory) put(t *testing.T, objects ...string) {
	t.Helper()
	for _, text := range objects {
		vm, set, err := Take([]byte(text))
		if err != nil {
			t.Fatal(text, err)
		}
		set = slices.DeleteFunc(set, func(name string) bool { return name == "properties" && vm.Properties == "" })
		m.seq++ // a change id of its own
		result, err := m.Propose(t.Context(), &log.Change{ID: log.UUID{9, 14: byte(m.seq >> 8), 15: byte(m.seq)}, Ops: []log.Op{{Action: log.Create, Kind: log.KindVM, Set: set, Object: vm}}})
		if err != nil || result.Refusal != nil {
			t.Fatal(text, err, result.Refusal)
		}
	}
}

const (
	ownerA = "930896af-bf8c-48d4-885c-6573a94b1853"
	ownerB = "930896af-bf8c-48d4-885c-6573a94b1854"
	tagRed = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"
)

func uuidOf(n int) string { return fmt.Sprintf("5595d88c-6e4d-4bda-b58e-%012d", n) }

// inventory is a log with VMs of each sort.
func inventory(t *testing.T) (*memory, http.Handler) {
	t.Helper()
	m := (&memory{state: projections.NewState()}).feature()
	server := &log.Server{UUID: theCN, Hostname: "cn1", Status: "running"}
	if _, err := m.Propose(t.Context(), &log.Change{ID: log.UUID{1}, Ops: []log.Op{{Action: log.Create, Kind: log.KindServer, Set: []string{"hostname", "status", "uuid"}, Object: server}}}); err != nil {
		t.Fatal(err)
	}
	common := func(n int, owner, rest string) string {
		return fmt.Sprintf(`{"uuid":%q,"owner_uuid":%q,"zonename":"z%d",%s}`, uuidOf(n), owner, n, rest)
	}
	m.put(t,
		common(1, ownerA, `"alias":"web0","state":"running","brand":"joyent","max_physical_memory":512,"create_timestamp":"2020-01-01T00:00:00.000Z","tags":{"role":"web","n":1,"up":true,"a-b":"c=d"},"image_uuid":"`+uuidOf(91)+`","server_uuid":"`+theCN.String()+`"`),
		common(2, ownerA, `"alias":"web1","state":"stopped","brand":"kvm","ram":1024,"max_physical_memory":2048,"create_timestamp":"2020-01-02T00:00:00.000Z","disks":[{"image_uuid":"`+uuidOf(92)+`"}],"billing_id":"`+uuidOf(81)+`"`),
		common(3, ownerA, `"alias":"db","state":"destroyed","brand":"joyent","max_physical_memory":512,"create_timestamp":"2020-01-03T00:00:00.000Z","role_tags":["`+tagRed+`"]`),
		common(4, ownerB, `"alias":"web2","state":"failed","brand":"lx","create_timestamp":"2020-01-04T00:00:00.000Z"`),
		common(5, ownerB, `"alias":"docker5","state":"running","brand":"lx","docker":true,"max_physical_memory":128,"create_timestamp":"2020-01-05T00:00:00.000Z","internal_metadata":{"docker:id":"abc","long":"`+strings.Repeat("x", 101)+`"},"package_name":"p1","package_version":"1.0.0"`),
	)
	s, err := New(Config{Store: m})
	if err != nil {
		t.Fatal(err)
	}
	return m, s.Handler()
}

// found are the last digits of the UUIDs in an answer, in its order.
func found(t *testing.T, h http.Handler, query string) string {
	t.Helper()
	status, text := ask(h, "GET", "/vms?"+query, "")
	var list []struct {
		UUID string `json:"uuid"`
	}
	if err := json.Unmarshal([]byte(text), &list); status != http.StatusOK || err != nil {
		t.Fatalf("%s: %d %s %v", query, status, text, err)
	}
	var b strings.Builder
	for _, vm := range list {
		b.WriteString(strings.TrimLeft(vm.UUID[24:], "0"))
	}
	return b.String()
}

// TestFilters: each documented parameter finds what VMAPI finds.
func TestFilters(t *testing.T) {
	_, h := inventory(t)
	predicate := func(p string) string { return "sort=uuid.ASC&predicate=" + url.QueryEscape(p) }
	ldap := func(q string) string { return "sort=uuid.ASC&query=" + url.QueryEscape(q) }
	for query, want := range map[string]string{
		"":                  "54321",
		"sort=uuid.ASC":     "12345",
		"uuid=" + uuidOf(2): "2",
		"uuid=" + uuidOf(7): "",
		"uuids=" + uuidOf(1) + "," + uuidOf(4) + "," + uuidOf(1) + "&sort=uuid.ASC": "14",
		"owner_uuid=" + ownerB:          "54",
		"server_uuid=" + theCN.String(): "1",
		"server_uuid=" + uuidOf(1):      "",
		"image_uuid=" + uuidOf(91):      "1",
		"image_uuid=" + uuidOf(92):      "2",
		"billing_id=" + uuidOf(81):      "2",
		"brand=lx":                      "54",
		"alias=web":                     "421",
		"alias=w*1":                     "2",
		"docker=true":                   "5",
		"docker=false":                  "4321",
		"ram=512":                       "31",
		"max_physical_memory=128":       "5",
		"state=running":                 "51",
		"state=active":                  "521",
		"create_timestamp=2020-01-02T00:00:00.000Z":          "2",
		"create_timestamp=1577923200000":                     "2",
		"package_name=p1":                                    "5",
		"package_version=1.0.0":                              "5",
		"internal_metadata.docker:id=abc":                    "5",
		"internal_metadata.long=" + strings.Repeat("x", 101): "", // VMAPI's index has no long values
		"tag.role=web":                                       "1",
		"tag.n=1":                                            "1",
		"tag.up=true":                                        "1",
		"tag.up=false":                                       "",
		"role_tags=" + tagRed:                                "3",
		"limit=2":                                            "54", "limit=2&offset=2": "32", "offset=5": "", "limit=2&offset=4": "1",
		"sort=create_timestamp.ASC": "12345", "sort=create_timestamp": "54321", "sort=ram.asc": "53124", "sort=alias.ASC": "35124",
		predicate(`{"eq":["brand","lx"]}`):                                                        "45",
		predicate(`{"ne":["docker",true]}`):                                                       "1234",
		predicate(`{"and":[{"ne":["state","destroyed"]},{"ne":["state","failed"]}]}`):             "125",
		predicate(`{"or":[{"lt":["ram",512]},{"ge":["max_physical_memory","2048"]}]}`):            "25",
		predicate(`{"gt":["create_timestamp","2020-01-03T00:00:00.000Z"]}`):                       "45",
		predicate(`{"le":["create_timestamp",1577836800000]}`):                                    "1",
		predicate(`{"eq":["tag.role","web"]}`):                                                    "1",
		predicate(`{"ne":["tag.role","web"]}`):                                                    "2345",
		predicate(`{"eq":["uuid","` + uuidOf(5)[:20] + `*"]}`):                                    "12345",
		predicate(`{"and":[{"eq":["docker",true]},{"eq":["internal_metadata.docker:id","a*"]}]}`): "5",
		predicate(`{"eq":["owner_uuid","`+ownerB+`"]}`) + "&state=active":                         "5",
		ldap(`(alias=web*)`):                                   "124",
		ldap(`(&(alias=*web*)(!(state=failed)))`):              "12",
		ldap(`(|(brand=kvm)(ram=128))`):                        "25",
		ldap(`(ram>=2048)`):                                    "2",
		ldap(`(ram<128)`):                                      "",
		ldap(`(billing_id=*)`):                                 "2",
		ldap(`(tags=*-role=web-*)`):                            "1",
		ldap(`(tags=*-n=%n{1}-*)`):                             "1",
		ldap(`(tags=*-a%2Db=c%3Dd-*)`):                         "1",
		ldap(`(alias=web\30)`):                                 "1",
		ldap(`(internal_metadata_search_array=docker:id=abc)`): "5",
		"sort=uuid.ASC&marker=" + url.QueryEscape(`{"uuid":"`+uuidOf(2)+`"}`):                                                                   "345",
		"marker=" + url.QueryEscape(`{"uuid":"`+uuidOf(2)+`"}`):                                                                                 "1",
		"sort=create_timestamp.ASC&limit=2&marker=" + url.QueryEscape(`{"uuid":"`+uuidOf(2)+`","create_timestamp":"2020-01-02T00:00:00.000Z"}`): "34",
	} {
		if got := found(t, h, query); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
}

// TestBadLists: what VMs are not found by is an error that names it.
func TestBadLists(t *testing.T) {
	_, h := inventory(t)
	deep := strings.Repeat(`{"and":[{"eq":["alias","a"]},`, 40) + `{"eq":["alias","a"]}` + strings.Repeat(`]}`, 40)
	wide := `{"or":[` + strings.Repeat(`{"eq":["alias","a"]},`, 300) + `{"eq":["alias","a"]}]}`
	for query, field := range map[string]string{
		"colour=red": "colour", "tag.=x": "tag.", "uuid=x": "uuid", "uuids=x": "uuids", "owner_uuid=": "owner_uuid", "server_uuid=1": "server_uuid",
		"limit=0": "limit", "limit=1001": "limit", "offset=-1": "offset", "sort=quota": "sort", "sort=alias.UP": "sort", "docker=maybe": "docker",
		"state=run%20ning": "state", "create_timestamp=soon": "create_timestamp", "fields=": "fields", "alias=a&alias=b": "alias", "role_tags=x": "role_tags",
		"marker=x": "marker", "marker={}": "marker", "marker=" + url.QueryEscape(`{"uuid":"`+uuidOf(1)+`","alias":"a"}`): "marker",
		"sort=alias&marker=" + url.QueryEscape(`{"uuid":"`+uuidOf(1)+`"}`): "marker",
		"offset=1&marker=" + url.QueryEscape(`{"uuid":"`+uuidOf(1)+`"}`):   "marker",
		"predicate=x": "predicate", "predicate={}": "predicate", "predicate=" + url.QueryEscape(`{"eq":["colour","red"]}`): "predicate",
		"predicate=" + url.QueryEscape(`{"eq":["alias",{}]}`): "predicate", "predicate=" + url.QueryEscape(`{"and":[{"eq":["alias","a"]}]}`): "predicate",
		"predicate=" + url.QueryEscape(deep): "predicate", "predicate=" + url.QueryEscape(wide): "predicate",
		"query=" + url.QueryEscape(strings.Repeat("(!", 40)+"(alias=a)"+strings.Repeat(")", 40)): "query",
		"query=" + url.QueryEscape("(|"+strings.Repeat("(alias=a)", 300)+")"):                    "query",
		"query=": "query", "query=(alias=a": "query", "query=alias": "query", "query=(colour=red)": "query", "query=" + url.QueryEscape("(&)"): "query",
		"query=" + strings.Repeat("x", maxQuery+1): "query",
	} {
		status, text := ask(h, "GET", "/vms?"+query, "")
		var p struct {
			Code   string
			Errors []log.FieldError
		}
		if err := json.Unmarshal([]byte(text), &p); err != nil || status != http.StatusConflict || p.Code != "ValidationFailed" || len(p.Errors) != 1 || p.Errors[0].Field != field {
			t.Errorf("%.90s: %d %.200s, want one error of %s", query, status, text, field)
		}
	}
}

// TestPages: a client that pages by the size of the first page, and one that pages by
// markers, gets each VM once, and the count of all; past the end there is [].
func TestPages(t *testing.T) {
	m, _ := inventory(t)
	const n = 3*sliceVMs + 7
	for i := range n {
		m.put(t, fmt.Sprintf(`{"uuid":%q,"owner_uuid":%q,"zonename":"y%d","state":"running","alias":"a%d","brand":"joyent"}`, uuidOf(1000+i), ownerB, i, i%10))
	}
	views := 0
	s, err := New(Config{Store: counted{m, &views}})
	if err != nil {
		t.Fatal(err)
	}
	h := s.Handler()
	want := strconv.Itoa(n)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/vms?brand=joyent&state=running&owner_uuid="+ownerB, nil))
	if w.Header().Get("X-Joyent-Resource-Count") != want || w.Body.Len() > 0 {
		t.Errorf("HEAD counts %q, want %s, with a body of %d bytes", w.Header().Get("X-Joyent-Resource-Count"), want, w.Body.Len())
	}
	if views < n/sliceVMs {
		t.Errorf("the state was held %d times for %d VMs", views, n)
	}
	read := func(query string) (list []map[string]any) {
		status, text := ask(h, "GET", "/vms?brand=joyent&state=running&owner_uuid="+ownerB+query, "")
		if err := json.Unmarshal([]byte(text), &list); status != http.StatusOK || err != nil {
			t.Fatal(status, text, err)
		}
		return list
	}
	var paged, marked []string
	for offset := 0; ; offset += 100 {
		page := read(fmt.Sprintf("&limit=100&offset=%d", offset))
		for _, vm := range page {
			paged = append(paged, vm["uuid"].(string))
		}
		if len(page) == 0 {
			break
		}
	}
	marker := ""
	for {
		page := read("&limit=100&sort=alias" + marker)
		for _, vm := range page {
			marked = append(marked, vm["uuid"].(string))
		}
		if len(page) == 0 {
			break
		}
		last, _ := json.Marshal(map[string]any{"uuid": page[len(page)-1]["uuid"], "alias": page[len(page)-1]["alias"]})
		marker = "&marker=" + url.QueryEscape(string(last))
	}
	for how, got := range map[string][]string{"offsets": paged, "markers": marked} {
		slices.Sort(got)
		if len(slices.Compact(got)) != n {
			t.Errorf("by %s: %d VMs, want %d", how, len(got), n)
		}
	}
}

// counted counts how often the state is held.
type counted struct {
	*memory
	views *int
}

func (c counted) View(fn func(*projections.State, log.Cursor)) {
	*c.views++
	c.memory.View(fn)
}

// TestFields: role tags are shown on request only, and fields are cut to those named.
func TestFields(t *testing.T) {
	_, h := inventory(t)
	for path, want := range map[string]string{
		"/vms?uuid=" + uuidOf(3) + "&fields=uuid,role_tags,nothing":         `[{"role_tags":["` + tagRed + `"],"uuid":"` + uuidOf(3) + `"}]`,
		"/vms/" + uuidOf(3) + "?fields=state":                               `{"state":"destroyed"}`,
		"/vms/" + uuidOf(1) + "?fields=role_tags":                           `{"role_tags":[]}`,
		"/vms/" + uuidOf(2) + "?fields=ram,max_physical_memory":             `{"max_physical_memory":2048,"ram":1024}`,
		"/statuses?uuids=" + uuidOf(1) + "," + uuidOf(77) + "," + uuidOf(3): `{"` + uuidOf(1) + `":"running","` + uuidOf(3) + `":"destroyed"}`,
	} {
		if status, text := ask(h, "GET", path, ""); status != http.StatusOK || strings.TrimSpace(text) != want {
			t.Errorf("%s: %d %s, want %s", path, status, text, want)
		}
	}
	for path, has := range map[string]bool{"/vms/" + uuidOf(3): false, "/vms/" + uuidOf(3) + "?fields=*": true, "/vms": false} {
		if _, text := ask(h, "GET", path, ""); strings.Contains(text, "role_tags") != has {
			t.Errorf("%s shows role tags: %t", path, !has)
		}
	}
	if status, text := ask(h, "GET", "/vms/"+uuidOf(1)+"?owner_uuid="+ownerB, ""); status != http.StatusNotFound || !strings.Contains(text, `"VM not found"`) || !strings.Contains(text, "ResourceNotFound") {
		t.Errorf("another owner's VM: %d %s", status, text)
	}
	if status, _ := ask(h, "GET", "/vms/"+uuidOf(1)+"?owner_uuid="+ownerA+"&sync=true", ""); status != http.StatusOK {
		t.Errorf("the owner's VM: %d", status)
	}
}

// FuzzQuery: an LDAP query and a predicate are read or refused within their bounds, and
// what is read can be asked of any VM.
func FuzzQuery(f *testing.F) {
	for _, text := range []string{
		`(&(state=running)(!(alias=*x*))(|(ram>=512)(tags=*-a=b-*)))`, `(alias=\2a\28)`, `((((`, `(!(!(!(uuid=*))))`, `(internal_metadata.a=b)`, `(ram<=1)(x`,
		`{"and":[{"eq":["brand","kvm"]},{"or":[{"ne":["tag.a",1]},{"lt":["ram",1e9]}]}]}`, `{"eq":["create_timestamp","2020-01-01T00:00:00Z"]}`, `{"eq":[]}`, `[[`,
	} {
		f.Add(text)
	}
	vm := &log.VM{UUID: theVM, Alias: "a", MaxPhysicalMemory: 512, Properties: `{"tags":{"a":1,"b":null},"internal_metadata":{"a":"b"},"disks":[1]}`}
	f.Fuzz(func(t *testing.T, text string) {
		for name, parse := range map[string]func(string) (*term, error){"query": parseLDAP, "predicate": parsePredicate} {
			read, err := parse(text)
			if err != nil {
				continue
			}
			if terms, depth := read.size(); terms > 2*maxTerms || depth > 2*maxTermDepth {
				t.Errorf("%s of %d terms, %d deep", name, terms, depth)
			}
			subject := subject{vm: vm}
			if read.matches(&subject) == (&term{op: "not", terms: []*term{read}}).matches(&subject) {
				t.Errorf("%s and its contrary are the same: %s", name, text)
			}
		}
	})
}

func (t *term) size() (terms, depth int) {
	terms = 1
	for _, one := range t.terms {
		n, d := one.size()
		terms, depth = terms+n, max(depth, d)
	}
	return terms, depth + 1
}

// TestGone: a VM that the log does not have any more is found by its UUID, as destroyed,
// and for its owner only; a history that cannot be read is no VM.
func TestGone(t *testing.T) {
	m, _ := world(t)
	id, broken := log.UUID{0xb, 15: 9}, log.UUID{0xb, 15: 10}
	s, err := New(Config{Store: m, Gone: func(_ context.Context, asked log.UUID) (*log.Event, error) {
		switch asked {
		case id:
			return &log.Event{Action: log.Delete, Kind: log.KindVM, ID: id.String(), Time: log.Time(1e18), Object: &log.VM{UUID: id, OwnerUUID: theOwner, State: "running"}}, nil
		case broken:
			return nil, log.ErrCompacted
		}
		return nil, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/vms/" + id.String() + "?fields=state,destroyed":                                  `{"destroyed":"2001-09-09T01:46:40.000Z","state":"destroyed"}`,
		"/vms?fields=state&uuid=" + id.String():                                            `[{"state":"destroyed"}]`,
		"/vms?fields=state&uuids=" + id.String() + "," + theVM.String() + "&sort=uuid.ASC": `[{"state":"running"},{"state":"destroyed"}]`,
		"/vms?state=active&uuid=" + id.String():                                            `[]`,
		"/vms/" + id.String() + "?fields=state&owner_uuid=" + theOwner.String():            `{"state":"destroyed"}`,
		"/vms/" + id.String() + "?owner_uuid=" + theCN.String():                            `{"code":"ResourceNotFound","message":"VM not found"}`,
		"/vms/" + broken.String():                                                          `{"code":"ResourceNotFound","message":"VM not found"}`,
		"/vms?uuid=" + broken.String():                                                     `[]`,
		"/vms/" + theCN.String():                                                           `{"code":"ResourceNotFound","message":"VM not found"}`,
	} {
		if _, text := ask(s.Handler(), "GET", path, ""); strings.TrimSpace(text) != want {
			t.Errorf("%s: %s, want %s", path, text, want)
		}
	}
}
