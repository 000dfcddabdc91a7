package vmhost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vminfod"
	"rutter/agent/vmsource"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// AddressFlag is the address of a vminfod.
func AddressFlag() cli.Flag {
	return &cli.StringFlag{Name: "address", EnvVars: []string{"RUTTER_VMINFOD"}, Value: "127.0.0.1:9090", Usage: "`ADDRESS` of the vminfod that is asked"}
}

// Client returns a client of the vminfod that AddressFlag names.
func Client(c *cli.Context) *vminfod.Client {
	return clientOf(c.String("address"), "rutter vminfo "+c.Command.Name)
}

// clientOf returns a client of a vminfod at an address, HOST:PORT. On this machine the
// vminfod must belong to root or to our user: what it shows is followed.
func clientOf(address, name string) *vminfod.Client {
	client := vminfod.New(address, name)
	_, client.Transport = localhttp.Reach(address)
	return client
}

// Unreachable distinguishes a vminfod that does not answer from one that refuses.
func Unreachable(c *cli.Context, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return term.NoAnswerError(fmt.Sprintf("no vminfod answers at %s: %v (rutter agent has one; --address names another)", c.String("address"), err))
	}
	return err
}

// WriteJSON prints an answer of a vminfod: unchanged with --json, else indented.
func WriteJSON(c *cli.Context, text []byte) error {
	if c.Bool("json") {
		return output.JSONText(c.App.Writer, text)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return fmt.Errorf("vminfod answered no JSON: %w", err)
	}
	return output.JSONText(c.App.Writer, out.Bytes())
}

// WriteTable prints a vminfod's list of VMs as a table.
func WriteTable(out io.Writer, answer []byte) error {
	var vms []map[string]any
	if err := json.Unmarshal(answer, &vms); err != nil {
		return fmt.Errorf("vminfod answered no list of VMs: %w", err)
	}
	w := output.Aligned(out)
	output.Print(w, "UUID\tALIAS\tSTATE\tPID\tMEMORY\tADDRESSES\n")
	for _, vm := range vms {
		var addresses []any
		nics, _ := vm["nics"].([]any)
		for _, nic := range nics {
			fields, _ := nic.(map[string]any)
			ips, here := fields[vmdoc.KernelIPs].([]any) // what it has now, if that is known
			if !here {
				ips, _ = fields["ips"].([]any)
			}
			addresses = append(addresses, ips...)
		}
		output.Printf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", output.Text(vm["uuid"]), output.Text(vm["alias"]), output.Text(vm["state"]), output.Text(vm["pid"]), output.Text(vm["max_physical_memory"]), output.Text(addresses))
	}
	return w.Flush()
}

// WriteSources prints the sources of VMs, and which manifests are left out and why.
func WriteSources(w io.Writer, title string, sources []vmsource.Status) {
	for _, source := range sources {
		output.Printf(w, "%s   %s: %s; %d scans found %d changes that events had missed\n", title, source.Name, source.State, source.Scans, source.Missed)
		for _, skip := range source.Skips {
			output.Printf(w, "%*s   without %s\n", len(title), "", skip)
		}
		for _, aside := range source.Aside {
			output.Printf(w, "%*s   aside since %s: %s: %s\n", len(title), "", aside.Since.Format(time.RFC3339), aside.Name, aside.Reason)
		}
	}
}
