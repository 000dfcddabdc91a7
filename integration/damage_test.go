package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/agent"
	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/api/client"
	"rutter/log"
)

const (
	// damageFor is how long the test does damage; a minute when RUTTER_LONG is set.
	damageFor     = 10 * time.Second
	damageForLong = time.Minute
	damageEvery   = 20 * time.Millisecond
	// damageHealed is when all must be healed after the last damage. A short run
	// shares the machine with other programs, and is not held to a time.
	damageHealed     = time.Minute
	damageHealedLong = 2 * time.Second
	// damageNICs are those of the other node before the damage begins.
	damageNICs = 200
)

// TestDamageIsHealed: three servers and an agent. The test takes links, addresses,
// neighbours and forwarding entries away at random, with ip(8) and bridge(8), while
// NICs come and move. In the end the kernel is as the log says.
func TestDamageIsHealed(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"ip", "bridge"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s here: %v", tool, err)
		}
	}
	if !enterLab(t) {
		return
	}
	w := newWholeWay(t)
	for range damageNICs {
		w.create(t)
	}
	w.await(t, w.create(t))
	zone := w.zone(t)
	wanted := func() string { return w.kernel(t, zone) }
	if text := wanted(); !strings.Contains(text, "fabric0") {
		t.Fatalf("before the damage: %s", text)
	}
	took, healed := damageFor, damageHealed
	if os.Getenv("RUTTER_LONG") != "" {
		took, healed = damageForLong, damageHealedLong
	}
	done, nics := 0, damageNICs+1
	for began := time.Now(); time.Since(began) < took; done++ {
		w.damage(t, zone)
		if done%5 == 0 {
			w.create(t)
			nics++
		}
		time.Sleep(damageEvery) // the pace of the damage, not a wait for something
	}
	last := w.create(t)
	nics++
	ended := time.Now()
	var s agent.Status
	for {
		s = w.statusOf(t)
		if s.Kernel.Matched && s.Programmed >= last && w.entries(t, zone) == 2*nics {
			break
		}
		if time.Since(ended) > healed {
			t.Fatalf("%v after %d damages: matched %v, programmed %d of %d, %d entries of %d; failures %v\n%s",
				healed, done, s.Kernel.Matched, s.Programmed, last, w.entries(t, zone), 2*nics, s.Kernel.Failures, wanted())
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%d damages in %v, %d steps healed them, the last within %v", done, took, s.Kernel.Healed, time.Since(ended))
	if s.Kernel.Healed == 0 || len(s.Kernel.Drift) == 0 {
		t.Errorf("healed %d, in words %v: want both", s.Kernel.Healed, s.Kernel.Drift)
	}
	if text := wanted(); !strings.Contains(text, "up=true addresses=1") || strings.Contains(text, "up=false") {
		t.Errorf("after the damage: %s", text)
	}
}

// create makes a NIC of the other node, and returns the seq.
func (w *wholeWay) create(t testing.TB) log.Seq {
	t.Helper()
	result, err := w.c.Client.Submit(t.Context(), &log.Change{ID: client.NewChangeID(), Ops: []log.Op{w.nic(w.remote, w.vm)}})
	if err != nil {
		t.Fatal(err)
	}
	return result.Last
}

// await waits until the kernel matches the log at a seq.
func (w *wholeWay) await(t testing.TB, seq log.Seq) {
	t.Helper()
	for end := time.Now().Add(time.Minute); w.programmed() < seq; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the kernel does not match seq %d", seq)
		}
	}
}

// zone is the namespace of the agent's VM.
func (w *wholeWay) zone(t testing.TB) string {
	t.Helper()
	names, err := os.ReadDir(w.netns)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, err := log.ParseUUID(name.Name()); err == nil {
			return name.Name()
		}
	}
	t.Fatal("the agent's VM has no namespace")
	return ""
}

func (w *wholeWay) statusOf(t testing.TB) (s agent.Status) {
	t.Helper()
	response, err := http.Get("http://" + w.status + "/status")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// dump reads the kernel with a handle that knows nothing of the agent.
func (w *wholeWay) dump(t testing.TB, zone string) plan.Snapshot {
	t.Helper()
	kernel, err := link.Open(link.Config{NetNSDir: w.netns, EtcNetNSDir: filepath.Join(w.netns, "etc")})
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	have, err := kernel.Dump(context.Background(), []string{zone})
	if err != nil {
		t.Fatal(err)
	}
	return have
}

// entries counts neighbours and forwarding entries.
func (w *wholeWay) entries(t testing.TB, zone string) (n int) {
	for _, l := range w.dump(t, zone).Links {
		n += len(l.Neighs) + len(l.FDB)
	}
	return n
}

// kernel says in short what is there.
func (w *wholeWay) kernel(t testing.TB, zone string) string {
	var b strings.Builder
	for _, l := range w.dump(t, zone).Links {
		fmt.Fprintf(&b, "%s up=%v addresses=%d neighbours=%d forwarding=%d\n", l.Name, l.Up, len(l.Addresses), len(l.Neighs), len(l.FDB))
	}
	return b.String()
}

// damage does one thing that an operator should not. What it is to hit may be
// gone just then, so its failure is none.
func (w *wholeWay) damage(t testing.TB, zone string) {
	t.Helper()
	inZone := []string{"--net=" + filepath.Join(w.netns, zone), "ip"}
	switch rand.IntN(8) {
	case 0:
		vandal("ip", "link", "del", "sdcvxl7")
	case 1:
		vandal("nsenter", append(inZone, "link", "del", "fabric0")...)
	case 2:
		vandal("nsenter", append(inZone, "neigh", "flush", "dev", "fabric0", "nud", "permanent")...)
	case 3:
		vandal("ip", "link", "set", "sdcvxl7", "down")
	case 4:
		vandal("nsenter", append(inZone, "link", "set", "fabric0", "down")...)
	case 5:
		vandal("nsenter", append(inZone, "addr", "flush", "dev", "fabric0")...)
	case 6:
		vandal("bridge", "fdb", "add", fmt.Sprintf("02:ff:ff:ff:ff:%02x", rand.IntN(256)), "dev", "sdcvxl7", "dst", "192.0.2.9")
	default:
		for _, l := range w.dump(t, zone).Links {
			if len(l.FDB) > 0 {
				vandal("bridge", "fdb", "del", l.FDB[rand.IntN(len(l.FDB))].MAC.String(), "dev", l.Name)
			}
		}
	}
}

func vandal(name string, args ...string) { _ = exec.Command(name, args...).Run() }
