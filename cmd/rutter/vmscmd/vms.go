package vmscmd

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/agent/vminfo/vmhelper"
	"rutter/cmd/rutter/confine"
	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/sdnotify"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/vmhost"
)

// Command is rutter vms.
func Command() *cli.Command {
	return &cli.Command{
		Name: "vms", Usage: "run the helper that starts and stops the VMs of manifests for the agent of this compute node", Category: "Daemons",
		Description: term.Examples(
			"rutter vms",
			"rutter vms --config /etc/rutter/rutter.toml",
			"rutter vms status",
		) + "\n\nThe agent asks it at its socket, so the agent itself needs no right to run VMs. VMs live longer than it.\n" +
			"Its folders must be those of the agent. docs/vms.md says how to set it up.",
		Flags: Flags(), Action: run,
		Subcommands: []*cli.Command{{
			Name: "status", Usage: "what the helper of this machine says of itself", Action: status,
			Flags:       []cli.Flag{output.Flag(), socketFlag(), waitFlag()},
			Description: term.Examples("rutter vms status", "rutter vms status -o json", "rutter vms status --wait 1m"),
		}},
	}
}

func socketFlag() cli.Flag {
	return &cli.StringFlag{Name: "socket", EnvVars: []string{"RUTTER_VMS_SOCKET"}, Value: vmhelper.DefaultSocket, Usage: "`PATH` of the Unix socket at which root and the agent ask"}
}

func waitFlag() cli.Flag {
	return &cli.DurationFlag{Name: "wait", Usage: "ask again for this `TIME` until it answers"}
}

// Flags are those of rutter vms.
func Flags() []cli.Flag {
	return append(vmhost.FolderFlags(),
		socketFlag(),
		&cli.StringFlag{Name: "netns", EnvVars: []string{"RUTTER_NETNS"}, Value: "/run/netns", Usage: "`FOLDER` of named network namespaces, as ip-netns(8) keeps it"},
		&cli.StringFlag{Name: "etc-netns", EnvVars: []string{"RUTTER_ETC_NETNS"}, Value: "/etc/netns", Usage: "`FOLDER` in which the agent writes NAMESPACE/resolv.conf"},
		&cli.StringFlag{Name: "log-level", EnvVars: []string{"RUTTER_LOG_LEVEL"}, Value: "info", Usage: "`LEVEL` of what is logged: debug, info, warn or error"},
	)
}

// Check refuses settings with which rutter vms would not start.
func Check(c *cli.Context) error {
	if c.String("manifests") == "off" {
		return term.Usagef("--manifests off: the helper runs the VMs of a folder of manifests: name it, or do not run the helper")
	}
	if err := (localhttp.Socket{Path: c.String("socket")}).Check(); err != nil {
		return term.Usagef("--socket: %w", err)
	}
	return nil
}

func run(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	if err := Check(c); err != nil {
		return err
	}
	logger, err := term.NewLogger(c.App.ErrWriter, c.String("log-level"))
	if err != nil {
		return err
	}
	runner, err := vmhost.NewRunner(vmhost.FoldersOf(c))
	if err != nil {
		return err
	}
	if err := runner.CheckCgroup(); err != nil {
		if c.IsSet("vm-cgroup") {
			return term.Usagef("--vm-cgroup: %w", err)
		}
		logger.Warn("no VM can be started", "error", err)
	}
	listener, err := localhttp.Socket{Path: c.String("socket")}.Listen(c.Context)
	if err != nil {
		return fmt.Errorf("--socket: %w", err)
	}
	left, err := confine.Bound(confine.Helper)
	confine.LogDropped(left, err, logger)
	logger.Info("VMs are run for the agent of this node", "socket", c.String("socket"), "manifests", c.String("manifests"))
	supervisor, err := sdnotify.FromEnvironment()
	if err != nil {
		return err
	}
	server := vmhelper.NewServer(vmhelper.ServerConfig{Runner: runner, Version: c.App.Version, Logger: logger})
	self := vmhelper.NewClient(vmhelper.ClientConfig{Socket: c.String("socket"), Reader: runner, Version: c.App.Version})
	watched := watched{ask: self.Probe}
	return supervisor.Run(c.Context, watched.report, logger, func(ctx context.Context) error { return server.Run(ctx, listener) })
}

// statusAgain is the pause until a helper that did not answer is asked again (--wait).
const statusAgain = 100 * time.Millisecond

func status(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	runner, err := vmhost.NewRunner(vmhost.Folders{Manifests: "none"}) // nothing is read
	if err != nil {
		return err
	}
	client := vmhelper.NewClient(vmhelper.ClientConfig{Socket: c.String("socket"), Reader: runner, Version: c.App.Version})
	for deadline := time.Now().Add(c.Duration("wait")); ; {
		report, err := client.Probe(c.Context)
		if err == nil {
			return output.One(c, report, func(w io.Writer) { write(w, report) })
		}
		if !time.Now().Before(deadline) || c.Context.Err() != nil {
			return term.NoAnswerError(err.Error() + " (does it run here? systemctl status rutter-vms; --socket names another)")
		}
		select {
		case <-time.After(statusAgain):
		case <-c.Context.Done():
		}
	}
}

func write(w io.Writer, r *vmhelper.Report) {
	output.Printf(w, "helper     version %s, process %d, since %s\n", r.Version, r.PID, r.Since.Format(time.RFC3339))
	for _, line := range r.Trouble {
		output.Printf(w, "trouble    %s\n", line)
	}
	output.Printf(w, "requests   %d now, %d done, %d of them failed; %d connections now\n", r.Working, r.Done, r.Failed, r.Open)
	for _, reason := range slices.Sorted(maps.Keys(r.Refused)) {
		output.Printf(w, "refused    %d: %s\n", r.Refused[reason], reason)
	}
	output.Printf(w, "manifests  %s\n", r.Folders.Manifests)
	output.Printf(w, "vm-run     %s\n", r.Folders.PIDs)
	output.Printf(w, "netns      %s\n", r.Folders.NetNS)
	output.Printf(w, "vm-cgroup  %s\n", r.Folders.Cgroup)
	output.Printf(w, "QEMU       %s\n", r.QEMU)
}
