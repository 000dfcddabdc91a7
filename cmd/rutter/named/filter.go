package named

import (
	"errors"
	"strconv"
	"strings"

	"rutter/api/client"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// Finder finds the one object of a kind that a text names, as Object does.
type Finder func(kind log.Kind, text string) (client.Named, error)

// anyKinds are the kinds among which a name without a kind is looked for.
var anyKinds = []log.Kind{log.KindVM, log.KindNetwork, log.KindServer, log.KindNetworkPool, log.KindRouter}

// Filter returns the value of a filter of log entries, by its name in package query, with
// ids in the place of names. kind is the value of the filter of that name: "" is any. A name
// of --object that no object has stays as it is: the object may be gone.
func Filter(find Finder, kind, filter, value string) (string, error) {
	parts := strings.Split(value, ",")
	for i, part := range parts {
		if part == "" {
			continue // refused where filters are read
		}
		id := part
		var err error
		switch filter {
		case "vnet":
			if _, wrong := strconv.ParseUint(part, 10, 64); wrong != nil {
				var vnet uint32
				if vnet, err = VNet(part, find); err != nil {
					err = term.Usagef("--vnet: %w", err)
				}
				id = strconv.FormatUint(uint64(vnet), 10)
			}
		case "cn", "network":
			var o client.Named
			o, err = find(map[string]log.Kind{"cn": log.KindServer, "network": log.KindNetwork}[filter], part)
			id = o.ID
		case "object":
			id, err = objectID(find, kind, part)
		}
		if err != nil {
			return "", err
		}
		parts[i] = id
	}
	return strings.Join(parts, ","), nil
}

// objectID returns the id that --object means: of a kind, or of any.
func objectID(find Finder, kind, text string) (string, error) {
	if kind == "" {
		return anyID(find, text)
	}
	k, err := log.ParseKind(kind)
	if err != nil || k.Describe().IDForm == log.IDText || k.Describe().IDForm == log.IDPair {
		return text, nil // a wrong kind is refused where it is read
	}
	o, err := find(k, text)
	if gone(err) {
		return text, nil // the log says
	}
	return o.ID, err
}

func gone(err error) bool {
	refusal, is := errors.AsType[*log.Refusal](err)
	return is && refusal.Code == log.CodeResourceNotFound
}

func anyID(find Finder, text string) (string, error) {
	if _, err := log.ParseUUID(text); err == nil {
		return text, nil
	}
	if _, err := log.ParseMAC(text); err == nil || strings.Contains(text, "/") {
		return text, nil
	}
	var all []client.Named
	for _, kind := range anyKinds {
		switch o, err := find(kind, text); {
		case err == nil:
			all = append(all, o)
		case !gone(err):
			return "", err
		}
	}
	switch len(all) {
	case 0:
		return text, nil
	case 1:
		return all[0].ID, nil
	}
	list := ""
	for _, o := range all {
		list += "\n" + o.Kind.String() + " " + o.ID + " " + output.Visible(o.Name)
	}
	return "", term.Usagef("--object: %s names several objects: give the id of one of them, or --kind%s", output.Visible(text), list)
}
