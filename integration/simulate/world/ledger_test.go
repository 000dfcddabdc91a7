package world_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/agent/netsync"
	"rutter/agent/vminfo/vmdoc"
	"rutter/integration/simulate/disk"
	"rutter/log"
	"rutter/projections"
)

// bare is a compute node without VMs, and the part of an empty log of a cluster.
type bare struct{ cluster log.UUID }

func (b bare) Part(fn func(state *projections.State, cluster log.UUID, seq log.Seq, complete bool)) {
	fn(projections.NewState(), b.cluster, 1, true)
}

func (bare) VMs() ([]netsync.VM, func(log.UUID) bool) {
	return nil, func(log.UUID) bool { return true }
}
func (bare) Edit(log.UUID, func(vmdoc.Value) vmdoc.Value) error { return errors.New("no VM") }
func (bare) Reboot(log.UUID) error                              { return nil }
func (bare) Raw(context.Context, string, string, []byte) (json.RawMessage, error) {
	return nil, errors.New("no server")
}

// TestLedgerSurvivesPower: what a node noted of its NICs is there after its power failed. The folder
// was not synced after the rename, and a ledger of long before came back (seed 1000000052).
func TestLedgerSurvivesPower(t *testing.T) {
	d := disk.New(t)
	for seed := range uint64(12) {
		folder := d.Folder(fmt.Sprintf("cn%d", seed))
		var last log.UUID
		for i := range byte(2) {
			last = log.UUID{1, i, 6: 0x40, 8: 0x80}
			noted(t, folder.Path(), last)
		}
		next, err := folder.Crash(fmt.Sprintf("cn%d-after", seed), true, seed)
		if err != nil {
			t.Fatal(err)
		}
		if text := ledger(next.Path()); !strings.Contains(text, last.String()) {
			t.Fatalf("seed %d: after the power failed the ledger is %q; want that of %s", seed, text, last)
		}
	}
}

func ledger(folder string) string {
	text, _ := os.ReadFile(filepath.Join(folder, "nics.json"))
	return string(text)
}

// noted runs a syncer until its ledger is about a cluster.
func noted(t *testing.T, folder string, cluster log.UUID) {
	t.Helper()
	all := bare{cluster}
	s, err := netsync.New(netsync.Config{CN: log.UUID{9}, Folder: folder, Incarnation: 1, Log: all, Node: all, Servers: all, NewID: func() log.UUID { return log.UUID{8} }, Every: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for ctx.Err() == nil && !strings.Contains(ledger(folder), cluster.String()) {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
