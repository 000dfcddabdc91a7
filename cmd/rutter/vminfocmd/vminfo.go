package vminfocmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vminfod"

	"github.com/urfave/cli/v2"

	"rutter/agent/vminfo"
	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/vmhost"
)

// vminfoFlags are those of every command that asks a vminfod.
func vminfoFlags(more ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{
		vmhost.AddressFlag(),
		&cli.BoolFlag{Name: "json", Aliases: []string{"j"}, Usage: "print JSON as it comes"},
		&cli.BoolFlag{Name: "human", Usage: "print what reads well"},
	}, more...)
}

// Command is rutter vminfo: it shows the VMs of this compute node by its vminfod,
// Rutter's or Triton's.
func Command() *cli.Command {
	full := &cli.BoolFlag{Name: "full", Aliases: []string{"f"}, Usage: "everything: of events the whole date and UUID, of the status also the last scans"}
	return &cli.Command{
		Name: "vminfo", Usage: "the VMs of this compute node, and what happens to them", Category: "Compute node",
		Description: term.Examples("rutter vminfo vms --human", "rutter vminfo events", "rutter vminfo events -jr 5595d88c-6e4d-4bda-b58e-97dd02e30001"),
		Subcommands: []*cli.Command{
			{
				Name: "ping", Usage: "whether a vminfod answers", Flags: vminfoFlags(), Action: vminfoGet("/ping", func(w io.Writer, _ []byte) error {
					err := output.Print(w, "pong\n")
					return err
				}),
				Description: term.Examples("rutter vminfo ping", "rutter vminfo ping -j"),
			},
			{
				Name: "status", Usage: "what the vminfod says of itself", Flags: vminfoFlags(full), Action: vminfoStatus,
				Description: term.Examples("rutter vminfo status", "rutter vminfo status -jf"),
			},
			{
				Name: "vms", Usage: "every VM", Flags: vminfoFlags(), Action: vminfoGet("/vms", vmhost.WriteTable),
				Description: term.Examples("rutter vminfo vms --human", "rutter vminfo vms -j"),
			},
			{
				Name: "vm", Usage: "one VM", ArgsUsage: "UUID", Flags: vminfoFlags(), Action: vminfoVM,
				Description: term.Examples("rutter vminfo vm 5595d88c-6e4d-4bda-b58e-97dd02e30001"),
			},
			{
				Name: "events", Usage: "what happens to VMs, until it is interrupted", ArgsUsage: "[UUID]", Action: vminfoEvents,
				Flags:       vminfoFlags(full, &cli.BoolFlag{Name: "ready", Aliases: []string{"r"}, Usage: "show also that the stream is ready"}),
				Description: term.Examples("rutter vminfo events", "rutter vminfo events --human", "rutter vminfo events -j 5595d88c-6e4d-4bda-b58e-97dd02e30001"),
			},
			vminfoServeCommand(),
		},
	}
}

// vminfoGet prints the answer to a path: with --human as human does, with -j as
// it is, else indented.
func vminfoGet(path string, human func(io.Writer, []byte) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := term.NoArguments(c); err != nil {
			return err
		}
		text, err := vmhost.Client(c).Get(c.Context, path)
		if err != nil {
			return vmhost.Unreachable(c, err)
		}
		if c.Bool("json") || !c.Bool("human") && path != "/ping" {
			return vmhost.WriteJSON(c, text)
		}
		return human(c.App.Writer, text)
	}
}

func vminfoVM(c *cli.Context) error {
	if c.NArg() != 1 {
		return term.Usagef("want the UUID of one VM, as in: rutter vminfo vm 5595d88c-6e4d-4bda-b58e-97dd02e30001")
	}
	text, err := vmhost.Client(c).VM(c.Context, c.Args().First())
	if err != nil {
		return vmhost.Unreachable(c, err)
	}
	if c.Bool("human") {
		return vmhost.WriteTable(c.App.Writer, []byte("["+string(text)+"]"))
	}
	return vmhost.WriteJSON(c, text)
}

func vminfoStatus(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	path := "/status"
	if c.Bool("full") {
		path += "?full=true"
	}
	answer, err := vmhost.Client(c).Get(c.Context, path)
	if err != nil {
		return vmhost.Unreachable(c, err)
	}
	if c.Bool("json") || !c.Bool("human") {
		return vmhost.WriteJSON(c, answer)
	}
	var s vminfo.Status
	if err := json.Unmarshal(answer, &s); err != nil {
		return fmt.Errorf("vminfod answered no status: %w", err)
	}
	w := c.App.Writer
	output.Printf(w, "vminfod    %s (%s), pid %d, up %s\n", s.State, s.Status, s.PID, s.Uptime)
	output.Printf(w, "VMs        %d\n", s.NumVMs)
	output.Printf(w, "events     %d so far, the last %d are kept; %d listeners, %d were too slow\n", s.Rutter.Seq, s.Rutter.Events, len(s.EventsListeners), s.Rutter.Lost)
	vmhost.WriteSources(w, "source  ", s.Rutter.Sources)
	for _, failure := range s.RefreshErrors {
		output.Printf(w, "failure    %s %s\n", failure.Date.Format(time.RFC3339), failure.Err)
	}
	return nil
}

// vminfoEvents prints events as they come: by default the lines of RFD 39, in
// which dates and UUIDs are whole and what is not there is null.
func vminfoEvents(c *cli.Context) error {
	if c.NArg() > 1 {
		return term.Usagef("want at most one UUID; without one, the events of all VMs are shown")
	}
	asked := vmhost.Client(c)
	only := c.Args().First()
	if only != "" {
		if _, err := asked.VM(c.Context, only); err != nil {
			return vmhost.Unreachable(c, fmt.Errorf("VM %s: %w", only, err))
		}
	}
	events, err := asked.Events(c.Context, vminfod.Position{})
	if err != nil {
		return vmhost.Unreachable(c, err)
	}
	defer events.Close()
	if c.Bool("ready") {
		if err := writeEvent(c, events.Ready); err != nil {
			return err
		}
	}
	for {
		m, err := events.Next()
		if err != nil {
			if c.Context.Err() != nil {
				return nil
			}
			return err
		}
		if only != "" && m.UUID != only && m.Zonename != only {
			continue
		}
		if err := writeEvent(c, m); err != nil {
			return err
		}
	}
}

// maxAlias bounds the characters of an alias in a line, the same as vminfo's.
const maxAlias = 30

func writeEvent(c *cli.Context, m vminfod.Message) error {
	if c.Bool("json") {
		return output.JSONText(c.App.Writer, []byte(m.Line))
	}
	date, id := m.Date.UTC().Format("2006-01-02T15:04:05.000Z"), m.UUID
	prefix := fmt.Sprintf("[%s] %s %s", date, id, m.Type)
	if c.Bool("human") {
		if !c.Bool("full") {
			date, id = date[len("2006-01-02T"):], id[:min(8, len(id))]
		}
		alias := "-"
		if v, ok := m.VM.Get("alias"); ok {
			if s, isText := v.String(); isText && s != "" {
				alias = string([]rune(s)[:min(maxAlias, len([]rune(s)))])
			}
		}
		prefix = fmt.Sprintf("[%s] %s %s %s", date, id, alias, m.Type)
	}
	if len(m.Changes) == 0 {
		err := output.Printf(c.App.Writer, "%s\n", prefix)
		return err
	}
	for _, change := range m.Changes {
		if err := output.Printf(c.App.Writer, "%s: %s %s :: %s -> %s\n", prefix, change.PrettyPath(), change.Action, jsonOrNull(change.Old), jsonOrNull(change.New)); err != nil {
			return err
		}
	}
	return nil
}

func jsonOrNull(v *vmdoc.Value) string {
	if v == nil {
		return "null"
	}
	return string(v.AppendJSON(nil))
}

// runVMInfo serves until ctx ends. address "off" runs the sources alone.
func runVMInfo(ctx context.Context, service *vminfo.Service, address string) error {
	if address == "off" {
		return service.Run(ctx, nil)
	}
	listener, err := localhttp.Listen(address)
	if err != nil {
		return fmt.Errorf("vminfod: %w (--vminfod off, if another daemon holds the port)", err)
	}
	return service.Run(ctx, listener)
}

// vminfoServeCommand serves the VMs of a node that has no agent.
func vminfoServeCommand() *cli.Command {
	return &cli.Command{
		Name: "serve", Usage: "serve the VMs of this compute node without an agent",
		Flags: append(append(term.DaemonFlags(), vmhost.ServiceFlags()...),
			&cli.StringFlag{Name: "netns", EnvVars: []string{"RUTTER_NETNS"}, Value: "/run/netns", Usage: "`FOLDER` of named network namespaces, as ip-netns(8) keeps it"}),
		Description: term.Examples("rutter vminfo serve --manifests /etc/rutter/vms", "rutter vminfo serve --follow-vminfod 10.0.0.9:9090 --vminfod 127.0.0.1:9091"),
		Action: func(c *cli.Context) error {
			if err := term.NoArguments(c); err != nil {
				return err
			}
			if err := term.CheckListen("vminfod", c.String("vminfod"), c.Bool("insecure")); err != nil {
				return err
			}
			logger, err := term.DaemonLogger(c, c.App.ErrWriter)
			if err != nil {
				return err
			}
			here, err := vmhost.NewLocal(vmhost.FoldersOf(c), logger)
			if err != nil {
				return err
			}
			if here.Service == nil {
				return term.Usagef("--manifests off without --follow-vminfod: there would be no VMs to serve")
			}
			return runVMInfo(c.Context, here.Service, c.String("vminfod"))
		},
	}
}
