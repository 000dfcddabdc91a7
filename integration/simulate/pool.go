package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"rutter/integration/simulate/disk"
	"rutter/integration/simulate/history"
	"rutter/integration/simulate/mutants"
)

const (
	// Limit is how much processor time a history of usualMachines may take; larger ones may take
	// more in proportion. Most take two seconds.
	Limit = 60 * time.Second
	// serverWeight is how many agents are as much work as a server.
	serverWeight = 4
	// usualMachines is the work of three servers and five agents.
	usualMachines = 3*serverWeight + 5
	// outputKept bounds what is kept of what a process prints, in bytes at its beginning and
	// as much at its end: the stacks of all goroutines of a history have less.
	outputKept = 1 << 20
	// perProcess is how many histories a process runs before another takes its place, so that
	// what one leaves behind cannot grow for a whole night.
	perProcess = 200
	// garbage and memory let a process collect its garbage a quarter as often as usual, as long as it
	// needs little memory: a seventh of its time less.
	garbage, memory = "400", "400MiB"
	// grace is what a process gets beyond its limit to print its goroutines.
	grace = 30 * time.Second
)

// Pool runs histories in processes of a test program.
type Pool struct {
	Program string        // a test program of this package
	World   string        // which of its worlds; "": the whole cluster
	Limit   time.Duration // of a usual history in processor time; 0: Limit
	Log     string        // a file for what happens in a history; "": none
	Mutant  string        // which of the mutants that were built into Program; "": none

	mu   sync.Mutex
	idle []*worker
}

// Run runs one history. It fails if its process ends. An error means that it could not be run.
func (p *Pool) Run(ctx context.Context, h history.History) (Result, error) {
	w, err := p.take()
	if err != nil {
		return Result{}, err
	}
	limit := p.Limit
	if limit == 0 {
		limit = Limit
	}
	result, alive, err := w.run(ctx, job{h, scaled(limit, h), p.Log})
	if w.done++; alive && w.done < perProcess {
		p.give(w)
	} else {
		w.end()
	}
	return result, err
}

// scaled is the limit of a history, in processor time, if that of a usual one is limit.
func scaled(limit time.Duration, h history.History) time.Duration {
	return limit * time.Duration(max(h.Servers*serverWeight+h.Agents, usualMachines)) / usualMachines
}

// Close ends the processes. Nothing may run any more.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.idle {
		w.end()
	}
	p.idle = nil
}

func (p *Pool) take() (*worker, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		w := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return w, nil
	}
	return startWorker(p.Program, p.World, p.Mutant)
}

func (p *Pool) give(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, w)
}

// worker is one process.
type worker struct {
	cmd    *exec.Cmd
	jobs   io.WriteCloser
	from   *json.Decoder
	pipe   *os.File
	output *output
	folder string // its temporary files, in memory; "": there is no such place
	done   int
}

func startWorker(program, world, mutant string) (*worker, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	defer write.Close()
	w := &worker{pipe: read, from: json.NewDecoder(read), output: &output{}}
	w.cmd = exec.Command(program, "-test.run=^TestWorker$", "-test.timeout=0", "-test.count=1")
	w.cmd.Env = append(os.Environ(), workerEnv+"="+world, mutants.ChosenBy+"="+mutant, "GOMAXPROCS=1", "GOTRACEBACK=all", "GOGC="+garbage, "GOMEMLIMIT="+memory)
	// On a real disk a history waits for it most of its time: 22 s where it is 3 s in memory.
	if folder, err := disk.Memory("simulate"); err == nil {
		w.folder = folder
		w.cmd.Env = append(w.cmd.Env, "TMPDIR="+folder)
	}
	w.cmd.ExtraFiles = []*os.File{write}
	w.cmd.Stdout, w.cmd.Stderr = w.output, w.output
	w.cmd.WaitDelay = 5 * time.Second // a process that it left behind may hold its output
	if w.jobs, err = w.cmd.StdinPipe(); err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		read.Close()
		w.clear()
		return nil, fmt.Errorf("simulate: %s does not start: %w", program, err)
	}
	return w, nil
}

// run runs one history, and reports whether the process can run another.
func (w *worker) run(ctx context.Context, j job) (result Result, alive bool, err error) {
	begun := time.Now()
	w.output.reset()
	kill := time.AfterFunc(slack*j.Limit+grace, func() { _ = w.cmd.Process.Kill() })
	defer kill.Stop()
	stop := context.AfterFunc(ctx, func() { _ = w.cmd.Process.Kill() })
	defer stop()
	text, err := json.Marshal(j)
	if err != nil {
		return result, false, fmt.Errorf("simulate: %w", err)
	}
	_, _ = w.jobs.Write(append(text, '\n')) // a process that has ended says so by its results
	if w.from.Decode(&result) == nil {
		return result, true, nil
	}
	if ctx.Err() != nil {
		return result, false, ctx.Err()
	}
	ended := w.cmd.Wait()
	printed := w.output.String()
	result = Result{Failures: []string{reason(printed, ended)}, Real: time.Since(begun), Output: printed}
	return result, false, nil
}

// reason is why a process ended, in one line.
func reason(text string, ended error) string {
	for _, mark := range []string{"panic: ", "fatal error: "} {
		if i := strings.Index(text, mark); i >= 0 {
			line, _, _ := strings.Cut(text[i:], "\n")
			return "the process of the history ended: " + line
		}
	}
	return fmt.Sprintf("the process of the history ended: %v", ended)
}

// end ends the process.
func (w *worker) end() {
	w.jobs.Close()
	late := time.AfterFunc(grace, func() { _ = w.cmd.Process.Kill() })
	defer late.Stop()
	_ = w.cmd.Wait() // also if it was awaited before
	w.pipe.Close()
	w.clear()
}

// clear removes the temporary files of a process that has ended.
func (w *worker) clear() {
	if w.folder != "" {
		_ = disk.Clear(w.folder) // what stays is seen in /dev/shm, and in no result
	}
}

// output keeps the beginning and the end of what a process prints.
type output struct {
	mu    sync.Mutex
	first bytes.Buffer
	last  bytes.Buffer
}

// Write never fails, so that a process never waits.
func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	head := min(len(text), outputKept-o.first.Len())
	o.first.Write(text[:head])
	o.last.Write(text[head:])
	if over := o.last.Len() - 2*outputKept; over > 0 {
		o.last.Next(over + outputKept)
	}
	return len(text), nil
}

func (o *output) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.first.Reset()
	o.last.Reset()
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.first.String() + o.last.String()
}
