package projections

import (
	"iter"
	"net/netip"

	"rutter/log"
)

// NICRow is a NIC as a state holds it: what it says of itself is read without its
// object, which a small state makes anew each time. It is good until the state
// changes.
type NICRow struct{ row *row }

// NICs yields the NICs of an index of NICs, in its order.
func (x Index) NICs(s *State) iter.Seq[NICRow] {
	return func(yield func(NICRow) bool) {
		for r := range x.pick(&s.store).all() {
			if !yield(NICRow{r}) {
				return
			}
		}
	}
}

// NICRow returns the NIC of a MAC.
func (s *State) NICRow(mac log.MAC) (NICRow, bool) {
	r := s.row(log.KindNIC, string(mac[:]))
	return NICRow{r}, r != nil
}

// NICRowAt returns the NIC that has an address of a network.
func (s *State) NICRowAt(network log.UUID, ip netip.Addr) (NICRow, bool) {
	r := s.nicAt(network, ip.Unmap())
	return NICRow{r}, r != nil
}

// Len returns the number of objects of an index.
func (x Index) Len(s *State) int { return x.pick(&s.store).len() }

// NIC returns the object, which must not be changed.
func (n NICRow) NIC() *log.NIC { return n.row.nic() }

// MAC returns the NIC's MAC.
func (n NICRow) MAC() log.MAC { return n.row.mac() }

// IP returns the NIC's address, which is not valid if it has none.
func (n NICRow) IP() netip.Addr { return n.row.ip() }

// CN returns the NIC's cn_uuid.
func (n NICRow) CN() log.UUID { return n.row.cnUUID() }

// Network returns the UUID of the NIC's network.
func (n NICRow) Network() log.UUID { return n.row.network() }

// Home returns the scope of the NIC's network; Type is 0 while that is not known.
func (n NICRow) Home() log.Scope { return n.row.home() }
