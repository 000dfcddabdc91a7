package plan

import (
	"context"
	"errors"
	"syscall"
)

// allFlags are those of a link that was just made a bridge's port.
var allFlags = PortFlags{Learning: true, Flood: true, Multicast: true, Broadcast: true}

// addPair makes a veth pair: the link of a VM, and its peer, which is a port of a bridge.
func (f *Fake) addPair(made Link) error {
	host := *made.Peer
	bridge := f.at(LinkKey{"", host.Master})
	if bridge == nil {
		return ErrNotMade
	}
	if f.Find(host.Key()) != nil || f.Find(LinkKey{made.Namespace, made.NameToBe()}) != nil {
		return syscall.EEXIST
	}
	delete(f.index, made.Key())
	delete(f.index, host.Key())
	host.Master, host.Ours, host.Up = bridge.Name, false, false
	host.Index = FirstIndex + f.lastIndex
	if err := f.AddLink(host); err != nil {
		return err
	}
	made.Index = FirstIndex + f.lastIndex
	made.Parent, made.Peer, made.Alias, made.Ours, made.Up = host.Name, nil, "", false, false
	made.ARP, made.ND = Probes{Known: true, Mcast: 3}, Probes{Known: true, Mcast: 3}
	return f.addAs(made)
}

// addAs adds a link under the name that it is to have, and remembers it by the other one.
func (f *Fake) addAs(made Link) error {
	at := made.Key()
	made.Name, made.As = made.NameToBe(), ""
	if err := f.AddLink(made); err != nil {
		return err
	}
	f.know(at, &made)
	return nil
}

// know remembers a link by the name that it has in steps, if it has another one now.
func (f *Fake) know(at LinkKey, l *Link) {
	if l.Key() == at {
		return
	}
	if f.index == nil {
		f.index = map[LinkKey]int32{}
	}
	f.index[at] = l.Index
}

// addTap makes a tap, which is a port of a bridge and down.
func (f *Fake) addTap(made Link) error {
	bridge := f.at(LinkKey{"", made.Master})
	if bridge == nil {
		return ErrNotMade
	}
	if f.Find(LinkKey{"", made.NameToBe()}) != nil {
		return syscall.EBUSY
	}
	delete(f.index, made.Key())
	made.Master, made.Index, made.Up = bridge.Name, FirstIndex+f.lastIndex, false
	return f.addAs(made)
}

// join makes a link a port of a bridge.
func (f *Fake) join(l *Link, name string) error {
	bridge := f.at(LinkKey{"", name})
	if bridge == nil {
		return ErrNotMade
	}
	for _, other := range f.Links {
		if other.Kind == KindMacvlan && other.Parent == l.Name {
			return syscall.EBUSY
		}
	}
	f.setMaster(l, bridge.Name)
	return nil
}

func (f *Fake) setMaster(l *Link, bridge string) {
	l.Master, l.Static, l.Flags = bridge, nil, PortFlags{}
	if bridge != "" {
		l.Flags = allFlags
	}
}

// Leave takes a link out of its bridge, as another program would.
func (f *Fake) Leave(name string) bool {
	return f.Edit("", name, func(l *Link) { f.setMaster(l, "") })
}

// rule executes a step about rules.
func (f *Fake) rule(ctx context.Context, s *Step) error {
	var err error
	if f.Fail != nil {
		err = f.Fail(*s)
	}
	index := func(name string) (int32, bool) {
		l := f.at(LinkKey{"", name})
		if l == nil {
			return 0, false
		}
		return l.Index, true
	}
	if err == nil {
		err = errors.Join(ApplyRules(ctx, f.Filter, []Step{*s}, index)...)
	}
	if l := f.at(LinkKey{"", s.Link}); err != nil && l != nil && s.Change&ChangeDown != 0 {
		l.Up = false
	}
	return err
}
