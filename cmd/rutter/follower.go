package main

import (
	"context"
	"log/slog"
	mrand "math/rand/v2"
	"time"

	"rutter/api/auth/enrol"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/log"
	"rutter/projections"
)

// trustEvery is how often what the log has of trust is looked at: a revocation
// is in effect so long after it was applied, at most.
const trustEvery = 250 * time.Millisecond

// viewer shows a state: a server's, or what an agent holds of it.
type viewer func(fn func(*projections.State))

// trustFollower has keepers do what the log says: whom to trust, what is revoked.
type trustFollower struct {
	view    viewer
	keepers map[string]*tlsgate.Keeper // by name of the authorities
	logger  *slog.Logger

	seen    map[string]log.Seq // of each set of authorities
	revoked uint64             // how the revocations were: see look
}

// run follows until ctx ends.
func (f *trustFollower) run(ctx context.Context) error { return lookUntil(ctx, f.look) }

// lookUntil looks now and every trustEvery until ctx ends.
func lookUntil(ctx context.Context, look func()) error {
	tick := time.NewTicker(trustEvery)
	defer tick.Stop()
	for {
		look()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (f *trustFollower) look() {
	var revoked []*log.Revocation
	var sum uint64
	sets := make(map[string]projections.Record)
	f.view(func(state *projections.State) {
		for name := range f.keepers {
			if r, ok := state.Get(log.KindAuthority, name); ok {
				sets[name] = r
			}
		}
		for r := range state.List(log.KindRevocation) {
			revoked = append(revoked, r.Object.(*log.Revocation))
			sum = sum*31 + uint64(r.Seq)
		}
	})
	for name, r := range sets {
		if f.seen[name] == r.Seq {
			continue
		}
		if f.seen == nil {
			f.seen = make(map[string]log.Seq)
		}
		f.seen[name] = r.Seq
		a := r.Object.(*log.Authority)
		certificates, err := enrol.Certificates(a)
		if err == nil {
			err = f.keepers[name].Trust(certificates, a.Issuing)
		}
		if err != nil {
			f.logger.Error("the authorities of the log are not taken", "authority", name, "error", err)
		}
	}
	if sum != f.revoked {
		f.revoked = sum
		for _, k := range f.keepers {
			k.Revoke(pki.NewRevocations(revoked))
		}
	}
}

// jitter spreads renewals.
func jitter() float64 { return mrand.Float64() }
