package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

// ask sends a server a request about a VMM, and returns its status and the VMM
// that it says results.
func (w *vmWorld) ask(s *bench.Server, method, path, body string) (status int, vmm map[string]any) {
	w.t.Helper()
	q, err := http.NewRequestWithContext(w.t.Context(), method, s.URL+path, bytes.NewReader([]byte(body)))
	if err != nil {
		w.t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	var out struct {
		VMM map[string]any `json:"vmm"`
	}
	if err := json.Unmarshal(b, &out); err != nil {
		w.t.Fatalf("%s %s: %d %s", method, path, answer.StatusCode, b)
	}
	if answer.StatusCode != http.StatusOK {
		w.t.Logf("%s %s at %s: %d %s", method, path, s.ID, answer.StatusCode, b)
	}
	return answer.StatusCode, out.VMM
}

// anyServer reboots a VM through each server, whichever its node is connected
// to; what results is in the answer, and in the log of the server that was asked.
func (w *vmWorld) anyServer(n *vmNode, vm log.UUID) {
	w.t.Helper()
	vmm := w.active(vm)
	for _, s := range w.c.Servers {
		before := n.pid(vm)
		status, got := w.ask(s, http.MethodPut, "/vmms/"+vmm+"/state", `{"state":{"type":"reboot"}}`)
		if status != http.StatusOK || got["state"] != "rebooting" {
			w.t.Fatalf("reboot through %s: %d %v", s.ID, status, got)
		}
		if state := w.field(s, "/vmms/"+vmm, "state"); state != "rebooting" && state != "running" {
			w.t.Errorf("%s has it %s when it has answered", s.ID, state)
		}
		w.until("it runs again, as another process", func() bool {
			return w.field(s, "/vmms/"+vmm, "state") == "running" && n.pid(vm) != before
		})
	}
	if status, _ := w.ask(w.c.Servers[0], http.MethodPut, "/vmms/"+vmm+"/state", `{"state":{"type":"fly"}}`); status != http.StatusBadRequest {
		w.t.Errorf("a state that there is not: %d", status)
	}
	if status, _ := w.ask(w.c.Servers[1], http.MethodPut, "/vmms/"+client.NewChangeID().String()+"/state", `{"state":{"type":"running"}}`); status != http.StatusNotFound {
		w.t.Errorf("a VMM that there is not: %d", status)
	}
}

// migrates makes a VMM the target of a migration, by word of two servers: both
// are in the log, and complete when it runs.
func (w *vmWorld) migrates(n *vmNode) {
	w.t.Helper()
	vm := n.plain("mig0")
	vmm, migration := client.NewChangeID(), client.NewChangeID()
	path := "/vmms/" + vmm.String()
	status, got := w.ask(w.c.Servers[0], http.MethodPost, path+"/register", fmt.Sprintf(`{"instance_id":%q,"sled_id":%q}`, vm, n.cn))
	if status != http.StatusOK || got["state"] != "starting" {
		w.t.Fatalf("register: %d %v", status, got)
	}
	status, got = w.ask(w.c.Servers[1], http.MethodPut, path+"/state", fmt.Sprintf(`{"state":{"type":"migration_target","value":{"migration_id":%q}}}`, migration))
	if status != http.StatusOK || got["state"] != "migrating" {
		w.t.Fatalf("migration target: %d %v", status, got)
	}
	// Another server than that which answered may have it a moment later.
	w.until("the migration is pending", func() bool { return w.migration(migration) == "pending" })
	if status, _ = w.ask(w.c.Servers[2], http.MethodPut, path+"/state", `{"state":{"type":"running"}}`); status != http.StatusOK {
		w.t.Fatalf("running: %d", status)
	}
	w.until("the migration is complete, and the VMM runs", func() bool {
		return w.migration(migration) == "completed" && w.value(path, "state") == "running"
	})
	if status, got = w.ask(w.c.Servers[0], http.MethodPost, path+"/unregister", ""); status != http.StatusOK || got["state"] != "destroyed" {
		w.t.Fatalf("unregister: %d %v", status, got)
	}
	w.until("its process has ended", func() bool {
		_, err := os.Stat(filepath.Join(n.dir, "run", vm.String()+".pid"))
		return errors.Is(err, os.ErrNotExist)
	})
}

// migration is the state of a migration's target as the log has it last.
func (w *vmWorld) migration(id log.UUID) (state string) {
	w.t.Helper()
	for line, err := range w.c.Client.Log(w.t.Context(), client.LogQuery{Query: map[string][]string{"kind": {"migration"}, "object": {id.String()}}}) {
		if err != nil {
			w.t.Fatal(err)
		}
		if m, ok := line.Event.Object.(*log.Migration); ok {
			state = m.TargetState
		}
	}
	return state
}

// plain makes a VM without NICs, which is not started.
func (n *vmNode) plain(alias string, more ...string) log.UUID {
	n.t.Helper()
	out := n.must(append([]string{"vm", "create", "alias=" + alias, "owner_uuid=" + n.owner.String(), "-o", "json"}, more...)...)
	var done struct{ UUID log.UUID }
	if err := json.Unmarshal([]byte(out), &done); err != nil || done.UUID.IsZero() {
		n.t.Fatalf("vm create said %s (%v)", out, err)
	}
	return done.UUID
}

// adminWay: a node whose agent has no connection with any server is asked at its
// address on the admin network, by every server.
func (w *vmWorld) adminWay() {
	w.t.Helper()
	n := w.newNode(3)
	server, node := netip.MustParsePrefix("198.51.100.254/24"), netip.MustParsePrefix("198.51.100.3/24")
	if err := errors.Join(netlab.AddAddress("underlay", server), n.ns.Do(func() error { return netlab.AddAddress("e0", node) })); err != nil {
		w.t.Fatal(err)
	}
	create := func(set string, o log.Object) log.Op {
		return log.Op{Action: log.Create, Kind: o.Kind(), Set: strings.Fields(set), Object: o}
	}
	network := client.NewChangeID()
	if _, err := w.c.Client.Submit(w.t.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{
		create("mtu name", &log.NICTag{Name: "admin", MTU: 1500}),
		create("mtu name nic_tag provision_end_ip provision_start_ip subnet uuid", &log.Network{UUID: network, Name: "admin", NICTag: "admin", MTU: 1500, Subnet: node.Masked(), ProvisionStart: netip.MustParseAddr("198.51.100.1"), ProvisionEnd: netip.MustParseAddr("198.51.100.250")}),
		create("hostname uuid", &log.Server{UUID: n.cn, Hostname: "cn3"}),
		create("belongs_to_type belongs_to_uuid cn_uuid ip mac network_uuid owner_uuid", &log.NIC{MAC: log.MAC{0, 0, 0x5e, 0, 0x53, 0x13}, BelongsToType: "server", BelongsToUUID: n.cn, CNUUID: n.cn, OwnerUUID: w.owner, NetworkUUID: network, IP: node.Addr()}),
	}}); err != nil {
		w.t.Fatal(err)
	}
	// No server answers at the address that the agent has of its servers.
	n.startAgentWith("--servers", "http://192.0.2.253:7420", "--cn-api", node.Addr().String()+":5309", "--insecure")
	vm := n.plain("far0")
	vmm := client.NewChangeID()
	path := "/vmms/" + vmm.String()
	if status, got := w.ask(w.c.Servers[0], http.MethodPost, path+"/register", fmt.Sprintf(`{"instance_id":%q,"sled_id":%q}`, vm, n.cn)); status != http.StatusOK || got["state"] != "starting" {
		w.t.Fatalf("register: %d %v", status, got)
	}
	if status, _ := w.ask(w.c.Servers[1], http.MethodPut, path+"/state", `{"state":{"type":"running"}}`); status != http.StatusOK {
		w.t.Fatalf("running: %d", status)
	}
	w.until("its process runs", func() bool {
		_, err := os.Stat(filepath.Join(n.dir, "run", vm.String()+".pid"))
		return err == nil
	})
	status, got := w.ask(w.c.Servers[2], http.MethodPut, path+"/state", `{"state":{"type":"stopped"}}`)
	if status != http.StatusOK || got["state"] != "stopping" {
		w.t.Fatalf("stopped: %d %v", status, got)
	}
	// After a ring of any client, the server pulls the end the same way, and
	// acknowledges it.
	w.until("its end is in the log", func() bool {
		q, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.c.Servers[0].URL+path+"/doorbell", nil)
		if err != nil {
			w.t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			w.t.Fatal(err)
		}
		answer.Body.Close()
		return w.value(path, "state") == "destroyed"
	})
	w.until("the node has forgotten it", func() bool {
		kept, err := filepath.Glob(filepath.Join(n.dir, "agent", "vmms", "*.json"))
		return err == nil && len(kept) == 0
	})
	n.stopAgent()
	if status, _ := w.ask(w.c.Servers[0], http.MethodPut, path+"/state", `{"state":{"type":"running"}}`); status != http.StatusGatewayTimeout {
		w.t.Errorf("a node that is off: %d, want 504", status)
	}
}

// follows: an agent takes the VMs of its node from another vminfod, here ours.
func (w *vmWorld) follows() {
	w.t.Helper()
	n := w.newNode(4)
	if _, err := w.c.Client.Submit(w.t.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{{Action: log.Create, Kind: log.KindServer, Set: []string{"hostname", "uuid"}, Object: &log.Server{UUID: n.cn, Hostname: "cn4"}}}}); err != nil {
		w.t.Fatal(err)
	}
	serve := func() *exec.Cmd {
		cmd := n.command("vminfo", "serve")
		if err := n.ns.Do(cmd.Start); err != nil {
			w.t.Fatal(err)
		}
		return cmd
	}
	vminfod := serve()
	w.t.Cleanup(func() {
		_ = vminfod.Process.Signal(syscall.SIGTERM)
		_ = vminfod.Wait() // the test asks what it left, not how it ended
	})
	n.startAgentWith("--manifests", "off", "--follow-vminfod", "127.0.0.1:9090", "--vminfod", "off", "--servers", strings.Join(w.c.Client.Servers(), ","))
	vm := n.plain("other0", "--agent", "off")
	other := n.plain("other1", "--agent", "off")
	w.visibleEverywhere(vm, "stopped")
	n.must("vm", "start", vm.String(), "--agent", "off", "--wait=cluster")
	w.visibleEverywhere(vm, "running")
	if err := syscall.Kill(n.pid(vm), syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
	w.visibleEverywhere(vm, "stopped")
	// While the other is away nothing is taken for gone; what went meanwhile is.
	_ = vminfod.Process.Signal(syscall.SIGKILL)
	_ = vminfod.Wait()
	if err := os.Remove(filepath.Join(n.dir, "vms", other.String()+".json")); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // nothing must happen
	if got := w.value("/vms/"+other.String(), "state"); got != "stopped" {
		w.t.Errorf("while the vminfod is away the log has its VM %s", got)
	}
	vminfod = serve()
	w.until("what went is gone from the log", func() bool {
		return strings.Contains(w.value("/vms/"+other.String(), "state"), "vm not found")
	})
	w.visibleEverywhere(vm, "stopped")
}

// saysWhatIsWrong: an init that cannot run, and a VM that has a second manifest.
func (n *vmNode) saysWhatIsWrong() {
	n.t.Helper()
	root := filepath.Join(n.dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		n.t.Fatal(err)
	}
	if out, err := n.rutter("vm", "create", "alias=bad1", "owner_uuid="+n.owner.String(), `init=["/sbin/init"]`, "--start"); err == nil || !strings.Contains(out, `"root": "/var/lib/rutter-vms/`) {
		n.t.Errorf("an init without a root: %v\n%s", err, out)
	}
	out, err := n.rutter("vm", "create", "alias=bad0", "owner_uuid="+n.owner.String(), "root="+root, `init=["/nowhere/init"]`, "--start")
	if err == nil || !strings.Contains(out, "is created, and does not run") || !strings.Contains(out, "/nowhere/init: there is no such file") {
		n.t.Errorf("an init that is not there: %v\n%s", err, out)
	}
	vm := n.plain("twice0")
	name := filepath.Join(n.dir, "vms", "copy.json")
	b, err := os.ReadFile(filepath.Join(n.dir, "vms", vm.String()+".json"))
	if err == nil {
		err = os.WriteFile(name, b, 0o600)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.until("the copy is put aside", func() bool { return strings.Contains(n.must("vminfo", "status", "-j"), "copy.json") })
	if out := n.must("vm", "delete", vm.String()); !strings.Contains(out, "copy.json stood aside") {
		n.t.Errorf("a VM with a second manifest is deleted:\n%s", out)
	}
	if err := os.Remove(name); err != nil {
		n.t.Fatal(err)
	}
	// A wait that does not come to its end is an error that says so.
	if out, err := n.rutter("vm", "create", "alias=late0", "owner_uuid="+n.owner.String(), "--wait=cluster", "--timeout", "1s", "--server", "http://192.0.2.253:7420"); err == nil || !strings.Contains(out, "is created; but") {
		n.t.Errorf("a cluster that does not answer: %v\n%s", err, out)
	}
}
