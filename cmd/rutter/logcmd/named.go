package logcmd

import (
	"errors"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/named"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections/naming"
)

// found returns the object of a kind that text names: among those of the servers, or of
// the log that --data names, at its head.
func found(c *cli.Context, kind log.Kind, text string) (o client.Named, err error) {
	if id, is := naming.IsID(kind, text); is {
		return client.Named{Kind: kind, ID: id, By: "id"}, nil
	}
	if c.String("data") == "" {
		api, err := term.NewClient(c)
		if err != nil {
			return o, err
		}
		defer api.Close()
		return named.Object(c.Context, api, kind, text)
	}
	past, err := openPast(c)
	if err != nil {
		return o, err
	}
	defer closeJoining(past, &err)
	state, err := past.state(c.Context, past.head, statePart{})
	if err != nil {
		return o, err
	}
	return named.InState(state, kind, text)
}

// objectID returns the id of the object that a text names; kind may be "", or no kind that
// has names: then the text is the id.
func objectID(c *cli.Context, kind, text string) (string, error) {
	k, err := kindNamed(kind)
	if err != nil || k.Describe().IDForm == log.IDText || k.Describe().IDForm == log.IDPair {
		return text, nil // a wrong kind is refused where it is read
	}
	o, err := found(c, k, text)
	if refusal, is := errors.AsType[*log.Refusal](err); is && refusal.Code == log.CodeResourceNotFound {
		return text, nil // it may be one that is gone: the log says
	}
	return o.ID, err
}

// vnetOf returns the vnet that a flag names, by its number or by a fabric network on it.
func vnetOf(c *cli.Context, text string) (uint32, error) {
	return named.VNet(text, func(kind log.Kind, text string) (client.Named, error) { return found(c, kind, text) })
}

// filterIDs returns the value of a filter with ids in the place of names.
func filterIDs(c *cli.Context, filter, value string) (string, error) {
	find := func(kind log.Kind, text string) (client.Named, error) { return found(c, kind, text) }
	return named.Filter(find, c.String("kind"), filter, value)
}
