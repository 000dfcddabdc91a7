package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/internal/nlmsg"
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

// ErrNoSource: the kernel has no address to send from.
var ErrNoSource = errors.New("link: no source address")

// Source returns the address from which the kernel sends IPv4 packets to an address
// (RTM_GETROUTE), by the link with ifindex device in our own namespace; 0: by any link.
// Through a link without a route to the address it is the link's first address, as for
// packets of a VXLAN device. The error is or wraps ErrNoSource if there is none.
//
// The caller is the one that executes steps: it uses the same socket.
func (h *Netlink) Source(device int32, to netip.Addr) (netip.Addr, error) {
	if to = to.Unmap(); !to.Is4() {
		return netip.Addr{}, fmt.Errorf("%w towards %q: want an IPv4 address", ErrNoSource, to)
	}
	request := make([]byte, unix.SizeofRtMsg)
	request[0], request[1] = unix.AF_INET, 32 // rtm_family, rtm_dst_len
	attrs := netlink.NewAttributeEncoder()
	attrs.Bytes(unix.RTA_DST, to.AsSlice())
	if device != 0 {
		attrs.Uint32(unix.RTA_OIF, uint32(device))
	}
	encoded, err := attrs.Encode()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("link: route to %s: %w", to, err)
	}
	if err := h.own.conn.SetReadDeadline(time.Now().Add(ackTimeout)); err != nil {
		return netip.Addr{}, fmt.Errorf("link: route to %s: %w", to, err)
	}
	replies, err := h.own.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETROUTE, Flags: netlink.Request}, Data: append(request, encoded...),
	})
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%w towards %s%s: %w", ErrNoSource, to, h.by(device), err)
	}
	var from netip.Addr
	for _, m := range replies {
		if len(m.Data) < unix.SizeofRtMsg {
			continue
		}
		nlmsg.Attrs(m.Data[unix.SizeofRtMsg:], func(typ uint16, value []byte) {
			if typ == unix.RTA_PREFSRC {
				from, _ = netip.AddrFromSlice(value)
			}
		})
	}
	if !from.IsValid() || from.IsUnspecified() {
		return netip.Addr{}, fmt.Errorf("%w towards %s%s: it has no IPv4 address", ErrNoSource, to, h.by(device))
	}
	return from, nil
}

// by names a link of our own namespace for an error.
func (h *Netlink) by(device int32) string {
	if device == 0 {
		return ""
	}
	request := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(request[4:], uint32(device))
	replies, err := h.own.conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request}, Data: request})
	name := ""
	for _, m := range replies {
		if err == nil && len(m.Data) >= unix.SizeofIfInfomsg {
			nlmsg.Attrs(m.Data[unix.SizeofIfInfomsg:], func(typ uint16, value []byte) {
				if typ == unix.IFLA_IFNAME && len(value) > 1 {
					name = string(value[:len(value)-1])
				}
			})
		}
	}
	if name == "" {
		return fmt.Sprintf(" by the link with ifindex %d", device)
	}
	return " by " + name
}
