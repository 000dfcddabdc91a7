package liveness

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"rutter/log"
)

// Known is the newest session of a CN that the leader knows.
type Known struct {
	Session
	Server  string // that has or had the session
	Alive   bool
	HeardMS int64 // milliseconds since the last sign that was reported to the leader; -1: none in its term
	Beats   bool  // the signs are heartbeats: there is no session
	// Waiting and Idle count the objects of the session's list that barriers wait for, and
	// those whose VMs are not to run. Waits has at most MaxShown of both.
	Waiting, Idle int
}

// listPage is how many sessions one answer between servers has.
const listPage = 1000

// List returns the newest session of each CN, sorted by CN. Errors: ErrNoLeader, ctx's.
func (f *Fabric) List(ctx context.Context) ([]Known, error) {
	all := []Known{}
	after := log.UUID{}
	for {
		page, err := f.page(ctx, after)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < listPage {
			return all, nil
		}
		after = page[len(page)-1].CN
	}
}

func (f *Fabric) page(ctx context.Context, after log.UUID) (page []Known, err error) {
	if r := f.current(); r != nil {
		return r.list(after), nil
	}
	asking, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	b, err := f.cfg.Peers.Ask(asking, "", append([]byte{askList}, after[:]...))
	if err != nil {
		return nil, err
	}
	return page, json.Unmarshal(b, &page)
}

func (f *Fabric) answerList(body []byte) ([]byte, error) {
	r := f.current()
	if r == nil {
		return nil, ErrNoLeader
	}
	if len(body) < len(log.UUID{}) {
		return nil, fmt.Errorf("liveness: list request of %d bytes: %w", len(body), log.ErrFormat)
	}
	return json.Marshal(r.list(log.UUID(body[:16])))
}

// list returns up to listPage sessions of CNs after a given one.
func (r *leaderTerm) list(after log.UUID) []Known {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	page := []Known{}
	all := maps.Clone(r.cns)
	for cn := range r.beats {
		if all[cn] == nil {
			all[cn] = &seen{session: Session{CN: cn, Gone: true}, at: -1}
		}
	}
	for _, cn := range sorted(all) {
		if slices.Compare(cn[:], after[:]) <= 0 {
			continue
		}
		if len(page) == listPage {
			break
		}
		s := all[cn]
		k := Known{Session: s.session, Server: s.server, Alive: r.alive(s, now), HeardMS: -1}
		k.Waiting, k.Idle = CountWaits(k.Waits)
		k.Waits = k.Waits[:min(len(k.Waits), MaxShown)]
		if s.at >= 0 {
			k.HeardMS = (now - s.at).Milliseconds()
		}
		if b := r.beats[cn]; b != nil && !k.Alive && b.at > s.at {
			k.Beats, k.Server, k.Alive, k.HeardMS = true, b.server, now < b.until, (now - b.at).Milliseconds()
		}
		page = append(page, k)
	}
	return page
}

// Where returns the id of the server with the newest session of a CN that the leader
// knows; "" if the CN has none, and then the servers are asked soon. Errors: ErrNoLeader,
// ctx's.
func (f *Fabric) Where(ctx context.Context, cn log.UUID) (string, error) {
	if r := f.current(); r != nil {
		return r.where(cn), nil
	}
	asking, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	b, err := f.cfg.Peers.Ask(asking, "", append([]byte{askWhere}, cn[:]...))
	return string(b), err
}

func (f *Fabric) answerWhere(body []byte) ([]byte, error) {
	r := f.current()
	if r == nil {
		return nil, ErrNoLeader
	}
	if len(body) < len(log.UUID{}) {
		return nil, fmt.Errorf("liveness: where request of %d bytes: %w", len(body), log.ErrFormat)
	}
	return []byte(r.where(log.UUID(body[:16]))), nil
}

func (r *leaderTerm) where(cn log.UUID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if s := r.cns[cn]; s != nil && r.alive(s, now) {
		return s.server
	}
	r.askSoon(now)
	return ""
}

// askSoon asks the servers now that were not asked for whereGap: a compute node whose
// session is not known may have come since. The caller holds the lock.
func (r *leaderTerm) askSoon(now time.Duration) {
	for _, v := range r.views {
		if v.takeBack != nil && now-v.fresh >= whereGap {
			v.needed = v.begun
			v.takeBack()
		}
	}
}
