package vmcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmrun"
	"rutter/agent/vmsource/registered"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/vmhost"
	"rutter/log"
)

// vmManifestCommands make, change and remove the manifests of VMs.
func vmManifestCommands() []*cli.Command {
	return []*cli.Command{
		{
			Name: "create", Usage: "make a VM of this compute node; a NIC that names a network_uuid and no mac is provisioned in the log", ArgsUsage: "FIELD=VALUE ... | -f FILE",
			Flags: vmActionFlags(vmCreatedWithin, term.FileFlag(),
				&cli.BoolFlag{Name: "start", Usage: "and start it"},
				&cli.StringFlag{Name: "cn", EnvVars: []string{"RUTTER_CN"}, Usage: "`UUID` of this compute node; its agent knows it"}),
			Action: vmCreate,
			Description: term.Examples(
				"rutter vm create alias=web0 owner_uuid=930896af-bf8c-48d4-885c-6573a94b1853 quota=10",
				"rutter vm create -f web0.json --wait=fabric      # its own links are made when it is started",
				"rutter vm create -f web0.json --start --wait=fabric",
				`rutter vm create alias=web1 owner_uuid=930896af-bf8c-48d4-885c-6573a94b1853 root=/var/lib/rutter-vms/web1 'init=["/usr/sbin/httpd","-f"]'`,
			),
		},
		{
			Name: "update", Usage: "change fields of a VM's manifest; null takes a field away", ArgsUsage: "VM FIELD=VALUE ... | VM -f FILE",
			Flags: vmActionFlags(vmSeenWithin, term.FileFlag()), Action: vmUpdate,
			Description: term.Examples("rutter vm update "+term.ExampleVM+" quota=20 alias=web7", "rutter vm update "+term.ExampleVM+" max_physical_memory=512 --wait=cluster"),
		},
		{
			Name: "delete", Usage: "stop a VM by force and remove its manifest; what it has in the log goes as well", ArgsUsage: "VM",
			Flags: vmActionFlags(vmSeenWithin), Action: vmControl(deleteVM),
			Description: term.Examples("rutter vm delete "+term.ExampleVM, "rutter vm delete "+term.ExampleVM+" --wait=fabric"),
		},
	}
}

// factFields are read from the system, never from a manifest.
var factFields = []string{"state", "zone_state", "pid", "boot_timestamp", "last_modified", "transition_to"}

// vmFields reads the fields of a VM from arguments or --file.
func vmFields(c *cli.Context, args []string) (vmdoc.Value, error) {
	var v vmdoc.Value
	if name := c.String("file"); name != "" {
		if len(args) > 0 {
			return v, term.Usagef("--file and FIELD=VALUE exclude each other")
		}
		b, err := term.ReadInput(c.Context, name)
		if err != nil {
			return v, err
		}
		if v, err = vmdoc.ParseValue(b); err != nil || !v.IsObject() {
			return v, term.Usagef("%s: want a JSON object of fields (%w)", name, err)
		}
	} else {
		v, _ = vmdoc.ParseValue([]byte("{}")) // it is JSON
		for _, arg := range args {
			name, value, ok := strings.Cut(arg, "=")
			if !ok || name == "" {
				return v, term.Usagef("%q: want FIELD=VALUE", arg)
			}
			v = v.With(name, vmhost.FieldValue(name, value))
		}
	}
	for _, name := range factFields {
		if _, ok := v.Get(name); ok {
			return v, term.Usagef("%s is what the system says of a VM: leave it out", name)
		}
	}
	return v, nil
}

func vmCreate(c *cli.Context) error {
	fields, err := vmFields(c, c.Args().Slice())
	if err != nil {
		return err
	}
	id := log.UUID(uuid.New())
	if text := vmhost.StringOf(fields, "uuid"); text != "" {
		if id, err = log.ParseUUID(text); err != nil {
			return term.Usagef("uuid: %w", err)
		}
	}
	if owner, err := log.ParseUUID(vmhost.StringOf(fields, "owner_uuid")); err != nil || owner.IsZero() {
		return term.Usagef("owner_uuid is missing: give the UUID of the VM's owner, without which the log does not take it (%w)", err)
	}
	fields = fields.With("uuid", vmdoc.StringValue(id.String()))
	return runVMAction(c, id, func(ctx context.Context, a *vmAction) (string, error) {
		if _, err := a.runner.Manifest(id); !errors.Is(err, vmrun.ErrNoVM) {
			return "", fmt.Errorf("%w: %s; rutter vm update changes it (%w)", vmrun.ErrExists, id, err)
		}
		provisioned, err := a.provision(ctx, fields)
		if err != nil {
			return "", err
		}
		there := func(_ vmdoc.Value, gone bool) bool { return !gone }
		if err := a.visible(ctx, there, func() error { return a.runner.Create(provisioned) }); err != nil {
			return "", err
		}
		if !c.Bool("start") {
			return "is created", nil
		}
		if _, err = startVM(ctx, a); err != nil {
			return "", fmt.Errorf("VM %s is created, and does not run: %w", id, err)
		}
		return "is created and runs", nil
	})
}

// provision creates in the log, in one change, the VM and those of its NICs that name a
// network and no MAC. It returns the manifest with them.
func (a *vmAction) provision(ctx context.Context, fields vmdoc.Value) (vmdoc.Value, error) {
	nics, _ := fields.Get("nics")
	ops := []log.Op{{Action: log.Create, Kind: log.KindVM}}
	for _, nic := range nics.Items() {
		if vmhost.StringOf(nic, "mac") == "" {
			ops = append(ops, log.Op{Action: log.Create, Kind: log.KindNIC})
		}
	}
	if len(ops) == 1 {
		return fields, nil
	}
	cn, err := a.cn(ctx)
	if err != nil {
		return fields, err
	}
	vm := map[string]any{"uuid": a.id, "server_uuid": cn, "state": "provisioning"}
	for _, name := range []string{"alias", "owner_uuid", "brand", "zonename"} {
		if s := vmhost.StringOf(fields, name); s != "" {
			vm[name] = s
		}
	}
	if ops[0].Object, ops[0].Set, err = parsedObject(log.KindVM, vm); err != nil {
		return fields, err
	}
	at := 1
	for i, nic := range nics.Items() {
		if vmhost.StringOf(nic, "mac") != "" {
			continue
		}
		wanted := map[string]any{"belongs_to_type": "zone", "belongs_to_uuid": a.id, "cn_uuid": cn, "owner_uuid": vmhost.StringOf(fields, "owner_uuid"), "primary": i == 0}
		for _, name := range log.FieldNames(log.KindNIC) {
			if v, ok := nic.Get(name); ok {
				wanted[name] = v
			}
		}
		if ops[at].Object, ops[at].Set, err = parsedObject(log.KindNIC, wanted); err != nil {
			return fields, fmt.Errorf("nics.%d: %w", i, err)
		}
		at++
	}
	api, err := a.servers()
	if err != nil {
		return fields, err
	}
	change := &log.Change{ID: client.NewChangeID(), Ops: ops}
	result, err := api.Submit(ctx, change)
	if refusal, is := errors.AsType[*log.Refusal](err); is {
		return fields, fmt.Errorf("its NICs in the log: %w%s", err, registered.Hint(refusal, networksOf(ops)...))
	}
	if err != nil {
		return fields, fmt.Errorf("its NICs in the log: %w", err)
	}
	a.written = change
	return a.withNICs(ctx, api, fields, result.IDs[1:])
}

// networksOf are the networks of the NICs that operations make.
func networksOf(ops []log.Op) (networks []log.UUID) {
	for _, op := range ops {
		if nic, is := op.Object.(*log.NIC); is && !nic.NetworkUUID.IsZero() {
			networks = append(networks, nic.NetworkUUID)
		}
	}
	return networks
}

func parsedObject(kind log.Kind, fields map[string]any) (log.Object, []string, error) {
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil, nil, err
	}
	return log.ParseObject(kind, raw)
}

// manifestNIC are the fields that a NIC of the log gives to a manifest.
var manifestNIC = strings.Fields("mac ip netmask gateway mtu vlan_id nic_tag network_uuid primary model resolvers routes")

// withNICs adds the NICs that the log created to a manifest, in their order.
func (a *vmAction) withNICs(ctx context.Context, api *client.Client, fields vmdoc.Value, macs []string) (vmdoc.Value, error) {
	nics, _ := fields.Get("nics")
	list := slices.Clone(nics.Items())
	for i, nic := range list {
		if vmhost.StringOf(nic, "mac") != "" || len(macs) == 0 {
			continue
		}
		made, err := api.Get(ctx, "/nics/"+macs[0], nil)
		if err != nil {
			return fields, err
		}
		macs = macs[1:]
		for _, name := range manifestNIC {
			raw, err := json.Marshal(made[name])
			if err != nil {
				return fields, err
			}
			if v, err := vmdoc.ParseValue(raw); err == nil && !v.IsNull() {
				nic = nic.With(name, v)
			}
		}
		if ip := output.Text(made["ip"]); ip != "-" {
			nic = nic.With("ips", vmdoc.ArrayValue(vmdoc.StringValue(ip+prefixOf(ctx, api, output.Text(made["network_uuid"])))))
		}
		list[i] = nic
	}
	return fields.With("nics", vmdoc.ArrayValue(list...)), nil
}

// prefixOf is the length of a network's prefix, as in "/24".
func prefixOf(ctx context.Context, api *client.Client, network string) string {
	n, err := api.Get(ctx, "/networks/"+network, nil)
	if err != nil {
		return ""
	}
	_, length, _ := strings.Cut(output.Text(n["subnet"]), "/")
	return "/" + length
}

// cn returns this compute node's UUID.
func (a *vmAction) cn(ctx context.Context) (cn log.UUID, err error) {
	if given := a.c.String("cn"); given != "" {
		if cn, err = log.ParseUUID(given); err != nil {
			return cn, term.Usagef("--cn: %w", err)
		}
		return cn, nil
	}
	var s struct {
		CN log.UUID `json:"cn"`
	}
	if err := a.get(ctx, a.c.String("agent"), "/status", &s); err != nil {
		return cn, fmt.Errorf("which compute node is this? Its agent at %s does not say (--agent names another, --cn gives the UUID): %w", a.c.String("agent"), err)
	}
	return s.CN, nil
}

func vmUpdate(c *cli.Context) error {
	if c.NArg() < 1 {
		return term.Usagef("want one VM, by its UUID, its alias, a MAC or the beginning of its UUID, and FIELD=VALUE, as in: rutter vm update web0 quota=20")
	}
	fields, err := vmFields(c, c.Args().Tail())
	if err != nil {
		return err
	}
	if len(fields.Keys()) == 0 {
		return term.Usagef("no fields: give FIELD=VALUE, or --file with JSON")
	}
	if _, ok := fields.Get("uuid"); ok {
		return term.Usagef("uuid: a VM keeps its UUID")
	}
	id, err := vmNamed(c, c.Args().First())
	if err != nil {
		return err
	}
	return runVMAction(c, id, func(ctx context.Context, a *vmAction) (string, error) {
		v, err := a.runner.Manifest(id)
		if err != nil {
			return "", err
		}
		ops, err := vmhost.CheckUpdate(v, fields)
		if err != nil {
			return "", err
		}
		if err := a.submitNICOps(ctx, ops); err != nil {
			return "", err
		}
		updated := func(vm vmdoc.Value, gone bool) bool { return !gone && hasFields(vm, fields) }
		return "is updated", a.visible(ctx, updated, func() error {
			return a.runner.Edit(id, func(v vmdoc.Value) vmdoc.Value { return vmdoc.Updated(v, fields) })
		})
	})
}

// hasFields reports whether a VM has the given fields. NICs are compared with the
// addresses that they really have.
func hasFields(vm, fields vmdoc.Value) bool {
	for _, name := range fields.Keys() {
		if name == "nics" || vmdoc.IsVerb(name) {
			continue
		}
		want, _ := fields.Get(name)
		if got, ok := vm.Get(name); want.IsNull() && !vmdoc.IsDefault(vm, name) && name != "zonename" || !want.IsNull() && (!ok || !got.Equal(want)) {
			return false
		}
	}
	return true
}

func deleteVM(ctx context.Context, a *vmAction) (string, error) {
	api, err := a.servers()
	if err != nil {
		return "", err
	}
	if a.c.String("wait") == waitFabric && !a.byNode() {
		if a.gone, err = a.scopes(ctx, api); err != nil {
			return "", err
		}
	}
	if vmm, managed, err := a.vmm(ctx); err != nil {
		return "", err
	} else if managed {
		if err := a.ask(ctx, "DELETE", "/vmms/"+vmm.ID.String(), nil); err != nil {
			return "", err
		}
	}
	if err := a.runner.Stop(ctx, a.id, true); err != nil && !errors.Is(err, vmrun.ErrNotRunning) {
		return "", err
	}
	if err := a.deleteNICs(ctx, api); err != nil {
		output.Printf(a.c.App.ErrWriter, "rutter: its NICs stay in the log: %v\n", err)
	}
	done := "is deleted"
	if others := a.duplicates(); others != nil {
		done = fmt.Sprintf("is deleted; but %s stood aside as another manifest of it, and is the VM now: remove that as well", strings.Join(others, ", "))
	}
	away := func(_ vmdoc.Value, gone bool) bool { return gone }
	return done, a.visible(ctx, away, func() error { return a.runner.Remove(ctx, a.id) })
}

// deleteNICs deletes the VM's NICs in the log, in one change.
func (a *vmAction) deleteNICs(ctx context.Context, api *client.Client) error {
	nics, err := api.List(ctx, "/nics", url.Values{"belongs_to_uuid": {a.id.String()}})
	if err != nil || len(nics) == 0 {
		return err
	}
	change := &log.Change{ID: client.NewChangeID()}
	for _, nic := range nics {
		change.Ops = append(change.Ops, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: output.Text(nic["mac"])})
	}
	_, err = api.Submit(ctx, change)
	a.written = change
	return err
}

// submitNICOps writes the changes of NICs of an update to the log.
func (a *vmAction) submitNICOps(ctx context.Context, ops []log.Op) error {
	if len(ops) == 0 {
		return nil
	}
	api, err := a.servers()
	if err != nil {
		return err
	}
	if _, err := api.Submit(ctx, &log.Change{ID: client.NewChangeID(), Ops: ops}); err != nil {
		return fmt.Errorf("its NICs in the log: %w", err)
	}
	return nil
}
