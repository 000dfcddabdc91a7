package gateway

import (
	"net/http"
	"strings"
	"testing"
)

// TestNotBypassed: what the own listeners refuse to a program with write access is not
// reached through the old services, however it is sent.
func TestNotBypassed(t *testing.T) {
	vms, cns := newBed(t, VMAPI, nil), newBed(t, CNAPI, nil)
	for _, c := range []struct {
		b            *bed
		method, path string
		body         string
		status       int
		headers      []string
	}{
		{vms, "POST", "/vms", `{"init":["/bin/sh"]}`, 403, nil},
		{vms, "POST", "/vms", `{"in\u0069t":["/bin/sh"]}`, 403, nil},
		{vms, "POST", "/vms", `{"init":null,"init":["/bin/sh"]}`, 403, nil},
		{vms, "POST", "/vms?init=/bin/sh", `{}`, 403, nil},
		{vms, "POST", "/vms?init[0]=/bin/sh", `{}`, 422, nil},
		{vms, "POST", "/vms?init%5B%5D=/bin/sh", `{}`, 422, nil},
		{vms, "POST", "/vms?[init]=/bin/sh", `{}`, 422, nil}, // qs: {init: …}
		{vms, "POST", "/vms?%5Binit%5D=/bin/sh", `{}`, 422, nil},
		{vms, "POST", "/vms?init]x=/bin/sh", `{}`, 422, nil},
		{vms, "POST", "/vms?payload[init]=/bin/sh", `{}`, 422, nil},
		{vms, "POST", "/vms?payload.init=/bin/sh", `{}`, 422, nil},
		{vms, "POST", "/vms/" + oldVM + "?[action]=update&[resolvers]=8.8.8.8", `{}`, 422, nil},
		{vms, "POST", "/vms?disks=1", `{"disks":[{"size":1}]}`, 422, nil},
		{vms, "POST", "/vms", `{"__proto__":{"init":["/bin/sh"]}}`, 422, nil},
		{vms, "POST", "/vms?__proto__[init]=/bin/sh", `{}`, 422, nil},
		{vms, "POST", "/vms", `[{"init":1}]`, 400, nil},
		{vms, "POST", "/vms", `{"a":1} {"init":1}`, 400, nil},
		{vms, "POST", "/vms", "\x1f\x8b\x08", 415, []string{"Content-Encoding=gzip"}},
		{vms, "POST", "/vms", `{"a":1}`, 415, []string{"Content-Encoding=identity", "Content-Encoding+=gzip"}},
		{vms, "POST", "/vms", "init=/bin/sh", 415, []string{"Content-Type=application/x-www-form-urlencoded"}},
		{vms, "POST", "/vms", "init=/bin/sh", 415, []string{"Content-Type=application/x-other"}},
		{vms, "POST", "/vms", `{"filesystems":[{"source":"/"}]}`, 403, nil},
		{vms, "POST", "/vms", `{"disks":[{"path":"/dev/sda"}]}`, 403, nil},
		{vms, "POST", "/vms", `{"payload":{"hooks":{}}}`, 403, nil},
		{vms, "POST", "/vms/" + oldVM + "?action=reprovision", `{"qemu_opts":"x"}`, 403, nil},
		{vms, "POST", "/vms/" + oldVM, `{"action":"update","zonename":"global"}`, 403, nil},
		{vms, "POST", "/nothing", `{}`, 403, nil},
		{vms, "PATCH", "/vms/" + oldVM, `{}`, 403, nil},
		{cns, "POST", "/servers/" + oldCN + "/execute", `{"script":"id"}`, 403, nil},
		{cns, "POST", "/servers/" + oldCN + "/reboot", `{}`, 403, nil},
		{cns, "POST", "/servers/" + freshVM + "/execute", `{"script":"id"}`, 403, nil},
		{cns, "PUT", "/servers/" + oldCN + "/setup", `{}`, 403, nil},
		{cns, "POST", "/servers/" + oldCN + "/install-agent", `{}`, 403, nil},
		{cns, "POST", "/servers/" + oldCN + "/vms", `{"uuid":"` + freshVM + `","init":["/bin/sh"]}`, 403, nil},
		{cns, "POST", "/servers/" + oldCN + "/vms/" + oldVM + "/update", `{"add_filesystems":[]}`, 403, nil},
		{cns, "POST", "/servers/" + oldCN + "/vms/" + oldVM + "/start", `{"update":{"spice_opts":"x"}}`, 403, nil},
		{cns, "POST", "/servers/" + oldCN + "/vms/" + oldVM + "/docker-exec", `{"command":{}}`, 403, nil},
	} {
		got := c.b.ask(c.method, c.path, c.body, c.headers...)
		if got.status != c.status || got.code() == "" {
			t.Errorf("%s %s %q: %d %s, want %d", c.method, c.path, c.body, got.status, got.body, c.status)
		}
	}
	for _, b := range []*bed{vms, cns} {
		for _, asked := range b.asked() {
			t.Errorf("handed on: %s", asked)
		}
	}
}

// TestRights: with the right programs what chooses programs is handed on, except what is
// an operator's; with read alone nothing is that changes something.
func TestRights(t *testing.T) {
	vms, cns := newBed(t, VMAPI, nil), newBed(t, CNAPI, nil)
	for _, right := range []string{"programs", "write", "read"} {
		vms.who.Store(right)
		cns.who.Store(right)
		for _, c := range []struct {
			b            *bed
			method, path string
			body         string
			from         string // the least right
		}{
			{vms, "POST", "/vms", `{"init":["/bin/sh"]}`, "programs"},
			{vms, "POST", "/vms", `{"alias":"a"}`, "write"},
			{vms, "POST", "/vms/" + oldVM + "/customer_metadata", `{"init":"x","root":"y"}`, "write"},
			{vms, "DELETE", "/vms/" + oldVM + "/tags/init", "", "write"},
			{vms, "GET", "/jobs?vm_uuid=" + oldVM, "", "read"},
			{cns, "PUT", "/servers/" + oldCN + "/setup", `{}`, "programs"},
			{cns, "POST", "/servers/" + oldCN + "/execute", `{}`, "none"},
			{cns, "GET", "/servers/" + oldCN + "/vms/" + oldVM + "/vnc", "", "write"}, // it opens a port
			{cns, "GET", "/platforms", "", "read"},
			{cns, "PUT", "/servers/" + oldCN + "/vms/" + oldVM + "/snapshots", `{"snapshot_name":"a"}`, "write"},
		} {
			rank := map[string]int{"read": 0, "write": 1, "programs": 2, "none": 3}
			want := http.StatusForbidden
			if rank[right] >= rank[c.from] {
				want = http.StatusOK
			}
			if got := c.b.ask(c.method, c.path, c.body); got.status != want {
				t.Errorf("%s: %s %s: %d %s, want %d", right, c.method, c.path, got.status, got.body, want)
			}
		}
	}
	if last := vms.last(); !strings.HasPrefix(last.uri, "/jobs") {
		t.Errorf("a reader's last: %s %s", last.method, last.uri)
	}
}

// TestParseBehind: what is no base URL of an old service is refused.
func TestParseBehind(t *testing.T) {
	for _, text := range []string{"", "10.99.99.28", "https://a", "http://", "http://u:p@a", "http://a/b", "http://a?b", "file:///etc/passwd", "unix:/x"} {
		if u, err := ParseBehind(text); err == nil {
			t.Errorf("%q is taken: %s", text, u)
		}
	}
	if u, err := ParseBehind("http://10.99.99.28:8080/"); err != nil || u.String() != "http://10.99.99.28:8080" {
		t.Errorf("%v, %v", u, err)
	}
}
