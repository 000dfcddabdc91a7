package plan

import (
	"cmp"
	"net/netip"

	"rutter/log"
)

// Entry names one entry in the kernel: a neighbour of a fabric link by its
// address, or a forwarding entry of a VXLAN device by its MAC.
type Entry struct {
	Namespace string
	Link      string
	MAC       log.MAC    // forwarding entry
	IP        netip.Addr // neighbour, if valid
}

// CompareEntry orders entries by namespace, link, MAC and address.
func CompareEntry(a, b Entry) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Link, b.Link), a.MAC.Compare(b.MAC), a.IP.Compare(b.IP))
}

// Target is the value of an entry. The zero value is no entry.
type Target struct {
	MAC  log.MAC    // of a neighbour
	Dst  netip.Addr // of a forwarding entry
	Port uint16
}
