package cni

import (
	"cmp"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

// TestContainersOfTwoNodes: containers of two nodes reach each other as soon as ADD has
// returned, and keep on, whatever of ours ends and begins again; each command may be repeated.
func TestContainersOfTwoNodes(t *testing.T) {
	t.Parallel()
	if !enter(t) {
		return
	}
	w := newWorld(t)
	first, second := w.nodes[0], w.nodes[1]
	for _, n := range w.nodes {
		n.conf("web", "")
		n.conf("db", "")
	}
	a, b := first.container("a"), second.container("b")
	added := must[result](t)(first.tool("add", "web", a))
	other := must[result](t)(second.tool("add", "web", b))
	ping := func(t *testing.T) {
		t.Helper()
		if _, err := a.Ping(other.ip(t), 56, patience); err != nil {
			t.Fatalf("ping of %s: %v", other.ip(t), err)
		}
	}
	ping(t) // the first packet

	steps := []struct {
		name string
		run  func(*testing.T)
	}{
		{"the result is what the kernel has", func(t *testing.T) { compareResult(t, added, a) }},
		{"ADD again", func(t *testing.T) {
			if again := must[result](t)(first.tool("add", "web", a)); !reflect.DeepEqual(again, added) {
				t.Errorf("got %+v, want %+v", again, added)
			}
		}},
		{"CHECK", func(t *testing.T) { must[result](t)(first.tool("check", "web", a)) }},
		{"a network that is not open", func(t *testing.T) { closed(t, first) }},
		{"two networks", func(t *testing.T) { twoNetworks(t, first, a) }},
		{"the agent crashes", func(t *testing.T) { crashAgent(t, first, ping) }},
		{"the servers are down", func(t *testing.T) { serversDown(t, w, a, b, ping) }},
		{"a namespace of a process", func(t *testing.T) { processNamespace(t, first) }},
		{"plugins after this one", func(t *testing.T) { chained(t, first) }},
		{"GC", func(t *testing.T) { collect(t, first) }},
	}
	for _, s := range steps {
		if !t.Run(s.name, s.run) {
			t.FailNow()
		}
	}
	ping(t)
	must[result](t)(first.tool("del", "web", a))
	must[result](t)(second.tool("del", "web", b))
	for _, n := range w.nodes {
		n.none()
	}
}

// none waits until the log has no NIC of a container of the node.
func (n *node) none() {
	n.w.t.Helper()
	n.until("the NICs of containers in the log", func() error {
		macs, err := n.macs()
		if err == nil && len(macs) > 0 {
			err = fmt.Errorf("there are %v", macs)
		}
		return err
	})
}

// compareResult compares the result of ADD with what the namespace has.
func compareResult(t *testing.T, r result, c netlab.Namespace) {
	var text string
	for _, args := range [][]string{{"-o", "link", "show", "eth0"}, {"-o", "-4", "addr", "show", "eth0"}, {"route"}} {
		err := c.Do(func() error {
			out, err := exec.Command("ip", args...).CombinedOutput()
			text += string(out)
			return err
		})
		if err != nil {
			t.Fatal(err, text)
		}
	}
	if len(r.Interfaces) != 2 || r.Interfaces[1].Name != "eth0" || r.Interfaces[1].Sandbox != c.Path() || r.Interfaces[1].MTU != 1400 || r.Interfaces[0].Sandbox != "" {
		t.Errorf("interfaces: got %+v, want the node's end and eth0 in %s", r.Interfaces, c.Path())
	}
	wants := []string{r.Interfaces[1].Mac, "mtu 1400", r.IPs[0].Address}
	for _, route := range r.Routes {
		wants = append(wants, strings.Replace(route.Dst, "0.0.0.0/0", "default", 1)+" via "+route.GW)
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("the kernel has no %q:\n%s", want, text)
		}
	}
	if len(r.Routes) != 2 || r.IPs[0].Gateway != "10.0.0.1" || !reflect.DeepEqual(r.DNS.Nameservers, []string{"10.0.0.2"}) {
		t.Errorf("got %+v, want two routes, gateway 10.0.0.1 and resolver 10.0.0.2", r)
	}
}

// closed has ADD refused on a network that operators have not opened to nodes, with the command
// that opens it.
func closed(t *testing.T, n *node) {
	id := networks["db"]
	opens := func(to string) {
		op := log.Op{Action: log.Update, Kind: log.KindNetwork, ID: id.String(), Set: []string{"self_provision"}, Object: &log.Network{UUID: id, SelfProvision: to}}
		if _, err := n.w.cluster.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{op}}); err != nil {
			t.Fatal(err)
		}
	}
	opens(log.SelfProvisionOff)
	early := n.container("early")
	if _, err := n.tool("add", "db", early); err == nil || !strings.Contains(err.Error(), "rutter network update "+id.String()+" self_provision=any") {
		t.Errorf("a network that is not open: got %v, want the command that opens it", err)
	}
	must[result](t)(n.tool("del", "db", early))
	opens(log.SelfProvisionAny)
}

// twoNetworks gives a container a second interface, with an address of its choice, and takes
// it away again.
func twoNetworks(t *testing.T, n *node, c netlab.Namespace) {
	r := must[result](t)(n.tool("add", "db", c, "CNI_IFNAME=eth1", `CAP_ARGS={"ips": ["10.1.0.77/24"], "mac": "02:00:00:00:00:77"}`))
	if r.ip(t) != netip.MustParseAddr("10.1.0.77") || r.Interfaces[1].Mac != "02:00:00:00:00:77" {
		t.Errorf("got %+v, want what was asked for", r)
	}
	if macs := must[[]string](t)(n.macs()); len(macs) != 2 {
		t.Errorf("the log has %v, want two NICs", macs)
	}
	must[result](t)(n.tool("check", "db", c, "CNI_IFNAME=eth1"))
	for range 2 {
		must[result](t)(n.tool("del", "db", c, "CNI_IFNAME=eth1"))
	}
	must[result](t)(n.tool("check", "web", c))
}

// crashAgent kills the agent. Packets flow on, and an ADD begun meanwhile waits for it.
func crashAgent(t *testing.T, n *node, ping func(*testing.T)) {
	if err := n.agent.Stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ping(t)
	if _, err := n.plugin("STATUS", n.conf("web", ""), nil); err == nil || !strings.Contains(err.Error(), `"code": 51`) {
		t.Errorf("STATUS without an agent: got %v, want code 51", err)
	}
	c := n.container("late")
	ended := make(chan error, 1)
	go func() {
		_, err := n.tool("add", "web", c)
		ended <- err
	}()
	n.start()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	ping(t)
	must[result](t)(n.tool("check", "web", c))
	must[result](t)(n.tool("del", "web", c))
}

// serversDown ends the server: an ADD fails in time with the reason, one that was killed makes
// one NIC in the end, a DEL succeeds and reaches the log when there is a server again.
func serversDown(t *testing.T, w *world, a, b netlab.Namespace, ping func(*testing.T)) {
	first, second := w.nodes[0], w.nodes[1]
	gone := second.container("gone")
	must[result](t)(second.tool("add", "web", gone))
	server := w.cluster.Servers[0]
	if err := server.Stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ping(t)
	first.until("STATUS without servers", func() error {
		if _, err := first.plugin("STATUS", first.conf("web", ""), nil); err == nil || !strings.Contains(err.Error(), `"code": 50`) {
			return fmt.Errorf("got %v, want code 50", err)
		}
		return nil
	})
	must[result](t)(first.tool("add", "web", a)) // of what is known
	must[result](t)(second.tool("del", "web", gone))

	c := first.container("c")
	first.conf("web", `, "timeout": "1s"`)
	began := time.Now()
	if _, err := first.tool("add", "web", c); err == nil || !strings.Contains(err.Error(), "no server answer") || time.Since(began) > patience {
		t.Errorf("ADD without servers: got %v after %s, want the reason in time", err, time.Since(began))
	}
	ctx, kill := context.WithTimeout(t.Context(), time.Second)
	defer kill()
	killed, env := first.conf("web", ""), []string{"CNI_CONTAINERID=killed", "CNI_IFNAME=eth0", "CNI_NETNS=" + first.container("killed").Path()}
	_, _ = first.run(ctx, append(env, "CNI_COMMAND=ADD"), killed, filepath.Join(first.dir, "bin", "rutter"))

	if err := errors.Join(server.Start(), w.cluster.AwaitReady(t.Context(), server)); err != nil {
		t.Fatal(err)
	}
	second.until("the NIC of a container that was deleted without servers", func() error {
		macs, err := second.macs()
		if err == nil && len(macs) != 1 {
			err = fmt.Errorf("the log has %v, want that of b", macs)
		}
		return err
	})
	must[result](t)(second.tool("check", "web", b))
	must[result](t)(first.tool("del", "web", c)) // as runtimes do after an ADD that failed
	must[string](t)(first.plugin("ADD", killed, env))
	if macs := must[[]string](t)(first.macs()); len(macs) != 2 {
		t.Errorf("after an ADD that was killed, and another: the log has %v, want two NICs", macs)
	}
	must[string](t)(first.plugin("DEL", killed, env))
	first.until("the NIC of the container", func() error {
		macs, err := first.macs()
		if err == nil && len(macs) != 1 {
			err = fmt.Errorf("the log has %v, want that of a", macs)
		}
		return err
	})
}

// processNamespace gives a NIC to a container whose namespace has no name.
func processNamespace(t *testing.T, n *node) {
	anonymous := n.w.space(n.dir, "anonymous")
	process := exec.Command("sleep", "1000")
	if err := anonymous.Do(process.Start); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = process.Process.Kill(); _ = process.Wait() }()
	c := netlab.Namespace{Dir: fmt.Sprintf("/proc/%d/ns", process.Process.Pid), Name: "net"}
	r := must[result](t)(n.tool("add", "web", c))
	if err := anonymous.Delete(); err != nil {
		t.Fatal(err)
	}
	must[result](t)(n.tool("check", "web", c))
	if r.Interfaces[1].Sandbox != c.Path() {
		t.Errorf("got %+v, want sandbox %s", r.Interfaces, c.Path())
	}
	_, _ = process.Process.Kill(), process.Wait() // and then the runtime deletes
	must[result](t)(n.tool("del", "web", c))
	if left, err := filepath.Glob(filepath.Join(n.zones, "rutter-cni-*")); err != nil || len(left) > 0 {
		t.Errorf("names of namespaces that are left: %v, %v", left, err)
	}
}

// chained has other plugins after this one in the list: they get its result, find the node's
// end of the container's link, and are undone by DEL.
func chained(t *testing.T, n *node) {
	for name, conf := range map[string]string{
		"portmap":   `{"type": "portmap", "capabilities": {"portMappings": true}}`,
		"bandwidth": `{"type": "bandwidth", "ingressRate": 1000000, "ingressBurst": 1000000}`,
		"firewall":  `{"type": "firewall", "backend": "iptables"}`,
		"tuning":    `{"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.arp_announce": "2"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(cmp.Or(os.Getenv("CNI_PATH"), pluginFolder), name)); err != nil {
				t.Skipf("no plugin %s here: %v; Debian has it in containernetworking-plugins (scripts/debian-packages.txt)", name, err)
			}
			n.conf("web", "", conf)
			defer n.conf("web", "")
			c := n.container("chain-" + name)
			env := `CAP_ARGS={"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}`
			r := must[result](t)(n.tool("add", "web", c, env))
			if len(r.Interfaces) < 2 || r.Interfaces[1].Name != "eth0" || len(r.IPs) != 1 {
				t.Errorf("got %+v, want the result of this plugin in it", r)
			}
			if name != "portmap" { // version 1.1 of portmap looks for rules of IPv6, also without an address of it
				must[result](t)(n.tool("check", "web", c, env))
			}
			must[result](t)(n.tool("del", "web", c, env))
		})
	}
}

// collect forgets a container, of which GC removes the NIC.
func collect(t *testing.T, n *node) {
	c := n.container("forgotten")
	conf := n.conf("web", "")
	for _, id := range []string{"kept", "forgotten"} {
		must[string](t)(n.plugin("ADD", conf, []string{"CNI_CONTAINERID=" + id, "CNI_IFNAME=" + id[:4], "CNI_NETNS=" + n.container("gc-"+id).Path()}))
	}
	must[result](t)(n.tool("add", "db", c, "CNI_IFNAME=eth1"))
	before := must[[]string](t)(n.macs())
	must[string](t)(n.plugin("GC", strings.TrimSuffix(conf, "}")+fmt.Sprintf(`, "cni.dev/valid-attachments": [{"containerID": "kept", "ifname": "kept"}, {"containerID": %q, "ifname": "eth0"}]}`, toolID(filepath.Join(n.zones, "a"))), nil))
	n.until("GC", func() error {
		after, err := n.macs()
		if err == nil && len(after) != len(before)-1 {
			err = fmt.Errorf("the log has %v, and had %v", after, before)
		}
		return err
	})
	must[string](t)(n.plugin("DEL", conf, []string{"CNI_CONTAINERID=kept", "CNI_IFNAME=kept"}))
	must[result](t)(n.tool("del", "db", c, "CNI_IFNAME=eth1"))
}

// toolID is the container's id that cnitool makes of a namespace's path.
func toolID(path string) string {
	sum := sha512.Sum512([]byte(path))
	return fmt.Sprintf("cnitool-%x", sum[:10])
}
