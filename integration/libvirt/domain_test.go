package libvirt

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"rutter/agent/vmsource/registered"
	"rutter/cmd/rutter/subprocess"
	"rutter/log"
)

// TestDomain: a domain of a real libvirtd gets its NIC from the log before its guest runs,
// its address by DHCP, and reaches a VM of another node. That stays so while libvirtd, the
// agent and the server are killed and start again. What happened meanwhile is seen after.
func TestDomain(t *testing.T) {
	t.Parallel()
	guest := needs(t)
	if !inside(t) {
		return
	}
	w := newWorld(t, guest, true)
	n := w.nodes[0]
	n.answers()
	d := n.define("web0")
	n.virsh("start", "web0")
	nic := d.is("running", n)
	d.says(fmt.Sprintf("leased %s/24 mtu 1400", nic.IP))
	d.says("reached " + w.peerIP.String())
	w.reached(nic.IP)

	w.survives(n, nic.IP)
	w.refuses(n)
	w.controls(n, d)
	w.reached(w.migrates(d))
}

// TestMigrationWithoutCertificates: where no certificate keeps nodes from what is another's,
// the nodes themselves do: a domain migrates only to where an operator has placed it, and
// keeps its NIC. The guest is paused before it boots: it has no part in that.
func TestMigrationWithoutCertificates(t *testing.T) {
	t.Parallel()
	guest := needs(t)
	if !inside(t) {
		return
	}
	w := newWorld(t, guest, false)
	n := w.nodes[0]
	n.answers()
	d := n.define("web0")
	n.virsh("start", "--paused", "web0")
	w.migrates(d)
}

// survives: packets flow while each part is dead, and after it is back.
func (w *world) survives(n *node, ip netip.Addr) {
	w.t.Helper()
	tap := w.tap(n, "web0")
	n.killLibvirt()
	w.reached(ip)
	n.restartLibvirt()
	for _, p := range []*subprocess.Process{n.agent, &w.cluster.Servers[0].Process} {
		w.must(p.Stop(syscall.SIGKILL))
		w.reached(ip)
		w.must(p.Start())
		w.reached(ip)
	}
	n.answers()
	w.reached(ip)
	if now := w.tap(n, "web0"); now != tap {
		w.t.Errorf("the tap is %s, and was %s: a QEMU has a tap that is gone", now, tap)
	}
}

// tap is the index and the name of a tap of a node.
func (w *world) tap(n *node, name string) string {
	w.t.Helper()
	var text string
	w.must(n.ns.Do(func() (err error) {
		text, err = run("ip", "-o", "link", "show", name)
		return err
	}))
	return strings.Join(strings.Fields(text)[:2], " ")
}

// refuses: a domain with an interface of ours does not start without a reason in libvirt's
// own error, and one without does.
func (w *world) refuses(n *node) {
	w.t.Helper()
	w.must(n.agent.Stop(syscall.SIGKILL))
	other := n.define("other0")
	if text, err := n.try("start", "other0"); err == nil || !strings.Contains(text, "systemctl start rutter-agent") {
		w.t.Errorf("without an agent: %v, %s", err, text)
	}
	w.must(n.agent.Start())
	// The domain was defined while the agent was away: it is found by virsh.
	other.is("stopped", n)
	n.virsh("undefine", "other0")
	w.until("the NIC of a domain that is no more", func() error {
		if _, nic, err := other.logged(); err == nil {
			return fmt.Errorf("it is %s", nic.IP)
		}
		return nil
	})
}

// controls: Rutter starts and stops a domain, and what libvirt does while the agent is away
// is known afterwards.
func (w *world) controls(n *node, d *domain) {
	w.t.Helper()
	w.must(n.agent.Stop(syscall.SIGKILL))
	n.virsh("destroy", d.name)
	w.must(n.agent.Start())
	d.is("stopped", n)
	for _, step := range []struct{ command, state string }{{"start", "running"}, {"stop", "stopped"}, {"start", "running"}} {
		args := []string{"vm", step.command, d.id.String()}
		if step.command == "stop" {
			args = append(args, "--force")
		}
		if text, err := n.rutter(args...); err != nil {
			w.t.Fatalf("%v\n%s", err, text)
		}
		d.is(step.state, n)
	}
	// A reboot is libvirt's own: the domain's QEMU stays, with its tap.
	tap, of := w.tap(n, d.name), n.virsh("domid", d.name)
	if text, err := n.rutter("vm", "reboot", d.id.String()); err != nil || !strings.Contains(text, "told to reboot") {
		w.t.Errorf("reboot: %v, %s", err, text)
	}
	ip := d.is("running", n).IP
	w.reached(ip)
	if now := n.virsh("domid", d.name); now != of || w.tap(n, d.name) != tap {
		w.t.Errorf("after a reboot, it is domain %s by %s, and was %s by %s", now, w.tap(n, d.name), of, tap)
	}
}

// migrates: a domain migrates to the other node once an operator has placed it there, and
// not before, with its NIC and address, which is returned. The node that it left forgets it, and
// takes nothing away.
func (w *world) migrates(d *domain) netip.Addr {
	w.t.Helper()
	from, to := w.nodes[0], w.nodes[1]
	to.answers()
	before := d.is("running", from)
	migrate := []string{"migrate", "--live", d.name, to.uri(), "--migrateuri", "unix://" + w.dir + "/m.sock", "--persistent", "--undefinesource"}
	if text, err := from.try(migrate...); err == nil || !strings.Contains(text, "the links of "+d.name) {
		w.t.Errorf("to a node on which no operator placed it: %v, %s", err, text)
	}
	d.is("running", from)
	vmm := w.placed(d, to)
	from.virsh(migrate...)
	w.until("the node that it left forgets it", func() error {
		vms, err := (&registered.Client{Source: "libvirt", Socket: from.socket()}).List(w.t.Context())
		if err == nil && len(vms) > 0 {
			err = fmt.Errorf("it has %+v", vms)
		}
		return err
	})
	if after := d.is("running", to); after.IP != before.IP || after.MAC != before.MAC {
		w.t.Errorf("its NIC was %s at %s, and is %s at %s", before.MAC, before.IP, after.MAC, after.IP)
	}
	w.until("the VMM that was placed is the one that runs, and the other one has ended", func() error { return d.runsAs(vmm) })
	return before.IP
}

// runsAs checks that one VMM of the domain runs and each other one has ended.
func (d *domain) runsAs(vmm log.UUID) error {
	var list []log.VMM
	if err := d.get("/vmms?instance_id="+d.id.String(), &list); err != nil {
		return err
	}
	runs := false
	for _, m := range list {
		switch ended := m.State == "destroyed" || m.State == "failed"; {
		case m.UUID == vmm && m.State == "running":
			runs = true
		case m.UUID == vmm || !ended:
			return fmt.Errorf("VMM %s is %s, of generation %d", m.UUID, m.State, m.Gen)
		}
	}
	if !runs {
		return fmt.Errorf("the log has %d VMMs, without %s", len(list), vmm)
	}
	return nil
}
