package foresee

import (
	"slices"
	"strconv"
	"strings"

	"rutter/log"
)

// DrawnVNet stands in texts of links for the number of a vnet that the servers draw.
const DrawnVNet = "(new vnet)"

// drawn marks what the servers draw when they decide changes without a seed: the vnet of an
// owner's first fabric network. It must not be shown as if it were known. The state is the
// one before.
func (f *fold) drawn(out *Outcome, changes []*log.Change) {
	numbers := map[uint32]bool{}
	for i, c := range changes {
		for _, l := range out.Changes[i].Events {
			n, is := l.Event.Object.(*log.Network)
			if is && c.Seed == 0 && l.Event.Action == log.Create && n.Fabric && !named(changes, n.VNetID) && !f.hasVNet(n.VNetID) {
				numbers[n.VNetID] = true
			}
		}
	}
	if len(numbers) == 0 {
		return
	}
	for i := range out.Objects {
		fields := out.Objects[i].Fields
		for j := range fields {
			number, is := fields[j].New.(uint64)
			if is && fields[j].Path == "vnet_id" && numbers[uint32(number)] {
				fields[j].New, fields[j].Drawn = nil, true
			}
		}
	}
	for i := range out.Nodes {
		for j := range out.Nodes[i].Links {
			l := &out.Nodes[i].Links[j]
			for number := range numbers {
				text := strconv.FormatUint(uint64(number), 10)
				l.Key, l.After = strings.ReplaceAll(l.Key, text, DrawnVNet), strings.ReplaceAll(l.After, text, DrawnVNet)
			}
		}
	}
}

// named reports whether an operation itself gives a vnet.
func named(changes []*log.Change, vnet uint32) bool {
	return slices.ContainsFunc(changes, func(c *log.Change) bool {
		return slices.ContainsFunc(c.Ops, func(op log.Op) bool {
			n, is := op.Object.(*log.Network)
			return is && n.VNetID == vnet && slices.Contains(op.Set, "vnet_id")
		})
	})
}

// hasVNet reports whether a fabric network of the state is on a vnet.
func (f *fold) hasVNet(vnet uint32) bool {
	for r := range f.state.List(log.KindNetwork) {
		if n, is := r.Object.(*log.Network); is && n.Fabric && n.VNetID == vnet {
			return true
		}
	}
	return false
}
