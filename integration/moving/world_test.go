package moving

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/integration/rig"
)

// patience is how long a test waits for what must come, on a loaded machine.
const patience = 60 * time.Second

const (
	admin   = "930896af-bf8c-48d4-885c-6573a94b1853"
	tenant  = "9dce1460-0c4c-4417-ab8b-25ca478c5a78"
	vm      = "5595d88c-6e4d-4bda-b58e-97dd02e30001"
	node    = "44454c4c-5300-1058-8050-b5c04f4c4432"
	public  = "0e70de36-a40b-4ac0-9429-819f5ff82011"
	blue    = "0e70de36-a40b-4ac0-9429-819f5ff82012"
	red     = "0e70de36-a40b-4ac0-9429-819f5ff82013"
	under   = "0e70de36-a40b-4ac0-9429-819f5ff82014"
	sixth   = "0e70de36-a40b-4ac0-9429-819f5ff82015"
	fabric  = "/fabrics/" + tenant + "/vlans"
	overlay = `"nic_tag": "sdc_overlay", "fabric": true, "vnet_id": 4385813, "vlan_id": 4, "mtu": 1400, "owner_uuids": ["` + tenant + `"]`
)

// installation is what is made through NAPI, in this order.
var installation = []struct{ method, path, body string }{
	{"POST", "/nic_tags", `{"name": "external"}`},
	{"POST", "/nic_tags", `{"name": "sdc_underlay", "mtu": 9000}`},
	{"POST", "/nic_tags", `{"name": "sdc_overlay", "mtu": 9000}`},
	{"POST", "/networks", `{"uuid": "` + public + `", "name": "public", "nic_tag": "external", "vlan_id": 22, "subnet": "192.0.2.0/24", "provision_start_ip": "192.0.2.10", "provision_end_ip": "192.0.2.250", "gateway": "192.0.2.1", "resolvers": ["192.0.2.2", "8.8.8.8"], "description": "to the world"}`},
	{"POST", "/networks", `{"uuid": "` + under + `", "name": "underlay", "nic_tag": "sdc_underlay", "vlan_id": 0, "subnet": "192.168.99.0/24", "provision_start_ip": "192.168.99.10", "provision_end_ip": "192.168.99.250", "mtu": 9000}`},
	{"POST", "/networks", `{"uuid": "` + sixth + `", "name": "sixth", "nic_tag": "external", "vlan_id": 6, "subnet": "fd00::/64", "provision_start_ip": "fd00::10", "provision_end_ip": "fd00::ffff"}`},
	{"POST", "/networks", `{"uuid": "` + blue + `", "name": "blue", "subnet": "10.21.12.0/24", "provision_start_ip": "10.21.12.5", "provision_end_ip": "10.21.12.250", "gateway": "10.21.12.1", "internet_nat": true, "routes": {"10.50.0.0/16": "10.21.12.9"}, ` + overlay + `}`},
	{"POST", "/networks", `{"uuid": "` + red + `", "name": "red", "subnet": "10.21.13.0/24", "provision_start_ip": "10.21.13.5", "provision_end_ip": "10.21.13.250", ` + overlay + `}`},
	{"POST", fabric, `{"name": "front", "vlan_id": 4, "description": "blue and red"}`},
	{"POST", fabric, `{"name": "back", "vlan_id": 5}`},
	{"POST", "/network_pools", `{"name": "tenants", "networks": ["` + red + `", "` + blue + `"], "owner_uuids": ["` + tenant + `"]}`},
	{"POST", "/nics", `{"mac": "90:b8:d0:00:00:01", "belongs_to_type": "zone", "belongs_to_uuid": "` + vm + `", "owner_uuid": "` + tenant + `", "network_uuid": "` + blue + `", "cn_uuid": "` + node + `", "primary": true, "state": "running", "reserved": true, "allow_ip_spoofing": true, "model": "virtio"}`},
	{"POST", "/networks/" + public + "/nics", `{"mac": "90:b8:d0:00:00:02", "belongs_to_type": "zone", "belongs_to_uuid": "` + vm + `", "owner_uuid": "` + tenant + `", "state": "stopped"}`},
	{"POST", "/networks/" + sixth + "/nics", `{"mac": "90:b8:d0:00:00:03", "belongs_to_type": "zone", "belongs_to_uuid": "` + vm + `", "owner_uuid": "` + tenant + `"}`},
	{"POST", "/networks/" + under + "/nics", `{"mac": "90:b8:d0:00:00:04", "belongs_to_type": "server", "belongs_to_uuid": "` + node + `", "owner_uuid": "` + admin + `", "underlay": true, "nic_tags_provided": ["sdc_underlay", "external"], "state": "running"}`},
	{"POST", "/nics", `{"mac": "90:b8:d0:00:00:05", "belongs_to_type": "other", "belongs_to_uuid": "` + admin + `", "owner_uuid": "` + admin + `"}`},
	{"POST", "/nics", `{"mac": "90:b8:d0:00:00:06", "belongs_to_type": "server", "belongs_to_uuid": "` + node + `", "owner_uuid": "` + admin + `", "nic_tag": "external", "vlan_id": 9}`},
	{"POST", "/aggregations", `{"name": "aggr0", "macs": ["90:b8:d0:00:00:04", "90:b8:d0:00:00:06"], "lacp_mode": "active"}`},
	{"POST", "/routers", `{"name": "joint", "networks": ["` + blue + `", "` + red + `"], "description": "both"}`},
	{"PUT", "/networks/" + public + "/ips/192.0.2.200", `{"reserved": true}`},
	{"PUT", "/networks/" + public + "/ips/192.0.2.201", `{"belongs_to_type": "other", "belongs_to_uuid": "` + tenant + `", "owner_uuid": "` + tenant + `"}`},
	{"PUT", "/networks/" + blue + "/ips/10.21.12.77", `{"reserved": true, "owner_uuid": "` + tenant + `"}`},
}

// lists are all that NAPI lists of it.
var lists = []string{
	"/nic_tags", "/networks", "/network_pools", "/nics", "/aggregations", "/routers", fabric, fabric + "/4/networks",
	"/networks/" + public + "/ips", "/networks/" + blue + "/ips", "/networks/" + red + "/ips", "/networks/" + under + "/ips", "/networks/" + sixth + "/ips",
}

func clusterOf(t *testing.T, servers int, flags ...string) *bench.Cluster {
	t.Helper()
	return rig.Cluster(t, bench.Options{Program: rutter, Servers: servers, Flags: append([]string{"--log-level=warn", "--triton-admin", admin}, flags...)})
}

// filled makes the installation through a NAPI.
func filled(t *testing.T, napi string) {
	t.Helper()
	for _, step := range installation {
		if status, body := ask(t, step.method, napi+step.path, step.body); status != http.StatusOK {
			t.Fatalf("%s %s: got %d %s, want 200", step.method, step.path, status, body)
		}
	}
}

func ask(t *testing.T, method, url, body string) (int, []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, b
}

// answers are what a NAPI lists: each object on a line, sorted.
func answers(t *testing.T, napi string) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, path := range lists {
		status, body := ask(t, "GET", napi+path+"?consistent", "")
		var objects []map[string]any
		if err := json.Unmarshal(body, &objects); status != http.StatusOK || err != nil {
			t.Fatalf("GET %s: %d %v %s", path, status, err, body)
		}
		for _, o := range objects {
			line, err := json.Marshal(o) // sorts the names
			if err != nil {
				t.Fatal(err)
			}
			all[path] = append(all[path], string(line))
		}
		slices.Sort(all[path])
	}
	return all
}

func compareAnswers(t *testing.T, got, want map[string][]string) {
	t.Helper()
	for path := range want {
		for _, line := range want[path] {
			if !slices.Contains(got[path], line) {
				t.Errorf("GET %s lacks\n%s", path, line)
			}
		}
		for _, line := range got[path] {
			if !slices.Contains(want[path], line) {
				t.Errorf("GET %s has besides\n%s", path, line)
			}
		}
	}
}

// run runs the program against a cluster.
func run(t *testing.T, c *bench.Cluster, args ...string) (stdout string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, s := range c.Servers {
		args = append(args, "-s", s.URL)
	}
	cmd := exec.CommandContext(ctx, rutter, args...)
	var out, wrong bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &wrong
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	t.Logf("rutter %s: exit code %d\n%s%s", strings.Join(args, " "), cmd.ProcessState.ExitCode(), out.String(), wrong.String())
	return out.String(), cmd.ProcessState.ExitCode()
}

// head is the seq of the newest entry.
func head(t *testing.T, c *bench.Cluster) string {
	t.Helper()
	s, err := c.Client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.Head.Seq.String()
}
