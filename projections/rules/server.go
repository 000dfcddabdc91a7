package rules

import (
	"fmt"
	"net/netip"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// Bounds of what a server says of itself.
const (
	maxSysinfoBytes = 32 << 10 // of a server: each event of the server carries it
	maxAgents       = 64       // programs that a server names
)

var serverRules = hooks[*log.Server]{
	fill:  fillServer,
	check: checkServer,
	remove: func(d *draft, s *log.Server) {
		d.unused(s, "server is in use", "delete its VMs, VMMs and NICs first",
			projections.NICsOnCN(s.UUID), projections.NICsOf(s.UUID), projections.AggregationsOn(s.UUID),
			projections.VMsOnCN(s.UUID), projections.VMMsOnCN(s.UUID), projections.OpenTasksOn(s.UUID))
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

func checkServer(d *draft, before, s *log.Server, _ *log.Op) {
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
	for o := range d.Objects(projections.All(log.KindServer)) {
		if s := o.(*log.Server); s.AdminIP.Unmap() == ip && s.UUID != cn && s.Status != expunged {
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
