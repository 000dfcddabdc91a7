package plan

import (
	"encoding/json"
	"fmt"
	"slices"

	"rutter/log"
)

// Numbers is the number space of fabric<N>: the N of each MAC, and the namespaces in
// which its link was put. Its owner stores it across restarts as JSON, so that a NIC's
// link keeps its name. The zero value is ready for use. It must not be changed while
// another goroutine reads it.
type Numbers struct {
	byMAC map[log.MAC]numberEntry
	used  map[uint32]log.MAC
}

type numberEntry struct {
	N          uint32   `json:"n"`
	Namespaces []string `json:"namespaces"`
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
	for number = 0; number < maxNumber; number++ {
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
	if _, used := n.used[number]; used || number > maxNumber {
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
// namespaces, in order of the MACs.
func (n Numbers) MarshalJSON() ([]byte, error) {
	if n.byMAC == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(n.byMAC)
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
		if other, used := read.used[entry.N]; used {
			return fmt.Errorf("fabric numbers: %s and %s both have %d: remove one of them from the file", mac, other, entry.N)
		}
		if entry.N > maxNumber {
			return fmt.Errorf("fabric numbers: %s has %d, above %d", mac, entry.N, maxNumber)
		}
		read.put(mac, entry)
	}
	*n = read
	return nil
}
