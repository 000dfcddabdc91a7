package objects

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/await"
	"rutter/cmd/rutter/named"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// Columns are the columns of a kind's tables.
func Columns(kind log.Kind) (all []output.Column) {
	for _, c := range kind.Describe().Command.Columns {
		all = append(all, output.Field(c.Title, c.Field))
	}
	return all
}

// NetworkCommands are the commands of networks, NICs and the other kinds of networking.
func NetworkCommands() []*cli.Command {
	return []*cli.Command{Command(log.KindNICTag), Command(log.KindNetwork), Command(log.KindNIC)}
}

// OtherCommands are the commands of the kinds that have no special commands.
func OtherCommands() []*cli.Command {
	all := []*cli.Command{Command(log.KindSetting), Command(log.KindVM)}
	for _, kind := range log.Kinds() {
		if kind.Describe().Command.Name != "" && !slices.Contains(placedKinds, kind) {
			all = append(all, Command(kind))
		}
	}
	return all
}

// placedKinds are the kinds whose commands package main places itself.
var placedKinds = []log.Kind{log.KindNICTag, log.KindNetwork, log.KindNIC, log.KindServer, log.KindVM, log.KindVMM, log.KindSetting}

// Command is the command of one kind of object, as the table of kinds has it.
func Command(kind log.Kind) *cli.Command {
	d := kind.Describe()
	name, e := d.Command.Name, d.Command.Example
	o := Of(kind)
	flags := slices.Clip([]cli.Flag{term.ServersFlag(), output.TableFlag()})
	return &cli.Command{
		Name: name, Usage: d.Command.Usage, Category: "Objects",
		Description: term.Examples(
			"rutter "+name+" list",
			"rutter "+name+" get "+e.ID+" -o json",
			"rutter "+name+" create "+e.Create,
			"rutter "+name+" create -f "+name+".json",
			"rutter "+name+" delete "+e.ID+" --wait fabric --timeout 5s   # until no kernel has it",
		),
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list them; FIELD=VALUE selects", ArgsUsage: "[FIELD=VALUE ...]", Flags: flags, Action: o.list,
				Description: term.Examples("rutter "+name+" list", "rutter "+name+" list "+e.Pick+" -o ndjson", "rutter "+name+" list -o csv > "+name+".csv"),
			},
			{
				Name: "get", Usage: "show one, by its id, name, alias, hostname, address or MAC, or the beginning of its id", ArgsUsage: "ID", Flags: flags, Action: o.get,
				Description: term.Examples("rutter "+name+" get "+e.ID, "rutter "+name+" get "+e.ID+" -o json"),
			},
			{
				Name: "create", Usage: "create one", ArgsUsage: "FIELD=VALUE ... | -f FILE", Flags: append(flags, append(await.Flags(), term.FileFlag())...), Action: o.create,
				Description: term.Examples("rutter "+name+" create "+e.Create, "rutter "+name+" create -f "+name+".json --wait fabric"),
			},
			{
				Name: "update", Usage: "change fields of one", ArgsUsage: "ID FIELD=VALUE ... | ID -f FILE", Flags: append(flags, append(await.Flags(), term.FileFlag(), ifMatchFlag())...), Action: o.update,
				Description: term.Examples("rutter "+name+" update "+e.ID+" "+e.Change, "rutter "+name+" update "+e.ID+" -f "+name+".json --wait fabric --timeout 5s"),
			},
			{
				Name: "delete", Usage: "delete one", ArgsUsage: "ID", Flags: append(flags, append(await.Flags(), ifMatchFlag())...), Action: o.delete,
				Description: term.Examples("rutter "+name+" delete "+e.ID, "rutter "+name+" delete "+e.ID+" --wait fabric --timeout 5s   # until no kernel has it"),
			},
		},
	}
}

func ifMatchFlag() cli.Flag {
	return &cli.StringFlag{Name: "if-match", Usage: "do it only if the object's Etag is still `ETAG`"}
}

// Collection has the actions on one kind.
type Collection struct {
	Path    string
	Kind    log.Kind
	Columns []output.Column
}

// Of are the actions on a kind, as the table of kinds has it.
func Of(kind log.Kind) Collection {
	return Collection{Path: "/" + kind.Describe().Path, Kind: kind, Columns: Columns(kind)}
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

// Selected returns the objects that the conditions of a command select, and the client
// that read them.
func (o Collection) Selected(c *cli.Context) (*client.Client, []client.Object, error) {
	query, err := Conditions(c)
	if err != nil {
		return nil, nil, err
	}
	for name := range query {
		value, err := named.Reference(c, name, query.Get(name))
		if err != nil {
			return nil, nil, err
		}
		query.Set(name, value)
	}
	api, err := term.NewClient(c)
	if err != nil {
		return nil, nil, err
	}
	list, err := api.List(c.Context, o.Path, query)
	return api, list, err
}

// Named returns the object that a command names.
func (o Collection) Named(c *cli.Context) (client.Object, error) {
	api, err := term.NewClient(c)
	if err != nil {
		return nil, err
	}
	path, _, err := o.one(c, api)
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

// one returns the path of the object that the first argument names, and the Etag that it
// must have for a write: that of --if-match, else of the object that a name was found to
// mean, so that a write is refused if the name may mean another by then.
func (o Collection) one(c *cli.Context, api *client.Client) (path, etag string, err error) {
	if err := o.oneNamed(c); err != nil {
		return "", "", err
	}
	found, err := named.Object(c.Context, api, o.Kind, c.Args().First())
	return o.Path + "/" + found.ID, cmp.Or(c.String("if-match"), found.ETag), err
}

func (o Collection) oneNamed(c *cli.Context) error {
	if c.NArg() < 1 || c.Args().First() == "" {
		return term.Usagef("the id is missing: %s %s", c.Command.HelpName, c.Command.ArgsUsage)
	}
	return nil
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
	if err := o.oneNamed(c); err != nil {
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
	path, etag, err := o.one(c, api)
	if err != nil {
		return err
	}
	object, err := api.Update(c.Context, path, body, etag)
	if err != nil {
		return await.Pending(c, err)
	}
	return o.print(c, object)
}

func (o Collection) delete(c *cli.Context) error {
	if err := o.oneNamed(c); err != nil {
		return err
	}
	if c.NArg() > 1 {
		return term.Usagef("delete takes one id, and got %q besides", strings.Join(c.Args().Tail(), " "))
	}
	api, err := await.Client(c)
	if err != nil {
		return err
	}
	path, etag, err := o.one(c, api)
	if err != nil {
		return err
	}
	return await.Pending(c, api.Delete(c.Context, path, etag))
}

func (o Collection) print(c *cli.Context, object client.Object) error {
	if format := c.String("output"); format == "table" || format == "csv" {
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
		value, err := named.Reference(c, name, value)
		if err != nil {
			return nil, err
		}
		fields[name] = fieldValue(o.Kind, name, value)
	}
	return json.Marshal(fields)
}

// fieldValue is the JSON value of an argument. If the argument is JSON that the field
// accepts (a number, true, a list, an object), it stays. Else it is a text.
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
	// A list may be given without brackets, separated by commas.
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
