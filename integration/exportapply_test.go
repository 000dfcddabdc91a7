package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// everyDeclared has objects of the kinds that refer to others, and fields that the servers
// fill in.
const everyDeclared = appliedGround + `---
kind: nic_tag
name: external
---
kind: network
name: red
labels: {set: web}
spec: {nic_tag: overlay, vlan_id: 3, subnet: 10.2.0.0/24, owner_uuids: [7b000000-0000-4000-8000-000000000001], fabric: true, vnet_id: 10, routes: {10.9.0.0/16: 10.2.0.9}}
---
kind: network
name: outside
spec: {nic_tag: external, vlan_id: 9, subnet: "fd00:9::/64", provision_start_ip: "fd00:9::5", provision_end_ip: "fd00:9::ff"}
---
kind: network
name: front
spec: {nic_tag: external, vlan_id: 8, subnet: 192.0.2.0/24, gateway: 192.0.2.1}
---
kind: network_pool
name: ins
spec: {networks: [front]}
---
kind: fabric_vlan
name: reds
spec: {owner_uuid: 7b000000-0000-4000-8000-000000000001, vlan_id: 3, description: "a: b # no comment"}
---
kind: router
name: middle
spec: {owner_uuid: 7b000000-0000-4000-8000-000000000001, networks: [blue, red]}
---
kind: ip
spec: {network: front, ip: 192.0.2.77, reserved: true}
---
kind: nic
labels: {set: web, "tier/a.b": "x y"}
spec: {vm: web, network: red, allowed_ips: [10.2.0.8, 10.2.0.7]}
---
kind: nic
spec: {vm: web, network: ins}
---
kind: setting
name: fabric.mtu
spec: {value: refuse}
`

// What one cluster exports, a fresh one becomes by an apply: its export has the same bytes,
// in a file and in a folder, and a plan of it has nothing to do in either cluster. In the
// second one the receipt takes all of it back.
func TestExportAppliedElsewhere(t *testing.T) {
	t.Parallel()
	from, to := startCluster(t), startCluster(t)
	run := func(c *cluster, args ...string) string {
		t.Helper()
		out, err := command(t, append(args, c.servers()...)...)
		if err != nil {
			t.Fatalf("rutter %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	run(from, "apply", "-f", documentsIn(t, everyDeclared+appliedNICs(20)), "--yes")
	dir := t.TempDir()
	first, folder := filepath.Join(dir, "first.yaml"), filepath.Join(dir, "cloud")+"/"
	run(from, "export", "-f", first)
	run(from, "export", "-f", folder)
	empty := run(to, "export")
	applied := run(to, "apply", "-f", folder, "--yes")
	want, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	if got := run(to, "export"); got != string(want) {
		t.Errorf("the second cluster exports\n%s\nthe first one\n%s", got, want)
	}
	for _, text := range []string{"kind: router", "kind: fabric_vlan", "kind: ip", "kind: network_pool", "kind: setting"} {
		if !strings.Contains(string(want), text) {
			t.Errorf("the export has no %s:\n%s", text, want)
		}
	}
	for _, c := range []*cluster{from, to} {
		if out := run(c, "plan", "-f", first, "--detailed-exitcode"); !strings.HasSuffix(out, "nothing to do\n") {
			t.Errorf("a plan of the export: %s", out)
		}
	}
	if out := run(to, "export", "--label", "set=web", "--kind", "nic"); strings.Count(out, "kind: ") != 1 {
		t.Errorf("one NIC has the label:\n%s", out)
	}
	// The command of the last line, as it stands there.
	lines := strings.Split(strings.TrimSpace(applied), "\n")
	_, back, found := strings.Cut(lines[len(lines)-1], "to take it back: rutter ")
	if !found {
		t.Fatalf("no receipt: %s", lines[len(lines)-1])
	}
	if out, err := command(t, append(strings.Fields(back), "--yes")...); err != nil {
		t.Fatalf("rutter %s: %v\n%s", back, err, out)
	}
	if got := run(to, "export"); got != empty {
		t.Errorf("taken back, the second cluster has\n%s\nbefore it had\n%s", got, empty)
	}
}
