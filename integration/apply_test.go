package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rutter/log"
)

// appliedGround is a network with a VM, as documents.
const appliedGround = `kind: nic_tag
name: overlay
spec: {mtu: 9000}
---
kind: server
name: cn1
uuid: 7b000000-0000-4000-8000-000000000011
---
kind: network
name: blue
spec: {nic_tag: overlay, vlan_id: 2, subnet: 10.0.0.0/16, gateway: 10.0.0.1, owner_uuids: [7b000000-0000-4000-8000-000000000001], fabric: true, vnet_id: 10}
---
kind: vm
name: web
uuid: 7b000000-0000-4000-8000-000000000021
spec: {owner_uuid: 7b000000-0000-4000-8000-000000000001, server: cn1}
`

// appliedNICs are documents of n NICs.
func appliedNICs(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "---\nkind: nic\nspec: {mac: \"02:00:00:00:%02x:%02x\", vm: web, network: blue, owner_uuid: 7b000000-0000-4000-8000-000000000001, ip: 10.0.%d.%d}\n", i>>8, i&255, 1+i/200, 1+i%200)
	}
	return b.String()
}

// documentsIn writes documents to a file of a new folder, whose name it returns.
func documentsIn(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// servers are the flags that name the servers of a cluster.
func (c *cluster) servers() (flags []string) {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, s.URL)
	}
	return []string{"-s", strings.Join(urls, ",")}
}

// exitOf is the exit code of a command.
func exitOf(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// The leader is killed while 3,000 objects are applied. However that ends, a second run
// goes on, and then each object is there, was made once, and there is nothing to do.
func TestLeaderKilledWhileApplying(t *testing.T) {
	t.Parallel()
	const n = 3000
	c := startCluster(t)
	dir := documentsIn(t, appliedGround+appliedNICs(n))
	apply := append([]string{"apply", "-f", dir, "--yes", "-o", "ndjson"}, c.servers()...)
	type ended struct {
		out string
		err error
	}
	first := make(chan ended, 1)
	go func() {
		out, err := command(t, apply...)
		first <- ended{out, err}
	}()
	leader := c.leader()
	waitFor(t, "the first change", func() bool {
		status, err := c.Client.StatusOf(t.Context(), leader.URL)
		return err == nil && status.Objects["nic"] > 0
	})
	c.signal(leader, syscall.SIGKILL)
	is := <-first
	if code := exitOf(is.err); code != 0 && code != 1 && code != 4 {
		t.Errorf("the first run: exit code %d, %v", code, is.err)
	}
	t.Logf("the first run: %v", is.err)
	if out, err := command(t, apply...); err != nil {
		t.Fatalf("the second run: %v\n%.2000s", err, out)
	}
	c.start(leader)
	c.waitReady(leader)
	head := c.level()
	made := map[string]int{}
	for e, err := range c.Client.Entries(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		event, err := e.Event()
		if err != nil {
			t.Fatal(err)
		}
		if event.Action == log.Create && event.Kind == log.KindNIC {
			made[event.ID]++
		}
		if e.Seq == head {
			break
		}
	}
	for id, times := range made {
		if times != 1 {
			t.Errorf("NIC %s was made %d times", id, times)
		}
	}
	if len(made) != n {
		t.Errorf("%d NICs, want %d", len(made), n)
	}
	out, err := command(t, append([]string{"apply", "-f", dir, "--yes"}, c.servers()...)...)
	if after := c.level(); err != nil || !strings.HasSuffix(out, "nothing to do\n") || after != head {
		t.Errorf("a third run: %v, %d entries more\n%s", err, after-head, out)
	}
}

// The commands from a plan to a receipt, as a person and a program use them.
func TestPlanAndApply(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	run := func(args ...string) (string, int, string) {
		t.Helper()
		out, err := command(t, append(args, c.servers()...)...)
		if err == nil {
			return out, 0, ""
		}
		return out, exitOf(err), err.Error()
	}
	dir := documentsIn(t, appliedGround+appliedNICs(2))
	if out, code, text := run("plan", "-f", dir, "--detailed-exitcode"); code != 2 || !strings.HasSuffix(out, "plan: 6 to create\n") || !strings.Contains(out, "+ network ") {
		t.Fatalf("exit code %d, %s\n%s", code, text, out)
	}
	if _, code, text := run("apply", "-f", dir); code != 2 || !strings.Contains(text, "--yes") {
		t.Errorf("without a terminal and --yes: exit code %d, %s", code, text)
	}
	out, code, text := run("apply", "-f", dir, "--yes", "--wait=cluster")
	if code != 0 || !strings.Contains(out, "rutter log revert --from ") {
		t.Fatalf("exit code %d, %s\n%s", code, text, out)
	}
	for _, args := range [][]string{{"plan", "-f", dir, "--detailed-exitcode"}, {"apply", "-f", dir, "--yes"}} {
		if out, code, text := run(args...); code != 0 || out != "nothing to do\n" {
			t.Errorf("%s: exit code %d, %s\n%s", args[0], code, text, out)
		}
	}

	if out, code, text := run("export"); code != 0 {
		t.Errorf("export: %s", text)
	} else if plan, code, text := run("plan", "-f", documentsIn(t, out)); code != 0 || plan != "nothing to do\n" {
		t.Errorf("a plan of one's own export: exit code %d, %s\n%s", code, text, plan)
	}

	// A saved plan is written as it is, once, and not if another client was faster.
	wide := documentsIn(t, strings.ReplaceAll(appliedGround, "vnet_id: 10", "vnet_id: 10, mtu: 1400")+appliedNICs(3))
	saved := filepath.Join(t.TempDir(), "wide.plan")
	if out, code, text := run("plan", "-f", wide, "--out", saved); code != 0 || !strings.HasSuffix(out, "plan: 1 to create, 1 to update\n") {
		t.Fatalf("exit code %d, %s\n%s", code, text, out)
	}
	late := filepath.Join(t.TempDir(), "late.plan")
	if _, code, text := run("plan", "-f", wide, "--out", late); code != 0 {
		t.Fatal(text)
	}
	out, code, text = run("apply", saved, "--yes", "-o", "json")
	var done struct {
		Receipt struct{ First, Last, Events int }
	}
	if err := json.Unmarshal([]byte(out), &done); code != 0 || err != nil || done.Receipt.First == 0 || done.Receipt.Events != done.Receipt.Last-done.Receipt.First+1 {
		t.Fatalf("exit code %d, %s %v\n%s", code, text, err, out)
	}
	head := c.level()
	if out, code, text := run("apply", saved, "--yes"); code != 0 || !strings.Contains(out, "#"+fmt.Sprint(done.Receipt.First)) {
		t.Errorf("written twice: exit code %d, %s\n%s", code, text, out)
	}
	if after := c.level(); after != head {
		t.Errorf("%d entries more", after-head)
	}
	const first = "02:00:00:00:00:00"
	loose := documentsIn(t, strings.ReplaceAll(appliedGround, "vnet_id: 10", "vnet_id: 10, mtu: 1300")+strings.Replace(appliedNICs(1), "vm: web", "allow_ip_spoofing: true, vm: web", 1))
	if out, code, text := run("plan", "-f", loose, "--out", saved); code != 0 || !strings.HasSuffix(out, "plan: 2 to update\n") {
		t.Fatalf("exit code %d, %s\n%s", code, text, out)
	}
	if _, code, text := run("nic", "update", first, "allow_dhcp_spoofing=true"); code != 0 {
		t.Fatal(text)
	}
	head = c.level()
	_, code, text = run("apply", saved, "--yes")
	if after := c.level(); code != 3 || !strings.Contains(text, "nic "+first+" was changed meanwhile") || after != head {
		t.Errorf("a plan of another state: exit code %d, %d entries, %s", code, after-head, text)
	}
}

// Only what a set has is pruned, and most of it only if that is accepted. Names of others
// are shown as text.
func TestPrune(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	run := func(args ...string) (string, int, string) {
		t.Helper()
		out, err := command(t, append(args, c.servers()...)...)
		if err == nil {
			return out, 0, ""
		}
		return out, exitOf(err), err.Error()
	}
	tag := func(name, set string) string {
		return fmt.Sprintf("---\nkind: nic_tag\nname: %s\nlabels: {set: %s}\nspec: {mtu: 1500}\n", name, set)
	}
	mine := tag("a1", "web") + tag("a2", "web") + tag("a3", "web")
	hostile := "---\nkind: vm\nname: \"\\e[31mred\\nplan: nothing\"\nuuid: 7b000000-0000-4000-8000-000000000031\nspec: {owner_uuid: 7b000000-0000-4000-8000-000000000001}\n"
	out, code, text := run("plan", "-f", documentsIn(t, hostile))
	if strings.Contains(out+text, "\x1b") || strings.Contains(out+text, "\nplan: nothing") {
		t.Errorf("exit code %d: the name of a document is not escaped:\n%s\n%s", code, out, text)
	}
	if out, code, text := run("apply", "-f", documentsIn(t, mine+tag("b1", "db")), "--yes"); code != 0 {
		t.Fatalf("exit code %d, %s\n%s", code, text, out)
	}
	prune := []string{"--prune", "--set-label", "set=web", "--yes"}
	for _, c := range []struct {
		docs string
		args []string
		code int
		says string
	}{
		{mine, []string{"--prune", "--yes"}, 2, "--set-label"},
		{mine, []string{"--set-label", "set=web", "--yes"}, 2, "--prune"},
		{tag("a1", "web"), prune, 3, "more than half"},
		{"", prune, 3, "no document"},
	} {
		_, code, text := run(append([]string{"apply", "-f", documentsIn(t, c.docs)}, c.args...)...)
		if code != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%v of %q: exit code %d, %s", c.args, c.docs, code, text)
		}
	}
	if out, code, text := run(append([]string{"apply", "-f", documentsIn(t, tag("a1", "web")+tag("a2", "web"))}, prune...)...); code != 0 || !strings.Contains(out, "- nic_tag a3") || !strings.Contains(out, "prune: 1 of the 3 objects") {
		t.Errorf("exit code %d, %s\n%s", code, text, out)
	}
	if out, code, text := run(append([]string{"apply", "-f", documentsIn(t, ""), "--prune-most"}, prune...)...); code != 0 || !strings.Contains(out, "plan: 2 to delete") {
		t.Errorf("exit code %d, %s\n%s", code, text, out)
	}
	if out, _, _ := run("tag", "list"); !strings.Contains(out, "b1") || strings.Contains(out, "a1") {
		t.Errorf("left are:\n%s", out)
	}
}
