package messages

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Limits of repeats, for warnings and errors of one text.
const (
	// burst is how many are written at once: what happens to each server and to a dozen
	// nodes is written whole.
	burst = 20
	// every is the time after which one more is: a message that is repeated for a day is
	// 43,200 lines, about 10 MB.
	every = 2 * time.Second
	// maxTexts bounds the texts that are counted apart and are not in the table, since some
	// are of other programs. All others of them share one count.
	maxTexts = 1024
	// nodeEvery is the time after which one message more is written of a compute node whose
	// text was written too often for others: one node that repeats a text hides it of no
	// other.
	nodeEvery = time.Minute
	// maxNodes bounds the nodes of one text that are remembered for that.
	maxNodes = 64
)

// nodeKey is the attribute that names the compute node which a message is about.
const nodeKey = "cn"

// Counts of this process, over all of its handlers.
var written, suppressed atomic.Uint64

// Collectors are the metrics of this process's log.
func Collectors(prefix string) []prometheus.Collector {
	counter := func(name, help string, v *atomic.Uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: prefix + name, Help: help}, func() float64 { return float64(v.Load()) })
	}
	return []prometheus.Collector{
		counter("log_warnings_total", "Warnings and errors that the log got, those left out included.", &written),
		counter("log_suppressed_total", "Warnings and errors that the log left out, since their text was repeated too often.", &suppressed),
	}
}

// Handler adds ids to warnings and errors, and leaves out repeats.
type Handler struct {
	next   slog.Handler
	limits *limits
}

// New returns a handler before next. now is the clock; nil: time.Now.
func New(next slog.Handler, now func() time.Time) *Handler {
	if now == nil {
		now = time.Now
	}
	return &Handler{next: next, limits: &limits{now: now, texts: map[string]*repeats{}}}
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.next.Handle(ctx, r)
	}
	written.Add(1)
	left, write := h.limits.take(r.Message, nodeOf(r))
	if !write {
		suppressed.Add(1)
		return nil
	}
	if m, known := Find(r.Message); known {
		r.AddAttrs(slog.String("id", m.ID()))
	}
	if left > 0 {
		r.AddAttrs(slog.Uint64("suppressed", left))
	}
	return h.next.Handle(ctx, r)
}

// nodeOf returns the compute node that a message is about, "" if it is about none.
func nodeOf(r slog.Record) (cn string) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == nodeKey {
			cn = a.Value.String()
		}
		return cn == ""
	})
	return cn
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{next: h.next.WithAttrs(attrs), limits: h.limits}
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{next: h.next.WithGroup(name), limits: h.limits}
}

// limits counts repeats by text, as a token bucket each.
type limits struct {
	now   func() time.Time
	mu    sync.Mutex
	texts map[string]*repeats
	other int // texts that are not in the table
}

type repeats struct {
	tokens float64
	at     time.Time
	left   uint64               // out since the last that was written
	nodes  map[string]time.Time // when one of each node was written last, at most maxNodes
}

// take says whether a message is written, and how many of its text were not since the last.
// cn is the compute node that it is about, "" if it is about none.
func (l *limits) take(text, cn string) (left uint64, write bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	r := l.of(text, now)
	if since := now.Sub(r.at); since > 0 {
		r.tokens, r.at = min(burst, r.tokens+since.Seconds()/every.Seconds()), now
	} else if since < 0 { // the clock was set back
		r.at = now
	}
	switch {
	case r.tokens >= 1:
		r.tokens--
		r.mayNode(cn, now)
	case !r.mayNode(cn, now):
		r.left++
		return 0, false
	}
	left, r.left = r.left, 0
	return left, true
}

// of returns the count of a text. The caller holds the lock.
func (l *limits) of(text string, now time.Time) *repeats {
	if r := l.texts[text]; r != nil {
		return r
	}
	if _, known := Find(text); !known {
		if l.other >= maxTexts {
			text = ""
		} else {
			l.other++
		}
	}
	r := l.texts[text]
	if r == nil {
		r = &repeats{tokens: burst, at: now}
		l.texts[text] = r
	}
	return r
}

// mayNode reports whether nothing of this node was written for nodeEvery, and remembers
// that it is written now.
func (r *repeats) mayNode(cn string, now time.Time) bool {
	if cn == "" {
		return false
	}
	if at, known := r.nodes[cn]; known && now.Sub(at) < nodeEvery && !now.Before(at) {
		return false
	}
	if len(r.nodes) >= maxNodes {
		for other, at := range r.nodes {
			if now.Sub(at) >= nodeEvery || now.Before(at) {
				delete(r.nodes, other)
			}
		}
		if len(r.nodes) >= maxNodes {
			return false
		}
	}
	if r.nodes == nil {
		r.nodes = make(map[string]time.Time)
	}
	r.nodes[cn] = now
	return true
}
