package desired

import (
	"maps"
	"slices"
	"time"

	"rutter/log"
)

// ReportPath is the path of the request to an agent for its NodeReport.
const ReportPath = "/report"

// Bounds of a NodeReport.
const (
	MaxReportPorts = 100 // those that dropped most first
	MaxReportLines = 32  // of each list of texts
	MaxReportKinds = 64  // of objects
)

// NodeReport is what a compute node (CN) says of itself when a server asks its agent. It is
// bounded: see the constants. Times are by the node's clock.
type NodeReport struct {
	CN      log.UUID  `json:"cn_uuid"`
	At      time.Time `json:"at"`      // when it was made
	Version string    `json:"version"` // of the agent's program
	Go      string    `json:"go_version"`
	Feature uint32    `json:"feature_version"` // the newest that it knows

	State   string    `json:"state"` // of its feed
	Since   time.Time `json:"since"` // of State
	Server  string    `json:"server"`
	Failure string    `json:"error,omitempty"` // why the last connection ended
	Cursor  string    `json:"cursor"`          // CLUSTER.SEQ.CHAIN
	Head    log.Seq   `json:"head"`            // of its server, as last received
	Applied log.Seq   `json:"applied"`

	Kernel  NodeKernel     `json:"kernel"`
	Objects map[string]int `json:"objects"` // in its cache, by kind

	Security string            `json:"port_security"` // one of SecurityEnforced, SecurityOff and SecurityUnsupported
	Why      string            `json:"port_security_why,omitempty"`
	Ports    []NodePort        `json:"ports"`
	PortsAll int               `json:"ports_total"`
	Underlay map[string]uint64 `json:"underlay_drops"` // packets by reason

	// Certificate is nil if the node uses none, or does not say.
	Certificate *NodeCertificate `json:"certificate,omitempty"`
	Trouble     []string         `json:"trouble"`
}

// NodeKernel is how the kernel of a CN compares with the log.
type NodeKernel struct {
	Matched    bool              `json:"matched"`
	Programmed log.Seq           `json:"programmed"`
	Reached    log.Seq           `json:"reached"` // but for what waits
	At         time.Time         `json:"at,omitzero"`
	Took       time.Duration     `json:"took_ns"`      // of the last pass
	Delay50    time.Duration     `json:"delay_p50_ns"` // from an entry's arrival to the kernel
	Delay99    time.Duration     `json:"delay_p99_ns"`
	VNets      int               `json:"vnets"`
	Links      int               `json:"links"` // wanted, as the next two
	Neighbours int               `json:"neighbours"`
	FDB        int               `json:"fdb"`
	OnDemand   int               `json:"on_demand_vnets"`
	Resident   int               `json:"on_demand_entries"` // of these vnets, in the kernel
	Failing    int               `json:"failing"`
	Blocked    int               `json:"blocked"`
	Waiting    int               `json:"waiting"`
	Idle       int               `json:"idle"`
	Healed     uint64            `json:"healed"`
	HealedBy   map[string]uint64 `json:"healed_by"`
	Failures   []string          `json:"failures"`
	Conflicts  []string          `json:"conflicts"`
	Drift      []string          `json:"drift"`
	Problems   []string          `json:"problems"` // what of the log cannot be programmed
	Waits      []string          `json:"waits"`
}

// NodePort is a port with its rules, and what they dropped since they were made.
type NodePort struct {
	NIC       log.MAC           `json:"mac"`
	VM        log.UUID          `json:"vm_uuid,omitzero"`
	Alias     string            `json:"alias,omitempty"`
	Name      string            `json:"host_end"`
	Addresses []string          `json:"addresses"`
	Relaxed   []string          `json:"relaxed"` // see Security.Relaxed
	Drops     map[string]uint64 `json:"drops"`   // packets by reason
}

// NodeCertificate is the certificate by which a node connects.
type NodeCertificate struct {
	Serial string    `json:"serial"`
	Until  time.Time `json:"not_after"`
}

// Bound cuts what a CN answered to the bounds of a report, and texts to printable ones. It
// trusts none of the values.
func (r *NodeReport) Bound(printable func(text string, most int) string) {
	cut := func(texts ...*string) {
		for _, text := range texts {
			*text = printable(*text, MaxKernelText)
		}
	}
	lines := func(lists ...*[]string) {
		for _, list := range lists {
			*list = append([]string{}, (*list)[:min(len(*list), MaxReportLines)]...)
			for i := range *list {
				cut(&(*list)[i])
			}
		}
	}
	cut(&r.Version, &r.Go, &r.State, &r.Server, &r.Failure, &r.Cursor, &r.Security, &r.Why)
	k := &r.Kernel
	lines(&k.Failures, &k.Conflicts, &k.Drift, &k.Problems, &k.Waits, &r.Trouble)
	k.HealedBy, r.Underlay = boundReasons(k.HealedBy, printable), boundReasons(r.Underlay, printable)
	objects := make(map[string]int)
	for _, kind := range slices.Sorted(maps.Keys(r.Objects))[:min(len(r.Objects), MaxReportKinds)] {
		objects[printable(kind, MaxKernelText)] = r.Objects[kind]
	}
	r.Objects = objects
	r.Ports = append([]NodePort{}, r.Ports[:min(len(r.Ports), MaxReportPorts)]...)
	for i := range r.Ports {
		p := &r.Ports[i]
		cut(&p.Alias, &p.Name)
		lines(&p.Addresses, &p.Relaxed)
		p.Drops = boundReasons(p.Drops, printable)
	}
	if r.Certificate != nil {
		cut(&r.Certificate.Serial)
	}
}
