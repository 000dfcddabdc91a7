package node

import (
	"context"
	"encoding/json"
	"net/http"

	"rutter/agent/vminfo/vmhelper"
	"rutter/agent/vminfo/vmrun"
	"rutter/agent/vmsource"

	"rutter/agent"
	"rutter/agent/netsync"
	"rutter/agent/ports"
	"rutter/agent/underlay"
	"rutter/agent/vmlink"
	"rutter/log"
	"rutter/projections"
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
	Security ports.Status     `json:"port_security"`
	Underlay *underlay.Status `json:"underlay,omitempty"`
}

// VMStatus is the status of an agent's VMs.
type VMStatus struct {
	VMs     int               `json:"vms"`
	VMMs    int               `json:"vmms"`
	Vminfod string            `json:"vminfod"` // its address, or why there is none
	Sources []vmsource.Status `json:"sources"`
	QEMU    string            `json:"qemu"` // its path, or why there is none
	Link    vmlink.Status     `json:"link"`
	NICs    *netsync.Status   `json:"nics,omitempty"`
	// Helper is the process that runs the VMs of manifests; nil: the agent does, or none.
	Helper *vmhelper.Status `json:"helper,omitempty"`
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
	if n.helper != nil {
		helper := n.helper.Status()
		s.Helper = &helper
	}
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

// handler serves the agent's own paths, and those of its VMMs. Its status has more.
func (n *Node) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", n.agent.Handler())
	if n.vms != nil {
		n.vms.handle(mux)
	}
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(n.status(r.Context())) // the client is gone
	})
	mux.Handle("GET /metrics", n.metrics)
	return mux
}

// rootHandler adds to what each user may read what only root may ask for.
func (n *Node) rootHandler(each http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", each)
	n.forward(mux)
	if n.vms != nil {
		n.vms.control(mux)
	}
	if n.vms != nil && n.vms.registered != nil {
		n.vms.registered.handle(mux)
	}
	return mux
}

// ports returns what port security does on the node.
func (n *Node) ports(ctx context.Context) ports.Status {
	owners := map[log.MAC]ports.Owner{}
	n.agent.View(func(state *projections.State) {
		for row := range projections.NICsOnCN(n.opts.CN).NICs(state) {
			o := ports.Owner{VM: row.NIC().BelongsToUUID}
			if vm := state.VM(o.VM); vm != nil {
				o.Alias = vm.Alias
			}
			owners[row.MAC()] = o
		}
	})
	return ports.Read(ctx, n.opts.Ports, func(mac log.MAC) ports.Owner { return owners[mac] })
}

func (n *Node) status(ctx context.Context) Status {
	s := Status{Status: n.agent.Status(), Security: n.ports(ctx)}
	if n.vms != nil {
		s.VMs = n.vms.status()
	}
	if n.under != nil {
		under := n.under.Status()
		s.Underlay = &under
	}
	return s
}
