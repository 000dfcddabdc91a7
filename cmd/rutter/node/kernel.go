package node

import (
	"context"

	"rutter/agent"
	"rutter/agent/link"
)

// Kernel is what a node's agent programs. Its functions are agent.Config's.
type Kernel struct {
	New   func(numbers link.Numbers, save func(link.Numbers) error) (agent.Kernel, error)
	Watch func(ctx context.Context, changed, reach func()) error
}

// SystemKernel is this machine's. ahead and table are link.ManagerConfig's. The
// caller closes kernel, which is open, after the node's Run.
func SystemKernel(kernel *link.Netlink, ahead, table int) Kernel {
	return Kernel{Watch: kernel.Watch, New: func(numbers link.Numbers, save func(link.Numbers) error) (agent.Kernel, error) {
		return link.NewManager(link.ManagerConfig{Kernel: kernel, Numbers: numbers, Save: save, Ahead: ahead, Table: table}), nil
	}}
}

// SimulatedKernel is one in memory, of its own for each node: nothing of this
// machine is touched.
func SimulatedKernel() Kernel {
	return Kernel{New: func(numbers link.Numbers, save func(link.Numbers) error) (agent.Kernel, error) {
		return SimulatedManager(numbers, save), nil
	}}
}

// SimulatedManager is what SimulatedKernel makes.
func SimulatedManager(numbers link.Numbers, save func(link.Numbers) error) *link.Manager {
	return link.NewManager(link.ManagerConfig{Kernel: simulated{new(link.Fake)}, Numbers: numbers, Save: save})
}

// simulated is a kernel in memory in which each namespace is there as soon as
// it is asked for.
type simulated struct{ *link.Fake }

// Dump implements link.Kernel.
func (s simulated) Dump(ctx context.Context, namespaces []string) (link.Snapshot, error) {
	for _, name := range namespaces {
		if name != "" {
			s.AddNamespace(name)
		}
	}
	return s.Fake.Dump(ctx, namespaces)
}
