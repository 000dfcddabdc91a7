package heartbeat

import (
	"errors"
	"testing"
	"time"

	"rutter/raftstore/internal/notify"
)

// While a heartbeat is handled no term is saved, but for the one that is.
func TestTermWaitsForHeartbeat(t *testing.T) {
	t.Parallel()
	var saves []uint64
	save := func(ts *Terms, term uint64) error {
		return ts.save(term, func() error { saves = append(saves, term); return nil })
	}
	ts := &Terms{mu: notify.NewTurn()}
	if err := save(ts, 3); err != nil {
		t.Fatal(err)
	}
	ts.mu.Lock() // a heartbeat of term 3 is handled
	if err := save(ts, 3); err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() { next <- save(ts, 4) }()
	time.Sleep(50 * time.Millisecond) // it would be saved by then
	if len(saves) != 1 {
		t.Errorf("terms %v are saved during a heartbeat of term 3", saves)
	}
	ts.mu.Unlock()
	if err := <-next; err != nil || len(saves) != 2 {
		t.Errorf("terms %v are saved, error %v", saves, err)
	}
	broken := errors.New("disk")
	if err := ts.save(5, func() error { return broken }); !errors.Is(err, broken) || ts.saved.Load() != 4 {
		t.Errorf("after an error %v the term that is saved is %d", err, ts.saved.Load())
	}
}
