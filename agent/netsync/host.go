package netsync

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"rutter/agent/sysinfo"
	"rutter/log"
	"rutter/projections"
)

// Host is the compute node's own part, from its sysinfo. It only goes to the log:
// nothing of it is written to the node (RFD 28).
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
	NICTag string     // the tag of its address; "": unknown
	VLAN   uint32     // likewise
}

// HostAggregation is a bond of them.
type HostAggregation struct {
	Name, LACPMode string
	MACs           []log.MAC
	Tags           []string
}

// vnicName is the name of a virtual NIC: its nic tag and a number (spec/net-agent.md
// §2.5).
var vnicName = regexp.MustCompile(`^([a-zA-Z0-9_]{0,31})[0-9]+$`)

// HostOf returns a node's own part from its sysinfo (spec/net-agent.md §2.5). If links
// share a MAC, as VLANs do with the link under them, the first counts: physical ones
// come first. An aggregation is not a NIC; its members are.
func HostOf(info *sysinfo.Info, owner log.UUID) Host {
	h := Host{Owner: owner}
	if info == nil {
		return h
	}
	admin := cmp.Or(info.AdminTag, adminTag)
	provides := make(map[string][]string) // tags, by link
	for i := range info.Aggregations {
		provides[info.Aggregations[i].Name] = nil
	}
	seen := make(map[log.MAC]bool)
	for _, virtual := range []bool{false, true} {
		for i := range info.NICs {
			nic := &info.NICs[i]
			if nic.Virtual != virtual {
				continue
			}
			if !virtual {
				_, aggregated := provides[nic.Name]
				provides[nic.Name] = nic.Tags
				if aggregated {
					continue
				}
			}
			if seen[nic.MAC] {
				continue
			}
			seen[nic.MAC] = true
			one := HostNIC{MAC: nic.MAC, Up: nic.Up, IP: nic.IP}
			if !virtual {
				one.Tags = nic.Tags
				if slices.Contains(nic.Tags, admin) {
					one.NICTag = admin
				}
			} else if m := vnicName.FindStringSubmatch(nic.Name); m != nil && slices.Contains(provides[nic.Host], m[1]) {
				one.NICTag, one.VLAN = m[1], nic.VLAN
			}
			h.NICs = append(h.NICs, one)
		}
	}
	for i := range info.Aggregations {
		a := &info.Aggregations[i]
		h.Aggregations = append(h.Aggregations, HostAggregation{Name: a.Name, LACPMode: a.LACPMode, MACs: info.MACs(a), Tags: provides[a.Name]})
	}
	return h
}

// passHost compares the node's own NICs and aggregations with the log. One that the
// node lacks stays in the log, as in net-agent: its driver may not be loaded.
func (c *core) passHost(in *input, p *plan) {
	for i := range in.host.NICs {
		c.hostNIC(in, p, &in.host.NICs[i])
	}
	for i := range in.host.Aggregations {
		c.hostAggregation(in, p, &in.host.Aggregations[i])
	}
}

func (c *core) hostNIC(in *input, p *plan, local *HostNIC) {
	remote, rec, known, asked := c.remote(in, local.MAC)
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
		if t := c.looks[local.MAC]; t != nil { // it is valid until a server says otherwise
			t.refusal = "this node's, it belongs to " + remote.BelongsToType + " " + remote.BelongsToUUID.String() + " in the log"
		}
		return
	}
	if t := c.looks[local.MAC]; t != nil {
		t.refusal = ""
	}
	want.BelongsToType, want.BelongsToUUID, want.CNUUID, want.OwnerUUID, want.State = "server", c.cn, c.cn, in.host.Owner, "stopped"
	if local.Up {
		want.State = "running"
	}
	if len(local.Tags) > 0 {
		want.NICTagsProvided = slices.Compact(slices.Sorted(slices.Values(local.Tags)))
	}
	if local.IP.IsValid() && !want.IP.IsValid() && local.NICTag != "" {
		want.IP, want.NICTag, want.VLANID = local.IP, local.NICTag, local.VLAN
	}
	op := log.Op{Action: log.Update, Kind: log.KindNIC, ID: local.MAC.String(), IfMatch: rec.Revision, IfSeq: rec.Seq, Object: want, Options: anyOwner}
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
	c.send(in, p, local.MAC, "host/"+rec.ETag()+strings.Join(op.Set, "/")+want.State, log.UUID{}, op)
}

// placeholder: booter makes it before a node first starts, with any owner.
func placeholder(nic *log.NIC, admin log.UUID) bool {
	return nic.BelongsToType == "other" && nic.BelongsToUUID == admin && !admin.IsZero()
}

// hostAggregation makes the log's aggregation match the node's, once its NICs are in
// the log.
func (c *core) hostAggregation(in *input, p *plan, local *HostAggregation) {
	if len(local.MACs) == 0 {
		return
	}
	want := &log.Aggregation{ // lists in the log's order
		BelongsToUUID: c.cn, Name: local.Name, LACPMode: local.LACPMode,
		MACs:            slices.Compact(slices.SortedFunc(slices.Values(local.MACs), func(x, y log.MAC) int { return slices.Compare(x[:], y[:]) })),
		NICTagsProvided: slices.Compact(slices.Sorted(slices.Values(local.Tags))),
	}
	for _, mac := range local.MACs {
		if nic, _, known, _ := c.remote(in, mac); !known || nic == nil {
			return
		}
	}
	held, rec, known := c.remoteAggregation(in, want.ID(), aggregationKey(local))
	if !known {
		if due(c.looks, aggregationKey(local), "aggregation/"+local.LACPMode, in.now) {
			p.aggregations = append(p.aggregations, want.ID())
		}
		return
	}
	op := log.Op{Action: log.Create, Kind: log.KindAggregation, Object: want, Set: []string{"lacp_mode", "macs", "name"}}
	key := "aggregation/" + local.LACPMode
	if held != nil {
		if len(local.Tags) == 0 {
			want.NICTagsProvided = held.NICTagsProvided // tags that are unknown here clear nothing
		}
		op = log.Op{Action: log.Update, Kind: log.KindAggregation, ID: want.ID(), IfMatch: rec.Revision, IfSeq: rec.Seq, Object: want}
		for _, changed := range log.Diff(held, want) {
			op.Set = append(op.Set, changed.Path)
		}
		if key += "/" + rec.ETag(); len(op.Set) == 0 {
			return
		}
	} else if len(local.Tags) > 0 {
		op.Set = append(op.Set, "nic_tags_provided")
	}
	slices.Sort(op.Set)
	c.send(in, p, aggregationKey(local), key, log.UUID{}, op)
}

// remoteAggregation is an aggregation in the log. The node's part of the log has those
// of the node, so a server is asked only if it is missing there.
func (c *core) remoteAggregation(in *input, id string, key log.MAC) (a *log.Aggregation, rec projections.Record, known bool) {
	rec, ok := in.state.Get(log.KindAggregation, id)
	if f, told := c.found[id]; told && f.Kind == log.KindAggregation && c.foundSeq >= max(in.place.Seq, rec.Seq) {
		a, _ = f.Object.(*log.Aggregation) // nil: it does not exist
		return a, projections.Record{Object: f.Object, Revision: f.Revision, Seq: f.Seq}, true
	}
	if !ok || in.place.Seq < c.after[key] {
		return nil, rec, false
	}
	return rec.Object.(*log.Aggregation), rec, true
}

// aggregationKey is the key of an aggregation among the attempts, which are by MAC: its
// first member's MAC with a bit that no NIC's MAC has.
func aggregationKey(a *HostAggregation) log.MAC {
	mac := a.MACs[0]
	mac[0] |= 1
	return mac
}
