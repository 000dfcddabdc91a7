package gateway

import (
	"errors"
	"fmt"

	"rutter/log"
	"rutter/projections"
)

// readEntries is how many entries of the log are read at once, and the rest of a change.
const readEntries = 512

// changes reads which VMs the log's changes concern. Its zero value with a store begins at
// the head. It is used by one goroutine.
type changes struct {
	store Store
	at    log.Cursor // everything up to here was read
	begun bool
	// agents are the compute nodes with Rutter's agent at that time.
	agents map[log.UUID]bool
}

// next returns the VMs that changed since the last call, and those whose NICs did, each
// once. all: any VM may have changed. That is so at the first call; when the log does not
// have what follows the position any more, or has become another; and when a compute node
// has got Rutter's agent, or has it no more. An error leaves the position where it was.
func (c *changes) next() (vms map[string]bool, all bool, err error) {
	if !c.begun {
		c.restart()
		return nil, true, nil
	}
	vms = make(map[string]bool)
	for at := c.at; ; {
		entries, err := c.store.Entries(at.Seq, readEntries)
		if gap(err) || gap(c.store.CheckCursor(c.at)) { // what was read may be of another log
			c.restart()
			return nil, true, nil
		}
		if err != nil {
			return nil, false, err
		}
		if len(entries) == 0 {
			c.at = at
			return vms, false, nil
		}
		for _, e := range entries {
			turned, err := c.note(e, vms)
			if err != nil {
				return nil, false, fmt.Errorf("entry %d: %w", e.Seq, err)
			}
			if turned {
				c.restart()
				return nil, true, nil
			}
			at.Seq, at.Chain = e.Seq, e.Hash.Prefix()
		}
	}
}

// gap reports whether an error says that the log does not have what follows a position.
func gap(err error) bool {
	return errors.Is(err, log.ErrCompacted) || errors.Is(err, log.ErrAhead) || errors.Is(err, log.ErrOtherLog)
}

// note adds the VMs that an entry concerns. turned: a compute node has got Rutter's agent,
// or has it no more.
func (c *changes) note(e log.Entry, vms map[string]bool) (turned bool, err error) {
	event, err := log.DecodeEventHead(e.Bytes)
	if err != nil {
		return false, err
	}
	switch event.Kind {
	case log.KindVM:
		vms[event.ID] = true
	case log.KindNIC:
		if event, err = e.Event(); err != nil {
			return false, err
		}
		nic := event.Object.(*log.NIC)
		if nic.BelongsToType == "zone" && !nic.BelongsToUUID.IsZero() {
			vms[nic.BelongsToUUID.String()] = true
		}
		for _, changed := range event.Changed {
			if was, ok := changed.Old.(string); ok && changed.Path == "belongs_to_uuid" && was != "" {
				vms[was] = true
			}
		}
	case log.KindServer:
		cn, err := log.ParseUUID(event.ID)
		if err != nil {
			return false, err
		}
		c.store.View(func(state *projections.State, _ log.Cursor) { turned = hasAgent(state, cn) != c.agents[cn] })
	}
	return turned, nil
}

// restart goes to the head.
func (c *changes) restart() {
	c.begun, c.agents = true, make(map[log.UUID]bool)
	c.store.View(func(state *projections.State, head log.Cursor) {
		c.at = head
		for rec := range state.List(log.KindServer) {
			if cn := rec.Object.(*log.Server).UUID; hasAgent(state, cn) {
				c.agents[cn] = true
			}
		}
	})
}
