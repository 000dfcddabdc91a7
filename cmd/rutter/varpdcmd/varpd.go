package varpdcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"rutter/agent/link"
	"rutter/agent/miss"
	"rutter/agent/varpd"
	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/sdnotify"
	"rutter/cmd/rutter/term"
	"rutter/varp"
)

// Command stands in for linux-cn-varpd, whose -a, -p and -f it takes.
func Command() *cli.Command {
	return &cli.Command{
		Name: "varpd", Usage: "resolve the neighbours of fabric links by SVP, in place of linux-cn-varpd", Category: "Daemons",
		Description: term.Examples(
			"In place of linux-cn-varpd -a 10.0.0.1:",
			"  rutter varpd -a 10.0.0.1",
			"Two servers, and a name that may have many addresses:",
			"  rutter varpd -a 10.0.0.1,10.0.0.2:2296 -a portolan.example.com",
			"What it does, as JSON:",
			"  rutter varpd -a 10.0.0.1 --status 127.0.0.1:5310 & curl -s 127.0.0.1:5310/status",
		) + "\n\nIt ends with exit code 4 if no server answers a PING at the start; later it\n" +
			"outlives any silence of theirs. docs/varpd.md says how to replace linux-cn-varpd.",
		Flags: Flags(), Action: runVarpd,
	}
}

// Flags are those of rutter varpd.
func Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "address", Aliases: []string{"a"}, EnvVars: []string{"RUTTER_VARPD_SERVERS"}, Usage: "`SERVERS` of SVP, separated by commas or given one by one: address or name, with :PORT or without; asked in this order"},
		&cli.IntFlag{Name: "port", Aliases: []string{"p"}, EnvVars: []string{"RUTTER_VARPD_PORT"}, Value: varp.DefaultPort, Usage: "TCP `PORT` of servers that were named without one"},
		&cli.StringFlag{Name: "nicfile", Aliases: []string{"f"}, Hidden: true, Usage: "taken and ignored, as linux-cn-varpd does"},
		&cli.StringFlag{Name: "netns", EnvVars: []string{"RUTTER_NETNS"}, Value: "/run/netns", Usage: "`FOLDER` of named network namespaces, as ip-netns(8) keeps it"},
		&cli.DurationFlag{Name: "negative", EnvVars: []string{"RUTTER_VARPD_NEGATIVE"}, Value: 2 * time.Second, Usage: "believe a NOTFOUND for this `TIME`"},
		&cli.DurationFlag{Name: "refresh", EnvVars: []string{"RUTTER_VARPD_REFRESH"}, Value: 5 * time.Minute, Usage: "ask again for each entry after this `TIME`"},
		&cli.DurationFlag{Name: "poll", EnvVars: []string{"RUTTER_VARPD_POLL"}, Value: time.Second, Usage: "ask for the shootdown log after this `TIME`; 0: never"},
		&cli.DurationFlag{Name: "cache-time", EnvVars: []string{"RUTTER_VARPD_CACHE_TIME"}, Value: 10 * time.Second, Usage: "a server may answer from a cache for this `TIME` after a move, as portolan; ask again until it is over. 0: no server has one"},
		&cli.StringFlag{Name: "status", EnvVars: []string{"RUTTER_VARPD_STATUS"}, Value: "off", Usage: "`ADDRESS` at which GET /status tells the counts, or off"},
		&cli.BoolFlag{Name: "insecure", EnvVars: []string{"RUTTER_INSECURE"}, Usage: "allow --status on other than loopback addresses, without TLS"},
		&cli.StringFlag{Name: "log-level", EnvVars: []string{"RUTTER_LOG_LEVEL"}, Value: "info", Usage: "`LEVEL` of what is logged: debug, info, warn or error"},
		term.LogFormatFlag(),
	}
}

// servers reads -a and -p.
func servers(named []string, port int) ([]string, error) {
	if port < 1 || port > 65535 {
		return nil, term.Usagef("-p %d: want a port from 1 to 65535", port)
	}
	var servers []string
	for _, part := range strings.Split(strings.Join(named, ","), ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		bare := strings.Trim(part, "[]")
		if net.ParseIP(bare) != nil || !strings.Contains(part, ":") {
			part = net.JoinHostPort(bare, strconv.Itoa(port))
		}
		if host, _, err := net.SplitHostPort(part); err != nil || host == "" {
			return nil, term.Usagef("-a %q: want an address or a name, with :PORT or without, as in 10.0.0.1 or [fd00::1]:1296", part)
		}
		servers = append(servers, part)
	}
	if len(servers) == 0 {
		return nil, term.Usagef("-a is missing: name an SVP server, as in -a 10.0.0.1")
	}
	return servers, nil
}

// Check refuses settings with which rutter varpd would not start.
func Check(c *cli.Context) error {
	_, err := servers(c.StringSlice("address"), c.Int("port"))
	return err
}

func runVarpd(c *cli.Context) (err error) {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	named, err := servers(c.StringSlice("address"), c.Int("port"))
	if err != nil {
		return err
	}
	if err := term.CheckListen("status", c.String("status"), c.Bool("insecure")); err != nil {
		return err
	}
	logger, err := term.DaemonLogger(c, c.App.ErrWriter)
	if err != nil {
		return err
	}
	asker, err := varp.NewClient(varp.ClientConfig{Servers: named, Logger: logger})
	if err != nil {
		return term.UsageError{Err: err}
	}
	defer func() { err = errors.Join(err, asker.Close()) }()
	const needs = "varpd needs CAP_NET_ADMIN, and CAP_SYS_ADMIN and CAP_NET_BROADCAST for the VMs' namespaces: run it as root"
	kernel, err := link.Open(link.Config{NetNSDir: c.String("netns")})
	if err != nil {
		return fmt.Errorf("%w (%s)", err, needs)
	}
	defer func() { err = errors.Join(err, kernel.Close()) }()
	ears, err := miss.Listen(miss.Config{})
	if err != nil {
		return fmt.Errorf("%w (%s)", err, needs)
	}
	defer func() { err = errors.Join(err, ears.Close()) }()
	if !ears.All() {
		logger.Warn("varpd: misses are heard in this namespace only: " + needs)
	}
	poll := c.Duration("poll")
	if poll == 0 {
		poll = -1
	}
	cache := c.Duration("cache-time")
	if cache == 0 {
		cache = -1
	}
	daemon, err := varpd.New(varpd.Config{
		Resolver: asker, Servers: asker.Servers, CacheTime: cache, Kernel: kernel, Watch: kernel.WatchLinks, Listen: ears.Run,
		Pending:  pendingIn(c.String("netns")),
		Negative: c.Duration("negative"), RefreshEvery: c.Duration("refresh"), PollEvery: poll, Logger: logger,
	})
	if err != nil {
		return term.UsageError{Err: err}
	}
	logger.Info("varpd starts", "servers", named, "netns", c.String("netns"))
	supervisor, err := sdnotify.FromEnvironment()
	if err != nil {
		return err
	}
	watched := watched{ready: daemon.Ready(), stats: daemon.Stats, servers: named}
	return exitError(supervisor.Run(c.Context, watched.report, logger, func(ctx context.Context) error {
		return serveVarpd(ctx, daemon, c.String("status"), supervisor, logger)
	}))
}

// exitError sets the exit code of a start without a server.
func exitError(err error) error {
	if errors.Is(err, varpd.ErrNoServer) {
		return cli.Exit(err, term.ExitNoReply)
	}
	return err
}

// pendingIn reads the pending misses in the namespaces whose files are in a folder.
func pendingIn(folder string) func(namespace string) ([]miss.Miss, error) {
	return func(namespace string) ([]miss.Miss, error) {
		if namespace == "" {
			return miss.Pending("")
		}
		return miss.Pending(filepath.Join(folder, namespace))
	}
}

// serveVarpd runs a daemon and its status until ctx ends.
func serveVarpd(ctx context.Context, daemon *varpd.Daemon, status string, supervisor *sdnotify.Socket, logger *slog.Logger) error {
	g, ctx := errgroup.WithContext(ctx)
	if status != "off" {
		listener, err := localhttp.Listen(status)
		if err != nil {
			return fmt.Errorf("status: %w (--status off, if another daemon holds the port)", err)
		}
		logger.Info("varpd: status", "listen", listener.Addr())
		mux := http.NewServeMux()
		mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(daemon.Stats()) // the client is gone
		})
		g.Go(func() error { return localhttp.Serve(ctx, mux, listener) })
	}
	rescan := make(chan os.Signal, 1)
	signal.Notify(rescan, syscall.SIGHUP)
	defer signal.Stop(rescan)
	g.Go(func() error {
		for {
			select {
			case <-rescan:
				// As linux-cn-varpd does; Rutter never needs it.
				if err := supervisor.Reload(daemon.Rescan); err != nil {
					logger.Warn("systemd cannot be told of the rescan", "error", err)
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
	g.Go(func() error { return daemon.Run(ctx) })
	return g.Wait()
}
