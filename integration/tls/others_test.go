package tls

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// The objects of two tenants, each with one compute node. What is not the asker's
// has words in it that stand nowhere else.
const (
	ourOwner, theirOwner = "930896af-bf8c-48d4-885c-6573a94b1853", "7f136432-7a5c-4c1d-8b5e-3d9d1c9e6c11"
	ourNode, theirNode   = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01", "564d69b1-a178-4fbe-b36f-3f2b7fd7ed02"
	ourNet, theirNet     = "0e70de36-a40b-4ac0-9429-819f5ff82011", "0e70de36-a40b-4ac0-9429-819f5ff82021"
	ourVM, theirVM       = "5595d88c-6e4d-4bda-b58e-97dd02e30001", "5595d88c-6e4d-4bda-b58e-97dd02e30007"
	theirVMM             = "6695d88c-6e4d-4bda-b58e-97dd02e30007"
	ourMAC, theirMAC     = "90:b8:d0:10:02:00", "90:b8:d0:77:66:55"
	theirIP              = "10.77.66.55"
	nobodys              = "77777777-7777-4777-8777-777777777777"
)

// theirs are words of the objects that are not the asker's.
var theirs = []string{
	theirOwner, theirNode, theirNet, theirVM, theirVMM, theirMAC, theirIP, "90b8d0776655", "7654321", "10.77.66.0", "their-network", "their-alias", "their-host", "their-pool",
}

// furnish makes the objects of both.
func (w *world) furnish() {
	w.t.Helper()
	for _, o := range [][2]string{
		{"/nic_tags", `{"name": "overlay"}`},
		{"/servers", `{"uuid": "` + ourNode + `", "hostname": "our-host"}`},
		{"/servers", `{"uuid": "` + theirNode + `", "hostname": "their-host"}`},
		{"/networks", network(ourNet, "our-network", 4385813, "10.21.12", ourOwner)},
		{"/networks", network(theirNet, "their-network", 7654321, "10.77.66", theirOwner)},
		{"/vms", `{"uuid": "` + ourVM + `", "alias": "our-alias", "owner_uuid": "` + ourOwner + `", "brand": "lx", "state": "running", "server_uuid": "` + ourNode + `"}`},
		{"/vms", `{"uuid": "` + theirVM + `", "alias": "their-alias", "owner_uuid": "` + theirOwner + `", "brand": "lx", "state": "running", "server_uuid": "` + theirNode + `"}`},
		{"/vmms", `{"id": "` + theirVMM + `", "instance_id": "` + theirVM + `", "sled_id": "` + theirNode + `", "state": "running", "gen": 1}`},
		{"/nics", nic(ourMAC, ourVM, ourOwner, ourNode, ourNet, "10.21.12.7")},
		{"/nics", nic(theirMAC, theirVM, theirOwner, theirNode, theirNet, theirIP)},
		{"/napi/network_pools", `{"uuid": "` + nobodys + `", "name": "their-pool", "networks": ["` + theirNet + `"], "owner_uuids": ["` + theirOwner + `"]}`},
	} {
		_, err := w.api.Raw(w.t.Context(), http.MethodPost, o[0], []byte(o[1]))
		w.must(err)
	}
}

func network(id, name string, vnet int, prefix, owner string) string {
	return fmt.Sprintf(`{"uuid": %q, "name": %q, "fabric": true, "vnet_id": %d, "vlan_id": 4, "nic_tag": "overlay", "subnet": "%[4]s.0/24", "provision_start_ip": "%[4]s.5", "provision_end_ip": "%[4]s.250", "owner_uuids": [%q]}`,
		id, name, vnet, prefix, owner)
}

func nic(mac, vm, owner, node, network, ip string) string {
	return fmt.Sprintf(`{"mac": %q, "belongs_to_type": "zone", "belongs_to_uuid": %q, "owner_uuid": %q, "cn_uuid": %q, "network_uuid": %q, "ip": %q, "state": "running"}`,
		mac, vm, owner, node, network, ip)
}

// asker asks with one certificate over kept connections.
type asker struct {
	w      *world
	client *http.Client
}

func (w *world) asker(name string) asker {
	transport := &http.Transport{DialTLSContext: term.DialServer(w.keeper(name))}
	w.t.Cleanup(transport.CloseIdleConnections)
	noFurther := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return asker{w, &http.Client{Transport: transport, CheckRedirect: noFurther, Timeout: finishPatience}}
}

// ask returns an answer's status, its head as it came, and its body. A node or a reader that
// has used up its requests of these seconds waits as the server says, as its own client does.
func (a asker) ask(method, path, body string) (status int, head, text string) {
	a.w.t.Helper()
	for {
		status, head, text = a.once(method, path, body)
		if status != http.StatusTooManyRequests {
			return status, head, text
		}
		awaitRate()
	}
}

// awaitRate waits until a client that was answered 429 has some requests again.
func awaitRate() { time.Sleep(time.Second) }

// once is ask without waiting.
func (a asker) once(method, path, body string) (status int, head, text string) {
	a.w.t.Helper()
	r, err := http.NewRequestWithContext(a.w.t.Context(), method, a.w.urls[0]+path, strings.NewReader(body))
	a.w.must(err)
	r.Header.Set("Content-Type", "application/json")
	answer, err := a.client.Do(r)
	a.w.must(err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	a.w.must(err)
	h, err := httputil.DumpResponse(answer, false)
	a.w.must(err)
	return answer.StatusCode, string(h), string(b)
}

// Whatever path a compute node or a reader that is limited to a tenant asks, with
// whatever method: of others' objects they hear that they may not, or that there is
// none, nothing of an object is in the answer, and nothing happens to it.
func testOthers(t *testing.T, w *world) {
	w.furnish()
	node, err := log.ParseUUID(ourNode)
	w.must(err)
	w.issue("limited", matrix.Identity{Role: matrix.Reader, Name: "limited"}, pki.Life)
	w.issue("our-node", matrix.Identity{Role: matrix.CN, UUID: node}, pki.Life)
	open := w.asked("limited", w.urls[0], followLog, http.StatusOK)
	w.must(w.run("grant", "set", "reader:limited", "--owner", ourOwner))
	// The server cuts off whatever the reader has open a moment after it has the
	// grant: what is asked from here on is not.
	_, _ = io.Copy(io.Discard, open.conn)
	objects := []string{"/servers/" + theirNode, "/networks/" + theirNet, "/vms/" + theirVM, "/vmms/" + theirVMM, "/nics/" + theirMAC, "/napi/network_pools/" + nobodys}
	operator := w.asker("ada")
	before := make(map[string]string)
	for _, path := range objects {
		before[path] = awaitObject(operator, path)
	}
	for _, name := range []string{"limited", "our-node"} {
		a := w.asker(name)
		awaitSight(a)
		asked := 0
		for _, row := range slices.Concat(matrix.Requests(), matrix.Surfaces()) {
			asked += a.tryRow(name, row)
		}
		t.Logf("%s: %d requests", name, asked)
		a.tryLists(name)
		w.tryChangefeed(name)
	}
	for _, path := range objects {
		if _, _, text := operator.ask(http.MethodGet, path, ""); text != before[path] {
			t.Errorf("%s was changed: %s, it was %s", path, text, before[path])
		}
	}
}

// awaitObject waits until the server that is asked has an object that was made.
func awaitObject(a asker, path string) string {
	a.w.t.Helper()
	for deadline := time.Now().Add(finishPatience); ; time.Sleep(50 * time.Millisecond) {
		status, _, text := a.ask(http.MethodGet, path, "")
		if status == http.StatusOK {
			return text
		}
		if status != http.StatusNotFound || time.Now().After(deadline) {
			a.w.t.Fatalf("GET %s as an operator: %d %s", path, status, text)
		}
	}
}

// awaitSight waits until the server that is asked has what was made: both see
// their own network there.
func awaitSight(a asker) {
	a.w.t.Helper()
	for deadline := time.Now().Add(finishPatience); ; time.Sleep(50 * time.Millisecond) {
		status, _, text := a.ask(http.MethodGet, "/networks", "")
		others := strings.Contains(text, theirNet)
		if status == http.StatusOK && strings.Contains(text, ourNet) && !others {
			return
		}
		if time.Now().After(deadline) {
			a.w.t.Fatalf("GET /networks: %d %s, want the own network alone", status, text)
		}
	}
}

// bodies are changes that would be good of an object of one's own.
var bodies = map[string]string{
	"servers": `{"current_platform": "planted"}`, "vms": `{"state": "stopped"}`, "vmms": `{"state": "stopped"}`,
	"nics": `{"state": "stopped"}`, "networks": `{"name": "planted"}`, "nic_tags": `{"mtu": 1600}`,
	"cnapi": `{"comments": "planted"}`,
}

// tryRow asks what a row is about of others' objects, and returns how often.
func (a asker) tryRow(name string, row matrix.Row) (asked int) {
	a.w.t.Helper()
	if row.What == matrix.NoRoute || row.What == matrix.Malformed {
		return 0
	}
	for _, path := range pathsOf(row.What) {
		methods := []string{methodOf(row.What)}
		if methods[0] == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		body := bodies[first]
		if body == "" {
			body = `{}`
		}
		for _, method := range methods {
			asked++
			status, head, text := a.ask(method, path, body)
			everybody := row.For(matrix.Identity{Role: matrix.Join}) == matrix.Allow ||
				row.What == "GET /nic_tags/{id}" && name == "our-node" // NIC tags are for all nodes
			if strings.Contains(row.What, "{") && !everybody && status != http.StatusForbidden && status != http.StatusNotFound {
				a.w.t.Errorf("%s: %s %s: %d, want 403 or 404: %s", name, method, path, status, text)
			}
			a.w.noneOfTheirs(name+": "+method+" "+path, path, head+text)
		}
	}
	return asked
}

// methodOf is the method in a row of a request, with or without a surface before it.
func methodOf(what string) string {
	fields := strings.Fields(what)
	return fields[len(fields)-2]
}

// noneOfTheirs finds words of others' objects that were not in the question.
func (w *world) noneOfTheirs(what, asked, text string) {
	w.t.Helper()
	for _, word := range theirs {
		if strings.Contains(strings.ToLower(text), word) && !strings.Contains(asked, word) {
			w.t.Errorf("%s: the answer has %q: %s", what, word, text)
		}
	}
}

// roots are the paths of NAPI's that stand at the root as well.
var roots = []string{"/fabrics", "/network_pools", "/aggregations", "/routers", "/search"}

// pathsOf are the paths of a row, with others' objects in the place of names.
func pathsOf(what string) []string {
	fields := strings.Fields(what)
	pattern := fields[len(fields)-1]
	base := ""
	if len(fields) == 3 && fields[0] != "changefeeds" {
		base = "/" + fields[0]
	}
	id := map[string]string{"servers": theirNode, "networks": theirNet, "vms": theirVM, "vmms": theirVMM, "nics": theirMAC, "nic_tags": "overlay", "cns": theirNode}
	first, _, _ := strings.Cut(strings.TrimPrefix(pattern, "/"), "/")
	one, ok := id[first]
	if !ok || strings.HasPrefix(pattern, "/fabrics") {
		one = nobodys
	}
	uuid := one
	if first == "fabrics" {
		uuid = theirNet
	}
	path := strings.NewReplacer(
		"{id}", one, "{uuid}", uuid, "{mac}", theirMAC, "{ip}", theirIP, "{owner_uuid}", theirOwner, "{vlan_id}", "4", "{name}", "overlay",
		"{server}", theirNode, "{cn}", theirNode, "{vm}", theirVM, "{task}", nobodys, "{ticket}", nobodys, "{subject...}", "reader:limited",
	).Replace(pattern)
	switch path {
	case "/search/ips":
		path += "?ip=" + theirIP
	case "/lookup/vl3":
		path += "?vnet=7654321&ip=" + theirIP
	case "/lookup/vl2":
		path += "?vnet=7654321&mac=" + theirMAC
	}
	paths := []string{base + path}
	if slices.ContainsFunc(roots, func(root string) bool { return strings.HasPrefix(path, root) }) {
		paths = append(paths, path)
	}
	return paths
}

// tryLists looks at what can be asked of lists: by others' names, and how long they
// are without them.
func (a asker) tryLists(name string) {
	a.w.t.Helper()
	for _, path := range []string{
		"/networks", "/networks?owner_uuids=" + theirOwner, "/networks?vnet_id=7654321", "/networks?name=their-network", "/networks?limit=1&offset=1",
		"/nics", "/nics?owner_uuid=" + theirOwner, "/nics?network_uuid=" + theirNet, "/nics?cn_uuid=" + theirNode, "/nics?limit=1&offset=1", "/nics?ip=" + theirIP,
		"/vms", "/vms?owner_uuid=" + theirOwner, "/vms?alias=their-alias", "/vms?limit=1&offset=1", "/servers", "/vmms", "/networks?at=1", "/nics?at=1",
		"/log", "/log?owner_uuid=" + theirOwner, "/log?network_uuid=" + theirNet, "/log?vnet_id=7654321", "/log?ip=" + theirIP, "/log?kind=nic", "/log?last=1000",
	} {
		_, head, text := a.ask(http.MethodGet, path, "")
		a.w.noneOfTheirs(name+": GET "+path, path, head+text)
		plain := !strings.Contains(path, "?") && path != "/log"
		if _, counted, _ := a.ask(http.MethodHead, path, ""); plain && !strings.Contains(counted, fmt.Sprintf("Content-Length: %d\r\n", len(text))) {
			a.w.t.Errorf("%s: HEAD %s counts other things than GET, of %d bytes: %s", name, path, len(text), counted)
		}
	}
}

// tryChangefeed sees that Triton's change feed, whose items name every object, is
// closed to them: the upgrade is refused, with the reason.
func (w *world) tryChangefeed(name string) {
	w.t.Helper()
	for _, version := range []string{"~1", "~2"} {
		for _, base := range []string{"", "/napi"} {
			for _, url := range w.urls {
				conn, err := w.listen(name, url+base, version)
				for err != nil && strings.Contains(err.Error(), "429") {
					awaitRate()
					conn, err = w.listen(name, url+base, version)
				}
				if err == nil {
					_ = conn.CloseNow()
					w.t.Errorf("%s: %s%s/changefeeds %s: let in", name, url, base, version)
				} else if !strings.Contains(err.Error(), "status 403") {
					w.t.Errorf("%s: %s%s/changefeeds %s: %v, want status 403", name, url, base, version, err)
				}
			}
		}
	}
}
