package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/logcmd"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// vmShowCommands show VMs: those of this compute node, and those of all.
func vmShowCommands() []*cli.Command {
	flags := []cli.Flag{vminfoAddressFlag(), outputFlag(), &cli.BoolFlag{Name: "human", Usage: "print what reads well"}}
	return []*cli.Command{
		{
			Name: "list", Usage: "the VMs of this compute node; FIELD=VALUE selects", ArgsUsage: "[FIELD=VALUE ...]", Flags: flags, Action: vmList,
			Description: examples("rutter vm list", "rutter vm list state=running", "rutter vm list -o json"),
		},
		{
			Name: "get", Usage: "one VM of this compute node, with all its fields", ArgsUsage: "UUID", Flags: flags, Action: vmGet,
			Description: examples("rutter vm get "+exampleVM, "rutter vm get "+exampleVM+" --human"),
		},
		{
			Name: "lookup", Usage: "the UUIDs of the VMs, of all compute nodes, that have these fields; a value that begins with ~ is a pattern in which * is anything", ArgsUsage: "[FIELD=VALUE ...]",
			Flags: []cli.Flag{
				serversFlag(), outputFlag(),
				&cli.BoolFlag{Name: "json", Aliases: []string{"j"}, Usage: "whole VMs, as JSON"},
				&cli.BoolFlag{Name: "human", Usage: "a table"},
				&cli.BoolFlag{Name: "unique", Aliases: []string{"1"}, Usage: "fail unless it is exactly one"},
			},
			Action:      vmLookup,
			Description: examples("rutter vm lookup state=running", "rutter vm lookup -1 alias=web0", "rutter vm lookup 'alias=~web*' --human"),
		},
	}
}

func vmList(c *cli.Context) error {
	query, err := conditions(c)
	if err != nil {
		return err
	}
	raw, err := vminfoClient(c).Get(c.Context, "/vms")
	if err != nil {
		return vminfoError(c, err)
	}
	var all []map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("vminfod answered no list of VMs: %w", err)
	}
	found := slices.DeleteFunc(all, func(vm map[string]any) bool { return !matches(vm, query) })
	if c.String("output") != "table" {
		return printObjects(c, found, nil)
	}
	if raw, err = json.Marshal(found); err != nil {
		return err
	}
	return writeVMTable(c.App.Writer, raw)
}

// matches reports whether a VM has the fields; a value ~PATTERN may have * for
// anything.
func matches(vm map[string]any, query url.Values) bool {
	for name, values := range query {
		for _, want := range values {
			got := text(vm[name])
			if pattern, ok := strings.CutPrefix(want, "~"); ok {
				if !like(got, pattern) {
					return false
				}
			} else if got != want {
				return false
			}
		}
	}
	return true
}

// like matches a text with a pattern in which * is anything.
func like(text, pattern string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return text == pattern
	}
	after, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	for i := 0; i <= len(after); i++ {
		if like(after[i:], rest) {
			return true
		}
	}
	return false
}

func vmGet(c *cli.Context) error {
	if c.NArg() != 1 {
		return usagef("want the UUID of one VM, as in: rutter vm get %s", exampleVM)
	}
	raw, err := vminfoClient(c).VM(c.Context, c.Args().First())
	if err != nil {
		return vminfoError(c, err)
	}
	if c.Bool("human") {
		return writeVMTable(c.App.Writer, []byte("["+string(raw)+"]"))
	}
	return writeJSONText(c, raw)
}

func vmLookup(c *cli.Context) error {
	query, err := conditions(c)
	if err != nil {
		return err
	}
	known := log.FieldNames(log.KindVM)
	exact := url.Values{}
	for name, values := range query {
		if !slices.Contains(known, name) {
			return usagef("%s is no field of a VM in the log: they are %s", name, strings.Join(known, ", "))
		}
		if len(values) == 1 && !strings.HasPrefix(values[0], "~") && slices.Contains([]string{"state", "owner_uuid", "server_uuid"}, name) {
			exact[name] = values // the server selects by these
		}
	}
	api, err := newClient(c)
	if err != nil {
		return err
	}
	list, err := api.List(c.Context, "/vms", exact)
	if err != nil {
		return err
	}
	found := slices.DeleteFunc(list, func(vm client.Object) bool { return !matches(vm, query) })
	if c.Bool("unique") && len(found) != 1 {
		return fmt.Errorf("%d VMs have these fields, and one is wanted", len(found))
	}
	switch {
	case c.Bool("json"):
		return writeJSONLines(c.App.Writer, found)
	case c.Bool("human") || c.String("output") != "table":
		return printObjects(c, found, columnsOf(log.KindVM))
	}
	for _, vm := range found {
		if _, err := fmt.Fprintln(c.App.Writer, text(vm["uuid"])); err != nil {
			return err
		}
	}
	return nil
}

// writeJSONLines prints a list as vmadm lookup -j does: one array, indented.
func writeJSONLines(w io.Writer, list []client.Object) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(list)
}

// vmmCommand shows the VMMs that the log has.
func vmmCommand() *cli.Command {
	cmd := objectCommand(log.KindVMM)
	o := objectsOf(log.KindVMM)
	flags := []cli.Flag{serversFlag(), outputFlag()}
	cmd.Description = examples(
		"rutter vmm list state=failed",
		"rutter vmm show "+exampleVM,
		"rutter vmm history "+exampleVM,
	)
	cmd.Subcommands = append(cmd.Subcommands,
		&cli.Command{
			Name: "show", Usage: "one VMM: its VM, compute node, state, and why it failed", ArgsUsage: "ID", Flags: flags,
			Action: func(c *cli.Context) error { return vmmShow(c, o) }, Description: examples("rutter vmm show " + exampleVM),
		},
		&cli.Command{
			Name: "history", Usage: "every state that the log has had of a VMM", ArgsUsage: "ID", Flags: flags,
			Action: vmmHistory, Description: examples("rutter vmm history "+exampleVM, "rutter vmm history "+exampleVM+" -o ndjson"),
		})
	return cmd
}

func vmmShow(c *cli.Context, o objects) error {
	vmm, err := o.named(c)
	if err != nil {
		return err
	}
	return printOne(c, vmm, func(w io.Writer) {
		for _, line := range [][2]string{{"id", "id"}, {"VM", "instance_id"}, {"compute node", "sled_id"}, {"state", "state"}, {"generation", "gen"}, {"since", "time_updated"}, {"reason", "reason"}} {
			if value := text(vmm[line[1]]); value != "-" {
				fmt.Fprintf(w, "%-13s %s\n", line[0], value)
			}
		}
	})
}

// vmmHistory prints the log's entries of one VMM.
func vmmHistory(c *cli.Context) error {
	if c.NArg() != 1 {
		return usagef("want the id of one VMM, as in: rutter vmm history %s", exampleVM)
	}
	id, err := log.ParseUUID(c.Args().First())
	if err != nil {
		return term.UsageError{Err: err}
	}
	api, err := newClient(c)
	if err != nil {
		return err
	}
	query := client.LogQuery{Query: url.Values{"kind": {log.KindVMM.String()}, "object": {id.String()}}}
	if c.String("output") != "table" {
		return logcmd.Print(c, api, query)
	}
	found := false
	for line, err := range api.Log(c.Context, query) {
		if err != nil {
			return err
		}
		found = true
		if _, err := io.WriteString(c.App.Writer, vmmLine(line)); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("the log keeps nothing of VMM %s: is it a VM's UUID? rutter vmm list instance_id=%s", id, id)
	}
	return nil
}

// vmmLine is one state of a VMM.
func vmmLine(line log.Line) string {
	vmm, ok := line.Event.Object.(*log.VMM)
	if !ok || line.Event.Action == log.Delete {
		return fmt.Sprintf("%s #%d deleted  by %s\n", line.Event.Time, line.Seq, line.Event.Actor)
	}
	text := fmt.Sprintf("%s #%d gen %d %s", line.Event.Time, line.Seq, vmm.Gen, vmm.State)
	if vmm.Reason != "" {
		text += ": " + vmm.Reason
	}
	return text + "  by " + line.Event.Actor + "\n"
}
