package objects

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/await"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// Columns of the tables of objects.
var (
	tagColumns     = []output.Column{output.Field("NAME", "name"), output.Field("MTU", "mtu"), output.Field("UUID", "uuid")}
	networkColumns = []output.Column{
		output.Field("UUID", "uuid"), output.Field("NAME", "name"), output.Field("SUBNET", "subnet"), output.Field("TAG", "nic_tag"), output.Field("VLAN", "vlan_id"),
		output.Field("VNET", "vnet_id"), output.Field("GATEWAY", "gateway"), output.Field("MTU", "mtu"),
	}
	nicColumns = []output.Column{
		output.Field("MAC", "mac"), output.Field("IP", "ip"), output.Field("TYPE", "belongs_to_type"), output.Field("BELONGS TO", "belongs_to_uuid"),
		output.Field("NETWORK", "network_uuid"), output.Field("CN", "cn_uuid"), output.Field("STATE", "state"),
	}
	VMColumns = []output.Column{
		output.Field("UUID", "uuid"), output.Field("ALIAS", "alias"), output.Field("STATE", "state"), output.Field("CN", "server_uuid"), output.Field("OWNER", "owner_uuid"),
	}
	settingColumns = []output.Column{output.Field("NAME", "name"), output.Field("VALUE", "value")}
	VMMColumns     = []output.Column{output.Field("ID", "id"), output.Field("VM", "instance_id"), output.Field("CN", "sled_id"), output.Field("STATE", "state"), output.Field("GEN", "gen")}
	CNColumns      = []output.Column{output.Field("UUID", "uuid"), output.Field("HOSTNAME", "hostname"), output.Field("STATUS", "status"), output.Field("SETUP", "setup")}
)

// NetworkCommands are the commands of what networks are made of.
func NetworkCommands() []*cli.Command {
	return []*cli.Command{
		Command("tag", "nic_tags", "NIC tags: the physical networks", log.KindNICTag, tagColumns),
		Command("network", "networks", "networks, fabric networks among them", log.KindNetwork, networkColumns),
		Command("nic", "nics", "network interfaces of VMs and servers", log.KindNIC, nicColumns),
	}
}

// OtherCommands are the commands of the other kinds that have nothing but objects.
func OtherCommands() []*cli.Command {
	return []*cli.Command{
		Command("setting", "settings", "what the cluster is told about itself: napi.network_immutable (true: networks refuse new VLANs, tags and fabric gateways, as NAPI does)", log.KindSetting, settingColumns),
		Command("inventory", "vms", "VMs as the log has them, of all compute nodes", log.KindVM, VMColumns),
	}
}

// Command is the command of one kind of object, whose objects stand at path.
func Command(name, path, usage string, kind log.Kind, columns []output.Column) *cli.Command {
	e := objectExamples[kind]
	o := Collection{Path: "/" + path, Kind: kind, Columns: columns}
	flags := slices.Clip([]cli.Flag{term.ServersFlag(), output.Flag()})
	return &cli.Command{
		Name: name, Usage: usage, Category: "Objects",
		Description: term.Examples(
			"rutter "+name+" list",
			"rutter "+name+" get "+e.id+" -o json",
			"rutter "+name+" create "+e.create,
			"rutter "+name+" create -f "+name+".json",
			"rutter "+name+" delete "+e.id+" --wait fabric --timeout 5s   # until no kernel has it",
		),
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list them; FIELD=VALUE selects", ArgsUsage: "[FIELD=VALUE ...]", Flags: flags, Action: o.list,
				Description: term.Examples("rutter "+name+" list", "rutter "+name+" list "+e.pick+" -o ndjson"),
			},
			{
				Name: "get", Usage: "show one", ArgsUsage: "ID", Flags: flags, Action: o.get,
				Description: term.Examples("rutter "+name+" get "+e.id, "rutter "+name+" get "+e.id+" -o json"),
			},
			{
				Name: "create", Usage: "create one", ArgsUsage: "FIELD=VALUE ... | -f FILE", Flags: append(flags, append(await.Flags(), term.FileFlag())...), Action: o.create,
				Description: term.Examples("rutter "+name+" create "+e.create, "rutter "+name+" create -f "+name+".json --wait fabric"),
			},
			{
				Name: "update", Usage: "change fields of one", ArgsUsage: "ID FIELD=VALUE ... | ID -f FILE", Flags: append(flags, append(await.Flags(), term.FileFlag(), ifMatchFlag())...), Action: o.update,
				Description: term.Examples("rutter "+name+" update "+e.id+" "+e.change, "rutter "+name+" update "+e.id+" -f "+name+".json --wait fabric --timeout 5s"),
			},
			{
				Name: "delete", Usage: "delete one", ArgsUsage: "ID", Flags: append(flags, append(await.Flags(), ifMatchFlag())...), Action: o.delete,
				Description: term.Examples("rutter "+name+" delete "+e.id, "rutter "+name+" delete "+e.id+" --wait fabric --timeout 5s   # until no kernel has it"),
			},
		},
	}
}

// objectExample is what the help of a kind's commands shows: an id, what selects
// some, the fields of a new one, and those of a change.
type objectExample struct{ id, pick, create, change string }

var objectExamples = map[log.Kind]objectExample{
	log.KindNICTag: {"external", "mtu=1500", "name=external mtu=1500", "mtu=9000"},
	log.KindNetwork: {
		"0e70de36-a40b-4ac0-9429-819f5ff82011", "fabric=true",
		"name=blue nic_tag=external vlan_id=0 subnet=10.1.0.0/24 provision_start_ip=10.1.0.5 provision_end_ip=10.1.0.250", "gateway=10.1.0.1",
	},
	log.KindNIC: {
		"90:b8:d0:10:02:00", "cn_uuid=564d69b1-a178-4fbe-b36f-3f2b7fd7ed01",
		"belongs_to_type=zone belongs_to_uuid=VM owner_uuid=OWNER cn_uuid=CN network_uuid=NETWORK", "state=running",
	},
	log.KindVM:      {term.ExampleVM, "state=running", "alias=web0 owner_uuid=OWNER server_uuid=CN", "alias=web1"},
	log.KindVMM:     {term.ExampleVM, "state=running", "instance_id=VM sled_id=CN state=running gen=1", "state=stopped gen=2"},
	log.KindSetting: {"napi.network_immutable", "value=true", "name=napi.network_immutable value=true", "value=false"},
	log.KindServer:  {"564d69b1-a178-4fbe-b36f-3f2b7fd7ed01", "status=unknown", "uuid=CN hostname=cn1", "reserved=true"},
}

func ifMatchFlag() cli.Flag {
	return &cli.StringFlag{Name: "if-match", Usage: "do it only if the object's Etag is still `ETAG`"}
}

// Collection are the actions on one kind.
type Collection struct {
	Path    string
	Kind    log.Kind
	Columns []output.Column
}

// Conditions are the arguments FIELD=VALUE of a list.
func Conditions(c *cli.Context) (url.Values, error) {
	query := url.Values{}
	for _, arg := range c.Args().Slice() {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, term.Usagef("%q: want FIELD=VALUE", arg)
		}
		query.Set(name, value)
	}
	return query, nil
}

// Selected are the objects that the conditions of a command select, and the client
// that was asked.
func (o Collection) Selected(c *cli.Context) (*client.Client, []client.Object, error) {
	query, err := Conditions(c)
	if err != nil {
		return nil, nil, err
	}
	api, err := term.NewClient(c)
	if err != nil {
		return nil, nil, err
	}
	list, err := api.List(c.Context, o.Path, query)
	return api, list, err
}

// Named is the object that a command names.
func (o Collection) Named(c *cli.Context) (client.Object, error) {
	path, err := o.one(c)
	if err != nil {
		return nil, err
	}
	api, err := term.NewClient(c)
	if err != nil {
		return nil, err
	}
	return api.Get(c.Context, path, nil)
}

func (o Collection) list(c *cli.Context) error {
	_, list, err := o.Selected(c)
	if err != nil {
		return err
	}
	return output.Objects(c, list, o.Columns)
}

func (o Collection) get(c *cli.Context) error {
	object, err := o.Named(c)
	if err != nil {
		return err
	}
	return o.print(c, object)
}

// one returns the path of the object that the first argument names.
func (o Collection) one(c *cli.Context) (string, error) {
	if c.NArg() < 1 {
		return "", term.Usagef("the id is missing: %s %s", c.Command.HelpName, c.Command.ArgsUsage)
	}
	return o.Path + "/" + c.Args().First(), nil
}

func (o Collection) create(c *cli.Context) error {
	body, err := o.body(c, c.Args().Slice())
	if err != nil {
		return err
	}
	api, err := await.Client(c)
	if err != nil {
		return err
	}
	object, err := api.Create(c.Context, o.Path, body)
	if err != nil {
		return await.Pending(c, err)
	}
	return o.print(c, object)
}

func (o Collection) update(c *cli.Context) error {
	path, err := o.one(c)
	if err != nil {
		return err
	}
	body, err := o.body(c, c.Args().Tail())
	if err != nil {
		return err
	}
	api, err := await.Client(c)
	if err != nil {
		return err
	}
	object, err := api.Update(c.Context, path, body, c.String("if-match"))
	if err != nil {
		return await.Pending(c, err)
	}
	return o.print(c, object)
}

func (o Collection) delete(c *cli.Context) error {
	path, err := o.one(c)
	if err != nil {
		return err
	}
	if c.NArg() > 1 {
		return term.Usagef("delete takes one id, and got %q besides", strings.Join(c.Args().Tail(), " "))
	}
	api, err := await.Client(c)
	if err != nil {
		return err
	}
	return await.Pending(c, api.Delete(c.Context, path, c.String("if-match")))
}

func (o Collection) print(c *cli.Context, object client.Object) error {
	if c.String("output") == "table" {
		return output.Objects(c, []map[string]any{object}, o.Columns)
	}
	return output.One(c, object, nil)
}

// body makes a JSON object of FIELD=VALUE arguments, or reads it from --file.
func (o Collection) body(c *cli.Context, args []string) ([]byte, error) {
	if name := c.String("file"); name != "" {
		if len(args) > 0 {
			return nil, term.Usagef("--file and FIELD=VALUE exclude each other")
		}
		return term.ReadInput(c.Context, name)
	}
	if len(args) == 0 {
		return nil, term.Usagef("no fields: give FIELD=VALUE, or --file with JSON; the fields are %s", strings.Join(log.FieldNames(o.Kind), ", "))
	}
	fields := make(map[string]any, len(args))
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, term.Usagef("%q: want FIELD=VALUE", arg)
		}
		fields[name] = fieldValue(o.Kind, name, value)
	}
	return json.Marshal(fields)
}

// fieldValue is the JSON value of an argument: what is JSON already if the
// field takes it (a number, true, a list, an object), else the text itself.
func fieldValue(kind log.Kind, name, value string) any {
	var v any
	if json.Unmarshal([]byte(value), &v) == nil {
		raw, err := json.Marshal(map[string]any{name: v})
		if err == nil {
			if _, _, err := log.ParseObject(kind, raw); err == nil {
				return v
			}
		}
	}
	// A list may be given bare, parted by commas.
	var refusal *log.Refusal
	raw, err := json.Marshal(map[string]any{name: value})
	if err != nil {
		return value
	}
	if _, _, err := log.ParseObject(kind, raw); errors.As(err, &refusal) && len(refusal.Errors) == 1 && strings.HasPrefix(refusal.Errors[0].Remedy, "send a list") {
		return strings.Split(value, ",")
	}
	return value
}
