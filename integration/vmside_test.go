package integration

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/agent/link/plan"
	"rutter/api/client"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
)

// enterLab runs the test again in namespaces of its own, unless it is there
// already, and reports whether it is.
func enterLab(t *testing.T) bool {
	t.Helper()
	if netlab.Inside() {
		if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
			t.Fatal(err)
		}
		return true
	}
	cmd := netlab.Enter("-test.run=^"+t.Name()+"$", "-test.v="+fmt.Sprint(testing.Verbose()))
	err := cmd.Run()
	if netlab.Forbidden(err) {
		t.Skip(netlab.ErrForbidden)
	}
	if err != nil {
		t.Fatal(err)
	}
	return false
}

// follows is how long the agent has to follow the log.
const follows = 30 * time.Second

// until waits until what the kernel holds is as it should be.
func (w *wholeWay) until(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	for end := time.Now().Add(follows); ; time.Sleep(20 * time.Millisecond) {
		is, got := ok()
		if is {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: got %s", what, got)
		}
	}
}

// TestVMSideFollowsTheLog: gateway, routes, resolvers and MTU of a network reach
// a VM that runs and one that is stopped, through a whole agent, and one that is
// provisioning only when it runs; another underlay address leaves the VMs their
// MACs and addresses; the node's own link is as it was.
func TestVMSideFollowsTheLog(t *testing.T) {
	t.Parallel()
	if !enterLab(t) {
		return
	}
	w := newWholeWay(t)
	zones := map[string]string{}
	for _, state := range []string{"running", "stopped", "provisioning"} {
		zones[state] = w.localVM(t, state)
	}
	for state, zone := range zones {
		w.until(t, "link of the VM that is "+state, func() (bool, string) {
			l, ok := w.fabric(t, zone)
			return ok && len(l.Addresses) == 1 && l.MTU == 1400, fmt.Sprint(l)
		})
	}
	before, own := map[string]plan.Link{}, ownLink(t)
	for _, zone := range zones {
		before[zone], _ = w.fabric(t, zone)
	}
	w.update(t, "/networks/"+w.network.String(), `{"gateway": "10.0.0.1", "resolvers": ["10.0.0.2"], "routes": {"10.200.0.0/16": "10.0.0.3"}, "mtu": 1350}`)
	reached := func(zone string) (bool, string) {
		l, ok := w.fabric(t, zone)
		text, _ := os.ReadFile(filepath.Join(w.netns, "etc", zone, "resolv.conf"))
		return ok && l.MTU == 1350 && len(l.Routes) == 2 && strings.Contains(string(text), "nameserver 10.0.0.2\n"), fmt.Sprint(l, string(text))
	}
	for _, state := range []string{"running", "stopped"} {
		w.until(t, "the network's change in the VM that is "+state, func() (bool, string) { return reached(zones[state]) })
	}
	zone := zones["provisioning"]
	if l, ok := w.fabric(t, zone); !ok || l.MTU != 1400 || len(l.Routes) != 0 {
		t.Errorf("the VM that is provisioning: got %v, want it as it was", l)
	}
	w.update(t, "/vms/"+zone, `{"state": "running"}`)
	w.until(t, "the network's change in the VM that was provisioning", func() (bool, string) { return reached(zone) })

	nics, err := w.c.Client.List(t.Context(), "/nics", map[string][]string{"belongs_to_uuid": {w.local.String()}})
	if err != nil || len(nics) != 1 {
		t.Fatalf("underlay NIC: got %v, %v", nics, err)
	}
	w.update(t, "/nics/"+strings.ReplaceAll(nics[0]["mac"].(string), ":", ""), `{"ip": "192.0.2.77"}`)
	w.until(t, "the VXLAN device on another underlay address", func() (bool, string) {
		for _, l := range w.dump(t, zone).Links {
			if l.Name == "sdcvxl7" && l.Local.String() == "192.0.2.77" {
				return true, ""
			}
		}
		return false, w.kernel(t, zone)
	})
	for _, zone := range zones {
		w.until(t, "the VM's link after it", func() (bool, string) {
			l, ok := w.fabric(t, zone)
			return ok && l.MAC == before[zone].MAC && slices.Equal(l.Addresses, before[zone].Addresses) && l.MTU == 1350 && len(l.Routes) == 2, fmt.Sprint(l)
		})
	}
	if now := ownLink(t); now != own {
		t.Errorf("the node's own link: got %s, want %s", now, own)
	}
}

// localVM makes a VM of the agent's node with a namespace and a NIC, and returns
// the namespace's name.
func (w *wholeWay) localVM(t *testing.T, state string) string {
	t.Helper()
	vm := client.NewChangeID()
	w.namespaceOf(t, vm)
	w.submitVM(t, vm, state)
	return vm.String()
}

// namespaceOf makes the namespace of a VM of the agent's node.
func (w *wholeWay) namespaceOf(t *testing.T, vm log.UUID) {
	t.Helper()
	zone, err := netlab.Create(w.netns, vm.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := zone.Delete(); err != nil {
			t.Error(err)
		}
	})
}

// submitVM makes a VM of the agent's node, in a state, with a NIC.
func (w *wholeWay) submitVM(t *testing.T, vm log.UUID, state string) {
	t.Helper()
	if _, err := w.c.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{
		{Action: log.Create, Kind: log.KindVM, Set: strings.Fields("owner_uuid server_uuid state uuid"), Object: &log.VM{UUID: vm, OwnerUUID: w.owner, ServerUUID: w.local, State: state}},
		w.nic(w.local, vm),
	}}); err != nil {
		t.Fatal(err)
	}
}

func (w *wholeWay) update(t *testing.T, path, body string) {
	t.Helper()
	if _, err := w.c.Client.Update(t.Context(), path, []byte(body), ""); err != nil {
		t.Fatal(err)
	}
}

// fabric returns the link of the VM in a namespace.
func (w *wholeWay) fabric(t *testing.T, zone string) (plan.Link, bool) {
	t.Helper()
	for _, l := range w.dump(t, zone).Links {
		if l.Namespace == zone {
			return l, true
		}
	}
	return plan.Link{}, false
}

// ownLink says how the underlay link of the node is.
func ownLink(t *testing.T) string {
	t.Helper()
	l, err := net.InterfaceByName("underlay")
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := l.Addrs()
	return fmt.Sprint(l.MTU, l.HardwareAddr, l.Flags, addresses, err)
}
