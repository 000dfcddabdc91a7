package link

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
)

var _ plan.PartKernel = (*Netlink)(nil)

// DumpPart implements plan.PartKernel. It asks for single links of our own namespace, by
// ifindex or name, and reads each VM namespace as Dump does.
func (h *Netlink) DumpPart(ctx context.Context, part plan.Part) (plan.Snapshot, error) {
	defer h.closeSpaces()
	have := plan.Snapshot{Unread: map[string]plan.Unread{}, Resolvers: map[string]string{}, UnreadResolvers: map[string]error{}}
	d := &dumper{names: map[int32]string{}}
	seen, err := h.dumpPartVMs(ctx, part.Namespaces)
	if err != nil {
		return plan.Snapshot{}, err
	}
	var below []int32
	for i := range seen {
		for j := range seen[i].links {
			below = append(below, seen[i].links[j].Below)
		}
	}
	ours, err := h.readLinks(d, part, below)
	if err == nil {
		err = h.partDetails(d, ours, part.Entries)
	}
	if err != nil {
		return plan.Snapshot{}, fmt.Errorf("link: dump of a part: %w", err)
	}
	now := time.Now()
	if h.unread == nil {
		h.unread = map[string]unread{}
	}
	for i, name := range part.Namespaces {
		u, isUnread := h.takeVM(d, &have, name, &seen[i], h.unread[name], now)
		if delete(h.unread, name); isUnread {
			h.unread[name] = u
		}
	}
	have.Links = d.links
	h.recall(&have)
	have.Sort()
	if h.identify != nil {
		h.identify(&have)
	} else {
		byName(have.Links)
	}
	h.readRules(ctx, &have)
	h.learnPart(&have, d, part)
	return have, nil
}

// dumpPartVMs reads VM namespaces.
func (h *Netlink) dumpPartVMs(ctx context.Context, namespaces []string) ([]seenVM, error) {
	devices := make(map[int32]string, len(h.index))
	for at, index := range h.index {
		if at.Namespace == "" {
			devices[index] = at.Name
		}
	}
	seen := make([]seenVM, len(namespaces))
	for _, name := range namespaces {
		delete(h.views, name)
	}
	g, running := errgroup.WithContext(ctx)
	h.dumpVMs(running, g, devices, namespaces, seen)
	return seen, g.Wait()
}

// readLinks reads the part's links of our own namespace and those at the ifindexes of
// below, with those below them, or all. It returns the position of each in d.links, by
// ifindex.
func (h *Netlink) readLinks(d *dumper, part plan.Part, below []int32) (map[int32]int, error) {
	if part.All {
		ours, _, err := d.readOwn(h.own)
		return ours, err
	}
	ours, read := map[int32]int{}, map[int32]bool{0: true}
	take := func(l *wire.RawLink) {
		if l == nil || read[l.Index] {
			return
		}
		read[l.Index] = true
		if !plan.MayBeOurs(&l.Link) {
			return
		}
		if l.HasParent && l.ParentNS < 0 {
			l.Below = l.ParentIndex
			below = append(below, l.Below)
		}
		below = append(below, l.MasterIndex)
		ours[l.Index] = len(d.links)
		d.links = append(d.links, l.Link)
		d.sees(l.Index)
	}
	for _, name := range part.Links {
		// It may be called otherwise by now, and another link have its name.
		if index, ok := h.index[plan.LinkKey{Namespace: "", Name: name}]; ok {
			l, err := h.readLinkAt(index)
			if err != nil {
				return nil, err
			}
			take(l)
		}
		l, err := h.readLink(name)
		if err != nil {
			return nil, err
		}
		take(l)
	}
	for len(below) > 0 {
		index := below[0]
		if below = below[1:]; read[index] {
			continue
		}
		l, err := h.readLinkAt(index)
		if err != nil {
			return nil, err
		}
		take(l)
		read[index] = true
	}
	for i := range d.links {
		if at, ok := ours[d.links[i].Below]; ok {
			d.links[i].Parent = d.links[at].Name
		}
	}
	return ours, nil
}

// readLink returns a link of our own namespace, or nil if there is none of that name.
func (h *Netlink) readLink(name string) (*wire.RawLink, error) {
	var e wire.Encoder
	e.LinkHeader(0, 0, 0)
	e.AttrText(unix.IFLA_IFNAME, name)
	e.Attr32(unix.IFLA_EXT_MASK, wire.ExtFilterSkipStats)
	return h.askLink(e.B)
}

// readLinkAt returns the link of our own namespace that has an ifindex, or nil.
func (h *Netlink) readLinkAt(index int32) (*wire.RawLink, error) {
	var e wire.Encoder
	e.LinkHeader(index, 0, 0)
	e.Attr32(unix.IFLA_EXT_MASK, wire.ExtFilterSkipStats)
	return h.askLink(e.B)
}

func (h *Netlink) askLink(body []byte) (*wire.RawLink, error) {
	if err := h.own.conn.SetReadDeadline(time.Now().Add(ackTimeout)); err != nil {
		return nil, err
	}
	replies, err := h.own.conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request}, Data: body})
	if errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, m := range replies {
		if l, ok := wire.ParseLink(m.Data); ok {
			return &l, nil
		}
	}
	return nil, nil
}

// partDetails reads what is on links of our own namespace: on fabric links, and on the
// VXLAN devices in entries.
func (h *Netlink) partDetails(d *dumper, ours map[int32]int, entries []string) error {
	fabrics := map[int32]int{}
	for index, at := range ours {
		switch l := &d.links[at]; kindOf(l) {
		case plan.KindMacvlan:
			fabrics[index] = at
		case plan.KindVeth:
			if err := d.details(h.own.conn, map[int32]int{index: at}); err != nil {
				return err
			}
		case plan.KindVXLAN:
			if !slices.Contains(entries, l.Name) {
				continue
			}
			if err := d.details(h.own.conn, map[int32]int{index: at}); err != nil {
				return err
			}
		}
	}
	return d.details(h.own.conn, fabrics)
}

// learnPart takes the ifindexes of a part.
func (h *Netlink) learnPart(have *plan.Snapshot, d *dumper, part plan.Part) {
	for _, index := range d.high {
		h.taken[index] = struct{}{}
	}
	h.noTrash = h.noTrash || d.trash
	maps.DeleteFunc(h.index, func(at plan.LinkKey, _ int32) bool { return part.Shows(at) })
	for i := range have.Links {
		if l := &have.Links[i]; l.Ours {
			h.index[l.Key()] = l.Index
		}
	}
	h.expected.learn(have.Links, part.Shows)
}
