package projections

import (
	"fmt"
	"slices"
	"strconv"

	"rutter/log"
)

// SettingCNMaxVMs is how many VMs a compute node may have by its own word; the
// other limits of what it owns follow from it. What operators place is their word.
const SettingCNMaxVMs = "cn.max_vms"

// Limits of what a compute node may own. They are decided in the log's order,
// since of two changes at once each might be the last that fits.
const (
	// MaxVMsOfCN: the fullest nodes run some thousand zones; eight times as many
	// have no room in any machine of today, and are 8 MB of a server's memory.
	MaxVMsOfCN = 8192
	// nicsPerVM: a VM rarely has more than two, and the node has its own.
	nicsPerVM = 4
	// vmmsPerVM: one that runs, and those that ended in the last hour, when
	// upkeep deletes them.
	vmmsPerVM = 4
	// MaxMigrationsOfVM: one at a time, and those that failed in the last hour.
	MaxMigrationsOfVM = 64
	// MaxAggregationsOfCN: bonds, of at least two ports each.
	MaxAggregationsOfCN = 64
	// mostCNVMs is the highest that the setting may be.
	mostCNVMs = 1_000_000
)

// ownedLimit is a limit of objects of one kind.
type ownedLimit struct {
	name  string // in refusals and docs/safety.md
	most  int
	sets  []func(*store) *sorted[*row] // each of which may have so many
	owner string
}

// cnMaxVMs is the setting by now.
func (d *draft) cnMaxVMs() int {
	n, err := strconv.Atoi(d.setting(SettingCNMaxVMs))
	if err != nil {
		return MaxVMsOfCN
	}
	return n
}

// limitOf is the limit that another object o of cn's meets; none for kinds that a
// compute node does not make.
func (d *draft) limitOf(cn log.UUID, o log.Object) (l ownedLimit, ok bool) {
	l.owner = "compute node " + cn.String()
	one := func(pick func(*store) *sorted[*row]) { l.sets = append(l.sets, pick) }
	switch o := o.(type) {
	case *log.VM:
		l.name, l.most = "cn_vms", d.cnMaxVMs()
		one(func(s *store) *sorted[*row] { return s.vmsOnCN[cn] })
	case *log.NIC:
		l.name, l.most = "cn_nics", nicsPerVM*d.cnMaxVMs()
		one(func(s *store) *sorted[*row] { return s.nicsOnCN[cn] })
		one(func(s *store) *sorted[*row] { return s.nicsOf.many[cn] }) // its own, which may name no CN
	case *log.VMM:
		l.name, l.most = "cn_vmms", vmmsPerVM*d.cnMaxVMs()
		one(func(s *store) *sorted[*row] { return s.vmmsOnCN[cn] })
	case *log.Migration:
		l.name, l.most, l.owner = "vm_migrations", MaxMigrationsOfVM, "vm "+o.InstanceID.String()
		one(func(s *store) *sorted[*row] { return s.migrationsOf[o.InstanceID] })
	case *log.Aggregation:
		l.name, l.most = "cn_aggregations", MaxAggregationsOfCN
		one(func(s *store) *sorted[*row] { return s.byNet.aggrsOn[cn] })
	default:
		return l, false
	}
	return l, true
}

// checkOwned refuses what gives a compute node more objects than it may own: a new
// one, or one that was another's. before is nil for a create.
func (d *draft) checkOwned(op *log.Op, before, after log.Object) {
	by := d.change.By
	if by.Role != log.RoleCN || d.refused() || d.base.Feature() < log.FeatureContained {
		return
	}
	if before != nil && !comesTo(by.CN, before, after) {
		return
	}
	l, ok := d.limitOf(by.CN, after)
	if !ok || !slices.ContainsFunc(l.sets, func(pick func(*store) *sorted[*row]) bool { return d.countOwned(pick, l.most) >= l.most }) {
		return
	}
	message := fmt.Sprintf("%s has %d %ss, the most that it may have (limit %s)", l.owner, l.most, kindWords[op.Kind], l.name)
	d.refuse(log.CodeLimit, message, log.FieldError{
		Field: idField[op.Kind], Code: log.ElementInvalid, Message: message,
		Remedy: "delete what is not needed, or have an operator raise the setting " + SettingCNMaxVMs,
	})
}

// comesTo reports whether an update makes an object cn's that was another's.
func comesTo(cn log.UUID, before, after log.Object) bool {
	switch o := after.(type) {
	case *log.VM:
		return o.ServerUUID == cn && before.(*log.VM).ServerUUID != cn
	case *log.NIC:
		return cnOf(o) == cn && cnOf(before.(*log.NIC)) != cn
	}
	return false // others stay where they are
}

// countOwned is how many objects an index has by now, exactly if that could be
// most or more. What a change itself touched is all that is looked at one by one.
func (d *draft) countOwned(pick func(*store) *sorted[*row], most int) int {
	base := pick(&d.base.store)
	n := base.len() + pick(d.top).len()
	if n < most {
		return n
	}
	for k := range d.gone { // their number is the same in any order
		if r := d.base.row(k.kind, k.key); r != nil && base != nil {
			if chunk, at, found := base.find(r); found && base.chunks[chunk][at] == r {
				n--
			}
		}
	}
	return n
}
