package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"rutter/api/auth/pki"
	"rutter/api/liveness"
)

// askAuthorities begins a request of another server for the authorities that this one
// trusts and signs with. It is none of the numbers of packages liveness and vmm.
const askAuthorities byte = 64

// Times of an authorityWatch.
const (
	authoritiesEvery  = 10 * time.Second
	authoritiesWithin = 3 * time.Second // one answer
)

// trustedSet is what a server trusts of one set of authorities: key ids, and that of the
// one that it signs with, "" if it has no key of one that may sign.
type trustedSet struct {
	Trusted []string `json:"trusted"`
	Signs   string   `json:"signs"`
}

// authorityWatch compares the authorities of this server with those of the others. They
// differ for a moment during a rotation; if they stay so, a server has not followed the
// log, or its file of keys was not copied, and certificates that one server issues are
// refused by another.
type authorityWatch struct {
	peers liveness.Peers
	own   func() map[string]trustedSet

	mu     sync.Mutex // protects differ
	differ []string
}

// run compares until ctx ends.
func (w *authorityWatch) run(ctx context.Context) error {
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

// look asks each other server once. A server that does not answer, or is too old to, is
// left out: other warnings say that it is away.
func (w *authorityWatch) look(ctx context.Context) {
	var differ []string
	own := w.own()
	for _, m := range w.peers.Members() {
		if m.ID == w.peers.Self() {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, authoritiesWithin)
		b, err := w.peers.Ask(asking, m.Address, []byte{askAuthorities})
		cancel()
		var theirs map[string]trustedSet
		if err == nil && json.Unmarshal(b, &theirs) == nil {
			differ = append(differ, differences(m.ID, own, theirs)...)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.differ = differ
}

// warnings are those of /readyz?verbose.
func (w *authorityWatch) warnings() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.differ)
}

// differences says what another server has otherwise.
func differences(id string, own, theirs map[string]trustedSet) (all []string) {
	for _, name := range []string{pki.Clients, pki.Peers} {
		a, b := own[name], theirs[name]
		if !slices.Equal(a.Trusted, b.Trusted) {
			all = append(all, fmt.Sprintf("server %s trusts other authorities (%s): it %s, this server %s; look at its log, or wait if a rotation runs (rutter cert rotate)",
				id, name, shortKeys(b.Trusted), shortKeys(a.Trusted)))
		}
		if a.Signs != "" && b.Signs != "" && a.Signs != b.Signs {
			all = append(all, fmt.Sprintf("server %s signs with another authority (%s): it %s, this server %s; copy the operator's file of keys to the one that is behind",
				id, name, shortKeys([]string{b.Signs}), shortKeys([]string{a.Signs})))
		}
	}
	return all
}

// shortKeys lists key ids by their first digits, as in the names of authorities.
func shortKeys(ids []string) string {
	short := make([]string, len(ids))
	for i, id := range ids {
		short[i] = id[:min(len(id), 8)]
	}
	return strings.Join(short, " and ")
}

// trusted is what this server trusts and signs with, by name of the set.
func (t *serverTLS) trusted() map[string]trustedSet {
	all := make(map[string]trustedSet)
	for _, one := range t.identities() {
		var set trustedSet
		for _, a := range one.keeper.Authorities() {
			set.Trusted = append(set.Trusted, pki.CertificateKeyID(a))
		}
		slices.Sort(set.Trusted)
		if a, err := t.issuer(one.keeper, one.keyFile); err == nil {
			set.Signs = pki.CertificateKeyID(a.Certificate)
		}
		all[one.name] = set
	}
	return all
}

// answerAuthorities answers askAuthorities; t may be nil.
func (t *serverTLS) answerAuthorities() ([]byte, error) {
	if t == nil {
		return nil, errors.New("this server has no TLS")
	}
	return json.Marshal(t.trusted())
}
