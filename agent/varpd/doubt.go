package varpd

import (
	"time"

	"rutter/varp"
)

const (
	// maxDoubts bounds the keys in doubt.
	maxDoubts = 65536
	// doubtPause is the least pause between two questions about a key in doubt, and
	// doubtRate bounds these questions of the whole daemon, in questions a second: the
	// pause grows with the number of keys.
	doubtPause = time.Second
	doubtRate  = 500
)

// doubt is a key whose answers may be older than a change: the server may give them
// from its cache. portolan does for 10 s, and its log does not invalidate the cache
// (spec/svp.md section 1.4).
//
// The key is asked at once, then every doubtPause until the answer is new, and a last
// time after the cache's time. VL3 and VL2 answers come from different caches, so that
// one may be new while the other is old: see outdated. portolan's log names a MAC only
// when its node has changed, so VL2 is asked only then, and not again once its answer is
// new; the last question is VL3. Else these questions would fill the second cache
// before the next change.
type doubt struct {
	// until is when the server's cache can no longer have what was right before the
	// last change.
	until time.Time
	next  time.Time // when it is asked again
	// was is the underlay before the last change: of a MAC what the kernel had, of an
	// address the answer.
	was   varp.Underlay
	fresh bool // an answer since the last change differs from was
	// none means that the newest answer wants no forwarding entry: the MAC is
	// unknown, or on this node.
	none    bool
	waiters []*record // done with the first answer after their times
}

// cacheWindow is the time after a change in which an answer may be older. Its tenth
// more than CacheTime is for the server: its cache counts from the end of its read.
func (c *Config) cacheWindow() time.Duration {
	if c.CacheTime < 0 {
		return 0
	}
	return c.CacheTime + c.CacheTime/10
}

// doubt puts k in doubt until a time, and returns its doubt; nil if there are too many.
func (d *Daemon) doubt(k key, until time.Time) *doubt {
	s := d.doubts[k]
	if s == nil {
		if len(d.doubts) >= maxDoubts {
			return nil
		}
		s = &doubt{}
		d.doubts[k] = s
	}
	s.fresh, s.was = false, varp.Underlay{}
	if f := d.tables.forwards[k]; f != nil {
		s.was = varp.Underlay{Addr: f.to, Port: f.port}
	} else if len(d.tables.users[k]) > 0 {
		s.was.Addr = d.links.vxlans[k.vnet].local
	} else if n := d.tables.neighs[k]; n != nil {
		s.was = n.said
	}
	if until.After(s.until) {
		s.until = until
	}
	s.next = earlier(time.Now().Add(d.doubtPause()), s.until)
	return s
}

// doubtNew puts the key of an answer in doubt if its vnet is new here: the server's
// log has the changes of a vnet for this node only since the node has a NIC in it, and
// its cache may be older. Only the question after the cache's time follows.
func (d *Daemon) doubtNew(k key, now time.Time) {
	until := d.vnetSince[k.vnet].Add(d.cfg.cacheWindow())
	if d.doubts[k] != nil || !now.Before(until) {
		return
	}
	if s := d.doubt(k, until); s != nil {
		s.next = until
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// doubtPause is the pause between two questions about a key in doubt.
func (d *Daemon) doubtPause() time.Duration {
	return max(doubtPause, time.Duration(len(d.doubts))*time.Second/doubtRate)
}

// askDoubts asks again about the keys in doubt whose time has come, and forgets those
// that are in the kernel no more.
func (d *Daemon) askDoubts(now time.Time) {
	d.stats.doubts.Store(int64(len(d.doubts)))
	pause := d.doubtPause()
	for k, s := range d.doubts {
		if now.Before(s.next) {
			continue
		}
		if !d.tables.holds(k) && d.queries.byKey[k] == nil {
			if !now.Before(s.until) {
				d.settle(k, s, now)
			} else {
				s.next = earlier(now.Add(pause), s.until)
			}
			continue
		}
		if s.fresh && now.Before(s.until) {
			s.next = s.until
			continue
		}
		about := k
		if !now.Before(s.until) {
			about = d.lastQuestion(k)
		}
		if d.ask(about, len(s.waiters) > 0) == nil {
			continue // the queue is full: at the next tick
		}
		s.next = now.Add(pause)
		if s.next.After(s.until) && now.Before(s.until) {
			s.next = s.until
		}
	}
}

// answered ends the doubts that an answer resolves: its question was sent at a time.
func (d *Daemon) answered(k key, asked time.Time) {
	if s := d.doubts[k]; s != nil {
		d.settle(k, s, asked)
	}
	if n := d.tables.neighs[k]; n != nil {
		mac := n.forwardKey()
		if s := d.doubts[mac]; s != nil && !asked.Before(s.until) {
			d.settle(mac, s, asked) // its underlay was in the answer
		}
	}
}

// lastQuestion is what is asked about k after the server's cache: of a MAC one of its
// addresses, if it has any.
func (d *Daemon) lastQuestion(k key) key {
	for user := range d.tables.users[k] {
		return user
	}
	return k
}

// noteFresh records that the answer about k differs from what was before the change.
func (d *Daemon) noteFresh(k key, to varp.Underlay) {
	if s := d.doubts[k]; s != nil && s.was.Addr.IsValid() && d.ownPort(k.vnet, to) != d.ownPort(k.vnet, s.was) {
		s.fresh = true
	}
}

// ownPort returns an underlay with port 0 for the device's own.
func (d *Daemon) ownPort(vnet uint32, u varp.Underlay) varp.Underlay {
	u.Addr = u.Addr.Unmap()
	if u.Port == d.links.vxlans[vnet].port {
		u.Port = 0
	}
	return u
}

// settle ends the records whose time has come, and the doubt after the last.
func (d *Daemon) settle(k key, s *doubt, asked time.Time) {
	left := s.waiters[:0]
	for _, r := range s.waiters {
		if asked.Before(r.until) {
			left = append(left, r)
			continue
		}
		r.from.end(r.id)
	}
	s.waiters = left
	if !asked.Before(s.until) {
		delete(d.doubts, k)
	}
}

// outdated reports whether an answer for a MAC is older than what the kernel has: the
// MAC is in doubt, another question has brought something else since the change, and
// this question repeats what it brought before. Each question is answered by one cache,
// so that its answers only become newer; which of two questions has the newer answer is
// known only by a change of one. last is the answer before this one; zero: none.
func (d *Daemon) outdated(k key, to, last varp.Underlay, asked time.Time) bool {
	s := d.doubts[k]
	if s == nil || !asked.Before(s.until) {
		return false
	}
	to, last = d.ownPort(k.vnet, to), d.ownPort(k.vnet, last)
	if !last.Addr.IsValid() {
		last = d.ownPort(k.vnet, s.was)
	}
	if to != last {
		return false
	}
	f := d.tables.forwards[k]
	if f == nil || !f.to.IsValid() {
		return s.none
	}
	return f.to.Unmap() != to.Addr || f.port != to.Port
}
