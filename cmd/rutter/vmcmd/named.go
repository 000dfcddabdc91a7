package vmcmd

import (
	"encoding/json"
	"fmt"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/named"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/vmhost"
	"rutter/log"
	"rutter/projections"
)

// vmNamed returns the VM of this compute node that text names: by its UUID, which need not
// be there; else, among those that vminfod shows, by its alias, the MAC of a NIC or the
// beginning of its UUID. What a name means is as in all commands: see package naming.
func vmNamed(c *cli.Context, text string) (log.UUID, error) {
	if id, err := log.ParseUUID(text); err == nil {
		return id, nil
	}
	raw, err := vmhost.Client(c).Get(c.Context, "/vms")
	if err != nil {
		return log.UUID{}, vmhost.Unreachable(c, err)
	}
	state, err := stateOf(raw)
	if err != nil {
		return log.UUID{}, err
	}
	o, err := named.InState(state, log.KindVM, text)
	if err != nil {
		return log.UUID{}, err
	}
	return log.ParseUUID(o.ID)
}

// stateOf returns a state of what the VMs of a vminfod are named by.
func stateOf(raw []byte) (*projections.State, error) {
	var all []map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("vminfod answered no list of VMs: %w", err)
	}
	state := projections.NewState()
	seq := log.Seq(0)
	load := func(o log.Object) error {
		seq++
		return state.Load(projections.Record{Object: o, Revision: 1, Seq: seq})
	}
	for _, vm := range all {
		id, err := log.ParseUUID(output.Text(vm["uuid"]))
		if err != nil {
			continue // it is named by nothing that the log takes
		}
		alias, _ := vm["alias"].(string)
		owner, _ := log.ParseUUID(output.Text(vm["owner_uuid"]))
		if err := load(&log.VM{UUID: id, Alias: alias, OwnerUUID: owner}); err != nil {
			return nil, err
		}
		nics, _ := vm["nics"].([]any)
		for _, nic := range nics {
			fields, _ := nic.(map[string]any)
			mac, err := log.ParseMAC(output.Text(fields["mac"]))
			if err != nil {
				continue
			}
			if err := load(&log.NIC{MAC: mac, BelongsToType: "zone", BelongsToUUID: id, OwnerUUID: owner}); err != nil {
				return nil, err
			}
		}
	}
	return state, nil
}

// wantVM is the error of a command without the one VM that it is about.
func wantVM(c *cli.Context) error {
	return term.Usagef("want one VM, by its UUID, its alias, a MAC or the beginning of its UUID, as in: rutter vm %s web0", c.Command.Name)
}
