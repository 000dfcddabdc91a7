package napi

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"rutter/integration/rig"
)

// from is a client whose connections come from an address of this machine.
func from(t *testing.T, address string) *http.Client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// text returns what a server says at a path.
func text(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The listeners for old programs let in by address: one that may read is refused
// writes, one that is not listed everything, and each is counted. That such a
// listener is open stands in the server's log, in its readiness and its metrics.
func TestListeners(t *testing.T) {
	const reader, writer, stranger, cn = "127.0.0.2", "127.0.0.3", "127.0.0.4", "564d69b1-a178-4fbe-b36f-3f2b7fd7ed02"
	ports := rig.Ports(t, 2)
	base := map[string]string{"napi": fmt.Sprintf("127.0.0.1:%d", ports[0]), "cnapi": fmt.Sprintf("127.0.0.1:%d", ports[1])}
	c := clusterOf(t, 1, "--napi="+base["napi"], "--cnapi="+base["cnapi"], "--triton-allow="+reader+"/32=read", "--triton-allow="+writer+"=write")
	clients := map[string]*http.Client{}
	for _, address := range []string{reader, writer, stranger} {
		clients[address] = from(t, address)
	}
	refused := map[string]int{}
	for _, test := range []struct {
		who, surface, request, body string
		want                        int
	}{
		{writer, "napi", "POST /nic_tags", `{"name": "external"}`, 200},
		{reader, "napi", "GET /nic_tags/external", "", 200},
		{reader, "napi", "HEAD /nic_tags", "", 200},
		{reader, "napi", "GET /changefeeds", "", 200},
		{reader, "napi", "POST /nic_tags", `{"name": "internal"}`, 403},
		{reader, "napi", "PUT /nic_tags/external", `{"mtu": 9000}`, 403},
		{reader, "napi", "DELETE /nic_tags/external", "", 403},
		{stranger, "napi", "GET /ping", "", 403},
		{stranger, "napi", "POST /nic_tags", `{"name": "internal"}`, 403},
		{stranger, "napi", "GET /changefeeds", "", 403},
		{writer, "cnapi", "POST /servers/" + cn + "/sysinfo", `{"sysinfo": {"UUID": "` + cn + `", "Hostname": "cn2"}}`, 200},
		{writer, "cnapi", "POST /servers/" + cn + "/events/heartbeat", `{}`, 204},
		{reader, "cnapi", "GET /servers/" + cn, "", 200},
		{reader, "cnapi", "POST /servers/" + cn + "/events/heartbeat", `{}`, 403},
		{reader, "cnapi", "POST /servers/" + cn + "/nop", ``, 403},
		{stranger, "cnapi", "GET /servers", "", 403},
		{writer, "cnapi", "PATCH /servers/" + cn, `{}`, 405},
		{writer, "napi", "PATCH /nic_tags/external", `{}`, 405},
		{writer, "napi", "GET /elsewhere", "", 404},
	} {
		method, path, _ := strings.Cut(test.request, " ")
		status, body := ask(t, clients[test.who], method, "http://"+base[test.surface]+path, test.body)
		if status != test.want {
			t.Errorf("%s asks %s for %s: got %d %v, want %d", test.who, test.surface, test.request, status, body, test.want)
		}
		if status == http.StatusForbidden {
			refused[test.surface]++
			if body["code"] != "NotAuthorized" {
				t.Errorf("%s asks %s for %s: got %v", test.who, test.surface, test.request, body)
			}
		}
	}
	server := c.Servers[0]
	ready, metrics := text(t, server.URL+"/readyz?verbose"), text(t, server.URL+"/metrics")
	said, err := os.ReadFile(server.LogFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, address := range base {
		if !strings.Contains(ready, "no TLS at "+address+" (--"+name+")") {
			t.Errorf("/readyz?verbose does not name %s at %s: %s", name, address, ready)
		}
		for _, want := range []string{
			fmt.Sprintf("rutter_triton_listener_open{surface=%q} 1", name), fmt.Sprintf("rutter_triton_refused_total{surface=%q} %d", name, refused[name]),
		} {
			if !strings.Contains(metrics, want+"\n") {
				t.Errorf("/metrics lacks %s", want)
			}
		}
		if loud := regexp.MustCompile(`level=WARN msg="this port has no TLS: [^\n]*surface=` + name + ` `); !loud.Match(said) {
			t.Errorf("the log does not warn of %s:\n%s", name, said)
		}
	}
	if n := strings.Count(string(said), "a program without a certificate was refused"); n != refused["napi"]+refused["cnapi"] {
		t.Errorf("the log has %d refusals, want %d", n, refused["napi"]+refused["cnapi"])
	}
	// Nothing of what was refused was done.
	if status, _ := ask(t, clients[reader], "GET", "http://"+base["napi"]+"/nic_tags/internal", ""); status != http.StatusNotFound {
		t.Errorf("a NIC tag that was refused: got %d, want 404", status)
	}
}
