package serve

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"rutter/cmd/rutter/storeapi"
	"rutter/cmd/rutter/svpview"
	"rutter/projections"
	"rutter/raftstore"
	"rutter/varp"
)

const (
	// askPlaces begins a request of another server for how far SVP's clients have read
	// the shootdown log. The rest is varp's.
	askPlaces byte = 65
	// placesFile is the file of that in a server's data folder.
	placesFile = "svp-places"
)

// openSVP makes the SVP server. It answers lookups from a compact copy of the mappings
// that follows the log, and its shootdown log from the log itself.
//
// With known it answers known nodes only, each about its own vnets. That is for an
// address that other machines reach, on a server with TLS.
func (s *Server) openSVP(known bool, logger *slog.Logger) (err error) {
	source := svpview.Source{
		OfHead: s.store.Head, OfEntries: s.store.Entries,
		OfState: func(fn func(*projections.State)) { s.store.View(func(v raftstore.View) { fn(v.State) }) },
	}
	if s.shootdowns, err = varp.NewShootdowns(varp.ShootdownConfig{Source: source, Logger: logger}); err != nil {
		return err
	}
	s.mappings = varp.NewMappings(source, logger)
	s.mappings.Follow(s.store.Changed)
	cfg := varp.Config{Lookup: s.mappings, Events: s.shootdowns, Age: s.store.Age, Serving: s.servingSVP, Logger: logger}
	if known {
		cfg.Peers = newSVPPeers(source.OfState)
	}
	s.svp, err = varp.NewServer(cfg)
	return err
}

// loadedStore is a store that is ready when the mappings are loaded too: a server that
// says so answers its first lookup as fast as the next ones. It is not after a start, and
// not after its state was replaced (snapshot, restore, rebuild).
type loadedStore struct {
	storeapi.Store
	mappings *varp.Mappings // nil: no SVP
}

// Ready implements backend.Store.
func (s loadedStore) Ready() error {
	if err := s.Store.Ready(); err != nil || s.mappings == nil {
		return err
	}
	return s.mappings.Ready()
}

// servingSVP returns why SVP must not be answered, or nil.
func (s *Server) servingSVP() error {
	err := s.store.Serving()
	if err == nil {
		s.shootdowns.Begin()
	}
	return err
}

// sharing is how the places of SVP's clients reach the other servers, and the disk.
func (s *Server) sharing() varp.Sharing {
	peers := peersAdapter{s.store}
	return varp.Sharing{
		Self: peers.Self(),
		File: filepath.Join(s.cfg.Store.Dir, placesFile),
		Peers: func() (addresses []string) {
			for _, m := range peers.Members() {
				if m.ID != peers.Self() {
					addresses = append(addresses, m.Address)
				}
			}
			return addresses
		},
		Ask: func(ctx context.Context, address string, question []byte) ([]byte, error) {
			return peers.Ask(ctx, address, append([]byte{askPlaces}, question...))
		},
	}
}

// answerPlaces answers askPlaces.
func (s *Server) answerPlaces(question []byte) ([]byte, error) {
	if s.shootdowns == nil {
		return nil, errors.New("this server has no SVP (--svp off), so it knows no places of clients")
	}
	return s.shootdowns.AnswerPlaces(question)
}
