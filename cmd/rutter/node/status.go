package node

import (
	"encoding/json"
	"net/http"

	"rutter/agent/vminfo/vmrun"
	"rutter/agent/vminfo/vmstore"

	"rutter/agent"
	"rutter/agent/netsync"
	"rutter/agent/underlay"
	"rutter/agent/vmlink"
	"rutter/varp"
)

// withSVP adds the counts of an agent's SVP server to its status: GET /svp.
func withSVP(status http.Handler, stats func() varp.Stats) http.Handler {
	if stats == nil {
		return status
	}
	mux := http.NewServeMux()
	mux.Handle("/", status)
	mux.HandleFunc("GET /svp", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(stats()) // the client is gone
	})
	return mux
}

// Status is the status of an agent, with its VMs and its underlay.
type Status struct {
	agent.Status
	VMs      *VMStatus        `json:"vms,omitempty"`
	Underlay *underlay.Status `json:"underlay,omitempty"`
}

// VMStatus is the status of an agent's VMs.
type VMStatus struct {
	VMs     int              `json:"vms"`
	VMMs    int              `json:"vmms"`
	Vminfod string           `json:"vminfod"` // its address, or why there is none
	Sources []vmstore.Status `json:"sources"`
	QEMU    string           `json:"qemu"` // its path, or why there is none
	Link    vmlink.Status    `json:"link"`
	NICs    *netsync.Status  `json:"nics,omitempty"`
}

func (n *vmSide) status() *VMStatus {
	s := &VMStatus{VMs: n.service.Store().Count(), VMMs: len(n.vmms.List()), Vminfod: n.listen, Link: n.link.Status()}
	if n.skipped != "" {
		s.Vminfod = "not served: " + n.skipped
	}
	s.Sources = n.service.Status(false).Rutter.Sources
	for i := range s.Sources {
		s.Sources[i].Log = nil // what scans found has the values of fields, and each user may read this status
	}
	s.NICs = n.nics.status()
	var err error
	if s.QEMU, err = vmrun.QEMU(); err != nil {
		s.QEMU = "none (" + err.Error() + "): VMs of brand kvm and bhyve run their init in its place"
	}
	return s
}

// handle serves the paths of the node's VMMs.
func (n *vmSide) handle(mux *http.ServeMux) {
	vmms := n.vmms.Handler()
	mux.Handle("/vmms", vmms)
	mux.Handle("/vmms/", vmms)
}
