package ports

import (
	"context"
	"errors"
	"sync"
	"time"

	"rutter/agent/filter"
	"rutter/projections/desired"
)

// Guard lets operators, metrics and traces read a table that the manager of the links
// programs: it is the filter.Table for the manager, and a Source for the others. Its
// methods may be called from any goroutine; the table's run one at a time, except for
// Counters.
type Guard struct {
	mu    sync.Mutex // held while table is used
	table filter.Table

	modeMu sync.Mutex // protects what follows
	mode   Mode
	lacks  error     // why the kernel could not hold the rules at the last reading
	since  time.Time // of that
}

var (
	_ filter.Table = (*Guard)(nil)
	_ Source       = (*Guard)(nil)
)

// NewGuard returns the guard of a table. Port security is off until SetMode.
func NewGuard(table filter.Table) *Guard {
	return &Guard{table: table, mode: Mode{Mode: desired.SecurityOff}}
}

// SetMode sets the mode of port security, which counts unless the kernel turns out to be
// unable to hold the rules.
func (g *Guard) SetMode(mode Mode) {
	g.modeMu.Lock()
	defer g.modeMu.Unlock()
	g.mode = mode
}

// Mode implements Source.
func (g *Guard) Mode() Mode {
	g.modeMu.Lock()
	defer g.modeMu.Unlock()
	if g.lacks == nil {
		return g.mode
	}
	return Mode{Mode: desired.SecurityUnsupported, Since: g.since, Why: g.lacks.Error(), Required: g.mode.Required}
}

// Read implements filter.Table.
func (g *Guard) Read(ctx context.Context) (filter.State, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	state, err := g.table.Read(ctx)
	g.modeMu.Lock()
	defer g.modeMu.Unlock()
	switch lacks := errors.Is(err, filter.ErrUnsupported); {
	case err == nil:
		g.lacks = nil
	case lacks && g.lacks == nil:
		g.lacks, g.since = err, time.Now()
	case lacks:
		g.lacks = err
	}
	return state, err
}

// State implements Source: it is what the kernel has, not what was programmed last.
func (g *Guard) State(ctx context.Context) (filter.State, error) { return g.Read(ctx) }

// Apply implements filter.Table.
func (g *Guard) Apply(ctx context.Context, changes []filter.Change) []error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.table.Apply(ctx, changes)
}

// Counters implements filter.Table and Source.
func (g *Guard) Counters(ctx context.Context) (filter.Counters, error) { return g.table.Counters(ctx) }

// Close implements filter.Table.
func (g *Guard) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.table.Close()
}

// Without is the Source of a node that holds no rules: port security is off, or the
// kernel cannot hold them.
type Without struct{ As Mode }

// Mode implements Source.
func (w Without) Mode() Mode { return w.As }

// State implements Source: there are no rules.
func (Without) State(context.Context) (filter.State, error) { return filter.State{}, nil }

// Counters implements Source: nothing is dropped.
func (Without) Counters(context.Context) (filter.Counters, error) { return filter.Counters{}, nil }
