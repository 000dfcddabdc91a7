package node

import (
	"context"
	"maps"
	"sync"

	"rutter/agent"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmstore"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
)

// attaching tells an agent where the links of NICs end, as the sources of VMs say.
type attaching struct {
	store      *vmstore.Store
	agent      *agent.Agent
	registered *registrations // nil: no program registers VMs

	mu    sync.Mutex // protects what follows; held while the agent is told
	known map[log.UUID]stated
	last  map[log.MAC]desired.Attach // what the agent was told
}

// stated is what one VM says, by the text that says it.
type stated struct {
	text *byte
	at   map[log.MAC]desired.Attach
}

// run tells until ctx ends: all at once, and after each change what is so now.
func (t *attaching) run(ctx context.Context) {
	for {
		_, _, seq := t.store.Kept()
		t.tell()
		events, changed, err := t.store.Since(seq, 1)
		if err != nil || len(events) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// tell tells the agent what is so now. It may be called from any goroutine.
func (t *attaching) tell() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if t.last == nil || !maps.Equal(t.last, now) {
		t.agent.SetAttachments(now)
		t.last = now
	}
}

// now is what the VMs say now of their NICs. A NIC that the log has as another VM's is not
// this one's to say.
func (t *attaching) now() map[log.MAC]desired.Attach {
	vms, _ := t.store.List()
	all, here := make(map[log.MAC]desired.Attach), make(map[log.UUID]stated, len(vms))
	for _, vm := range vms {
		one := t.known[vm.UUID]
		if one.text != &vm.JSON[0] {
			one = stated{&vm.JSON[0], attachmentsOf(vm)}
		}
		here[vm.UUID] = one
		t.agent.View(func(state *projections.State) {
			for mac, at := range one.at {
				rec, ok := state.Get(log.KindNIC, mac.String())
				if _, twice := all[mac]; !twice && (!ok || rec.Object.(*log.NIC).BelongsToUUID == vm.UUID) {
					all[mac] = at
				}
			}
		})
	}
	t.known = here
	if t.registered != nil {
		t.agent.View(func(state *projections.State) { t.addRegistered(state, all) })
	}
	return all
}

// addRegistered adds what only the sources of registered VMs know: the NICs that the log is
// about to have, and those that were let go before the log is told.
func (t *attaching) addRegistered(state *projections.State, all map[log.MAC]desired.Attach) {
	for name, source := range t.registered.sources {
		for _, a := range source.Attachments() {
			if holder := t.store.Holder(a.VM); holder != "" && holder != name {
				continue
			}
			rec, known := state.Get(log.KindNIC, a.MAC.String())
			if known && rec.Object.(*log.NIC).BelongsToUUID != a.VM || !known && !a.Asked {
				continue
			}
			if a.Left {
				all[a.MAC] = desired.Attach{None: true}
			} else if _, said := all[a.MAC]; !said {
				all[a.MAC] = attachOf(a.At)
			}
		}
	}
}

// attachmentsOf reads what a VM says. What cannot be read is not told, so that it stays as
// it was.
func attachmentsOf(vm vmdoc.VM) map[log.MAC]desired.Attach {
	v, err := vmdoc.ParseValue(vm.JSON)
	if err != nil {
		return nil
	}
	at := make(map[log.MAC]desired.Attach)
	nics, _ := v.Get("nics")
	for _, nic := range nics.Items() {
		mac, err := log.ParseMAC(nic.Text("mac"))
		if err != nil {
			continue
		}
		if one, ok, err := vmdoc.AttachOf(nic); err == nil && ok {
			at[mac] = attachOf(one)
		} else if err == nil {
			at[mac] = desired.Attach{}
		}
	}
	return at
}
