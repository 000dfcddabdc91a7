package api

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"rutter/api/feedserver"
	"rutter/api/internal/rest"
	"rutter/api/vmm"
	"rutter/log"
	"rutter/log/feed"
)

// vmmSite is a server with a service of VMMs, and a CN on its feed that has one.
type vmmSite struct {
	t       *testing.T
	store   *memory
	server  *Server
	cn, vmm log.UUID
	conn    net.Conn
	reader  *feed.Reader
}

func newVMMSite(t *testing.T) *vmmSite {
	s := &vmmSite{t: t, store: newMemory(), cn: testUUID(1), vmm: testUUID(3)}
	service, err := vmm.New(vmm.Config{Store: s.store, NewID: rest.NewChangeID})
	if err != nil {
		t.Fatal(err)
	}
	if s.server, err = New(Config{Store: s.store, VMMs: service}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- service.Run(ctx) }()
	go func() { ended <- s.server.Run(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	s.conn, err = net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(s.conn, "GET /feed HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", feedserver.Protocol)
	r := bufio.NewReader(s.conn)
	if response, err := http.ReadResponse(r, nil); err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: %v, %v", response, err)
	}
	s.reader = feed.NewReader(r)
	s.send(&feed.Hello{CN: s.cn, Incarnation: 1, Session: 1, Abilities: feed.AnswersRequests})
	if _, err := s.reader.Next(); err != nil { // the welcome: from now on the CN can be asked
		t.Fatal(err)
	}
	return s
}

func (s *vmmSite) send(m feed.Message) {
	s.t.Helper()
	b, err := feed.Append(nil, m)
	if err == nil {
		_, err = s.conn.Write(b)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// answer reads until the server asks for what begins with want, answers it, and
// acknowledges what else is asked.
func (s *vmmSite) answer(want string, status uint16, body string) {
	s.t.Helper()
	for {
		_ = s.conn.SetReadDeadline(time.Now().Add(time.Minute))
		f, err := s.reader.Next()
		if err != nil {
			s.t.Fatal(err)
		}
		m, err := feed.Decode(f)
		if err != nil {
			s.t.Fatal(err)
		}
		r, is := m.(*feed.Request)
		if !is {
			continue
		}
		if strings.HasPrefix(r.Method+" "+r.Path, want) {
			s.send(&feed.Response{Number: r.Number, Status: status, Body: []byte(body)})
			return
		}
		s.send(&feed.Response{Number: r.Number, Status: http.StatusOK, Body: []byte("{}")})
	}
}

func (s *vmmSite) do(method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	s.server.Handler().ServeHTTP(w, r)
	return w
}

// From the bell to the log, and from a call to the CN, over a real connection.
func TestVMMsOverTheFeed(t *testing.T) {
	s := newVMMSite(t)
	path := "/vmms/" + s.vmm.String()
	state := func(state string, gen int) string {
		return fmt.Sprintf(`{"instance_id":%q,"vmm_state":{"state":%q,"gen":%d,"time_updated":"2026-11-21T09:00:00Z"}}`, testUUID(2), state, gen)
	}
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", path + "/doorbell", "", 404},
		{"PUT", path, `{"anything":`, 404},
		{"POST", "/vmms/x/doorbell", "", 422},
		{"POST", path + "/doorbell?cn=x", "", 422},
		{"GET", path + "/doorbell", "", 405},
		{"PUT", path + "/state", `{"state":`, 422},
		{"PUT", path + "/state", `{"state":{"type":"running"}}`, 404},
		{"POST", path + "/unregister", "", 404},
		{"POST", path + "/register", `{"instance_id":"` + testUUID(2).String() + `"}`, 422},
	} {
		if w := s.do(c.method, c.path, c.body); w.Code != c.want {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, w.Code, w.Body, c.want)
		}
	}
	if w := s.do("POST", path+"/doorbell?cn="+s.cn.String(), ""); w.Code != http.StatusAccepted || w.Body.Len() > 0 {
		t.Fatalf("ring: %d %s", w.Code, w.Body)
	}
	s.answer("GET "+path+"/state", 200, state("starting", 1))
	s.answer("PUT "+path+"/recorded", 200, "{}")
	s.send(&feed.Ring{VMMs: []log.UUID{s.vmm}})
	s.answer("GET "+path+"/state", 200, state("running", 2))
	s.answer("PUT "+path+"/recorded", 200, "{}")
	if w := s.do("PUT", path, "what an old agent has to say"); w.Code != http.StatusNoContent {
		t.Errorf("the old way: %d %s", w.Code, w.Body)
	}
	s.answer("GET "+path+"/state", 200, state("running", 2))
	called := make(chan *httptest.ResponseRecorder)
	go func() { called <- s.do("PUT", path+"/state", `{"state":{"type":"stopped"}}`) }()
	s.answer("PUT "+path+"/state", 200, `{"updated_runtime":`+state("stopping", 3)+`}`)
	if w := <-called; w.Code != 200 || !strings.Contains(w.Body.String(), `"gen":3`) || !strings.Contains(w.Body.String(), `"vmm":{"id":"`+s.vmm.String()) {
		t.Errorf("stop: %d %s", w.Code, w.Body)
	}
	go func() { called <- s.do("POST", path+"/unregister", "") }()
	s.answer("DELETE "+path, 503, `{"error_code":"ServiceUnavailable","message":"later"}`)
	if w := <-called; w.Code != http.StatusBadGateway {
		t.Errorf("unregister where nothing works: %d %s", w.Code, w.Body)
	}
	w := s.do("GET", path+"/history", "")
	if n := strings.Count(w.Body.String(), "\n"); w.Code != 200 || n != 3 || !strings.Contains(w.Body.String(), `"starting"`) {
		t.Errorf("history of %d lines: %d %s", n, w.Code, w.Body)
	}
	if w := s.do("GET", path+"/history?kind=vm", ""); w.Code != 422 {
		t.Errorf("history of another kind: %d", w.Code)
	}
	s.conn.Close()
}

func TestServerWithoutVMMs(t *testing.T) {
	s, err := New(Config{Store: newMemory()})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("POST", "/vmms/"+testUUID(3).String()+"/doorbell", nil))
	if w.Code != http.StatusNotImplemented {
		t.Errorf("got %d, want 501", w.Code)
	}
}

// A CN's inventory comes to the log; its VMs are found by what they are, and
// read as unknown while their CN is unreachable.
func TestInventoryAndLookup(t *testing.T) {
	s := newVMMSite(t)
	far := `{"uuid":"` + testUUID(8).String() + `","owner_uuid":"` + testUUID(9).String() + `","state":"running","server_uuid":"` + testUUID(7).String() + `","alias":"far"}`
	for path, body := range map[string]string{
		"/nic_tags": `{"name":"external"}`, "/vms": far, "/servers": `{"uuid":"` + testUUID(7).String() + `","hostname":"lost"}`,
	} {
		if w := s.do("POST", path, body); w.Code != 200 {
			t.Fatalf("POST %s: %d %s", path, w.Code, w.Body)
		}
	}
	var items []feed.InventoryVM
	for i := range 3 {
		vm := &log.VM{UUID: testUUID(20 + i), OwnerUUID: testUUID(9), Alias: fmt.Sprint("web", i), State: "running", Quota: uint64(10 * i)}
		b, err := log.NewEncoder().Object(vm)
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, feed.InventoryVM{UUID: vm.UUID, Object: b})
	}
	s.send(&feed.Inventory{Number: 1, Whole: true, First: true, Last: true, VMs: items})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.store.WaitSeq(ctx, 6); err != nil {
		t.Fatal(err)
	}
	if w := s.do("POST", "/nics", `{"belongs_to_type":"zone","belongs_to_uuid":"`+testUUID(21).String()+`","owner_uuid":"`+testUUID(9).String()+`","nic_tag":"external","mac":"02:00:00:00:00:01"}`); w.Code != 200 {
		t.Fatalf("NIC: %d %s", w.Code, w.Body)
	}
	for query, want := range map[string]string{
		"alias=web1":                           `[{"alias":"web1"}]`,
		"alias=~^web[02]$":                     `[{"alias":"web0"},{"alias":"web2"}]`,
		"quota=20":                             `[{"alias":"web2"}]`,
		"alias=~web&alias=~0":                  `[{"alias":"web0"}]`,
		"nics.*.mac=02:00:00:00:00:01":         `[{"alias":"web1"}]`,
		"nics.1.mac=02:00:00:00:00:01":         `[]`,
		"nics.0.mac=~^02":                      `[{"alias":"web1"}]`,
		"state=unknown":                        `[{"alias":"far"}]`,
		"server_uuid=" + s.cn.String():         `[{"alias":"web0"},{"alias":"web1"},{"alias":"web2"}]`,
		"uuid=" + testUUID(8).String():         `[{"alias":"far"}]`,
		"alias=web1&unique":                    `[{"alias":"web1"}]`,
		"alias=~web&unique":                    `NotUnique`,
		"colour=blue":                          `a VM has no field`,
		"alias=~(":                             `missing closing`,
		"nics.x.mac=1":                         `a VM has no field`,
		"alias=~" + strings.Repeat("x", 1<<10): `the pattern has 1024 bytes`,
	} {
		if w := s.do("GET", "/vms/lookup?fields=alias&"+query, ""); !strings.Contains(strings.TrimSpace(w.Body.String()), want) {
			t.Errorf("%s: %d %s, want %s", query, w.Code, w.Body, want)
		}
	}
	if w := s.do("GET", "/vms/"+testUUID(8).String(), ""); !strings.Contains(w.Body.String(), `"state":"unknown"`) {
		t.Errorf("a VM of a lost CN: %s", w.Body)
	}
	if w := s.do("GET", "/vms?state=running", ""); strings.Count(w.Body.String(), `"uuid"`) != 3 {
		t.Errorf("running VMs: %s", w.Body)
	}
	// A client gets the VMs of one CN from the log.
	if w := s.do("GET", "/log?kind=vm&cn="+s.cn.String(), ""); strings.Count(w.Body.String(), "\n") != 3 {
		t.Errorf("the log of one CN's VMs: %s", w.Body)
	}
	if w := s.do("GET", "/log?kind=vm", ""); strings.Count(w.Body.String(), "\n") != 4 {
		t.Errorf("the log of all VMs: %s", w.Body)
	}
	s.conn.Close()
}
