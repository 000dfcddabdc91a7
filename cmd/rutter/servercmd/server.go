package servercmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/auth/pki"
	"rutter/api/auth/webcheck"
	"rutter/api/support"
	"rutter/cmd/rutter/backup"
	"rutter/cmd/rutter/debugsocket"
	"rutter/cmd/rutter/gcpace"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/sdnotify"
	"rutter/cmd/rutter/serve"
	"rutter/cmd/rutter/term"
	"rutter/log/budget"
	"rutter/log/zonename"
	"rutter/raftstore"
)

// Flags are the flags of `rutter server`. Architecture section 12 has the ports.
func Flags() []cli.Flag {
	return append(append(append(append(term.DaemonFlags(), term.TLSDirFlag()), tritonFlags()...), backupFlags()...),
		&cli.StringFlag{Name: "id", EnvVars: []string{"RUTTER_ID"}, Usage: "this server's `NAME` in the cluster; never reused for another machine"},
		&cli.StringFlag{Name: "data", EnvVars: []string{"RUTTER_DATA"}, Value: "/var/lib/rutter", Usage: "`FOLDER` of the log and the state"},
		&cli.StringFlag{Name: "listen", EnvVars: []string{"RUTTER_LISTEN"}, Value: "127.0.0.1:7420", Usage: "`ADDRESS` of the API"},
		&cli.StringSliceFlag{Name: "host-name", EnvVars: []string{"RUTTER_HOST_NAME"}, Usage: "`NAME` or address by which clients may ask this server's API and its --napi, --cnapi and --vmapi, besides its own addresses, localhost on this machine, and the names in its certificate; may be given several times"},
		&cli.StringFlag{Name: "raft", EnvVars: []string{"RUTTER_RAFT"}, Value: "127.0.0.1:7421", Usage: "`ADDRESS` of the peer port: raft, and what servers forward to each other"},
		&cli.StringFlag{Name: "advertise", EnvVars: []string{"RUTTER_ADVERTISE"}, Usage: "peer `ADDRESS` that the other servers dial, if it is not that of --raft"},
		&cli.StringFlag{Name: "svp", EnvVars: []string{"RUTTER_SVP"}, Value: "127.0.0.1:1296", Usage: "`ADDRESS` of the SVP server, or off"},
		&cli.IntFlag{Name: "cn-port", EnvVars: []string{"RUTTER_CN_PORT"}, Value: 5309, Usage: "`PORT` of the agents' CN API (rutter agent --cn-api) at the nodes' addresses on NIC tag admin"},
		&cli.StringSliceFlag{Name: "cn-network", EnvVars: []string{"RUTTER_CN_NETWORK"}, Usage: "`CIDR` in which servers send tasks and requests to nodes, beside the network admin of the log; the same on each server; names loopback, link-local and servers' own addresses only if it is of that sort itself (a server's: as a single address); may be given several times"},
		&cli.BoolFlag{Name: "bootstrap", EnvVars: []string{"RUTTER_BOOTSTRAP"}, Usage: "begin a new cluster of this one server; others join it"},
		&cli.StringFlag{Name: "peers", EnvVars: []string{"RUTTER_PEERS"}, Usage: "begin a new cluster of these: `ID=ADDRESS,…`, peer ports, the same list on each of them"},
		&cli.StringFlag{Name: "raft-log", EnvVars: []string{"RUTTER_RAFT_LOG"}, Usage: "`KIND` of raft's own log: wal or boltdb; a start with the other one moves it over. Without it a log stays what it is, and a new one is wal"},
		&cli.DurationFlag{Name: "feature-settle", EnvVars: []string{"RUTTER_FEATURE_SETTLE"}, Value: 10 * time.Minute, Usage: "after an upgrade of every server, this `TIME` passes before the log is written as only the new program can read it; until then the upgrade can be taken back"},
		&cli.StringFlag{Name: "finalize", EnvVars: []string{"RUTTER_FINALIZE"}, Value: "auto", Usage: "`HOW` the upgrade of every server ends: auto is after --feature-settle; manual is when rutter cluster finalize says so, until which it can be taken back; one server with manual keeps all"},
		&cli.DurationFlag{Name: "max-clock-offset", EnvVars: []string{"RUTTER_MAX_CLOCK_OFFSET"}, Value: 3 * time.Second, Usage: "a server whose clock is further than this `TIME` from the one that the servers agree on does not lead while another can, and stamps nothing by it; the same on each of them"},
		&cli.StringFlag{Name: "drill-clock", EnvVars: []string{"RUTTER_DRILL_CLOCK"}, Hidden: true, Usage: "for drills: the file ID in this `FOLDER` has a duration, as in -2m or 8760h, by which this server's clock is taken to be wrong; it may change at any time"},
		&cli.StringFlag{Name: "disk-low-water", EnvVars: []string{"RUTTER_DISK_LOW_WATER"}, Value: "auto", Usage: "`SIZE` of free space of the data folder below which creates and updates are refused; auto is 1GiB, or a tenth of its file system if that is less"},
		&cli.DurationFlag{Name: "disk-patience", EnvVars: []string{"RUTTER_DISK_PATIENCE"}, Value: time.Minute, Usage: "`TIME` for which one operation on disk may hang before the server ends; it gives up the leadership after a second"},
		&cli.StringSliceFlag{Name: "budget", EnvVars: []string{"RUTTER_BUDGET"}, Usage: "how much one party may have done for it, as `NAME=PER_SECOND` or NAME=PER_SECOND:AT_ONCE, or NAME=off; docs/safety.md has the names; may be given several times"},
		term.PassphraseFlag(),
		debugsocket.Flag("RUTTER_"),
		&cli.StringFlag{Name: "gc-headroom", EnvVars: []string{"RUTTER_GC_HEADROOM"}, Value: "256MiB", Usage: "`SIZE` of garbage that a server lets lie between two collections under full load, beside as much as it keeps; more costs memory, less costs processor time; less lies when there is less load; 0 is the runtime's own measure"},
		&cli.DurationFlag{Name: "cert-life", EnvVars: []string{"RUTTER_CERT_LIFE"}, Value: pki.NodeLife, Usage: "`TIME` for which the certificates are good that this server issues, to compute nodes and at most so long to itself; they are renewed after half of it"},
		&cli.StringFlag{Name: "cpuprofile", EnvVars: []string{"RUTTER_CPUPROFILE"}, Hidden: true, Usage: "`FOLDER` for a profile of the whole run, as ID.prof"},
		&cli.StringSliceFlag{Name: "join", EnvVars: []string{"RUTTER_JOIN"}, Usage: "peer `ADDRESS` of a server of the cluster to join; may be given several times"},
		&cli.BoolFlag{Name: "non-voter", EnvVars: []string{"RUTTER_NON_VOTER"}, Usage: "join as a replica: without a vote, until rutter cluster promote gives one; else it comes when the server has caught up"},
		&cli.DurationFlag{Name: "max-lag", EnvVars: []string{"RUTTER_MAX_LAG"}, Value: raftstore.DefaultMaxLag, Usage: "a replica that is further than this `TIME` behind the leader is not ready, and sends its compute nodes to other servers, until it has been within half of it for half of it"},
		&cli.StringFlag{Name: "zone", EnvVars: []string{"RUTTER_ZONE"}, Usage: "`NAME` of the zone (rack, room, site) of this server: agents with the same --zone prefer it; one to 63 of a-z, 0-9 and -"},
	)
}

// Command is rutter server.
func Command() *cli.Command {
	return &cli.Command{
		Name:     "server",
		Usage:    "run one of the servers that agree on the log and keep it",
		Category: "Daemons",
		Description: term.Examples(
			"A cluster of one, for trying:",
			"  rutter server --id s1 --data ./s1 --bootstrap",
			"One of three (the same --peers on each):",
			"  rutter server --id s1 --data ./s1 --listen 127.0.0.1:7420 --raft 127.0.0.1:7421 \\",
			"    --peers s1=127.0.0.1:7421,s2=127.0.0.1:7431,s3=127.0.0.1:7441",
			"One that Triton's programs use, with the old VMAPI and CNAPI behind it (the same on each server):",
			"  rutter server --id s1 --data ./s1 --bootstrap --napi 127.0.0.1:8000 --cnapi 127.0.0.1:8001 --vmapi 127.0.0.1:8002 \\",
			"    --cnapi-behind http://10.99.99.22 --vmapi-behind http://10.99.99.28",
			"A server that joins a running cluster:",
			"  rutter server --id s4 --data ./s4 --listen 127.0.0.1:7450 --raft 127.0.0.1:7451 --svp off --join 127.0.0.1:7421",
			"A replica in another zone, which feeds the compute nodes there and has no vote:",
			"  rutter server --id r1 --data ./r1 --listen 127.0.0.1:7460 --raft 127.0.0.1:7461 --svp off --join 127.0.0.1:7421 \\",
			"    --non-voter --zone east",
			"One of three at which clients find NAPI by one address (the same --service-address on each):",
			"  rutter server --id s1 --data ./s1 --raft 10.99.99.11:7421 --insecure --svp off \\",
			"    --peers s1=10.99.99.11:7421,s2=10.99.99.12:7421,s3=10.99.99.13:7421 \\",
			"    --service-address 10.99.99.9/24@eth0 --napi 10.99.99.9:80 --triton-allow 10.99.99.0/24=write",
		),
		Flags:  Flags(),
		Action: run,
	}
}

func run(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	cfg, err := optionsOf(c)
	if err != nil {
		return err
	}
	ring := support.NewRing(support.RingBytes)
	logger, err := term.DaemonLogger(c, ring.Tee(c.App.ErrWriter))
	if err != nil {
		return err
	}
	cfg.Logger = logger
	supervisor, err := sdnotify.FromEnvironment()
	if err != nil {
		return err
	}
	if cfg.Passphrase, err = term.Passphrase(c); err != nil {
		return err
	}
	cfg.Support = support.New(support.Config{Version: c.App.Version, Ring: ring, Settings: debugsocket.SettingsOf(c, Flags()), Folder: cfg.Store.Dir, Secrets: []string{cfg.Passphrase}})
	if err := privateServerFolder(cfg.Store, logger); err != nil {
		return err
	}
	warnAlone(cfg.Store, logger)
	size, err := headroomOf(c.String("gc-headroom"))
	if err != nil {
		return err
	}
	// While the state is read the heap only grows, and each collection would scan all
	// of it. Afterwards the unused memory is returned to the system.
	if cfg.Backup.Every > 0 {
		if cfg.BackupLauncher, err = backup.Launch(); err != nil {
			return fmt.Errorf("--backup-every: %w", err)
		}
		defer cfg.BackupLauncher.Close()
	}
	usual := debug.SetGCPercent(loadGCPercent)
	s, err := serve.Open(cfg)
	debug.SetGCPercent(usual)
	debug.FreeOSMemory()
	if err != nil {
		return err
	}
	stop, err := startProfile(c.String("cpuprofile"), cfg.Store.ID)
	if err != nil {
		return err
	}
	confineServer(cfg, logger)
	return errors.Join(supervisor.Run(c.Context, s.Watched().Report, logger, func(ctx context.Context) error {
		return runPaced(ctx, size, logger, s.Run)
	}), stop())
}

// runPaced runs a server, and beside it the pace of garbage collection, unless headroom is 0
// or the environment says how to collect.
func runPaced(ctx context.Context, headroom uint64, logger *slog.Logger, run func(context.Context) error) error {
	if headroom == 0 || os.Getenv("GOGC") != "" {
		return run(ctx)
	}
	pacing, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gcpace.New(headroom, logger).Run(pacing) }()
	err := run(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// Check refuses settings with which rutter server would not start.
func Check(c *cli.Context) error {
	_, err := optionsOf(c)
	return err
}

// warnAlone logs what a new server without peers waits for.
func warnAlone(cfg raftstore.Config, logger *slog.Logger) {
	if cfg.Bootstrap || len(cfg.InitialMembers)+len(cfg.Join) > 0 {
		return
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, "raft.db")); errors.Is(err, fs.ErrNotExist) {
		logger.Warn("this server belongs to no cluster, and waits: begin one with --bootstrap or --peers, join one with --join, or let it in from there with rutter cluster join", "server", cfg.ID, "peer", cfg.Listen)
	}
}

// maxHeadroom bounds --gc-headroom.
const maxHeadroom = 64 << 30

// headroomOf reads --gc-headroom: the garbage that may lie, beside as much as there is live,
// under full load. A server with a small state makes far more garbage than it keeps, and
// would collect many times a second. Package gcpace lets less lie when there is less load.
//
// Gain at full load: 40,000 changes by 256 writers take 3.8 s of the processor with it and 5.1 s
// without (time rutter bench append --writers 256 --count 40000 --duration 0s
// --server-flag=--gc-headroom=0; three servers on two cores).
func headroomOf(text string) (uint64, error) {
	if text == "0" {
		return 0, nil
	}
	size, err := output.ParseSize(text)
	if err != nil || size > maxHeadroom {
		return 0, term.Usagef("--gc-headroom %q: want a size of at most 64GiB, as in 256MiB, or 0", text)
	}
	return size, nil
}

// loadGCPercent is GOGC, in percent, while the state is read. Afterwards it is GOGC of
// the environment, else 100.
const loadGCPercent = 400

// startProfile writes a CPU profile to a folder, if that is not "", until stop is called.
func startProfile(folder, id string) (stop func() error, err error) {
	if folder == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(filepath.Join(folder, id+".prof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

// optionsOf reads the flags of `rutter server`, and refuses combinations
// that make no sense.
func optionsOf(c *cli.Context) (serve.Options, error) {
	var cfg serve.Options
	if c.String("id") == "" {
		return cfg, term.Usagef("--id is missing: give each server of the cluster a name of its own, as in --id s1")
	}
	members, err := parsePeers(c.String("peers"))
	if err != nil {
		return cfg, err
	}
	if err := errors.Join(checkBeginning(c), checkZone(c)); err != nil {
		return cfg, err
	}
	// SVP never has TLS: with a tls-dir it lets in the log's nodes only (newSVP).
	for _, name := range []string{"listen", "raft", "svp"} {
		if err := term.CheckListen(name, c.String(name), c.Bool("insecure") || c.String("tls-dir") != ""); err != nil {
			return cfg, err
		}
	}
	if c.String("listen") == "off" || c.String("raft") == "off" {
		return cfg, term.Usagef("--listen and --raft cannot be off: a server needs both")
	}
	if found := memberOf(members, c.String("id")); len(members) > 0 && found == nil {
		return cfg, term.Usagef("--peers does not name this server, %q: add %s=ADDRESS, or use --join", c.String("id"), c.String("id"))
	}
	if cfg.Store, err = keepingOf(c); err != nil {
		return cfg, err
	}
	if cfg.CNPort = c.Int("cn-port"); cfg.CNPort < 1 || cfg.CNPort > 65535 {
		return cfg, term.Usagef("--cn-port %d: want a port, 1 to 65535", cfg.CNPort)
	}
	if cfg.CNNetworks, err = networksOf(c.StringSlice("cn-network")); err != nil {
		return cfg, err
	}
	cfg.API, cfg.SVP, cfg.Zone = c.String("listen"), c.String("svp"), c.String("zone")
	if cfg.Hosts, err = webcheck.ParseHosts(c.StringSlice("host-name")); err != nil {
		return cfg, term.Usagef("--host-name: %w", err)
	}
	cfg.Insecure, cfg.TLS = c.Bool("insecure"), c.String("tls-dir")
	if cfg.CertLife = c.Duration("cert-life"); cfg.CertLife <= 0 || cfg.CertLife > pki.MaxLife {
		return cfg, term.Usagef("--cert-life %v: want a time of at most %v, as in %v", cfg.CertLife, pki.MaxLife, pki.NodeLife)
	}
	if _, err = headroomOf(c.String("gc-headroom")); err != nil {
		return cfg, err
	}
	if cfg.Backup, err = backupOf(c); err != nil {
		return cfg, err
	}
	if cfg.Triton, err = tritonConfigOf(c); err == nil {
		cfg.ServiceAddresses, err = serviceAddressesOf(c)
	}
	if err != nil {
		return cfg, err
	}
	if cfg.Budgets, err = budget.Parse(c.StringSlice("budget")); err != nil {
		return cfg, term.Usagef("--%v", err)
	}
	if cfg.Debug, err = debugsocket.OptionsOf(c); err != nil {
		return cfg, err
	}
	cfg.Version, cfg.Store.Budgets = c.App.Version, cfg.Budgets
	cfg.Store.ID, cfg.Store.Dir, cfg.Store.Listen, cfg.Store.Advertise = c.String("id"), c.String("data"), c.String("raft"), c.String("advertise")
	cfg.Store.Bootstrap, cfg.Store.InitialMembers, cfg.Store.Join, cfg.Store.NonVoter = c.Bool("bootstrap"), members, c.StringSlice("join"), c.Bool("non-voter")
	if folder := c.String("drill-clock"); folder != "" {
		cfg.Drill, cfg.Store.UpkeepEvery = serve.NewDrillClock(filepath.Join(folder, cfg.Store.ID)), serve.DrillUpkeep
	}
	if m := memberOf(members, cfg.Store.ID); m != nil && cfg.Store.Advertise == "" {
		cfg.Store.Advertise = m.Address
	}
	return cfg, nil
}

// checkZone refuses what is no name of a zone.
func checkZone(c *cli.Context) error {
	if !c.IsSet("zone") {
		return nil
	}
	if err := zonename.Check(c.String("zone")); err != nil {
		return term.Usagef("--zone: %w", err)
	}
	return nil
}

// checkBeginning refuses more than one way to begin.
func checkBeginning(c *cli.Context) error {
	ways := 0
	for _, name := range []string{"bootstrap", "peers", "join"} {
		if c.IsSet(name) {
			ways++
		}
	}
	if ways > 1 {
		return term.Usagef("--bootstrap, --peers and --join exclude each other: the first begins a cluster of one, the second one of several, the third joins one that runs")
	}
	return nil
}

// keepingOf reads the flags of the store about time and files.
func keepingOf(c *cli.Context) (cfg raftstore.Config, err error) {
	cfg.RaftLog, cfg.FeatureSettle, cfg.MaxClockOffset = c.String("raft-log"), c.Duration("feature-settle"), c.Duration("max-clock-offset")
	cfg.DiskPatience, cfg.MaxLag = c.Duration("disk-patience"), c.Duration("max-lag")
	cfg.FeatureManual, cfg.Program = c.String("finalize") == "manual", c.App.Version
	switch {
	case !cfg.FeatureManual && c.String("finalize") != "auto":
		return cfg, term.Usagef("--finalize %q: want auto or manual", c.String("finalize"))
	case cfg.RaftLog != "" && cfg.RaftLog != raftstore.RaftLogBolt && cfg.RaftLog != raftstore.RaftLogWAL:
		return cfg, term.Usagef("--raft-log %q: want %s or %s", cfg.RaftLog, raftstore.RaftLogBolt, raftstore.RaftLogWAL)
	case cfg.FeatureSettle <= 0:
		return cfg, term.Usagef("--feature-settle %v: want a time, as in 10m", cfg.FeatureSettle)
	case cfg.MaxLag < time.Second:
		return cfg, term.Usagef("--max-lag %v: want at least 1s, as in 10s", cfg.MaxLag)
	case cfg.MaxClockOffset <= 0:
		return cfg, term.Usagef("--max-clock-offset %v: want a time, as in 3s", cfg.MaxClockOffset)
	case cfg.DiskPatience < minDiskPatience:
		return cfg, term.Usagef("--disk-patience %v: want at least %v", cfg.DiskPatience, minDiskPatience)
	}
	cfg.DiskLowWater, err = lowWaterOf(c.String("disk-low-water"))
	return cfg, err
}

// parsePeers reads ID=ADDRESS,ID=ADDRESS.
func parsePeers(text string) ([]raftstore.Member, error) {
	if text == "" {
		return nil, nil
	}
	var members []raftstore.Member
	for _, part := range strings.Split(text, ",") {
		id, address, ok := strings.Cut(strings.TrimSpace(part), "=")
		if _, _, err := net.SplitHostPort(address); !ok || id == "" || err != nil {
			return nil, term.Usagef("--peers: %q is not ID=HOST:PORT, as in s1=10.0.0.1:7421", part)
		}
		if memberOf(members, id) != nil {
			return nil, term.Usagef("--peers: %q is named twice", id)
		}
		members = append(members, raftstore.Member{ID: id, Address: address})
	}
	return members, nil
}

func memberOf(members []raftstore.Member, id string) *raftstore.Member {
	for i := range members {
		if members[i].ID == id {
			return &members[i]
		}
	}
	return nil
}
