package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rutter/api/client"
	"rutter/log"
)

// TestStrayVMsHoldUpNoOther: an agent's process, which has dropped its capabilities, on a
// node where one VM's namespace is a file of mode 000, as `ip netns add` leaves it from
// private mounts, another's is a FIFO, and a third's does not exist. A VM that comes later
// gets its link, and what is done to it is healed. Each of the three is in the agent's
// status with its cause, and gets its link when its namespace is there.
func TestStrayVMsHoldUpNoOther(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("no ip here: %v", err)
	}
	if !enterLab(t) {
		return
	}
	w := newWholeWay(t)
	w.await(t, w.create(t))
	strays := map[log.UUID]string{client.NewChangeID(): "is a plain file of mode 0000", client.NewChangeID(): "is a FIFO", client.NewChangeID(): "no such network namespace"}
	for vm, cause := range strays {
		path := filepath.Join(w.netns, vm.String())
		var err error
		switch {
		case strings.Contains(cause, "0000"):
			err = os.WriteFile(path, nil, 0)
		case strings.Contains(cause, "FIFO"):
			err = unix.Mkfifo(path, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.submitVM(t, vm, "running")
	}
	zone := w.localVM(t, "running")
	linked := func(zone string) func() (bool, string) {
		return func() (bool, string) {
			l, ok := w.fabric(t, zone)
			return ok && l.Up && len(l.Addresses) == 1, fmt.Sprint(l, w.statusOf(t).Kernel)
		}
	}
	w.until(t, "link of the VM that came later", linked(zone))
	w.until(t, "the causes in the status", func() (bool, string) {
		k := w.statusOf(t).Kernel
		all := strings.Join(k.Failures, "\n")
		for vm, cause := range strays {
			if !strings.Contains(all, "VM "+vm.String()) || !strings.Contains(all, cause) {
				return false, all
			}
		}
		return k.Failing == 3 && k.Unread == 2 && k.Failure == "", fmt.Sprint(k)
	})
	healed := w.statusOf(t).Kernel.Healed
	link, _ := w.fabric(t, zone)
	w.until(t, "healing of the other VM", func() (bool, string) {
		k := w.statusOf(t).Kernel
		is, got := linked(zone)()
		if is && k.Healed == healed { // again, if the agent had not finished making it: that is no drift
			vandal("nsenter", "--net="+filepath.Join(w.netns, zone), "ip", "link", "del", link.Name)
		}
		return is && k.Healed > healed, got
	})
	for vm := range strays {
		if err := os.RemoveAll(filepath.Join(w.netns, vm.String())); err != nil {
			t.Fatal(err)
		}
		w.namespaceOf(t, vm)
		w.until(t, "link of a VM whose namespace came at last", linked(vm.String()))
	}
	w.await(t, w.create(t))
}
