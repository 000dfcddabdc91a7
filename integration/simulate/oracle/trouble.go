package oracle

import (
	"slices"
	"strings"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
	"rutter/log"
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

// Severed is how long after it has applied a revocation a server may feed the node: it looks four
// times a second (package cmd/rutter/trust).
const Severed = time.Second

// sentence is a revocation of a compute node, at one server.
type sentence struct {
	applied time.Duration // when the server was seen to have it; 0: it was not
	last    log.Seq       // the newest entry of all servers after that and Severed; 0: not known yet
}

// severed looks for entries that a compute node got although the server that sent them had applied
// a revocation of the node's certificates, before the entry was written. Packets that were on their
// way do not count.
func severed(p *past, report report) {
	if len(p.restored) > 0 {
		return // the log of before is not there
	}
	revoked := make(map[log.UUID]log.Seq) // the newest
	served := make(map[string]seen.StreamBegun)
	heads, granted := make(map[string]log.Seq), make(map[log.UUID]log.Seq)
	type one struct {
		cn     log.UUID
		server string
		seq    log.Seq
	}
	all, done := make(map[one]*sentence), make(map[one]bool)
	for _, r := range p.records {
		switch e := r.Event.(type) {
		case seen.StreamBegun:
			if _, is := cnOf(e.Filter); is && e.Server != "" {
				served[e.Stream] = e
			}
		case seen.Process:
			if cn, is := cnOf(served[r.Who].Filter); is && e.State == "certified" {
				for k := range all {
					if k.cn == cn {
						done[k] = true
					}
				}
				for _, head := range heads { // a server that is behind shows the revocation later
					granted[cn] = max(granted[cn], head)
				}
			}
		case seen.Server:
			heads[r.Who] = e.Head.Seq
			for cn, seq := range p.revocations(e.Head.Seq) {
				revoked[cn] = max(revoked[cn], seq)
				k := one{cn, r.Who, seq}
				if all[k] == nil && seq > granted[cn] {
					all[k] = &sentence{applied: r.At}
				}
			}
			for _, s := range all {
				if s.last == 0 && r.At > s.applied+Severed+2*time.Second {
					for _, head := range heads {
						s.last = max(s.last, head)
					}
				}
			}
		case seen.Item:
			began, known := served[e.Stream]
			cn, is := cnOf(began.Filter)
			if !known || !is {
				continue
			}
			k := one{cn, began.Server, revoked[cn]}
			if s := all[k]; s != nil && !done[k] && s.last > 0 && e.Seq > s.last {
				report("%s got entry %d from %s at %v, which had applied a revocation of its certificates by %v", e.Stream, e.Seq, k.server, r.At, s.applied)
			}
		}
	}
}

// revocations are those of compute nodes up to a seq, the newest of each.
func (p *past) revocations(upTo log.Seq) map[log.UUID]log.Seq {
	if p.revoked == nil {
		p.revoked = make(map[log.UUID][]log.Seq)
		for _, e := range p.entries {
			if e.event == nil || e.event.Kind != log.KindRevocation || e.event.Action == log.Delete {
				continue
			}
			r := e.event.Object.(*log.Revocation)
			if len(r.Good) > 0 { // it says only that another certificate is good
				continue
			}
			for _, cn := range p.nodes() {
				if r.Subject == pki.Subject(matrix.Identity{Role: matrix.CN, UUID: cn}) && !slices.Contains(p.revoked[cn], e.Seq) {
					p.revoked[cn] = append(p.revoked[cn], e.Seq)
				}
			}
		}
	}
	newest := make(map[log.UUID]log.Seq)
	for cn, all := range p.revoked {
		for _, seq := range all {
			if seq <= upTo {
				newest[cn] = seq
			}
		}
	}
	return newest
}
