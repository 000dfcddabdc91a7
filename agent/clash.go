package agent

import (
	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
)

// In the complete log, two NICs never have the same address of a network. In a part of
// it, the new holder may arrive before the old one goes: from a scope that is newer
// than the cursor, or in a reset. The state's lookups know one holder, and lose it with
// the NIC that came last. So pairs of NICs that conflict are remembered. When one of a
// pair is gone, the other is put again.

// clashTable has the pairs of NICs that claim the same address of a network. The lock
// of the replica protects it.
type clashTable struct {
	state   *projections.State
	touches *desired.Touches
	pairs   map[objectKey]map[objectKey]struct{}
}

// note records the NIC that now has the address which this one will get.
func (c *clashTable) note(key objectKey, o log.Object) {
	nic, ok := o.(*log.NIC)
	if !ok || !nic.IP.IsValid() {
		return
	}
	other, taken := c.state.NICAt(nic.NetworkUUID, nic.IP)
	if !taken || keyOf(other) == key {
		return
	}
	c.touches.NoteWhole()
	for _, pair := range [][2]objectKey{{key, keyOf(other)}, {keyOf(other), key}} {
		if c.pairs[pair[0]] == nil {
			c.pairs[pair[0]] = make(map[objectKey]struct{})
		}
		c.pairs[pair[0]][pair[1]] = struct{}{}
	}
}

// mend repairs the NICs that conflicted with an object that changed.
func (c *clashTable) mend(key objectKey) {
	if len(c.pairs) == 0 {
		return
	}
	for other := range c.pairs[key] {
		if a, b := c.nic(key), c.nic(other); a != nil && b != nil && a.NetworkUUID == b.NetworkUUID && a.IP == b.IP {
			continue
		}
		delete(c.pairs[key], other)
		delete(c.pairs[other], key)
		if len(c.pairs[other]) == 0 {
			delete(c.pairs, other)
		}
		c.refresh(other)
	}
	if len(c.pairs[key]) == 0 {
		delete(c.pairs, key)
	}
}

// nic returns a held NIC, or nil.
func (c *clashTable) nic(key objectKey) *log.NIC {
	rec, _ := c.state.Get(key.Kind, key.ID)
	nic, _ := rec.Object.(*log.NIC)
	return nic
}

// refresh puts a NIC again if it is held and not found by its address.
func (c *clashTable) refresh(key objectKey) {
	rec, held := c.state.Get(key.Kind, key.ID)
	if !held {
		return
	}
	nic := rec.Object.(*log.NIC)
	if other, found := c.state.NICAt(nic.NetworkUUID, nic.IP); found && keyOf(other) == key && c.isFound(nic) {
		return
	}
	c.touches.NoteWhole()
	c.state.Drop(key.Kind, key.ID)
	_ = c.state.Load(rec) // it was held, so it is valid
}

// isFound reports whether VL3 answers with the NIC, if it is on a vnet.
func (c *clashTable) isFound(nic *log.NIC) bool {
	rec, known := c.state.Get(log.KindNetwork, nic.NetworkUUID.String())
	if !known || !rec.Object.(*log.Network).Fabric {
		return true
	}
	mac, _, _ := c.state.VL3(rec.Object.(*log.Network).VNetID, nic.IP)
	return mac == nic.MAC
}

// refreshAll refreshes all NICs. After a reset this is needed because networks of two
// logs may have overlapped.
func (c *clashTable) refreshAll() {
	var keys []objectKey
	for rec := range c.state.List(log.KindNIC) {
		if rec.Object.(*log.NIC).IP.IsValid() {
			keys = append(keys, keyOf(rec))
		}
	}
	for _, key := range keys {
		c.refresh(key)
	}
}
