package ports

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"rutter/agent/filter"
	"rutter/log"
	"rutter/projections/desired"
)

// Mode is whether a node enforces port security.
type Mode struct {
	// Mode is one of desired.SecurityEnforced, SecurityOff and SecurityUnsupported.
	Mode  string    `json:"mode"`
	Since time.Time `json:"since,omitzero"`
	Why   string    `json:"why,omitempty"` // it is not enforced, and how to change that
	// Required: without the rules no link of a VM is brought up.
	Required bool `json:"required"`
}

// Source has what the kernel of a node holds of port security.
type Source interface {
	Mode() Mode
	// State returns what the table held when it was last read or changed. It may be
	// called from any goroutine.
	State(ctx context.Context) (filter.State, error)
	Counters(ctx context.Context) (filter.Counters, error)
}

// Owner is whose NIC a port is of.
type Owner struct {
	VM    log.UUID
	Alias string // "": it has none, or is not known
}

// Status is what port security does on a node.
type Status struct {
	Mode
	Ports []Port `json:"ports"` // by NIC; those of one NIC by host end
	// Underlay are drops of VXLAN packets, by reason.
	Underlay map[filter.Reason]filter.Count `json:"underlay_drops"`
	Failure  string                         `json:"error,omitempty"` // why the rest is not known
}

// Port is one port that has rules.
type Port struct {
	NIC       log.MAC      `json:"mac"`
	VM        log.UUID     `json:"vm_uuid,omitzero"`
	Alias     string       `json:"alias,omitempty"`
	Name      string       `json:"host_end"`
	Addresses []netip.Addr `json:"addresses"`
	Relaxed   []string     `json:"relaxed,omitempty"` // as the log's fields name it
	Drops     Drops        `json:"drops"`
}

// Drops are counts by reason. Those of reasons that never dropped anything are absent.
type Drops map[filter.Reason]filter.Count

// Total is the sum over all reasons.
func (d Drops) Total() (sum filter.Count) {
	for _, c := range d {
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
	}
	return sum
}

// String lists the reasons, the most packets first.
func (d Drops) String() string {
	reasons := make([]filter.Reason, 0, len(d))
	for reason := range d {
		reasons = append(reasons, reason)
	}
	slices.SortFunc(reasons, func(a, b filter.Reason) int {
		return cmp.Or(cmp.Compare(d[b].Packets, d[a].Packets), cmp.Compare(a, b))
	})
	texts := make([]string, 0, len(reasons))
	for _, reason := range reasons {
		texts = append(texts, fmt.Sprintf("%s %d", reason, d[reason].Packets))
	}
	return strings.Join(texts, ", ")
}

// Read returns the status of a source; nil stands for a node that has no port security.
// owner says whose NIC has a MAC. What cannot be read is in Failure.
func Read(ctx context.Context, source Source, owner func(log.MAC) Owner) Status {
	s := Status{Mode: Mode{Mode: desired.SecurityOff}, Ports: []Port{}, Underlay: map[filter.Reason]filter.Count{}}
	if source == nil {
		return s
	}
	s.Mode = source.Mode()
	if s.Mode.Mode != desired.SecurityEnforced {
		return s
	}
	state, err := source.State(ctx)
	if err != nil {
		s.Failure = err.Error()
		return s
	}
	counts, err := source.Counters(ctx)
	if err != nil {
		s.Failure = err.Error()
	}
	for reason, c := range counts.Underlay {
		if c != (filter.Count{}) {
			s.Underlay[reason] = c
		}
	}
	for i := range state.Ports {
		p := &state.Ports[i]
		who := owner(p.MAC)
		one := Port{NIC: p.MAC, VM: who.VM, Alias: who.Alias, Name: p.Name, Addresses: p.Addresses, Relaxed: Relaxed(p), Drops: Drops{}}
		for reason, c := range counts.Ports[p.Index] {
			if c != (filter.Count{}) {
				one.Drops[reason] = c
			}
		}
		s.Ports = append(s.Ports, one)
	}
	slices.SortFunc(s.Ports, func(a, b Port) int { return cmp.Or(a.NIC.Compare(b.NIC), cmp.Compare(a.Name, b.Name)) })
	return s
}

// Relaxed names what the rules of a port allow beside what each port may send.
func Relaxed(p *filter.Port) []string {
	return desired.Security{AnyMAC: p.AnyMAC, AnyIP: p.AnyIP, DHCPServer: p.DHCPServer, AnyTraffic: p.AnyTraffic}.Relaxed()
}

// Most returns at most n ports that dropped something, those with the most packets
// first, and how many others there are.
func (s *Status) Most(n int) (most []Port, others int) {
	for _, p := range s.Ports {
		if p.Drops.Total().Packets > 0 {
			most = append(most, p)
		}
	}
	slices.SortStableFunc(most, func(a, b Port) int { return cmp.Compare(b.Drops.Total().Packets, a.Drops.Total().Packets) })
	if len(most) > n {
		return most[:n], len(most) - n
	}
	return most, 0
}

// NameOf is how a port's VM is called: by its alias, else its UUID, else "".
func (p *Port) NameOf() string {
	if p.Alias != "" || p.VM.IsZero() {
		return p.Alias
	}
	return p.VM.String()
}
