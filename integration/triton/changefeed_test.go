package triton

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"rutter/cmd/rutter/bench"
)

// patience is how long a test waits for what must come, on a loaded machine.
const patience = 30 * time.Second

// classic registers as sdc-changefeed's listener does, without any field of ours.
func classic(t *testing.T, server, version, registration string) (*websocket.Conn, map[string]any) {
	t.Helper()
	for end := time.Now().Add(patience); ; { // as a listener does: the leader may go in between
		passes(t, server)
		conn, first, err := register(t, server, version, registration)
		if err == nil {
			t.Cleanup(func() { _ = conn.CloseNow() })
			return conn, first
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// register connects and registers once, and returns the reply.
func register(t *testing.T, server, version, registration string) (conn *websocket.Conn, first map[string]any, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, _, err = websocket.Dial(ctx, server+"/changefeeds", &websocket.DialOptions{HTTPHeader: http.Header{"Accept-Version": {version}}})
	if err != nil {
		return nil, nil, err
	}
	var text []byte
	if err = conn.Write(ctx, websocket.MessageText, []byte(registration)); err == nil {
		_, text, err = conn.Read(ctx)
	}
	if err == nil {
		err = json.Unmarshal(text, &first)
	}
	if err != nil {
		_ = conn.CloseNow()
	}
	return conn, first, err
}

// next reads one text.
func next(t *testing.T, conn *websocket.Conn) (v map[string]any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, text, err := conn.Read(ctx)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// passes waits until a server passes the probe, as a listener does: one that has
// just lost its leader fails it for a moment.
func passes(t *testing.T, server string) {
	t.Helper()
	await(t, server+" passes the probe", func() bool { return probe(t, server) == http.StatusOK })
}

func probe(t *testing.T, server string) (status int) {
	t.Helper()
	response, err := http.Get(server + "/changefeeds")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// request does one request with a body of JSON, and returns the entity tag.
func request(t *testing.T, method, url, body string) (tag string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s, %v", method, url, response.Status, b, err)
	}
	return response.Header.Get("Etag")
}

// What is written through any server comes to classic listeners of every server,
// in the same order, with the entity tag of the object.
func TestClassicListeners(t *testing.T) {
	c := clusterOf(t)
	const cn, owner, network = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01", "9dce1460-0c4c-4417-ab8b-25ca478c5a78", "0e70de36-a40b-4ac0-9429-819f5ff82011"
	const mac = "90:b8:d0:10:02:00"
	var listeners []*websocket.Conn
	for i, s := range c.Servers {
		conn, first := classic(t, s.URL, "~2", fmt.Sprintf(`{"instance":"i%d","service":"t","resources":[
			{"resource":"nic_tag","subResources":["create","delete"]},{"resource":"network","subResources":["create","delete","gateway"]},
			{"resource":"nic","subResources":["create","delete","ip","allow_ip_spoofing"]}]}`, i))
		if n := len(first["bootstrapRoutes"].([]any)); n != 3 {
			t.Fatalf("the reply has %d routes", n)
		}
		listeners = append(listeners, conn)
	}
	for n, step := range []struct{ method, path, body, want string }{
		{"POST", "/nic_tags", `{"name":"external","mtu":1500}`, "nic_tag [create] external"},
		{"POST", "/networks", `{"uuid":"` + network + `","name":"n","nic_tag":"external","vlan_id":0,"subnet":"10.1.0.0/24","provision_start_ip":"10.1.0.5","provision_end_ip":"10.1.0.250"}`, "network [create] " + network},
		{"PUT", "/networks/" + network, `{"gateway":"10.1.0.1"}`, "network [gateway] " + network},
		{"POST", "/nics", `{"mac":"` + mac + `","belongs_to_type":"server","belongs_to_uuid":"` + cn + `","owner_uuid":"` + owner + `","network_uuid":"` + network + `","ip":"10.1.0.7"}`, "nic [create] " + mac},
		{"PUT", "/nics/" + mac, `{"ip":"10.1.0.9","allow_ip_spoofing":true}`, "nic [allow_ip_spoofing ip] " + mac},
		{"DELETE", "/nics/" + mac, ``, "nic [delete] " + mac},
		{"DELETE", "/networks/" + network, ``, "network [delete] " + network},
	} {
		server := c.Servers[n%len(c.Servers)].URL
		request(t, step.method, server+step.path, step.body)
		path := step.path
		if step.method == "POST" {
			path += "/" + strings.Fields(step.want)[2]
		}
		var tag any
		if step.method != "DELETE" {
			tag = request(t, "GET", server+path, "")
		}
		for i, conn := range listeners {
			item := next(t, conn)
			kind := item["changeKind"].(map[string]any)
			if got := fmt.Sprint(kind["resource"], " ", kind["subResources"], " ", item["changedResourceId"]); got != step.want || item["etag"] != tag {
				t.Fatalf("listener %d gets %s, etag %v, want %s, %v", i, got, item["etag"], step.want, tag)
			}
		}
	}
}

// A server that has no quorum fails the probe, so that listeners go elsewhere;
// those that it has stay, and get what comes when it has one again.
func TestWithoutQuorum(t *testing.T) {
	c := clusterOf(t)
	alone := c.Servers[0]
	conn, _ := classic(t, alone.URL, "~1", `{"instance":"a","service":"t","changeKind":{"resource":"nic_tag","subResources":["create"]}}`)
	for _, s := range c.Servers[1:] {
		if err := s.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the probe fails", func() bool { return probe(t, alone.URL) == http.StatusServiceUnavailable })
	if err := c.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	passes(t, alone.URL)
	request(t, "POST", alone.URL+"/nic_tags", `{"name":"external"}`)
	if item := next(t, conn); item["changedResourceId"] != "external" {
		t.Errorf("got %v", item)
	}
}

// await waits for what a server does.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(lookAgain) {
		if time.Now().After(deadline) {
			t.Fatalf("still not after %v: %s", patience, what)
		}
	}
}

// rutter changefeed snoop prints every item, also those of a burst, and goes on
// at the next server where the last one ended.
func TestSnoop(t *testing.T) {
	c := clusterOf(t)
	args := []string{"changefeed", "snoop", "-r", "nic_tag", "-s", "create"}
	for _, s := range c.Servers {
		args = append(args, "-h", strings.TrimPrefix(s.URL, "http://"))
	}
	cmd := exec.CommandContext(t.Context(), rutter, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, said := bufio.NewScanner(stdout), bufio.NewScanner(stderr)
	listening := func() {
		t.Helper()
		for said.Scan() {
			if strings.Contains(said.Text(), "listening to") {
				return
			}
		}
		t.Fatal("snoop does not listen")
	}
	item := func(name string) {
		t.Helper()
		var line struct {
			Msg        string
			ChangeItem struct{ ChangedResourceID string }
		}
		if !lines.Scan() {
			t.Fatalf("no line for %s: %v", name, lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Msg != "changeItem" || line.ChangeItem.ChangedResourceID != name {
			t.Fatalf("got %s, %v, want %s", lines.Bytes(), err, name)
		}
	}
	tags := func(from, n int, server *bench.Server) {
		t.Helper()
		for i := range n {
			request(t, "POST", server.URL+"/nic_tags", fmt.Sprintf(`{"name":"tag%d"}`, from+i))
		}
	}
	listening()
	tags(0, 20, c.Servers[1])
	for i := range 20 {
		item(fmt.Sprint("tag", i))
	}
	if err := c.Servers[0].Stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	listening()
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := c.Leader(ctx); err != nil {
		t.Fatal(err)
	}
	tags(20, 5, c.Servers[2])
	for i := range 5 {
		item(fmt.Sprint("tag", 20+i))
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	} else if exit != nil {
		t.Errorf("interrupted, snoop ends with %v", err)
	}
}

// A listener registers with one server and pages the bootstrap route of another
// that is behind: what was written before the registration, of which no item
// tells, is on those pages.
func TestBootstrapElsewhere(t *testing.T) {
	c := clusterOf(t)
	leader, err := c.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(c.Servers, func(s *bench.Server) bool { return s.URL != leader.URL })
	behind := c.Servers[at]
	for i := range 5 {
		if err := behind.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint("tag", i)
		request(t, "POST", leader.URL+"/napi/nic_tags", `{"name":"`+name+`"}`)
		conn, _ := classic(t, leader.URL, "~1", `{"instance":"a","service":"t","changeKind":{"resource":"nic_tag","subResources":["create"]}}`)
		page := make(chan string, 1)
		go func() { page <- get(t.Context(), behind.URL+"/napi/nic_tags?limit=1000&offset=0") }()
		if err := behind.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if got := <-page; !strings.Contains(got, `"`+name+`"`) {
			t.Errorf("the server that was behind lists %s without %s", got, name)
		}
		_ = conn.CloseNow()
	}
}

// get returns the body of an answer, or what went wrong.
func get(ctx context.Context, url string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	return fmt.Sprint(string(b), err)
}
