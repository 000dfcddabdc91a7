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
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"rutter/agent"
	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/api/client"
	"rutter/cmd/rutter/certcmd"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/varp"
)

// statusFlag is where an agent serves its own status.
func statusFlag() cli.Flag {
	return &cli.StringFlag{Name: "listen", EnvVars: []string{"RUTTER_AGENT_LISTEN"}, Value: "127.0.0.1:5309", Usage: "`ADDRESS` at which the agent serves its status, or off"}
}

func agentCommand() *cli.Command {
	return &cli.Command{
		Name: "agent", Usage: "run the agent of a compute node", Category: "Daemons",
		Description: examples(
			"rutter agent --cn 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01 --data /var/lib/rutter-agent \\",
			"  --servers http://10.0.0.1:7420,http://10.0.0.2:7420,http://10.0.0.3:7420",
			"rutter agent status",
		),
		Flags: append(append(append(append(daemonFlags(), vminfodFlags()...), term.TLSFlags()...), taskFlags()...),
			&cli.StringFlag{Name: "cn", EnvVars: []string{"RUTTER_CN"}, Usage: "`UUID` of this compute node, as its server object has it"},
			&cli.StringFlag{Name: "data", EnvVars: []string{"RUTTER_AGENT_DATA"}, Value: "/var/lib/rutter-agent", Usage: "`FOLDER` of the cache; it belongs to one agent"},
			&cli.StringFlag{Name: "servers", EnvVars: []string{"RUTTER_SERVERS"}, Usage: "base `URLS` of the servers, parted by commas"},
			&cli.StringFlag{Name: "svp", EnvVars: []string{"RUTTER_AGENT_SVP"}, Value: "127.0.0.1:1296", Usage: "`ADDRESS` of the local SVP server, or off"},
			&cli.DurationFlag{Name: "svp-max-age", EnvVars: []string{"RUTTER_AGENT_SVP_MAX_AGE"}, Value: time.Minute, Usage: "say so, in the log and at GET /svp, when no server was heard for this `TIME`; SVP answers all the same"},
			statusFlag(),
			&cli.StringFlag{Name: "cn-api", EnvVars: []string{"RUTTER_CN_API"}, Value: "off", Usage: "`ADDRESS` on the admin network at which servers reach this node's VMs when it has no connection with them, as in 10.0.0.11:5309, or off"},
			&cli.StringFlag{Name: "netns", EnvVars: []string{"RUTTER_NETNS"}, Value: "/run/netns", Usage: "`FOLDER` of named network namespaces, as ip-netns(8) keeps it"},
			&cli.IntFlag{Name: "ahead", EnvVars: []string{"RUTTER_AGENT_AHEAD"}, Value: link.DefaultAhead, Usage: "`ENTRIES` of one vnet that the kernel gets before they are asked for; vnets with more are on demand (-1: none is)"},
			&cli.IntFlag{Name: "on-demand-table", EnvVars: []string{"RUTTER_AGENT_TABLE"}, Value: link.DefaultTable, Usage: "`ENTRIES` that the kernel keeps of each vnet on demand"},
			&cli.StringFlag{Name: "hold-removals", EnvVars: []string{"RUTTER_HOLD_REMOVALS"}, Value: "10%", Usage: "`SHARE` of the links that a new view of the log (of another cluster, or after a lost cache) may take away, if they are more than ten, before it is held until rutter cn accept lets it; off, for labs: any"},
			&cli.BoolFlag{Name: "nic-sync", EnvVars: []string{"RUTTER_NIC_SYNC"}, Value: true, Usage: "keep the NICs in manifests and those in the log in step, as net-agent does (--nic-sync=false: no)"},
			&cli.StringFlag{Name: "etc-netns", EnvVars: []string{"RUTTER_ETC_NETNS"}, Value: "/etc/netns", Usage: "`FOLDER` in which NAMESPACE/resolv.conf is written"},
		),
		Action: runAgentCommand,
		Subcommands: []*cli.Command{certcmd.JoinCommand(), {
			Name: "status", Usage: "what the agent of this machine says of itself", Action: agentStatus,
			Flags:       []cli.Flag{outputFlag(), statusFlag()},
			Description: examples("rutter agent status", "rutter agent status -o json"),
		}},
	}
}

// agentConfig says how an agent runs.
type agentConfig struct {
	Agent       agent.Config
	API         *client.Client
	SVP, Status string // addresses, or off
	CNAPI       string // likewise, for servers
	SVPMaxAge   time.Duration
	VMs         *vmNode
	VMsAsked    bool // the vminfod's address was given
	Tasks       *nodeTasks
	Logger      *slog.Logger
	TLS         *agentTLS // nil: none
	Confine     func()    // called when the ports are open
}

func runAgentCommand(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	cfg, err := agentConfigOf(c)
	if err != nil {
		return err
	}
	if err := privateAgentFolder(c.String("data"), cfg.Logger); err != nil {
		return err
	}
	kernel, err := link.Open(link.Config{NetNSDir: c.String("netns"), EtcNetNSDir: c.String("etc-netns")})
	if err != nil {
		return fmt.Errorf("%w (the agent needs CAP_NET_ADMIN, and CAP_SYS_ADMIN to enter the VMs' namespaces)", err)
	}
	cfg.Agent.Kernel = func(numbers plan.Numbers, save func(plan.Numbers) error) (agent.Kernel, error) {
		return link.NewManager(link.ManagerConfig{Kernel: kernel, Numbers: numbers, Save: save, Ahead: c.Int("ahead"), Table: c.Int("on-demand-table")}), nil
	}
	cfg.Agent.Watch = kernel.Watch
	found := new(troubles)
	cfg.Agent.Trouble = func() []string { return append(found.all(), cfg.TLS.trouble()...) }
	cfg.VMs, err = newVMNode(c, cfg.Agent.CN, cfg.Agent.Folder, cfg.API, found, cfg.Logger)
	lost := errors.Is(err, errNoVMMs)
	if err != nil && !lost {
		return errors.Join(err, kernel.Close())
	}
	if lost {
		cfg.Logger.Error("this node's network goes on without its VMs' states", "error", err)
		found.note(err.Error())
	}
	if cfg.VMs != nil {
		cfg.Agent.Local, cfg.VMsAsked = cfg.VMs.local(), c.IsSet("vminfod")
	}
	cfg.Tasks = newNodeTasks(c, cfg.Agent.CN, cfg.API, cfg.VMs.machines(cfg.API), found, cfg.Logger)
	cfg.Agent.Local = taskLocal{cfg.Agent.Local, cfg.Tasks}
	if err := hostNICs(c, cfg.Tasks, cfg.VMs); err != nil && !lost {
		return errors.Join(err, kernel.Close())
	}
	cfg.Confine = func() { confineAgent(c, cfg.Logger) }
	return errors.Join(runAgent(c.Context, cfg), kernel.Close())
}

func agentConfigOf(c *cli.Context) (agentConfig, error) {
	var cfg agentConfig
	if c.String("cn") == "" {
		return cfg, usagef("--cn is missing: give the UUID of this compute node's server object")
	}
	cn, err := log.ParseUUID(c.String("cn"))
	if err != nil {
		return cfg, usagef("--cn: %w", err)
	}
	if c.String("servers") == "" {
		return cfg, usagef("--servers is missing: name the servers, as in --servers http://10.0.0.1:7420,http://10.0.0.2:7420")
	}
	for _, name := range []string{"svp", "listen", "cn-api", "vminfod"} {
		_, secure, _ := term.TLSPaths(c)
		if err := checkListen(name, c.String(name), c.Bool("insecure") || secure && name == "cn-api"); err != nil {
			return cfg, err
		}
	}
	logger, err := newLogger(c.App.ErrWriter, c.String("log-level"))
	if err != nil {
		return cfg, err
	}
	cfg.Logger = logger
	api, err := openAgentTLS(c, cn, strings.Split(c.String("servers"), ","), &cfg)
	if err != nil {
		return cfg, err
	}
	cfg.API = api
	cfg.SVP, cfg.Status, cfg.CNAPI = c.String("svp"), c.String("listen"), c.String("cn-api")
	if cfg.SVPMaxAge = c.Duration("svp-max-age"); cfg.SVPMaxAge <= 0 {
		return cfg, usagef("--svp-max-age %s: want a positive time, as in 1m", cfg.SVPMaxAge)
	}
	cfg.Agent = agent.Config{CN: cn, Folder: c.String("data"), Servers: api.Servers(), Dialer: api, Logger: logger}
	cfg.Agent.HoldRemovals, err = holdShare(c.String("hold-removals"))
	return cfg, err
}

// holdShare is agent.Config.HoldRemovals of the flag.
func holdShare(text string) (percent int, err error) {
	if text == "off" {
		return -1, nil
	}
	percent, err = strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err != nil || percent < 1 || percent > 100 || !strings.HasSuffix(text, "%") {
		return 0, usagef("--hold-removals %q: want a share from 1%% to 100%%, as in 10%%, or off", text)
	}
	return percent, nil
}

// runAgent runs an agent with its SVP and its status until ctx ends.
func runAgent(ctx context.Context, cfg agentConfig) (err error) {
	a, err := agent.New(cfg.Agent)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	g, ctx := errgroup.WithContext(ctx)
	failed := func(err error) error { // what runs already ends with it
		g.Go(func() error { return err })
		return g.Wait()
	}
	var svpStats func() varp.Stats
	if cfg.SVP != "off" {
		svp, err := newAgentSVP(a, cfg.SVPMaxAge, cfg.Logger)
		if err != nil {
			return err
		}
		listener, err := net.Listen("tcp", cfg.SVP)
		if err != nil {
			return fmt.Errorf("SVP: %w (--svp off, if another daemon holds the port)", err)
		}
		svpStats = svp.Stats
		g.Go(func() error { return svp.Run(ctx, listener) })
	}
	if cfg.Status != "off" {
		listener, err := net.Listen("tcp", cfg.Status)
		if err != nil {
			return failed(fmt.Errorf("status: %w (--listen off, if another daemon holds the port)", err))
		}
		g.Go(func() error { return serveStatus(ctx, withSVP(nodeHandler(a, cfg.VMs), svpStats), listener) })
	}
	if cfg.VMs != nil {
		if err := cfg.VMs.serveServers(ctx, cfg.CNAPI, cfg.TLS, g); err != nil {
			return failed(err)
		}
		listener, err := cfg.VMs.vminfodListener(cfg.VMsAsked, cfg.Logger)
		if err != nil {
			return failed(err)
		}
		g.Go(func() error { return cfg.VMs.run(ctx, a, listener) })
	}
	cfg.TLS.run(ctx, a, cfg, g)
	if cfg.Tasks != nil {
		g.Go(func() error {
			return unending(ctx, "tasks", cfg.Logger, func(ctx context.Context) error { return cfg.Tasks.run(ctx, a) })
		})
	}
	cfg.Confine()
	g.Go(func() error { return a.Run(ctx) })
	return g.Wait()
}

// statusLimit bounds a request to the status port, and the wait for those under
// way when the agent stops.
const statusLimit = 5 * time.Second

func serveStatus(ctx context.Context, handler http.Handler, listener net.Listener) error {
	server := &http.Server{Handler: handler, ReadTimeout: statusLimit, WriteTimeout: statusLimit}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusLimit)
	defer cancel()
	err := server.Shutdown(grace)
	<-served
	return err
}

// agentStatus prints what the agent at --listen says.
func agentStatus(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context, statusLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.String("listen")+"/status", nil)
	if err != nil {
		return usagef("--listen %q: %w", c.String("listen"), err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return silentError(fmt.Sprintf("no agent answers at %s: %v (does it run there? --listen names another address)", c.String("listen"), err))
	}
	defer response.Body.Close()
	var s nodeStatus
	if err := json.NewDecoder(response.Body).Decode(&s); err != nil {
		return fmt.Errorf("agent status: %w", err)
	}
	return printOne(c, s, func(w io.Writer) {
		writeAgentStatus(w, s.Status)
		writeVMStatus(w, s.VMs)
	})
}

func writeAgentStatus(w io.Writer, s agent.Status) {
	matches := "does not match yet"
	if s.Kernel.Matched {
		matches = fmt.Sprintf("matches at seq %d", s.Programmed)
	}
	fmt.Fprintf(w, "compute node  %s, incarnation %d\n", s.CN, s.Incarnation)
	fmt.Fprintf(w, "feed          %v since %s, server %s\n", s.State, s.Since.Format(time.RFC3339), s.Server)
	fmt.Fprintf(w, "cursor        %d, %d behind the head that was last heard of\n", s.Cursor.Seq, s.Lag)
	fmt.Fprintf(w, "kernel        %s: %d links, %d neighbours, %d FDB entries wanted; %d healed\n", matches, s.Kernel.Links, s.Kernel.Neighs, s.Kernel.FDB, s.Kernel.Healed)
	if d := s.Kernel.Demand; d.VNets > 0 {
		fmt.Fprintf(w, "on demand     %d vnets: %d entries in the kernel, %d of %d questions answered, %d evicted\n", d.VNets, d.Resident, d.Answered, d.Questions, d.Evicted)
	}
	if s.Hold != nil {
		fmt.Fprintf(w, "held          %s\n", s.Hold)
		for _, name := range s.Hold.Names[:min(len(s.Hold.Names), heldNames)] {
			fmt.Fprintf(w, "              would go: %s\n", name)
		}
		fmt.Fprintf(w, "              rutter cn accept %s lets it\n", s.CN)
	}
	for _, line := range s.Trouble {
		fmt.Fprintf(w, "trouble       %s\n", line)
	}
	for i, line := range s.Kernel.Drift {
		if i == 0 {
			fmt.Fprintf(w, "put right     %d in all; the last time:\n", s.Kernel.Healed)
		}
		fmt.Fprintf(w, "              %s\n", line)
	}
	for _, list := range [][]string{s.Kernel.Failures, s.Kernel.Conflicts, s.Kernel.Problems} {
		for _, line := range list {
			fmt.Fprintf(w, "              %s\n", line)
		}
	}
	if s.Age > 0 {
		fmt.Fprintf(w, "cut off       for %s: lookups are answered from the cache\n", s.Age.Round(time.Second))
	}
	if s.Failure != "" {
		fmt.Fprintf(w, "last failure  %s\n", s.Failure)
	}
}
