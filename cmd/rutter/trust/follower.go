package trust

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

// pollEvery is the time between two reads of the log's authorities and revocations. A
// revocation takes effect at most so long after it was applied.
const pollEvery = 250 * time.Millisecond

// View calls fn with a state: a server's, or an agent's replica.
type View func(fn func(*projections.State))

// Follower gives the log's authorities and revocations to keepers.
type Follower struct {
	View    View
	Keepers map[string]*tlsgate.Keeper // by name of the authorities
	Logger  *slog.Logger

	seen    map[string]log.Seq // of each set of authorities
	revoked uint64             // version of the revocations: see refresh
}

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) error { return Poll(ctx, f.refresh) }

// Poll calls look now and every pollEvery until ctx ends.
func Poll(ctx context.Context, look func()) error {
	tick := time.NewTicker(pollEvery)
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

func (f *Follower) refresh() {
	var revoked []*log.Revocation
	var sum uint64
	sets := make(map[string]projections.Record)
	f.View(func(state *projections.State) {
		for name := range f.Keepers {
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
			err = f.Keepers[name].Trust(certificates, a.Issuing)
		}
		if err != nil {
			f.Logger.Error("the authorities of the log are not taken", "authority", name, "error", err)
		}
	}
	if sum != f.revoked {
		f.revoked = sum
		for _, k := range f.Keepers {
			k.Revoke(pki.NewRevocations(revoked))
		}
	}
}

// Jitter spreads renewals over time.
func Jitter() float64 { return mrand.Float64() }
