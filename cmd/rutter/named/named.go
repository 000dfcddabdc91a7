// Package named finds the objects that the arguments and flags of commands name: by asking
// the servers, or in a state that a command has read itself. What a name means is said by
// package naming of projections.
package named

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/naming"
)

// Object returns the one object of a kind that text names. The whole form of an id is not
// looked up: then only Kind and ID are set. Errors: a usage error that lists the
// candidates; a *log.Refusal if there is none.
func Object(ctx context.Context, api *client.Client, kind log.Kind, text string) (client.Named, error) {
	return At(ctx, api, kind, text, "")
}

// At is Object at a place of the log; "" is now.
func At(ctx context.Context, api *client.Client, kind log.Kind, text, at string) (client.Named, error) {
	if cut := strings.IndexAny(text, ":/"); kind == log.KindIP && cut > 0 {
		network, err := At(ctx, api, log.KindNetwork, text[:cut], at) // NETWORK:ADDRESS, or with a slash
		return client.Named{Kind: kind, ID: network.ID + ":" + text[cut+1:], By: "id"}, err
	}
	if id, is := naming.IsID(kind, text); is {
		return client.Named{Kind: kind, ID: id, By: "id"}, nil
	}
	found, more, err := api.Names(ctx, []log.Kind{kind}, text, at)
	if err != nil {
		return client.Named{}, err
	}
	return one(kind.Describe().Noun, text, found, more)
}

// ID is the id of what Object finds, and of an address of a network by the network's name, with the servers that a command's flags name. It asks
// none for the whole form of an id.
func ID(c *cli.Context, kind log.Kind, text string) (string, error) {
	if at := strings.IndexAny(text, ":/"); kind == log.KindIP && at > 0 {
		network, err := ID(c, log.KindNetwork, text[:at]) // NETWORK:ADDRESS, or with a slash
		return network + ":" + text[at+1:], err
	}
	if id, is := naming.IsID(kind, text); is {
		return id, nil
	}
	api, err := term.NewClient(c)
	if err != nil {
		return "", err
	}
	defer api.Close()
	o, err := Object(c.Context, api, kind, text)
	return o.ID, err
}

// UUID is ID of a kind whose ids are UUIDs.
func UUID(c *cli.Context, kind log.Kind, text string) (log.UUID, error) {
	id, err := ID(c, kind, text)
	if err != nil {
		return log.UUID{}, err
	}
	return log.ParseUUID(id)
}

// InState is Object in a state that the command has read.
func InState(state *projections.State, kind log.Kind, text string) (client.Named, error) {
	if id, is := naming.IsID(kind, text); is {
		return client.Named{Kind: kind, ID: id, By: "id"}, nil
	}
	answer := naming.Resolve(state, []log.Kind{kind}, text, nil)
	found := make([]client.Named, len(answer.Matches))
	for i, m := range answer.Matches {
		found[i] = client.Named(m)
	}
	return one(kind.Describe().Noun, text, found, answer.More)
}

func one(noun, text string, found []client.Named, more bool) (client.Named, error) {
	switch len(found) {
	case 0:
		return client.Named{}, &log.Refusal{Code: log.CodeResourceNotFound, Message: fmt.Sprintf("no %s is named %s, by id, name, address or the beginning of an id", noun, output.Visible(text))}
	case 1:
		return found[0], nil
	}
	var list string // its names are made visible: they may be of others
	for _, o := range found {
		list += fmt.Sprintf("\n%s %s %s", o.Kind, o.ID, output.Visible(o.Name))
		if !o.Owner.IsZero() {
			list += " of owner " + o.Owner.String()
		}
	}
	if more {
		list += "\nand others"
	}
	return client.Named{}, term.Usagef("%s names several objects of kind %s: give the id of one of them%s", output.Visible(text), noun, list)
}

// VNet returns the number of the vnet that text is, or that the fabric network which it
// names is on.
func VNet(text string, find func(kind log.Kind, text string) (client.Named, error)) (uint32, error) {
	if _, err := strconv.ParseUint(text, 10, 64); err == nil {
		scope, err := log.ParseScope("vnet:" + text)
		if err != nil {
			return 0, term.Usagef("%q: want a vnet, a number from 0 to %d", text, log.MaxVNet)
		}
		return scope.VNet, nil
	}
	o, err := find(log.KindNetwork, text)
	switch {
	case err != nil:
		return 0, err
	case o.VNet == 0:
		return 0, term.Usagef("%s: want a vnet, a number from 0 to %d, or the name of a fabric network", output.Visible(text), log.MaxVNet)
	}
	return o.VNet, nil
}

// references are the fields whose values are ids of objects, with the kinds of these.
var references = map[string]log.Kind{
	"network_uuid": log.KindNetwork, "networks": log.KindNetwork, "cn_uuid": log.KindServer, "server_uuid": log.KindServer, "sled_id": log.KindServer,
	"belongs_to_uuid": log.KindVM, "instance_id": log.KindVM, "vm_uuid": log.KindVM,
}

// Reference returns the value of a field of an argument FIELD=VALUE: with ids in the place
// of names, if it refers to objects; several are separated by commas.
func Reference(c *cli.Context, field, value string) (string, error) {
	kind, refers := references[field]
	if !refers || value == "" || strings.HasPrefix(value, "[") || strings.HasPrefix(value, "~") {
		return value, nil
	}
	parts := strings.Split(value, ",")
	for i, part := range parts {
		of := kind
		if field == "belongs_to_uuid" && belongsToServer(c) {
			of = log.KindServer
		}
		id, err := ID(c, of, part)
		if err != nil {
			return "", fmt.Errorf("%s: %w", field, err)
		}
		parts[i] = id
	}
	return strings.Join(parts, ","), nil
}

// belongsToServer reports whether the arguments say that a NIC belongs to a server.
func belongsToServer(c *cli.Context) bool {
	for _, arg := range c.Args().Slice() {
		if arg == "belongs_to_type=server" {
			return true
		}
	}
	return false
}
