package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"rutter/agent"
	"rutter/agent/netsync"
	"rutter/agent/sysinfo"
	"rutter/agent/sysinfo/probe"
	"rutter/agent/task"
	"rutter/api/client"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/vmhost"
	"rutter/log"
	"rutter/log/feed"
)

// taskFlags are those of an agent's tasks and sysinfo.
func taskFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "allow-execute", EnvVars: []string{"RUTTER_ALLOW_EXECUTE"}, Usage: "run commands that operators send to this compute node"},
		&cli.BoolFlag{Name: "sysinfo", EnvVars: []string{"RUTTER_SYSINFO"}, Value: true, Usage: "tell the servers what this compute node is, at its begin and when that changes (--sysinfo=false: no)"},
		&cli.StringFlag{Name: "nic-tags", EnvVars: []string{"RUTTER_NIC_TAGS"}, Value: "/etc/rutter/nic_tags", Usage: "`FILE` of the NIC tags that the links of this node provide: lines TAG_nic=MAC or TAG_nic=LINK"},
		&cli.StringFlag{Name: "admin-uuid", EnvVars: []string{"RUTTER_ADMIN_UUID"}, Usage: "`UUID` of the administrator, who owns this node's own NICs: with it, they and its bonds are kept in step with the log; nothing of that is ever written to the node"},
		&cli.BoolFlag{Name: "unsetup", EnvVars: []string{"RUTTER_UNSETUP"}, Usage: "say that this compute node is not set up"},
	}
}

// nodeTasks does what a compute node is asked, and tells what it is.
type nodeTasks struct {
	cfg     task.Config
	watcher *probe.Watcher // nil: nobody wants its sysinfo
	woken   chan struct{}  // holds a token when the state moved
}

// newNodeTasks makes what the flags ask for. machines may be nil.
func newNodeTasks(c *cli.Context, cn log.UUID, api *client.Client, machines *task.Machines, found *troubles, logger *slog.Logger) *nodeTasks {
	n := &nodeTasks{woken: make(chan struct{}, 1)}
	kinds := map[string]task.Kind{"nop": task.Nop}
	if machines != nil {
		kinds = machines.Kinds()
		kinds["nop"] = task.Nop
	}
	if c.Bool("allow-execute") {
		kinds["command_execute"] = task.Execute
	}
	if c.Bool("sysinfo") || c.String("admin-uuid") != "" {
		source := probe.Source{CN: cn, Agent: version, Port: portOf(c.String("cn-api")), Setup: !c.Bool("unsetup"), Tags: c.String("nic-tags")}
		send := func(context.Context, []byte) error { return nil } // it is for this node alone
		if c.Bool("sysinfo") {
			send, kinds["sysinfo"] = sendSysinfo(api, cn), n.refresh
		}
		n.watcher = probe.NewWatcher(source, send, logger)
	}
	n.cfg = task.Config{Submit: api.Submit, NewID: client.NewChangeID, Folder: workFolder(c.String("data"), "tasks", found, logger), Kinds: kinds, Logger: logger}
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

// refresh is the task sysinfo: it is gathered and sent anew.
func (n *nodeTasks) refresh(ctx context.Context, _ json.RawMessage) (any, error) {
	info, err := n.watcher.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]json.RawMessage{"sysinfo": info.JSON()}, nil
}

// hostNICs has the node's own NICs and aggregations kept in step with the log, if
// --admin-uuid says whose they are.
func hostNICs(c *cli.Context, n *nodeTasks, vms *vmNode) error {
	text := c.String("admin-uuid")
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

// machines are the VMs that tasks act on; nil if there are none, or another
// program runs them.
func (n *vmNode) machines(api *client.Client) *task.Machines {
	if n == nil || n.runner == nil {
		return nil
	}
	return &task.Machines{Runner: n.runner, Store: n.service.Store(), VMMs: n.vmms, Check: vmhost.TaskRule(api)}
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
func (n *nodeTasks) run(ctx context.Context, a *agent.Agent) error {
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

// taskLocal is an agent's Local that has tasks looked at, before another one, if
// the node has VMs.
type taskLocal struct {
	agent.Local
	tasks *nodeTasks
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
