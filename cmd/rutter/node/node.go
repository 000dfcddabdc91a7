package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent"
	"rutter/agent/answer"
	"rutter/agent/link/view"
	"rutter/agent/metrics"
	"rutter/agent/ports"
	"rutter/agent/underlay"
	"rutter/api/client"
	"rutter/api/support"
	"rutter/cmd/rutter/debugsocket"
	"rutter/cmd/rutter/localhttp"
	"rutter/log"
	"rutter/varp"
)

// disabled is the address that switches a listener off.
const disabled = "off"

// Options say how a compute node runs. CN, Folder, Servers and Kernel must be given.
type Options struct {
	CN     log.UUID
	Folder string // of the cache and the files beside it
	// Version is that of the program, for /metrics.
	Version string
	// Servers is the connection to the servers.
	Servers *Connection
	// Zone is the name of this node's zone; "": it has none. ZoneSpread is the time over
	// which the nodes of a zone go back to its servers; 0: zone.DefaultSpread.
	Zone       string
	ZoneSpread time.Duration
	Kernel     Kernel

	// SVP is the address of the local SVP server, and Status that of the status, which
	// changes nothing. "" and "off" switch them off.
	SVP, Status string
	// Socket serves what Status does, and the requests that change VMs, to root and to
	// one group. A path "" or "off" switches it off.
	Socket localhttp.Socket
	// SocketAsked: the user gave the path, so without it the node does not start.
	SocketAsked bool
	// SVPMaxAge is the time without contact to the servers after which the SVP server
	// marks its answers as old.
	SVPMaxAge time.Duration
	// CNAPI is the address at which servers reach the node's VMs. "" and "off": none.
	CNAPI string
	// Scrape is where metrics are read from other machines.
	Scrape Scrape
	// HoldRemovals is agent.Config's.
	HoldRemovals int

	VMs   *VMOptions   // nil: the node has no VMs
	Tasks *TaskOptions // nil: it does no tasks, and sends no sysinfo
	// Underlay says how the node looks at its underlay; nil: it does not, as a node with a
	// simulated kernel.
	Underlay *UnderlayOptions

	// Ports is the port security of the node; nil: it has none.
	Ports ports.Source
	// View reads the node's kernel for traces; nil: it cannot be read, as a simulated one.
	// The caller closes it after Run.
	View *view.Reader

	// Support has what the node says of itself to operators, over its session and at Debug;
	// nil: a source without log lines and settings.
	Support *support.Source
	// Debug is the socket at which root gets the same, and profiles.
	Debug debugsocket.Options

	// Opened, if not nil, is called when the ports are open.
	Opened func()
	Logger *slog.Logger // nil discards
}

// Node is one compute node: its agent and the parts beside it.
type Node struct {
	opts  Options
	agent *agent.Agent
	vms   *vmSide // nil: it has none
	tasks *tasks  // nil: it does none
	found *troubles
	under *underlay.Monitor // nil: it does not look at its underlay
	// answers is nil without port security.
	answers *answer.Answerer
	// metrics answers GET /metrics.
	metrics http.Handler
}

// UnderlayOptions say how a node looks at its underlay.
type UnderlayOptions struct {
	// Prober probes the paths to other VTEPs; nil: paths are not probed. The caller closes
	// it after the node's Run.
	Prober *underlay.Prober
	// Every is how often it looks; 0: the default of package underlay.
	Every time.Duration
}

// Open reads the node's cache and makes its parts. It opens no port and starts nothing.
// The caller must call Run, which closes the cache.
func Open(opts Options) (*Node, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Support == nil {
		opts.Support = support.New(support.Config{Folder: opts.Folder})
	}
	found := new(troubles)
	n := &Node{opts: opts, found: found}
	cfg := agent.Config{
		CN: opts.CN, Folder: opts.Folder, Servers: opts.Servers.API.Servers(), Dialer: opts.Servers.API, Logger: opts.Logger,
		Zone: opts.Zone, AskZone: opts.Servers.API.Zone, ZoneSpread: opts.ZoneSpread,
		Kernel: opts.Kernel.New, Watch: opts.Kernel.Watch, HoldRemovals: opts.HoldRemovals,
		Trouble: n.trouble, Report: n.report,
	}
	var err error
	if opts.VMs != nil {
		n.vms, err = newVMSide(&opts, found)
	}
	lost := errors.Is(err, errNoVMMs)
	if err != nil && !lost {
		return nil, err
	}
	if lost {
		opts.Logger.Error("this node's network goes on without its VMs' states", "error", err)
		found.note(err.Error())
	}
	if n.vms != nil {
		cfg.Local = n.vms.local()
	}
	if opts.Tasks != nil {
		n.tasks = newTasks(&opts, n.vms.machines(opts.Servers.API, opts.Tasks.Execute), found)
		cfg.Local = taskLocal{cfg.Local, n.tasks}
		if err := n.tasks.followHostNICs(opts.Tasks.Admin, n.vms); err != nil && !lost {
			return nil, err
		}
	}
	cfg.Local = supportLocal{cfg.Local, support.NewPager(opts.Support)}
	if opts.View != nil {
		cfg.View = opts.View.Read
	}
	if n.agent, err = agent.New(cfg); err == nil {
		if n.vms != nil {
			n.vms.follow(n.agent)
		}
		if opts.Kernel.Attached != nil {
			n.answers = answer.New(answer.Config{Log: answer.View{CN: opts.CN, Read: n.agent.View}, Logger: opts.Logger})
		}
		n.metrics, err = metrics.Handler(n.measured())
		n.addParts(opts.Support)
	}
	if err == nil && opts.Underlay != nil {
		n.under = underlay.New(underlay.Config{
			CN: opts.CN, View: n.agent.View, Submit: opts.Servers.API.Submit, NewID: client.NewChangeID,
			Prober: opts.Underlay.Prober, Every: opts.Underlay.Every, Logger: opts.Logger,
		})
	}
	return n, err
}

// trouble lists what operators must know beside the agent's own status.
func (n *Node) trouble() []string {
	lines := append(n.found.all(), n.opts.Servers.trouble()...)
	if n.under != nil {
		lines = append(lines, n.under.Trouble()...)
	}
	if n.vms != nil {
		lines = append(lines, n.vms.trouble()...)
	}
	if n.opts.Kernel.Trouble != nil {
		lines = append(lines, n.opts.Kernel.Trouble()...)
	}
	return lines
}

// Refresh gathers the node's sysinfo, and sends it to the servers. The node must have
// tasks.
func (n *Node) Refresh(ctx context.Context) error {
	_, err := n.tasks.watcher.Refresh(ctx)
	return err
}

// Run serves until ctx ends or a part fails, and closes the cache.
func (n *Node) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, n.agent.Close()) }()
	g, ctx := errgroup.WithContext(ctx)
	if err := n.serve(ctx, g); err != nil {
		g.Go(func() error { return err }) // it ends the parts that run already
		return g.Wait()
	}
	n.opts.Servers.run(ctx, n.agent, n.opts.Logger, g)
	if n.tasks != nil {
		g.Go(func() error {
			return restarting(ctx, "tasks", n.opts.Logger, func(ctx context.Context) error { return n.tasks.run(ctx, n.agent) })
		})
	}
	if n.under != nil {
		g.Go(func() error { return restarting(ctx, "underlay", n.opts.Logger, n.under.Run) })
	}
	if n.answers != nil {
		g.Go(func() error { return restarting(ctx, "answers to VMs", n.opts.Logger, n.answers.Run) })
		g.Go(func() error { return n.opts.Kernel.Attached(ctx, n.answers.Update) })
	}
	if n.opts.Opened != nil {
		n.opts.Opened()
	}
	g.Go(func() error { return n.agent.Run(ctx) })
	return g.Wait()
}

// serve opens the node's ports, and serves them in g.
func (n *Node) serve(ctx context.Context, g *errgroup.Group) error {
	var svpStats func() varp.Stats
	if enabled(n.opts.SVP) {
		svp, err := NewSVP(n.agent, n.opts.SVPMaxAge, n.opts.Logger)
		if err != nil {
			return err
		}
		listener, err := net.Listen("tcp", n.opts.SVP)
		if err != nil {
			return fmt.Errorf("SVP: %w (--svp off, if another daemon holds the port)", err)
		}
		svpStats = svp.Stats
		g.Go(func() error { return svp.Run(ctx, listener) })
	}
	if err := n.serveDebug(ctx, g); err != nil {
		return err
	}
	if err := n.serveLocal(ctx, withSVP(n.handler(), svpStats), g); err != nil {
		return err
	}
	if err := n.serveScrapes(ctx, g); err != nil || n.vms == nil {
		return err
	}
	if err := n.vms.serveServers(ctx, n.opts.CNAPI, n.opts.Servers, g); err != nil {
		return err
	}
	listener, err := n.vms.vminfodListener(n.opts.VMs.VminfodAsked, n.opts.Logger)
	if err != nil {
		return err
	}
	g.Go(func() error { return n.vms.run(ctx, n.agent, listener) })
	return nil
}

// serveLocal serves the node's paths to programs of the node: without changes at the
// address of the status, all at the socket.
func (n *Node) serveLocal(ctx context.Context, handler http.Handler, g *errgroup.Group) error {
	if enabled(n.opts.Status) {
		listener, err := localhttp.Listen(n.opts.Status)
		if err != nil {
			return fmt.Errorf("status: %w (--listen off, if another daemon holds the port)", err)
		}
		reads := localhttp.ReadOnly(handler, "the agent's --socket is for that, "+n.opts.Socket.Path+", which rutter vm uses")
		g.Go(func() error { return localhttp.Serve(ctx, reads, listener) })
	}
	if !enabled(n.opts.Socket.Path) {
		return nil
	}
	guarded, err := n.opts.Socket.Guarded(n.rootHandler(handler))
	if err != nil {
		return fmt.Errorf("--socket-group: %w", err)
	}
	listener, err := n.opts.Socket.Listen(ctx)
	if err != nil && n.opts.SocketAsked {
		return fmt.Errorf("--socket: %w", err)
	}
	if err != nil {
		// The network of a node does not depend on commands about its VMs.
		n.found.note("no program of this node can ask the agent for changes, because it has no socket: " + err.Error())
		n.opts.Logger.Warn("the agent has no socket: rutter vm cannot ask it for changes (--socket names another path)", "error", err)
		return nil
	}
	g.Go(func() error { return localhttp.Serve(ctx, guarded, listener) })
	return nil
}

// enabled reports whether an address switches its listener on.
func enabled(address string) bool { return address != "" && address != disabled }
