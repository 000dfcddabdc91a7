package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"rutter/log"
	"rutter/projections"
)

// Interrupted begins the failure of a task that was begun, and whose progress is
// unknown.
const Interrupted = "interrupted"

// Bounds and times.
const (
	// MaxRunning bounds the tasks that run at once; others wait unclaimed.
	MaxRunning = 16
	maxFailure = projections.MaxTextBytes
	againMin   = 200 * time.Millisecond // pause before a change that no server accepted is sent again; doubles
	againMax   = 5 * time.Second
	lookEvery  = 10 * time.Second // a check without any known change
)

// State is this node's part of the log; *agent.Agent has it.
type State interface {
	// OpenTasks are the CN's tasks that have not ended.
	OpenTasks() []*log.Task
}

// Submit sends a change, which is accepted or refused as a whole. A refusal is a
// *log.Refusal as the error. The same change may be submitted again: it is applied
// once.
type Submit func(ctx context.Context, change *log.Change) (log.Result, error)

// Kind runs a task. ctx ends at the task's time, or when the agent stops. The result,
// which may be nil, is shown to the client.
type Kind func(ctx context.Context, params json.RawMessage) (result any, err error)

// Config configures a Runner. All fields except Logger and Now must be given.
type Config struct {
	// Incarnation is that of this agent's process.
	Incarnation uint64
	State       State
	Submit      Submit
	// NewID draws the id of a change: a UUID of version 7.
	NewID func() log.UUID
	// Folder holds results that the log does not have yet. It is made if it does not
	// exist, and belongs to one agent.
	Folder string
	// Kinds are the tasks that this node can run, by name.
	Kinds  map[string]Kind
	Logger *slog.Logger // nil discards
	// Now returns the time for the task's history; default time.Now.
	Now func() time.Time
}

// Runner runs tasks.
type Runner struct {
	cfg    Config
	logger *slog.Logger
	kept   store
	woken  chan struct{} // holds a token when there may be something to do
	room   chan struct{} // taken by each running task

	mu   sync.Mutex // protects busy
	busy map[log.UUID]struct{}
}

// New returns a runner that has started nothing. Errors: about cfg, and those of the
// folder.
func New(cfg Config) (*Runner, error) {
	if cfg.Incarnation == 0 || cfg.State == nil || cfg.Submit == nil || cfg.NewID == nil || cfg.Folder == "" {
		return nil, errors.New("task: a runner needs an incarnation, the state, servers, ids and a folder")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	kept, err := openFolder(cfg.Folder, cfg.Logger)
	if err != nil {
		return nil, err
	}
	return &Runner{
		cfg: cfg, logger: cfg.Logger, kept: kept, woken: make(chan struct{}, 1),
		room: make(chan struct{}, MaxRunning), busy: make(map[log.UUID]struct{}),
	}, nil
}

// Wake requests a check of the state.
func (r *Runner) Wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// Run runs tasks until ctx ends; it returns nil when all tasks that it began have
// ended.
func (r *Runner) Run(ctx context.Context) error {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		r.look(ctx, &tasks)
		select {
		case <-r.woken:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// look begins the pending work: first results to report, then tasks, oldest first.
func (r *Runner) look(ctx context.Context, tasks *sync.WaitGroup) {
	for _, one := range r.kept.all() {
		r.begin(one.ID, func() {
			tasks.Go(func() {
				defer r.end(one.ID)
				r.record(ctx, one)
			})
		})
	}
	open := r.cfg.State.OpenTasks()
	slices.SortFunc(open, func(a, b *log.Task) int {
		return max(min(int(a.Created-b.Created), 1), -1)*2 + strings.Compare(a.ID(), b.ID())
	})
	for _, t := range open {
		if t.Via != log.ViaFeed || r.kept.has(t.UUID) {
			continue
		}
		switch {
		case t.Status == log.TaskActive && t.ClaimedBy < r.cfg.Incarnation:
			r.begin(t.UUID, func() {
				tasks.Go(func() {
					defer r.end(t.UUID)
					r.giveUp(ctx, t)
				})
			})
		case t.Status == log.TaskQueued:
			select {
			case r.room <- struct{}{}:
			default:
				return // the next task that ends looks again
			}
			if !r.begin(t.UUID, func() {
				tasks.Go(func() {
					defer func() { <-r.room; r.end(t.UUID); r.Wake() }()
					r.do(ctx, t)
				})
			}) {
				<-r.room
			}
		}
	}
}

// begin calls start unless the task is being handled already.
func (r *Runner) begin(id log.UUID, start func()) bool {
	r.mu.Lock()
	_, busy := r.busy[id]
	if !busy {
		r.busy[id] = struct{}{}
	}
	r.mu.Unlock()
	if !busy {
		start()
	}
	return !busy
}

func (r *Runner) end(id log.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, id)
}

// do claims a task, runs it, stores its result, and reports it.
func (r *Runner) do(ctx context.Context, t *log.Task) {
	err := r.submit(ctx, r.cfg.NewID(), t.UUID, &log.Task{Status: log.TaskActive, ClaimedBy: r.cfg.Incarnation}, "claimed_by", "status")
	if err != nil {
		return // another's, or over, or this process ends: if the claim was written, the next process reports the task as interrupted
	}
	r.logger.Info("task begins", "task", t.UUID, "what", t.Task)
	result, err := r.call(ctx, t)
	one := r.outcome(t, result, err)
	if err := r.kept.put(one); err != nil {
		r.logger.Error("the result of a task is not on disk: it is lost if this process ends before the log has it", "task", t.UUID, "error", err)
	}
	r.logger.Info("task has ended", "task", t.UUID, "what", t.Task, "status", one.Status, "failure", one.Failure)
	r.record(ctx, one)
}

// call runs the task within its time. The time begins when the claim was written, and
// its length comes from the task, so this node's clock does not matter.
func (r *Runner) call(ctx context.Context, t *log.Task) (result any, err error) {
	kind, known := r.cfg.Kinds[t.Task]
	if !known {
		names := slices.Sorted(maps.Keys(r.cfg.Kinds))
		return nil, fmt.Errorf("this compute node does not know the task %q: it does %s", t.Task, strings.Join(names, ", "))
	}
	params := json.RawMessage(t.Params)
	if t.Params == "" {
		params = json.RawMessage("{}")
	}
	within, cancel := context.WithTimeout(ctx, time.Duration(t.Timeout)*time.Second)
	defer cancel()
	result, err = kind(within, params)
	switch {
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("%s: the agent was stopped: %w", Interrupted, err)
	case err != nil && within.Err() != nil:
		err = fmt.Errorf("timed out after %d s: %w", t.Timeout, err)
	}
	return result, err
}

// outcome is the result of a task, as it is stored and reported.
func (r *Runner) outcome(t *log.Task, result any, err error) Outcome {
	one := Outcome{ID: t.UUID, ClaimedBy: r.cfg.Incarnation, ChangeID: r.cfg.NewID(), Status: log.TaskComplete}
	event := map[string]any{"name": "finish", "timestamp": log.TimeOf(r.cfg.Now().UTC())}
	if err != nil {
		text := strings.ToValidUTF8(err.Error(), "?")
		one.Status, one.Failure = log.TaskFailure, text[:min(len(text), maxFailure)]
		event["name"], event["event"] = "error", map[string]any{"error": map[string]string{"message": one.Failure}}
	}
	if result != nil {
		text, failed := json.Marshal(result)
		if failed != nil || len(text) > projections.MaxTaskBytes {
			text = []byte(`{"note":"the result is not kept: it is longer than a task may hold"}`)
		}
		one.Result = string(text)
	}
	text, failed := json.Marshal(event)
	if failed == nil && len(text) <= projections.MaxFieldJSON {
		one.History = []string{string(text)}
	}
	return one
}

// giveUp reports a task that an earlier process claimed as interrupted.
func (r *Runner) giveUp(ctx context.Context, t *log.Task) {
	failure := fmt.Sprintf("%s: the agent that did it (incarnation %d) has ended and left no result; it may have been done", Interrupted, t.ClaimedBy)
	_ = r.submit(ctx, r.cfg.NewID(), t.UUID, // refused: it has ended; not sent: the next process finds it
		&log.Task{Status: log.TaskFailure, Failure: failure, ClaimedBy: r.cfg.Incarnation}, "claimed_by", "failure", "status")
}

// record sends a result to the log, and then removes it from disk.
func (r *Runner) record(ctx context.Context, one Outcome) {
	err := r.submit(ctx, one.ChangeID, one.ID, &log.Task{
		Status: one.Status, Failure: one.Failure, Result: one.Result, History: one.History, ClaimedBy: one.ClaimedBy,
	}, "claimed_by", "failure", "history", "result", "status")
	var refusal *log.Refusal
	if errors.As(err, &refusal) && refusal.Code == log.CodeTooOld {
		one.ChangeID = r.cfg.NewID() // if the first was written after all, the task has ended, and this one is refused
		err = r.kept.put(one)
		r.Wake()
		if err == nil {
			return
		}
	}
	if err != nil && refusal == nil {
		return // this process ends: the next one reports it
	}
	if refusal != nil {
		r.logger.Warn("the result of a task is not in the log", "task", one.ID, "status", one.Status, "error", refusal)
	}
	if err := r.kept.drop(one.ID); err != nil {
		r.logger.Error("a result that the log has cannot be removed from disk", "task", one.ID, "error", err)
	}
}

// submit updates a task of the log, and repeats until the result is known. Errors: the
// refusal, or ctx's.
func (r *Runner) submit(ctx context.Context, change, id log.UUID, t *log.Task, set ...string) error {
	op := log.Op{Action: log.Update, Kind: log.KindTask, ID: id.String(), Set: set, Object: t}
	for pause := againMin; ; pause = min(2*pause, againMax) {
		_, err := r.cfg.Submit(ctx, &log.Change{ID: change, Ops: []log.Op{op}})
		var refusal *log.Refusal
		if err == nil || errors.As(err, &refusal) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
