package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"rutter/api/liveness"
	"rutter/cmd/rutter/serviceaddr"
	"rutter/raftstore"
)

// addressLeader implements serviceaddr.Leader by the store.
type addressLeader struct{ store *raftstore.Store }

// Confirmed implements serviceaddr.Leader.
func (l addressLeader) Confirmed() (term uint64, at time.Time, others []string, ok bool) {
	c, ok := l.store.Confirmed()
	return c.Term, c.At, c.Others, ok
}

// Serves implements serviceaddr.Leader.
func (l addressLeader) Serves() bool {
	_, leads := l.store.Leading()
	return leads && l.store.Ready() == nil
}

// Moved implements serviceaddr.Leader.
func (l addressLeader) Moved() <-chan struct{} { return l.store.LeaderMoved() }

// HandOver implements serviceaddr.Leader.
func (l addressLeader) HandOver(ctx context.Context) error {
	if _, leads := l.store.Leading(); !leads {
		return nil
	}
	return l.store.Members().Transfer(ctx, "")
}

// newServiceAddresses makes the service of a server's addresses; nil if it has none.
func newServiceAddresses(addresses []serviceaddr.Address, store *raftstore.Store, logger *slog.Logger) *serviceaddr.Service {
	if len(addresses) == 0 {
		return nil
	}
	return serviceaddr.New(serviceaddr.Config{Addresses: addresses, Leader: addressLeader{store}, Logger: logger})
}

// askAddresses begins a request of another server for the service addresses that it may
// have. It is none of the numbers of packages liveness and vmm.
const askAddresses byte = 66

// addressWatch compares the service addresses that this server may have with those of the
// others: an address that only some have is left without a holder while another one leads,
// and one that is written otherwise may be held twice. The links may differ, because each
// machine has its own.
type addressWatch struct {
	peers  liveness.Peers
	own    []string // prefixes, sorted
	logger *slog.Logger

	mu     sync.Mutex // protects differ
	differ []string
}

func newAddressWatch(addresses []serviceaddr.Address, peers liveness.Peers, logger *slog.Logger) *addressWatch {
	w := &addressWatch{peers: peers, own: []string{}, logger: logger}
	for _, a := range addresses {
		w.own = append(w.own, a.Prefix.String())
	}
	slices.Sort(w.own)
	return w
}

// answer answers askAddresses.
func (w *addressWatch) answer([]byte) ([]byte, error) { return json.Marshal(w.own) }

// run compares until ctx ends.
func (w *addressWatch) run(ctx context.Context) error {
	tick := time.NewTicker(authoritiesEvery)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look asks each other server once. Of a server that does not answer, what it said last
// stays; one that is too old to answer is left out.
func (w *addressWatch) look(ctx context.Context) {
	var differ []string
	for _, m := range w.peers.Members() {
		if m.ID == w.peers.Self() {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, authoritiesWithin)
		b, err := w.peers.Ask(asking, m.Address, []byte{askAddresses})
		cancel()
		var theirs []string
		switch {
		case err != nil:
			differ = append(differ, w.said(m.ID)...)
		case json.Unmarshal(b, &theirs) == nil:
			differ = append(differ, otherAddresses(m.ID, w.own, theirs)...)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range differ {
		if !slices.Contains(w.differ, text) {
			w.logger.Warn(text)
		}
	}
	w.differ = differ
}

// said are the warnings about a server of the last look.
func (w *addressWatch) said(id string) (all []string) {
	for _, text := range w.warnings() {
		if strings.HasPrefix(text, "server "+id+" ") {
			all = append(all, text)
		}
	}
	return all
}

// warnings are those of /readyz?verbose.
func (w *addressWatch) warnings() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.differ)
}

// maxShownAddresses bounds what one warning shows of what another server said.
const maxShownAddresses = 2 * serviceaddr.Max

// otherAddresses says what another server has otherwise; own and theirs are sorted.
func otherAddresses(id string, own, theirs []string) []string {
	theirs = theirs[:min(len(theirs), maxShownAddresses)]
	for _, text := range theirs {
		if _, err := netip.ParsePrefix(text); err != nil {
			return nil // of a program that writes them otherwise
		}
	}
	if slices.Equal(own, theirs) {
		return nil
	}
	list := func(all []string) string {
		if len(all) == 0 {
			return "none"
		}
		return strings.Join(all, " and ")
	}
	return []string{fmt.Sprintf("server %s has other service addresses: it %s, this server %s; an address has no holder while a server leads that lacks it: set the same --service-address on each server, each with its own link",
		id, list(theirs), list(own))}
}
