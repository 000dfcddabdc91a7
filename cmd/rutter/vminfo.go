package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/agent/vminfo"
	"rutter/agent/vminfo/manifests"
	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vminfod"
	"rutter/agent/vminfo/vmstore"
)

// vminfoAddressFlag is where a vminfod answers.
func vminfoAddressFlag() cli.Flag {
	return &cli.StringFlag{Name: "address", EnvVars: []string{"RUTTER_VMINFOD"}, Value: "127.0.0.1:9090", Usage: "`ADDRESS` of the vminfod that is asked"}
}

// vminfoFlags are those of every command that asks a vminfod.
func vminfoFlags(more ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{
		vminfoAddressFlag(),
		&cli.BoolFlag{Name: "json", Aliases: []string{"j"}, Usage: "print JSON as it comes"},
		&cli.BoolFlag{Name: "human", Usage: "print what reads well"},
	}, more...)
}

// vminfoCommand is the command of the VMs of this compute node, as its vminfod
// tells of them: ours, or Triton's.
func vminfoCommand() *cli.Command {
	full := &cli.BoolFlag{Name: "full", Aliases: []string{"f"}, Usage: "everything: of events the whole date and UUID, of the status also the last scans"}
	return &cli.Command{
		Name: "vminfo", Usage: "the VMs of this compute node, and what happens to them", Category: "Compute node",
		Description: examples("rutter vminfo vms --human", "rutter vminfo events", "rutter vminfo events -jr 5595d88c-6e4d-4bda-b58e-97dd02e30001"),
		Subcommands: []*cli.Command{
			{
				Name: "ping", Usage: "whether a vminfod answers", Flags: vminfoFlags(), Action: vminfoGet("/ping", func(w io.Writer, _ []byte) error {
					_, err := fmt.Fprintln(w, "pong")
					return err
				}),
				Description: examples("rutter vminfo ping", "rutter vminfo ping -j"),
			},
			{
				Name: "status", Usage: "what the vminfod says of itself", Flags: vminfoFlags(full), Action: vminfoStatus,
				Description: examples("rutter vminfo status", "rutter vminfo status -jf"),
			},
			{
				Name: "vms", Usage: "every VM", Flags: vminfoFlags(), Action: vminfoGet("/vms", writeVMTable),
				Description: examples("rutter vminfo vms --human", "rutter vminfo vms -j"),
			},
			{
				Name: "vm", Usage: "one VM", ArgsUsage: "UUID", Flags: vminfoFlags(), Action: vminfoVM,
				Description: examples("rutter vminfo vm 5595d88c-6e4d-4bda-b58e-97dd02e30001"),
			},
			{
				Name: "events", Usage: "what happens to VMs, until it is interrupted", ArgsUsage: "[UUID]", Action: vminfoEvents,
				Flags:       vminfoFlags(full, &cli.BoolFlag{Name: "ready", Aliases: []string{"r"}, Usage: "show also that the stream is ready"}),
				Description: examples("rutter vminfo events", "rutter vminfo events --human", "rutter vminfo events -j 5595d88c-6e4d-4bda-b58e-97dd02e30001"),
			},
			vminfoServeCommand(),
		},
	}
}

func vminfoClient(c *cli.Context) *vminfod.Client {
	return vminfod.New(c.String("address"), "rutter vminfo "+c.Command.Name)
}

// vminfoError tells a vminfod that is not there from one that says no.
func vminfoError(c *cli.Context, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return silentError(fmt.Sprintf("no vminfod answers at %s: %v (rutter agent has one; --address names another)", c.String("address"), err))
	}
	return err
}

// vminfoGet prints the answer to a path: with --human as human does, with -j as
// it is, else indented.
func vminfoGet(path string, human func(io.Writer, []byte) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := noArguments(c); err != nil {
			return err
		}
		text, err := vminfoClient(c).Get(c.Context, path)
		if err != nil {
			return vminfoError(c, err)
		}
		if c.Bool("json") || !c.Bool("human") && path != "/ping" {
			return writeJSONText(c, text)
		}
		return human(c.App.Writer, text)
	}
}

func writeJSONText(c *cli.Context, text []byte) error {
	if c.Bool("json") {
		_, err := fmt.Fprintln(c.App.Writer, string(text))
		return err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return fmt.Errorf("vminfod answered no JSON: %w", err)
	}
	_, err := fmt.Fprintln(c.App.Writer, out.String())
	return err
}

func vminfoVM(c *cli.Context) error {
	if c.NArg() != 1 {
		return usagef("want the UUID of one VM, as in: rutter vminfo vm 5595d88c-6e4d-4bda-b58e-97dd02e30001")
	}
	text, err := vminfoClient(c).VM(c.Context, c.Args().First())
	if err != nil {
		return vminfoError(c, err)
	}
	if c.Bool("human") {
		return writeVMTable(c.App.Writer, []byte("["+string(text)+"]"))
	}
	return writeJSONText(c, text)
}

func writeVMTable(out io.Writer, answer []byte) error {
	var vms []map[string]any
	if err := json.Unmarshal(answer, &vms); err != nil {
		return fmt.Errorf("vminfod answered no list of VMs: %w", err)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "UUID\tALIAS\tSTATE\tPID\tMEMORY\tADDRESSES")
	for _, vm := range vms {
		var addresses []any
		nics, _ := vm["nics"].([]any)
		for _, nic := range nics {
			fields, _ := nic.(map[string]any)
			ips, _ := fields["ips"].([]any)
			addresses = append(addresses, ips...)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", text(vm["uuid"]), text(vm["alias"]), text(vm["state"]), text(vm["pid"]), text(vm["max_physical_memory"]), text(addresses))
	}
	return w.Flush()
}

func vminfoStatus(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	path := "/status"
	if c.Bool("full") {
		path += "?full=true"
	}
	answer, err := vminfoClient(c).Get(c.Context, path)
	if err != nil {
		return vminfoError(c, err)
	}
	if c.Bool("json") || !c.Bool("human") {
		return writeJSONText(c, answer)
	}
	var s vminfo.Status
	if err := json.Unmarshal(answer, &s); err != nil {
		return fmt.Errorf("vminfod answered no status: %w", err)
	}
	w := c.App.Writer
	fmt.Fprintf(w, "vminfod    %s (%s), pid %d, up %s\n", s.State, s.Status, s.PID, s.Uptime)
	fmt.Fprintf(w, "VMs        %d\n", s.NumVMs)
	fmt.Fprintf(w, "events     %d so far, the last %d are kept; %d listeners, %d were too slow\n", s.Rutter.Seq, s.Rutter.Events, len(s.EventsListeners), s.Rutter.Lost)
	writeSources(w, "source  ", s.Rutter.Sources)
	for _, failure := range s.RefreshErrors {
		fmt.Fprintf(w, "failure    %s %s\n", failure.Date.Format(time.RFC3339), failure.Err)
	}
	return nil
}

// vminfoEvents prints events as they come: by default the lines of RFD 39, in
// which dates and UUIDs are whole and what is not there is null.
func vminfoEvents(c *cli.Context) error {
	if c.NArg() > 1 {
		return usagef("want at most one UUID; without one, the events of all VMs are shown")
	}
	asked := vminfoClient(c)
	only := c.Args().First()
	if only != "" {
		if _, err := asked.VM(c.Context, only); err != nil {
			return vminfoError(c, fmt.Errorf("VM %s: %w", only, err))
		}
	}
	events, err := asked.Events(c.Context, vminfod.Position{})
	if err != nil {
		return vminfoError(c, err)
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

// maxAlias is how much of an alias a line for people shows, as in vminfo.
const maxAlias = 30

func writeEvent(c *cli.Context, m vminfod.Message) error {
	if c.Bool("json") {
		_, err := fmt.Fprintf(c.App.Writer, "%s\n", m.Line)
		return err
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
		_, err := fmt.Fprintln(c.App.Writer, prefix)
		return err
	}
	for _, change := range m.Changes {
		if _, err := fmt.Fprintf(c.App.Writer, "%s: %s %s :: %s -> %s\n", prefix, change.PrettyPath(), change.Action, jsonOrNull(change.Old), jsonOrNull(change.New)); err != nil {
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

// vmFolderFlags are the folders in which the VMs of a compute node are described
// and run.
func vmFolderFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "manifests", EnvVars: []string{"RUTTER_MANIFESTS"}, Value: "/etc/rutter/vms", Usage: "`FOLDER` of the VMs' manifests, or off"},
		&cli.StringFlag{Name: "vm-run", EnvVars: []string{"RUTTER_VM_RUN"}, Value: "/run/rutter/vms", Usage: "`FOLDER` of the pid files of the VMs' init processes"},
		&cli.StringFlag{Name: "vm-cgroup", EnvVars: []string{"RUTTER_VM_CGROUP"}, Value: system.DefaultCgroup(), Usage: "`FOLDER` of the VMs' cgroups"},
	}
}

// vminfodFlags are those of a program that serves the VMs of its compute node.
func vminfodFlags() []cli.Flag {
	return append(vmFolderFlags(),
		&cli.StringFlag{Name: "vminfod", EnvVars: []string{"RUTTER_VMINFOD_LISTEN"}, Value: "127.0.0.1:9090", Usage: "`ADDRESS` at which VMs are served as vminfod does, or off"},
		&cli.StringFlag{Name: "follow-vminfod", EnvVars: []string{"RUTTER_FOLLOW_VMINFOD"}, Usage: "`ADDRESS` of another vminfod whose VMs are taken over, Triton's for one"},
	)
}

// newVMInfo makes the service that the flags ask for; folder is nil if they ask
// for none. It needs --netns as well.
func newVMInfo(c *cli.Context, logger *slog.Logger) (service *vminfo.Service, folder *manifests.Folder, err error) {
	var sources []vmstore.Source
	if c.String("manifests") != "off" {
		if folder, err = manifests.New(manifests.Config{
			Manifests: c.String("manifests"), PIDs: c.String("vm-run"), NetNS: c.String("netns"), Cgroup: c.String("vm-cgroup"), Logger: logger,
		}); err != nil {
			return nil, nil, err
		}
		sources = append(sources, folder)
	}
	if address := c.String("follow-vminfod"); address != "" {
		stream, err := vminfod.NewStream(vminfod.StreamConfig{Client: vminfod.New(address, "rutter"), Logger: logger})
		if err != nil {
			return nil, nil, err
		}
		sources = append(sources, stream)
	}
	if len(sources) == 0 {
		return nil, nil, nil
	}
	service, err = vminfo.New(vminfo.Config{Sources: sources, Logger: logger})
	return service, folder, err
}

// runVMInfo serves until ctx ends. address "off" runs the sources alone.
func runVMInfo(ctx context.Context, service *vminfo.Service, address string) error {
	if address == "off" {
		return service.Run(ctx, nil)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("vminfod: %w (--vminfod off, if another daemon holds the port)", err)
	}
	return service.Run(ctx, listener)
}

// vminfoServeCommand serves the VMs of a node that has no agent.
func vminfoServeCommand() *cli.Command {
	return &cli.Command{
		Name: "serve", Usage: "serve the VMs of this compute node without an agent",
		Flags: append(append(daemonFlags(), vminfodFlags()...),
			&cli.StringFlag{Name: "netns", EnvVars: []string{"RUTTER_NETNS"}, Value: "/run/netns", Usage: "`FOLDER` of named network namespaces, as ip-netns(8) keeps it"}),
		Description: examples("rutter vminfo serve --manifests /etc/rutter/vms", "rutter vminfo serve --follow-vminfod 10.0.0.9:9090 --vminfod 127.0.0.1:9091"),
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			if err := checkListen("vminfod", c.String("vminfod"), c.Bool("insecure")); err != nil {
				return err
			}
			logger, err := newLogger(c.App.ErrWriter, c.String("log-level"))
			if err != nil {
				return err
			}
			service, _, err := newVMInfo(c, logger)
			if err != nil {
				return err
			}
			if service == nil {
				return usagef("--manifests off without --follow-vminfod: there would be no VMs to serve")
			}
			return runVMInfo(c.Context, service, c.String("vminfod"))
		},
	}
}
