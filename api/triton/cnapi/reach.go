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

// unreachable says why tasks may not be posted to an address that a sysinfo names;
// "" if they may. Else whoever announces a sysinfo could have a server post to any
// address that the server reaches. It may be one that the sysinfo itself came from,
// or one on the network named admin that is no other's (docs/security.md).
func (s *Service) unreachable(r *http.Request, cn log.UUID, address netip.Addr) (why string) {
	if !address.IsValid() {
		return "" // it is taken away
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
