package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"

	"rutter/agent/vminfo/vmhelper"
	"rutter/agent/vminfo/vmmstate"
	"rutter/api/auth/matrix"
	"rutter/api/auth/tlsgate"

	"golang.org/x/sync/errgroup"

	"rutter/agent"
	"rutter/agent/netsync"
	"rutter/agent/vminfo"
	"rutter/agent/vmlink"
	"rutter/agent/vmsource"
	"rutter/api/client"
	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/vmhost"
	"rutter/log"
	"rutter/projections"
)

// vmSide has the VMs of a node: their sources, their vminfod, and the link that reports
// them to the servers.
type vmSide struct {
	service *vminfo.Service
	vmms    *vmmstate.Table
	link    *vmlink.Link
	nics    *nicSync      // nil: NICs are not synchronized
	runner  vmhost.Runner // nil: another program runs the VMs
	// helper is the runner if a process of its own runs the VMs; otherwise nil.
	helper *vmhelper.Client
	// helperAsked: the user named the helper, or it was there when this process began.
	helperAsked bool
	manifests   string // their folder
	// registered are the sources of what programs register.
	registered *registrations
	agent      atomic.Pointer[agent.Agent] // nil until it is open
	attaching  atomic.Pointer[attaching]   // nil until the agent is open
	listen     string                      // of the vminfod, or off
	skipped    string                      // why the vminfod does not listen although it should
}

// VMOptions say where a node's VMs are, and at which addresses they are served.
type VMOptions struct {
	Folders vmhost.Folders
	// HelperAsked: Folders.Helper is wanted, or was there. Otherwise it is named as trouble
	// only if there is a VM that it would run.
	HelperAsked bool
	// CgroupAsked: without the cgroup's folder the node does not start.
	CgroupAsked bool
	Vminfod     string // address, or off
	// VminfodAsked: the user gave the address, so it must be free.
	VminfodAsked bool
	SyncNICs     bool // synchronize the NICs in manifests with those in the log
	Metadata     bool // report VMs' metadata, which may have secrets
	// Sources are the names of the sources in which programs of the node register VMs.
	Sources []string
	// SourcesAsked: they are served also if the node has no other VMs. Otherwise a node whose
	// VMs another program has would say that it has none.
	SourcesAsked bool
	// Libvirt is the URI of the libvirtd whose domains are followed; "": none.
	Libvirt string
	// LibvirtOwner owns its domains that name no owner; zero: such a domain is put aside.
	LibvirtOwner log.UUID
}

// newVMSide makes the parts that the options ask for: nil if the node has no VMs.
func newVMSide(opts *Options, found *troubles) (*vmSide, error) {
	want, api, logger := opts.VMs, opts.Servers.API, opts.Logger
	want.Folders.CN = opts.CN
	n := &vmSide{listen: want.Vminfod}
	var more []vmsource.Source
	if want.SourcesAsked || want.Folders.Manifests != "off" || want.Folders.Follow != "" || len(leftSources(opts.Folder, want.Sources)) > 0 {
		n.registered, more = newRegistrations(opts, n, found)
	}
	here, err := vmhost.NewLocal(want.Folders, logger, more...)
	if err != nil || here.Service == nil {
		return nil, err
	}
	n.service, n.runner, n.helper = here.Service, here.Runner, here.Helper
	n.helperAsked, n.manifests = want.HelperAsked, want.Folders.Manifests
	router := vminfo.Router{Service: n.service}
	cfg := vmmstate.Config{
		Folder: workFolder(opts.Folder, "vmms", found, logger), Store: n.service.Store(), Ready: n.service.Ready(), Starter: router, Refuses: router.Refuses,
		Adopts: here.Adopts, Logger: logger,
		Ring:   func(id log.UUID) { n.link.Ring(id) },
		Placed: n.placedVMM(opts.CN),
	}
	if n.runner != nil && n.helper == nil { // a helper says so itself
		switch err := n.runner.CheckCgroup(); {
		case err != nil && want.CgroupAsked:
			return nil, term.Usagef("--vm-cgroup: %w", err)
		case err != nil:
			logger.Warn("no VM can be started by this agent", "error", err)
		}
	}
	if n.vmms, err = vmmstate.New(cfg); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoVMMs, err)
	}
	if want.SyncNICs {
		n.nics = &nicSync{
			cfg:  netsync.Config{CN: opts.CN, Folder: opts.Folder, Servers: api, NewID: client.NewChangeID, Logger: logger},
			node: netsync.NewLocal(n.service, n.editable(), n.vmms, n.registered.names()...), woken: make(chan struct{}, 1),
		}
	}
	n.link, err = vmlink.New(vmlink.Config{CN: opts.CN, Service: n.service, VMMs: n.vmms, Servers: api, Metadata: want.Metadata, Logger: logger})
	return n, err
}

// errNoVMMs: the file of the VMMs cannot be read. The node's network does not depend on
// it.
var errNoVMMs = errors.New("the VM side of this agent does not run")

// vminfodListener opens the port of the vminfod. If another program has the port and
// the user did not give the address, the agent runs without it, because the network of
// a node does not depend on the list of its VMs.
func (n *vmSide) vminfodListener(asked bool, logger *slog.Logger) (net.Listener, error) {
	if !enabled(n.listen) {
		n.skipped = "it is off"
		return nil, nil
	}
	listener, err := localhttp.Listen(n.listen)
	if errors.Is(err, syscall.EADDRINUSE) && !asked {
		n.skipped = "another program has " + n.listen + " (--vminfod names another address, --follow-vminfod takes over its VMs)"
		logger.Warn("no vminfod is served: another program has its port", "address", n.listen)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("vminfod: %w (--vminfod off, if another daemon holds the port)", err)
	}
	return listener, nil
}

// serveServers serves the VMMs to servers at an address of the admin network. The
// address may be one that the node does not have yet (IP_FREEBIND, ip(7)), because the
// agent itself may add it.
func (n *vmSide) serveServers(ctx context.Context, address string, servers *Connection, g *errgroup.Group) error {
	if !enabled(address) {
		return nil
	}
	listener, err := listenFreely(ctx, address)
	if err != nil {
		return fmt.Errorf("CN API: %w (--cn-api off, if another daemon holds the port)", err)
	}
	g.Go(func() error {
		return localhttp.Serve(ctx, n.vmms.Handler(), servers.secured(listener, tlsgate.Port{Name: "cn-api", Need: tlsgate.Role(matrix.Server)}))
	})
	return nil
}

// follow gives the VM side its agent, before that runs: what was let go before this process
// gets no links again.
func (n *vmSide) follow(a *agent.Agent) {
	if n.registered != nil {
		n.registered.agent.Store(a)
	}
	n.agent.Store(a)
	t := &attaching{store: n.service.Store(), agent: a, registered: n.registered}
	n.attaching.Store(t)
	t.tell()
}

// statePlaced is the state of a VMM that was placed, and of which no node has told a state.
const statePlaced = "creating"

// placedVMM finds the VMM of a VM that an operator has placed on this node, and that no node
// has told a state of: the newest, if there are several.
func (n *vmSide) placedVMM(cn log.UUID) func(vm log.UUID) (id log.UUID, gen uint64, is bool) {
	return func(vm log.UUID) (id log.UUID, gen uint64, is bool) {
		a := n.agent.Load()
		if a == nil {
			return id, 0, false
		}
		var newest *log.VMM
		a.View(func(state *projections.State) {
			for rec := range state.VMMsOf(vm) {
				m := rec.Object.(*log.VMM)
				if m.SledID == cn && m.State == statePlaced && (newest == nil || newer(m, newest)) {
					newest = m
				}
			}
			if newest != nil {
				id, gen, is = newest.UUID, newest.Gen, true
			}
		})
		return id, gen, is
	}
}

func newer(m, than *log.VMM) bool {
	return m.TimeUpdated > than.TimeUpdated || m.TimeUpdated == than.TimeUpdated && m.UUID.Compare(than.UUID) > 0
}

// run runs the VM side of agent a until ctx ends.
func (n *vmSide) run(ctx context.Context, a *agent.Agent, listener net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.service.Run(ctx, listener) })
	g.Go(func() error { return n.vmms.Run(ctx) })
	if n.helper != nil {
		g.Go(func() error { return n.helper.Run(ctx) })
	}
	g.Go(func() error { return n.link.Run(ctx, a) })
	g.Go(func() error {
		n.attaching.Load().run(ctx)
		return nil
	})
	if n.nics != nil {
		g.Go(func() error {
			return restarting(ctx, "NICs in step with the log", n.nics.cfg.Logger, func(ctx context.Context) error { return n.nics.run(ctx, a) })
		})
	}
	return g.Wait()
}

// editable are the manifests of the node: none if another program runs the VMs.
func (n *vmSide) editable() netsync.Manifests {
	if n.runner == nil {
		return nil
	}
	return n.runner
}
