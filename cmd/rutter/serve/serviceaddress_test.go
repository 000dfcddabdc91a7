package serve

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"rutter/api/liveness"
	"rutter/cmd/rutter/serviceaddr"
)

// addressPeers are servers that say which service addresses they may have.
type addressPeers map[string]func() ([]byte, error)

func (addressPeers) Self() string                 { return "s1" }
func (addressPeers) Leading() (uint64, bool)      { return 0, false }
func (addressPeers) LeaderMoved() <-chan struct{} { return nil }

func (p addressPeers) Members() (all []liveness.Member) {
	for _, id := range []string{"s1", "s2", "s3"} {
		all = append(all, liveness.Member{ID: id, Address: id})
	}
	return all
}

func (p addressPeers) Ask(_ context.Context, address string, request []byte) ([]byte, error) {
	if len(request) != 1 || request[0] != askAddresses {
		return nil, errors.New("another request")
	}
	return p[address]()
}

// TestServersCompareServiceAddresses: servers with other service addresses say so, once in
// the log, until they have the same; links may differ.
func TestServersCompareServiceAddresses(t *testing.T) {
	of := func(texts ...string) []serviceaddr.Address {
		all, err := serviceaddr.ParseAll(texts)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	says := func(texts ...string) func() ([]byte, error) {
		w := newAddressWatch(of(texts...), nil, nil)
		return func() ([]byte, error) { return w.answer(nil) }
	}
	peers := addressPeers{"s2": says("10.0.0.9/24@eth7", "fd00::9/64@eth7"), "s3": says()}
	var logged bytes.Buffer
	w := newAddressWatch(of("fd00::9/64@eth0", "10.0.0.9/24@eth0"), peers, slog.New(slog.NewTextHandler(&logged, nil)))
	for range 2 {
		w.look(t.Context())
		got := w.warnings()
		if len(got) != 1 || !strings.HasPrefix(got[0], "server s3 has other service addresses: it none, this server 10.0.0.9/24 and fd00::9/64;") {
			t.Fatalf("warnings: %q", got)
		}
	}
	if n := strings.Count(logged.String(), "server s3 has other service addresses"); n != 1 {
		t.Errorf("the log has it %d times: %s", n, &logged)
	}
	// While a server is away, what it said stays; one that says what is no address is left out.
	peers["s3"] = func() ([]byte, error) { return nil, errors.New("away") }
	if w.look(t.Context()); len(w.warnings()) != 1 {
		t.Errorf("while s3 is away: %q", w.warnings())
	}
	peers["s2"] = func() ([]byte, error) { return []byte(`["\n\n"]`), nil }
	peers["s3"] = says("10.0.0.9/24@eth1", "fd00::9/64@eth1")
	if w.look(t.Context()); len(w.warnings()) != 0 {
		t.Errorf("with the same: %q", w.warnings())
	}
	peers["s3"] = says("10.0.0.9/25@eth1", "fd00::9/64@eth1")
	if w.look(t.Context()); len(w.warnings()) != 1 {
		t.Errorf("with another length of the prefix: %q", w.warnings())
	}
}
