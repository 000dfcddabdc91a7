package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"golang.org/x/sync/errgroup"

	"rutter/agent"
	"rutter/agent/netsync"
	"rutter/agent/sysinfo"
	"rutter/agent/sysinfo/probe"
	"rutter/agent/task"
	"rutter/agent/vminfo"
	"rutter/api/client"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/vmhost"
	"rutter/log"
	"rutter/log/feed"
)

// TaskOptions say which tasks a node does, and what it reports.
type TaskOptions struct {
	Execute bool   // run operators' commands, and what tasks choose as a VM's program
	Sysinfo bool   // send sysinfo to the servers
	Setup   bool   // the node is set up
	Tags    string // file of the NIC tags that its links provide
	Store   string // folder of the file system that has the disks of VMs; "": their room is not told
	// Admin is the UUID of the owner of the node's own NICs, which are then
	// synchronized with the log. "": they are not.
	Admin   string
	Version string // of this program
	// Links are those of the node; nil: this machine's.
	Links func() ([]probe.Link, error)
}

// tasks does the tasks of a compute node, and sends its sysinfo.
type tasks struct {
	cfg     task.Config
	watcher *probe.Watcher // nil: no sysinfo is sent
	woken   chan struct{}  // holds a token when the state has changed
}

// newTasks makes the parts that the options ask for. machines may be nil.
func newTasks(opts *Options, machines *task.Machines, found *troubles) *tasks {
	n, want, api := &tasks{woken: make(chan struct{}, 1)}, opts.Tasks, opts.Servers.API
	kinds := map[string]task.Kind{"nop": task.Nop}
	if machines != nil {
		kinds = machines.Kinds()
		kinds["nop"] = task.Nop
	}
	if want.Execute {
		kinds["command_execute"] = task.Execute
	}
	if want.Sysinfo || want.Admin != "" {
		source := probe.Source{CN: opts.CN, Agent: want.Version, Port: portOf(opts.CNAPI), Setup: want.Setup, Tags: want.Tags, Store: want.Store, Links: want.Links}
		send := func(context.Context, []byte) error { return nil } // the task sysinfo returns it only
		if want.Sysinfo {
			send, kinds["sysinfo"] = sendSysinfo(api, opts.CN), n.refresh
		}
		n.watcher = probe.NewWatcher(source, send, opts.Logger)
	}
	n.cfg = task.Config{Submit: api.Submit, NewID: client.NewChangeID, Folder: workFolder(opts.Folder, "tasks", found, opts.Logger), Kinds: kinds, Logger: opts.Logger}
	return n
}

// sendSysinfo sends the sysinfo of a compute node to the servers.
func sendSysinfo(api *client.Client, cn log.UUID) func(context.Context, []byte) error {
	return func(ctx context.Context, text []byte) error {
		body := append(append([]byte(`{"sysinfo":`), text...), '}')
		_, err := api.Raw(ctx, http.MethodPost, "/cnapi/servers/"+cn.String()+"/sysinfo", body)
		return err
	}
}

// refresh is the task sysinfo: it gathers sysinfo and sends it again.
func (n *tasks) refresh(ctx context.Context, _ json.RawMessage) (any, error) {
	info, err := n.watcher.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]json.RawMessage{"sysinfo": info.JSON()}, nil
}

// followHostNICs synchronizes the node's own NICs and aggregations with the log, if
// text names their owner.
func (n *tasks) followHostNICs(text string, vms *vmSide) error {
	if text == "" {
		return nil
	}
	owner, err := log.ParseUUID(text)
	if err != nil {
		return term.Usagef("--admin-uuid: %w", err)
	}
	if vms == nil || vms.nics == nil {
		return term.Usagef("--admin-uuid: NICs are kept in step with the log where those of VMs are: leave --nic-sync on, and name --manifests or --follow-vminfod")
	}
	nics := vms.nics
	n.watcher.Changed = func(*sysinfo.Info) { nics.wake() }
	nics.cfg.Host = func() netsync.Host { return netsync.HostOf(n.watcher.Info(), owner) }
	return nil
}

// machines returns the VMs that tasks act on, nil if the node has none or another
// program runs them. programs: tasks may choose what runs.
func (n *vmSide) machines(api *client.Client, programs bool) *task.Machines {
	if n == nil || n.runner == nil {
		return nil
	}
	return &task.Machines{Runner: n.runner, Control: vminfo.Router{Service: n.service}, Store: n.service.Store(), VMMs: n.vmms, Check: vmhost.TaskRule(api), Programs: programs}
}

func portOf(address string) uint16 {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0
	}
	port, _ := strconv.ParseUint(text, 10, 16)
	return uint16(port)
}

// run does tasks for agent a until ctx ends.
func (n *tasks) run(ctx context.Context, a *agent.Agent) error {
	n.cfg.State, n.cfg.Incarnation = a, a.Incarnation()
	runner, err := task.New(n.cfg)
	if err != nil {
		return fmt.Errorf("tasks: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return runner.Run(ctx) })
	if n.watcher != nil {
		g.Go(func() error { return n.watcher.Run(ctx) })
	}
	g.Go(func() error {
		for {
			select {
			case <-n.woken:
				runner.Wake()
			case <-ctx.Done():
				return nil
			}
		}
	})
	return g.Wait()
}

// taskLocal is an agent's Local that wakes tasks, and then calls next, the Local of the
// VMs, if there is one.
type taskLocal struct {
	agent.Local
	tasks *tasks
}

// Connected implements agent.Local.
func (l taskLocal) Connected(ctx context.Context, conn *feed.Conn) {
	if l.Local != nil {
		l.Local.Connected(ctx, conn)
	}
}

// Request implements agent.Local.
func (l taskLocal) Request(ctx context.Context, conn *feed.Conn, m *feed.Request) {
	if l.Local != nil {
		l.Local.Request(ctx, conn, m)
	}
}

// Advanced implements agent.Local.
func (l taskLocal) Advanced() {
	select {
	case l.tasks.woken <- struct{}{}:
	default:
	}
	if l.Local != nil {
		l.Local.Advanced()
	}
}
