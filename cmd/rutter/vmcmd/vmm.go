package vmcmd

import (
	"fmt"
	"io"
	"net/url"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/logprint"
	"rutter/cmd/rutter/named"
	"rutter/cmd/rutter/objects"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/line"
)

// VMMCommand shows the VMMs that the log has.
func VMMCommand() *cli.Command {
	cmd := objects.Command(log.KindVMM)
	o := objects.Of(log.KindVMM)
	flags := []cli.Flag{term.ServersFlag(), output.Flag()}
	cmd.Description = term.Examples(
		"rutter vmm list state=failed",
		"rutter vmm show "+term.ExampleVM,
		"rutter vmm history "+term.ExampleVM,
	)
	cmd.Subcommands = append(cmd.Subcommands,
		&cli.Command{
			Name: "show", Usage: "one VMM: its VM, compute node, state, and why it failed", ArgsUsage: "ID", Flags: flags,
			Action: func(c *cli.Context) error { return vmmShow(c, o) }, Description: term.Examples("rutter vmm show " + term.ExampleVM),
		},
		&cli.Command{
			Name: "history", Usage: "every state that the log has had of a VMM", ArgsUsage: "ID", Flags: flags,
			Action: vmmHistory, Description: term.Examples("rutter vmm history "+term.ExampleVM, "rutter vmm history "+term.ExampleVM+" -o ndjson"),
		})
	return cmd
}

func vmmShow(c *cli.Context, o objects.Collection) error {
	vmm, err := o.Named(c)
	if err != nil {
		return err
	}
	return output.One(c, vmm, func(w io.Writer) {
		for _, row := range [][2]string{{"id", "id"}, {"VM", "instance_id"}, {"compute node", "sled_id"}, {"state", "state"}, {"generation", "gen"}, {"since", "time_updated"}, {"reason", "reason"}} {
			if value := output.Text(vmm[row[1]]); value != "-" {
				output.Printf(w, "%-13s %s\n", row[0], value)
			}
		}
	})
}

// vmmHistory prints the log's entries of one VMM.
func vmmHistory(c *cli.Context) error {
	if c.NArg() != 1 {
		return term.Usagef("want the id of one VMM, as in: rutter vmm history %s", term.ExampleVM)
	}
	id, err := named.UUID(c, log.KindVMM, c.Args().First())
	if err != nil {
		return err
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	query := client.LogQuery{Query: url.Values{"kind": {log.KindVMM.String()}, "object": {id.String()}}}
	if c.String("output") != "table" {
		return logprint.Print(c, api.Log(c.Context, query), false, line.Options{})
	}
	found := false
	for entry, err := range api.Log(c.Context, query) {
		if err != nil {
			return err
		}
		found = true
		if err := output.Printf(c.App.Writer, "%s\n", vmmLine(entry)); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("the log keeps nothing of VMM %s: is it a VM's UUID? rutter vmm list instance_id=%s", id, id)
	}
	return nil
}

// vmmLine is one state of a VMM.
func vmmLine(entry log.Line) string {
	vmm, ok := entry.Event.Object.(*log.VMM)
	if !ok || entry.Event.Action == log.Delete {
		return fmt.Sprintf("%s #%d deleted  by %s", entry.Event.Time, entry.Seq, entry.Event.Actor)
	}
	text := fmt.Sprintf("%s #%d gen %d %s", entry.Event.Time, entry.Seq, vmm.Gen, vmm.State)
	if vmm.Reason != "" {
		text += ": " + vmm.Reason
	}
	return text + "  by " + entry.Event.Actor
}
