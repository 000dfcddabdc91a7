package registered

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
	"rutter/projections"
)

// logged is a NIC as this node's part of the log has it.
type logged struct {
	nic     *log.NIC // nil: it does not have it, or as another VM's
	seq     log.Seq
	network *log.Network // nil: it does not have it
}

// inLog returns what this node's part of the log has of a record's NICs, in their order.
func (s *Source) inLog(r *record) []logged {
	list := make([]logged, len(r.NICs))
	s.cfg.Node.View(func(state *projections.State) {
		for i := range r.NICs {
			rec, ok := state.Get(log.KindNIC, r.NICs[i].MAC.String())
			if !ok {
				continue
			}
			if nic := rec.Object.(*log.NIC); nic.BelongsToUUID == r.UUID {
				list[i] = logged{nic, rec.Seq, state.Network(nic.NetworkUUID)}
			}
		}
	})
	return list
}

// primary is the place of a record's primary NIC: the first that is marked, or the first.
func (r *record) primary() int {
	first := -1
	for i := range r.NICs {
		if r.NICs[i].Leaving {
			continue
		}
		if r.NICs[i].Primary {
			return i
		}
		if first < 0 {
			first = i
		}
	}
	return first
}

// document is a VM in vminfod's form, with the NICs that the log has had.
func (s *Source) document(r *record) vmdoc.Value {
	v := object()
	text := func(name, value string) {
		if value != "" {
			v = v.With(name, vmdoc.StringValue(value))
		}
	}
	text("uuid", r.UUID.String())
	text("alias", r.Alias)
	text("owner_uuid", r.OwnerUUID.String())
	text("zonename", r.Zonename)
	text("brand", r.Brand)
	text("state", r.State)
	text("run_state", r.RunState)
	zone := "running"
	if r.State == StateStopped {
		zone = "installed"
		if r.ExitStatus != nil {
			v = v.With("exit_status", vmdoc.IntValue(int64(*r.ExitStatus)))
		}
	} else if r.PID > 0 {
		v = v.With("pid", vmdoc.IntValue(int64(r.PID)))
	}
	text("zone_state", zone)
	text("server_uuid", s.cfg.CN.String())
	if r.RAM > 0 {
		v = v.With("ram", vmdoc.IntValue(int64(r.RAM))).With("max_physical_memory", vmdoc.IntValue(int64(r.RAM)))
	}
	if r.VCPUs > 0 {
		v = v.With("vcpus", vmdoc.IntValue(int64(r.VCPUs)))
	}
	if len(r.Tags) > 0 {
		tags := object()
		for _, name := range slices.Sorted(maps.Keys(r.Tags)) {
			tags = tags.With(name, vmdoc.StringValue(r.Tags[name]))
		}
		v = v.With("tags", tags)
	}
	known, primary := s.inLog(r), r.primary()
	nics := []vmdoc.Value{}
	for i := range r.NICs {
		if n := &r.NICs[i]; n.Held && !n.Leaving {
			nics = append(nics, n.document(known[i], i == primary))
		}
	}
	v = vmdoc.Completed(v.With("autoboot", vmdoc.BoolValue(false)))
	return v.With("nics", vmdoc.ArrayValue(vmdoc.CompletedNICs(nics, r.Brand)...))
}

// document is a NIC in vminfod's form.
func (n *nicRecord) document(l logged, primary bool) vmdoc.Value {
	v := object().With("mac", vmdoc.StringValue(n.MAC.String())).With("interface", vmdoc.StringValue(n.Key))
	if primary {
		v = v.With("primary", vmdoc.BoolValue(true))
	}
	if l.nic != nil {
		v = v.With("network_uuid", vmdoc.StringValue(l.nic.NetworkUUID.String()))
	} else if !n.Network.IsZero() {
		v = v.With("network_uuid", vmdoc.StringValue(n.Network.String()))
	}
	if l.nic != nil && l.network != nil {
		net := l.network
		tag := net.NICTag
		if net.Fabric {
			tag += "/" + strconv.FormatUint(uint64(net.VNetID), 10)
		}
		v = v.With("nic_tag", vmdoc.StringValue(tag)).With("vlan_id", vmdoc.IntValue(int64(net.VLANID))).With("mtu", vmdoc.IntValue(int64(net.MTU)))
		if ip := l.nic.IP; ip.IsValid() {
			v = v.With("ip", vmdoc.StringValue(ip.String())).With("ips", vmdoc.ArrayValue(vmdoc.StringValue(netip.PrefixFrom(ip, net.Subnet.Bits()).String())))
			if ip.Is4() {
				v = v.With("netmask", vmdoc.StringValue(maskOf(net.Subnet.Bits())))
			}
		}
		if net.Gateway.IsValid() {
			v = v.With("gateway", vmdoc.StringValue(net.Gateway.String()))
		}
	}
	if n.Attach != nil {
		v = v.With(vmdoc.AttachField, n.attach().Value())
	}
	return v
}

func maskOf(bits int) string { return net.IP(net.CIDRMask(bits, 32)).String() }

// attach is where the link of the NIC ends, with the default name of a tap.
func (n *nicRecord) attach() vmdoc.Attach {
	if n.Attach == nil {
		return vmdoc.Attach{Kind: vmdoc.AttachNamespace}
	}
	a := *n.Attach
	if a.Kind == vmdoc.AttachTap && a.Device == "" {
		a.Device = vmdoc.TapName(n.MAC)
	}
	return a
}

// Attachment is where the link of a NIC of a registered VM ends.
type Attachment struct {
	VM  log.UUID
	MAC log.MAC
	// Asked: the log may not have the NIC yet.
	Asked bool
	// Left: the VM let the NIC go, and the log is not told yet.
	Left bool
	At   vmdoc.Attach
}

// Attachments are those of all NICs that the source has, and of those that are let go until
// the log is told.
func (s *Source) Attachments() (list []Attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.vms {
		for i := range e.NICs {
			n := &e.NICs[i]
			list = append(list, Attachment{e.UUID, n.MAC, !n.Held, e.Leaving || n.Leaving, n.attach()})
		}
	}
	return list
}

func object() vmdoc.Value {
	v, err := vmdoc.ParseValue([]byte("{}"))
	if err != nil {
		panic("registered: {} is no JSON")
	}
	return v
}

// answer is a VM as its program sees it.
func (s *Source) answer(r *record) VM {
	vm := VM{UUID: r.UUID, Source: s.cfg.Name, Alias: r.Alias, OwnerUUID: r.OwnerUUID, Zonename: r.Zonename, State: r.State, RunState: r.RunState, Away: r.Away, NICs: []Attached{}}
	known, primary := s.inLog(r), r.primary()
	reached, waits, _ := s.cfg.Node.Waits(r.UUID)
	for i := range r.NICs {
		n := &r.NICs[i]
		if n.Leaving {
			continue
		}
		a := n.answer(known[i])
		a.Primary = i == primary
		a.State, a.Reason = NICWaiting, ""
		reason, waiting := waits[n.MAC]
		switch {
		case n.Reason != "":
			a.Reason = n.Reason
		case !n.Held:
			a.Reason = "no server has answered yet whether it is in the log"
		case known[i].nic == nil:
			a.Reason = "this node's part of the log does not have it: it comes soon, or it was deleted there (detach it, and register it again)"
		case known[i].network == nil && !known[i].nic.NetworkUUID.IsZero():
			a.Reason = "this node's part of the log does not have its network yet"
		case waiting:
			a.Reason = reason
		case reached < known[i].seq:
			a.Reason = "the kernel of this node does not have it yet"
		default:
			a.State = NICAttached
		}
		vm.NICs = append(vm.NICs, a)
	}
	return vm
}

// answer is a NIC as its program sees it, without its state.
func (n *nicRecord) answer(l logged) Attached {
	at := n.attach()
	a := Attached{
		Key: n.Key, MAC: n.MAC, NetworkUUID: n.Network, IPs: []netip.Prefix{}, Gateways: []netip.Addr{}, Routes: []Route{}, Resolvers: []netip.Addr{},
		Kind: at.Kind, Device: at.Device,
	}
	if l.nic != nil {
		a.NetworkUUID = l.nic.NetworkUUID
	}
	if l.network == nil {
		return a
	}
	a.Network, a.MTU = l.network.Name, l.network.MTU
	if l.nic.IP.IsValid() {
		a.IPs = append(a.IPs, netip.PrefixFrom(l.nic.IP, l.network.Subnet.Bits()))
	}
	if l.network.Gateway.IsValid() {
		a.Gateways = append(a.Gateways, l.network.Gateway)
	}
	a.Resolvers = append(a.Resolvers, l.network.Resolvers...)
	for _, route := range l.network.Routes {
		dst, err := prefixOf(route.Dst)
		gateway, err2 := netip.ParseAddr(route.Gateway)
		if err == nil && err2 == nil { // a route to the link itself has no gateway
			a.Routes = append(a.Routes, Route{dst, gateway})
		}
	}
	return a
}

// prefixOf reads a destination: a network, or one address.
func prefixOf(text string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}
