package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

func newClient(c *cli.Context) (*client.Client, error) {
	return clientThatAwaits(c, 0)
}

// newWriter is newClient for a command with waitFlags.
func newWriter(c *cli.Context) (*client.Client, error) {
	await, err := awaitOf(c)
	if err != nil {
		return nil, err
	}
	return clientThatAwaits(c, await)
}

func clientThatAwaits(c *cli.Context, await time.Duration) (*client.Client, error) {
	cfg, err := term.ClientConfig(c)
	cfg.Await = await
	return term.OpenClient(cfg, err)
}

// columnsOf are the columns of a kind's tables.
func columnsOf(kind log.Kind) (all []column) {
	for _, c := range kind.Describe().Command.Columns {
		all = append(all, field(c.Title, c.Field))
	}
	return all
}

// placedKinds are the kinds whose commands have their place in the program's list.
var placedKinds = []log.Kind{log.KindNICTag, log.KindNetwork, log.KindNIC, log.KindServer, log.KindVM, log.KindVMM, log.KindSetting}

// otherKinds are the commands of the other kinds that have one.
func otherKinds() (all []*cli.Command) {
	for _, kind := range log.Kinds() {
		if kind.Describe().Command.Name != "" && !slices.Contains(placedKinds, kind) {
			all = append(all, objectCommand(kind))
		}
	}
	return all
}

// objectCommand is the command of one kind of object, as the table of kinds has it.
func objectCommand(kind log.Kind) *cli.Command {
	d := kind.Describe()
	name, e := d.Command.Name, d.Command.Example
	o := objectsOf(kind)
	flags := slices.Clip([]cli.Flag{serversFlag(), outputFlag()})
	return &cli.Command{
		Name: name, Usage: d.Command.Usage, Category: "Objects",
		Description: examples(
			"rutter "+name+" list",
			"rutter "+name+" get "+e.ID+" -o json",
			"rutter "+name+" create "+e.Create,
			"rutter "+name+" create -f "+name+".json",
			"rutter "+name+" delete "+e.ID+" --wait fabric --timeout 5s   # until no kernel has it",
		),
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list them; FIELD=VALUE selects", ArgsUsage: "[FIELD=VALUE ...]", Flags: flags, Action: o.list,
				Description: examples("rutter "+name+" list", "rutter "+name+" list "+e.Pick+" -o ndjson"),
			},
			{
				Name: "get", Usage: "show one", ArgsUsage: "ID", Flags: flags, Action: o.get,
				Description: examples("rutter "+name+" get "+e.ID, "rutter "+name+" get "+e.ID+" -o json"),
			},
			{
				Name: "create", Usage: "create one", ArgsUsage: "FIELD=VALUE ... | -f FILE", Flags: append(flags, append(waitFlags(), fileFlag())...), Action: o.create,
				Description: examples("rutter "+name+" create "+e.Create, "rutter "+name+" create -f "+name+".json --wait fabric"),
			},
			{
				Name: "update", Usage: "change fields of one", ArgsUsage: "ID FIELD=VALUE ... | ID -f FILE", Flags: append(flags, append(waitFlags(), fileFlag(), ifMatchFlag())...), Action: o.update,
				Description: examples("rutter "+name+" update "+e.ID+" "+e.Change, "rutter "+name+" update "+e.ID+" -f "+name+".json --wait fabric --timeout 5s"),
			},
			{
				Name: "delete", Usage: "delete one", ArgsUsage: "ID", Flags: append(flags, append(waitFlags(), ifMatchFlag())...), Action: o.delete,
				Description: examples("rutter "+name+" delete "+e.ID, "rutter "+name+" delete "+e.ID+" --wait fabric --timeout 5s   # until no kernel has it"),
			},
		},
	}
}

func fileFlag() cli.Flag {
	return &cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "JSON `FILE` with the fields, - for standard input"}
}

func ifMatchFlag() cli.Flag {
	return &cli.StringFlag{Name: "if-match", Usage: "do it only if the object's Etag is still `ETAG`"}
}

// objects are the actions on one kind.
type objects struct {
	path    string
	kind    log.Kind
	columns []column
}

// objectsOf are the actions on a kind, as the table of kinds has it.
func objectsOf(kind log.Kind) objects {
	return objects{path: "/" + kind.Describe().Path, kind: kind, columns: columnsOf(kind)}
}

// conditions are the arguments FIELD=VALUE of a list.
func conditions(c *cli.Context) (url.Values, error) {
	query := url.Values{}
	for _, arg := range c.Args().Slice() {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, usagef("%q: want FIELD=VALUE", arg)
		}
		query.Set(name, value)
	}
	return query, nil
}

// selected are the objects that the conditions of a command select, and the client
// that was asked.
func (o objects) selected(c *cli.Context) (*client.Client, []client.Object, error) {
	query, err := conditions(c)
	if err != nil {
		return nil, nil, err
	}
	api, err := newClient(c)
	if err != nil {
		return nil, nil, err
	}
	list, err := api.List(c.Context, o.path, query)
	return api, list, err
}

// named is the object that a command names.
func (o objects) named(c *cli.Context) (client.Object, error) {
	path, err := o.one(c)
	if err != nil {
		return nil, err
	}
	api, err := newClient(c)
	if err != nil {
		return nil, err
	}
	return api.Get(c.Context, path, nil)
}

func (o objects) list(c *cli.Context) error {
	_, list, err := o.selected(c)
	if err != nil {
		return err
	}
	return printObjects(c, list, o.columns)
}

func (o objects) get(c *cli.Context) error {
	object, err := o.named(c)
	if err != nil {
		return err
	}
	return o.print(c, object)
}

// one returns the path of the object that the first argument names.
func (o objects) one(c *cli.Context) (string, error) {
	if c.NArg() < 1 {
		return "", usagef("the id is missing: %s %s", c.Command.HelpName, c.Command.ArgsUsage)
	}
	return o.path + "/" + c.Args().First(), nil
}

func (o objects) create(c *cli.Context) error {
	body, err := o.body(c, c.Args().Slice())
	if err != nil {
		return err
	}
	api, err := newWriter(c)
	if err != nil {
		return err
	}
	object, err := api.Create(c.Context, o.path, body)
	if err != nil {
		return pending(c, err)
	}
	return o.print(c, object)
}

func (o objects) update(c *cli.Context) error {
	path, err := o.one(c)
	if err != nil {
		return err
	}
	body, err := o.body(c, c.Args().Tail())
	if err != nil {
		return err
	}
	api, err := newWriter(c)
	if err != nil {
		return err
	}
	object, err := api.Update(c.Context, path, body, c.String("if-match"))
	if err != nil {
		return pending(c, err)
	}
	return o.print(c, object)
}

func (o objects) delete(c *cli.Context) error {
	path, err := o.one(c)
	if err != nil {
		return err
	}
	if c.NArg() > 1 {
		return usagef("delete takes one id, and got %q besides", strings.Join(c.Args().Tail(), " "))
	}
	api, err := newWriter(c)
	if err != nil {
		return err
	}
	return pending(c, api.Delete(c.Context, path, c.String("if-match")))
}

func (o objects) print(c *cli.Context, object client.Object) error {
	if c.String("output") == "table" {
		return printObjects(c, []map[string]any{object}, o.columns)
	}
	return printOne(c, object, nil)
}

// maxInput bounds a JSON file of fields: what a server would take.
const maxInput = log.MaxChangeBytes

// body makes a JSON object of FIELD=VALUE arguments, or reads it from --file.
func (o objects) body(c *cli.Context, args []string) ([]byte, error) {
	if name := c.String("file"); name != "" {
		if len(args) > 0 {
			return nil, usagef("--file and FIELD=VALUE exclude each other")
		}
		return readInput(c.Context, name)
	}
	if len(args) == 0 {
		return nil, usagef("no fields: give FIELD=VALUE, or --file with JSON; the fields are %s", strings.Join(log.FieldNames(o.kind), ", "))
	}
	fields := make(map[string]any, len(args))
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, usagef("%q: want FIELD=VALUE", arg)
		}
		fields[name] = fieldValue(o.kind, name, value)
	}
	return json.Marshal(fields)
}

func readInput(ctx context.Context, name string) ([]byte, error) {
	in, err := term.Input(ctx, name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxInput {
		return nil, fmt.Errorf("%s: more than %d bytes", name, maxInput)
	}
	return b, nil
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
