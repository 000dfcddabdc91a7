package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"rutter/agent/internal/nlmsg"
	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
)

// maxDumps is how often a dump is repeated that the kernel reports as interrupted by a
// change. The last one is used as it is: the next pass sees what it missed.
const maxDumps = 5

// Dump implements Kernel.
func (h *Netlink) Dump(ctx context.Context, namespaces []string) (plan.Snapshot, error) {
	defer h.closeSpaces()
	have := plan.Snapshot{Unread: map[string]plan.Unread{}, Resolvers: map[string]string{}, UnreadResolvers: map[string]error{}}
	d := &dumper{names: map[int32]string{}}
	ours, raw, err := d.readOwn(h.own)
	if err == nil {
		err = h.readInterfaces(raw)
	}
	if err != nil {
		return plan.Snapshot{}, fmt.Errorf("link: dump: %w", err)
	}
	h.readRules(ctx, &have)
	h.choose(namespaces)
	seen := make([]seenVM, len(namespaces))
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error { return h.dumpOwn(d, ours) })
	h.dumpVMs(running, g, d.names, namespaces, seen)
	if err := g.Wait(); err != nil {
		return plan.Snapshot{}, err
	}
	h.takeVMs(d, &have, namespaces, seen)
	have.Links = d.links
	h.recall(&have)
	have.Sort()
	if h.identify != nil {
		h.identify(&have)
	} else {
		byName(have.Links)
	}
	h.learn(&have, d)
	return have, nil
}

// dumpOwn reads what is on the links of our own namespace. It has a socket of its own,
// because the readers of VM namespaces send requests in ours meanwhile.
func (h *Netlink) dumpOwn(d *dumper, ours map[int32]int) error {
	conn, err := dial(int(h.own.file.Fd()), receiveBytes)
	if err != nil {
		return fmt.Errorf("link: dump: %w", err)
	}
	defer conn.Close()
	if err := d.details(conn, ours); err != nil {
		return fmt.Errorf("link: dump: %w", err)
	}
	return nil
}

// byName makes links with our names ours, for a user who makes none, as varpd is. Others
// are on none of ours.
func byName(links []plan.Link) {
	for i := range links {
		l := &links[i]
		kind := plan.KindOfName(l.Name)
		l.Ours = kind == plan.KindMacvlan || l.Namespace == "" && (kind == plan.KindVXLAN || kind == plan.KindVLAN)
		if !l.Ours {
			l.Parent = ""
		}
	}
}

// Identify makes each following Dump call identify, which says which links are ours and
// how they are named in steps (plan.Identify). Without it those with our names are.
func (h *Netlink) Identify(identify func(have *plan.Snapshot)) { h.identify = identify }

// recall notes in a dump which of its links were ours in the last one. A link keeps its
// ifindex while it lives in its namespace.
func (h *Netlink) recall(have *plan.Snapshot) {
	if h.identify == nil {
		return
	}
	type place struct {
		namespace string
		index     int32
	}
	known := make(map[place]string, len(h.index))
	for at, index := range h.index {
		known[place{at.Namespace, index}] = at.Name
	}
	for i := range have.Links {
		l := &have.Links[i]
		l.Known = known[place{l.Namespace, l.Index}]
	}
}

// learn takes the ifindexes of a dump, and what it saw of the trash group. Only links of
// ours get an ifindex, so that no step can reach another one.
func (h *Netlink) learn(have *plan.Snapshot, d *dumper) {
	h.noTrash = d.trash
	h.taken = make(map[int32]struct{}, len(d.high))
	for _, index := range d.high {
		h.taken[index] = struct{}{}
	}
	clear(h.index)
	for i := range have.Links {
		if l := &have.Links[i]; l.Ours {
			h.index[l.Key()] = l.Index
			// Should a later dump miss links, a link that is then made a second time fails: what
			// follows its making must not reach the ifindex of another.
			if l.Namespace == "" {
				h.lastIndex = max(h.lastIndex, l.Index)
			}
		}
	}
	h.expected.reset(have.Links)
}

// dumper collects the links of one Dump.
type dumper struct {
	links []plan.Link
	names map[int32]string // of the links in our own namespace that may be ours
	high  []int32          // ifindexes from plan.FirstIndex on
	trash bool             // a link in our own namespace is in plan.TrashGroup
}

// sees notes the ifindex of a link.
func (d *dumper) sees(index int32) {
	if index >= plan.FirstIndex {
		d.high = append(d.high, index)
	}
}

// dump requests a list, and calls each with each message's body. reset is called before
// a repeated request.
func dump(conn *netlink.Conn, typ netlink.HeaderType, body []byte, reset func(), each func(body []byte)) error {
	for attempt := 1; ; attempt++ {
		if err := discard(conn); err != nil {
			return err
		}
		// The deadline of the last batch is cleared: it would end this dump.
		if err := conn.SetReadDeadline(time.Now().Add(ackTimeout)); err != nil {
			return err
		}
		interrupted := false
		request, err := conn.Send(netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Dump}, Data: body})
		if err != nil {
			return err
		}
		for m, err := range conn.ReceiveIter() {
			if err != nil {
				return err
			}
			if m.Header.Sequence != request.Header.Sequence {
				return errOtherAnswer
			}
			interrupted = interrupted || m.Header.Flags&netlink.DumpInterrupted != 0
			each(m.Data)
		}
		if !interrupted || attempt == maxDumps {
			return nil
		}
		reset()
	}
}

// listLinks dumps the links of a namespace.
func listLinks(conn *netlink.Conn) ([]wire.RawLink, error) {
	var e wire.Encoder
	e.LinkHeader(0, 0, 0)
	e.Attr32(unix.IFLA_EXT_MASK, wire.ExtFilterSkipStats)
	var links []wire.RawLink
	err := dump(conn, unix.RTM_GETLINK, e.B, func() { links = links[:0] }, func(body []byte) {
		if l, ok := wire.ParseLink(body); ok {
			links = append(links, l)
		}
	})
	return links, err
}

// readOwn reads the links of our own namespace, and returns the position of each of
// ours in d.links, by ifindex, and all links.
func (d *dumper) readOwn(sp *namespaceConn) (ours map[int32]int, raw []wire.RawLink, err error) {
	raw, err = listLinks(sp.conn)
	if err == nil && len(raw) == 0 {
		err = errNoLinks
	}
	if err != nil {
		return nil, nil, err
	}
	for i := range raw {
		d.sees(raw[i].Index)
		d.trash = d.trash || raw[i].Group == plan.TrashGroup
		if plan.MayBeOurs(&raw[i].Link) {
			d.names[raw[i].Index] = raw[i].Name
		}
	}
	guests := map[string][]string{}
	for i := range raw {
		l := &raw[i]
		if l.HasParent && l.ParentNS < 0 {
			l.Below, l.Parent = l.ParentIndex, d.names[l.ParentIndex]
		}
		if l.Parent != "" && d.names[l.Index] == "" {
			guests[l.Parent] = append(guests[l.Parent], l.Name)
		}
	}
	ours = map[int32]int{}
	for i := range raw {
		if d.names[raw[i].Index] == "" {
			continue
		}
		raw[i].Guests = guests[raw[i].Name]
		ours[raw[i].Index] = len(d.links)
		d.links = append(d.links, raw[i].Link)
	}
	return ours, raw, nil
}

// readVM reads the fabric links of a VM's namespace: those with such a name, and all that
// are on a link in our own namespace, or its peer, whatever the guest made of them.
func (d *dumper) readVM(sp, own *namespaceConn) error {
	raw, err := listLinks(sp.conn)
	if err != nil {
		return err
	}
	ours := map[int32]int{}
	for i := range raw {
		l := &raw[i]
		d.sees(l.Index)
		named := plan.KindOfName(l.Name) == plan.KindMacvlan
		if !named && (l.Kind != plan.KindMacvlan && l.Kind != plan.KindVeth || l.ParentNS < 0) {
			continue
		}
		if l.HasParent && l.ParentNS >= 0 {
			if sp.ownID < 0 {
				if sp.ownID, err = namespaceID(sp.conn, own); err != nil {
					return err
				}
			}
			if l.ParentNS == sp.ownID {
				l.Below, l.Parent = l.ParentIndex, d.names[l.ParentIndex]
			}
		}
		if !named && l.Below == 0 {
			continue
		}
		l.Namespace = sp.name
		ours[l.Index] = len(d.links)
		d.links = append(d.links, l.Link)
	}
	return d.details(sp.conn, ours)
}

// namespaceID requests the number that a namespace has for another one, -1 if none
// (RTM_GETNSID, linux/net_namespace.h).
func namespaceID(conn *netlink.Conn, other *namespaceConn) (int32, error) {
	var e wire.Encoder
	e.U32(unix.AF_UNSPEC)
	e.Attr32(wire.NetnsaFD, uint32(other.file.Fd()))
	replies, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETNSID, Flags: netlink.Request}, Data: e.B})
	if err != nil {
		return -1, fmt.Errorf("ask for the id of our namespace: %w", err)
	}
	id := int32(-1)
	for _, m := range replies {
		if len(m.Data) >= wire.SizeofRtGenMsg {
			nlmsg.Attrs(m.Data[wire.SizeofRtGenMsg:], func(typ uint16, value []byte) {
				if typ == wire.NetnsaNSID {
					id = int32(wire.AsU32(value))
				}
			})
		}
	}
	return id, nil
}

// details reads what is on the given links (ifindex to index in d.links) of one
// namespace, and requests only what such links can have.
func (d *dumper) details(conn *netlink.Conn, ours map[int32]int) error {
	kinds := map[string]bool{}
	for _, at := range ours {
		kinds[kindOf(&d.links[at])] = true
	}
	at := func(index int32, kind string) *plan.Link {
		if i, ok := ours[index]; ok && kindOf(&d.links[i]) == kind {
			return &d.links[i]
		}
		return nil
	}
	if kinds[plan.KindVXLAN] || kinds[plan.KindVeth] {
		only := int32(0) // of one device the kernel need not list the others' entries
		for index := range ours {
			if only = index; len(ours) > 1 {
				only = 0
			}
		}
		if err := dumpForwards(conn, at, only); err != nil {
			return err
		}
	}
	if !kinds[plan.KindMacvlan] {
		return nil
	}
	for _, read := range []func(*netlink.Conn, finder) error{dumpAddresses, dumpRoutes, dumpNeighs, dumpProbes} {
		if err := read(conn, at); err != nil {
			return err
		}
	}
	return nil
}

// kindOf is what may be on a link: KindVeth is a port of a bridge of our own namespace (a tap too), and
// each other link that may be a fabric link is as a macvlan.
func kindOf(l *plan.Link) string {
	switch {
	case l.Kind == plan.KindTap && l.Namespace == "":
		return plan.KindVeth
	case l.Kind != plan.KindVeth:
		return l.Kind
	case l.Below != 0 && l.MasterIndex == 0: // its peer is in our own namespace
		return plan.KindMacvlan
	case l.Namespace == "":
		return plan.KindVeth
	}
	return plan.KindMacvlan
}

// finder returns the link of that ifindex if it is being read and is of that kind.
type finder func(index int32, kind string) *plan.Link

// dumpForwards reads the forwarding entries of all VXLAN devices, and the bridges' static
// ones of their ports, or those of one link.
func dumpForwards(conn *netlink.Conn, at finder, only int32) error {
	var e wire.Encoder
	e.U32(unix.AF_BRIDGE)
	e.B = append(e.B, make([]byte, wire.SizeofNdMsg-4)...)
	if only != 0 {
		e.Attr32(unix.NDA_IFINDEX, uint32(only))
	}
	var touched []*plan.Link
	return dump(conn, unix.RTM_GETNEIGH, e.B, func() {
		for _, l := range touched {
			l.FDB, l.Static = nil, nil
		}
	}, func(body []byte) {
		n, ok := wire.ParseNeigh(body)
		if l := at(n.Index, plan.KindVeth); ok && l != nil && n.IsStatic() {
			l.Static = append(l.Static, n.MAC)
			touched = append(touched, l)
		}
		if ok && n.Flags&unix.NTF_SELF != 0 {
			if l := at(n.Index, plan.KindVXLAN); l != nil {
				l.FDB = append(l.FDB, plan.Forward{MAC: n.MAC, Dst: n.Dst, Port: plan.OtherPort(n.Port, l.Port), Permanent: n.State&unix.NUD_PERMANENT != 0})
				if len(l.FDB) == 1 {
					touched = append(touched, l)
				}
			}
		}
	})
}

func dumpNeighs(conn *netlink.Conn, at finder) error {
	var touched []*plan.Link
	return dump(conn, unix.RTM_GETNEIGH, make([]byte, wire.SizeofNdMsg), func() {
		for _, l := range touched {
			l.Neighs = nil
		}
	}, func(body []byte) {
		if n, ok := wire.ParseNeigh(body); ok && n.State&unix.NUD_PERMANENT != 0 {
			if l := at(n.Index, plan.KindMacvlan); l != nil {
				l.Neighs = append(l.Neighs, plan.Neighbour{IP: n.Dst, MAC: n.MAC})
				if len(l.Neighs) == 1 {
					touched = append(touched, l)
				}
			}
		}
	})
}

func dumpAddresses(conn *netlink.Conn, at finder) error {
	var touched []*plan.Link
	return dump(conn, unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg), func() {
		for _, l := range touched {
			l.Addresses = nil
		}
	}, func(body []byte) {
		index, prefix, permanent, ok := wire.ParseAddress(body)
		if !ok || !permanent || plan.IsLinkLocal(prefix.Addr()) {
			return
		}
		if l := at(index, plan.KindMacvlan); l != nil {
			l.Addresses = append(l.Addresses, prefix)
			touched = append(touched, l)
		}
	})
}

func dumpRoutes(conn *netlink.Conn, at finder) error {
	for _, fam := range []byte{unix.AF_INET, unix.AF_INET6} {
		body := make([]byte, unix.SizeofRtMsg)
		body[0], body[5] = fam, plan.RouteProtocol // rtm_protocol is at 5
		var found []wire.RawRoute
		err := dump(conn, unix.RTM_GETROUTE, body, func() { found = nil }, func(body []byte) {
			if r, ok := wire.ParseRoute(body); ok {
				found = append(found, r)
			}
		})
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EOPNOTSUPP) {
			return err // without a routing table or without IPv6, these two errors mean an empty list
		}
		for _, r := range found {
			if l := at(r.Index, plan.KindMacvlan); l != nil {
				l.Routes = append(l.Routes, r.Route)
			}
		}
	}
	return nil
}

func dumpProbes(conn *netlink.Conn, at finder) error {
	return dump(conn, wire.RtmGetNeighTbl, make([]byte, wire.SizeofNdtMsg), func() {}, func(body []byte) {
		index, fam, probes, ok := wire.ParseProbes(body)
		if !ok {
			return
		}
		l := at(index, plan.KindMacvlan)
		switch {
		case l == nil:
		case fam == unix.AF_INET:
			l.ARP = probes
		case fam == unix.AF_INET6:
			l.ND = probes
		}
	})
}
