package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/agent"
	"rutter/agent/link"
	"rutter/cmd/rutter/certcmd"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/vmhost"
	"rutter/log"
)

func agentCommand() *cli.Command {
	return &cli.Command{
		Name: "agent", Usage: "run the agent of a compute node", Category: "Daemons",
		Description: term.Examples(
			"rutter agent --cn 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01 --data /var/lib/rutter-agent \\",
			"  --servers http://10.0.0.1:7420,http://10.0.0.2:7420,http://10.0.0.3:7420",
			"rutter agent status",
		),
		Flags: append(append(append(append(term.DaemonFlags(), vmhost.ServiceFlags()...), term.TLSFlags()...), taskFlags()...),
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
			Flags:       []cli.Flag{term.OutputFlag(), statusFlag()},
			Description: term.Examples("rutter agent status", "rutter agent status -o json"),
		}},
	}
}

func runAgentCommand(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
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
	cfg.Agent.Kernel = func(numbers link.Numbers, save func(link.Numbers) error) (agent.Kernel, error) {
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
		return cfg, term.Usagef("--cn is missing: give the UUID of this compute node's server object")
	}
	cn, err := log.ParseUUID(c.String("cn"))
	if err != nil {
		return cfg, term.Usagef("--cn: %w", err)
	}
	if c.String("servers") == "" {
		return cfg, term.Usagef("--servers is missing: name the servers, as in --servers http://10.0.0.1:7420,http://10.0.0.2:7420")
	}
	for _, name := range []string{"svp", "listen", "cn-api", "vminfod"} {
		_, secure, _ := term.TLSPaths(c)
		if err := term.CheckListen(name, c.String(name), c.Bool("insecure") || secure && name == "cn-api"); err != nil {
			return cfg, err
		}
	}
	logger, err := term.NewLogger(c.App.ErrWriter, c.String("log-level"))
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
		return cfg, term.Usagef("--svp-max-age %s: want a positive time, as in 1m", cfg.SVPMaxAge)
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
		return 0, term.Usagef("--hold-removals %q: want a share from 1%% to 100%%, as in 10%%, or off", text)
	}
	return percent, nil
}
