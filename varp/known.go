package varp

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"rutter/log"
	"rutter/varp/internal/places"
)

// Bounds of what a server keeps for others.
const (
	// maxKeptAcks bounds the ids of all clients that are kept for other servers, which
	// take 1 MB.
	maxKeptAcks = 1 << 16
	// maxKeptAcksOf bounds those of one client: four batches of illumos.
	maxKeptAcksOf = maxPending
	// keepAcks is how long they are kept.
	keepAcks = 10 * time.Second
	// maxWanted bounds the clients for which a peer is asked to give records again.
	maxWanted = 4096
	// maxTold is the size in bytes, roughly, at which an answer to another server ends.
	// The rest follows in the next one.
	maxTold = 1 << 18
)

// knownPlaces is what Shootdowns knows of nodes from elsewhere, and what others may ask
// it. Shootdowns.mu protects it.
type knownPlaces struct {
	epoch   uint64 // of this process: versions of another one mean nothing
	version uint64 // rises with each change that others must learn
	applied places.Applied
	loaded  *places.File // what the file had, until the first request

	places map[netip.Addr]*knownPlace
	acks   map[netip.Addr]*keptAcks
	nAcks  int       // ids in acks
	swept  time.Time // when old ones were forgotten last
	again  map[netip.Addr]*wantedAgain
	asked  map[string]places.Question // by peer: the epoch and version that it told last
	dirty  bool                       // something changed since the file was written
}

// knownPlace is how far this server may rely on what a node acknowledged elsewhere.
type knownPlace struct {
	places.Place
	version uint64
}

// keptAcks are ids that a client acknowledged here, and that were delivered elsewhere.
type keptAcks struct {
	places.Acks
	version uint64
	at      time.Time
}

// wantedAgain is what a peer must give a client again.
type wantedAgain struct {
	peer string
	places.Again
	at time.Time // when it was asked for last; zero: not yet
}

func newKnownPlaces() knownPlaces {
	return knownPlaces{
		epoch: rand.Uint64() | 1, places: make(map[netip.Addr]*knownPlace), acks: make(map[netip.Addr]*keptAcks),
		again: make(map[netip.Addr]*wantedAgain), asked: make(map[string]places.Question),
	}
}

// forget drops everything: the log is another one. What was answered until now is then
// unknown, so only what is delivered from now on can be relied on.
func (k *knownPlaces) forget(now time.Time) {
	loaded := k.loaded
	*k = newKnownPlaces()
	k.loaded = loaded
	k.applied.Unknown()
}

// of returns the place of a node that asks, nil if it is unknown, or another node's.
func (k *knownPlaces) of(cn netip.Addr, nodes []log.UUID) *places.Place {
	p := k.places[cn]
	if p == nil || len(nodes) != 1 || nodes[0] != p.Node {
		return nil
	}
	return &p.Place
}

// put remembers a place of a node in place of an earlier one. There are at most limit
// of them: beyond, the one that was put first is forgotten.
func (k *knownPlaces) put(p places.Place, limit int) {
	if len(k.places) >= limit && k.places[p.CN] == nil {
		var oldest *knownPlace
		for _, q := range k.places {
			if oldest == nil || q.version < oldest.version {
				oldest = q
			}
		}
		delete(k.places, oldest.CN)
	}
	k.version++
	k.places[p.CN] = &knownPlace{p, k.version}
	k.dirty = true
}

// keep keeps ids that a client acknowledged for the servers that delivered them.
func (k *knownPlaces) keep(cn netip.Addr, ids []log.UUID, now time.Time) {
	if len(ids) == 0 {
		return
	}
	a := k.acks[cn]
	if a != nil && now.Sub(a.at) > keepAcks {
		k.nAcks -= len(a.IDs)
		a.IDs = nil
	}
	if k.nAcks+len(ids) > maxKeptAcks && now.Sub(k.swept) > time.Second {
		k.dropAcks(now)
	}
	if a != nil && len(a.IDs)+len(ids) > maxKeptAcksOf || k.nAcks+len(ids) > maxKeptAcks {
		return // they are given again
	}
	if a == nil || k.acks[cn] == nil {
		a = &keptAcks{Acks: places.Acks{CN: cn}}
		k.acks[cn] = a
	}
	k.version++
	k.nAcks += len(ids)
	a.IDs, a.version, a.at = append(slices.Clip(a.IDs), ids...), k.version, now
}

// dropAcks forgets those that the other servers have, or need no more.
func (k *knownPlaces) dropAcks(now time.Time) {
	k.swept = now
	for cn, a := range k.acks {
		if now.Sub(a.at) > keepAcks {
			k.nAcks -= len(a.IDs)
			delete(k.acks, cn)
		}
	}
}

// want notes that a peer must give a client records again.
func (k *knownPlaces) want(peer string, a places.Again) {
	w := k.again[a.CN]
	if w == nil && len(k.again) >= maxWanted {
		return
	}
	if w == nil || w.Again != a || w.peer != peer {
		k.again[a.CN] = &wantedAgain{peer: peer, Again: a}
	}
}

// wanted returns what a peer must give again, each once in againEvery, and only what
// this server has applied.
func (k *knownPlaces) wanted(peer string, now time.Time) (list []places.Again) {
	for cn, w := range k.again {
		p := k.places[cn]
		switch {
		case p != nil && p.Seq >= w.To:
			delete(k.again, cn)
		case w.peer != peer || k.applied.At(now) < w.To:
		case w.at.IsZero() || now.Sub(w.at) >= againEvery:
			w.at = now
			list = append(list, w.Again)
		}
	}
	return list
}

// tell adds to an answer what is new since a version, the oldest first.
func (k *knownPlaces) tell(a *places.Answer, since uint64, readers map[netip.Addr]*logReader, now time.Time) {
	type one struct {
		version uint64
		claim   func() places.Claim
	}
	var all []one
	for cn, r := range readers {
		if r.version > since {
			all = append(all, one{r.version, func() places.Claim {
				return places.Claim{Place: r.place(cn), Deliveries: r.deliveries}
			}})
		}
	}
	for cn, p := range k.places {
		if p.version > since && readers[cn] == nil {
			all = append(all, one{p.version, func() places.Claim {
				return places.Claim{Place: p.Place, Deliveries: places.Deliveries{{Newest: p.Seq}}}
			}})
		}
	}
	slices.SortFunc(all, func(a, b one) int { return cmp.Compare(a.version, b.version) })
	a.Until = k.version
	size := 0
	for _, o := range all {
		c := o.claim()
		if size += 128 + 5*len(c.VNets); size > maxTold {
			break
		}
		a.Claims, a.Until = append(a.Claims, c), o.version
	}
	if len(a.Claims) == len(all) {
		a.Until = k.version
	}
	for _, kept := range k.acks {
		if kept.version > since && now.Sub(kept.at) <= keepAcks && size <= 2*maxTold {
			size += 32 + 16*len(kept.IDs)
			a.Acks = append(a.Acks, kept.Acks)
		}
	}
}
