package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/agent/vminfo"
	"rutter/log"
)

// vmSeenWithin is how long a change of a VM may take to be visible, as vmadm
// has it (spec/vminfod.md, 5.5).
const vmSeenWithin = 60 * time.Second

// vmControlCommands start and stop the VMs of manifests on this compute node.
// They stand beside the commands of the VMs' objects, under rutter vm.
func vmControlCommands() []*cli.Command {
	flags := func(more ...cli.Flag) []cli.Flag {
		return append(append(more,
			vminfoAddressFlag(),
			&cli.DurationFlag{Name: "timeout", Value: vmSeenWithin, Usage: "`TIME` until the change must be visible"},
			&cli.StringFlag{Name: "netns", EnvVars: []string{"RUTTER_NETNS"}, Value: "/run/netns", Usage: "`FOLDER` of named network namespaces, as ip-netns(8) keeps it"},
		), vmFolderFlags()...)
	}
	force := &cli.BoolFlag{Name: "force", Aliases: []string{"F"}, Usage: "by SIGKILL, at once"}
	noNICs := &cli.BoolFlag{Name: "no-nics", Usage: "do not wait until the agent has put the NICs into the namespace"}
	return []*cli.Command{
		{
			Name: "start", Usage: "start a VM of this compute node; it is done when it is seen to run", ArgsUsage: "UUID", Flags: flags(noNICs),
			Action: vmControl(startVM), Description: examples("rutter vm start 5595d88c-6e4d-4bda-b58e-97dd02e30001"),
		},
		{
			Name: "stop", Usage: "stop a VM of this compute node; it is done when it is seen to be stopped", ArgsUsage: "UUID", Flags: flags(force),
			Action: vmControl(stopVM), Description: examples("rutter vm stop 5595d88c-6e4d-4bda-b58e-97dd02e30001", "rutter vm stop -F 5595d88c-6e4d-4bda-b58e-97dd02e30001"),
		},
		{
			Name: "reboot", Usage: "stop a VM of this compute node, then start it", ArgsUsage: "UUID", Flags: flags(noNICs, force),
			Action: vmControl(func(ctx context.Context, c *cli.Context, r *vminfo.Runner, id log.UUID) error {
				return errors.Join(stopVM(ctx, c, r, id), startVM(ctx, c, r, id))
			}), Description: examples("rutter vm reboot 5595d88c-6e4d-4bda-b58e-97dd02e30001"),
		},
	}
}

// vmControl calls act with the runner that the flags ask for and a context that
// ends at --timeout.
func vmControl(act func(context.Context, *cli.Context, *vminfo.Runner, log.UUID) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.NArg() != 1 {
			return usagef("want the UUID of one VM, as in: rutter vm %s 5595d88c-6e4d-4bda-b58e-97dd02e30001", c.Command.Name)
		}
		id, err := log.ParseUUID(c.Args().First())
		if err != nil {
			return usageError{err}
		}
		runner, err := vminfo.NewRunner(vminfo.RunnerConfig{Manifests: c.String("manifests"), PIDs: c.String("vm-run"), NetNS: c.String("netns"), Cgroup: c.String("vm-cgroup")})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
		defer cancel()
		return vminfoError(c, act(ctx, c, runner, id))
	}
}

// visible runs act, and returns when the VM is seen as want says: the stream is
// opened before, so that nothing comes between.
func visible(ctx context.Context, c *cli.Context, id log.UUID, want func(vm vminfo.Value) bool, act func() error) error {
	events, err := vminfoClient(c).Events(ctx, vminfo.Place{})
	if err != nil {
		return err
	}
	defer events.Close()
	if err := act(); err != nil {
		return err
	}
	// A vminfod looks at what is there: from now on it can only see what was
	// done. If it did already, or if nothing had to be done, no event may follow.
	if text, err := vminfoClient(c).VM(ctx, id.String()); err == nil {
		if vm, err := vminfo.ParseValue(text); err == nil && want(vm) {
			return nil
		}
	}
	for {
		m, err := events.Next()
		switch {
		case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return fmt.Errorf("VM %s: vminfod watchForChanges %q %w: the act was done, its effect is not visible yet", id, c.Command.Name, vminfo.ErrTimeout)
		case err != nil:
			return err
		case m.UUID == id.String() && want(m.VM):
			return nil
		}
	}
}

func stringOf(v vminfo.Value, name string) string {
	field, _ := v.Get(name)
	s, _ := field.String()
	return s
}

func startVM(ctx context.Context, c *cli.Context, r *vminfo.Runner, id log.UUID) error {
	if !c.Bool("no-nics") {
		prepared := func(vm vminfo.Value) bool { return stringOf(vm, "zone_state") != "installed" && hasAddresses(vm) }
		if err := visible(ctx, c, id, prepared, func() error { return r.Prepare(ctx, id) }); err != nil {
			return fmt.Errorf("%w (waiting for its NICs; --no-nics starts it without)", err)
		}
	}
	running := func(vm vminfo.Value) bool { return stringOf(vm, "state") == "running" }
	if err := visible(ctx, c, id, running, func() error { return r.Start(ctx, id) }); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.App.Writer, "VM %s runs\n", id)
	return err
}

// hasAddresses reports whether each NIC that a VM has got an address.
func hasAddresses(vm vminfo.Value) bool {
	nics, _ := vm.Get("nics")
	for _, nic := range nics.Items() {
		if ips, _ := nic.Get("ips"); len(ips.Items()) == 0 {
			return false
		}
	}
	return true
}

func stopVM(ctx context.Context, c *cli.Context, r *vminfo.Runner, id log.UUID) error {
	stopped := func(vm vminfo.Value) bool { return stringOf(vm, "zone_state") == "installed" }
	if err := visible(ctx, c, id, stopped, func() error { return r.Stop(ctx, id, c.Bool("force")) }); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.App.Writer, "VM %s is stopped\n", id)
	return err
}
