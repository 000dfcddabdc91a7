package triton

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"rutter/api/triton/changefeed/listen"
	"rutter/log"
)

// lookAgain is how often a wait looks whether it is over.
const lookAgain = 5 * time.Millisecond

// Fleet is listeners of the change feed, spread over servers.
type Fleet struct {
	members []*member
	stop    context.CancelFunc
	running sync.WaitGroup
}

// member is one listener, and what it saw.
type member struct {
	listener *listen.Listener
	home     string // the server that it begins at

	mu    sync.Mutex // protects what follows
	boots []boot
	seqs  []log.Seq // of items, as they came
	err   error     // that ended it
}

// boot is a registration that was taken.
type boot struct {
	at      time.Time
	server  string
	resumed bool
	seq     log.Seq
}

// StartFleet starts n listeners for wants, which run until Stop; the ith begins at the ith server,
// around the end. item, if not nil, is called with the number of the listener
// for each item, from its goroutine.
func StartFleet(servers []string, n int, wants []listen.Want, item func(i int, it listen.Item)) (*Fleet, error) {
	f := new(Fleet)
	for i := range n {
		at := i % len(servers)
		turned := append(append([]string{}, servers[at:]...), servers[:at]...)
		l, err := listen.New(listen.Config{Servers: turned, Instance: fmt.Sprint("fleet-", i), Service: "integration", Wants: wants})
		if err != nil {
			return nil, err
		}
		f.members = append(f.members, &member{listener: l, home: servers[at]})
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	for i, m := range f.members {
		handler := listen.Handler{Bootstrap: m.bootstrap, Item: func(it listen.Item) error {
			if item != nil {
				item(i, it)
			}
			m.item(it)
			return nil
		}}
		f.running.Go(func() {
			err := m.listener.Run(ctx, handler)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.err = err
		})
	}
	return f, nil
}

func (m *member) bootstrap(b listen.Bootstrap) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boots = append(m.boots, boot{time.Now(), b.Server, b.Resumed, log.Seq(b.Seq)})
	return nil
}

func (m *member) item(it listen.Item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seqs = append(m.seqs, log.Seq(it.Seq))
}

// Stop ends the listeners.
func (f *Fleet) Stop() {
	f.stop()
	f.running.Wait()
}

// await waits until done is true of each member that of names.
func (f *Fleet) await(ctx context.Context, of func(*member) bool, done func(*member) bool) error {
	for _, m := range f.members {
		for {
			m.mu.Lock()
			over, err := !of(m) || done(m), m.err
			m.mu.Unlock()
			if over {
				break
			}
			if err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(lookAgain):
			}
		}
	}
	return nil
}

func all(*member) bool { return true }

// AwaitRegistered waits until each listener is registered.
func (f *Fleet) AwaitRegistered(ctx context.Context) error {
	return f.await(ctx, all, func(m *member) bool { return len(m.boots) > 0 })
}

// AwaitSeq waits until each listener has got an item of a seq or of a later one.
func (f *Fleet) AwaitSeq(ctx context.Context, seq log.Seq) error {
	return f.await(ctx, all, func(m *member) bool { return len(m.seqs) > 0 && m.seqs[len(m.seqs)-1] >= seq })
}

// server is where the member is now.
func (m *member) server() string { return m.boots[len(m.boots)-1].server }

// on notes the members that are with a server, and how often each has registered.
func (f *Fleet) on(server string) (here map[*member]bool, boots map[*member]int) {
	here, boots = make(map[*member]bool), make(map[*member]int)
	for _, m := range f.members {
		m.mu.Lock()
		here[m], boots[m] = m.server() == server, len(m.boots)
		m.mu.Unlock()
	}
	return here, boots
}

// Judge compares what each listener got with the seqs of what it was to get, in
// order: how many are missing, and how many came twice or not in order.
func (f *Fleet) Judge(want []log.Seq) (lost, doubled int, err error) {
	var errs []error
	for i, m := range f.members {
		m.mu.Lock()
		from := m.boots[0].seq
		for _, b := range m.boots[1:] {
			if !b.resumed {
				errs = append(errs, fmt.Errorf("listener %d had to begin anew at %s, seq %d", i, b.server, b.seq))
			}
		}
		got := make(map[log.Seq]bool)
		last := from
		for _, seq := range m.seqs {
			if seq <= last {
				doubled++
			}
			last = max(last, seq)
			got[seq] = true
		}
		m.mu.Unlock()
		for _, seq := range want {
			if seq > from && !got[seq] {
				lost++
			}
		}
	}
	return lost, doubled, errors.Join(errs...)
}
