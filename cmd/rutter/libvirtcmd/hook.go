package libvirtcmd

import (
	"fmt"
	"io"
	"log/syslog"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/agent/vmsource/libvirt"
	"rutter/agent/vmsource/registered"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// Bounds of --within: less than a second makes no link, and libvirt and all virsh that ask
// for the domain wait as long.
const (
	leastWithin = time.Second
	mostWithin  = 5 * time.Minute
)

// Command is rutter libvirt-hook.
func Command() *cli.Command {
	return &cli.Command{
		Name: "libvirt-hook", Usage: "libvirt's hook for QEMU: the NICs of a domain are there before its guest runs", ArgsUsage: "-- DOMAIN OPERATION SUBOPERATION EXTRA",
		Category: "Compute node",
		Description: "libvirt runs it (scripts/libvirt/qemu-hook), and writes the domain's XML to its standard input.\n" +
			"It does nothing for a domain without an interface of ours.\n" +
			term.Examples("rutter libvirt-hook -- web0 prepare begin - < web0.xml", "rutter libvirt-hook --owner "+term.ExampleVM+" -- web0 prepare begin - < web0.xml"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "agent", EnvVars: []string{"RUTTER_AGENT_SOCKET"}, Value: registered.DefaultSocket, Usage: "`PATH` of the socket of this compute node's agent"},
			&cli.StringFlag{Name: "owner", EnvVars: []string{"RUTTER_LIBVIRT_OWNER"}, Usage: "`UUID` of the owner of domains whose metadata name none"},
			&cli.DurationFlag{Name: "within", EnvVars: []string{"RUTTER_LIBVIRT_WITHIN"}, Value: libvirt.DefaultWithin, Usage: "`TIME` that it may take; then the domain is not started"},
		},
		Action: hook,
	}
}

func hook(c *cli.Context) error {
	if c.NArg() < 2 {
		return term.Usagef("want the arguments of libvirt's hook, as in: rutter libvirt-hook -- web0 prepare begin -")
	}
	within := c.Duration("within")
	if within < leastWithin || within > mostWithin {
		return term.Usagef("--within %s: want %s to %s", within, leastWithin, mostWithin)
	}
	var owner log.UUID
	if text := c.String("owner"); text != "" {
		var err error
		if owner, err = log.ParseUUID(text); err != nil {
			return term.Usagef("--owner: %w", err)
		}
	}
	h := libvirt.Hook{
		Agent: &registered.Client{Source: libvirt.SourceName, Socket: c.String("agent")},
		Owner: owner, Within: within, Say: func(format string, args ...any) { say(c.App.ErrWriter, format, args...) },
	}
	err := h.Run(c.Context, c.Args().Slice(), c.App.Reader)
	if err != nil {
		// libvirt shows what stands in the error output. It is one line there.
		return fmt.Errorf("%s", strings.Join(strings.Fields(err.Error()), " "))
	}
	return nil
}

// say tells what is no error. libvirt shows the error output of a hook that fails only, so
// the node's log has it too.
func say(w io.Writer, format string, args ...any) {
	output.Printf(w, "rutter: %s\n", fmt.Sprintf(format, args...))
	if logger, err := syslog.New(syslog.LOG_DAEMON|syslog.LOG_WARNING, "rutter-libvirt-hook"); err == nil {
		_ = logger.Warning(fmt.Sprintf(format, args...))
		_ = logger.Close()
	}
}
