package link

import (
	"context"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
)

var _ Listener = (*Netlink)(nil)

// Observed implements Listener. Without a running Watch there are no notifications.
func (h *Netlink) Observed() (entries []plan.Entry, other bool) { return h.expected.take() }

// Stirred implements Listener.
func (h *Netlink) Stirred() (links []plan.LinkKey, namespaces []string) {
	return h.expected.takeStirred()
}

// Read implements Listener.
func (h *Netlink) Read(ctx context.Context, entries []plan.Entry) ([]plan.Step, error) {
	defer h.closeSpaces()
	steps := make([]plan.Step, 0, len(entries))
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, err := h.readEntry(e)
		if err != nil {
			return nil, fmt.Errorf("link: read of an entry on %s: %w", e.Link, err)
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// ReadEntry asks for one entry (RTM_GETNEIGH without NLM_F_DUMP).
func (h *Netlink) readEntry(e plan.Entry) (plan.Step, error) {
	step := plan.Step{Op: plan.OpDelFDB, Namespace: e.Namespace, Link: e.Link, MAC: e.MAC, Addr: e.IP}
	if e.IP.IsValid() {
		step.Op = plan.OpDelNeigh
	}
	index, ok := h.index[plan.LinkKey{Namespace: e.Namespace, Name: e.Link}]
	if !ok {
		return step, fmt.Errorf("%w: %s", plan.ErrNotMade, e.Link)
	}
	sp, err := h.open(e.Namespace)
	if err != nil {
		return step, err
	}
	var enc wire.Encoder
	enc.ReadEntry(e, index)
	replies, err := sp.conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETNEIGH, Flags: netlink.Request}, Data: enc.B})
	if errors.Is(err, unix.ENOENT) {
		return step, nil
	}
	if err != nil {
		return step, err
	}
	for _, m := range replies {
		n, ok := wire.ParseNeigh(m.Data)
		switch {
		case !ok || n.State&unix.NUD_PERMANENT == 0:
		case e.IP.IsValid():
			step.Op, step.MAC = plan.OpSetNeigh, n.MAC
		default:
			step.Op, step.Addr, step.Port = plan.OpSetFDB, n.Dst, n.Port
		}
	}
	return step, nil
}
