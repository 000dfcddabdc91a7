package cnapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"rutter/log"
	"rutter/projections"
)

// adminNetwork is the name of the network that compute nodes are reached on, as
// CNAPI knows it.
const adminNetwork = "admin"

// unreachable returns why tasks may not be posted to the address in a sysinfo; "" if
// they may. Without this check, the sender of a sysinfo could make a server post to any
// address. Allowed are the address that the sysinfo came from, and an address on the
// network named admin that no other CN has (docs/security.md).
func (s *Service) unreachable(r *http.Request, cn log.UUID, address netip.Addr) (why string) {
	if !address.IsValid() {
		return "" // the address is removed
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	if from, err := netip.ParseAddr(host); err == nil && from.Unmap().WithZone("") == address.Unmap() {
		return ""
	}
	why = fmt.Sprintf("it came from another address, and there is no network named %s that has this one", adminNetwork)
	s.store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.List(log.KindNetwork) {
			network := rec.Object.(*log.Network)
			if network.Name != adminNetwork || network.Fabric || !network.Subnet.Contains(address) {
				continue
			}
			why = ""
			for other := range state.NICsOn(network.UUID) {
				if nic := other.Object.(*log.NIC); nic.IP == address && nic.BelongsToUUID != cn {
					why = "it is the address of NIC " + nic.ID() + ", which belongs to " + nic.BelongsToType + " " + nic.BelongsToUUID.String()
				}
			}
			return
		}
	})
	return why
}
