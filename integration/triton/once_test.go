package triton

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/agent/task"
	"rutter/api/client"
	"rutter/api/triton/cnapi"
	"rutter/integration/rig"
	"rutter/log"
	"rutter/projections"
	"rutter/raftstore"
)

// Sizes of a history of tasks.
const (
	onceTasks     = 12
	onceKills     = 4
	onceHistories = 2
	onceLong      = 30 // histories with RUTTER_LONG
	onceStep      = 400 * time.Millisecond
)

// onceServer is one of three stores, with the part of CNAPI that looks after tasks.
type onceServer struct {
	cfg   raftstore.Config
	store *raftstore.Store
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// backend shows a store as cnapi wants it.
type backend struct{ *raftstore.Store }

func (b backend) View(fn func(state *projections.State, head log.Cursor)) {
	b.Store.View(func(v raftstore.View) { fn(v.State, v.Head) })
}

func (b backend) AwaitReady(context.Context) error { return b.Ready() }

func (s *onceServer) start(t *testing.T) {
	t.Helper()
	var err error
	if s.store, err = raftstore.Open(s.cfg); err != nil {
		t.Fatal(err)
	}
	store := s.store
	service, err := cnapi.New(cnapi.Config{
		Store: backend{store}, Self: s.cfg.ID, Every: 100 * time.Millisecond, Leading: func() bool { return leads(store) },
		NewID: func() (log.UUID, error) { return client.NewChangeID(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.ended.Go(func() {
		if err := store.Run(ctx); err != nil {
			t.Errorf("%s: %v", s.cfg.ID, err)
		}
	})
	s.ended.Go(func() { _ = service.Run(ctx) })
}

func (s *onceServer) end(t *testing.T) {
	t.Helper()
	s.stop()
	s.ended.Wait()
	if err := s.store.Close(); err != nil {
		t.Errorf("%s: %v", s.cfg.ID, err)
	}
	s.store = nil
}

func leads(s *raftstore.Store) bool { return s.Status().State == "Leader" }

// onceWorld is three servers of which any may be down, and one compute node.
type onceWorld struct {
	t       *testing.T
	cn      log.UUID
	mu      sync.RWMutex // held to use a store; written while one ends or starts
	servers []*onceServer

	done  sync.Mutex // protects what follows
	begun map[string]int
	whole map[string]int
}

// up calls fn with a server that is up, from the nth on.
func (w *onceWorld) up(n int, fn func(*raftstore.Store)) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for i := range w.servers {
		if s := w.servers[(n+i)%len(w.servers)].store; s != nil {
			fn(s)
			return
		}
	}
}

// OpenTasks implements task.State, by any server, be it behind the others.
func (w *onceWorld) OpenTasks() (tasks []*log.Task) {
	w.up(rand.IntN(3), func(s *raftstore.Store) {
		s.View(func(v raftstore.View) {
			for rec := range v.State.OpenTasksOn(w.cn) {
				tasks = append(tasks, rec.Object.(*log.Task))
			}
		})
	})
	return tasks
}

var errNoAnswer = errors.New("no answer")

// submit implements task.Submit: some requests are lost, and some answers.
func (w *onceWorld) submit(ctx context.Context, change *log.Change) (result log.Result, err error) {
	fate := rand.IntN(10)
	if fate == 0 {
		return result, errNoAnswer
	}
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	copied := *change // a store keeps what it is given
	w.up(rand.IntN(3), func(s *raftstore.Store) { result, err = s.Propose(within, &copied) })
	switch {
	case fate == 1:
		return log.Result{}, errNoAnswer
	case err == nil && result.Refusal != nil:
		return result, result.Refusal
	}
	return result, err
}

// work is a task that takes some time, and is counted.
func (w *onceWorld) work(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		N  string
		MS int
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	count := func(in map[string]int) {
		w.done.Lock()
		defer w.done.Unlock()
		in[p.N]++
	}
	count(w.begun)
	select {
	case <-time.After(time.Duration(p.MS) * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	count(w.whole)
	return p, nil
}

// lives runs agents one after the other until ctx ends, the last of them to the end.
func (w *onceWorld) lives(ctx context.Context, folder string, first uint64, random *rand.Rand) {
	for incarnation := first; ctx.Err() == nil; incarnation++ {
		runner, err := task.New(task.Config{
			Incarnation: incarnation, State: w, Submit: w.submit, NewID: client.NewChangeID, Folder: folder, Kinds: map[string]task.Kind{"work": w.work},
		})
		if err != nil {
			w.t.Error(err)
			return
		}
		life, stop := context.WithTimeout(ctx, time.Duration(random.IntN(800))*time.Millisecond)
		var running sync.WaitGroup
		running.Go(func() { _ = runner.Run(life) })
		for life.Err() == nil { // as the feed wakes it
			runner.Wake()
			pauseFor(life, 20*time.Millisecond)
		}
		running.Wait()
		stop()
		pauseFor(ctx, time.Duration(random.IntN(700))*time.Millisecond) // the node is down
	}
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// kills ends leaders, and starts them again.
func (w *onceWorld) kills(random *rand.Rand) {
	for range onceKills {
		pauseFor(w.t.Context(), time.Duration(random.Int64N(int64(onceStep))))
		w.mu.Lock()
		var down *onceServer
		for _, s := range w.servers {
			if s.store != nil && leads(s.store) {
				down = s
				s.end(w.t)
				break
			}
		}
		w.mu.Unlock()
		pauseFor(w.t.Context(), time.Duration(random.Int64N(int64(onceStep))))
		if down != nil {
			w.mu.Lock()
			down.start(w.t)
			w.mu.Unlock()
		}
	}
}

// make writes a change, whichever server leads, and returns the ids of its objects.
func (w *onceWorld) make(op log.Op) []string {
	w.t.Helper()
	change := &log.Change{ID: client.NewChangeID(), Actor: "test", Ops: []log.Op{op}}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		result, err := w.submit(w.t.Context(), change)
		var refusal *log.Refusal
		if errors.As(err, &refusal) {
			w.t.Fatal(refusal)
		}
		if err == nil {
			return result.IDs
		}
		pauseFor(w.t.Context(), lookAgain)
	}
	w.t.Fatal("nobody takes a change")
	return nil
}

// task returns a task as one server has it.
func (w *onceWorld) task(id string) (found *log.Task) {
	w.up(0, func(s *raftstore.Store) {
		s.View(func(v raftstore.View) {
			if rec, ok := v.State.Get(log.KindTask, id); ok {
				found = rec.Object.(*log.Task)
			}
		})
	})
	return found
}

// Whichever server leads, whatever is lost on the way, and whenever the agent ends: a
// task is begun at most once, and ends, with its result or with a reason.
func TestTasksRunOnce(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 8))
	w := &onceWorld{t: t, cn: log.UUID{0xcc, 6: 0x40, 8: 0x80}, begun: map[string]int{}, whole: map[string]int{}}
	ports := rig.Ports(t, 3)
	var members []raftstore.Member
	for i, port := range ports {
		members = append(members, raftstore.Member{ID: fmt.Sprint("s", i+1), Address: fmt.Sprint("127.0.0.1:", port)})
	}
	dir := t.TempDir()
	for _, m := range members {
		s := &onceServer{cfg: raftstore.Config{
			ID: m.ID, Dir: filepath.Join(dir, m.ID), Listen: m.Address, InitialMembers: members, Heartbeat: 150 * time.Millisecond,
			Logger: slog.New(slog.DiscardHandler), MapBytes: 1 << 30,
		}}
		s.start(t)
		w.servers = append(w.servers, s)
	}
	defer func() {
		for _, s := range w.servers {
			s.end(t)
		}
	}()
	w.make(log.Op{Action: log.Create, Kind: log.KindServer, Object: &log.Server{UUID: w.cn}})
	histories := onceHistories
	if os.Getenv("RUTTER_LONG") != "" {
		histories = onceLong
	}
	for h := range histories {
		w.history(h, filepath.Join(dir, "agent"), random)
	}
}

// history makes tasks while servers and agents come and go, and judges how each ended.
func (w *onceWorld) history(h int, folder string, random *rand.Rand) {
	t := w.t
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	agents, nemesis := rand.New(rand.NewPCG(random.Uint64(), 1)), rand.New(rand.NewPCG(random.Uint64(), 2))
	running.Go(func() { w.lives(ctx, folder, uint64(h+1)*1000, agents) })
	var killing sync.WaitGroup
	killing.Go(func() { w.kills(nemesis) })
	ids := map[string]string{}
	for i := range onceTasks {
		name, timeout := fmt.Sprintf("%d.%d", h, i), uint64(60)
		if random.IntN(4) == 0 {
			timeout = 1 // so that it may be over before the agent took it
		}
		ids[name] = w.make(log.Op{Action: log.Create, Kind: log.KindTask, Object: &log.Task{
			Task: "work", Params: fmt.Sprintf(`{"N":%q,"MS":%d}`, name, random.IntN(400)), ServerUUID: w.cn, Timeout: timeout,
		}})[0]
		pauseFor(ctx, time.Duration(random.IntN(100))*time.Millisecond)
	}
	killing.Wait()
	ends := map[string]int{}
	for name, id := range ids {
		await(t, "task "+name+" has ended", func() bool {
			found := w.task(id)
			return found != nil && found.Ended()
		})
		found := w.task(id)
		w.done.Lock()
		begun, whole := w.begun[name], w.whole[name]
		w.done.Unlock()
		complete := found.Status == log.TaskComplete
		reason, _, _ := strings.Cut(found.Failure, ":")
		reason, _, _ = strings.Cut(reason, " after ")
		ends[found.Status+" "+reason]++
		switch {
		case begun > 1:
			t.Errorf("task %s was begun %d times: %s %s", name, begun, found.Status, found.Failure)
		case complete && (whole != 1 || !strings.Contains(found.Result, fmt.Sprintf(`"N":%q`, name))):
			t.Errorf("task %s is complete, and was done %d times, result %s", name, whole, found.Result)
		case !complete && reason != task.Interrupted && reason != "timed out":
			t.Errorf("task %s is %s: %s", name, found.Status, found.Failure)
		}
	}
	t.Logf("history %d: %v", h, ends)
}
