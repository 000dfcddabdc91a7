package moving

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What one cluster's NAPI says, another's says after an import, from the NAPI or
// from files of its answers; the second import writes nothing; what changes there
// comes over with the next.
func TestRoundTrip(t *testing.T) {
	a, b, files := clusterOf(t, 1), clusterOf(t, 3), clusterOf(t, 1)
	source := a.Servers[0].URL + "/napi"
	filled(t, source)
	want := answers(t, source)

	if out, code := run(t, b, "import", "napi", source, "--dry-run"); code != 0 || !strings.Contains(out, "+ router ") || head(t, b) != "0" {
		t.Errorf("a dry run: exit code %d, head %s, it printed\n%s", code, head(t, b), out)
	}
	for range 2 {
		before := head(t, b)
		out, code := run(t, b, "import", "napi", source, "-o", "json")
		var report struct{ Written int }
		if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
			t.Fatalf("import: exit code %d, %v", code, err)
		}
		if before != "0" && (report.Written != 0 || head(t, b) != before) {
			t.Errorf("the second import wrote %d, from %s to %s", report.Written, before, head(t, b))
		}
		compareAnswers(t, answers(t, b.Servers[0].URL+"/napi"), want)
	}

	dir := t.TempDir()
	for i, path := range lists {
		name := strings.TrimPrefix(path, "/") + ".json"
		switch {
		case strings.HasSuffix(path, "/ips"):
			name = fmt.Sprintf("ips_%d.json", i)
		case path == fabric:
			name = "vlans.json"
		case strings.HasPrefix(path, fabric):
			name = "networks.fabric.json"
		}
		_, body := ask(t, "GET", source+path, "")
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, code := run(t, files, "import", "napi", dir); code != 0 {
		t.Errorf("import of files: exit code %d", code)
	}
	compareAnswers(t, answers(t, files.Servers[0].URL+"/napi"), want)

	for _, change := range []struct{ path, body string }{
		{"/nics/90:b8:d0:00:00:02", `{"state": "running", "primary": true}`},
		{"/networks/" + blue, `{"gateway": "10.21.12.254", "routes": {"10.51.0.0/16": "10.21.12.9"}}`},
		{"/networks/" + public + "/ips/192.0.2.200", `{"owner_uuid": "` + tenant + `"}`},
		{"/nics/90:b8:d0:00:00:03", `{"ip": "fd00::77"}`},
	} {
		if status, body := ask(t, "PUT", source+change.path, change.body); status != 200 {
			t.Fatalf("PUT %s: %d %s", change.path, status, body)
		}
	}
	out, code := run(t, b, "import", "napi", source)
	if code != 0 || !strings.Contains(out, `state: "stopped" -> "running"`) || !strings.Contains(out, `gateway: "10.21.12.1" -> "10.21.12.254"`) {
		t.Errorf("import of changes: exit code %d, it printed\n%s", code, out)
	}
	got, want := answers(t, b.Servers[0].URL+"/napi"), answers(t, source)
	for _, all := range []map[string][]string{got, want} {
		// Of an object that was changed, each log says when that was.
		for i, line := range all["/nics"] {
			head, rest, _ := strings.Cut(line, `"modified_timestamp":"`)
			all["/nics"][i] = head + rest[strings.IndexByte(rest, '"'):]
		}
	}
	compareAnswers(t, got, want)
}

// What Rutter refuses is named and left out, and the exit code says so.
func TestLeftOut(t *testing.T) {
	c := clusterOf(t, 1)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"nic_tags.json": `[{"name": "external", "mtu": 1500}, {"name": "bad-name", "mtu": 1500}]`,
		"nics.ndjson":   `{"mac": "90:b8:d0:00:00:01", "belongs_to_type": "zone", "belongs_to_uuid": "` + vm + `", "owner_uuid": "` + tenant + `", "network_uuid": "` + blue + `", "ip": "10.0.0.1", "primary": true, "state": "running"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, code := run(t, c, "import", "napi", dir)
	if code != 3 || !strings.Contains(out, `! nic_tag bad-name is left out: name: must only contain numbers`) || !strings.Contains(out, "network_uuid: network") {
		t.Errorf("exit code %d, want 3; it printed\n%s", code, out)
	}
	if status, _ := ask(t, "GET", c.Servers[0].URL+"/napi/nic_tags/external", ""); status != 200 {
		t.Errorf("what was right is not there: %d", status)
	}
}
