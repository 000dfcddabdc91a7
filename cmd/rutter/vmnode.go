package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"rutter/agent"
	"rutter/agent/netsync"
	"rutter/agent/vminfo"
	"rutter/agent/vminfo/vmmstate"
	"rutter/agent/vminfo/vmrun"
	"rutter/agent/vminfo/vmstore"
	"rutter/agent/vmlink"
	"rutter/api/client"
	"rutter/log"
)

// vmNode is the VM side of an agent: who has them, who serves them to the node,
// and who tells the servers.
type vmNode struct {
	service *vminfo.Service
	vmms    *vmmstate.Table
	link    *vmlink.Link
	nics    *nicSync      // nil: they are not kept in step
	runner  *vmrun.Runner // nil: another program runs the VMs
	listen  string        // of the vminfod, or off
	skipped string        // why the vminfod does not listen, although it should
}

// newVMNode makes what the flags ask for: nil if there are no VMs here.
func newVMNode(c *cli.Context, cn log.UUID, data string, api *client.Client, found *troubles, logger *slog.Logger) (*vmNode, error) {
	service, folder, err := newVMInfo(c, logger)
	if err != nil || service == nil {
		return nil, err
	}
	n := &vmNode{service: service, listen: c.String("vminfod")}
	cfg := vmmstate.Config{
		Folder: workFolder(data, "vmms", found, logger), Store: service.Store(), Ready: service.Ready(), Starter: noStarter{}, Logger: logger,
		Ring: func(id log.UUID) { n.link.Ring(id) },
	}
	var runner *vmrun.Runner
	if folder != nil {
		if runner, err = vmRunner(c); err != nil {
			return nil, err
		}
		switch err := runner.CheckCgroup(); {
		case err != nil && c.IsSet("vm-cgroup"):
			return nil, usagef("--vm-cgroup: %w", err)
		case err != nil:
			logger.Warn("no VM can be started by this agent", "error", err)
		}
		n.runner, cfg.Starter, cfg.Adopts = runner, runner, folder.Name()
	}
	if n.vmms, err = vmmstate.New(cfg); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoVMMs, err)
	}
	if c.Bool("nic-sync") {
		n.nics = &nicSync{
			cfg:  netsync.Config{CN: cn, Folder: data, Servers: api, NewID: client.NewChangeID, Logger: logger},
			node: netsync.NewLocal(service, runner, n.vmms), woken: make(chan struct{}, 1),
		}
	}
	n.link, err = vmlink.New(vmlink.Config{CN: cn, Service: service, VMMs: n.vmms, Servers: api, Logger: logger})
	return n, err
}

// errNoVMMs: what is kept of the VMs cannot be read. The node's network goes on.
var errNoVMMs = errors.New("the VM side of this agent does not run")

// vmRunner is the runner of the folders that the flags name.
func vmRunner(c *cli.Context) (*vmrun.Runner, error) {
	return vmrun.New(vmrun.Config{Manifests: c.String("manifests"), PIDs: c.String("vm-run"), NetNS: c.String("netns"), Cgroup: c.String("vm-cgroup")})
}

// noStarter is that of a node whose VMs another program runs.
type noStarter struct{}

var errNotOurs = errors.New("the VMs of this compute node are run by another program: ask that one")

// Start implements vminfo.Starter.
func (noStarter) Start(context.Context, log.UUID) error { return errNotOurs }

// Stop implements vminfo.Starter.
func (noStarter) Stop(context.Context, log.UUID, bool) error { return errNotOurs }

// vminfodListener opens the port of the vminfod. The network of a node does not
// depend on the list of its VMs: if another program has the port and nobody
// asked for this one, the agent goes on without.
func (n *vmNode) vminfodListener(asked bool, logger *slog.Logger) (net.Listener, error) {
	if n.listen == "off" {
		n.skipped = "it is off"
		return nil, nil
	}
	listener, err := net.Listen("tcp", n.listen)
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

// serveServers serves the VMMs to servers at an address of the admin network. An
// address that the node does not have yet is bound all the same (IP_FREEBIND,
// ip(7)): the agent may be what gives it.
func (n *vmNode) serveServers(ctx context.Context, address string, secure *agentTLS, g *errgroup.Group) error {
	if address == "off" || address == "" {
		return nil
	}
	freely := net.ListenConfig{Control: func(_, _ string, socket syscall.RawConn) (err error) {
		if failed := socket.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_FREEBIND, 1) }); failed != nil {
			return failed
		}
		return err
	}}
	listener, err := freely.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("CN API: %w (--cn-api off, if another daemon holds the port)", err)
	}
	g.Go(func() error { return serveStatus(ctx, n.vmms.Handler(), secure.secured(listener)) })
	return nil
}

// run runs the VM side of agent a until ctx ends.
func (n *vmNode) run(ctx context.Context, a *agent.Agent, listener net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.service.Run(ctx, listener) })
	g.Go(func() error { return n.vmms.Run(ctx) })
	g.Go(func() error { return n.link.Run(ctx, a) })
	if n.nics != nil {
		g.Go(func() error {
			return unending(ctx, "NICs in step with the log", n.nics.cfg.Logger, func(ctx context.Context) error { return n.nics.run(ctx, a) })
		})
	}
	return g.Wait()
}

// nodeStatus is what an agent says of itself, with its VMs.
type nodeStatus struct {
	agent.Status
	VMs *vmStatus `json:"vms,omitempty"`
}

// vmStatus is how the VM side stands.
type vmStatus struct {
	VMs     int              `json:"vms"`
	VMMs    int              `json:"vmms"`
	Vminfod string           `json:"vminfod"` // its address, or why there is none
	Sources []vmstore.Status `json:"sources"`
	QEMU    string           `json:"qemu"` // its path, or why there is none
	Link    vmlink.Status    `json:"link"`
	NICs    *netsync.Status  `json:"nics,omitempty"`
}

func (n *vmNode) status() *vmStatus {
	s := &vmStatus{VMs: n.service.Store().Count(), VMMs: len(n.vmms.List()), Vminfod: n.listen, Link: n.link.Status()}
	if n.skipped != "" {
		s.Vminfod = "not served: " + n.skipped
	}
	s.Sources = n.service.Status(false).Rutter.Sources
	s.NICs = n.nics.status()
	var err error
	if s.QEMU, err = vmrun.QEMU(); err != nil {
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

func writeVMStatus(w io.Writer, s *vmStatus) {
	if s == nil {
		return
	}
	fmt.Fprintf(w, "VMs           %d, and %d VMMs, of which the log may not have the state of %d; vminfod %s\n", s.VMs, s.VMMs, s.Link.Unrecorded, s.Vminfod)
	fmt.Fprintf(w, "inventory     %s", s.Link.Inventory)
	if !s.Link.Since.IsZero() {
		fmt.Fprintf(w, " since %s", s.Link.Since.Format(time.RFC3339))
	}
	fmt.Fprintln(w)
	for _, line := range s.Link.Refused {
		fmt.Fprintf(w, "              %s\n", line)
	}
	if s.Link.Failure != "" {
		fmt.Fprintf(w, "              last ring: %s\n", s.Link.Failure)
	}
	writeNICs(w, s.NICs)
	fmt.Fprintf(w, "QEMU          %s\n", s.QEMU)
	writeSources(w, "VM source  ", s.Sources)
}

// writeSources says where VMs come from, and what is left out and why.
func writeSources(w io.Writer, title string, sources []vmstore.Status) {
	for _, source := range sources {
		fmt.Fprintf(w, "%s   %s: %s; %d scans found %d changes that events had missed\n", title, source.Name, source.State, source.Scans, source.Missed)
		for _, skip := range source.Skips {
			fmt.Fprintf(w, "%*s   without %s\n", len(title), "", skip)
		}
		for _, aside := range source.Aside {
			fmt.Fprintf(w, "%*s   aside since %s: %s: %s\n", len(title), "", aside.Since.Format(time.RFC3339), aside.Name, aside.Reason)
		}
	}
}
