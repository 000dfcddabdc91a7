package containment

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent"
	"rutter/agent/link/plan"
	"rutter/api/auth/matrix"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

// TestNodeAgainstEmptiness is rows 12 and 13 of the table, and the agents' disks of
// item 4: one node with links of a real kernel, and what happens to it.
func TestNodeAgainstEmptiness(t *testing.T) {
	t.Parallel()
	if !inLab(t) {
		return
	}
	n := newNode(t)
	n.certify(time.Hour)
	n.start()
	n.programmed(1)
	n.until("all links", func(s agent.Status) bool { return s.Kernel.Links == nodeNICs+2 && s.Kernel.Matched })
	n.forwards("at first")
	for _, part := range []struct {
		name string
		run  func(*node)
	}{
		{"certificate", (*node).withoutCertificate},
		{"disk", (*node).withoutDisk},
		{"one by one", (*node).oneByOne},
		{"empty cluster", (*node).emptyCluster},
		{"empty cluster, again and again", (*node).emptyClusters},
	} {
		if !t.Run(part.name, func(inner *testing.T) {
			defer func() { n.t = t }()
			n.t = inner
			part.run(n)
		}) {
			return
		}
	}
	n.stop()
}

// withoutCertificate: an agent whose certificate expired too long ago, or cannot be
// read, makes its links from its cache, answers SVP and vminfod, says what to renew,
// and follows again as soon as there is another.
func (n *node) withoutCertificate() {
	before := n.kernel()
	n.stop()
	spoil := []struct {
		name, says string
		do         func() error
	}{
		{"expired", "expired", func() error { n.certifyLongAgo(); return nil }},
		{"no key", "tls.key", func() error { return os.Remove(filepath.Join(n.tls(), "tls.key")) }},
		{"bad authorities", "ca.crt", func() error { return os.WriteFile(filepath.Join(n.tls(), "ca.crt"), []byte("nonsense"), 0o600) }},
	}
	for _, s := range spoil {
		if err := s.do(); err != nil {
			n.t.Fatal(err)
		}
		n.deleteLinks()
		n.start()
		said := n.until(s.name+": links from the cache, and what to renew", func(st agent.Status) bool {
			return st.Kernel.Matched && strings.Contains(strings.Join(st.Trouble, "\n"), s.says)
		})
		if got := n.kernel(); got != before {
			n.t.Fatalf("%s: the node has\n%s\nwant\n%s", s.name, got, before)
		}
		n.forwards(s.name)
		if response, err := http.Get("http://" + loopback(n.ports[2]) + "/ping"); err != nil || response.StatusCode != http.StatusOK {
			n.t.Errorf("%s: vminfod: %v", s.name, err)
		} else {
			response.Body.Close()
		}
		if out, _ := n.run("agent", "status", "--listen", loopback(n.ports[0])); !strings.Contains(out, "trouble") {
			n.t.Errorf("%s: rutter agent status does not say it (%v):\n%s", s.name, said.Trouble, out)
		}
		if s.name == "expired" { // a new one in the old one's files is used by the next connection
			n.certify(time.Hour)
			n.programmed(n.submit(createOp("mtu name", &log.NICTag{Name: "again", MTU: 1500})))
		}
		if s.name != spoil[len(spoil)-1].name {
			n.stop()
		}
	}
	if err := os.RemoveAll(n.tls()); err != nil {
		n.t.Fatal(err)
	}
	n.certify(time.Hour)
	n.programmed(n.submit(createOp("mtu name", &log.NICTag{Name: "renewed", MTU: 1500})))
	firewall := func(line string) bool { return strings.Contains(line, "net.bridge.bridge-nf-call-") } // of this machine
	if s := n.status(); len(slices.DeleteFunc(s.Trouble, firewall)) > 0 {
		n.t.Errorf("with another certificate there is still trouble: %v", s.Trouble)
	}
}

// deleteLinks is what a reboot does to them.
func (n *node) deleteLinks() {
	n.t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, l := range links {
		switch plan.KindOfName(l.Name) {
		case plan.KindVXLAN, plan.KindBridge, plan.KindVeth:
			if err := netlab.DeleteLink(l.Name); err != nil {
				n.t.Fatal(err)
			}
		}
	}
}

// withoutDisk (item 4): a full disk and one that is read-only leave the node
// following and programming; it says so, and all is on disk again afterwards.
func (n *node) withoutDisk() {
	full := filepath.Join(n.data, "full")
	n.fill(full)
	for i := range 300 { // rows for which the file has no room
		n.submit(createOp("mtu name", &log.NICTag{Name: "tag" + strings.Repeat("x", 20) + string(rune('a'+i/26)) + string(rune('a'+i%26)), MTU: 1500}))
		if s := n.status(); s.Cache.Failure != "" {
			break
		}
	}
	n.until("it says that the disk is full", func(s agent.Status) bool { return s.Cache.Failure != "" && len(s.Trouble) > 0 })
	added := log.MAC{0x90, 0xb8, 0xd0, 0, 4, 1}
	n.programmed(n.submit(n.nic(n.cn, n.vms[1], added, anyIP(100))))
	if !strings.Contains(n.kernel(), added.String()) {
		n.t.Fatal("a NIC that came with the disk full is not in the kernel")
	}
	if out, err := n.run("cn", "sessions", "-s", n.c.Servers[0].URL, "-s", n.c.Servers[1].URL, "-s", n.c.Servers[2].URL); err != nil || !strings.Contains(out, "cache cannot be written") {
		n.t.Errorf("rutter cn sessions does not say it: %v\n%s", err, out)
	}
	if err := os.Remove(full); err != nil {
		n.t.Fatal(err)
	}
	n.until("the cache is whole", func(s agent.Status) bool { return s.Cache.Failure == "" && s.Cache.Waiting == 0 })
	n.stop()
	if err := unix.Mount("", n.data, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		n.t.Fatal(err)
	}
	n.deleteLinks()
	n.start()
	last := n.deleteNIC(added)
	n.programmed(last)
	n.forwards("on a disk that is read-only")
	if s := n.until("it says that the disk is read-only", func(s agent.Status) bool { return s.Cache.Failure != "" }); len(s.Trouble) == 0 {
		n.t.Errorf("no trouble: %+v", s.Cache)
	}
	if err := unix.Mount("", n.data, "", unix.MS_REMOUNT, ""); err != nil {
		n.t.Fatal(err)
	}
	n.until("the cache is whole", func(s agent.Status) bool { return s.Cache.Failure == "" && s.Cache.Waiting == 0 })
	before := n.kernel()
	if strings.Contains(before, added.String()) {
		n.t.Error("a NIC that went while the disk was read-only is in the kernel")
	}
	n.stop()
	if err := os.Rename(n.tls(), n.tls()+".away"); err != nil { // so that only the cache can tell
		n.t.Fatal(err)
	}
	n.deleteLinks()
	n.start()
	n.until("links from the cache", func(s agent.Status) bool { return s.Kernel.Matched })
	if got := n.kernel(); got != before {
		n.t.Errorf("from the cache that was made whole the node has\n%s\nwant\n%s", got, before)
	}
	if err := os.Rename(n.tls()+".away", n.tls()); err != nil {
		n.t.Fatal(err)
	}
	n.programmed(last)
}

// oneByOne: what the log orders one by one is done, however much it is.
func (n *node) oneByOne() {
	var last log.Seq
	for i := range nodeNICs {
		last = n.deleteNIC(crowdMAC(i))
	}
	n.programmed(last)
	if s := n.status(); s.Hold != nil || s.Kernel.Links != 2 {
		n.t.Errorf("twelve deletes: hold %v, %d links", s.Hold, s.Kernel.Links)
	}
	ops := n.crowd()[2:]
	n.programmed(n.submit(ops...))
	n.forwards("after deletes one by one")
}

// emptyCluster: an empty cluster with the same authorities and addresses
// takes the place of the old one.
func (n *node) emptyCluster() {
	n.forwards("before the empty cluster")
	before := n.kernel()
	for _, s := range n.c.Servers {
		if err := s.Stop(syscall.SIGKILL); err != nil {
			n.t.Logf("%s: %v", s.ID, err)
		}
	}
	for _, s := range n.c.Servers {
		if err := os.RemoveAll(filepath.Join(filepath.Dir(s.LogFile), s.ID)); err != nil {
			n.t.Fatal(err)
		}
		if err := s.Start(); err != nil {
			n.t.Fatal(err)
		}
	}
	for _, s := range n.c.Servers {
		if err := n.c.AwaitReady(patience(n.t), s); err != nil {
			n.t.Fatal(err)
		}
	}
	n.found()
	held := func(when string) *agent.Hold {
		n.t.Helper()
		s := n.until(when+": the hold", func(s agent.Status) bool { return s.Hold != nil && s.State == agent.Following })
		if got := n.kernel(); got != before {
			n.t.Fatalf("%s: the node has\n%s\nwant\n%s", when, got, before)
		}
		n.forwards(when)
		return s.Hold
	}
	h := held("an empty cluster")
	if h.Going != nodeNICs+2 || h.Links != h.Going {
		n.t.Errorf("the hold is %+v", h)
	}
	for _, s := range n.c.Servers { // whichever is asked
		ctx := patience(n.t)
		for out := ""; !strings.Contains(out, h.ID) || !strings.Contains(out, "14/14"); {
			out, _ = n.run("cn", "sessions", "-s", s.URL)
			if ctx.Err() != nil {
				n.t.Fatalf("rutter cn sessions of %s does not show the hold %s:\n%s", s.ID, h.ID, out)
			}
		}
	}
	n.stop()
	n.start()
	if again := held("started anew"); again.ID != h.ID {
		n.t.Errorf("the hold is another after a restart: %+v, was %+v", again, h)
	}
	n.heldWhileFollowing(before)
	n.accept(h)
}

// emptyClusters is the long form: each cluster that takes the place of the one before
// is as empty as the first was.
func (n *node) emptyClusters() {
	if os.Getenv("RUTTER_LONG") == "" {
		n.t.Skip("the short form was that once: RUTTER_LONG=1")
	}
	for range 10 {
		n.programmed(n.submit(n.crowd()...))
		n.emptyCluster()
	}
}

// heldWhileFollowing: while the hold lasts, the new log is done beside it.
func (n *node) heldWhileFollowing(before string) {
	added := log.MAC{0x90, 0xb8, 0xd0, 0, 5, 1}
	seq := n.submit(n.nic(n.cn, n.vms[1], added, anyIP(110)))
	n.until("a NIC of the new log", func(agent.Status) bool { return strings.Contains(n.kernel(), added.String()) })
	if out, err := n.run("wait", "-s", n.c.Servers[0].URL, "--seq", seq.String(), "--scope", "vnet:7", "--timeout", "1s"); err == nil || !strings.Contains(out, "holds back") {
		n.t.Errorf("a wait for a node that holds back ends with %v:\n%s", err, out)
	}
	n.deleteNIC(added)
	n.until("it goes again", func(agent.Status) bool { return n.kernel() == before })
}

// accept: only operators can, only what is held, and at any server.
func (n *node) accept(h *agent.Hold) {
	url := n.c.Servers[1].URL
	if out, err := n.run("cn", "accept", "-s", url, "--hold", "0123456789abcdef", n.cn.String()); err == nil {
		n.t.Errorf("another hold was accepted:\n%s", out)
	}
	if n.status().Hold == nil {
		n.t.Fatal("the hold has ended without its acceptance")
	}
	if !metric(n, "rutter_cns_held 1") {
		n.t.Error("no server's metrics count the node that holds back")
	}
	ctx := patience(n.t)
	for {
		out, err := n.run("cn", "accept", "-s", url, "--all")
		if err == nil && strings.Contains(out, h.ID) {
			break
		}
		if ctx.Err() != nil {
			n.t.Fatalf("rutter cn accept --all: %v\n%s", err, out)
		}
	}
	n.programmed(n.submit(createOp("mtu name", &log.NICTag{Name: "accepted", MTU: 1500})))
	if got := n.kernel(); got != "" || n.status().Hold != nil {
		n.t.Errorf("accepted, the node has\n%s", got)
	}
	n.resolves("accepted", false)
	said := false
	for _, s := range n.c.Servers {
		text, _ := os.ReadFile(filepath.Join(filepath.Dir(s.LogFile), s.ID, "audit.ndjson"))
		said = said || strings.Contains(string(text), `"accepted"`) && strings.Contains(string(text), h.ID)
	}
	if !said {
		n.t.Error("no audit log has the acceptance")
	}
}

// metric reports whether one of the servers has it.
func metric(n *node, line string) bool {
	dial, err := n.c.Authority.Dialer(matrix.Identity{Role: matrix.Operator, Name: "test"})
	if err != nil {
		n.t.Fatal(err)
	}
	web := http.Client{Transport: &http.Transport{DialTLSContext: dial, DisableKeepAlives: true}}
	for _, s := range n.c.Servers {
		response, err := web.Get(s.URL + "/metrics")
		if err != nil {
			n.t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil {
			n.t.Fatal(err)
		}
		if strings.Contains(string(text), line) {
			return true
		}
	}
	return false
}

// fill leaves no room on a file system.
func (n *node) fill(path string) {
	n.t.Helper()
	f, err := os.Create(path)
	if err != nil {
		n.t.Fatal(err)
	}
	_, _ = io.Copy(f, endless{}) // it ends when there is no room
	_ = f.Close()
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func anyIP(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, last}) }
