package link

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
	"rutter/log"
)

// maxObserved bounds the single entries that are remembered as possibly wrong; beyond
// it a pass checks all of them.
const maxObserved = 4096

// expected is what the kernel should hold: what the last dump showed, and what was
// programmed since. Notifications are compared with it. Those of our own changes agree
// with it, because steps are noted before they are sent.
type expected struct {
	mu       sync.Mutex             // protects what follows
	links    map[int32]*plan.Link   // by ifindex; never changed in place
	indexes  map[plan.LinkKey]int32 // ifindex of each
	entries  expectedEntries        // programmed since the dump
	observed map[entryKey]bool      // entries that another program may have changed
	stirred  stirred                // fabric links and VM namespaces that may not be as they should be
	other    bool                   // something else is not as it should be
	// doubtful are links whose last notification disagreed: one of several
	// notifications of a single change of ours may do that.
	doubtful map[int32]bool
	// removed are links that we deleted: before the kernel reports that a link is gone it
	// reports that it is down, 20 ms earlier.
	removed   map[int32]bool
	changed   map[string]bool // VM namespaces with notifications
	all       bool            // any namespace may have changed
	rules     bool            // nf_tables changed
	listening bool            // Watch runs, and receives notifications of the VM namespaces
	underWay  int             // batches that were noted, and are not acknowledged yet
}

// entryKey is a neighbour on a link (ip), or a forwarding entry (mac).
type entryKey struct {
	index int32
	mac   log.MAC
	ip    netip.Addr
}

func newExpected() *expected {
	return &expected{links: map[int32]*plan.Link{}, indexes: map[plan.LinkKey]int32{}, entries: newExpectedEntries(), observed: map[entryKey]bool{}, doubtful: map[int32]bool{}, removed: map[int32]bool{}, stirred: newStirred(), changed: map[string]bool{}}
}

// reset takes the state that a dump showed.
func (t *expected) reset(links []plan.Link) {
	byIndex, places := make(map[int32]*plan.Link, len(links)), make(map[plan.LinkKey]int32, len(links))
	for i := range links {
		// A guest can give its link any ifindex. One that another link had before, or had
		// when this process began, stays that link's.
		l := &links[i]
		if other := byIndex[l.Index]; other == nil || l.Ours && (!other.Ours || l.Known != "" && other.Known == "") {
			byIndex[l.Index] = l
		}
		if l.Ours {
			places[l.Key()] = l.Index
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.links, t.indexes = byIndex, places
	t.entries.clear()
	clear(t.doubtful)
	if len(t.removed) > maxObserved {
		clear(t.removed)
	}
}

// learn takes what a dump of a part showed: its links, and that there are no others
// for which shown is true. Their entries since the last whole dump stay recorded.
func (t *expected) learn(links []plan.Link, shown func(at plan.LinkKey) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	there := make(map[plan.LinkKey]int32, len(links))
	for i := range links {
		if links[i].Ours {
			there[links[i].Key()] = links[i].Index
		}
	}
	for at, index := range t.indexes {
		if now, is := there[at]; shown(at) && (!is || now != index) {
			if l := t.links[index]; l != nil && l.Key() == at { // not another VM's: see reset
				delete(t.links, index)
			}
			delete(t.indexes, at)
		}
	}
	for i := range links {
		l, was := links[i], t.links[links[i].Index]
		switch {
		case was == nil:
		case was.Key() == l.Key():
			if l.Kind == plan.KindVXLAN && len(l.FDB) == 0 {
				l.FDB = was.FDB // not read: see plan.Part
			}
		case was.Ours && (!l.Ours || l.Known == "" || was.Known != ""):
			continue // a guest can give its link any ifindex: see reset
		default:
			delete(t.indexes, was.Key())
		}
		t.links[l.Index] = &l
		if l.Ours {
			t.indexes[l.Key()] = l.Index
		}
	}
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

// note records the steps of a batch that is about to be sent. noted follows.
func (t *expected) note(steps []plan.Step, requests []request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.underWay++
	for i := range requests {
		if q := &requests[i]; q.index != 0 {
			t.noteStep(&steps[q.step], q.index)
			if q.peer != 0 {
				t.noteMade(*steps[q.step].Spec.Peer, q.peer)
			}
		}
	}
}

// noted: a batch is done. What the kernel notified of it is in the sockets of Watch.
func (t *expected) noted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.underWay--
}

// busy reports whether a batch is under way: links are on their way to what they should be.
func (t *expected) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.underWay > 0
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
		t.noteMade(*s.Spec, index)
		return
	case plan.OpDelLink:
		t.removeLink(index, plan.LinkKey{Namespace: s.Namespace, Name: s.Link})
		return
	}
	if l := t.links[index]; l != nil && l.Key() == (plan.LinkKey{Namespace: s.Namespace, Name: s.Link}) {
		changed := *l
		changed.Apply(s)
		t.links[index] = &changed
	}
}

// noteMade records a link that is made.
func (t *expected) noteMade(l plan.Link, index int32) {
	l.Up = l.Up && l.Peer == nil // a later step puts it up
	l.Index, l.Ours, l.Peer = index, true, nil
	if l.As != l.Name {
		l.Now = l.As
	}
	if l.IsFabric() {
		l.Alias = "" // it comes with a later step
	}
	t.links[index], t.indexes[l.Key()] = &l, index
}

// removeLink forgets a link and the links on it, and what was observed of them: how a link
// was that is gone is no reason for a pass. If a guest gave its link the ifindex of another
// one, that other one stays.
func (t *expected) removeLink(index int32, at plan.LinkKey) {
	l := t.links[index]
	if t.indexes[at] == index {
		delete(t.indexes, at)
	}
	if l == nil || l.Key() != at {
		return
	}
	delete(t.links, index)
	delete(t.doubtful, index)
	delete(t.stirred.links, at)
	t.removed[index] = true
	if l.IsFabric() {
		return
	}
	for child, above := range t.links {
		if above.Parent == l.Name {
			t.removeLink(child, above.Key())
		}
	}
}

// setListening sets whether Watch receives notifications of the VM namespaces.
func (t *expected) setListening(hearing bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listening, t.all = hearing, true
}

// listens reports whether Watch receives notifications of the VM namespaces.
func (t *expected) listens() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.listening
}

// takeChanged returns the VM namespaces with notifications, and clears the list.
func (t *expected) takeChanged() (names []string, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	names, all = slices.Sorted(maps.Keys(t.changed)), t.all || !t.listening
	clear(t.changed)
	t.all = false
	return names, all
}

// stirred are fabric links, and VM namespaces, that a part can put right.
type stirred struct {
	links      map[plan.LinkKey]bool
	namespaces map[string]bool // that appeared, went, or were replaced
}

func newStirred() stirred {
	return stirred{links: map[plan.LinkKey]bool{}, namespaces: map[string]bool{}}
}

// takeStirred returns what was stirred, in no order, and clears it.
func (t *expected) takeStirred() (links []plan.LinkKey, namespaces []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	links, namespaces = slices.Collect(maps.Keys(t.stirred.links)), slices.Collect(maps.Keys(t.stirred.namespaces))
	clear(t.stirred.links)
	clear(t.stirred.namespaces)
	return links, namespaces
}

// mismatches records that a link is not as it should be, which a part can correct if it
// is a fabric link, and only a pass otherwise.
func (t *expected) mismatches(l *plan.Link) {
	if l.IsFabric() || l.Host {
		t.stirred.links[l.Key()] = true
		if l.Namespace != "" {
			t.changed[l.Namespace] = true
		}
		return
	}
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

// touch requests a new dump of a VM namespace.
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

// take returns the observed changes and clears them.
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

// The caller of the methods that begin with observe holds mu, because Watch handles
// many notifications at once.

// observeEntry checks a notification of a neighbour or forwarding entry, and reports
// whether it differs from what it should be.
func (t *expected) observeEntry(body []byte, deleted bool) bool {
	n, ok := wire.ParseNeigh(body)
	if !ok {
		return false
	}
	l := t.links[n.Index]
	if l == nil || !l.Ours {
		return false
	}
	key, is := entryKey{index: n.Index, ip: n.Dst}, plan.Target{MAC: n.MAC}
	if body[0] == unix.AF_BRIDGE {
		if n.Master {
			return t.observeStatic(l, &n, deleted)
		}
		if l.Kind != plan.KindVXLAN || n.Flags&unix.NTF_SELF == 0 {
			return false
		}
		if n.MAC.IsZero() {
			return t.observeFlood(l, &n, deleted)
		}
		key, is = entryKey{index: n.Index, mac: n.MAC}, plan.Target{Dst: n.Dst, Port: plan.OtherPort(n.Port, l.Port)}
	} else if !l.IsFabric() {
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

// observeLink checks a notification of a link.
func (t *expected) observeLink(body []byte, deleted bool) bool {
	if len(body) > 0 && body[0] == unix.AF_BRIDGE {
		return !deleted && t.observePort(body)
	}
	l, ok := wire.ParseLink(body)
	if !ok || l.Kind == "" && !deleted {
		return false // of a bridge's port: it is not about our links
	}
	should := t.links[l.Index]
	switch {
	case should == nil && deleted:
		delete(t.removed, l.Index)
		delete(t.doubtful, l.Index)
		return false
	case should == nil && (t.removed[l.Index] || plan.KindOfName(l.Name) == ""):
		return false
	case should == nil:
		t.doubtful[l.Index] = true // another program gave it one of our names
	case deleted:
		t.mismatches(should)
	default:
		l.Parent, l.Host = should.Parent, should.Host
		if l.MasterIndex != 0 {
			l.Master = "#"
			if master := t.links[l.MasterIndex]; master != nil {
				l.Master = master.Name
			}
		}
		if l.Name == should.NameNow() && l.Kind == should.Kind && plan.SameBuild(&l.Link, should) && plan.Changes(should, &l.Link, false) == 0 {
			delete(t.doubtful, l.Index)
			return false
		}
		t.doubtful[l.Index] = true
	}
	return true
}

// observeAddress checks a notification of an address.
func (t *expected) observeAddress(body []byte, deleted bool) bool {
	index, prefix, permanent, ok := wire.ParseAddress(body)
	if !ok || plan.IsLinkLocal(prefix.Addr()) || !permanent && !deleted {
		return false
	}
	l := t.links[index]
	if l == nil || !l.Ours || !l.IsFabric() || slices.Contains(l.Addresses, prefix) != deleted {
		return false
	}
	t.mismatches(l)
	return true
}

// observeRoute checks a notification of a route.
func (t *expected) observeRoute(body []byte, deleted bool) bool {
	r, ok := wire.ParseRoute(body)
	if !ok {
		return false
	}
	l := t.links[r.Index]
	if l == nil || !l.Ours || slices.Contains(l.Routes, r.Route) != deleted {
		return false
	}
	t.mismatches(l)
	return true
}

// observeLoss: something happened, and the details are unknown.
func (t *expected) observeLoss() { t.other, t.all = true, true }

// doubtAll is observeLoss for callers that do not hold mu.
func (t *expected) doubtAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.observeLoss()
}

// settle turns links that are still doubtful into changes, and reports whether there
// are any changes.
func (t *expected) settle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for index := range t.doubtful {
		if l := t.links[index]; l != nil {
			t.mismatches(l)
		} else {
			t.other, t.all = true, true
		}
	}
	clear(t.doubtful)
	return t.other || len(t.observed)+len(t.stirred.links)+len(t.stirred.namespaces) > 0
}
