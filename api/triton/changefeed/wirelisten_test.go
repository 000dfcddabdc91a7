package changefeed

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"rutter/log"
)

const nicAndTags = `{"instance":"i1","service":"s","resources":[{"resource":"nic","subResources":["create","delete","ip","state"]},{"resource":"nic_tag","subResources":["create"]}]}`

// nicOf returns a NIC.
func nicOf(n byte, state string) *log.NIC {
	return &log.NIC{
		MAC: log.MAC{0x90, 0xb8, 0xd0, 0, 0, n}, BelongsToType: "server", BelongsToUUID: log.UUID{15: 1}, OwnerUUID: log.UUID{15: 2},
		CNUUID: log.UUID{15: 1}, State: state, IP: netip.AddrFrom4([4]byte{10, 0, 0, n}), Modified: log.Time(n),
	}
}

// A listener probes, upgrades on a second connection, registers in frames that
// come in pieces, sends heartbeats that are not answered, answers pings, and gets
// what it asked for (spec/changefeed.md section 1.2).
func TestListenerOfOld(t *testing.T) {
	store, all := newMemory(), objects{}
	_, address := served(t, Config{Store: store, PingEvery: 10 * time.Millisecond})
	if status, _ := probe(t, address); status != http.StatusOK {
		t.Fatalf("the probe is answered %d", status)
	}
	store.write(t, all.put(nicOf(1, "provisioning"))) // before it registered
	for _, version := range []Version{V1, V2} {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			registration := strings.Replace(nicAndTags, "i1", fmt.Sprint("i", version), 1)
			if version == V1 {
				registration = `{"instance":"one","service":"s","changeKind":{"resource":"nic","subResources":["create","state"]}}`
			}
			w, first := register(t, address, version, registration)
			want := "[/nics]"
			got := fmt.Sprint([]any{first["bootstrapRoute"]})
			if version == V2 {
				want, got = "[/nics /nic_tags]", fmt.Sprint(routesOf(first))
			}
			if got != want || first["seq"] != float64(store.Head().Seq) {
				t.Fatalf("the reply is %v", first)
			}
			w.send(opText, []byte("heartbeat"))
			pings := 0
			for pings < 2 {
				opcode, payload, err := w.frame()
				if err != nil || opcode != opPing {
					t.Fatalf("frame %d %q, %v: want a ping", opcode, payload, err)
				}
				w.send(opPong, payload)
				pings++
			}
			w.send(opText, []byte("heartbeat"))
			store.write(t, all.put(nicOf(10+byte(version), "stopped")), all.put(&log.Server{UUID: log.UUID{15: byte(version)}}))
			store.write(t, all.put(nicOf(10+byte(version), "running")))
			for _, sub := range []string{"create", "state"} {
				item := w.text()
				if kind := item["changeKind"].(map[string]any); fmt.Sprint(kind["subResources"]) != "["+sub+"]" || kind["resource"] != "nic" {
					t.Errorf("got %v, want a nic's %s", item, sub)
				}
				if item["bootstrapRoute"] != nil || item["bootstrapRoutes"] != nil {
					t.Errorf("an item has a key of the reply: %v", item)
				}
			}
			w.send(opClose, []byte{3, 232})
			for {
				if opcode, _, err := w.frame(); err != nil || opcode == opClose {
					break
				}
			}
		})
	}
}

func routesOf(first map[string]any) (routes []any) {
	for _, r := range first["bootstrapRoutes"].([]any) {
		routes = append(routes, r.(map[string]any)["bootstrapRoute"])
	}
	return routes
}

// Registrations that are not taken are closed with 1000 and the reason
// (spec/changefeed.md section 1.3).
func TestRejects(t *testing.T) {
	_, address := served(t, Config{Store: newMemory()})
	for _, c := range []struct {
		version          Version
		payload, because string
	}{
		{V1, `{`, "unparseable payload"},
		{V1, `heartbeat`, "unparseable payload"},
		{V1, `[]`, "registration is not an object"},
		{V1, `null`, "registration is not an object"},
		{V1, `"x"`, "registration is not an object"},
		{V1, `{}`, "registration has no instance"},
		{V1, `{"instance":1}`, "registration has no instance"},
		{V1, `{"instance":"a"}`, "registration has no changeKind"},
		{V1, `{"instance":"a","changeKind":"nic"}`, "changeKind is not an object"},
		{V1, `{"instance":"a","changeKind":{"subResources":[]}}`, "changeKind has no resource"},
		{V1, `{"instance":"a","changeKind":{"resource":1,"subResources":[]}}`, "changeKind has no resource"},
		{V1, `{"instance":"a","changeKind":{"resource":"nic"}}`, "changeKind has no subResources"},
		{V1, `{"instance":"a","changeKind":{"resource":"nic","subResources":"ip"}}`, "changeKind has no subResources"},
		{V1, `{"instance":"a","changeKind":{"resource":"toaster","subResources":["ip"]}}`, "unknown resource: toaster"},
		{V1, `{"instance":"a","changeKind":{"resource":"` + strings.Repeat("é", 200) + `","subResources":["ip"]}}`, "unknown resource: éé"},
		{V1, `{"instance":"a","resources":[{"resource":"nic","subResources":["ip"]}]}`, "registration has no changeKind"},
		{V2, `{`, "unparseable payload"},
		{V2, `7`, "registration is not an object"},
		{V2, `{"resources":[]}`, "registration has no instance"},
		{V2, `{"instance":"a"}`, "resources is not an array"},
		{V2, `{"instance":"a","resources":{}}`, "resources is not an array"},
		{V2, `{"instance":"a","resources":[]}`, "no resources specified"},
		{V2, `{"instance":"a","resources":["nic"]}`, "resources element is not an object"},
		{V2, `{"instance":"a","resources":[{}]}`, "resources element has no resource"},
		{V2, `{"instance":"a","resources":[{"resource":"nic"}]}`, "resources element has no subResources"},
		{V2, `{"instance":"a","resources":[{"resource":"nic","subResources":[]},{"resource":"x","subResources":[]}]}`, "unknown resource: x"},
		{V2, `{"instance":"a","resources":[{"resource":"nic","subResources":[]}],"cursor":7}`, "cursor is not a string"},
		{V2, `{"instance":"a","resources":[{"resource":"nic","subResources":[]}],"cursor":"here"}`, "cursor is none of ours"},
		{V2, `{"instance":"` + strings.Repeat("a", 300) + `"}`, "instance is over 256 bytes"},
		{3, nicAndTags, "Accept-Version is not one of ~1 and ~2"},
	} {
		w := upgraded(t, address, c.version)
		w.send(opText, []byte(c.payload))
		if code, reason := w.closed(); code != 1000 || !strings.HasPrefix(reason, c.because) || len(reason) > maxReason {
			t.Errorf("v%d %.80s: closed with %d %q, want 1000 %q", c.version, c.payload, code, reason, c.because)
		}
	}
}

// What makes the real listener hang, or take an answer for another one, is not
// done (spec/changefeed.md section 1.5).
func TestServerThatCannotServe(t *testing.T) {
	store := newMemory()
	s, address := served(t, Config{Store: store, MaxListeners: 2})
	unable := func(what, because string) {
		t.Helper()
		if status, body := probe(t, address); status != http.StatusServiceUnavailable || !strings.Contains(body, `"code":"ServiceUnavailable"`) {
			t.Errorf("%s: the probe is answered %d %s, want 503 and no redirect", what, status, body)
		}
		// Its probe was before that: an upgrade that is refused would hang it.
		if code, reason := upgraded(t, address, V1).closed(); code != 1000 || !strings.Contains(reason, because) {
			t.Errorf("%s: closed with %d %q, want 1000 and %q", what, code, reason, because)
		}
	}
	store.setReady(errNotReady)
	unable("a server without a leader", errNotReady.Error())
	refusedFor := func(because string, w *wire) {
		t.Helper()
		opcode, payload, err := w.frame()
		if err != nil || opcode != opClose || !strings.Contains(string(payload), because) {
			t.Fatalf("frame %d %q, %v: want a close with %q", opcode, payload, err, because)
		}
	}
	// Who was refused and does not answer the close has no place of the two.
	refusedFor(errNotReady.Error(), upgraded(t, address, V1))
	store.setReady(nil)
	rejected := upgraded(t, address, V1)
	rejected.send(opText, []byte("{"))
	refusedFor("unparseable", rejected)
	for i := range 2 {
		register(t, address, V2, strings.Replace(nicAndTags, "i1", fmt.Sprint("full", i), 1))
	}
	unable("a server that is full", "as many listeners")
	other, err := New(Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	other.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/changefeeds", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("before Run the probe is answered %d, want 503", w.Code)
	}
	for _, e := range s.Table().Endpoints() {
		method, path, _ := strings.Cut(e, " ")
		for _, m := range []string{method, "HEAD", "POST"} {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest(m, path, nil))
			if allowed := w.Code != http.StatusMethodNotAllowed; allowed != (m != "POST") {
				t.Errorf("%s %s: %d", m, path, w.Code)
			}
		}
	}
}

// An upgrade with a subprotocol, as watershed refuses it, and one from a page of
// another site.
func TestUpgradesThatAreRefused(t *testing.T) {
	_, address := served(t, Config{Store: newMemory()})
	for header, want := range map[string]int{"Sec-WebSocket-Protocol: x": 400, "Origin: http://elsewhere.example": 403, "Sec-WebSocket-Version: 8": 400} {
		conn := dial(t, address)
		defer conn.Close()
		version := "Sec-WebSocket-Version: 13\r\n"
		if strings.HasPrefix(header, version[:21]) {
			version = ""
		}
		fmt.Fprintf(conn, "GET /changefeeds HTTP/1.1\r\nHost: %s\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: %s\r\n%s%s\r\n\r\n", address, wireKey, version, header)
		b := make([]byte, 12)
		if _, err := conn.Read(b); err != nil || string(b) != fmt.Sprint("HTTP/1.1 ", want) {
			t.Errorf("%s: %q, %v, want %d", header, b, err, want)
		}
	}
}

func TestVersions(t *testing.T) {
	for text, want := range map[string]Version{"": V1, "~1": V1, "1.0.0": V1, "~2": V2, ">=2": V2, "2.0.0": V2, "*": V2, "~3": 0, "x": 0} {
		if v, ok := versionOf(text); v != want || ok != (want != 0) {
			t.Errorf("Accept-Version %q: %d, %v, want %d", text, v, ok, want)
		}
	}
}

// The list and the stats: each live listener once, and the agents beside them.
func TestStats(t *testing.T) {
	cn := log.UUID{15: 9}
	_, address := served(t, Config{Store: newMemory(), Agents: func() []log.UUID { return []log.UUID{cn} }})
	stats := func() (listeners int, instances []string) {
		t.Helper()
		response, err := http.Get("http://" + address + "/changefeeds/stats")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var v struct {
			Listeners     int
			Registrations []struct{ Instance, Service string }
		}
		if err := json.NewDecoder(response.Body).Decode(&v); err != nil {
			t.Fatal(err)
		}
		for _, r := range v.Registrations {
			instances = append(instances, r.Instance+" "+r.Service)
		}
		return v.Listeners, instances
	}
	agent := cn.String() + "/net-agent net-agent"
	w, _ := register(t, address, V2, nicAndTags)
	if n, all := stats(); n != 2 || !slices.Equal(all, []string{agent, "i1 s"}) {
		t.Errorf("%d listeners: %q", n, all)
	}
	w.conn.Close()
	await(t, "the listener is gone from the stats", func() bool { n, _ := stats(); return n == 1 })
	var list map[string]Resource
	_, body := probe(t, address)
	if i := strings.Index(body, "{"); json.Unmarshal([]byte(body[i:]), &list) != nil || list["nic"].BootstrapRoute != "/nics" || !slices.Contains(list["nic"].SubResources, "cn_uuid") {
		t.Errorf("the list is %s", body)
	}
}

// A second registration of an instance replaces the first where they share a
// resource, and only there.
func TestReplaced(t *testing.T) {
	store, all := newMemory(), objects{}
	_, address := served(t, Config{Store: store})
	first, _ := register(t, address, V2, nicAndTags)
	other, _ := register(t, address, V1, `{"instance":"i1","changeKind":{"resource":"vm","subResources":["create"]}}`)
	second, _ := register(t, address, V1, `{"instance":"i1","changeKind":{"resource":"nic","subResources":["create"]}}`)
	if code, reason := first.closed(); code != 1000 || reason != replacedReason {
		t.Errorf("the first is closed with %d %q", code, reason)
	}
	store.write(t, all.put(nicOf(1, "running")), all.put(&log.VM{UUID: log.UUID{1}}))
	if item := second.text(); item["changedResourceId"] != "90:b8:d0:00:00:01" {
		t.Errorf("the second gets %v", item)
	}
	if item := other.text(); item["changedResourceId"] != (log.UUID{1}).String() {
		t.Errorf("that of another resource gets %v", item)
	}
}
