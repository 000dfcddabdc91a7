package link

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
	"rutter/agent/miss"
	"rutter/log"
)

// maxObserved is how many single entries are remembered that may be other than
// they should; beyond it a pass looks at all of them.
const maxObserved = 4096

// expected is what the kernel should hold as far as we know: what the last dump
// showed, and what it was told since. Notifications are judged by it: our own
// changes, of which the kernel tells us too, agree with it. Steps are noted
// before they are sent, so that no echo comes before its note.
type expected struct {
	mu       sync.Mutex             // protects what follows
	links    map[int32]*plan.Link   // by ifindex; never changed in place
	indexes  map[plan.LinkKey]int32 // ifindex of each
	entries  expectedEntries        // told since the dump
	observed map[entryKey]bool      // entries that somebody else may have changed
	other    bool                   // something else is not as it should be
	// doubtful are links whose last notification disagreed: one of several
	// that a single change of ours makes may do so.
	doubtful  map[int32]bool
	changed   map[string]bool // VM namespaces of which something was heard
	all       bool            // it may have been any of them
	listening bool            // Watch runs, and hears the VM namespaces
}

// entryKey is a neighbour on a link (ip), or a forwarding entry (mac).
type entryKey struct {
	index int32
	mac   log.MAC
	ip    netip.Addr
}

func newExpected() *expected {
	return &expected{links: map[int32]*plan.Link{}, indexes: map[plan.LinkKey]int32{}, entries: newExpectedEntries(), observed: map[entryKey]bool{}, doubtful: map[int32]bool{}, changed: map[string]bool{}}
}

// reset takes over what a dump showed.
func (t *expected) reset(links []plan.Link) {
	byIndex, places := make(map[int32]*plan.Link, len(links)), make(map[plan.LinkKey]int32, len(links))
	for i := range links {
		byIndex[links[i].Index], places[links[i].Key()] = &links[i], links[i].Index
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.links, t.indexes = byIndex, places
	t.entries.clear()
	clear(t.doubtful)
}

// entry returns what an entry should be.
func (t *expected) entry(l *plan.Link, key entryKey) plan.Target {
	if key.ip.IsValid() {
		if p, ok := t.entries.neigh(uint64(key.index), key.ip); ok {
			return p
		}
		if i, ok := slices.BinarySearchFunc(l.Neighs, key.ip, func(n plan.Neighbour, ip netip.Addr) int { return n.IP.Compare(ip) }); ok {
			return plan.Target{MAC: l.Neighs[i].MAC}
		}
		return plan.Target{}
	}
	if p, ok := t.entries.forward(uint32(key.index), key.mac); ok {
		return p
	}
	if i, ok := slices.BinarySearchFunc(l.FDB, key.mac, func(f plan.Forward, mac log.MAC) int { return f.MAC.Compare(mac) }); ok && l.FDB[i].Permanent {
		return plan.Target{Dst: l.FDB[i].Dst, Port: l.FDB[i].Port}
	}
	return plan.Target{}
}

// note remembers the steps of a batch that is about to be sent.
func (t *expected) note(steps []plan.Step, requests []request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range requests {
		if q := &requests[i]; q.index != 0 {
			t.noteStep(&steps[q.step], q.index)
		}
	}
}

func (t *expected) noteStep(s *plan.Step, index int32) {
	switch s.Op {
	case plan.OpSetNeigh:
		t.entries.setNeigh(uint64(index), s.Addr, s.MAC)
		return
	case plan.OpDelNeigh:
		t.entries.setNeigh(uint64(index), s.Addr, log.MAC{})
		return
	case plan.OpSetFDB:
		t.entries.setForward(uint32(index), s.MAC, s.Addr, s.Port)
		return
	case plan.OpDelFDB:
		t.entries.setForward(uint32(index), s.MAC, netip.Addr{}, 0)
		return
	case plan.OpAddLink:
		l := *s.Spec
		l.Index = index
		t.links[index], t.indexes[l.Key()] = &l, index
		return
	case plan.OpDelLink:
		t.fall(index)
		return
	}
	if l := t.links[index]; l != nil {
		changed := *l
		changed.Apply(s)
		t.links[index] = &changed
	}
}

// fall forgets a link and what is stacked on it.
func (t *expected) fall(index int32) {
	l := t.links[index]
	if l == nil {
		return
	}
	delete(t.links, index)
	delete(t.indexes, l.Key())
	if l.Kind == plan.KindMacvlan {
		return
	}
	for child, above := range t.links {
		if above.Parent == l.Name {
			t.fall(child)
		}
	}
}

// setListening notes whether Watch hears the VM namespaces from now on.
func (t *expected) setListening(hearing bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listening, t.all = hearing, true
}

// listens reports whether Watch hears the VM namespaces.
func (t *expected) listens() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.listening
}

// takeChanged returns the VM namespaces of which something was heard, and forgets.
func (t *expected) takeChanged() (names []string, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	names, all = slices.Sorted(maps.Keys(t.changed)), t.all || !t.listening
	clear(t.changed)
	t.all = false
	return names, all
}

// wrong notes that something about a link is not as it should be, which only a
// pass can put right.
func (t *expected) wrong(l *plan.Link) {
	t.other = true
	if l.Namespace == "" {
		t.all = true // it carries those of the VMs
	} else {
		t.changed[l.Namespace] = true
	}
}

// indexOf returns the ifindex of a link.
func (t *expected) indexOf(at plan.LinkKey) (int32, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	index, ok := t.indexes[at]
	return index, ok
}

// touch has a VM namespace read again.
func (t *expected) touch(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed[namespace] = true
}

// namespaces returns the VM namespaces that have links of ours.
func (t *expected) namespaces() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := map[string]bool{}
	for at := range t.indexes {
		if at.Namespace != "" {
			names[at.Namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// questions appends what misses ask for, of links that are ours.
func (t *expected) questions(list []Question, misses []miss.Miss) []Question {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range misses {
		l := t.links[m.Link]
		switch {
		case l == nil:
		case m.Kind == miss.Forward && l.Kind == plan.KindVXLAN:
			list = append(list, Question{VNet: l.VNI, MAC: m.MAC})
		case m.Kind == miss.Neighbour && l.Kind == plan.KindMacvlan:
			if vnet, ok := plan.VNetOfName(l.Parent); ok {
				list = append(list, Question{VNet: vnet, Namespace: l.Namespace, Link: l.Name, Fabric: l.MAC, IP: m.IP})
			}
		}
	}
	return list
}

// take returns what was heard and forgets it.
func (t *expected) take() (entries []plan.Entry, other bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entries = make([]plan.Entry, 0, len(t.observed))
	for key := range t.observed {
		if l := t.links[key.index]; l != nil {
			entries = append(entries, plan.Entry{Namespace: l.Namespace, Link: l.Name, MAC: key.mac, IP: key.ip})
		}
	}
	slices.SortFunc(entries, plan.CompareEntry)
	other = t.other
	clear(t.observed)
	t.other = false
	return entries, other
}

// The methods that begin with hear are called within mu: Watch judges many
// notifications at once.

// observeEntry judges a notification of a neighbour or forwarding entry, and
// reports whether it is other than it should be.
func (t *expected) observeEntry(body []byte, deleted bool) bool {
	n, ok := wire.ParseNeigh(body)
	if !ok {
		return false
	}
	l := t.links[n.Index]
	if l == nil {
		return false
	}
	key, is := entryKey{index: n.Index, ip: n.Dst}, plan.Target{MAC: n.MAC}
	if body[0] == unix.AF_BRIDGE {
		if l.Kind != plan.KindVXLAN || n.Flags&unix.NTF_SELF == 0 {
			return false
		}
		key, is = entryKey{index: n.Index, mac: n.MAC}, plan.Target{Dst: n.Dst, Port: plan.OtherPort(n.Port, l.Port)}
	} else if l.Kind != plan.KindMacvlan {
		return false
	}
	if deleted || n.State&unix.NUD_PERMANENT == 0 {
		is = plan.Target{}
	}
	if t.entry(l, key) == is {
		return false
	}
	if l.Namespace != "" {
		t.changed[l.Namespace] = true
	}
	if len(t.observed) >= maxObserved {
		t.other = true
	} else {
		t.observed[key] = true
	}
	return true
}

// observeLink judges a notification of a link.
func (t *expected) observeLink(body []byte, deleted bool) bool {
	l, ok := wire.ParseLink(body)
	if !ok || l.Kind == "" && !deleted {
		return false // of a bridge's port: it says nothing of ours
	}
	should := t.links[l.Index]
	switch {
	case should == nil && (deleted || plan.KindOfName(l.Name) == ""):
		return false
	case should == nil:
		t.doubtful[l.Index] = true // somebody else gave one of our names
	case deleted:
		t.wrong(should)
	default:
		l.Parent = should.Parent
		if l.Name == should.Name && l.Kind == should.Kind && plan.SameBuild(&l.Link, should) && plan.Changes(should, &l.Link, false) == 0 {
			delete(t.doubtful, l.Index)
			return false
		}
		t.doubtful[l.Index] = true
	}
	return true
}

// observeAddress judges a notification of an address.
func (t *expected) observeAddress(body []byte, deleted bool) bool {
	index, prefix, permanent, ok := wire.ParseAddress(body)
	if !ok || plan.IsLinkLocal(prefix.Addr()) || !permanent && !deleted {
		return false
	}
	l := t.links[index]
	if l == nil || l.Kind != plan.KindMacvlan || slices.Contains(l.Addresses, prefix) != deleted {
		return false
	}
	t.wrong(l)
	return true
}

// observeRoute judges a notification of a route.
func (t *expected) observeRoute(body []byte, deleted bool) bool {
	r, ok := wire.ParseRoute(body)
	if !ok {
		return false
	}
	l := t.links[r.Index]
	if l == nil || slices.Contains(l.Routes, r.Route) != deleted {
		return false
	}
	t.wrong(l)
	return true
}

// observeLoss: something happened that cannot be told in detail.
func (t *expected) observeLoss() { t.other, t.all = true, true }

// loseAll is observeLoss for who does not hold mu.
func (t *expected) loseAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.observeLoss()
}

// settle turns links that still are in doubt into something heard, and reports
// whether anything is.
func (t *expected) settle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for index := range t.doubtful {
		if l := t.links[index]; l != nil {
			t.wrong(l)
		} else {
			t.other, t.all = true, true
		}
	}
	clear(t.doubtful)
	return t.other || len(t.observed) > 0
}
