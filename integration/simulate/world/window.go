package world

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/oracle"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/raftstore/offline"
)

// lateKept is how many of its changes a client keeps to send them again.
const lateKept = 128

// late is a client that sends old changes again, in histories whose servers remember few. The zero
// value of sent is ready. Only its client uses it.
type late struct {
	w    *world
	rnd  *rand.Rand
	sent []*log.Change
}

// note keeps a change that was sent.
func (l *late) note(c *log.Change) {
	if l.w.h.Window == 0 {
		return
	}
	if len(l.sent) == lateKept {
		l.sent = l.sent[1:]
	}
	l.sent = append(l.sent, c)
}

// again sends, now and then, a change that was sent before; or another one under its id; or one
// with an id of a clock that is an hour ahead.
func (l *late) again(who, surface string, send submit) {
	if l.w.h.Window == 0 || len(l.sent) == 0 || l.rnd.IntN(4) > 0 {
		return
	}
	c := l.sent[l.rnd.IntN(len(l.sent))]
	switch l.rnd.IntN(8) {
	case 0:
		surface = oracle.SurfaceReused
		c = &log.Change{ID: c.ID, Ops: []log.Op{op(log.Update, log.KindNetwork, networkID(l.rnd.IntN(registers)), `{"description":"%s-reused-%d"}`, who, l.rnd.Uint32())}}
	case 1:
		surface = oracle.SurfaceAhead
		c = &log.Change{ID: changeIDAt(l.rnd, time.Now().Add(time.Hour)), Ops: []log.Op{op(log.Create, log.KindNICTag, "", `{"name":"ahead_%d"}`, l.rnd.Uint32())}}
	}
	within, cancel := context.WithTimeout(l.w.ctx, 10*time.Second)
	defer cancel()
	e := l.w.write(within, who, surface, send, c)
	l.w.count("late "+string(e.Outcome), 1)
}

// lapse waits until servers may have forgotten what was written, and writes once: the time of the
// log goes on with what is written.
func lapse(w *world) {
	if w.h.Window == 0 {
		return
	}
	w.seen.Add("world", seen.Remembered{Age: history.WindowAge, Count: w.h.Window})
	for _, s := range w.servers { // while they remember as many as they ever do
		if n, err := inspect(w, s); err == nil { // else it is not well yet
			w.seen.Add(s.name, seen.Remembered{Age: history.WindowAge, Count: w.h.Window, IDs: n, Looked: true})
		}
	}
	time.Sleep(2 * history.WindowAge)
	api, err := w.client(w.net.Host("operator"), "", 0)
	if err != nil {
		w.fail("client: %v", err)
		return
	}
	defer api.Close()
	rnd := w.rand("lapse")
	for range 10 {
		c := &log.Change{ID: changeID(rnd), Ops: []log.Op{op(log.Create, log.KindNICTag, "", `{"name":"lapse_%d"}`, rnd.Uint32())}}
		if e := w.write(w.ctx, "operator", "changes", api.Submit, c); e.Outcome == seen.Accepted {
			return
		}
		time.Sleep(time.Second)
	}
}

// remembered records how many change ids each server has in its file.
func remembered(w *world) {
	if w.h.Window == 0 {
		return
	}
	for _, s := range w.servers {
		n, err := inspect(w, s)
		if err != nil {
			w.fail("snapshot of %s: %v", s.name, err)
			continue
		}
		w.seen.Add(s.name, seen.Remembered{Age: history.WindowAge, Count: w.h.Window, IDs: n, Looked: true})
	}
}

// inspect returns how many change ids a snapshot of a server has.
func inspect(w *world, s *server) (int, error) {
	api, err := w.client(w.net.Host("operator"), s.name, 0)
	if err != nil {
		return 0, err
	}
	defer api.Close()
	path := filepath.Join(w.folder, fmt.Sprintf("inspected-%s", s.name))
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second)
	defer cancel()
	_, err = api.Snapshot(ctx, file, nil)
	if err = errors.Join(err, file.Close()); err != nil {
		return 0, err
	}
	content, err := offline.InspectSnapshot(path, nil)
	if err != nil {
		return 0, err
	}
	return content.Changes, nil
}
