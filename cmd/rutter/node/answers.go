package node

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"rutter/agent/answer"
	"rutter/agent/link"
	"rutter/agent/metrics"
	"rutter/cmd/rutter/messages"
	"rutter/log"
)

// attachments passes on where NICs are attached. It has the latest only.
type attachments struct {
	changed chan struct{} // has room for one

	mu     sync.Mutex // protects what follows
	latest map[log.MAC]link.Attachment
}

// set is link.ManagerConfig.Attached.
func (a *attachments) set(all map[log.MAC]link.Attachment) {
	a.mu.Lock()
	a.latest = maps.Clone(all)
	a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default: // the follower has not read the one before yet, and will read this one
	}
}

// follow calls update after each change, until ctx ends, and then returns nil.
func (a *attachments) follow(ctx context.Context, update func([]answer.Segment, []answer.Port)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.changed:
		}
		a.mu.Lock()
		latest := a.latest
		a.mu.Unlock()
		update(forAnswers(latest))
	}
}

// forAnswers lists the bridges and ports of attachments.
func forAnswers(all map[log.MAC]link.Attachment) (segments []answer.Segment, ports []answer.Port) {
	for mac, at := range all {
		segments = append(segments, answer.Segment{Index: at.Bridge, Name: at.Name, VNet: at.VNet, VLAN: at.VLAN})
		ports = append(ports, answer.Port{Index: at.Port, Segment: at.Bridge, MAC: mac})
	}
	slices.SortFunc(segments, func(x, y answer.Segment) int { return cmp.Compare(x.Index, y.Index) })
	return slices.Compact(segments), ports
}

// measured is what GET /metrics has. Without port security the node answers nothing.
func (n *Node) measured() metrics.Config {
	cfg := metrics.Config{Agent: n.agent.Status, Ports: n.ports, Folder: n.opts.Folder, Version: n.opts.Version, More: messages.Collectors("rutter_agent_")}
	if n.vms != nil && n.vms.helper != nil {
		cfg.Helper = n.vms.measuredHelper
	}
	if n.answers == nil {
		return cfg
	}
	cfg.Answers = func() (list []metrics.Answers) {
		c := n.answers.Counters()
		for _, kind := range answer.Kinds {
			list = append(list, metrics.Answers{Kind: string(kind), Count: c.Answered[kind]})
		}
		return list
	}
	cfg.Unanswered = func() []metrics.Unanswered {
		c := n.answers.Counters()
		return []metrics.Unanswered{
			{Reason: "unknown", Count: c.Unknown},
			{Reason: "malformed", Count: c.Malformed},
			{Reason: "stranger", Count: c.Strangers},
			{Reason: "rate", Count: c.Limited},
			{Reason: "lost", Count: c.Lost},
			{Reason: "unsent", Count: c.Unsent},
		}
	}
	return cfg
}
