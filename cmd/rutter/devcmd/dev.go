package devcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"rutter/agent/sysinfo/probe"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/api/client"
	"rutter/api/support"
	"rutter/cmd/rutter/demo"
	"rutter/cmd/rutter/node"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/pkiclient"
	"rutter/cmd/rutter/serve"
	"rutter/cmd/rutter/term"
	"rutter/raftstore"
)

// devServers is the size of the cluster of `rutter dev`.
const devServers = 3

// Command is rutter dev.
func Command() *cli.Command {
	return &cli.Command{
		Name: "dev", Usage: "run three servers and simulated compute nodes in this terminal, until Ctrl-C", Category: "Trying it",
		Description: term.Examples(
			"rutter dev                     # then, in another terminal: rutter network list",
			"rutter dev --data ./dev        # keeps its data: the next start goes on from there",
			"rutter dev --plain             # no TLS, no certificates",
			"rutter dev --port 9000 --empty # servers at 9000, 9010 and 9020, and nothing in the log",
		) + "\n\nThe CNs are agents like any other, with a simulated kernel: nothing of this machine's network is touched. They tell\n" +
			"what they are (rutter cn show) and do the tasks nop and sysinfo; with --empty the log stays empty, and they do neither.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "data", Usage: "`FOLDER` that keeps the data; a temporary one, removed at the end, if not given"},
			&cli.IntFlag{Name: "port", Value: 7420, Usage: "`PORT` of the first server's API; raft is at the next, SVP at the one after; the other servers 10 and 20 above"},
			&cli.BoolFlag{Name: "plain", Usage: "without TLS: every address is one of this machine, and the console can be opened in a browser"},
			&cli.BoolFlag{Name: "empty", Usage: "do not load the demo's networks and VMs"},
			&cli.StringFlag{Name: "log-level", Value: "warn", Usage: "`LEVEL` of what is logged: debug, info, warn or error"},
			term.LogFormatFlag(),
		},
		Action: runDev,
	}
}

func runDev(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	port := c.Int("port")
	if port < 1 || port > 65535-10*devServers {
		return term.Usagef("--port %d: want one from 1 to %d", port, 65535-10*devServers)
	}
	folder := c.String("data")
	if folder == "" {
		var err error
		if folder, err = os.MkdirTemp("", "rutter-dev-"); err != nil {
			return err
		}
		defer os.RemoveAll(folder)
	}
	ctx, cancel := context.WithCancel(c.Context)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	urls, err := startDevServers(ctx, c, g, folder, port)
	if err == nil {
		err = fillDev(ctx, c, g, folder, urls)
	}
	if err != nil {
		cancel()
		err = errors.Join(err, ignoreEnd(ctx, g.Wait()))
		return err
	}
	return ignoreEnd(c.Context, g.Wait())
}

// ignoreEnd returns err, or nil if err only says that ctx has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// fillDev writes nodes and networks to the servers, as an operator.
func fillDev(ctx context.Context, c *cli.Context, g *errgroup.Group, folder string, urls []string) error {
	operator, err := devClient(c, folder, filepath.Base(pkiclient.Operator(devCertificates(folder))), client.Config{Servers: urls, Timeout: readyTimeout})
	if err != nil {
		return err
	}
	if !c.Bool("empty") {
		if err := loadDev(ctx, operator); err != nil {
			return err
		}
	}
	nodes, err := startDevNodes(ctx, c, g, folder, urls, operator)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if c.Bool("empty") {
			break // the node has no tasks
		}
		if err := n.Refresh(ctx); err != nil {
			return fmt.Errorf("the sysinfo of a node: %w", err)
		}
	}
	printReady(c.App.Writer, folder, urls)
	return nil
}

// startDevServers starts the servers and returns their URLs.
func startDevServers(ctx context.Context, c *cli.Context, g *errgroup.Group, folder string, port int) ([]string, error) {
	ring := support.NewRing(support.RingBytes)
	logger, err := term.DaemonLogger(c, ring.Tee(c.App.ErrWriter))
	if err != nil {
		return nil, err
	}
	at := func(i, offset int) string { return net.JoinHostPort("127.0.0.1", fmt.Sprint(port+10*i+offset)) }
	var members []raftstore.Member
	for i := range devServers {
		members = append(members, raftstore.Member{ID: fmt.Sprintf("s%d", i+1), Address: at(i, 1)})
	}
	scheme, certificates := "http://", func(string) string { return "" }
	if !c.Bool("plain") {
		if err := certifyDev(folder, members); err != nil {
			return nil, err
		}
		scheme, certificates = "https://", func(id string) string { return filepath.Join(devCertificates(folder), id) }
	}
	var urls []string
	for i, m := range members {
		s, err := serve.Open(serve.Options{
			Store: raftstore.Config{ID: m.ID, Dir: filepath.Join(folder, m.ID), Listen: m.Address, InitialMembers: members},
			API:   at(i, 0), SVP: at(i, 2), Version: c.App.Version, Logger: logger, TLS: certificates(m.ID),
			CNNetworks: loopback, Support: support.New(support.Config{Version: c.App.Version, Ring: ring, Folder: filepath.Join(folder, m.ID)}),
		})
		if err != nil {
			return nil, fmt.Errorf("%w (--port chooses others)", err)
		}
		g.Go(func() error { return s.Run(ctx) })
		urls = append(urls, scheme+at(i, 0))
	}
	return urls, nil
}

// loopback are the networks of nodes that are tried beside `rutter dev` on its machine.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// devCertificates is the folder of certificates and authorities of `rutter dev`, which
// last as long as its data.
func devCertificates(folder string) string { return filepath.Join(folder, "tls") }

func certifyDev(folder string, members []raftstore.Member) error {
	var servers []string
	for _, m := range members {
		servers = append(servers, m.ID)
	}
	return pkiclient.CreateLocal(devCertificates(folder), servers, []string{"127.0.0.1", "localhost"})
}

// devClient is a client with the certificate in the folder of a name.
func devClient(c *cli.Context, folder, name string, cfg client.Config) (*client.Client, error) {
	if !c.Bool("plain") {
		keeper, err := tlsgate.New(tlsgate.Config{Paths: tlsgate.ClientPaths(filepath.Join(devCertificates(folder), name)), Name: pki.Clients})
		if err != nil {
			return nil, err
		}
		cfg.DialTLS = term.DialServer(keeper)
	}
	return client.New(cfg)
}

// startDevNodes starts an agent with a simulated kernel for each CN of the demo, which
// joins first. With tasks it sends its sysinfo, and does the tasks that need no
// machine.
func startDevNodes(ctx context.Context, c *cli.Context, g *errgroup.Group, folder string, urls []string, operator *client.Client) (nodes []*node.Node, err error) {
	ring := support.NewRing(support.RingBytes)
	logger, err := term.DaemonLogger(c, ring.Tee(c.App.ErrWriter))
	if err != nil {
		return nil, err
	}
	for i, cn := range demo.CNs() {
		name, files := fmt.Sprintf("cn%d", i+1), (*tlsgate.Paths)(nil)
		if !c.Bool("plain") {
			paths := tlsgate.ClientPaths(filepath.Join(devCertificates(folder), cn.String()))
			if err := pkiclient.Admit(ctx, operator, urls[i%len(urls)], cn, filepath.Dir(paths.Cert)); err != nil {
				return nil, fmt.Errorf("%s joins: %w", name, err)
			}
			files = &paths
		}
		opts := node.Options{CN: cn, Version: c.App.Version, Folder: filepath.Join(folder, name), Kernel: node.SimulatedKernel(), Logger: logger.With("agent", name)}
		opts.Support = support.New(support.Config{Version: c.App.Version, Ring: ring, Folder: opts.Folder})
		if opts.Servers, err = node.Connect(cn, urls, files, opts.Logger); err != nil {
			return nil, err
		}
		if !c.Bool("empty") {
			opts.Tasks = &node.TaskOptions{Sysinfo: true, Setup: true, Version: c.App.Version, Links: func() ([]probe.Link, error) { return nil, nil }}
		}
		n, err := node.Open(opts)
		if err != nil {
			return nil, err
		}
		g.Go(func() error { return n.Run(ctx) })
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// readyTimeout is how long a fresh cluster may take to take its first change.
const readyTimeout = 30 * time.Second

// loadDev loads the demo's input into a log that does not have it.
func loadDev(ctx context.Context, operator *client.Client) error {
	loaded, err := demo.Loaded(ctx, operator)
	if err != nil || loaded {
		return err
	}
	return demo.Load(ctx, operator)
}

func printReady(w io.Writer, folder string, urls []string) {
	output.Printf(w, "Three servers run, with their data in %s:\n", folder)
	for _, url := range urls {
		output.Printf(w, "  %s\n", url)
	}
	output.Print(w, "and two simulated CNs follow them. In another terminal:\n")
	option := ""
	switch urls[0] {
	case "http://127.0.0.1:7420":
	case "https://127.0.0.1:7420":
		output.Printf(w, "  export RUTTER_TLS_DIR=%s\n", pkiclient.Operator(devCertificates(folder)))
	default:
		option = " -s " + urls[0]
		if strings.HasPrefix(urls[0], "https://") {
			option += " --tls-dir " + pkiclient.Operator(devCertificates(folder))
		}
	}
	for _, try := range []struct{ command, shows string }{
		{"network list", "the networks of the demo"},
		{"nic list", "its NICs, with their addresses"},
		{"lookup vl3 4385813 10.21.12.100", "which NIC has an address, and on which node"},
		{"trace blue1 blue5", "why one VM reaches another, step by step"},
		{"tag create name=first --wait fabric", "a change, and the wait until every node has it"},
		{"log tail -n 5", "what changed last, and who did it; --follow goes on"},
		{"cn sessions", "how far each compute node is"},
		{"cluster status", "each server, and what is to be seen to"},
		{"support bundle --cn all", "one file with what all of them say of themselves"},
	} {
		output.Printf(w, "  %s %s%s     # %s\n", os.Args[0], try.command, option, try.shows) // the name by which the program was called
	}
	console := urls[0] + "/console/"
	if strings.HasPrefix(urls[0], "https://") {
		console += ", for a browser that has the certificate in that folder (docs/security.md); --plain needs none"
	}
	output.Printf(w, "The console is at %s.\n", console)
	output.Print(w, "Ctrl-C ends them all.\n")
}
