package task

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var cn = log.UUID{0xcc}

// cluster is a log with the real decisions, whose answers may be lost.
type cluster struct {
	mu     sync.Mutex
	state  *projections.State
	head   log.Seq
	seen   map[log.UUID]log.Result
	faults []int // one of each submit: 0 none, 1 lost on the way, 2 written and not answered
	drawn  uint32
}

var errLost = errors.New("no answer")

func newCluster() *cluster {
	c := &cluster{state: projections.NewState(), seen: make(map[log.UUID]log.Result)}
	c.apply(&log.Change{ID: c.newID(), Ops: []log.Op{{Action: log.Create, Kind: log.KindServer, Object: &log.Server{UUID: cn}}}})
	return c
}

func (c *cluster) newID() log.UUID {
	c.drawn++
	id := log.UUID{6: 0x70, 8: 0x80}
	binary.BigEndian.PutUint32(id[:], c.drawn)
	return id
}

func (c *cluster) lockedID() log.UUID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newID()
}

func (c *cluster) apply(change *log.Change) log.Result {
	if r, ok := c.seen[change.ID]; ok {
		return r
	}
	change.Time = c.state.Time() + 1
	events, result := rules.Decide(c.state, change)
	for _, e := range events {
		c.head++
		if _, err := c.state.Apply(c.head, e); err != nil {
			panic(err)
		}
	}
	c.seen[change.ID] = result
	return result
}

func (c *cluster) Submit(_ context.Context, change *log.Change) (log.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fault := 0
	if len(c.faults) > 0 {
		fault, c.faults = c.faults[0], c.faults[1:]
	}
	if fault == 1 {
		return log.Result{}, errLost
	}
	result := c.apply(change)
	if fault == 2 {
		return log.Result{}, errLost
	}
	if result.Refusal != nil {
		return result, result.Refusal
	}
	return result, nil
}

func (c *cluster) OpenTasks() (tasks []*log.Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for rec := range c.state.OpenTasksOn(cn) {
		tasks = append(tasks, rec.Object.(*log.Task))
	}
	return tasks
}

func (c *cluster) start(t interface{ Fatal(...any) }, name, params string) log.UUID {
	c.mu.Lock()
	defer c.mu.Unlock()
	result := c.apply(&log.Change{ID: c.newID(), Ops: []log.Op{{Action: log.Create, Kind: log.KindTask, Object: &log.Task{Task: name, Params: params, ServerUUID: cn, Timeout: 60}}}})
	if result.Refusal != nil {
		t.Fatal(result.Refusal)
	}
	id, _ := log.ParseUUID(result.IDs[0])
	return id
}

func (c *cluster) task(id log.UUID) *log.Task {
	c.mu.Lock()
	defer c.mu.Unlock()
	rec, _ := c.state.Get(log.KindTask, id.String())
	return rec.Object.(*log.Task)
}

// process is one life of an agent: when it is dead, nothing of it reaches the
// disk or the servers, whatever its goroutines still do.
type process struct {
	store
	c    *cluster
	mu   sync.Mutex
	dead bool
	stop context.CancelFunc
	over sync.WaitGroup
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

func (p *process) put(o Outcome) error {
	if p.isDead() {
		return errLost
	}
	return p.store.put(o)
}

func (p *process) drop(id log.UUID) error {
	if p.isDead() {
		return errLost
	}
	return p.store.drop(id)
}

func (p *process) Submit(ctx context.Context, change *log.Change) (log.Result, error) {
	if p.isDead() {
		return log.Result{}, errLost
	}
	return p.c.Submit(ctx, change)
}

func (p *process) kill() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.stop()
	p.over.Wait()
}

func live(t interface{ Fatal(...any) }, c *cluster, folder string, incarnation uint64, kinds map[string]Kind) *process {
	p := &process{c: c}
	r, err := New(Config{Incarnation: incarnation, State: c, Submit: p.Submit, NewID: c.lockedID, Folder: folder, Kinds: kinds})
	if err != nil {
		t.Fatal(err)
	}
	p.store = r.kept
	r.kept = p
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.over.Go(func() { _ = r.Run(ctx) })
	return p
}

// Whatever is lost on the way, and whenever the agent dies: each task is begun at
// most once, each ends, and one that says it is complete was done.
func TestRunsOnce(outer *testing.T) {
	root := outer.TempDir()
	runs := 0
	rapid.Check(outer, func(t *rapid.T) {
		runs++
		folder := filepath.Join(root, fmt.Sprint(runs))
		lives := rapid.SliceOfN(rapid.IntRange(0, 4000), 1, 4).Draw(t, "lives_ms")
		faults := rapid.SliceOfN(rapid.IntRange(0, 2), 0, 20).Draw(t, "faults")
		works := rapid.SliceOfN(rapid.IntRange(0, 3000), 1, 5).Draw(t, "works_ms")
		synctest.Test(outer, func(*testing.T) {
			c := newCluster()
			c.faults = faults
			var mu sync.Mutex
			begun, done := map[string]int{}, map[string]int{}
			kinds := map[string]Kind{"work": func(ctx context.Context, params json.RawMessage) (any, error) {
				var p struct {
					N  string
					MS int
				}
				if err := json.Unmarshal(params, &p); err != nil {
					return nil, err
				}
				mu.Lock()
				begun[p.N]++
				mu.Unlock()
				select {
				case <-time.After(time.Duration(p.MS) * time.Millisecond):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				mu.Lock()
				done[p.N]++
				mu.Unlock()
				return p, nil
			}}
			var ids []log.UUID
			for i, ms := range works {
				ids = append(ids, c.start(t, "work", fmt.Sprintf(`{"N":"%d","MS":%d}`, i, ms)))
			}
			for i, ms := range append(lives, 60_000) {
				p := live(t, c, folder, uint64(i+1), kinds)
				time.Sleep(time.Duration(ms) * time.Millisecond)
				p.kill()
			}
			for i, id := range ids {
				n := fmt.Sprint(i)
				task := c.task(id)
				switch {
				case begun[n] > 1:
					t.Errorf("task %s was begun %d times", n, begun[n])
				case !task.Ended():
					t.Errorf("task %s is %s at the end", n, task.Status)
				case task.Status == log.TaskComplete && (done[n] != 1 || !strings.Contains(task.Result, `"N":"`+n+`"`)):
					t.Errorf("task %s is complete, done %d times, result %s", n, done[n], task.Result)
				case task.Status == log.TaskFailure && !strings.HasPrefix(task.Failure, Interrupted):
					t.Errorf("task %s failed: %s", n, task.Failure)
				}
			}
		})
	})
}

// await waits in the bubble of a test until a task has ended.
func await(t *testing.T, c *cluster, id log.UUID) *log.Task {
	t.Helper()
	for range 1000 {
		if task := c.task(id); task.Ended() {
			return task
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
	}
	t.Fatalf("task %s has not ended", id)
	return nil
}

func TestFailures(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		kinds := map[string]Kind{
			"nop":  Nop,
			"slow": func(ctx context.Context, _ json.RawMessage) (any, error) { <-ctx.Done(); return nil, ctx.Err() },
			"long": func(context.Context, json.RawMessage) (any, error) { return strings.Repeat("x", 1<<20), nil },
		}
		p := live(t, c, folder, 1, kinds)
		defer p.kill()
		for name, want := range map[string]string{
			"nop": `complete "" {}`, "dance": `failure "this compute node does not know the task \"dance\": it does long, nop, slow" `,
			"slow": `failure "timed out after 60 s: context deadline exceeded" `,
			"long": `complete "" {"note":"the result is not kept: it is longer than a task may hold"}`,
		} {
			task := await(t, c, c.start(t, name, ""))
			if got := fmt.Sprintf("%s %q %s", task.Status, task.Failure, task.Result); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
			if len(task.History) != 1 {
				t.Errorf("%s: history %v", name, task.History)
			}
		}
		if left := p.all(); len(left) != 0 {
			t.Errorf("%d results are kept although the log has them", len(left))
		}
	})
}

func TestExecute(t *testing.T) {
	result, err := Execute(t.Context(), json.RawMessage(`{"script":"echo $1 $X; echo oops >&2; exit 3","args":["a"],"env":{"X":"b"}}`))
	if got, ok := result.(Executed); !ok || got.ExitStatus != 3 || got.Stdout != "a b\n" || got.Stderr != "oops\n" || err == nil || err.Error() != "exit status 3: oops" {
		t.Errorf("got %+v, %v", result, err)
	}
	result, err = Execute(t.Context(), json.RawMessage(`{"script":"yes | head -c 100000"}`))
	if got := result.(Executed); err != nil || !got.Cut || len(got.Stdout) != maxOutput {
		t.Errorf("kept %d bytes, cut %v, %v", len(got.Stdout), got.Cut, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Execute(ctx, json.RawMessage(`{"script":"sleep 100 & wait"}`)); err == nil {
		t.Error("a command outlived its time")
	}
	for _, bad := range []string{`{}`, `[]`, `{"script":3}`} {
		if _, err := Execute(t.Context(), json.RawMessage(bad)); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

// A file that is damaged is put aside, and does not stop the others.
func TestDamagedResult(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, log.UUID{1}.String()+".json")
	if err := os.WriteFile(name, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster()
	r, err := New(Config{Incarnation: 1, State: c, Submit: c.Submit, NewID: c.lockedID, Folder: folder})
	if err != nil || len(r.kept.all()) != 0 {
		t.Fatalf("%v, kept %v", err, r.kept.all())
	}
	if _, err := os.Stat(name + ".damaged"); err != nil {
		t.Error(err)
	}
}

func FuzzDecodeOutcome(f *testing.F) {
	f.Add([]byte(`{"id":"00000000-0000-0000-0000-000000000001","claimed_by":1,"change_id":"00000000-0000-0000-0000-000000000002","status":"complete"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if one, err := decodeOutcome(text); err == nil && (one.ID.IsZero() || one.ClaimedBy == 0) {
			t.Errorf("%q was accepted as %+v", text, one)
		}
	})
}
