package world

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"rutter/api/triton/changefeed/listen"
	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/raftstore"
)

// wanted are the changes of which the listener wants to be told, by resource.
var wanted = map[string][]string{
	"network": {"create", "delete", "description", "mtu"},
	"nic":     {"create", "delete", "state", "cn_uuid"},
	"nic_tag": {"create"},
}

// listener listens to Triton's change feed as the services of a Triton do, with all servers, and
// goes on at the next one when it is cut off. Now and then its program ends, and another goes on
// where it was.
type listener struct {
	w   *world
	who string
	rnd *rand.Rand

	// Of the goroutine that listens.
	cursor string
	server string // that it was registered at last

	mu sync.Mutex // protects what follows
	at log.Cursor // of the last item, or where the registration begins
}

func newListener(w *world) *listener {
	const who = "t1"
	return &listener{w: w, who: who, rnd: w.rand(who)}
}

// start listens until ctx ends.
func (l *listener) start(ctx context.Context) {
	l.w.zombies.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			life, end := context.WithTimeout(ctx, 5*time.Second+time.Duration(l.rnd.Int64N(int64(25*time.Second))))
			err := l.listen(life, n)
			end()
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				l.w.fail("listener: %v", err)
				return
			}
		}
	})
}

// listen runs one program of the listener, which tries the n-th server first.
func (l *listener) listen(ctx context.Context, n int) error {
	host := l.w.net.Host(l.who)
	cfg := listen.Config{
		Servers: urls(l.w.servers, "", n), Instance: "simulated", Service: "simulate", Cursor: l.cursor,
		Dial: hostDialer(host), DialTLS: toServers(l.w.certificates.operator(), hostDialer(host)),
	}
	for _, resource := range slices.Sorted(maps.Keys(wanted)) {
		cfg.Wants = append(cfg.Wants, listen.Want{Resource: resource, SubResources: wanted[resource]})
	}
	client, err := listen.New(cfg)
	if err != nil {
		return err
	}
	return client.Run(ctx, listen.Handler{Bootstrap: l.registered, Item: l.told})
}

// registered takes the answer to a registration.
func (l *listener) registered(b listen.Bootstrap) error {
	at, err := log.ParseCursor(b.Cursor)
	if err != nil {
		return fmt.Errorf("a registration at %s has the cursor %q: %w", b.Server, b.Cursor, err)
	}
	l.reached(at, b.Cursor)
	l.w.seen.Add(l.who, seen.Registered{Server: b.Server, Wants: wanted, At: at, Resumed: b.Resumed, Reason: b.Reason})
	if b.Resumed && l.server != "" && l.server != b.Server {
		l.w.count(coverage.ChangefeedAgain, 1)
	}
	l.server = b.Server
	l.w.count(fmt.Sprintf("changefeed resumed=%v", b.Resumed), 1)
	return nil
}

// told takes an item.
func (l *listener) told(it listen.Item) error {
	at, err := log.ParseCursor(it.Cursor)
	if err != nil {
		return fmt.Errorf("an item has the cursor %q: %w", it.Cursor, err)
	}
	l.reached(at, it.Cursor)
	l.w.seen.Add(l.who, seen.Told{Resource: it.ChangeKind.Resource, ID: it.ChangedResourceID, Subs: it.ChangeKind.SubResources, At: at})
	l.w.count("changefeed items", 1)
	return nil
}

func (l *listener) reached(at log.Cursor, text string) {
	l.cursor = text
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = at
}

// behind says what the listener was not told yet of what a server has.
func (l *listener) behind(store *raftstore.Store) (why []string) {
	l.mu.Lock()
	at := l.at
	l.mu.Unlock()
	head := store.Head()
	if at.Cluster != head.Cluster {
		return []string{fmt.Sprintf("listener %s is at %s, and the log at %s", l.who, at, head)}
	}
	for after := at.Seq; after < head.Seq; {
		entries, err := store.Entries(after, 1000)
		if err != nil {
			return []string{fmt.Sprintf("listener %s is at %s: %v", l.who, at, err)}
		}
		if len(entries) == 0 {
			break
		}
		for _, entry := range entries {
			event, err := entry.Event()
			if err == nil && seen.Wanted(event, wanted) {
				return []string{fmt.Sprintf("listener %s is at %d, and was not told of %d", l.who, at.Seq, entry.Seq)}
			}
		}
		after = entries[len(entries)-1].Seq
	}
	return nil
}
