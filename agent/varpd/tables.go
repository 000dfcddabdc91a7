package varpd

import (
	"container/list"
	"net/netip"
	"time"

	"rutter/log"
	"rutter/varp"
)

// key is the subject of one question: an address (VL3), or, if ip is not valid, a MAC
// (VL2).
type key struct {
	vnet uint32
	ip   netip.Addr
	mac  log.MAC
}

// linkKey is a fabric link that has an entry for an address.
type linkKey struct{ namespace, link string }

// neigh is a programmed address, with its links.
type neigh struct {
	key   key
	mac   log.MAC
	links map[linkKey]bool // never empty
	age   *list.Element    // in tables.ages
	said  varp.Underlay    // of the last VL3 answer; zero: none came
}

// forward is a forwarding entry of a vnet's VXLAN device.
type forward struct {
	key  key
	to   netip.Addr
	port uint16 // 0: the device's own
	// direct means that the entry is wanted without a neighbour that uses it: the
	// kernel missed the MAC itself. It is removed with the vnet's last fabric link.
	direct bool
	age    *list.Element
	said   varp.Underlay // of the last VL2 answer; zero: none came
}

// aged is one value of tables.ages.
type aged struct {
	key     key
	checked time.Time // when it was asked for last
}

// tables has the entries in the kernel, and the keys known to be absent. They belong to
// one goroutine.
type tables struct {
	neighs   map[key]*neigh
	forwards map[key]*forward
	users    map[key]map[key]bool // of a MAC, the neighbours that use it
	ages     *list.List           // of *aged, all of neighs and forwards, longest ago first
	absent   map[key]time.Time
}

func newTables() tables {
	return tables{neighs: map[key]*neigh{}, forwards: map[key]*forward{}, users: map[key]map[key]bool{}, ages: list.New(), absent: map[key]time.Time{}}
}

// maxAbsent bounds the NOTFOUND answers that are kept. A VM that scans fills it; then
// each miss is a question.
const maxAbsent = 65536

// isAbsent reports whether a recent answer for k was NOTFOUND.
func (t *tables) isAbsent(k key, now time.Time) bool {
	until, ok := t.absent[k]
	return ok && now.Before(until)
}

// noteAbsent keeps a NOTFOUND for k until a time.
func (t *tables) noteAbsent(k key, until time.Time) {
	if _, had := t.absent[k]; had || len(t.absent) < maxAbsent {
		t.absent[k] = until
	}
}

// expireAbsent removes expired NOTFOUND answers.
func (t *tables) expireAbsent(now time.Time) {
	for k, until := range t.absent {
		if !now.Before(until) {
			delete(t.absent, k)
		}
	}
}

// holds reports whether k is programmed.
func (t *tables) holds(k key) bool { return t.neighs[k] != nil || t.forwards[k] != nil }

// checked records when an entry was asked last.
func (t *tables) checked(e *list.Element, now time.Time) {
	e.Value.(*aged).checked = now
	t.ages.MoveToBack(e)
}

// setChecked moves an entry to the front of the queue for checks, as if it had been
// asked at a time.
func (t *tables) setChecked(e *list.Element, checked time.Time) {
	e.Value.(*aged).checked = checked
	t.ages.MoveToFront(e)
}

// ageOf returns the element of an entry in ages, nil if it is not held.
func (t *tables) ageOf(k key) *list.Element {
	if n := t.neighs[k]; n != nil {
		return n.age
	}
	if f := t.forwards[k]; f != nil {
		return f.age
	}
	return nil
}

// addNeigh returns the neighbour of k, made if there was none.
func (t *tables) addNeigh(k key) *neigh {
	n := t.neighs[k]
	if n == nil {
		n = &neigh{key: k, links: map[linkKey]bool{}, age: t.ages.PushFront(&aged{key: k})}
		t.neighs[k] = n
	}
	return n
}

// addForward returns the forwarding entry of k, made if there was none.
func (t *tables) addForward(k key) *forward {
	f := t.forwards[k]
	if f == nil {
		f = &forward{key: k, age: t.ages.PushFront(&aged{key: k})}
		t.forwards[k] = f
	}
	return f
}

// addUser makes a neighbour use a MAC, and returns the forwarding entry that lost its
// last user, if one did.
func (t *tables) addUser(n *neigh, mac log.MAC) *forward {
	if n.mac == mac {
		return nil
	}
	unused := t.release(n)
	n.mac, n.said = mac, varp.Underlay{}
	k := n.forwardKey()
	if t.users[k] == nil {
		t.users[k] = map[key]bool{}
	}
	t.users[k][n.key] = true
	if f := t.forwards[k]; f != nil {
		f.direct = false // from now on it is removed with its last user
	}
	return unused
}

// removeNeigh forgets a neighbour, and returns the forwarding entry that lost its last
// user, if one did.
func (t *tables) removeNeigh(n *neigh) *forward {
	t.ages.Remove(n.age)
	delete(t.neighs, n.key)
	return t.release(n)
}

// forwardKey is the key of the MAC that a neighbour has.
func (n *neigh) forwardKey() key { return key{vnet: n.key.vnet, mac: n.mac} }

// release removes a neighbour from the users of its MAC.
func (t *tables) release(n *neigh) *forward {
	k := n.forwardKey()
	delete(t.users[k], n.key)
	if len(t.users[k]) > 0 {
		return nil
	}
	delete(t.users, k)
	if f := t.forwards[k]; f != nil && !f.direct {
		return f
	}
	return nil
}

// dropForward forgets a forwarding entry.
func (t *tables) dropForward(f *forward) {
	t.ages.Remove(f.age)
	delete(t.forwards, f.key)
}
