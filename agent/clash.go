package agent

import "rutter/log"

// In the whole log no two NICs have one address of a network. In a part of it
// the new holder may come before the old one goes: from a scope that is newer
// than the cursor, or in a reset. The state's lookups know one holder, and lose
// it with the NIC that came last. So pairs of NICs that clash are remembered,
// and when one of a pair is gone the other is put anew.

// noteClash notes the NIC that has the address which this one is to get.
func (r *replica) noteClash(key objectKey, o log.Object) {
	nic, ok := o.(*log.NIC)
	if !ok || !nic.IP.IsValid() {
		return
	}
	other, taken := r.state.NICAt(nic.NetworkUUID, nic.IP)
	if !taken || keyOf(other) == key {
		return
	}
	r.touches.NoteWhole()
	for _, pair := range [][2]objectKey{{key, keyOf(other)}, {keyOf(other), key}} {
		if r.clashes[pair[0]] == nil {
			r.clashes[pair[0]] = make(map[objectKey]struct{})
		}
		r.clashes[pair[0]][pair[1]] = struct{}{}
	}
}

// mendClashes looks at those that clashed with an object that changed.
func (r *replica) mendClashes(key objectKey) {
	if len(r.clashes) == 0 {
		return
	}
	for other := range r.clashes[key] {
		if a, b := r.nic(key), r.nic(other); a != nil && b != nil && a.NetworkUUID == b.NetworkUUID && a.IP == b.IP {
			continue
		}
		delete(r.clashes[key], other)
		delete(r.clashes[other], key)
		if len(r.clashes[other]) == 0 {
			delete(r.clashes, other)
		}
		r.refresh(other)
	}
	if len(r.clashes[key]) == 0 {
		delete(r.clashes, key)
	}
}

// nic returns a NIC that is held, or nil.
func (r *replica) nic(key objectKey) *log.NIC {
	rec, _ := r.state.Get(key.Kind, key.ID)
	nic, _ := rec.Object.(*log.NIC)
	return nic
}

// refresh puts a NIC anew if it is held and not found by its address.
func (r *replica) refresh(key objectKey) {
	rec, held := r.state.Get(key.Kind, key.ID)
	if !held {
		return
	}
	nic := rec.Object.(*log.NIC)
	if other, found := r.state.NICAt(nic.NetworkUUID, nic.IP); found && keyOf(other) == key && r.isFound(nic) {
		return
	}
	r.touches.NoteWhole()
	r.state.Drop(key.Kind, key.ID)
	_ = r.state.Load(rec) // it was held, so it is a proper record
}

// isFound reports whether VL3 answers with the NIC, if it is on a vnet.
func (r *replica) isFound(nic *log.NIC) bool {
	rec, known := r.state.Get(log.KindNetwork, nic.NetworkUUID.String())
	if !known || !rec.Object.(*log.Network).Fabric {
		return true
	}
	mac, _, _ := r.state.VL3(rec.Object.(*log.Network).VNetID, nic.IP)
	return mac == nic.MAC
}

// refreshNICs does so for all NICs: after a reset, networks of two logs may have
// overlapped as well.
func (r *replica) refreshNICs() {
	var keys []objectKey
	for rec := range r.state.List(log.KindNIC) {
		if rec.Object.(*log.NIC).IP.IsValid() {
			keys = append(keys, keyOf(rec))
		}
	}
	for _, key := range keys {
		r.refresh(key)
	}
}
