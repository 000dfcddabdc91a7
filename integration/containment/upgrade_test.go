package containment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/integration/rig"
	"rutter/log"
)

// firstVersion is the last revision that knows feature version 1 only.
const firstVersion = "5b1626e"

// previous builds the program of PREVIOUS_RELEASE, or of firstVersion.
func previous(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("bash", "-euo", "pipefail", "-c",
		`git -C ../.. archive "$1" | tar -x -C "$2" && cd "$2" && CGO_ENABLED=0 go build -trimpath -o previous ./cmd/rutter`,
		"bash", cmp.Or(os.Getenv("PREVIOUS_RELEASE"), firstVersion), dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "previous")
}

// A cluster of the first feature version is upgraded server by server under a stream
// of refusals, taken back, and upgraded again, until its version rises: what the
// servers agree on, of which the refusals are a part, never differs.
func TestUpgradeUnderRefusals(t *testing.T) {
	t.Parallel()
	if os.Getenv("RUTTER_LONG") == "" {
		t.Skip("builds another release and takes minutes: RUTTER_LONG=1")
	}
	old := previous(t)
	c := rig.Cluster(t, bench.Options{Program: old, Flags: []string{"--feature-settle", "20s"}})
	r := refuse(t, c)
	for _, binary := range []string{program, old, program} {
		for _, s := range c.Servers {
			r.more(t, 30)
			if err := s.Stop(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			s.Program = binary
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			if err := c.AwaitReady(patience(t), s); err != nil {
				t.Fatal(err)
			}
			agree(t, c)
		}
	}
	for ctx := patience(t); ; {
		risen := 0
		for _, s := range c.Servers {
			if status, err := c.Client.StatusOf(ctx, s.URL); err == nil && status.Detail.Feature >= log.FeatureContained {
				risen++
			}
		}
		if risen == len(c.Servers) {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("the feature version does not rise")
		}
		time.Sleep(100 * time.Millisecond)
	}
	r.more(t, 100)
	agree(t, c)
	r.stop(t)
}

// refusals are made by writers until they are stopped.
type refusals struct {
	end     context.CancelFunc
	running sync.WaitGroup
	made    atomic.Int64 // refused
	taken   atomic.Int64 // accepted, beside them
	failed  atomic.Pointer[error]
}

// refuse starts writers of changes that are refused, in words that differ between the
// feature versions, and of some that are not.
func refuse(t *testing.T, c *bench.Cluster) *refusals {
	ctx, cancel := context.WithCancel(t.Context())
	r := &refusals{end: cancel}
	t.Cleanup(cancel)
	stream := c.Client.NewStream()
	r.running.Go(func() { _ = stream.Run(ctx) }) // it ends with the context
	for i := range 4 {
		r.running.Go(func() {
			for n := 0; ctx.Err() == nil && r.failed.Load() == nil; n++ {
				var err error
				op := oddOperation(i, n)
				change := &log.Change{ID: client.NewChangeID(), Ops: []log.Op{op}}
				if n%2 == 0 {
					_, err = stream.Submit(ctx, change)
				} else {
					_, err = c.Client.Submit(ctx, change)
				}
				var refusal *log.Refusal
				switch {
				case errors.As(err, &refusal):
					r.made.Add(1)
				case err == nil:
					r.taken.Add(1)
				case ctx.Err() == nil && !errors.Is(err, client.ErrUnavailable):
					r.failed.Store(&err)
				}
			}
		})
	}
	return r
}

// oddOperation is the n-th of writer i.
func oddOperation(i, n int) log.Op {
	long := strings.Repeat("\x7fü\" ", 1+n%40)
	switch n / 2 % 5 {
	case 0:
		return log.Op{Action: log.Delete, Kind: log.KindNIC, ID: long}
	case 1:
		return log.Op{Action: log.Delete, Kind: log.KindNICTag, ID: strings.Repeat("id", 1+n%2000)}
	case 2:
		return log.Op{Action: log.Create, Kind: log.KindSetting, Set: []string{"name", "value"}, Object: &log.Setting{Name: long + long, Value: long}}
	case 3:
		return log.Op{Action: log.Create, Kind: log.KindVM, Set: []string{"state", "zonename"}, Object: &log.VM{State: long, Zonename: long + long}}
	default:
		return log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: fmt.Sprintf("w%d_%d", i, n)}}
	}
}

// more waits until so many more were refused.
func (r *refusals) more(t *testing.T, n int64) {
	t.Helper()
	begun := r.made.Load()
	for ctx := patience(t); r.made.Load() < begun+n; time.Sleep(10 * time.Millisecond) {
		if err := r.failed.Load(); err != nil {
			t.Fatal(*err)
		}
		if ctx.Err() != nil {
			t.Fatalf("no %d refusals within %v", n, within)
		}
	}
}

func (r *refusals) stop(t *testing.T) {
	t.Helper()
	r.end()
	r.running.Wait()
	t.Logf("%d refused, %d accepted", r.made.Load(), r.taken.Load())
	if r.taken.Load() == 0 {
		t.Error("nothing was accepted")
	}
}
