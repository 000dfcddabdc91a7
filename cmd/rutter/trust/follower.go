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

// View calls fn with a state, a server's or an agent's replica, and with the cluster whose log
// it is of.
type View func(fn func(state *projections.State, cluster log.UUID))

// OfAgent is the view of an agent's replica, by agent.Agent.Part.
func OfAgent(part func(fn func(state *projections.State, cluster log.UUID, seq log.Seq, complete bool))) View {
	return func(fn func(*projections.State, log.UUID)) {
		part(func(state *projections.State, cluster log.UUID, _ log.Seq, _ bool) { fn(state, cluster) })
	}
}

// Follower gives the log's authorities and revocations to keepers.
type Follower struct {
	View    View
	Keepers map[string]*tlsgate.Keeper // by name of the authorities
	Logger  *slog.Logger

	seen    map[string]log.Seq // of each set of authorities
	revoked version            // of the revocations
}

// version changes when the revocations do.
type version struct {
	sum     uint64
	cluster log.UUID
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
	var now version
	sets := make(map[string]projections.Record)
	f.View(func(state *projections.State, cluster log.UUID) {
		now.cluster = cluster
		for name := range f.Keepers {
			if r, ok := state.Get(log.KindAuthority, name); ok {
				sets[name] = r
			}
		}
		for r := range state.List(log.KindRevocation) {
			revoked = append(revoked, r.Object.(*log.Revocation))
			now.sum = now.sum*31 + uint64(r.Seq)
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
	if now != f.revoked {
		f.revoked = now
		for _, k := range f.Keepers {
			k.Revoke(pki.NewRevocations(revoked).In(now.cluster))
		}
	}
}

// Jitter spreads renewals over time.
func Jitter() float64 { return mrand.Float64() }
