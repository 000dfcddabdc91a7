package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"rutter/log"
	"rutter/projections/desired"
)

// Numbers is what must be remembered of the links that were made: the number space of
// fabric<N> (the N of each MAC, the namespaces in which its link was put, and where the
// source of its VM said last that it ends), and whose links are ours. Its owner stores it across restarts as JSON, so that a NIC's link keeps
// its name. The zero value is ready for use. It must not be changed while another
// goroutine reads it.
type Numbers struct {
	byMAC map[log.MAC]numberEntry
	used  map[uint32]log.MAC

	// clusters are those whose marks are ours; the first is the one that is followed.
	clusters []log.UUID
	// marked: the links of versions without marks were adopted.
	marked bool
	// node is the compute node that these are of; zero: not known, and its files bear no
	// mark. It is not stored.
	node log.UUID
}

type numberEntry struct {
	N          uint32   `json:"n"`
	Namespaces []string `json:"namespaces"`
	// Attach is what was told last of where the link ends; nil: nothing, or the default.
	// Versions without attachments skip it, and lose it when they save.
	Attach *attachEntry `json:"attach,omitempty"`

	// Of the entry of the zero MAC, which is no NIC's, and has a number that no NIC gets.
	// Versions without marks read it, and then remove it: after them, links without marks
	// are adopted again.
	Clusters []log.UUID `json:"clusters,omitempty"`
	Marked   bool       `json:"marked,omitempty"`
}

// attachEntry is a desired.Attach.
type attachEntry struct {
	Tap  bool   `json:"tap,omitempty"`
	Name string `json:"name,omitempty"`
	User uint32 `json:"user,omitempty"`
	// Was is the name before, from which the link is renamed; "": fabric<N>.
	Was string `json:"was,omitempty"`
}

// maxClusters bounds the clusters whose marks are ours. A node leaves a cluster when that
// is restored or made again; what the oldest of them made bears newer marks by then.
const maxClusters = 4

// Cluster returns the cluster that is followed, zero if none was yet.
func (n Numbers) Cluster() (cluster log.UUID) {
	if len(n.clusters) > 0 {
		cluster = n.clusters[0]
	}
	return cluster
}

// Follow records that a cluster is followed, and reports whether that is new. The marks of
// the clusters before stay ours.
func (n *Numbers) Follow(cluster log.UUID) (changed bool) {
	if n.Cluster() == cluster {
		return false
	}
	kept := slices.DeleteFunc(slices.Clone(n.clusters), func(c log.UUID) bool { return c == cluster })
	n.clusters = append([]log.UUID{cluster}, kept...)
	n.clusters = n.clusters[:min(len(n.clusters), maxClusters)]
	return true
}

// SetNode sets the compute node that the numbers are of: its resolv.conf are ours.
func (n *Numbers) SetNode(node log.UUID) { n.node = node }

// Node returns the compute node that the numbers are of; zero: not known.
func (n Numbers) Node() log.UUID { return n.node }

// With returns numbers for which the marks of further clusters are ours too, and whether
// any was new.
func (n Numbers) With(clusters []log.UUID) (with Numbers, changed bool) {
	known := []log.UUID{n.Cluster()}
	known = append(known, n.clusters[min(1, len(n.clusters)):]...)
	for _, c := range clusters {
		if !slices.Contains(known, c) && len(known) < maxClusters {
			known, changed = append(known, c), true
		}
	}
	if changed {
		n.clusters = known
	}
	return n, changed
}

// isMine reports whether links that a cluster marked are ours.
func (n Numbers) isMine(cluster log.UUID) bool {
	return cluster == n.Cluster() || slices.Contains(n.clusters, cluster)
}

// isMyGroup reports whether a link group is of a cluster whose links are ours.
func (n Numbers) isMyGroup(group uint32) bool {
	return group == GroupOf(n.Cluster()) || slices.ContainsFunc(n.clusters, func(c log.UUID) bool { return GroupOf(c) == group })
}

// Marked reports whether the links of versions without marks were adopted: from then on a
// link without a mark is foreign.
func (n Numbers) Marked() bool { return n.marked }

// SetMarked records that they were adopted, and reports whether that is new.
func (n *Numbers) SetMarked() (changed bool) {
	changed, n.marked = !n.marked, true
	return changed
}

// Lookup returns the number of a MAC.
func (n Numbers) Lookup(mac log.MAC) (uint32, bool) {
	entry, ok := n.byMAC[mac]
	return entry.N, ok
}

// Owner returns the MAC that has number N.
func (n Numbers) Owner(number uint32) (log.MAC, bool) {
	mac, ok := n.used[number]
	return mac, ok
}

// MACs returns all MACs that have a number, in order.
func (n Numbers) MACs() []log.MAC {
	macs := make([]log.MAC, 0, len(n.byMAC))
	for mac := range n.byMAC {
		macs = append(macs, mac)
	}
	slices.SortFunc(macs, log.MAC.Compare)
	return macs
}

// Namespaces returns the namespaces in which links were put, in order and without our
// own: a dump must read these too.
func (n Numbers) Namespaces() []string {
	var names []string
	for _, entry := range n.byMAC {
		names = append(names, entry.Namespaces...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Places returns the namespaces in which the link of a MAC may be, without our own. The
// caller must not change the list.
func (n Numbers) Places(mac log.MAC) []string { return n.byMAC[mac].Namespaces }

// In returns the MACs whose link may be in a namespace, in no order.
func (n Numbers) In(namespace string) (macs []log.MAC) {
	for mac, entry := range n.byMAC {
		if slices.Contains(entry.Namespaces, namespace) {
			macs = append(macs, mac)
		}
	}
	return macs
}

// Assign gives mac the lowest number that no other MAC has and that taken does not
// report, unless mac has one already. taken may be nil.
func (n *Numbers) Assign(mac log.MAC, taken func(number uint32) bool) (number uint32, changed bool) {
	if entry, ok := n.byMAC[mac]; ok {
		return entry.N, false
	}
	for number = 0; number < maxNumber-1; number++ {
		if _, used := n.used[number]; !used && (taken == nil || !taken(number)) {
			break
		}
	}
	n.put(mac, numberEntry{N: number})
	return number, true
}

// Adopt gives mac one certain number. It reports false, and does nothing, if mac has a
// number already or another MAC has that one.
func (n *Numbers) Adopt(mac log.MAC, number uint32) bool {
	if _, ok := n.byMAC[mac]; ok {
		return false
	}
	if _, used := n.used[number]; used || number >= maxNumber {
		return false
	}
	n.put(mac, numberEntry{N: number})
	return true
}

// Put records that the link of mac is, or will be, in namespace, and reports whether
// that is new. Our own namespace ("") is always read, and not recorded.
func (n *Numbers) Put(mac log.MAC, namespace string) (changed bool) {
	entry, ok := n.byMAC[mac]
	if !ok || namespace == "" || slices.Contains(entry.Namespaces, namespace) {
		return false
	}
	entry.Namespaces = append(slices.Clone(entry.Namespaces), namespace)
	slices.Sort(entry.Namespaces)
	n.byMAC[mac] = entry
	return true
}

// Settle forgets every namespace of mac but this one. It is called when a dump
// has shown that the link is there.
func (n *Numbers) Settle(mac log.MAC, namespace string) (changed bool) {
	entry, ok := n.byMAC[mac]
	if !ok {
		return false
	}
	var only []string
	if namespace != "" {
		only = []string{namespace}
	}
	if slices.Equal(entry.Namespaces, only) {
		return false
	}
	entry.Namespaces = only
	n.byMAC[mac] = entry
	return true
}

// Attach returns where the link of mac ends, as it was told last; the zero Attach if it was
// not, or if mac has no number.
func (n Numbers) Attach(mac log.MAC) (a desired.Attach) {
	if e := n.byMAC[mac].Attach; e != nil {
		a = desired.Attach{Tap: e.Tap, Name: e.Name, User: e.User}
	}
	return a
}

// Tell records where the link of mac ends, and reports whether that is new. A MAC without a
// number has nothing recorded. CheckAttach must have accepted a.
func (n *Numbers) Tell(mac log.MAC, a desired.Attach) (changed bool) {
	entry, ok := n.byMAC[mac]
	before := n.Attach(mac)
	if !ok || before == a {
		return false
	}
	told := &attachEntry{Tap: a.Tap, Name: a.Name, User: a.User}
	switch {
	case before.Tap != a.Tap: // another link
	case before.Name != a.Name:
		told.Was = before.Name
	case entry.Attach != nil:
		told.Was = entry.Attach.Was
	}
	if entry.Attach = told; *told == (attachEntry{}) {
		entry.Attach = nil
	}
	n.byMAC[mac] = entry
	return true
}

// was returns the names from which the link of mac is renamed to the one that is wanted.
func (n Numbers) was(mac log.MAC) string {
	if e := n.byMAC[mac].Attach; e != nil {
		return e.Was
	}
	return ""
}

// tapOf returns the MAC other than mac that has a tap of a name, and goes first: the
// lowest below mac.
func (n Numbers) tapOf(name string, mac log.MAC) (other log.MAC) {
	for m, entry := range n.byMAC {
		if e := entry.Attach; e != nil && e.Tap && e.Name == name && m.Compare(mac) < 0 && (other.IsZero() || m.Compare(other) < 0) {
			other = m
		}
	}
	return other
}

// SameName returns the MACs that were told the same name of a tap as mac, in order.
func (n Numbers) SameName(a desired.Attach, mac log.MAC) (macs []log.MAC) {
	for m, entry := range n.byMAC {
		if e := entry.Attach; a.Tap && m != mac && e != nil && e.Tap && e.Name == a.Name {
			macs = append(macs, m)
		}
	}
	slices.SortFunc(macs, log.MAC.Compare)
	return macs
}

// Release frees the number of mac. It is called when a dump has shown that the
// link is gone.
func (n *Numbers) Release(mac log.MAC) (changed bool) {
	entry, ok := n.byMAC[mac]
	if !ok {
		return false
	}
	delete(n.byMAC, mac)
	delete(n.used, entry.N)
	return true
}

func (n *Numbers) put(mac log.MAC, entry numberEntry) {
	if n.byMAC == nil {
		n.byMAC, n.used = map[log.MAC]numberEntry{}, map[uint32]log.MAC{}
	}
	n.byMAC[mac], n.used[entry.N] = entry, mac
}

// MarshalJSON implements json.Marshaler: an object from MAC to number and
// namespaces, in order of the MACs. The zero MAC has the clusters.
func (n Numbers) MarshalJSON() ([]byte, error) {
	entries := make(map[log.MAC]numberEntry, len(n.byMAC)+1)
	maps.Copy(entries, n.byMAC)
	if n.marked || len(n.clusters) > 0 {
		entries[log.MAC{}] = numberEntry{N: maxNumber, Clusters: n.clusters, Marked: n.marked}
	}
	return json.Marshal(entries)
}

// UnmarshalJSON implements json.Unmarshaler. It refuses a number that two MACs have, or
// that does not fit into a link's name; n is then unchanged.
func (n *Numbers) UnmarshalJSON(data []byte) error {
	var entries map[log.MAC]numberEntry
	if err := json.Unmarshal(data, &entries); err != nil {
		return fmt.Errorf("fabric numbers: %w", err)
	}
	var read Numbers
	for mac, entry := range entries {
		if mac.IsZero() {
			read.clusters, read.marked = entry.Clusters[:min(len(entry.Clusters), maxClusters)], entry.Marked
			continue
		}
		if other, used := read.used[entry.N]; used {
			return fmt.Errorf("fabric numbers: %s and %s both have %d: remove one of them from the file", mac, other, entry.N)
		}
		if entry.N >= maxNumber {
			return fmt.Errorf("fabric numbers: %s has %d, above %d", mac, entry.N, maxNumber-1)
		}
		if e := entry.Attach; e != nil && CheckAttach(desired.Attach{Tap: e.Tap, Name: e.Name, User: e.User}) != nil {
			entry.Attach = nil // the source says it again, and a tap in the kernel says it itself
		}
		read.put(mac, entry)
	}
	*n = read
	return nil
}
