package node

import (
	"log/slog"
	"net/netip"
	"time"

	"rutter/agent"
	"rutter/cmd/rutter/svpview"
	"rutter/log"
	"rutter/projections"
	"rutter/varp"
)

// svpConnections bounds the connections of an agent's SVP server: its clients are
// programs on the node itself.
const svpConnections = 64

// NewSVP returns the SVP server of a node, which answers from an agent's replica, with or
// without servers of the cluster. Its shootdown log has the changes of that replica. maxAge
// is varp.Config.MaxAge. It starts nothing.
func NewSVP(a *agent.Agent, maxAge time.Duration, logger *slog.Logger) (*varp.Server, error) {
	shootdowns, err := varp.NewShootdowns(varp.ShootdownConfig{Changes: agentChanges{a}, Logger: logger})
	if err != nil {
		return nil, err
	}
	return varp.NewServer(varp.Config{Lookup: agentLookup{a}, Events: shootdowns, Age: a.Age, MaxAge: maxAge, Logger: logger, MaxConns: svpConnections})
}

// agentLookup adapts an agent to varp.Lookup.
type agentLookup struct{ *agent.Agent }

// VL2 implements varp.Lookup.
func (a agentLookup) VL2(vnet uint32, mac log.MAC) (varp.Underlay, bool) {
	u, ok := a.Agent.VL2(vnet, mac)
	return varp.Underlay{Addr: u.Addr, Port: u.Port}, ok
}

// VL3 implements varp.Lookup.
func (a agentLookup) VL3(vnet uint32, ip netip.Addr) (log.MAC, varp.Underlay, bool) {
	mac, u, ok := a.Agent.VL3(vnet, ip)
	return mac, varp.Underlay{Addr: u.Addr, Port: u.Port}, ok
}

// agentChanges adapts an agent to varp.Shootdowns.
type agentChanges struct{ agent *agent.Agent }

// Head implements varp.ChangeSource.
func (a agentChanges) Head() log.Cursor { return log.Cursor{Seq: log.Seq(a.agent.LastChange())} }

// View implements varp.ChangeSource.
func (a agentChanges) View(fn func(varp.Rows)) {
	a.agent.View(func(state *projections.State) { fn(svpview.Rows{State: state}) })
}

// Changes implements varp.ChangeSource.
func (a agentChanges) Changes(after log.Seq, limit int) ([]varp.Change, bool) {
	list, gap := a.agent.Changes(uint64(after), limit)
	changes := make([]varp.Change, len(list))
	for i, c := range list {
		changes[i] = varp.Change{Seq: log.Seq(c.Pos), Was: svpPlace(c.Was), Is: svpPlace(c.Is)}
	}
	return changes, gap
}

func svpPlace(p agent.Place) varp.Place {
	return varp.Place{
		MAC: p.MAC, IP: p.IP, Node: p.CN, VNet: p.VNet, VLAN: p.VLAN, OnVNet: p.OnVNet, OfServer: p.OfServer, Underlay: p.Underlay,
	}
}
