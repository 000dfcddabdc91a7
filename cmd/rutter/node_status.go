package main

import (
	"encoding/json"
	"net/http"

	"rutter/agent"
	"rutter/agent/netsync"
	"rutter/agent/vminfo"
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
		_ = json.NewEncoder(w).Encode(stats()) // the reader is gone: its own business
	})
	return mux
}

// nodeStatus is what an agent says of itself, with its VMs.
type nodeStatus struct {
	agent.Status
	VMs *vmStatus `json:"vms,omitempty"`
}

// vmStatus is how the VM side stands.
type vmStatus struct {
	VMs     int                   `json:"vms"`
	VMMs    int                   `json:"vmms"`
	Vminfod string                `json:"vminfod"` // its address, or why there is none
	Sources []vminfo.SourceStatus `json:"sources"`
	QEMU    string                `json:"qemu"` // its path, or why there is none
	Link    vmlink.Status         `json:"link"`
	NICs    *netsync.Status       `json:"nics,omitempty"`
}

func (n *vmNode) status() *vmStatus {
	s := &vmStatus{VMs: n.service.Store().Count(), VMMs: len(n.vmms.List()), Vminfod: n.listen, Link: n.link.Status()}
	if n.skipped != "" {
		s.Vminfod = "not served: " + n.skipped
	}
	s.Sources = n.service.Status(false).Rutter.Sources
	s.NICs = n.nics.status()
	var err error
	if s.QEMU, err = vminfo.QEMU(); err != nil {
		s.QEMU = "none (" + err.Error() + "): VMs of brand kvm and bhyve run their init in its place"
	}
	return s
}

// nodeHandler is what a compute node serves: the agent's own paths, and those of
// its VMMs.
func nodeHandler(a *agent.Agent, n *vmNode) http.Handler {
	if n == nil {
		return a.Handler()
	}
	mux := http.NewServeMux()
	mux.Handle("/", a.Handler())
	vmms := n.vmms.Handler()
	mux.Handle("/vmms", vmms)
	mux.Handle("/vmms/", vmms)
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(nodeStatus{a.Status(), n.status()}) // the reader is gone: its own business
	})
	return mux
}
