package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/agent/filter"
	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/agent/link/view"
	"rutter/agent/ports"
	"rutter/agent/underlay"
	"rutter/agent/vmsource/libvirt"
	"rutter/agent/vmsource/registered"
	"rutter/agent/zone"
	"rutter/api/auth/tlsgate"
	"rutter/api/support"
	"rutter/cmd/rutter/debugsocket"
	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/node"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/sdnotify"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/vmhost"
	"rutter/log"
	"rutter/log/zonename"
)

// Command is rutter agent. join, which gets a node its first certificate, becomes a
// subcommand.
func Command(join *cli.Command) *cli.Command {
	return &cli.Command{
		Name: "agent", Usage: "run the agent of a compute node", Category: "Daemons",
		Description: term.Examples(
			"rutter agent --cn 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01 --data /var/lib/rutter-agent \\",
			"  --servers http://10.0.0.1:7420,http://10.0.0.2:7420,http://10.0.0.3:7420",
			"rutter agent --cn 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01 --servers http://10.0.0.1:7420 \\",
			"  --port-security on --underlay-interface bond0",
			"rutter agent --config /etc/rutter/rutter.toml --vm-sources cni,libvirt,local --libvirt qemu:///system",
			"rutter agent --config /etc/rutter/rutter.toml --zone east",
			"rutter agent status",
		),
		Flags:  Flags(),
		Action: run,
		Subcommands: []*cli.Command{join, {
			Name: "status", Usage: "what the agent of this machine says of itself", Action: printStatus,
			Flags:       append([]cli.Flag{output.Flag()}, askFlags()...),
			Description: term.Examples("rutter agent status", "rutter agent status -o json", "rutter agent status --wait 1m"),
		}, portsCommand()},
	}
}

// Flags are those of rutter agent.
func Flags() []cli.Flag {
	return append(slices.Concat(term.DaemonFlags(), vmhost.ServiceFlags(), term.TLSFlags(), taskFlags(), securityFlags()),
		&cli.StringFlag{Name: "cn", EnvVars: []string{"RUTTER_CN"}, Usage: "`UUID` of this compute node, as its server object has it"},
		&cli.StringFlag{Name: "data", EnvVars: []string{"RUTTER_AGENT_DATA"}, Value: "/var/lib/rutter-agent", Usage: "`FOLDER` of the cache; it belongs to one agent"},
		&cli.StringFlag{Name: "servers", EnvVars: []string{"RUTTER_SERVERS"}, Usage: "base `URLS` of the servers, separated by commas"},
		&cli.StringFlag{Name: "zone", EnvVars: []string{"RUTTER_ZONE"}, Usage: "`NAME` of the zone (rack, room, site) of this compute node: it follows a ready server with the same --zone if there is one, else any; one to 63 of a-z, 0-9 and -"},
		&cli.DurationFlag{Name: "zone-spread", EnvVars: []string{"RUTTER_ZONE_SPREAD"}, Value: zone.DefaultSpread, Usage: "when a server of the zone is ready again, its nodes go back at random over this `TIME`"},
		&cli.StringFlag{Name: "svp", EnvVars: []string{"RUTTER_AGENT_SVP"}, Value: "127.0.0.1:1296", Usage: "`ADDRESS` of the local SVP server, or off"},
		&cli.DurationFlag{Name: "svp-max-age", EnvVars: []string{"RUTTER_AGENT_SVP_MAX_AGE"}, Value: time.Minute, Usage: "say so, in the log and at GET /svp, when no server was heard for this `TIME`; SVP answers all the same"},
		statusFlag(),
		debugsocket.Flag("RUTTER_AGENT_"),
		&cli.StringFlag{Name: "socket", EnvVars: []string{"RUTTER_AGENT_SOCKET"}, Value: localhttp.DefaultSocket, Usage: "`PATH` of the Unix socket at which root may change this node's VMs (rutter vm), or off"},
		&cli.StringFlag{Name: "socket-group", EnvVars: []string{"RUTTER_AGENT_SOCKET_GROUP"}, Usage: "`GROUP` whose members may use the socket as root does"},
		vmhost.HelperFlag(),
		&cli.StringFlag{Name: "vm-sources", EnvVars: []string{"RUTTER_VM_SOURCES"}, Value: "cni,libvirt,local", Usage: "`NAMES` of the sources in which programs of this node may register VMs at the socket, separated by commas, or off"},
		&cli.StringFlag{Name: "libvirt-owner", EnvVars: []string{"RUTTER_LIBVIRT_OWNER"}, Usage: "`UUID` of the owner of domains whose metadata name none, and which no hook has registered"},
		&cli.StringFlag{Name: "libvirt", EnvVars: []string{"RUTTER_LIBVIRT"}, Value: "off", Usage: "`URI` of this node's libvirtd, such as qemu:///system, whose domains are followed by virsh beside its hook, or off"},
		&cli.StringFlag{Name: "metrics", EnvVars: []string{"RUTTER_METRICS"}, Value: "off", Usage: "`ADDRESS` at which a Prometheus on another machine reads this node's metrics, as in 10.0.0.11:5310, or off; it needs --tls-dir, or --insecure"},
		&cli.StringSliceFlag{Name: "metrics-reader", EnvVars: []string{"RUTTER_METRICS_READER"}, Value: cli.NewStringSlice("prometheus"), Usage: "`NAME` of a reader whose certificate is accepted there, beside those of operators; may be given several times"},
		&cli.StringFlag{Name: "cn-api", EnvVars: []string{"RUTTER_CN_API"}, Value: "off", Usage: "`ADDRESS` on the admin network at which servers reach this node's VMs when it has no connection with them, as in 10.0.0.11:5309, or off; it needs --tls-dir, or --insecure"},
		&cli.StringFlag{Name: "netns", EnvVars: []string{"RUTTER_NETNS"}, Value: "/run/netns", Usage: "`FOLDER` of named network namespaces, as ip-netns(8) keeps it"},
		&cli.IntFlag{Name: "ahead", EnvVars: []string{"RUTTER_AGENT_AHEAD"}, Value: link.DefaultAhead, Usage: "`ENTRIES` of one vnet that the kernel gets before they are asked for; vnets with more are on demand (-1: none is)"},
		&cli.IntFlag{Name: "on-demand-table", EnvVars: []string{"RUTTER_AGENT_TABLE"}, Value: link.DefaultTable, Usage: "`ENTRIES` that the kernel keeps of each vnet on demand"},
		&cli.StringFlag{Name: "link-renames", EnvVars: []string{"RUTTER_LINK_RENAMES"}, Value: "keep", Usage: "keep: a link that another program renames (netplan, udev and cloud-init do, in a VM) keeps that name, and is programmed under it; undo: it gets its name back, if that is free (`CHOICE`)"},
		&cli.StringFlag{Name: "hold-removals", EnvVars: []string{"RUTTER_HOLD_REMOVALS"}, Value: "10%", Usage: "`SHARE` of the links that a new view of the log (of another cluster, or after a lost cache) may take away, if they are more than ten, before it is held until rutter cn accept lets it; off, for labs: any"},
		&cli.BoolFlag{Name: "nic-sync", EnvVars: []string{"RUTTER_NIC_SYNC"}, Value: true, Usage: "keep the NICs in manifests and those in the log in step, as net-agent does (--nic-sync=false: no)"},
		&cli.BoolFlag{Name: "underlay-probe", EnvVars: []string{"RUTTER_UNDERLAY_PROBE"}, Value: true, Usage: "find out what the paths to other VTEPs of the log carry, by ICMP echo requests that no router may cut, at most 10 in a second (--underlay-probe=false: look at interfaces and routes only)"},
		&cli.StringFlag{Name: "etc-netns", EnvVars: []string{"RUTTER_ETC_NETNS"}, Value: "/etc/netns", Usage: "`FOLDER` in which NAMESPACE/resolv.conf is written"},
	)
}

// securityFlags are those of port security.
func securityFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "port-security", EnvVars: []string{"RUTTER_PORT_SECURITY"}, Usage: "on: VMs are attached by bridges and veth pairs, with rules that allow only frames with a NIC's own addresses; off: by macvlans, without rules (`CHOICE`); default: on, or what the data folder was made with; a change makes the links of the node again"},
		&cli.BoolFlag{Name: "require-port-security", EnvVars: []string{"RUTTER_REQUIRE_PORT_SECURITY"}, Usage: "if the kernel cannot hold the rules of port security, put no link of a VM up; default: as the data folder was made (--require-port-security=false: links run without rules, and that is said)"},
		&cli.StringSliceFlag{Name: "underlay-interface", EnvVars: []string{"RUTTER_UNDERLAY_INTERFACE"}, Usage: "take VXLAN packets by this `LINK` only, as in bond0; may be given several times; default: the links that hold the underlay address, or all if that is on lo"},
	}
}

// kernelOf is where the kernel's files are.
func kernelOf(c *cli.Context) link.Config {
	return link.Config{NetNSDir: c.String("netns"), EtcNetNSDir: c.String("etc-netns")}
}

// secure decides how VMs are attached, and gives the kernel its filter.
func secure(c *cli.Context, folder string, kernel *link.Netlink, table filter.Table, logger *slog.Logger) (node.Security, error) {
	var required *bool
	if c.IsSet("require-port-security") {
		is := c.Bool("require-port-security")
		required = &is
	}
	look := func(ctx context.Context) (plan.Snapshot, error) {
		other, err := link.Open(kernelOf(c)) // what this one sees is no evidence of what is ours
		if err != nil {
			return plan.Snapshot{}, err
		}
		have, err := other.Dump(ctx, nil)
		return have, errors.Join(err, other.Close())
	}
	security, err := node.SecurityOf(c.Context, folder, c.String("port-security"), required, look, logger)
	if err == nil && security.Rules {
		kernel.UseFilter(table)
		security.Interfaces = c.StringSlice("underlay-interface")
	}
	return security, err
}

// taskFlags are those of an agent's tasks and sysinfo.
func taskFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "allow-execute", EnvVars: []string{"RUTTER_ALLOW_EXECUTE"}, Usage: "let operators choose what runs on this compute node: commands that they send, and the programs of VMs (init, root, qemu_extra_opts, kernel, initrd, disks by path, how NICs are attached) that tasks make or change; without it, only manifests that root writes on the node choose those"},
		&cli.BoolFlag{Name: "sysinfo", EnvVars: []string{"RUTTER_SYSINFO"}, Value: true, Usage: "tell the servers what this compute node is, at its begin and when that changes (--sysinfo=false: no)"},
		&cli.BoolFlag{Name: "report-metadata", EnvVars: []string{"RUTTER_REPORT_METADATA"}, Usage: "report customer_metadata and internal_metadata of VMs to the servers, with the other fields that VMAPI shows; they may have passwords and keys, which every reader of the log sees"},
		&cli.StringFlag{Name: "nic-tags", EnvVars: []string{"RUTTER_NIC_TAGS"}, Value: "/etc/rutter/nic_tags", Usage: "`FILE` of the NIC tags that the links of this node provide: lines TAG_nic=MAC or TAG_nic=LINK"},
		&cli.StringFlag{Name: "vm-store", EnvVars: []string{"RUTTER_VM_STORE"}, Usage: "`FOLDER` of the file system that has the disks of VMs: its size is told to the servers as Zpool Size in GiB, and VMs are placed by it; without it, disk does not count on this node"},
		&cli.StringFlag{Name: "admin-uuid", EnvVars: []string{"RUTTER_ADMIN_UUID"}, Usage: "`UUID` of the administrator, who owns this node's own NICs: with it, they and its bonds are kept in step with the log; nothing of that is ever written to the node"},
		&cli.BoolFlag{Name: "unsetup", EnvVars: []string{"RUTTER_UNSETUP"}, Usage: "say that this compute node is not set up"},
	}
}

// Check refuses settings with which rutter agent would not start.
func Check(c *cli.Context) error {
	_, err := optionsOf(c)
	return err
}

func run(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	opts, err := optionsOf(c)
	if err != nil {
		return err
	}
	supervisor, err := sdnotify.FromEnvironment()
	if err != nil {
		return err
	}
	if err := privateFolder(opts.Folder, opts.Logger); err != nil {
		return err
	}
	kernel, err := link.Open(kernelOf(c))
	if err != nil {
		return fmt.Errorf("%w (the agent needs CAP_NET_ADMIN, and CAP_SYS_ADMIN to enter the VMs' namespaces)", err)
	}
	rules := ports.NewGuard(new(node.Filter))
	defer rules.Close()
	security, err := secure(c, opts.Folder, kernel, rules, opts.Logger)
	if err != nil {
		return errors.Join(err, kernel.Close())
	}
	opts.Kernel = node.SystemKernel(kernel, link.ManagerConfig{Ahead: c.Int("ahead"), Table: c.Int("on-demand-table"), UndoRenames: c.String("link-renames") == "undo"}, security)
	opts.Ports = security.Ports(rules, time.Now())
	if opts.View, err = view.New(view.Config{NetNSDir: c.String("netns"), Security: opts.Ports}); err != nil {
		return errors.Join(err, kernel.Close())
	}
	defer opts.View.Close()
	opts.Opened = func() { confineAgent(c, opts.VMs.Folders.Helper, opts.Logger) }
	opts.Underlay = new(node.UnderlayOptions)
	if c.Bool("underlay-probe") {
		// The socket is opened before the agent drops its capabilities.
		if opts.Underlay.Prober, err = underlay.OpenProber(); err != nil {
			opts.Logger.Warn("paths to other VTEPs are not probed; interfaces and routes are looked at", "error", err)
		} else {
			defer opts.Underlay.Prober.Close()
		}
	}
	n, err := node.Open(opts)
	if err != nil {
		return errors.Join(err, kernel.Close())
	}
	return errors.Join(supervisor.Run(c.Context, n.Watched().Report, opts.Logger, n.Run), kernel.Close())
}

// checkZone checks the flags about zones.
func checkZone(c *cli.Context) error {
	if spread := c.Duration("zone-spread"); spread <= 0 {
		return term.Usagef("--zone-spread %v: want a positive time, as in 1m", spread)
	}
	if !c.IsSet("zone") {
		return nil
	}
	if err := zonename.Check(c.String("zone")); err != nil {
		return term.Usagef("--zone: %w", err)
	}
	return nil
}

// optionsOf reads the flags, without the kernel.
func optionsOf(c *cli.Context) (opts node.Options, err error) {
	if c.String("cn") == "" {
		return opts, term.Usagef("--cn is missing: give the UUID of this compute node's server object")
	}
	opts.Version = c.App.Version
	if opts.CN, err = log.ParseUUID(c.String("cn")); err != nil {
		return opts, term.Usagef("--cn: %w", err)
	}
	if c.String("servers") == "" {
		return opts, term.Usagef("--servers is missing: name the servers, as in --servers http://10.0.0.1:7420,http://10.0.0.2:7420")
	}
	if err = errors.Join(checkDoors(c), checkZone(c)); err != nil {
		return opts, err
	}
	opts.Zone, opts.ZoneSpread = c.String("zone"), c.Duration("zone-spread")
	ring := support.NewRing(support.RingBytes)
	if opts.Logger, err = term.DaemonLogger(c, ring.Tee(c.App.ErrWriter)); err != nil {
		return opts, err
	}
	if opts.Servers, err = connect(c, opts.CN, opts.Logger); err != nil {
		return opts, err
	}
	opts.Support = support.New(support.Config{Version: c.App.Version, Ring: ring, Settings: debugsocket.SettingsOf(c, Flags()), Folder: c.String("data")})
	if opts.Debug, err = debugsocket.OptionsOf(c); err != nil {
		return opts, err
	}
	opts.Socket, opts.SocketAsked = socketOf(c), c.IsSet("socket") || c.IsSet("socket-group")
	opts.Scrape = node.Scrape{Address: c.String("metrics"), Readers: c.StringSlice("metrics-reader")}
	opts.Folder, opts.SVP, opts.Status, opts.CNAPI = c.String("data"), c.String("svp"), c.String("listen"), c.String("cn-api")
	if opts.SVPMaxAge = c.Duration("svp-max-age"); opts.SVPMaxAge <= 0 {
		return opts, term.Usagef("--svp-max-age %s: want a positive time, as in 1m", opts.SVPMaxAge)
	}
	opts.VMs = &node.VMOptions{
		Folders: vmhost.FoldersOf(c), CgroupAsked: c.IsSet("vm-cgroup"),
		Vminfod: c.String("vminfod"), VminfodAsked: c.IsSet("vminfod"), SyncNICs: c.Bool("nic-sync"), Metadata: c.Bool("report-metadata"),
		SourcesAsked: c.IsSet("vm-sources") || c.String("libvirt") != "off",
	}
	opts.VMs.Folders.Version = c.App.Version
	if opts.VMs.Folders.Helper, opts.VMs.HelperAsked, err = vmhost.HelperOf(c.String("vm-helper"), opts.VMs.Folders); err != nil {
		return opts, err
	}
	if opts.VMs.Sources, err = sourcesOf(c.String("vm-sources")); err != nil {
		return opts, err
	}
	if opts.VMs.Libvirt, err = libvirtOf(c, opts.VMs.Sources); err != nil {
		return opts, err
	}
	if owner := c.String("libvirt-owner"); owner != "" {
		if opts.VMs.LibvirtOwner, err = log.ParseUUID(owner); err != nil {
			return opts, term.Usagef("--libvirt-owner: %w", err)
		}
	}
	opts.Tasks = &node.TaskOptions{
		Execute: c.Bool("allow-execute"), Sysinfo: c.Bool("sysinfo"), Setup: !c.Bool("unsetup"),
		Tags: c.String("nic-tags"), Store: c.String("vm-store"), Admin: c.String("admin-uuid"), Version: c.App.Version,
	}
	if renames := c.String("link-renames"); renames != "keep" && renames != "undo" {
		return opts, term.Usagef("--link-renames %q: want keep or undo", renames)
	}
	if asked := c.String("port-security"); asked != "" && asked != "on" && asked != "off" {
		return opts, term.Usagef("--port-security %q: want on or off", asked)
	}
	opts.HoldRemovals, err = holdShare(c.String("hold-removals"))
	return opts, err
}

// maxSources bounds the sources in which programs may register VMs.
const maxSources = 16

// sourcesOf reads --vm-sources.
func sourcesOf(text string) (names []string, err error) {
	if text == "off" {
		return nil, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if !registered.IsName(name) || slices.Contains(names, name) {
			return nil, term.Usagef("--vm-sources %q: want different names of 1 to 32 lower-case letters, digits and '-', separated by commas, or off", text)
		}
		names = append(names, name)
	}
	if len(names) > maxSources {
		return nil, term.Usagef("--vm-sources: %d names, want at most %d", len(names), maxSources)
	}
	return names, nil
}

// libvirtOf reads --libvirt: "" if it is off.
func libvirtOf(c *cli.Context, sources []string) (uri string, err error) {
	switch uri = c.String("libvirt"); {
	case uri == "off":
		return "", nil
	case uri == "" || strings.HasPrefix(uri, "-"):
		return "", term.Usagef("--libvirt %q: want the URI of a libvirtd, such as qemu:///system, or off", uri)
	case !slices.Contains(sources, libvirt.SourceName):
		return "", term.Usagef("--libvirt %s: the domains are VMs of the source %s, which --vm-sources leaves out", uri, libvirt.SourceName)
	}
	return uri, nil
}

// checkDoors refuses addresses at which the agent would let in whom it must not.
func checkDoors(c *cli.Context) error {
	_, secure, _ := term.TLSPaths(c)
	for _, name := range []string{"svp", "listen", "cn-api", "metrics", "vminfod"} {
		if err := term.CheckListen(name, c.String(name), c.Bool("insecure") || secure && (name == "cn-api" || name == "metrics")); err != nil {
			return err
		}
	}
	if c.String("cn-api") != "off" && !secure && !c.Bool("insecure") {
		return term.Usagef("--cn-api %s: without TLS each user of this node can stop its VMs there: give --tls-dir, or say --insecure if the node is yours alone", c.String("cn-api"))
	}
	if _, err := localhttp.ParseUsers(c.String("vminfod-users")); err != nil {
		return term.Usagef("--vminfod-users: %w", err)
	}
	if s := socketOf(c); s.Path != "off" {
		if err := s.Check(); err != nil {
			return term.Usagef("--socket: %w", err)
		}
	}
	return nil
}

func socketOf(c *cli.Context) localhttp.Socket {
	return localhttp.Socket{Path: c.String("socket"), Group: c.String("socket-group")}
}

// connect opens the connection to the servers that the flags name.
func connect(c *cli.Context, cn log.UUID, logger *slog.Logger) (*node.Connection, error) {
	paths, given, err := term.TLSPaths(c)
	if err != nil {
		return nil, err
	}
	var files *tlsgate.Paths
	if given {
		files = &paths
	}
	return node.Connect(cn, strings.Split(c.String("servers"), ","), files, logger)
}

// holdShare parses the flag for agent.Config.HoldRemovals.
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
