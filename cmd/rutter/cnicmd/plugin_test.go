package cnicmd

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"rutter/agent/link/plan"
	"rutter/agent/vmsource/registered"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

var write = flag.Bool("add", false, "write golden files that are missing")

// golden compares a text with a file, in which paths of the test have names.
func golden(t *testing.T, name, text string, paths ...string) {
	t.Helper()
	for i := 0; i+1 < len(paths); i += 2 {
		text = strings.ReplaceAll(text, paths[i], paths[i+1])
	}
	path := filepath.Join("testdata", name)
	want, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && *write {
		err, want = os.WriteFile(path, []byte(text), 0o644), []byte(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, text, want)
	}
}

// Every version has its own form of a result. The links are in a real kernel.
func TestAddInEachVersion(t *testing.T) {
	for _, version := range specVersions {
		t.Run(version, func(t *testing.T) {
			dir := t.TempDir()
			ns := container(t, dir)
			s := newStandIn(t)
			s.links(ns)
			conf := s.conf(version, fmt.Sprintf(`"netns": %q, "dns": {"search": ["example.com"]}`, dir))
			out := ok(t, "ADD", conf, attachment(ns)...)
			golden(t, "add-"+version+".json", out, ns.Path(), "SANDBOX")
			if again := ok(t, "ADD", conf, attachment(ns)...); again != out {
				t.Errorf("the same ADD again: got %s, want %s", again, out)
			}
			if len(s.vms) != 1 || len(s.vms[vmOf(nodeUUID, "c1")].NICs) != 1 {
				t.Errorf("after two ADDs: got %v, want one NIC", s.vms)
			}
			golden(t, "put.txt", s.requests[1]+"\n")
			if version < "0.4.0" {
				return
			}
			previous := strings.TrimSuffix(conf, "}") + `, "prevResult": ` + out + "}"
			ok(t, "CHECK", previous, attachment(ns)...)
		})
	}
}

// A plugin before this one in a list has made an interface: it stays in the result.
func TestAddAfterAnotherPlugin(t *testing.T) {
	dir := t.TempDir()
	ns := container(t, dir)
	s := newStandIn(t)
	s.links(ns)
	out := ok(t, "ADD", s.conf("1.0.0", fmt.Sprintf(`"netns": %q, "prevResult": {"interfaces": [{"name": "lo", "sandbox": %q}], "ips": [{"address": "127.0.0.1/8", "interface": 0}]}`, dir, ns.Path())), attachment(ns)...)
	golden(t, "add-after.json", out, ns.Path(), "SANDBOX")
}

// What a runtime asks for reaches the agent, by each way that CNI has.
func TestAddAsksFor(t *testing.T) {
	for name, test := range map[string]struct{ more, args, mac, ip, alias string }{
		"capabilities": {`"runtimeConfig": {"ips": ["10.0.0.77/8"], "mac": "90:b8:d0:00:00:77"}`, "IgnoreUnknown=1;IP=10.0.0.9;K8S_POD_NAME=web-0;K8S_POD_NAMESPACE=x;FOO=1", "90:b8:d0:00:00:77", "10.0.0.77", "web-0"},
		"arguments":    {`"args": {"cni": {"ips": ["10.0.0.78"]}}`, "", "", "10.0.0.78", "c1"},
		"CNI_ARGS":     {"", "IP=10.0.0.79;MAC=90b8d0000079", "90:b8:d0:00:00:79", "10.0.0.79", "c1"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ns := container(t, dir)
			s := newStandIn(t)
			s.links(ns)
			ok(t, "ADD", s.conf("1.1.0", fmt.Sprintf(`"netns": %q`, dir)+strings.TrimSuffix(", "+test.more, ", ")), attachment(ns, "CNI_ARGS="+test.args)...)
			vm := s.vms[vmOf(nodeUUID, "c1")]
			if vm.Alias != test.alias || vm.NICs[0].IPs[0].Addr().String() != test.ip || test.mac != "" && vm.NICs[0].MAC.String() != test.mac {
				t.Errorf("got %+v, want %+v", vm, test)
			}
		})
	}
}

// Each wrong input has the code that the specification gives it, and says what to do.
func TestErrors(t *testing.T) {
	s := newStandIn(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	fifo := filepath.Join(dir, "fifo")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	good := []string{"CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=" + file}
	var out strings.Builder
	for _, test := range []struct {
		name, command, input string
		env                  []string
	}{
		{"no container", "ADD", s.conf("1.1.0", ""), nil},
		{"odd container", "ADD", s.conf("1.1.0", ""), []string{"CNI_CONTAINERID=../x", "CNI_IFNAME=eth0", "CNI_NETNS=" + file}},
		{"long container", "ADD", s.conf("1.1.0", ""), []string{"CNI_CONTAINERID=" + strings.Repeat("a", 257), "CNI_IFNAME=eth0", "CNI_NETNS=" + file}},
		{"odd interface", "ADD", s.conf("1.1.0", ""), []string{"CNI_CONTAINERID=c1", "CNI_IFNAME=a/b", "CNI_NETNS=" + file}},
		{"no command of CNI", "MOVE", s.conf("1.1.0", ""), good},
		{"no input", "ADD", "", good},
		{"no JSON", "ADD", "{", good},
		{"a list", "ADD", "[]", good},
		{"no name", "ADD", `{"cniVersion": "1.1.0"}`, good},
		{"a version to come", "ADD", s.conf("9.0.0", ""), good},
		{"a version that is too old", "ADD", s.conf("0.2.0", ""), good},
		{"GC before it was", "GC", s.conf("1.0.0", ""), nil},
		{"CHECK before it was", "CHECK", s.conf("0.3.1", ""), good},
		{"STATUS before it was", "STATUS", s.conf("1.0.0", ""), nil},
		{"no network", "ADD", strings.Replace(s.conf("1.1.0", ""), `"n"`, `""`, 1), good},
		{"no owner", "ADD", strings.Replace(s.conf("1.1.0", ""), "owner_uuid", "owner", 1), good},
		{"no UUID", "ADD", strings.Replace(s.conf("1.1.0", ""), "930896af", "x", 1), good},
		{"ipam", "ADD", s.conf("1.1.0", `"ipam": {"type": "host-local"}`), good},
		{"ipMasq", "ADD", s.conf("1.1.0", `"ipMasq": true`), good},
		{"timeout", "ADD", s.conf("1.1.0", `"timeout": "soon"`), good},
		{"long timeout", "ADD", s.conf("1.1.0", `"timeout": "1h"`), good},
		{"mtu", "ADD", s.conf("1.1.0", `"mtu": 70000`), good},
		{"socket", "ADD", s.conf("1.1.0", `"socket": "agent"`), good},
		{"ip", "ADD", s.conf("1.1.0", `"runtimeConfig": {"ips": ["10.0.0"]}`), good},
		{"zone", "ADD", s.conf("1.1.0", `"runtimeConfig": {"ips": ["fe80::1%eth0"]}`), good},
		{"mac", "ADD", s.conf("1.1.0", `"runtimeConfig": {"mac": "90"}`), good},
		{"arguments", "ADD", s.conf("1.1.0", ""), append(good, "CNI_ARGS=FOO=1")},
		{"no pairs", "ADD", s.conf("1.1.0", ""), append(good, "CNI_ARGS=FOO")},
		{"prevResult", "ADD", s.conf("1.1.0", `"prevResult": {"ips": [{"address": "x"}]}`), good},
		{"no namespace", "ADD", s.conf("1.1.0", ""), good},
		{"a pipe", "ADD", s.conf("1.1.0", ""), []string{"CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=" + fifo}},
		{"another kind of namespace", "ADD", s.conf("1.1.0", ""), []string{"CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=/proc/self/ns/mnt"}},
		{"the node's own", "ADD", s.conf("1.1.0", ""), []string{"CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=/proc/self/ns/net"}},
		{"CHECK without a result", "CHECK", s.conf("1.1.0", ""), good},
		{"CHECK of another interface", "CHECK", s.conf("1.1.0", `"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "eth1", "sandbox": "/x"}]}`), good},
	} {
		e := call(t, test.command, test.input, test.env...).failed(t)
		fmt.Fprintf(&out, "%s: %d %s", test.name, e.Code, e.Msg)
		if e.Details != "" {
			fmt.Fprintf(&out, " (%s)", e.Details)
		}
		out.WriteString("\n")
	}
	golden(t, "errors.txt", out.String(), dir, "DIR")
	for _, r := range s.requests {
		if strings.HasPrefix(r, "PUT") {
			t.Errorf("an ADD that was refused has registered something: %s", r)
		}
	}
}

// The agent's answers have the codes by which runtimes decide whether to try again.
func TestCodesOfTheAgent(t *testing.T) {
	dir := t.TempDir()
	ns := container(t, dir)
	s := newStandIn(t)
	vm := &registered.VM{NICs: []registered.Attached{{Key: "web:eth0", State: registered.NICWaiting, Reason: "the namespace is not there"}}}
	for _, test := range []struct {
		code string
		want uint
	}{
		{registered.CodeInvalid, 7},
		{registered.CodeRefused, 100},
		{registered.CodeOther, 100},
		{registered.CodeTooMany, 11},
		{registered.CodeServers, 11},
		{registered.CodeWaiting, 11},
		{registered.CodeInternal, 999},
	} {
		s.set(func() { s.refusal = &registered.Error{Code: test.code, Message: "why", VM: vm} })
		e := call(t, "ADD", s.conf("1.1.0", fmt.Sprintf(`"netns": %q`, dir)), attachment(ns)...).failed(t)
		if e.Code != test.want || e.Msg != "why" || !strings.Contains(e.Details, "the namespace is not there") {
			t.Errorf("%s: got %+v, want code %d with the agent's reason", test.code, e, test.want)
		}
	}
}

// A command ends at its timeout, whatever the agent does.
func TestTimeout(t *testing.T) {
	s := newStandIn(t)
	s.set(func() { s.silent = true })
	for command, env := range map[string][]string{"ADD": {"CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=/x"}, "DEL": {"CNI_CONTAINERID=c1", "CNI_IFNAME=eth0"}, "STATUS": nil, "GC": nil} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			e := call(t, command, s.conf("1.1.0", `"timeout": "1s", "cni.dev/valid-attachments": []`), env...).failed(t)
			if took := time.Since(began); took > 30*time.Second || e.Code != 11 && e.Code != 51 {
				t.Errorf("got %+v after %s, want code 11 or 51 soon", e, took)
			}
		})
	}
}

// A runtime that sends no end of its input, and one that sends too much, are refused.
func TestInputIsBounded(t *testing.T) {
	s := newStandIn(t)
	e := call(t, "STATUS", s.conf("1.1.0", `"x": "`+strings.Repeat("a", maxInput)+`"`)).failed(t)
	if e.Code != 6 {
		t.Errorf("got %+v, want code 6", e)
	}
	read, open, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	defer read.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asPlugin+"=1", "CNI_COMMAND=VERSION")
	cmd.Stdin = read // VERSION needs no input, and does not wait for its end
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	golden(t, "version.json", out.String())
}

// STATUS tells a node that cannot serve ADD from one whose containers may be cut off.
func TestStatus(t *testing.T) {
	s := newStandIn(t)
	if out := ok(t, "STATUS", s.conf("1.1.0", "")); out != "" {
		t.Errorf("got %q, want no output", out)
	}
	s.set(func() { s.state = "waiting" })
	if e := call(t, "STATUS", s.conf("1.1.0", "")).failed(t); e.Code != 50 {
		t.Errorf("without servers: got %+v, want code 50", e)
	}
	if e := call(t, "STATUS", strings.Replace(s.conf("1.1.0", ""), s.socket, "/no/socket", 1)).failed(t); e.Code != 51 {
		t.Errorf("without an agent: got %+v, want code 51", e)
	}
}

// DEL of what is not there succeeds, and a container's VM goes with its last NIC.
func TestDel(t *testing.T) {
	dir := t.TempDir()
	ns := container(t, dir)
	s := newStandIn(t)
	s.links(ns)
	conf := s.conf("1.1.0", fmt.Sprintf(`"netns": %q`, dir))
	other := strings.Replace(conf, `"web"`, `"db"`, 1)
	ok(t, "ADD", conf, attachment(ns)...)
	ok(t, "ADD", other, attachment(ns, "CNI_IFNAME=eth1")...)
	id := vmOf(nodeUUID, "c1")
	if keys := keysOf(s.vms[id]); !slices.Equal(keys, []string{"web:eth0", "db:eth1"}) {
		t.Fatalf("two networks: got %v", keys)
	}
	ok(t, "DEL", conf, "CNI_CONTAINERID=c1", "CNI_IFNAME=eth7")
	ok(t, "DEL", conf, "CNI_CONTAINERID=c9", "CNI_IFNAME=eth0")
	if len(s.vms[id].NICs) != 2 {
		t.Errorf("DEL of others took a NIC: %v", s.vms[id])
	}
	for range 2 {
		ok(t, "DEL", conf, "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=")
	}
	if keys := keysOf(s.vms[id]); !slices.Equal(keys, []string{"db:eth1"}) {
		t.Errorf("after DEL: got %v", keys)
	}
	for range 2 {
		ok(t, "DEL", other, "CNI_CONTAINERID=c1", "CNI_IFNAME=eth1", "CNI_NETNS=/gone")
	}
	if len(s.vms) != 0 {
		t.Errorf("after the last DEL: got %v", s.vms)
	}
}

func keysOf(vm registered.VM) (keys []string) {
	for _, n := range vm.NICs {
		keys = append(keys, n.Key)
	}
	return keys
}

// GC removes what the runtime does not name, of its own configuration only.
func TestGC(t *testing.T) {
	s := newStandIn(t)
	vm := func(container string, keys ...string) log.UUID {
		vm := registered.VM{UUID: vmOf(nodeUUID, container)}
		for _, key := range keys {
			vm.NICs = append(vm.NICs, registered.Attached{Key: key})
		}
		s.vms[vm.UUID] = vm
		return vm.UUID
	}
	kept, part, gone, others := vm("kept", "web:eth0"), vm("part", "web:eth0", "web:eth1"), vm("gone", "web:eth0"), vm("others", "db:eth0")
	mixed := vm("mixed", "web:eth0", "web2:eth1")
	ok(t, "GC", s.conf("1.1.0", ""))
	if len(s.vms) != 5 {
		t.Errorf("GC without attachments removed something: %v", s.vms)
	}
	ok(t, "GC", s.conf("1.1.0", `"cni.dev/valid-attachments": [{"containerID": "kept", "ifname": "eth0"}, {"containerID": "part", "ifname": "eth1"}, {"containerID": "gone", "ifname": "eth3"}]`))
	for id, want := range map[log.UUID][]string{kept: {"web:eth0"}, part: {"web:eth1"}, gone: nil, others: {"db:eth0"}, mixed: {"web2:eth1"}} {
		if keys := keysOf(s.vms[id]); !slices.Equal(keys, want) {
			t.Errorf("%s: got %v, want %v", id, keys, want)
		}
	}
	ok(t, "GC", s.conf("1.1.0", `"cni.dev/valid-attachments": []`))
	if len(s.vms) != 2 {
		t.Errorf("GC of all: got %v, want the two with other configurations", s.vms)
	}
}

// CHECK finds what is missing in the log and in the kernel.
func TestCheckFinds(t *testing.T) {
	dir := t.TempDir()
	ns := container(t, dir)
	s := newStandIn(t)
	s.links(ns)
	conf := s.conf("1.1.0", fmt.Sprintf(`"netns": %q, "timeout": "1s"`, dir))
	out := ok(t, "ADD", conf, attachment(ns)...)
	previous := strings.TrimSuffix(conf, "}") + `, "prevResult": ` + out + "}"
	ip := func(args ...string) {
		t.Helper()
		if err := ns.Do(func() error { return exec.Command("ip", args...).Run() }); err != nil {
			t.Fatal(args, err)
		}
	}
	id := vmOf(nodeUUID, "c1")
	was := s.vms[id]
	address := was.NICs[0].IPs[0].String()
	for _, test := range []struct {
		name        string
		break_, fix func()
		want        string
	}{
		{"address", func() { ip("addr", "del", address, "dev", "eth0") }, func() {
			ip("addr", "add", address, "dev", "eth0")
			ip("route", "add", "10.9.0.0/16", "via", "10.0.0.2")
			ip("route", "add", "default", "via", "10.0.0.1")
		}, "has no address"},
		{"route", func() { ip("route", "del", "10.9.0.0/16") }, func() { ip("route", "add", "10.9.0.0/16", "via", "10.0.0.2") }, "has no route to 10.9.0.0/16"},
		{"mac", func() { ip("link", "set", "eth0", "address", "02:00:00:00:00:99") }, func() { ip("link", "set", "eth0", "address", was.NICs[0].MAC.String()) }, "has MAC 02:00:00:00:00:99"},
		{"mtu", func() { ip("link", "set", "eth0", "mtu", "1500") }, func() { ip("link", "set", "eth0", "mtu", "1400") }, "MTU of 1500"},
		{"name", func() {
			ip("link", "set", "eth0", "down")
			ip("link", "set", "eth0", "name", "eth5")
			ip("link", "set", "eth5", "up")
		}, func() { ip("link", "set", "eth5", "down"); ip("link", "set", "eth5", "name", "eth0") }, "is not in"},
		{"down", func() {}, func() {}, "is down"},
	} {
		test.break_()
		if e := call(t, "CHECK", previous, attachment(ns)...).failed(t); e.Code != codeDifferent || !strings.Contains(e.Msg, test.want) {
			t.Errorf("%s: got %+v, want %q", test.name, e, test.want)
		}
		test.fix()
	}
	ip("link", "set", "eth0", "up")
	ip("route", "add", "default", "via", "10.0.0.1")
	ip("route", "add", "10.9.0.0/16", "via", "10.0.0.2")
	ok(t, "CHECK", previous, attachment(ns)...)
	s.set(func() { delete(s.vms, id) })
	if e := call(t, "CHECK", previous, attachment(ns)...).failed(t); !strings.Contains(e.Msg, "has no VM at the agent") {
		t.Errorf("without a VM: got %+v", e)
	}
}

// An interface that the container has already is not taken over.
func TestAddOfAnInterfaceThatIsThere(t *testing.T) {
	dir := t.TempDir()
	ns := container(t, dir)
	s := newStandIn(t)
	if err := netlab.AddVeth("other", "eth0", ns, 1400); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlab.DeleteLink("other") })
	if e := call(t, "ADD", s.conf("1.1.0", fmt.Sprintf(`"netns": %q`, dir)), attachment(ns)...).failed(t); e.Code != 4 || len(s.vms) != 0 {
		t.Errorf("got %+v and %v, want code 4 and no VM", e, s.vms)
	}
}

// An agent that dies while a repeated ADD asks for the container is waited for, and the
// container's own interface is not taken for another program's.
func TestAgentDiesInAnADD(t *testing.T) {
	dir := t.TempDir()
	ns := container(t, dir)
	s := newStandIn(t)
	s.links(ns)
	conf := s.conf("1.1.0", fmt.Sprintf(`"netns": %q`, dir))
	first := ok(t, "ADD", conf, attachment(ns)...)
	s.set(func() { s.dying = 2 })
	if again := ok(t, "ADD", conf, attachment(ns)...); again != first || s.dying != 0 {
		t.Errorf("got %s, want %s; %d requests were not asked", again, first, s.dying)
	}
}

// The interface of a container that was deleted in the same namespace is waited for, and named
// if it does not go.
func TestAddAfterAnotherContainer(t *testing.T) {
	dir := t.TempDir()
	ns := container(t, dir)
	s := newStandIn(t)
	s.links(ns)
	if err := netlab.AddVeth("other", "eth0", ns, 1400); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlab.DeleteLink("other") })
	alias := plan.Mark{Cluster: nodeUUID, Object: "nic 90:b8:d0:00:00:09"}.String()
	if err := ns.Do(func() error {
		return exec.Command("ip", "link", "set", "eth0", "address", "90:b8:d0:00:00:09", "alias", alias).Run()
	}); err != nil {
		t.Fatal(err)
	}
	e := call(t, "ADD", s.conf("1.1.0", fmt.Sprintf(`"netns": %q, "timeout": "1s"`, dir)), attachment(ns)...).failed(t)
	if e.Code != types.ErrTryAgainLater || !strings.Contains(e.Msg, "90:b8:d0:00:00:09") || len(s.vms) != 0 {
		t.Errorf("got %+v and %v, want code 11 with the MAC, and no VM", e, s.vms)
	}
	ended := make(chan answer, 1)
	go func() { ended <- call(t, "ADD", s.conf("1.1.0", fmt.Sprintf(`"netns": %q`, dir)), attachment(ns)...) }()
	s.await("GET ", 2) // of both
	if err := netlab.DeleteLink("other"); err != nil {
		t.Fatal(err)
	}
	if a := <-ended; a.code != 0 {
		t.Errorf("after the link has gone: got %+v", a)
	}
}

// An MTU that the network has not is refused, and the NIC is not left behind.
func TestAddOfAnotherMTU(t *testing.T) {
	dir := t.TempDir()
	ns := container(t, dir)
	s := newStandIn(t)
	s.links(ns)
	if e := call(t, "ADD", s.conf("1.1.0", fmt.Sprintf(`"netns": %q, "mtu": 1500`, dir)), attachment(ns)...).failed(t); e.Code != 7 || len(s.vms) != 0 {
		t.Errorf("got %+v and %v, want code 7 and no VM", e, s.vms)
	}
}

// A namespace that is no file of the agent's folder gets a name there, and DEL takes the name
// away, also after the container has ended.
func TestNamespaceElsewhere(t *testing.T) {
	dir, folder := t.TempDir(), filepath.Join(t.TempDir(), "netns")
	ns := container(t, dir)
	s := newStandIn(t)
	s.links(ns)
	process := exec.Command("sleep", "1000")
	if err := ns.Do(process.Start); err != nil {
		t.Fatal(err)
	}
	ended := func() { _ = process.Process.Kill(); _ = process.Wait() }
	t.Cleanup(ended)
	path := fmt.Sprintf("/proc/%d/ns/net", process.Process.Pid)
	env := attachment(netlab.Namespace{Dir: filepath.Dir(path), Name: "net"})
	conf := s.conf("1.1.0", fmt.Sprintf(`"netns": %q`, folder))
	for range 2 {
		ok(t, "ADD", conf, env...)
	}
	zone := s.vms[vmOf(nodeUUID, "c1")].Zonename
	bound, err := os.Stat(filepath.Join(folder, zone))
	there, err2 := os.Stat(ns.Path())
	if err != nil || err2 != nil || !strings.HasPrefix(zone, boundPrefix) || !os.SameFile(bound, there) {
		t.Fatalf("zone %q: %v, %v, want the container's namespace", zone, err, err2)
	}
	ended()
	ok(t, "DEL", conf, "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS="+path)
	if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
		t.Errorf("after DEL: got %v, %v, want an empty folder", left, err)
	}

	// A crash between making the file and mounting on it, and a container of the same id
	// that has another namespace.
	name := filepath.Join(folder, boundName("c1"))
	if err := os.WriteFile(name, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	second, err := netlab.Create(t.TempDir(), "second")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Delete() })
	for _, n := range []netlab.Namespace{ns, second} {
		if got, err := nameNamespace(folder, n.Path(), "c1"); err != nil || got != boundName("c1") {
			t.Fatalf("got %q, %v", got, err)
		}
		is, err := os.Stat(name)
		want, err2 := os.Stat(n.Path())
		if err != nil || err2 != nil || !os.SameFile(is, want) {
			t.Errorf("%s: another namespace is mounted (%v, %v)", n.Name, err, err2)
		}
	}
	for range 2 {
		if err := unbindNamespace(folder, boundName("c1")); err != nil {
			t.Error(err)
		}
	}
	// A link at that name leads nowhere.
	if err := os.Symlink(ns.Path(), name); err != nil {
		t.Fatal(err)
	}
	if _, err := nameNamespace(folder, ns.Path(), "c1"); err == nil {
		t.Error("a link was followed")
	}
}

// An agent that restarts is waited for.
func TestAgentRestarts(t *testing.T) {
	s := newStandIn(t)
	late := s.socket + ".late"
	go func() {
		time.Sleep(300 * time.Millisecond)
		_ = os.Rename(s.socket, late)
	}()
	ok(t, "DEL", strings.Replace(s.conf("1.1.0", ""), s.socket, late, 1), "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0")
}

// FuzzConf: no configuration ends the plugin but by an error.
func FuzzConf(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.1.0","name":"web","type":"rutter","network":"n","owner_uuid":"930896af-bf8c-48d4-885c-6573a94b1853","timeout":"5s","mtu":1400,"runtimeConfig":{"ips":["10.0.0.7/24"],"mac":"90:b8:d0:01:02:03"},"prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"/x"}],"ips":[{"address":"10.0.0.7/24","interface":0}],"routes":[{"dst":"0.0.0.0/0"}]},"cni.dev/valid-attachments":[{"containerID":"a","ifname":"b"}]}`), "IgnoreUnknown=1;K8S_POD_NAME=a;IP=10.0.0.1")
	f.Add([]byte(`{"cniVersion":"0.3.1","prevResult":{"ips":[{"version":"4","address":"10.0.0.7/24","interface":9}],"interfaces":[null]}}`), "CommonArgs=1")
	f.Fuzz(func(t *testing.T, text []byte, args string) {
		c, err := confOf(text)
		if err != nil {
			return
		}
		a := newArgs(args)
		if want, err := askedOf(c, a); err == nil && (len(want.alias) > log.MaxNameBytes || len(want.ips) > maxAsked) {
			t.Errorf("%+v is over the bounds", want)
		}
		if c.PrevResult != nil {
			_, _ = expectedOf(c.PrevResult, a)
		}
		if c.timeout < minTimeout || c.timeout > maxTimeout {
			t.Errorf("a timeout of %s", c.timeout)
		}
	})
}

func newArgs(text string) *skel.CmdArgs {
	return &skel.CmdArgs{ContainerID: "c1", IfName: "eth0", Args: text}
}
