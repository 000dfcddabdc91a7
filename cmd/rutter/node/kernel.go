package node

import (
	"context"

	"rutter/agent/link/plan"

	"rutter/agent"
	"rutter/agent/answer"
	"rutter/agent/link"
)

// Kernel is the kernel that a node's agent programs. Its functions are agent.Config's.
type Kernel struct {
	New   func(numbers plan.Numbers, save func(plan.Numbers) error) (agent.Kernel, error)
	Watch func(ctx context.Context, changed, reach func()) error
	// Trouble lists what operators must know about it; nil: nothing.
	Trouble func() []string
	// Attached passes on where VMs are attached, after each change, until ctx ends. nil:
	// without port security there are no ports, so VMs get no answers from their node.
	Attached func(ctx context.Context, update func([]answer.Segment, []answer.Port)) error
}

// SystemKernel is this machine's kernel, with the settings in cfg, and attaches VMs as
// security says. kernel must be open; the caller closes it after the node's Run.
func SystemKernel(kernel *link.Netlink, cfg link.ManagerConfig, security Security) Kernel {
	cfg.Secure = security.Secure
	made := new(managerOf)
	k := Kernel{Watch: kernel.Watch, Trouble: func() []string { return securityTrouble(&security, made.unsupported(), sysctlFolder) }}
	if cfg.Secure.On {
		at := &attachments{changed: make(chan struct{}, 1)}
		cfg.Attached, k.Attached = at.set, at.follow
	}
	k.New = func(numbers plan.Numbers, save func(plan.Numbers) error) (agent.Kernel, error) {
		cfg.Kernel, cfg.Numbers, cfg.Save = kernel, numbers, save
		manager := link.NewManager(cfg)
		made.set(manager)
		return manager, nil
	}
	return k
}

// SimulatedKernel is a kernel in memory, one for each node. It changes nothing of this
// machine.
func SimulatedKernel() Kernel {
	return Kernel{New: func(numbers plan.Numbers, save func(plan.Numbers) error) (agent.Kernel, error) {
		return SimulatedManager(numbers, save), nil
	}}
}

// SimulatedManager returns the manager of a SimulatedKernel.
func SimulatedManager(numbers plan.Numbers, save func(plan.Numbers) error) *link.Manager {
	return link.NewManager(link.ManagerConfig{Kernel: simulated{new(plan.Fake)}, Numbers: numbers, Save: save})
}

// simulated is a kernel in memory. It makes each namespace at its first use.
type simulated struct{ *plan.Fake }

// Dump implements link.Kernel.
func (s simulated) Dump(ctx context.Context, namespaces []string) (plan.Snapshot, error) {
	for _, name := range namespaces {
		if name != "" {
			s.AddNamespace(name)
		}
	}
	return s.Fake.Dump(ctx, namespaces)
}
