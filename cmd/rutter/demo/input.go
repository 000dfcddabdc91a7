package demo

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"

	"rutter/api/client"
	"rutter/log"
)

// input is a small cloud: two fabrics of two owners on different vnets with the same
// subnets, two CNs, a dozen VMs.
//
//go:embed input.json
var input []byte

// parts are the parts of the input, in the order in which they refer to each other.
var parts = []struct {
	name string
	kind log.Kind
}{{"nic_tags", log.KindNICTag}, {"networks", log.KindNetwork}, {"servers", log.KindServer}, {"vms", log.KindVM}, {"nics", log.KindNIC}}

// loadInput sends the input file to the log, each part as one change.
func (s *stage) loadInput(ctx context.Context) error {
	s.say.begin("An input in NAPI's format")
	total := 0
	err := load(ctx, s.api, s.tagged, func(part string, ops int, result log.Result) {
		total += int(result.Events)
		s.say.detail("%-9s %2d accepted as one change, seq %d to %d", part, ops, result.First, result.Last)
	})
	if err != nil {
		return err
	}
	if err := s.readVMs(ctx); err != nil {
		return err
	}
	s.say.detail("blue0 was given no MAC and no address: the log chose %s and %s, %s", s.vms["blue0"].nics[0].MAC, s.vms["blue0"].address(false), s.vms["blue0"].address(true))
	s.say.result("%d entries, 12 VMs, 2 owners whose fabrics both use 10.21.12.0/24 and fd21:12::/64", total)
	return nil
}

// CNs returns the ids of the input's compute nodes.
func CNs() []log.UUID { return []log.UUID{cnID(0), cnID(1)} }

// Load sends the demo's input to a log, unchanged.
func Load(ctx context.Context, api *client.Client) error {
	return load(ctx, api, true, func(string, int, log.Result) {})
}

// Loaded reports whether a log has networks. Certificates and nodes are in it from the
// start.
func Loaded(ctx context.Context, api *client.Client) (bool, error) {
	text, err := api.Raw(ctx, http.MethodGet, "/networks?limit=1", nil)
	if err != nil {
		return false, err
	}
	var networks []json.RawMessage
	err = json.Unmarshal(text, &networks)
	return len(networks) > 0, err
}

// load sends each part of the input as one change, and reports its result.
func load(ctx context.Context, api *client.Client, tagged bool, tell func(part string, ops int, result log.Result)) error {
	var file map[string]json.RawMessage
	if err := json.Unmarshal(input, &file); err != nil {
		return fmt.Errorf("input.json: %w", err)
	}
	for _, part := range parts {
		ops, err := creates(part.kind, file[part.name], tagged)
		if err != nil {
			return fmt.Errorf("input.json: %s: %w", part.name, err)
		}
		result, err := api.Submit(ctx, &log.Change{ID: client.NewChangeID(), Ops: ops})
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		tell(part.name, len(ops), result)
	}
	return nil
}

// creates turns a list of objects into operations. Where the kernel has no
// 802.1Q, fabric networks lose their VLAN.
func creates(kind log.Kind, list json.RawMessage, tagged bool) ([]log.Op, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(list, &items); err != nil {
		return nil, err
	}
	var ops []log.Op
	for _, item := range items {
		o, set, err := log.ParseObject(kind, item)
		if err != nil {
			return nil, err
		}
		if n, ok := o.(*log.Network); ok && n.Fabric && !tagged {
			n.VLANID = 0
		}
		ops = append(ops, log.Op{Action: log.Create, Kind: kind, Set: set, Object: o})
	}
	return ops, nil
}
