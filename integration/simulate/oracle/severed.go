package oracle

import (
	"cmp"
	"slices"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/integration/simulate/seen"
	"rutter/log"
)

// Severed is how long after it has applied a revocation a server may feed the node: it looks four
// times a second (package cmd/rutter/trust).
const Severed = time.Second

// revocation is one time at which the certificates of a compute node were revoked, as the log has it.
type revocation struct {
	seq                   log.Seq
	created, issuedBefore log.Time
	granted               []string // serials of those that the log lists as good after it
}

// covers reports whether it is about the certificate of a connection: neither the log nor the
// certificate itself says that it was granted later.
func (v *revocation) covers(e seen.StreamBegun) bool {
	at := e.Certificate
	if at.Serial == "" || slices.Contains(v.granted, at.Serial) {
		return false
	}
	return cmp.Or(cmp.Compare(at.Created, v.created), cmp.Compare(at.IssuedBefore, v.issuedBefore)) < 0
}

// server is what looks at a server showed since its process began.
type server struct {
	head log.Seq
	// applied is when the server was seen to have a revocation, by its seq.
	applied map[log.Seq]time.Duration
	// last is the newest entry of all servers, Severed after that: what is behind it was written later.
	last map[log.Seq]log.Seq
}

// severed looks for entries that a compute node got although the server that sent them had applied
// a revocation of the certificate of that connection, before the entry was written. Packets that were
// on their way do not count. What is revoked is read from the log, and which certificate a connection
// has from the node, so that it does not matter how soon after a revocation another one is granted.
func severed(p *past, report report) {
	if len(p.restored) > 0 {
		return // the log of before is not there
	}
	all, streams := make(map[string]*server), make(map[string]seen.StreamBegun)
	revocations := p.revocations()
	for _, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Process:
			delete(all, r.Who) // the next one may have less, until it is seen
		case seen.StreamBegun:
			streams[e.Stream] = e
		case seen.Server:
			if all[r.Who] == nil {
				all[r.Who] = &server{applied: make(map[log.Seq]time.Duration), last: make(map[log.Seq]log.Seq)}
			}
			all[r.Who].look(r.At, e.Head.Seq, revocations, all)
		case seen.Item:
			began := streams[e.Stream]
			cn, is := cnOf(began.Filter)
			if s := all[began.Server]; s != nil && is {
				for _, v := range revocations[cn] {
					if last, known := s.last[v.seq]; known && e.Seq > last && v.covers(began) {
						report("%s got entry %d from %s at %v by certificate %s, which that had seen to be revoked by entry %d at %v", e.Stream, e.Seq, began.Server, r.At, began.Certificate.Serial, v.seq, s.applied[v.seq])
					}
				}
			}
		}
	}
}

// look takes what a look at a server shows.
func (s *server) look(at time.Duration, head log.Seq, revocations map[log.UUID][]*revocation, all map[string]*server) {
	s.head = head
	for _, of := range revocations {
		for _, v := range of {
			applied, known := s.applied[v.seq]
			switch _, over := s.last[v.seq]; {
			case v.seq > head || over:
			case !known:
				s.applied[v.seq] = at
			case at > applied+Severed:
				for _, other := range all {
					s.last[v.seq] = max(s.last[v.seq], other.head)
				}
			}
		}
	}
}

// revocations are those of compute nodes that the log has, in its order.
func (p *past) revocations() map[log.UUID][]*revocation {
	subjects, all := make(map[string]log.UUID), make(map[log.UUID][]*revocation)
	for _, cn := range p.nodes() {
		subjects[pki.Subject(matrix.Identity{Role: matrix.CN, UUID: cn})] = cn
	}
	for _, e := range p.entries {
		if e.event == nil || e.event.Kind != log.KindRevocation || e.event.Action == log.Delete {
			continue
		}
		r := e.event.Object.(*log.Revocation)
		cn, known := subjects[r.Subject]
		if !known {
			continue
		}
		if len(r.Good) == 0 {
			all[cn] = append(all[cn], &revocation{seq: e.Seq, created: r.Created, issuedBefore: r.IssuedBefore})
			continue
		}
		for _, v := range all[cn] { // granted after the newest of them, it is so after all
			v.granted = append(v.granted, r.Good...)
		}
	}
	return all
}
