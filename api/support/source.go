package support

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Parts that every daemon has.
const (
	Logs       = "logs"
	Settings   = "settings"
	Goroutines = "goroutines"
	Heap       = "heap"
	Runtime    = "runtime"
)

// Parts that a daemon adds itself.
const (
	Status  = "status"
	Ready   = "readyz"
	Metrics = "metrics"
)

// Bounds of a part, and why.
const (
	// MaxPart is how many bytes of one part are given. The goroutines of a server in
	// trouble take 1 to 2 MiB.
	MaxPart = 4 << 20
	// PartTime bounds the collecting of one part, and the wait for the same part of
	// another caller. Reading a status takes a disk, which may hang.
	PartTime = 5 * time.Second
	// maxStacks is up to how many goroutines each stack is written out. Above, equal stacks
	// are counted, because to write them out stops the process for longer.
	maxStacks = 10000
)

// Errors of Collect.
var (
	// ErrNoPart: the daemon has no part of that name.
	ErrNoPart = errors.New("support: no such part")
	// ErrBusy: the part is being collected for another caller, and does not end.
	ErrBusy = errors.New("support: the part is being collected for another caller: try again")
	// ErrLate: the part was not there in time.
	ErrLate = errors.New("support: it took too long")
)

// Setting is one setting of a daemon.
type Setting struct {
	Name, Value string
	Set         bool // not the default
}

// Config says what a Source tells.
type Config struct {
	Version  string
	Ring     *Ring // nil: no log lines
	Settings []Setting
	// Folder of the daemon's data, whose file system is looked at; "": none.
	Folder string
	// Secrets are removed wherever they stand.
	Secrets []string
}

// Collector writes a part. It must end when ctx does, as far as it can.
type Collector func(ctx context.Context, w io.Writer) error

// Source has the parts of one daemon. Add must not be called after the first Collect.
type Source struct {
	cfg     Config
	started time.Time
	parts   map[string]*part
	given   atomic.Uint64
	failed  atomic.Uint64
}

// part is how one part is collected, by one caller at a time.
type part struct {
	collect Collector
	turn    chan struct{} // has a token while it is collected
	binary  bool
}

// New returns the source of a daemon.
func New(cfg Config) *Source {
	s := &Source{cfg: cfg, started: time.Now(), parts: make(map[string]*part)}
	s.Add(Logs, s.logs)
	s.Add(Settings, s.settings)
	s.Add(Goroutines, goroutines)
	s.Add(Heap, func(_ context.Context, w io.Writer) error { return pprof.Lookup("heap").WriteTo(w, 0) })
	s.parts[Heap].binary = true
	s.Add(Runtime, s.runtime)
	return s
}

// Add adds a part of text, or replaces it.
func (s *Source) Add(name string, collect Collector) {
	s.parts[name] = &part{collect: collect, turn: make(chan struct{}, 1)}
}

// Parts returns the names of the parts, sorted.
func (s *Source) Parts() []string { return slices.Sorted(maps.Keys(s.parts)) }

// Counts returns how many parts were given, and how many could not be.
func (s *Source) Counts() (given, failed uint64) { return s.given.Load(), s.failed.Load() }

// LogBytes returns how many bytes of log lines the daemon keeps.
func (s *Source) LogBytes() int {
	if s.cfg.Ring == nil {
		return 0
	}
	return s.cfg.Ring.Bytes()
}

// Collect returns a part, without what is secret: at most MaxPart bytes, within PartTime. A
// text that is longer is cut, and says so. Errors: ErrNoPart, ErrBusy, ErrLate, and those
// of the part.
func (s *Source) Collect(ctx context.Context, name string) ([]byte, error) {
	p := s.parts[name]
	if p == nil {
		return nil, fmt.Errorf("%w: %q: there are %s", ErrNoPart, name[:min(len(name), 64)], strings.Join(s.Parts(), ", "))
	}
	text, err := s.collect(ctx, p)
	if err != nil {
		s.failed.Add(1)
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.given.Add(1)
	if p.binary {
		return text, nil
	}
	text, _ = Scrub(text, s.cfg.Secrets...)
	return text, nil
}

func (s *Source) collect(ctx context.Context, p *part) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, PartTime)
	defer cancel()
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ErrBusy
	}
	type result struct {
		text []byte
		err  error
	}
	ended := make(chan result, 1)
	go func() { // it may hang with the disk: its turn ends with it, so there is only one
		defer func() { <-p.turn }()
		w := &limited{room: MaxPart}
		err := p.collect(ctx, w)
		switch {
		case w.cut > 0 && p.binary:
			err = errors.Join(err, fmt.Errorf("it has more than %d bytes", MaxPart))
		case w.cut > 0:
			fmt.Fprintf(&w.Buffer, "\n[cut here: %d bytes more]\n", w.cut)
		}
		ended <- result{w.Bytes(), err}
	}()
	select {
	case r := <-ended:
		return r.text, r.err
	case <-ctx.Done():
		return nil, ErrLate
	}
}

// limited is a buffer that counts what has no room.
type limited struct {
	bytes.Buffer
	room, cut int
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	take := min(len(p), l.room)
	l.room -= take
	l.cut += len(p) - take
	l.Buffer.Write(p[:take])
	return len(p), nil
}

func (s *Source) logs(_ context.Context, w io.Writer) error {
	if s.cfg.Ring == nil {
		return errors.New("this daemon keeps no log lines")
	}
	text, dropped := s.cfg.Ring.Text()
	if dropped > 0 {
		fmt.Fprintf(w, "[%d older lines are not kept]\n", dropped)
	}
	_, err := w.Write(text)
	return err
}

func (s *Source) settings(_ context.Context, w io.Writer) error {
	for _, one := range s.cfg.Settings {
		from := ""
		if one.Set {
			from = "   # set"
		}
		fmt.Fprintf(w, "%s = %q%s\n", one.Name, one.Value, from)
	}
	return nil
}

func goroutines(_ context.Context, w io.Writer) error {
	n, form := runtime.NumGoroutine(), 2
	if n > maxStacks {
		form = 1
	}
	fmt.Fprintf(w, "%d goroutines\n\n", n)
	return pprof.Lookup("goroutine").WriteTo(w, form)
}

// runtime writes the program, its process and its machine.
func (s *Source) runtime(_ context.Context, w io.Writer) error {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	host, _ := os.Hostname() // "" if the kernel has none
	fmt.Fprintf(w, "version %s\ngo %s %s/%s\npid %d\nhost %s\nstarted %s\nnow %s\nprocessors %d\ngoroutines %d\nheap_bytes %d\nsystem_bytes %d\ncollections %d\n",
		s.cfg.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, os.Getpid(), host, s.started.UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339Nano),
		runtime.GOMAXPROCS(0), runtime.NumGoroutine(), m.HeapAlloc, m.Sys, m.NumGC)
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		fmt.Fprintf(w, "open_files_limit %d\n", files.Cur)
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		fmt.Fprintf(w, "kernel %s\n", unix.ByteSliceToString(name.Release[:]))
	}
	var disk unix.Statfs_t
	if s.cfg.Folder != "" {
		if err := unix.Statfs(s.cfg.Folder, &disk); err != nil {
			fmt.Fprintf(w, "disk of %s: %v\n", s.cfg.Folder, err)
		} else {
			fmt.Fprintf(w, "disk of %s: %d of %d bytes free\n", s.cfg.Folder, disk.Bavail*uint64(disk.Bsize), disk.Blocks*uint64(disk.Bsize))
		}
	}
	var clock unix.Timex
	if state, err := unix.Adjtimex(&clock); err == nil {
		fmt.Fprintf(w, "clock state %d, estimated error %d µs, maximum %d µs\n", state, clock.Esterror, clock.Maxerror)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, b := range info.Settings {
			if strings.HasPrefix(b.Key, "vcs") || b.Key == "CGO_ENABLED" || b.Key == "GOAMD64" {
				fmt.Fprintf(w, "build %s %s\n", b.Key, b.Value)
			}
		}
	}
	return nil
}
