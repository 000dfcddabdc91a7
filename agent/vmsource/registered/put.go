package registered

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
	"rutter/projections"
)

// Bounds of how long requests wait.
const (
	// DefaultWithin is how long a PUT waits unless it says how long.
	DefaultWithin = 30 * time.Second
	// MaxWithin bounds what it may say.
	MaxWithin = 10 * time.Minute
	// deleteWithin is Config.DeleteWithin's default.
	deleteWithin = 2 * time.Second
	// viewWithin is how long this node's part of the log may be behind the servers, where
	// the answer only says more with it.
	viewWithin = 5 * time.Second
)

// failed makes an Error.
func failed(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// errChanged: the record changed while the registration was compared with it.
var errChanged = errors.New("registered: the registration changed meanwhile")

// errDeleted: the VM was deleted while it was registered.
var errDeleted = errors.New("the registration was deleted meanwhile")

// Put registers a VM, or changes a registration, and returns it. The errors are *Error.
func (s *Source) Put(ctx context.Context, id log.UUID, reg Registration, wait Wait) (VM, error) {
	within := min(cmp.Or(wait.Within, DefaultWithin), MaxWithin)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ctx, release, err := s.lock(ctx, id)
	if err != nil {
		return VM{}, failed(CodeServers, "VM %s: another request about it is not done: %v; repeat it", id, err)
	}
	for range maxRounds {
		if err = s.putLocked(ctx, id, &reg); !errors.Is(err, errChanged) {
			break
		}
	}
	release()
	if err != nil {
		return VM{}, err
	}
	s.Wake()
	return s.await(ctx, id, wait.For)
}

// putLocked does what must not be done twice at once for one VM.
func (s *Source) putLocked(ctx context.Context, id log.UUID, reg *Registration) error {
	if holder := s.cfg.Node.Holder(id); holder != "" && holder != s.cfg.Name {
		return failed(CodeOther, "VM %s is one of %s: each VM is of one source; remove it there first", id, holder)
	}
	before, err := s.settledBefore(ctx, id, reg)
	if err != nil {
		return err
	}
	if err := s.resolve(ctx, id, before, reg); err != nil {
		return err
	}
	after, made, err := s.merged(id, before, reg)
	if err != nil {
		return err
	}
	if before == nil || before.Zonename != after.Zonename {
		if vm, source := s.cfg.Node.ZoneHolder(after.Zonename); source != "" && source != s.cfg.Name && vm != id {
			return zoneTaken(after.Zonename, vm, source)
		}
	}
	if err := s.accept(ctx, before, after); err != nil {
		return err
	}
	if before != nil && before.State == StateRunning && after.State == StateStopped {
		s.cfg.Node.Ended(id, failureOf(after))
	}
	s.attaching(after)
	return s.madeNow(ctx, id, made)
}

// failureOf is why a VM that stopped failed, "" if it did not.
func failureOf(r *record) string {
	if r.ExitStatus == nil || *r.ExitStatus == 0 {
		return ""
	}
	return fmt.Sprintf("it ended with status %d", *r.ExitStatus)
}

// settledBefore returns the VM's record, nil if there is none. What is being removed of it
// and would be in the way of the registration is removed first.
func (s *Source) settledBefore(ctx context.Context, id log.UUID, reg *Registration) (*record, error) {
	r := s.recordOf(id)
	if r == nil {
		return nil, nil
	}
	inTheWay := r.Leaving
	for i := range r.NICs {
		for j := range reg.NICs {
			inTheWay = inTheWay || r.NICs[i].Leaving && r.NICs[i].MAC == reg.NICs[j].MAC
		}
	}
	if !inTheWay {
		return r, nil
	}
	for {
		err := s.tell(ctx, id)
		if err == nil {
			return s.recordOf(id), nil
		}
		if !isSoon(err) {
			return nil, failed(CodeServers, "VM %s: what was removed of it is in the log still, and no server answers: %v; repeat it", id, err)
		}
		s.Wake()
		select {
		case <-ctx.Done():
			return nil, failed(CodeServers, "VM %s: what was removed of it is not gone in time; repeat it", id)
		case <-time.After(lookMin):
		}
	}
}

// recordOf returns the present record of a VM, nil if there is none.
func (s *Source) recordOf(id log.UUID) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.vms[id]; e != nil {
		return e.record
	}
	return nil
}

// resolve replaces the names of networks in a registration by their UUIDs, where the NIC is
// new.
func (s *Source) resolve(ctx context.Context, id log.UUID, before *record, reg *Registration) error {
	for i := range reg.NICs {
		n := &reg.NICs[i]
		if n.Network == "" || before != nil && before.nic(n.Key) != nil && before.nic(n.Key).Held {
			continue
		}
		if _, err := log.ParseUUID(n.Network); err == nil {
			continue
		}
		if !isText(n.Network) {
			return failed(CodeInvalid, "nics.%s.network: want a UUID or a name of at most %d bytes", clip(n.Key), MaxText)
		}
		var found []log.UUID
		s.cfg.Node.View(func(state *projections.State) {
			for rec := range state.List(log.KindNetwork) {
				if net := rec.Object.(*log.Network); net.Name == n.Network {
					found = append(found, net.UUID)
				}
			}
		})
		if len(found) == 0 {
			network, err := s.cfg.Servers.Network(ctx, n.Network)
			var refusal *log.Refusal
			switch {
			case errors.As(err, &refusal):
				return failed(CodeRefused, "nics.%s.network: this node sees no network %q: name it by its UUID, and have an operator open it to nodes (rutter network update UUID self_provision=any): %v", n.Key, n.Network, err)
			case err != nil:
				return failed(CodeServers, "VM %s: this node does not know the network %q, and no server answers: %v; repeat it", id, n.Network, err)
			}
			found = append(found, network)
		}
		if len(found) > 1 {
			return failed(CodeInvalid, "nics.%s.network: %d networks have the name %q: name one by its UUID", n.Key, len(found), n.Network)
		}
		n.Network = found[0].String()
	}
	return nil
}

// merged returns the record after a registration, and whether it has new NICs that the log
// must make.
func (s *Source) merged(id log.UUID, before *record, reg *Registration) (r *record, made bool, err error) {
	if before == nil {
		r = &record{Version: fileVersion, UUID: id, State: StateRunning, Brand: s.cfg.Name, Zonename: id.String()}
	} else {
		r = before.clone()
	}
	if err := r.take(reg); err != nil {
		return nil, false, failed(CodeInvalid, "VM %s: %v", id, err)
	}
	if !r.Known {
		s.cfg.Node.View(func(state *projections.State) {
			vm := state.VM(id)
			r.Known = vm != nil && vm.ServerUUID == s.cfg.CN
		})
	}
	change := s.cfg.NewID()
	if r.Away && r.State == StateRunning {
		s.back(r, change)
	}
	for i := range reg.NICs {
		asked := &reg.NICs[i]
		if n := r.nic(asked.Key); n != nil {
			err = n.change(asked)
			if err == nil && !n.Held && n.Reason != "" { // the program may have done what was asked
				n.Reason, n.Change = "", change
			}
		} else {
			err = s.add(r, asked, change)
		}
		if err != nil {
			return nil, false, failed(CodeInvalid, "VM %s: nics.%s: %v", id, clip(asked.Key), err)
		}
	}
	r.onePrimary(reg)
	if err := r.check(); err != nil {
		return nil, false, failed(CodeInvalid, "VM %s: %v", id, err)
	}
	for i := range r.NICs {
		made = made || !r.NICs[i].Held && !r.NICs[i].Leaving
	}
	return r, made, nil
}

// back has the log asked for the VM and the NICs of a record that runs here again, after it
// was on another node: what the log has here is held.
func (s *Source) back(r *record, change log.UUID) {
	r.Away, r.Known = false, false
	for i, l := range s.inLog(r) {
		n := &r.NICs[i]
		if n.Leaving || l.nic != nil && l.nic.CNUUID == s.cfg.CN {
			r.Known = r.Known || !n.Leaving
			continue
		}
		n.Held, n.Fabric, n.Given, n.Change = false, false, true, change
	}
}

// take takes the fields of a registration that are given.
func (r *record) take(reg *Registration) error {
	r.Alias = cmp.Or(reg.Alias, r.Alias)
	if !reg.OwnerUUID.IsZero() {
		r.OwnerUUID = reg.OwnerUUID
	}
	r.Zonename, r.Brand, r.State = cmp.Or(reg.Zonename, r.Zonename), cmp.Or(reg.Brand, r.Brand), cmp.Or(reg.State, r.State)
	if reg.State != "" || reg.RunState != "" {
		r.RunState = reg.RunState
	}
	r.RAM, r.VCPUs, r.PID = cmp.Or(reg.RAM, r.RAM), cmp.Or(reg.VCPUs, r.VCPUs), cmp.Or(reg.PID, r.PID)
	if reg.Tags != nil {
		r.Tags = reg.Tags
	}
	if reg.ExitStatus != nil {
		r.ExitStatus = reg.ExitStatus
	}
	switch {
	case r.State == StateStopped && reg.PID != 0:
		return fmt.Errorf("pid: a VM that is %s has none", StateStopped)
	case r.State == StateRunning && reg.ExitStatus != nil:
		return fmt.Errorf("exit_status: a VM that is %s has none", StateRunning)
	case r.State == StateStopped:
		r.PID = 0
	default:
		r.ExitStatus = nil
	}
	return nil
}

// change takes what a registration may change of a NIC.
func (n *nicRecord) change(asked *NIC) error {
	if network, err := log.ParseUUID(asked.Network); err == nil && network != n.Network && !n.Network.IsZero() {
		return fmt.Errorf("it is on network %s: detach it first (DELETE nics/%s)", n.Network, n.Key)
	}
	if !asked.MAC.IsZero() && asked.MAC != n.MAC {
		return fmt.Errorf("its MAC is %s: detach it first (DELETE nics/%s)", n.MAC, n.Key)
	}
	ip, err := askedIP(asked)
	if err != nil {
		return err
	}
	if ip.IsValid() && n.IP.IsValid() && ip != n.IP {
		return fmt.Errorf("its address was asked to be %s: detach it first (DELETE nics/%s)", n.IP, n.Key)
	}
	if asked.Attach != nil {
		n.Attach = asked.Attach
	}
	return nil
}

func askedIP(asked *NIC) (netip.Addr, error) {
	switch len(asked.IPs) {
	case 0:
		return netip.Addr{}, nil
	case 1:
		return asked.IPs[0].Unmap(), nil
	}
	return netip.Addr{}, fmt.Errorf("ips: %d, and a NIC of the log has one address: ask for one, or make another NIC", len(asked.IPs))
}

// add adds a NIC to a record. It exists in the log already if this node sees it there.
func (s *Source) add(r *record, asked *NIC, change log.UUID) error {
	ip, err := askedIP(asked)
	if err != nil {
		return err
	}
	n := nicRecord{Key: asked.Key, MAC: asked.MAC, Given: !asked.MAC.IsZero(), IP: ip, Attach: asked.Attach}
	if asked.Network != "" {
		if n.Network, err = log.ParseUUID(asked.Network); err != nil {
			return err
		}
	}
	if !n.Given {
		n.MAC = randomMAC()
	} else if l := s.inLog(&record{UUID: r.UUID, NICs: []nicRecord{n}})[0]; l.nic != nil && l.nic.CNUUID == s.cfg.CN {
		n.Held = true
		n.Network = l.nic.NetworkUUID
	} else if n.Network.IsZero() {
		return fmt.Errorf("mac %s: this node's part of the log has no such NIC of VM %s on this node: name the network, or make the NIC first", n.MAC, r.UUID)
	}
	if !n.Held {
		n.Change = change
	}
	r.NICs = append(r.NICs, n)
	return nil
}

// randomMAC returns a MAC that no vendor has given out (the bit of local administration),
// with 46 random bits, so that the log need not choose it.
func randomMAC() (mac log.MAC) {
	_, _ = rand.Read(mac[:]) // never fails
	mac[0] = mac[0]&^1 | 2
	return mac
}

// onePrimary leaves the mark to the NIC that a registration marks.
func (r *record) onePrimary(reg *Registration) {
	for i := range reg.NICs {
		if !reg.NICs[i].Primary {
			continue
		}
		for j := range r.NICs {
			r.NICs[j].Primary = r.NICs[j].Key == reg.NICs[i].Key && !r.NICs[j].Leaving
		}
	}
}

// accept writes the record to disk, unless the VM was deleted or changed meanwhile.
func (s *Source) accept(ctx context.Context, before, after *record) error {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.vms[after.UUID]
	switch {
	case errors.Is(context.Cause(ctx), errDeleted), e == nil && before != nil, e != nil && e.Leaving:
		return failed(CodeOther, "VM %s: %v", after.UUID, errDeleted)
	case e != nil && e.record != before:
		return errChanged
	}
	if e == nil && len(s.vms) >= MaxVMs {
		return failed(CodeTooMany, "%s has %d registrations, with those that are being removed: no more are kept", s.cfg.Name, MaxVMs)
	}
	for _, other := range s.vms {
		if other.UUID != after.UUID && other.Zonename == after.Zonename && !other.Leaving && (before == nil || before.Zonename != after.Zonename) {
			return zoneTaken(after.Zonename, other.UUID, s.cfg.Name)
		}
		for i := range other.NICs {
			if mac := other.NICs[i].MAC; other.UUID != after.UUID && after.hasMAC(mac) {
				return failed(CodeInvalid, "mac %s is that of a NIC of VM %s", mac, other.UUID)
			}
		}
	}
	if e == nil {
		e = newEntry(after)
	}
	if err := s.keepLocked(e, after); err != nil {
		return diskFailed(s.cfg.Folder, err)
	}
	s.vms[after.UUID] = e
	s.mendedLocked(after.UUID)
	return nil
}

// zoneTaken refuses a zonename that another VM has.
func zoneTaken(zone string, vm log.UUID, source string) *Error {
	return failed(CodeInvalid, "zonename %s is that of VM %s of %s, whose links would be this VM's too: give this VM another, or leave it out (the VM's UUID)", zone, vm, source)
}

func (r *record) hasMAC(mac log.MAC) bool {
	for i := range r.NICs {
		if r.NICs[i].MAC == mac {
			return true
		}
	}
	return false
}

// attaching tells the node where the links of a record's NICs end, before the log has them.
func (s *Source) attaching(r *record) {
	at := make(map[log.MAC]vmdoc.Attach)
	for i := range r.NICs {
		if n := &r.NICs[i]; !n.Leaving && n.Attach != nil {
			at[n.MAC] = n.attach()
		}
	}
	if len(at) > 0 {
		s.cfg.Node.Attaching(at)
	}
}

// madeNow has the log make the new NICs of a VM. What it refuses is registered no more.
func (s *Source) madeNow(ctx context.Context, id log.UUID, made bool) error {
	if !made {
		return nil
	}
	var networks []log.UUID
	for _, n := range s.recordOf(id).NICs {
		if !n.Held {
			networks = append(networks, n.Network)
		}
	}
	err := s.make(ctx, id)
	var refusal *log.Refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		if err := s.dropRefused(id); err != nil {
			return diskFailed(s.cfg.Folder, err)
		}
		return failed(CodeRefused, "VM %s: the log refuses its NICs: %v%s", id, refusal, Hint(refusal, networks...))
	case errors.Is(context.Cause(ctx), errDeleted):
		return failed(CodeOther, "VM %s: %v", id, errDeleted)
	}
	return failed(CodeServers, "VM %s: no server answered in time, so it is not known whether the log has its NICs: %v; repeat it, or delete the registration", id, err)
}

// Hint says what an operator can do about a refusal of a node's own NICs on networks.
func Hint(refusal *log.Refusal, networks ...log.UUID) string {
	if refusal.Code != log.CodeNotAuthorized || len(networks) == 0 {
		return ""
	}
	text := "; this node may make NICs only on networks that are open to it: an operator opens one by"
	seen := make(map[log.UUID]bool)
	for _, network := range networks {
		if !seen[network] {
			text += fmt.Sprintf(" rutter network update %s self_provision=any,", network)
		}
		seen[network] = true
	}
	return text + " or =joined for the nodes that have a NIC on it already"
}
