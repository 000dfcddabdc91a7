package varpd

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"rutter/agent/link/plan"
)

const (
	// underlayEvery is how often the addresses of devices without a local address are
	// looked up again.
	underlayEvery = time.Second
	// maxUnpolled bounds the links that the status names for want of an address.
	maxUnpolled = 16
)

// How an underlay address is known.
const (
	fromLink  = "link"
	fromRoute = "route"
)

// Unpolled is a VXLAN device whose shootdown log is not polled.
type Unpolled struct {
	Link   string `json:"link"`
	Reason string `json:"reason"`
}

// anyAddress is where a route is asked to if no server has a usable address: one that
// no network has (RFC 5737). By a device with an address, any address has a route.
var anyAddress = netip.AddrFrom4([4]byte{192, 0, 2, 1})

// findUnderlay sets the underlay address of the devices that have none of their own:
// what the kernel chooses for packets to the server by their device. A device whose
// address cannot be found keeps the one that it had.
func (d *Daemon) findUnderlay(before map[uint32]vxlan) {
	d.soughtAt = time.Now()
	type source struct {
		addr netip.Addr
		err  error
	}
	byDevice := map[int32]source{}
	var unpolled []Unpolled
	more := 0
	for _, vnet := range slices.Sorted(maps.Keys(d.links.vxlans)) {
		v := d.links.vxlans[vnet]
		if v.fixed {
			continue
		}
		if was, ok := before[vnet]; ok && !was.fixed && was.device == v.device {
			v.local = was.local
		}
		found, ok := byDevice[v.device]
		if !ok {
			found.addr, found.err = d.source(v.device)
			byDevice[v.device] = found
		}
		if found.err == nil {
			v.local = found.addr
		} else if len(unpolled) < maxUnpolled {
			unpolled = append(unpolled, Unpolled{Link: plan.VXLANName(vnet), Reason: found.err.Error()})
		} else {
			more++
		}
		d.links.vxlans[vnet] = v
	}
	d.noteUnpolled(unpolled, more)
	d.setLocalAddrs()
}

// source is the underlay address of the devices that send by a link.
func (d *Daemon) source(device int32) (netip.Addr, error) {
	to := anyAddress
	if server := d.server(); server.IsValid() {
		to = server
	} else if device == 0 {
		return netip.Addr{}, errors.New("the VXLAN device has neither a local address nor a device, and no server with an IPv4 address is connected; make the link with `local`")
	}
	from, err := d.cfg.Kernel.Source(device, to)
	switch {
	case err != nil:
		return netip.Addr{}, fmt.Errorf("%w; give the device an address, or make the VXLAN link with `local`", err)
	case from.IsLoopback():
		return netip.Addr{}, fmt.Errorf("the route to the server %s has the address %s, which other nodes cannot reach; make the VXLAN link with `dev` or `local`", to, from)
	}
	return from, nil
}

// server returns the IPv4 address of the connected server that was heard last.
func (d *Daemon) server() netip.Addr {
	if d.cfg.Servers == nil {
		return netip.Addr{}
	}
	var best netip.Addr
	var heard time.Time
	for _, s := range d.cfg.Servers() {
		at, err := netip.ParseAddrPort(s.Address)
		if ip := at.Addr().Unmap(); err == nil && ip.Is4() && (!best.IsValid() || s.LastReply.After(heard)) {
			best, heard = ip, s.LastReply
		}
	}
	return best
}

// noteUnpolled records which devices have no address, and logs a change.
func (d *Daemon) noteUnpolled(unpolled []Unpolled, more int) {
	d.unpolled.Store(&unpolled)
	d.stats.unpolled.Store(int64(len(unpolled) + more))
	const what = "the underlay address of VXLAN devices is unknown, so that moves are noticed only after --refresh"
	if len(unpolled) == 0 {
		d.trouble(what, nil)
		return
	}
	names := make([]string, len(unpolled))
	for i := range unpolled {
		names[i] = unpolled[i].Link
	}
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	d.trouble(what, fmt.Errorf("%s: %s", text, unpolled[0].Reason))
}

// followUnderlay looks the addresses of devices without a local one up again, and
// scans if one changed.
func (d *Daemon) followUnderlay(now time.Time) {
	if now.Sub(d.soughtAt) < underlayEvery {
		return
	}
	before := maps.Clone(d.links.vxlans)
	d.findUnderlay(before)
	if !maps.Equal(before, d.links.vxlans) {
		d.dirty = true
	}
}

// setLocalAddrs sets the underlay addresses for which the log is asked.
func (d *Daemon) setLocalAddrs() {
	locals := map[netip.Addr]string{}
	for _, v := range d.links.vxlans {
		if !v.local.IsValid() {
			continue
		}
		if v.fixed {
			locals[v.local] = fromLink
		} else if locals[v.local] == "" {
			locals[v.local] = fromRoute
		}
	}
	d.localAddrs.Store(&locals)
}

// readLocalAddrs returns the underlay addresses of this node, and how they are known.
func (d *Daemon) readLocalAddrs() map[netip.Addr]string {
	if p := d.localAddrs.Load(); p != nil {
		return *p
	}
	return nil
}
