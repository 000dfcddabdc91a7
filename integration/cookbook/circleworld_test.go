package cookbook

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/tlsgate"
	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/subprocess"
	"rutter/integration/rig"
	"rutter/log"
)

// patience bounds each wait, of a machine that may be busy.
const patience = time.Minute

// ground is what is there before the page begins: two compute nodes on an underlay.
const ground = `
kind: nic_tag
name: underlay
spec: {mtu: 1600}
---
kind: network
name: underlay
spec: {nic_tag: underlay, mtu: 1600, subnet: 192.0.2.0/24, provision_start_ip: 192.0.2.1, provision_end_ip: 192.0.2.250}
---
kind: server
name: cn1
uuid: 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01
---
kind: server
name: cn2
uuid: 564d69b1-a178-4fbe-b36f-3f2b7fd7ed02
---
kind: nic
spec: {mac: "00:00:5e:00:53:01", server: cn1, network: underlay, ip: 192.0.2.1, underlay: true, owner_uuid: 930896af-bf8c-48d4-885c-6573a94b1853}
---
kind: nic
spec: {mac: "00:00:5e:00:53:02", server: cn2, network: underlay, ip: 192.0.2.2, underlay: true, owner_uuid: 930896af-bf8c-48d4-885c-6573a94b1853}
`

// nodeIDs are the compute nodes of ground.
var nodeIDs = []string{"564d69b1-a178-4fbe-b36f-3f2b7fd7ed01", "564d69b1-a178-4fbe-b36f-3f2b7fd7ed02"}

// circle is the world of the page: three servers with TLS, and two compute nodes with agents,
// each with one VM.
type circle struct {
	*testing.T
	dir     string // in which the commands run
	cluster *bench.Cluster
	env     []string
	vms     map[string]netlab.Namespace // by alias
}

// newCircle starts the world.
func newCircle(t *testing.T) *circle {
	c := &circle{T: t, dir: t.TempDir(), vms: map[string]netlab.Namespace{}}
	server := netip.MustParsePrefix("192.0.2.254/24")
	c.must(errors.Join(netlab.AddBridge("underlay"), netlab.AddAddress("underlay", server)))
	c.cluster = rig.Cluster(t, bench.Options{Program: rutter, TLS: true, Dir: filepath.Join(c.dir, "servers"), Host: server.Addr().String(), Flags: []string{"--log-level=error"}})
	var urls []string
	for _, s := range c.cluster.Servers {
		urls = append(urls, s.URL)
	}
	for _, name := range []string{"alice", "bob"} {
		c.certify(name, matrix.Identity{Role: matrix.Operator, Name: name})
	}
	c.env = append(os.Environ(), "PATH="+filepath.Dir(rutter)+":"+os.Getenv("PATH"), "RUTTER_SERVERS="+strings.Join(urls, ","), "RUTTER_TLS_DIR="+filepath.Join(c.dir, "tls", "alice"))
	c.write("ground.yaml", ground)
	if out, err := c.command("rutter apply -f ground.yaml --yes"); err != nil {
		c.Fatalf("%v: %s", err, out)
	}
	for i, alias := range []string{"web", "db"} {
		c.node(i, alias)
	}
	await(t, t.Context(), c.cluster.Client)
	return c
}

func (c *circle) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// write writes a file of the folder in which the commands run.
func (c *circle) write(name, text string) {
	c.Helper()
	path := filepath.Join(c.dir, name)
	c.must(errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
}

// certify makes tls/NAME, a folder with a certificate.
func (c *circle) certify(name string, id matrix.Identity) {
	c.Helper()
	issuer := tlsgate.Issuer{Folder: filepath.Join(c.dir, "servers", "pki")}
	_, err := issuer.Issue(filepath.Join(c.dir, "tls", name), tlsgate.Grant{Identity: id})
	c.must(err)
}

// node makes compute node i with the namespace of one VM, and starts its agent.
func (c *circle) node(i int, alias string) {
	c.Helper()
	name := fmt.Sprintf("cn%d", i+1)
	dir := filepath.Join(c.dir, name)
	vms := filepath.Join(dir, "netns")
	c.must(os.MkdirAll(vms, 0o700))
	ns, err := netlab.Create(dir, name)
	c.must(err)
	c.vms[alias], err = netlab.Create(vms, alias)
	c.must(err)
	c.Cleanup(func() { c.must(errors.Join(c.vms[alias].Delete(), ns.Delete())) })
	port := fmt.Sprintf("v%d", i)
	c.must(errors.Join(netlab.AddVeth(port, "e0", ns, 1600), netlab.SetMaster(port, "underlay"), netlab.SetUp(port, true), ns.Do(func() error {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), 24)
		return errors.Join(netlab.SetMAC("e0", [6]byte{0, 0, 0x5e, 0, 0x53, byte(i + 1)}), netlab.SetUp("e0", true), netlab.AddAddress("e0", prefix))
	})))
	id, err := log.ParseUUID(nodeIDs[i])
	c.must(err)
	c.certify(name, matrix.Identity{Role: matrix.CN, UUID: id})
	agent := &subprocess.Process{
		Name: name, Program: rutter, LogFile: filepath.Join(dir, "agent.log"),
		Launch: func(cmd *exec.Cmd) error { return ns.Do(cmd.Start) },
		Args: []string{
			"agent", "--cn", id.String(), "--data", filepath.Join(dir, "data"), "--svp", "off", "--vminfod", "off", "--listen", "off", "--socket", "off",
			"--tls-dir", filepath.Join(c.dir, "tls", name), "--servers", strings.Join(c.cluster.Client.Servers(), ","),
			"--netns", vms, "--etc-netns", filepath.Join(dir, "etc"), "--manifests", "off", "--underlay-interface", "e0",
			"--port-security", "on", "--require-port-security",
		},
	}
	rig.Start(c.T, agent)
}

// command runs a command of the page, and returns what it printed.
func (c *circle) command(text string) (string, error) {
	cmd := exec.CommandContext(c.Context(), "sh", "-c", text)
	cmd.Dir, cmd.Env = c.dir, c.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// reach waits until VMs on both nodes reach each other, or until neither does, and both
// kernels have all that the log has.
func (c *circle) reach(want bool) {
	c.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		_, toDB := c.vms["web"].Ping(netip.MustParseAddr("10.20.1.11"), 56, 200*time.Millisecond)
		_, toWeb := c.vms["db"].Ping(netip.MustParseAddr("10.20.1.10"), 56, 200*time.Millisecond)
		if want && toDB == nil && toWeb == nil || !want && toDB != nil && toWeb != nil {
			await(c.T, c.Context(), c.cluster.Client)
			return
		}
		if time.Now().After(end) || c.Context().Err() != nil {
			c.Fatalf("web and db reach each other: want %v; web to db: %v, db to web: %v", want, toDB, toWeb)
		}
	}
}

// others are VMs of another tenant, on no compute node.
const others = 500

// othersMake makes the VMs of others.
func (c *circle) othersMake() {
	c.Helper()
	var ops []log.Op
	for i := range others {
		vm := &log.VM{UUID: otherVM(i), Alias: fmt.Sprintf("other%d", i), OwnerUUID: otherVM(others), State: "stopped"}
		ops = append(ops, log.Op{Action: log.Create, Kind: log.KindVM, Set: []string{"uuid", "alias", "owner_uuid", "state"}, Object: vm})
	}
	_, err := c.cluster.Client.Submit(c.Context(), &log.Change{ID: client.NewChangeID(), Ops: ops})
	c.must(err)
}

// otherVM is the id of VM i of the others.
func otherVM(i int) log.UUID {
	return log.UUID{0: 0x77, 6: 0x40, 8: 0x80, 14: byte(i >> 8), 15: byte(i)}
}

// othersWrite writes n entries about the VMs of others, each of a change of its own, by the write stream.
func (c *circle) othersWrite(n int) {
	c.Helper()
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	stream := c.cluster.Client.NewStream()
	go func() { _ = stream.Run(ctx) }() // until cancel
	waits := make(chan func() error, 2048)
	answered := make(chan error, 1)
	go func() {
		var first error
		for wait := range waits {
			if err := wait(); err != nil && first == nil {
				first = err
			}
		}
		answered <- first
	}()
	for i := range n {
		op := log.Op{Action: log.Update, Kind: log.KindVM, ID: otherVM(i % others).String(), Set: []string{"quota"}, Object: &log.VM{Quota: uint64(10 + i)}}
		wait, err := stream.Start(c.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{op}})
		if err != nil {
			close(waits)
			c.Fatal(err)
		}
		waits <- func() error { _, err := wait(c.Context()); return err }
	}
	close(waits)
	c.must(<-answered)
}
