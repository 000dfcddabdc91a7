package netsync

import (
	"net/netip"
	"slices"
	"strings"

	"rutter/log"
)

// Host is what the compute node itself has, as its sysinfo says. It only goes
// up: nothing of it is ever written to the node (RFD 28).
type Host struct {
	Owner        log.UUID // of its NICs: the administrator
	NICs         []HostNIC
	Aggregations []HostAggregation
}

// HostNIC is a NIC of the node, physical or virtual.
type HostNIC struct {
	MAC    log.MAC
	Up     bool
	IP     netip.Addr // not valid: none
	Tags   []string   // nic tags that it provides
	NICTag string     // that its address is on; "": not known
	VLAN   uint32     // likewise
}

// HostAggregation is a bond of them.
type HostAggregation struct {
	Name, LACPMode string
	MACs           []log.MAC
	Tags           []string
}

// passHost compares the node's own NICs and aggregations with the log. What is
// not there any more is left in the log, as net-agent does: a NIC that does not
// show itself may be one whose driver is not loaded.
func (c *core) passHost(in *input, p *plan) {
	for i := range in.host.NICs {
		c.hostNIC(in, p, &in.host.NICs[i])
	}
	for i := range in.host.Aggregations {
		c.hostAggregation(in, p, &in.host.Aggregations[i])
	}
}

func (c *core) hostNIC(in *input, p *plan, local *HostNIC) {
	remote, revision, known, asked := c.remote(in, local.MAC)
	if !known {
		c.ask(in, p, local.MAC, "host")
		return
	}
	want := &log.NIC{MAC: local.MAC}
	if remote != nil {
		want = log.Clone(remote).(*log.NIC)
	}
	if remote != nil && !(remote.BelongsToType == "server" && remote.BelongsToUUID == c.cn) && !placeholder(remote, in.host.Owner) {
		if !asked {
			c.ask(in, p, local.MAC, "host")
			return
		}
		p.notes = append(p.notes, "NIC "+local.MAC.String()+" of this node belongs to "+remote.BelongsToType+" "+remote.BelongsToUUID.String()+" in the log")
		return
	}
	want.BelongsToType, want.BelongsToUUID, want.CNUUID, want.OwnerUUID, want.State = "server", c.cn, c.cn, in.host.Owner, "stopped"
	if local.Up {
		want.State = "running"
	}
	if len(local.Tags) > 0 {
		want.NICTagsProvided = slices.Sorted(slices.Values(local.Tags))
	}
	if local.IP.IsValid() && !want.IP.IsValid() && local.NICTag != "" {
		want.IP, want.NICTag, want.VLANID = local.IP, local.NICTag, local.VLAN
	}
	op := log.Op{Action: log.Update, Kind: log.KindNIC, ID: local.MAC.String(), IfMatch: revision, Object: want, Options: anyOwner}
	before := remote
	if remote == nil {
		op, before = log.Op{Action: log.Create, Kind: log.KindNIC, Object: want, Options: anyOwner, Set: []string{"mac"}}, &log.NIC{MAC: local.MAC}
	}
	for _, changed := range log.Diff(before, want) {
		op.Set = append(op.Set, changed.Path)
	}
	if want.NICTag != "" && want.IP.IsValid() && !slices.Contains(op.Set, "vlan_id") && slices.Contains(op.Set, "ip") {
		op.Set = append(op.Set, "vlan_id") // also when it is untagged
	}
	if remote != nil && len(op.Set) == 0 {
		return
	}
	slices.Sort(op.Set)
	c.send(in, p, local.MAC, "host/"+revision.String()+strings.Join(op.Set, "/")+want.State, log.UUID{}, op)
}

// placeholder: booter makes it before a node first starts, for whoever has it.
func placeholder(nic *log.NIC, admin log.UUID) bool {
	return nic.BelongsToType == "other" && nic.BelongsToUUID == admin && !admin.IsZero()
}

// hostAggregation has the log know an aggregation as it is here, once its NICs
// are there.
func (c *core) hostAggregation(in *input, p *plan, local *HostAggregation) {
	want := &log.Aggregation{BelongsToUUID: c.cn, Name: local.Name, LACPMode: local.LACPMode, MACs: local.MACs, NICTagsProvided: local.Tags}
	if len(local.MACs) == 0 {
		return
	}
	for _, mac := range local.MACs {
		if nic, _, known, _ := c.remote(in, mac); !known || nic == nil {
			return
		}
	}
	held, known := c.found[want.ID()]
	if !known {
		if due(c.looks, aggregationKey(local), "aggregation/"+local.LACPMode, in.now) {
			p.aggregations = append(p.aggregations, want.ID())
		}
		return
	}
	op := log.Op{Action: log.Create, Kind: log.KindAggregation, Object: want, Set: []string{"lacp_mode", "macs", "name"}}
	key := "aggregation/" + local.LACPMode
	if held.Object != nil {
		op = log.Op{Action: log.Update, Kind: log.KindAggregation, ID: want.ID(), IfMatch: held.Revision, Object: want}
		for _, changed := range log.Diff(held.Object, want) {
			op.Set = append(op.Set, changed.Path)
		}
		if key += "/" + held.Revision.String(); len(op.Set) == 0 {
			return
		}
	} else if len(local.Tags) > 0 {
		op.Set = append(op.Set, "nic_tags_provided")
	}
	slices.Sort(op.Set)
	c.send(in, p, aggregationKey(local), key, log.UUID{}, op)
}

// aggregationKey stands for an aggregation among the tries, which are by MAC: its
// first member's with the bit that no NIC's has.
func aggregationKey(a *HostAggregation) log.MAC {
	mac := a.MACs[0]
	mac[0] |= 1
	return mac
}
