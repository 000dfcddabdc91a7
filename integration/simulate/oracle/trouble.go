package oracle

import (
	"slices"
	"strings"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
)

// Carried is how long an agent may take to program what was written while only its disk has trouble:
// a pass whose two dumps and steps take as long as a simulated kernel ever takes, and the pause
// behind it (package agent, passShare).
const Carried = 30 * time.Second

// cache looks for agents that waited for their disks.
func cache(p *past, report report) {
	var disks []diskTrouble // under way
	var wrote []seen.Write
	looks := make(map[string]seen.Agent)
	for _, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Write:
			if e.Outcome == seen.Accepted {
				wrote = append(wrote, e)
			}
		case seen.Restored:
			disks = nil
		case seen.Agent:
			looks[r.Who] = e
		case seen.Process:
			disks = slices.DeleteFunc(disks, func(t diskTrouble) bool {
				return t.fault.On == r.Who || strings.HasPrefix(r.Who, "s") || isReplica(r.Who)
			})
		case seen.Fault:
			if !e.Over {
				disks = slices.DeleteFunc(disks, func(t diskTrouble) bool { return t.mixedWith(e.Fault) })
			}
			switch i := slices.IndexFunc(disks, func(t diskTrouble) bool { return t.fault == e.Fault }); {
			case e.Over && i >= 0:
				disks[i].judge(r.At, wrote, looks, report)
				disks = slices.Delete(disks, i, i+1)
			case !e.Over && ofDisk(e.Fault) && alone(p, r):
				disks = append(disks, diskTrouble{e.Fault, r.At})
			}
		}
	}
}

// diskTrouble is a fault of an agent's disk that is under way, alone.
type diskTrouble struct {
	fault history.Fault
	began time.Duration
}

// ofDisk reports whether a fault is of the disk of an agent.
func ofDisk(f history.Fault) bool {
	return strings.HasPrefix(f.On, "cn") && (f.Kind == history.Hang || f.Kind == history.Full || f.Kind == history.SlowSync)
}

// mixedWith reports whether another fault may keep the agent from programming.
func (t diskTrouble) mixedWith(f history.Fault) bool {
	return !strings.HasPrefix(f.On, "cn") || f.On == t.fault.On || f.To == t.fault.On
}

// alone reports whether no fault was under way for a while before a record of one.
func alone(p *past, r seen.Record) bool {
	t := diskTrouble{fault: r.Event.(seen.Fault).Fault}
	for _, before := range p.records[:r.N] {
		e, is := before.Event.(seen.Fault)
		if is && t.mixedWith(e.Fault) && before.At+e.Fault.For > r.At-Carried {
			return false
		}
	}
	return true
}

// judge looks at the end of the fault whether the agent has programmed what is old enough.
func (t diskTrouble) judge(at time.Duration, wrote []seen.Write, looks map[string]seen.Agent, report report) {
	const between = 2 * time.Second // of looks
	for _, w := range slices.Backward(wrote) {
		if w.Until < at-between-Carried || w.Until < t.began-Carried {
			if has := looks[t.fault.On].Programmed.Seq; has < w.Result.Last {
				report("%s had programmed %d at %v, and %d was written at %v: its disk had trouble since %v", t.fault.On, has, at, w.Result.Last, w.Until, t.began)
			}
			return
		}
	}
}
