package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/log"
)

// Entry names one entry in the kernel: a neighbour of a fabric link by its
// address, or a forwarding entry of a VXLAN device by its MAC.
type Entry struct {
	Namespace string
	Link      string
	MAC       log.MAC    // forwarding entry
	IP        netip.Addr // neighbour, if valid
}

func compareEntry(a, b Entry) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Link, b.Link), compareMAC(a.MAC, b.MAC), a.IP.Compare(b.IP))
}

// Listener is a Kernel that hears what others do to it.
type Listener interface {
	// Heard returns, once, what was heard since the last call and is not as the
	// kernel was told: single entries, and whether there was anything else,
	// which only a pass finds.
	Heard() (entries []Entry, other bool)
	// Read returns what single entries are, in the form of the step that makes
	// each: OpSetNeigh or OpSetFDB, or OpDelNeigh or OpDelFDB if it is not there.
	Read(ctx context.Context, entries []Entry) ([]Step, error)
}

var _ Listener = (*Netlink)(nil)

// Heard implements Listener. Nothing is heard unless Watch runs.
func (h *Netlink) Heard() (entries []Entry, other bool) { return h.told.take() }

// Read implements Listener.
func (h *Netlink) Read(ctx context.Context, entries []Entry) ([]Step, error) {
	defer h.closeSpaces()
	steps := make([]Step, 0, len(entries))
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

// readEntry asks for one entry (RTM_GETNEIGH without NLM_F_DUMP).
func (h *Netlink) readEntry(e Entry) (Step, error) {
	step := Step{Op: OpDelFDB, Namespace: e.Namespace, Link: e.Link, MAC: e.MAC, Addr: e.IP}
	if e.IP.IsValid() {
		step.Op = OpDelNeigh
	}
	index, ok := h.index[place{e.Namespace, e.Link}]
	if !ok {
		return step, fmt.Errorf("%w: %s", ErrNotMade, e.Link)
	}
	sp, err := h.open(e.Namespace)
	if err != nil {
		return step, err
	}
	var enc encoder
	enc.readEntry(e, index)
	replies, err := sp.conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETNEIGH, Flags: netlink.Request}, Data: enc.b})
	if errors.Is(err, unix.ENOENT) {
		return step, nil
	}
	if err != nil {
		return step, err
	}
	for _, m := range replies {
		n, ok := parseNeigh(m.Data)
		switch {
		case !ok || n.state&unix.NUD_PERMANENT == 0:
		case e.IP.IsValid():
			step.Op, step.MAC = OpSetNeigh, n.mac
		default:
			step.Op, step.Addr, step.Port = OpSetFDB, n.dst, n.port
		}
	}
	return step, nil
}
