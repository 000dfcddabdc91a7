package vmcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/objects"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/vmhost"
	"rutter/log"
)

// vmShowCommands show VMs: those of this compute node, and those of all.
func vmShowCommands() []*cli.Command {
	flags := []cli.Flag{vmhost.AddressFlag(), output.Flag(), &cli.BoolFlag{Name: "human", Usage: "print what reads well"}}
	return []*cli.Command{
		{
			Name: "list", Usage: "the VMs of this compute node; FIELD=VALUE selects", ArgsUsage: "[FIELD=VALUE ...]", Flags: flags, Action: vmList,
			Description: term.Examples("rutter vm list", "rutter vm list state=running", "rutter vm list -o json"),
		},
		{
			Name: "get", Usage: "one VM of this compute node, with all its fields", ArgsUsage: "VM", Flags: flags, Action: vmGet,
			Description: term.Examples("rutter vm get web0", "rutter vm get "+term.ExampleVM, "rutter vm get "+term.ExampleVM+" --human"),
		},
		{
			Name: "lookup", Usage: "the UUIDs of the VMs, of all compute nodes, that have these fields; a value that begins with ~ is a pattern in which * is anything", ArgsUsage: "[FIELD=VALUE ...]",
			Flags: []cli.Flag{
				term.ServersFlag(), output.Flag(),
				&cli.BoolFlag{Name: "json", Aliases: []string{"j"}, Usage: "whole VMs, as JSON"},
				&cli.BoolFlag{Name: "human", Usage: "a table"},
				&cli.BoolFlag{Name: "unique", Aliases: []string{"1"}, Usage: "fail unless it is exactly one"},
			},
			Action:      vmLookup,
			Description: term.Examples("rutter vm lookup state=running", "rutter vm lookup -1 alias=web0", "rutter vm lookup 'alias=~web*' --human"),
		},
	}
}

func vmList(c *cli.Context) error {
	query, err := objects.Conditions(c)
	if err != nil {
		return err
	}
	raw, err := vmhost.Client(c).Get(c.Context, "/vms")
	if err != nil {
		return vmhost.Unreachable(c, err)
	}
	var all []map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("vminfod answered no list of VMs: %w", err)
	}
	found := slices.DeleteFunc(all, func(vm map[string]any) bool { return !matches(vm, query) })
	if c.String("output") != "table" {
		return output.Objects(c, found, nil)
	}
	if raw, err = json.Marshal(found); err != nil {
		return err
	}
	return vmhost.WriteTable(c.App.Writer, raw)
}

// matches reports whether a VM has the fields; a value ~PATTERN may have * for
// anything.
func matches(vm map[string]any, query url.Values) bool {
	for name, values := range query {
		for _, want := range values {
			got := output.Text(vm[name])
			if pattern, ok := strings.CutPrefix(want, "~"); ok {
				if !matchesPattern(got, pattern) {
					return false
				}
			} else if got != want {
				return false
			}
		}
	}
	return true
}

// matchesPattern matches a text with a pattern in which * is any text.
func matchesPattern(text, pattern string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return text == pattern
	}
	after, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	for i := 0; i <= len(after); i++ {
		if matchesPattern(after[i:], rest) {
			return true
		}
	}
	return false
}

func vmGet(c *cli.Context) error {
	if c.NArg() != 1 {
		return wantVM(c)
	}
	name := c.Args().First()
	id, err := vmNamed(c, name)
	if refusal, is := errors.AsType[*log.Refusal](err); is && refusal.Code == log.CodeResourceNotFound {
		err = nil // it may be a zonename: vminfod knows
	} else if err == nil {
		name = id.String()
	}
	if err != nil {
		return err
	}
	raw, err := vmhost.Client(c).VM(c.Context, name)
	if err != nil {
		return vmhost.Unreachable(c, err)
	}
	if c.Bool("human") {
		return vmhost.WriteTable(c.App.Writer, []byte("["+string(raw)+"]"))
	}
	return vmhost.WriteJSON(c, raw)
}

func vmLookup(c *cli.Context) error {
	query, err := objects.Conditions(c)
	if err != nil {
		return err
	}
	known := log.FieldNames(log.KindVM)
	exact := url.Values{}
	for name, values := range query {
		if !slices.Contains(known, name) {
			return term.Usagef("%s is no field of a VM in the log: they are %s", name, strings.Join(known, ", "))
		}
		if len(values) == 1 && !strings.HasPrefix(values[0], "~") && slices.Contains([]string{"state", "owner_uuid", "server_uuid"}, name) {
			exact[name] = values // the server selects by these
		}
	}
	api, err := term.NewClient(c)
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
		return output.Objects(c, found, objects.Columns(log.KindVM))
	}
	for _, vm := range found {
		if err := output.Printf(c.App.Writer, "%s\n", output.Text(vm["uuid"])); err != nil {
			return err
		}
	}
	return nil
}

// writeJSONLines prints a list as vmadm lookup -j does: one array, indented.
func writeJSONLines(w io.Writer, list []client.Object) error {
	return output.Indented(w, list)
}
