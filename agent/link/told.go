package link

import (
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"rutter/agent/miss"
	"rutter/log"
	"rutter/projections"
)

// maxHeard is how many single entries are remembered that may be other than
// they should; beyond it a pass looks at all of them.
const maxHeard = 4096

// told is what the kernel should hold as far as we know: what the last dump
// showed, and what it was told since. Notifications are judged by it: our own
// changes, of which the kernel tells us too, agree with it. Steps are noted
// before they are sent, so that no echo comes before its note.
type told struct {
	mu      sync.Mutex        // protects what follows
	links   map[int32]*Link   // by ifindex; never changed in place
	places  map[place]int32   // ifindex of each
	entries toldEntries       // told since the dump
	heard   map[entryKey]bool // entries that somebody else may have changed
	other   bool              // something else is not as it should be
	// doubtful are links whose last notification disagreed: one of several
	// that a single change of ours makes may do so.
	doubtful map[int32]bool
	spaces   map[string]bool // VM namespaces of which something was heard
	all      bool            // it may have been any of them
	hearing  bool            // Watch runs, and hears the VM namespaces
}

// entryKey is a neighbour on a link (ip), or a forwarding entry (mac).
type entryKey struct {
	index int32
	mac   log.MAC
	ip    netip.Addr
}

// placed is what an entry leads to. The zero value is no entry.
type placed struct {
	mac  log.MAC    // of a neighbour
	dst  netip.Addr // of a forwarding entry
	port uint16
}

func newTold() *told {
	return &told{links: map[int32]*Link{}, places: map[place]int32{}, entries: newToldEntries(), heard: map[entryKey]bool{}, doubtful: map[int32]bool{}, spaces: map[string]bool{}}
}

// learn takes over what a dump showed.
func (t *told) learn(links []Link) {
	byIndex, places := make(map[int32]*Link, len(links)), make(map[place]int32, len(links))
	for i := range links {
		byIndex[links[i].Index], places[links[i].place()] = &links[i], links[i].Index
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.links, t.places = byIndex, places
	t.entries.clear()
	clear(t.doubtful)
}

// entry returns what an entry should be.
func (t *told) entry(l *Link, key entryKey) placed {
	if key.ip.IsValid() {
		if p, ok := t.entries.neigh(uint64(key.index), key.ip); ok {
			return p
		}
		if i, ok := slices.BinarySearchFunc(l.Neighs, key.ip, func(n Neighbour, ip netip.Addr) int { return n.IP.Compare(ip) }); ok {
			return placed{mac: l.Neighs[i].MAC}
		}
		return placed{}
	}
	if p, ok := t.entries.forward(uint32(key.index), key.mac); ok {
		return p
	}
	if i, ok := slices.BinarySearchFunc(l.FDB, key.mac, func(f Forward, mac log.MAC) int { return compareMAC(f.MAC, mac) }); ok && l.FDB[i].Permanent {
		return placed{dst: l.FDB[i].Dst, port: l.FDB[i].Port}
	}
	return placed{}
}

// note remembers the steps of a batch that is about to be sent.
func (t *told) note(steps []Step, requests []request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range requests {
		if q := &requests[i]; q.index != 0 {
			t.noteStep(&steps[q.step], q.index)
		}
	}
}

func (t *told) noteStep(s *Step, index int32) {
	switch s.Op {
	case OpSetNeigh:
		t.entries.setNeigh(uint64(index), s.Addr, s.MAC)
		return
	case OpDelNeigh:
		t.entries.setNeigh(uint64(index), s.Addr, log.MAC{})
		return
	case OpSetFDB:
		t.entries.setForward(uint32(index), s.MAC, s.Addr, s.Port)
		return
	case OpDelFDB:
		t.entries.setForward(uint32(index), s.MAC, netip.Addr{}, 0)
		return
	case OpAddLink:
		l := *s.Spec
		l.Index = index
		t.links[index], t.places[l.place()] = &l, index
		return
	case OpDelLink:
		t.fall(index)
		return
	}
	if l := t.links[index]; l != nil {
		changed := *l
		changed.note(s)
		t.links[index] = &changed
	}
}

// note changes a link as a step does. Its lists may be shared: they are copied.
func (l *Link) note(s *Step) {
	switch s.Op {
	case OpSetLink:
		l.Up = l.Up || s.Change&ChangeUp != 0
		l.QuietIPv6 = l.QuietIPv6 || s.Change&ChangeQuietIPv6 != 0
		if s.Change&ChangeMTU != 0 {
			l.MTU = s.Spec.MTU
		}
		if s.Change&ChangeMAC != 0 {
			l.MAC = s.Spec.MAC
		}
	case OpAddAddress:
		l.Addresses = append(slices.Clone(l.Addresses), s.Prefix)
	case OpDelAddress:
		l.Addresses = slices.DeleteFunc(slices.Clone(l.Addresses), func(p netip.Prefix) bool { return p == s.Prefix })
	case OpSetRoute, OpDelRoute:
		l.Routes = slices.DeleteFunc(slices.Clone(l.Routes), func(r projections.Route) bool { return r.Dst == s.Prefix })
		if s.Op == OpSetRoute {
			l.Routes = append(l.Routes, projections.Route{Dst: s.Prefix, Gateway: s.Addr})
		}
	}
}

// fall forgets a link and what is stacked on it.
func (t *told) fall(index int32) {
	l := t.links[index]
	if l == nil {
		return
	}
	delete(t.links, index)
	delete(t.places, l.place())
	if l.Kind == kindMacvlan {
		return
	}
	for child, above := range t.links {
		if above.Parent == l.Name {
			t.fall(child)
		}
	}
}

// setHearing notes whether Watch hears the VM namespaces from now on.
func (t *told) setHearing(hearing bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hearing, t.all = hearing, true
}

// hears reports whether Watch hears the VM namespaces.
func (t *told) hears() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hearing
}

// takeSpaces returns the VM namespaces of which something was heard, and forgets.
func (t *told) takeSpaces() (names []string, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	names, all = sortedKeys(t.spaces), t.all || !t.hearing
	clear(t.spaces)
	t.all = false
	return names, all
}

// wrong notes that something about a link is not as it should be, which only a
// pass can put right.
func (t *told) wrong(l *Link) {
	t.other = true
	if l.Namespace == "" {
		t.all = true // it carries those of the VMs
	} else {
		t.spaces[l.Namespace] = true
	}
}

// indexOf returns the ifindex of a link.
func (t *told) indexOf(at place) (int32, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	index, ok := t.places[at]
	return index, ok
}

// touch has a VM namespace read again.
func (t *told) touch(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spaces[namespace] = true
}

// namespaces returns the VM namespaces that have links of ours.
func (t *told) namespaces() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := map[string]bool{}
	for at := range t.places {
		if at.namespace != "" {
			names[at.namespace] = true
		}
	}
	return sortedKeys(names)
}

// questions appends what misses ask for, of links that are ours.
func (t *told) questions(list []Question, misses []miss.Miss) []Question {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range misses {
		l := t.links[m.Link]
		switch {
		case l == nil:
		case m.Kind == miss.Forward && l.Kind == kindVXLAN:
			list = append(list, Question{VNet: l.VNI, MAC: m.MAC})
		case m.Kind == miss.Neighbour && l.Kind == kindMacvlan:
			if vnet, ok := vnetOfName(l.Parent); ok {
				list = append(list, Question{VNet: vnet, Namespace: l.Namespace, Link: l.Name, Fabric: l.MAC, IP: m.IP})
			}
		}
	}
	return list
}

// take returns what was heard and forgets it.
func (t *told) take() (entries []Entry, other bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entries = make([]Entry, 0, len(t.heard))
	for key := range t.heard {
		if l := t.links[key.index]; l != nil {
			entries = append(entries, Entry{Namespace: l.Namespace, Link: l.Name, MAC: key.mac, IP: key.ip})
		}
	}
	slices.SortFunc(entries, compareEntry)
	other = t.other
	clear(t.heard)
	t.other = false
	return entries, other
}

// The methods that begin with hear are called within mu: Watch judges many
// notifications at once.

// hearEntry judges a notification of a neighbour or forwarding entry, and
// reports whether it is other than it should be.
func (t *told) hearEntry(body []byte, deleted bool) bool {
	n, ok := parseNeigh(body)
	if !ok {
		return false
	}
	l := t.links[n.index]
	if l == nil {
		return false
	}
	key, is := entryKey{index: n.index, ip: n.dst}, placed{mac: n.mac}
	if body[0] == unix.AF_BRIDGE {
		if l.Kind != kindVXLAN || n.flags&unix.NTF_SELF == 0 {
			return false
		}
		key, is = entryKey{index: n.index, mac: n.mac}, placed{dst: n.dst, port: otherPort(n.port, l.Port)}
	} else if l.Kind != kindMacvlan {
		return false
	}
	if deleted || n.state&unix.NUD_PERMANENT == 0 {
		is = placed{}
	}
	if t.entry(l, key) == is {
		return false
	}
	if l.Namespace != "" {
		t.spaces[l.Namespace] = true
	}
	if len(t.heard) >= maxHeard {
		t.other = true
	} else {
		t.heard[key] = true
	}
	return true
}

// hearLink judges a notification of a link.
func (t *told) hearLink(body []byte, deleted bool) bool {
	l, ok := parseLink(body)
	if !ok || l.Kind == "" && !deleted {
		return false // of a bridge's port: it says nothing of ours
	}
	should := t.links[l.Index]
	switch {
	case should == nil && (deleted || kindOfName(l.Name) == ""):
		return false
	case should == nil:
		t.doubtful[l.Index] = true // somebody else gave one of our names
	case deleted:
		t.wrong(should)
	default:
		l.Parent = should.Parent
		if l.Name == should.Name && l.Kind == should.Kind && sameBuild(&l.Link, should) && changes(should, &l.Link, false) == 0 {
			delete(t.doubtful, l.Index)
			return false
		}
		t.doubtful[l.Index] = true
	}
	return true
}

// hearAddress judges a notification of an address.
func (t *told) hearAddress(body []byte, deleted bool) bool {
	index, prefix, permanent, ok := parseAddress(body)
	if !ok || isLinkLocal(prefix.Addr()) || !permanent && !deleted {
		return false
	}
	l := t.links[index]
	if l == nil || l.Kind != kindMacvlan || slices.Contains(l.Addresses, prefix) != deleted {
		return false
	}
	t.wrong(l)
	return true
}

// hearRoute judges a notification of a route.
func (t *told) hearRoute(body []byte, deleted bool) bool {
	r, ok := parseRoute(body)
	if !ok {
		return false
	}
	l := t.links[r.index]
	if l == nil || slices.Contains(l.Routes, r.Route) != deleted {
		return false
	}
	t.wrong(l)
	return true
}

// hearLoss: something happened that cannot be told in detail.
func (t *told) hearLoss() { t.other, t.all = true, true }

// loseAll is hearLoss for who does not hold mu.
func (t *told) loseAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hearLoss()
}

// settle turns links that still are in doubt into something heard, and reports
// whether anything is.
func (t *told) settle() bool {
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
	return t.other || len(t.heard) > 0
}
