package api

import "rutter/log"

// audience is who holds a scope.
type audience struct {
	members []*subscriber
	// touched is the last entry that concerned the scope, or where it began to
	// be noted.
	touched log.Seq
}

// hold adds a scope to those that u holds.
func (u *subscriber) hold(scope log.Scope, asOf log.Seq) {
	_, known := u.held[scope]
	u.held[scope], u.recent = asOf, log.Scope{}
	u.heldAll = u.heldAll || scope == log.AllScope()
	if known {
		return
	}
	c := u.s.crew
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.audiences[scope]
	if a == nil {
		a = &audience{touched: c.at.Seq}
		c.audiences[scope] = a
	}
	a.members = append(a.members, u)
}

// unhold removes a scope.
func (u *subscriber) unhold(scope log.Scope) {
	if _, known := u.held[scope]; !known {
		return
	}
	delete(u.held, scope)
	u.recent = log.Scope{}
	u.heldAll = u.heldAll && scope != log.AllScope()
	c := u.s.crew
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.audiences[scope]
	for i, member := range a.members {
		if member == u {
			last := len(a.members) - 1
			a.members[i], a.members[last] = a.members[last], nil
			a.members = a.members[:last]
			break
		}
	}
	if len(a.members) == 0 {
		delete(c.audiences, scope)
	}
}

func (u *subscriber) unholdAll() {
	for scope := range u.held {
		u.unhold(scope)
	}
}

// skip moves u to where the crew has read to, if nothing between concerns it.
func (u *subscriber) skip() bool {
	c := u.s.crew
	c.mu.Lock()
	defer c.mu.Unlock()
	if u.due || c.at.Seq <= u.place || c.at.Cluster != u.cluster {
		return false
	}
	for scope := range u.held {
		if c.audiences[scope].touched > u.place {
			return false
		}
	}
	u.place, u.chain = c.at.Seq, c.at.Chain
	return true
}
