package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

// The network of each form: MTUs in bytes, and what is on the two sides.
const (
	underlayMTU = 1600
	vmMTU       = 1500
	vni         = 5
	vxlanPort   = 4789
)

var (
	underlays = [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	addresses = [2]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
	macs      = [2]log.MAC{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}
)

// form is one way to connect a VM on each of two nodes. Each has nodes and an underlay of
// its own, so that the rules of one do not see the packets of another.
type form struct {
	name   string
	dir    string
	nodes  [2]netlab.Namespace
	vms    [2]netlab.Namespace
	closes []func() error
}

// makers make the links of one side of a form.
var makers = []struct {
	name string
	make func(ctx context.Context, f *form, side int) error
}{
	{"device", bareDevice},
	{"bridge", bareBridge},
	{"ours", ours},
}

// newForms makes all forms. The caller must call closeForms, also after an error.
func newForms(ctx context.Context, dir string) (list []*form, err error) {
	for _, m := range makers {
		f := &form{name: m.name, dir: filepath.Join(dir, m.name)}
		list = append(list, f)
		if err := f.join(); err != nil {
			return list, err
		}
		for side := range f.nodes {
			if err := m.make(ctx, f, side); err != nil {
				return list, fmt.Errorf("%s: %w", f.name, err)
			}
		}
		if err := f.awaitReply(ctx); err != nil {
			return list, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return list, nil
}

// awaitReply pings from one VM to the other: the kernel takes a moment to see that the links
// below are up.
func (f *form) awaitReply(ctx context.Context) error {
	for end := time.Now().Add(pingWithin); ; {
		_, err := f.vms[0].Ping(addresses[1], 56, pingAgain)
		if err == nil || time.Now().After(end) || ctx.Err() != nil {
			return err
		}
	}
}

func closeForms(list []*form) (err error) {
	for _, f := range list {
		for i := len(f.closes) - 1; i >= 0; i-- {
			err = errors.Join(err, f.closes[i]())
		}
	}
	return err
}

// join makes the namespaces and the underlay between the nodes.
func (f *form) join() error {
	for side := range f.nodes {
		for _, one := range []struct {
			dir, name string
			ns        *netlab.Namespace
		}{
			{f.dir, fmt.Sprintf("node%d", side), &f.nodes[side]},
			{f.vmsOf(side), "vm", &f.vms[side]},
		} {
			if err := os.MkdirAll(one.dir, 0o700); err != nil {
				return err
			}
			ns, err := netlab.Create(one.dir, one.name)
			if err != nil {
				return err
			}
			*one.ns = ns
			f.closes = append(f.closes, ns.Delete)
		}
	}
	err := f.nodes[0].Do(func() error { return netlab.AddVeth("u0", "u0", f.nodes[1], underlayMTU) })
	for side, node := range f.nodes {
		err = errors.Join(err, node.Do(func() error {
			return errors.Join(netlab.AddAddress("u0", netip.PrefixFrom(underlays[side], 24)), netlab.SetUp("u0", true))
		}))
	}
	return err
}

// vmsOf is the folder of the namespaces of a side's VMs.
func (f *form) vmsOf(side int) string { return filepath.Join(f.dir, fmt.Sprintf("vms%d", side)) }

// ip runs ip(8), or bridge(8), once for each line, inside a namespace.
func ip(ns netlab.Namespace, lines ...string) error {
	return ns.Do(func() error {
		for _, line := range lines {
			args := strings.Fields(line)
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", line, err, out)
			}
		}
		return nil
	})
}

// vxlan is the line that makes the VXLAN device of a side.
func vxlan(name string, side int) string {
	return fmt.Sprintf("ip link add %s mtu %d type vxlan id %d local %s dstport %d nolearning", name, vmMTU, vni, underlays[side], vxlanPort)
}

// forward is the line that makes the forwarding entry of the other side's VM.
func forward(name string, side int) string {
	return fmt.Sprintf("bridge fdb replace %s dev %s dst %s self permanent", macs[1-side], name, underlays[1-side])
}

// guest are the lines that make a link ready inside a VM.
func guest(name string, side int) []string {
	return []string{
		fmt.Sprintf("ip link set %s address %s up", name, macs[side]),
		fmt.Sprintf("ip address add %s/24 dev %s", addresses[side], name),
		fmt.Sprintf("ip neigh replace %s lladdr %s dev %s nud permanent", addresses[1-side], macs[1-side], name),
	}
}

// bareDevice puts a VXLAN device straight into the VM's namespace.
func bareDevice(_ context.Context, f *form, side int) error {
	return errors.Join(
		ip(f.nodes[side], vxlan("eth0", side), "ip link set eth0 netns "+f.vms[side].Path()),
		ip(f.vms[side], append(guest("eth0", side), forward("eth0", side))...),
	)
}

// bareBridge is what the link of a VM needs on a node with several: a VXLAN device and a
// veth pair on a bridge, without any rule.
func bareBridge(_ context.Context, f *form, side int) error {
	return errors.Join(
		ip(f.nodes[side], vxlan("vx0", side), forward("vx0", side),
			fmt.Sprintf("ip link add br0 mtu %d type bridge stp_state 0 mcast_snooping 0", vmMTU), "ip link set br0 up",
			"ip link set vx0 master br0 up",
			fmt.Sprintf("ip link add port0 mtu %d type veth peer name eth0 mtu %d", vmMTU, vmMTU), "ip link set eth0 netns "+f.vms[side].Path(),
			"ip link set port0 master br0 up"),
		ip(f.vms[side], guest("eth0", side)...),
	)
}
