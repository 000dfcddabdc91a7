package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"rutter/api/auth/tlsgate"
	"rutter/integration/simulate/history"
	"rutter/integration/simulate/network"
	"rutter/integration/simulate/seen"
	"rutter/raftstore"
)

// happen lets the history's time pass, with its faults. It returns when all are over.
func (w *world) happen() {
	begun := time.Now()
	var under sync.WaitGroup
	for i, f := range w.h.Faults {
		time.Sleep(time.Until(begun.Add(f.At)))
		under.Go(func() { w.suffer(i, f) })
	}
	under.Wait()
	time.Sleep(time.Until(begun.Add(w.h.Duration)))
}

// suffer applies one fault, waits until it is over, and takes it back.
func (w *world) suffer(i int, f history.Fault) {
	act := w.actOf(i, f)
	if act == nil {
		w.count("skipped "+string(f.Kind), 1)
		w.seen.Add(f.On, seen.Fault{Fault: f, Err: "this world has no such fault, or nothing that it could be on"})
		return
	}
	w.seen.Add(f.On, seen.Fault{Fault: f})
	err := act()
	if errors.Is(err, errBusy) {
		w.count("skipped "+string(f.Kind), 1)
	} else {
		w.count("fault "+string(f.Kind), 1)
	}
	e := seen.Fault{Fault: f, Over: true}
	if err != nil {
		e.Err = err.Error()
	}
	w.seen.Add(f.On, e)
}

// errBusy: another fault has stopped, or replaces, the machine.
var errBusy = errors.New("another fault is on it")

// errRunning: the machine's program runs already.
var errRunning = errors.New("it runs already")

// machine is a server or a compute node.
type machine interface {
	claim() bool // of a fault that stops it
	release()
	crash() error
	power(f history.Fault) error // its power fails
	stop() error
	start() error
	replace() error                    // begins anew without its files, as the docs say
	rot(seed uint64, bits int64) error // flips bits in its files
}

func (w *world) machine(name string) machine {
	for _, s := range w.servers {
		if s.name == name {
			return s
		}
	}
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

func (w *world) server(name string) *server {
	for _, s := range w.servers {
		if s.name == name {
			return s
		}
	}
	return nil
}

// driveOf is the disk of a server or a compute node; nil: it is neither.
func driveOf(w *world, name string) *drive {
	if s := w.server(name); s != nil {
		return s.drive
	}
	if n := w.node(name); n != nil {
		return n.drive
	}
	return nil
}

func (w *world) node(name string) *node {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// actOf returns what a fault does, from its begin to its end; nil: nothing.
func (w *world) actOf(i int, f history.Fault) func() error {
	switch f.Kind {
	case history.Kill, history.Power, history.Stop, history.Rot, history.Lose, history.Old, history.Older:
		if m := w.machine(f.On); m != nil {
			return func() error { return w.down(m, f) }
		}
	case history.Cut, history.OneWay, history.Slow, history.Lossy:
		return func() error { return w.links(i, f) }
	case history.Reset:
		return func() error { w.net.Reset(f.On, f.To); return nil }
	case history.HalfOpen:
		return func() error { w.net.HalfOpen(f.On, f.To); return nil }
	case history.Pause:
		return func() error { return w.paused(f) }
	case history.Full:
		if d := driveOf(w, f.On); d != nil && d.folder != nil {
			return func() error { return d.full(f) }
		}
	case history.Hang, history.SlowSync:
		if d := driveOf(w, f.On); d != nil {
			return func() error { return d.disk.slow(f) }
		}
	case history.Skew, history.Drift:
		if c := w.clock(f.On); c != nil {
			return func() error { return c.suffer(f) }
		}
	case history.Revoke:
		if w.certificates != nil {
			return func() error { return w.certificates.revoke(f) }
		}
	case history.Spoil:
		if m := w.machine(f.On); m != nil && w.certificates != nil {
			return func() error { return w.certificates.spoil(m, f) }
		}
	case history.Rotate:
		if w.certificates != nil {
			return func() error { return w.operate(f) }
		}
	case history.Transfer, history.Remove, history.Promote, history.Retain, history.Snapshot, history.Restore:
		return func() error { return w.operate(f) }
	case history.Lie:
		if n := w.node(f.On); n != nil {
			return func() error { return n.lie(f) }
		}
	case history.Meddle, history.Refuse:
		if n := w.node(f.On); n != nil {
			return func() error { return n.suffer(f) }
		}
	}
	return nil
}

// down ends a machine's program, and starts it again.
func (w *world) down(m machine, f history.Fault) error {
	if !m.claim() {
		return errBusy
	}
	defer m.release()
	s, isServer := m.(*server)
	if isServer {
		succeeds(w, s, f.Kind)
	}
	var err error
	switch f.Kind {
	case history.Stop:
		if err = m.stop(); errors.Is(err, raftstore.ErrDiskHangs) {
			err = nil // it ended before its time was over; systemd starts it again
		}
	case history.Older:
		if !isServer {
			return errBusy
		}
		err = m.stop()
		s.features.Store(uint32(f.N))
		if err = errors.Join(err, m.start()); err != nil {
			countOlder(w, f.On, err)
		}
		time.Sleep(f.For)
		s.features.Store(0)
		return errors.Join(m.stop(), w.begin(m))
	case history.Rot:
		err = errors.Join(m.crash(), m.rot(f.Seed, f.N))
	case history.Power:
		err = m.power(f)
	default:
		err = m.crash()
	}
	if err != nil {
		return err
	}
	time.Sleep(f.For)
	switch {
	case f.Kind == history.Lose:
		return m.replace()
	case f.Kind == history.Old && !isServer:
		if err := m.(*node).old(); err != nil {
			return err
		}
	case f.Kind == history.Rot:
		if err := m.start(); err != nil { // docs/deploy.md: then treat the host as lost
			w.count("rot refused at the start", 1)
			w.seen.Add(f.On, seen.Process{State: "refuses to start", Err: err.Error()})
			return m.replace()
		}
		return nil
	}
	return w.begin(m)
}

// begin starts a machine's program as systemd does: again if it fails.
func (w *world) begin(m machine) (err error) {
	for range 5 {
		if err = m.start(); err == nil || errors.Is(err, errRunning) {
			return nil
		}
		if w.certificates != nil && errors.Is(err, tlsgate.ErrFile) {
			w.count("start refused for certificates", 1)
			if mending := w.certificates.mend(m); mending != nil {
				w.seen.Add("operator", seen.Fault{Err: mending.Error()})
			}
		}
		time.Sleep(time.Second)
	}
	return err
}

// links makes ways between hosts as a fault says. Where several faults meet, they add up.
func (w *world) links(i int, f history.Fault) error {
	l := network.Link{Cut: f.Kind == history.Cut || f.Kind == history.OneWay}
	switch f.Kind {
	case history.Slow:
		l.Delay = time.Duration(f.N) * time.Millisecond
		l.Jitter = l.Delay / 4
	case history.Lossy:
		l.Loss = int(f.N)
	}
	ways := [][2]string{{f.On, f.To}}
	if f.Kind != history.OneWay {
		ways = append(ways, [2]string{f.To, f.On})
	}
	w.setLinks(i, ways, l)
	time.Sleep(f.For)
	w.setLinks(i, ways, network.Link{})
	return nil
}

func (w *world) setLinks(i int, ways [][2]string, l network.Link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, way := range ways {
		if w.ways[way] == nil {
			w.ways[way] = map[int]network.Link{}
		}
		delete(w.ways[way], i)
		if l != (network.Link{}) {
			w.ways[way][i] = l
		}
		var sum network.Link
		for _, one := range w.ways[way] {
			sum.Delay, sum.Jitter, sum.Loss, sum.Cut = sum.Delay+one.Delay, sum.Jitter+one.Jitter, max(sum.Loss, one.Loss), sum.Cut || one.Cut
		}
		w.net.Set(way[0], way[1], sum)
	}
}

// paused: what comes and goes waits, and the disk too.
func (w *world) paused(f history.Fault) error {
	m := w.machine(f.On)
	if m != nil {
		if !m.claim() {
			return errBusy
		}
		defer m.release()
	}
	h := w.net.Host(f.On)
	h.Hold(true)
	if d := driveOf(w, f.On); d != nil {
		end := d.disk.hang()
		defer end()
	}
	time.Sleep(f.For)
	h.Hold(false)
	return nil
}

// operate is what an operator does through a server that answers.
func (w *world) operate(f history.Fault) error {
	w.operating <- struct{}{} // one at a time
	defer func() { <-w.operating }()
	switch f.Kind {
	case history.Transfer:
		s := w.server(f.On)
		if s == nil {
			return errBusy
		}
		return w.ask(http.MethodPost, "/cluster/transfer", map[string]any{"id": s.member()}, 5*time.Second)
	case history.Snapshot:
		return w.snapshot(f)
	case history.Restore:
		return errors.Join(w.restore(), w.certificates.afterRestore())
	case history.Rotate:
		return w.certificates.rotate(f)
	case history.Retain:
		return w.ask(http.MethodPut, "/cluster/retention", map[string]any{"age": "1s", "events": f.N, "bytes": 64 << 20}, 5*time.Second)
	case history.Remove:
		return rejoins(w, f.On, f.For)
	case history.Promote:
		return promoted(w, f)
	}
	return nil
}

// rejoins takes a server out of the cluster, and lets it join again, as another, after a while.
func rejoins(w *world, name string, after time.Duration) error {
	s := w.server(name)
	if s == nil || !s.claim() {
		return errBusy
	}
	defer s.release()
	if err := w.remove(s.member(), 20*time.Second); err != nil {
		return err
	}
	if err := s.stop(); err != nil {
		w.seen.Add(s.name, seen.Process{State: "stopped", Err: err.Error()})
	}
	s.removed = true
	time.Sleep(after)
	return s.replace()
}

// ask sends an operator's request until it is done.
func (w *world) ask(method, path string, body map[string]any, within time.Duration) error {
	api, err := w.client(w.net.Host("operator"), "", 0)
	if err != nil {
		return err
	}
	defer api.Close()
	var b []byte
	if body != nil {
		if b, err = json.Marshal(body); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(w.ctx, within)
	defer cancel()
	for {
		if _, err = api.Raw(ctx, method, path, b); err == nil || ctx.Err() != nil {
			return err
		}
		w.seen.Add("operator", seen.Fault{Err: fmt.Sprintf("%s %s: %v", method, path, err)})
		pause(ctx, time.Second)
	}
}

// suffer makes a wall clock wrong.
func (c *clock) suffer(f history.Fault) error {
	if f.Kind == history.Skew {
		c.offset.Add(f.N * int64(time.Millisecond))
		time.Sleep(f.For)
		c.offset.Add(-f.N * int64(time.Millisecond))
		return nil
	}
	c.since.Store(time.Now().UnixNano())
	c.ppm.Store(f.N)
	time.Sleep(f.For)
	c.ppm.Store(0)
	return nil
}

func (w *world) clock(name string) *clock {
	if s := w.server(name); s != nil {
		return &s.clock
	}
	if n := w.node(name); n != nil {
		return &n.clock
	}
	return nil
}

func (n *node) suffer(f history.Fault) error {
	if f.Kind == history.Meddle {
		done := n.kernel.meddle(f.N, f.Seed)
		n.w.seen.Add(n.name, seen.Fault{Fault: f, Err: fmt.Sprint(done)})
		return nil
	}
	n.kernel.refuse.Add(f.N)
	time.Sleep(f.For)
	n.kernel.refuse.Add(-f.N)
	return nil
}
