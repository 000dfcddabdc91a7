package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"rutter/log"
	"rutter/projections"
)

// Bounds of what a server says of itself.
const (
	maxSysinfoBytes = 32 << 10 // of a server: each event of the server carries it
	maxAgents       = 64       // programs that a server names
)

var serverRules = hooks[*log.Server]{
	fill: fillServer,
	check: func(d *draft, before, s *log.Server, _ *log.Op) {
		if checkServer(d, before, s); perNode(d) {
			checkUnderlay(d, before, s)
		}
	},
	remove: func(d *draft, s *log.Server) {
		d.unused(s, "server is in use", "delete its VMs, VMMs and NICs first",
			projections.NICsOnCN(s.UUID), projections.NICsOf(s.UUID), projections.AggregationsOn(s.UUID),
			projections.VMsOnCN(s.UUID), projections.VMMsOnCN(s.UUID), projections.OpenTasksOn(s.UUID))
	},
	follow: func(d *draft, _, s *log.Server, _ *log.Op) {
		if s != nil && perNode(d) {
			tellUnderlayNICs(d, s)
		}
	},
	owns:   func(_ *draft, cn log.UUID, s *log.Server) bool { return s.UUID == cn },
	within: serverWithin,
}

func fillServer(d *draft, s *log.Server, _ *log.Op) {
	if s.Status == "" {
		s.Status = "unknown" // until a session of its agent says more
	}
	if s.Created == 0 {
		s.Created = d.time
	}
}

func checkServer(d *draft, before, s *log.Server) {
	switch s.Status {
	case "running", "unknown", "expunged":
	default:
		d.bad("status", fmt.Sprintf("\"%s\" is not known", d.show(s.Status)), "send running, unknown, or expunged for one that will not come back")
	}
	d.checkText("hostname", s.Hostname)
	d.checkText("datacenter", s.Datacenter)
	d.checkText("comments", s.Comments)
	d.checkText("rack_identifier", s.RackIdentifier)
	d.checkText("serial", s.Serial)
	d.checkText("current_platform", s.CurrentPlatform)
	checkServerForms(d, s)
	checkReached(d, before, s)
}

const expunged = "expunged"

// checkReached: two servers are not reached at one address. Else one could have what is
// sent to the other. A server that will not come back is reached at none. Agents of one
// machine, which operators allow for trials, share its loopback addresses.
func checkReached(d *draft, before, s *log.Server) {
	if !d.confined() || s.Status == expunged || !s.AdminIP.IsValid() || s.AdminIP.Unmap().IsLoopback() || before != nil && before.Status != expunged && before.AdminIP == s.AdminIP {
		return
	}
	if other := reachedAt(d, s.UUID, s.AdminIP.Unmap()); other != nil {
		d.problem(log.FieldError{
			Field: "admin_ip", Code: log.ElementDuplicate, Message: "another server is reached at it", Type: log.KindServer.String(), ID: other.ID(),
			Remedy: "give each its own address; of a server that does not come back set the status to expunged, or delete it",
		})
	}
}

// reachedAt returns another compute node than cn that servers reach at an address, or nil.
// The log may have no NIC of the address.
func reachedAt(d *draft, cn log.UUID, ip netip.Addr) *log.Server {
	for o := range d.Objects(projections.ServersAt(ip)) {
		if s := o.(*log.Server); s.UUID != cn && s.Status != expunged {
			return s
		}
	}
	return nil
}

// checkServerForms checks what CNAPI keeps of a server beside its names.
func checkServerForms(d *draft, s *log.Server) {
	d.checkJSON("sysinfo", s.Sysinfo, maxSysinfoBytes, '{')
	d.checkTexts("agents", s.Agents, maxAgents)
	d.checkJSON("boot_params", s.BootParams, projections.MaxFieldJSON, '{')
	d.checkJSON("boot_modules", s.BootModules, projections.MaxFieldJSON, '[')
	d.checkJSON("kernel_flags", s.KernelFlags, projections.MaxFieldJSON, '{')
	d.checkJSON("overprovision_ratios", s.OverprovisionRatio, projections.MaxFieldJSON, '{')
	d.checkJSON("traits", s.Traits, projections.MaxFieldJSON, '{')
	d.checkText("boot_platform", s.BootPlatform)
	d.checkText("default_console", s.DefaultConsole)
	if !isFraction(s.ReservationRatio) {
		d.bad("reservation_ratio", fmt.Sprintf("\"%s\" is no part of the whole", d.show(s.ReservationRatio)), "send a number from 0 to 1, as in 0.15")
	}
	if s.TransitionalStatus != "" && s.TransitionalStatus != "rebooting" {
		d.bad("transitional_status", fmt.Sprintf("\"%s\" is not known", d.show(s.TransitionalStatus)), "send rebooting, or nothing")
	}
	if s.AgentPort > 65535 {
		d.bad("agent_port", fmt.Sprintf("%d is no port", s.AgentPort), "send one of 1 to 65535")
	}
}

// Bounds of an underlay's MTU, in bytes: what IPv4 promises (RFC 791), and what an IP
// packet can have.
const (
	minUnderlayMTU = 576
	maxUnderlayMTU = 65535
)

// checkUnderlay checks the port at which a server receives VXLAN packets, and what it
// reports of its underlay.
func checkUnderlay(d *draft, before, s *log.Server) {
	if s.VXLANPort > 65535 {
		d.bad("vxlan_port", fmt.Sprintf("%d is no port", s.VXLANPort), "send one of 1 to 65535, or 0 for 4789")
	} else if was := portOf(before); was != projections.PortOr(s.VXLANPort) {
		checkPortFree(d, s)
	}
	if before != nil {
		checkReportPace(d, before, s)
	}
	if s.UnderlayMTU != 0 && (s.UnderlayMTU < minUnderlayMTU || s.UnderlayMTU > maxUnderlayMTU) {
		d.bad("underlay_mtu", fmt.Sprintf("%d is no MTU of an underlay", s.UnderlayMTU), fmt.Sprintf("send %d to %d bytes, or 0 if it is not known", minUnderlayMTU, maxUnderlayMTU))
	}
	if len(s.UnderlayPaths) > log.MaxPaths {
		d.bad("underlay_paths", fmt.Sprintf("there are %d paths", len(s.UnderlayPaths)), fmt.Sprintf("name the %d narrowest", log.MaxPaths))
		return
	}
	last := uint32(0)
	for _, text := range s.UnderlayPaths {
		path, err := log.ParsePathTo(text)
		switch {
		case err != nil:
			d.bad("underlay_paths", err.Error(), "leave it out")
		case path.MTU < minUnderlayMTU || path.MTU > maxUnderlayMTU || path.MTU < last:
			d.bad("underlay_paths", fmt.Sprintf("\"%s\" is out of order, or no MTU of an underlay", d.show(text)), fmt.Sprintf("send %d to %d bytes, the narrowest path first", minUnderlayMTU, maxUnderlayMTU))
		}
		last = path.MTU
	}
}

// portOf is the VXLAN port of a server, or of a compute node that the log has no server of.
func portOf(s *log.Server) uint16 {
	if s == nil {
		return projections.VXLANPort
	}
	return projections.PortOr(s.VXLANPort)
}

// reportEvery is the least time between two reports of an MTU by one compute node, of
// which the other nodes hear: each makes their agents compare what fits.
const reportEvery = 10 * log.Time(time.Second)

// checkReportPace refuses a compute node's MTU that follows another one too fast. Its
// underlay NIC has the time of the last one; without such a NIC no other node hears of it.
func checkReportPace(d *draft, before, s *log.Server) {
	if d.change.By.Role != log.RoleCN || before.UnderlayMTU == 0 || before.UnderlayMTU == s.UnderlayMTU {
		return
	}
	for o := range d.Objects(projections.NICsOf(s.UUID)) {
		if nic := o.(*log.NIC); nic.Underlay && nic.UnderlayMTU == before.UnderlayMTU && d.time < nic.Modified+reportEvery {
			d.refuse(log.CodeLimit, "the MTU of the underlay was reported a moment ago (limit underlay_reports)", log.FieldError{
				Field: "underlay_mtu", Code: log.ElementInvalid, Message: "another one was reported less than 10 s ago", Remedy: "report it again in 10 s, if it stays so",
			})
			return
		}
	}
}

// atRest are the states in which a VM has no process, and so no link on a vnet that could
// be in use. In each other state, also one that this program does not know, it may have.
var atRest = []string{"stopped", "failed", "destroyed", "incomplete", "installed", "configured"}

// checkPortFree refuses another VXLAN port while VMs of a server may run on vnets: the
// port of a living VXLAN device cannot be changed, and the links in the VMs would go with
// it. Of a VM that the log does not know, its NIC says whether it may run.
func checkPortFree(d *draft, s *log.Server) {
	var users []log.FieldError
	for o := range d.Objects(projections.NICsOnCN(s.UUID)) {
		nic := o.(*log.NIC)
		vm := vmOfNIC(d, nic)
		if d.ScopeOn(nic.NetworkUUID).Type != log.ScopeVNet || nic.BelongsToType != "zone" || vm != nil && slices.Contains(atRest, vm.State) || vm == nil && nic.State == "stopped" {
			continue
		}
		if users = append(users, usedBy("vxlan_port", "vm", nic.BelongsToUUID.String(), "stop it, or move it to another server, first")); len(users) == maxUsedBy {
			break
		}
	}
	if users != nil {
		d.refuse(log.CodeInUse, "the VXLAN port cannot be changed while VMs on fabrics may run: their links would be made anew", users...)
	}
}

// tellUnderlayNICs brings the underlay NICs of a server in line with it: there the other
// compute nodes read its port and its MTU.
func tellUnderlayNICs(d *draft, s *log.Server) {
	var others []*log.NIC
	for o := range d.Objects(projections.NICsOf(s.UUID)) {
		if nic := o.(*log.NIC); nic.Underlay && (nic.VXLANPort != s.VXLANPort || nic.UnderlayMTU != s.UnderlayMTU) {
			others = append(others, nic)
		}
	}
	for _, nic := range others {
		before, _ := d.NIC(nic.MAC)
		after := log.Clone(nic).(*log.NIC)
		after.VXLANPort, after.UnderlayMTU, after.Modified = s.VXLANPort, s.UnderlayMTU, d.time
		d.emit(before, after)
	}
}

// settleUnderlay gives an underlay NIC what its server says; other NICs have neither.
func settleUnderlay(d *draft, n *log.NIC) {
	n.VXLANPort, n.UnderlayMTU = 0, 0
	if !n.Underlay || n.BelongsToType != "server" {
		return
	}
	if r, ok := d.ByUUID(log.KindServer, n.BelongsToUUID); ok {
		s := r.Object.(*log.Server)
		n.VXLANPort, n.UnderlayMTU = s.VXLANPort, s.UnderlayMTU
	}
}

// maxFraction bounds the digits of a ratio.
const maxFraction = 10

// isFraction reports whether text is "", or a number from 0 to 1 without exponent.
func isFraction(text string) bool {
	whole, part, _ := strings.Cut(text, ".")
	if len(text) > maxFraction || strings.ContainsFunc(part, func(r rune) bool { return r < '0' || r > '9' }) {
		return false
	}
	switch whole {
	case "":
		return text == "" || part != ""
	case "0":
		return true
	case "1":
		return strings.Trim(part, "0") == ""
	}
	return false
}

// needServer refuses what is about a server that is not there.
func needServer(d *draft, cn log.UUID) {
	if _, ok := d.ByUUID(log.KindServer, cn); !ok {
		d.bad("server_uuid", fmt.Sprintf("there is no server %s", cn), "send the UUID of a server; one is made when its sysinfo comes")
	}
}
