package vmmove

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"rutter/cmd/rutter/netlab"
	"rutter/integration/rig"
)

// program is the binary under test.
var program string

func TestMain(m *testing.M) { os.Exit(rig.Run(m, &program)) }

// mostLost is how many pings, one each millisecond, may be lost after the link of a VM is
// up on its new node. make bench-wire measures how many are.
const mostLost = 200

// TestVMMovesUnderPings: a VM moves between two nodes and back, in both orders of changes,
// while VMs on these and on a third one ping it each millisecond. When the barrier of a
// change is done, each kernel has what the log says, and nothing older.
func TestVMMovesUnderPings(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"ip", "bridge"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s here: %v", tool, err)
		}
	}
	if !netlab.Inside() {
		cmd := netlab.Enter("-test.run=^"+t.Name()+"$", "-test.v=true")
		err := cmd.Run()
		if netlab.Forbidden(err) {
			t.Skip(netlab.ErrForbidden)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
		t.Fatal(err)
	}
	w, err := New(t.Context(), Options{Program: program, Dir: t.TempDir(), Servers: 1})
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*Fabric{w.Shared, w.Lone} {
		for _, order := range []Order{NICFirst, VMFirst} {
			moved, err := w.Move(t.Context(), f, order)
			if err != nil {
				t.Fatalf("%s fabric, %s: %v\n%s", f, order, err, w.Tail())
			}
			t.Logf("%s fabric, %s: link up after %v, barrier after %v: %+v", f, order, moved.Up, moved.Wait, moved.Losses)
			for _, loss := range moved.Losses {
				if loss.AfterUp > mostLost {
					t.Errorf("%s fabric, %s: from %s %d of %d pings were lost after the link was up, want at most %d", f, order, loss.From, loss.AfterUp, loss.Sent, mostLost)
				}
			}
		}
	}
}
