package projections

import "net/netip"

// span is a run of addresses that are all in use, both ends included.
type span struct{ lo, hi netip.Addr }

func compareSpans(a, b span) int { return a.lo.Compare(b.lo) }

// spans are the addresses of one network that are in use, as runs parted by at
// least one free address. So the lowest free address above any other is found
// in O(log n), however many NICs the network has.
type spans struct{ runs *sorted[span] }

func newSpans() *spans { return &spans{newSorted(compareSpans)} }

// around returns the run that begins at or below ip.
func (s *spans) around(ip netip.Addr) (span, bool) {
	if r, ok := s.runs.get(span{lo: ip}); ok {
		return r, true
	}
	return s.runs.below(span{lo: ip})
}

// add marks ip as in use.
func (s *spans) add(ip netip.Addr) {
	grown := span{ip, ip}
	if r, ok := s.around(ip); ok {
		if ip.Compare(r.hi) <= 0 {
			return
		}
		if r.hi.Next() == ip {
			grown.lo = r.lo // replaces r: it has the same key
		}
	}
	if r, ok := s.runs.get(span{lo: ip.Next()}); ok && ip.Next().IsValid() {
		grown.hi = r.hi
		s.runs.remove(r)
	}
	s.runs.insert(grown)
}

// remove marks ip as free.
func (s *spans) remove(ip netip.Addr) {
	r, ok := s.around(ip)
	if !ok || ip.Compare(r.hi) > 0 {
		return
	}
	s.runs.remove(r)
	if r.lo.Less(ip) {
		s.runs.insert(span{r.lo, ip.Prev()})
	}
	if ip.Less(r.hi) {
		s.runs.insert(span{ip.Next(), r.hi})
	}
}

// free returns the lowest address at or above ip that is not in use; it is not
// valid when there is none. A nil set is all free.
func (s *spans) free(ip netip.Addr) netip.Addr {
	if s == nil || !ip.IsValid() {
		return ip
	}
	if r, ok := s.around(ip); ok && ip.Compare(r.hi) <= 0 {
		return r.hi.Next()
	}
	return ip
}
