package guard

import (
	"context"
	"runtime"
	"sync"
	"time"

	"rutter/api/auth/matrix"
)

// scans let few long reads run at a time, so that writes have the other processors.
// Each read waits for its turn before each step. If something was written during the
// step, the turn rests before the next step. Operators have separate turns.
type scans struct {
	operators, others chan struct{}

	mu   sync.Mutex
	busy map[string]*scanner
}

// scanner is one identity, of which one read runs at a time.
type scanner struct {
	slot  chan struct{}
	users int
}

const (
	// ScanStep bounds the time of one step, except for one large entry: a write that
	// waits for the processor waits at most that long.
	ScanStep = 4 * time.Millisecond
	// operatorsRest and othersRest are the length of the rest, in steps. Under writes,
	// operators' reads have half of their processors, and all other reads together a
	// twentieth of theirs. maxScanRest bounds a rest.
	operatorsRest = 1
	othersRest    = 19
	maxScanRest   = time.Second
)

func newScans() *scans {
	n := max(1, runtime.GOMAXPROCS(0)/2)
	return &scans{operators: make(chan struct{}, n), others: make(chan struct{}, n), busy: make(map[string]*scanner)}
}

// enter waits for a turn of who, which leave gives back, and returns the length of its
// rest, in steps.
func (s *scans) enter(ctx context.Context, id matrix.Identity) (leave func(), rest time.Duration, err error) {
	who, slots, rest := id.Key(), s.others, time.Duration(othersRest)
	if id.Role == matrix.Local || id.Role == matrix.Operator || id.Role == matrix.Server {
		slots, rest = s.operators, operatorsRest
	}
	s.mu.Lock()
	one := s.busy[who]
	if one == nil {
		one = &scanner{slot: make(chan struct{}, 1)}
		s.busy[who] = one
	}
	one.users++
	s.mu.Unlock()
	forget := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(s.busy, who)
		}
	}
	select {
	case one.slot <- struct{}{}:
	case <-ctx.Done():
		forget()
		return nil, 0, ctx.Err()
	}
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		<-one.slot
		forget()
		return nil, 0, ctx.Err()
	}
	return func() {
		<-slots
		<-one.slot
		forget()
	}, rest, nil
}

// Scan runs one step of a long read in its turn. The turn rests after it if something
// was written meanwhile.
func (g *Guard) Scan(ctx context.Context, step func() error) error {
	grant, _ := ctx.Value(grantKey{}).(Grant)
	leave, rest, err := g.scans.enter(ctx, grant.Who)
	if err != nil {
		return err
	}
	defer leave()
	begun, head := time.Now(), g.cfg.Head()
	err = step()
	if g.cfg.Head() != head {
		g.Pause(ctx, min(rest*time.Since(begun), maxScanRest))
	}
	return err
}
