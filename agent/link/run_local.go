package link

import (
	"context"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
)

// awaitLocal waits until the kernel delivers to the IPv6 addresses that were added. The
// kernel acknowledges an address at once, but adds its local route from a work queue
// (addrconf_dad_work, linux net/ipv6/addrconf.c), also without duplicate detection, and
// drops packets that arrive before that. A link that is down gets no such route, so the
// wait is bounded, and its timeout is not a failure.
func (r *run) awaitLocal(ctx context.Context) {
	end := time.Now().Add(r.h.cfg.localWait)
	for _, i := range r.added {
		if r.errs != nil && r.errs[i] != nil {
			continue
		}
		for ctx.Err() == nil && !r.isLocal(&r.steps[i]) && time.Now().Before(end) {
			time.Sleep(localPoll)
		}
	}
}

// isLocal requests the route to an address (RTM_GETROUTE for one destination). If the
// request fails, it returns true, because waiting would not help.
func (r *run) isLocal(s *plan.Step) bool {
	sp, err := r.h.open(s.Namespace)
	if err != nil {
		return true
	}
	var e wire.Encoder
	e.B = append(e.B, unix.AF_INET6, 128, 0, 0, 0, 0, 0, 0)
	e.U32(0)
	e.AttrAddr(unix.RTA_DST, s.Prefix.Addr())
	replies, err := sp.conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETROUTE, Flags: netlink.Request}, Data: e.B})
	for _, m := range replies {
		if len(m.Data) >= unix.SizeofRtMsg {
			return m.Data[7] == unix.RTN_LOCAL // rtm_type
		}
	}
	return err == nil
}
