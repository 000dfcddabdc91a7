package napi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/integration/rig"
)

// patience is how long a test waits for what must come, on a loaded machine.
const patience = 30 * time.Second

func clusterOf(t *testing.T, servers int, flags ...string) *bench.Cluster {
	t.Helper()
	return rig.Cluster(t, bench.Options{Program: rutter, Servers: servers, Flags: append([]string{"--log-level=warn"}, flags...)})
}

// old is a client that follows no redirect and keeps one connection to a server.
func old(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{MaxConnsPerHost: 1}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport: transport, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// ask sends one request, and returns the status and the body.
func ask(t *testing.T, c *http.Client, method, url, body string) (int, map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := c.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	_ = json.Unmarshal(b, &m) // a list, or nothing
	return response.StatusCode, m
}

const (
	network = "0e70de36-a40b-4ac0-9429-819f5ff82011"
	owner   = "9dce1460-0c4c-4417-ab8b-25ca478c5a78"
	vm      = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"
	netBody = `{"uuid": "` + network + `", "name": "n", "nic_tag": "external", "vlan_id": 0, "subnet": "10.1.0.0/16", "provision_start_ip": "10.1.0.5", "provision_end_ip": "10.1.250.250"}`
	nicBody = `{"belongs_to_type": "zone", "belongs_to_uuid": "` + vm + `", "owner_uuid": "` + owner + `"}`
)

// Every server takes every write, none redirects, and who wrote through one reads
// it there at once, and with min_seq on any other.
func TestEveryServer(t *testing.T) {
	c := clusterOf(t, 3)
	client := old(t)
	steps := []struct{ method, path, body string }{
		{"POST", "/napi/nic_tags", `{"name": "external"}`},
		{"POST", "/napi/networks", netBody},
		{"POST", "/napi/networks/" + network + "/nics", nicBody},
		{"PUT", "/napi/networks/" + network, `{"description": "d"}`},
		{"POST", "/fabrics/" + owner + "/vlans", `{"name": "a", "vlan_id": 2}`},
	}
	for i, step := range steps {
		server := c.Servers[i%3].URL
		if status, body := ask(t, client, step.method, server+step.path, step.body); status != http.StatusOK {
			t.Fatalf("%s %s through %s: got %d %v, want 200", step.method, step.path, server, status, body)
		}
		path := step.path
		switch {
		case strings.HasSuffix(path, "/nics"):
			path = "/napi/nics?belongs_to_uuid=" + vm
		case step.method == "POST" && strings.HasPrefix(path, "/napi/networks"):
			path += "/" + network
		}
		if status, _ := ask(t, client, "GET", server+path, ""); status != http.StatusOK {
			t.Errorf("GET %s where it was written: got %d", path, status)
		}
	}
	for _, s := range c.Servers {
		if status, m := ask(t, client, "GET", s.URL+"/napi/networks/"+network+"?consistent", ""); status != http.StatusOK || m["description"] != "d" {
			t.Errorf("network at %s: got %d %v", s.ID, status, m)
		}
		if status, m := ask(t, client, "GET", s.URL+"/ping", ""); status != http.StatusOK || m["status"] != "OK" {
			t.Errorf("ping of %s: got %d %v", s.ID, status, m)
		}
	}
}

// Keep-alive connections to followers outlive the leader: each write of their
// clients succeeds, once, while another server is elected.
func TestLeaderChange(t *testing.T) {
	c := clusterOf(t, 3)
	client := old(t)
	ask(t, client, "POST", c.Servers[0].URL+"/napi/nic_tags", `{"name": "external"}`)
	if status, body := ask(t, client, "POST", c.Servers[0].URL+"/napi/networks", netBody); status != http.StatusOK {
		t.Fatalf("network: got %d %v", status, body)
	}
	leader, err := c.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const each = 20
	var writers sync.WaitGroup
	killed := make(chan struct{})
	var followers []*bench.Server
	for _, s := range c.Servers {
		if s.ID != leader.ID {
			followers = append(followers, s)
		}
	}
	for _, s := range followers {
		client := old(t)
		writers.Go(func() {
			for i := range each {
				if i == each/4 {
					<-killed
				}
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/napi/networks/"+network+"/nics", strings.NewReader(nicBody))
				if err != nil {
					t.Error(err)
					return
				}
				response, err := client.Do(r)
				if err != nil {
					t.Errorf("write %d through %s: %v", i, s.ID, err)
					return
				}
				b, _ := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if response.StatusCode != http.StatusOK {
					t.Errorf("write %d through %s: got %d %s", i, s.ID, response.StatusCode, b)
				}
			}
		})
	}
	if err := leader.Stop(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	close(killed)
	writers.Wait()
	response, err := client.Get(followers[0].URL + "/napi/nics?belongs_to_uuid=" + vm + "&consistent")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var nics []any
	if err := json.NewDecoder(response.Body).Decode(&nics); err != nil {
		t.Fatal(err)
	}
	if got, want := len(nics), each*len(followers); got != want {
		t.Errorf("NICs after the election: got %d, want %d: a write was lost or applied twice", got, want)
	}
}

// The listener of NAPI lets this machine in, stands at the root, and serves those
// who come while a thousand idle connections are kept.
func TestIdleConnections(t *testing.T) {
	ports := rig.Ports(t, 1)
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	clusterOf(t, 1, "--napi", address)
	const idle = 1000
	for range idle {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, "GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK || response.Close {
			t.Fatalf("ping: got %d, close %v; want 200 and the connection kept", response.StatusCode, response.Close)
		}
	}
	client := old(t)
	if status, body := ask(t, client, "POST", "http://"+address+"/nic_tags", `{"name": "external"}`); status != http.StatusOK {
		t.Errorf("write beside them: got %d %v", status, body)
	}
	if status, _ := ask(t, client, "GET", "http://"+address+"/changefeeds", ""); status != http.StatusOK {
		t.Errorf("probe of the change feed: got %d", status)
	}
}

// A listener whose list has not this machine refuses it, before it reads a body,
// and says so to operators.
func TestRefusedByAddress(t *testing.T) {
	ports := rig.Ports(t, 2)
	read, none := fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	only := clusterOf(t, 1, "--napi", none, "--triton-allow", "10.0.0.0/8=write")
	clusterOf(t, 1, "--napi", read, "--triton-allow", "127.0.0.0/8=read")
	client := old(t)
	for _, c := range []struct {
		method, address string
		want            int
	}{{"GET", none, 403}, {"POST", none, 403}, {"GET", read, 200}, {"POST", read, 403}} {
		if status, _ := ask(t, client, c.method, "http://"+c.address+"/nic_tags", ""); status != c.want {
			t.Errorf("%s at %s: got %d, want %d", c.method, c.address, status, c.want)
		}
	}
	for path, want := range map[string]string{"/readyz?verbose": "--napi", "/metrics": `rutter_triton_refused_total{surface="napi"} 2`} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, only.Servers[0].URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		cancel()
		if !strings.Contains(string(b), want) {
			t.Errorf("%s: want it to have %q", path, want)
		}
	}
}
