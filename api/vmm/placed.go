package vmm

import (
	"rutter/log"
	"rutter/projections"
)

// waitForVM remembers a VMM that could not be recorded because the log does not have its
// VM on the CN. Its state is pulled again when this server has written the VM that the CN
// reports. The CN rings again too, for the case that another server writes it, or that
// maxUnplaced wait already.
func (s *Service) waitForVM(c claim) {
	l := s.conn(c.cn)
	if l == nil {
		return
	}
	l.mu.Lock()
	if _, waits := l.unplaced[c.vmm]; waits || len(l.unplaced) < maxUnplaced {
		l.unplaced[c.vmm] = c.state.InstanceID
	}
	l.mu.Unlock()
	l.ringPlaced() // the VM may have been written since
}

// ringPlaced rings for the VMMs that waited for a VM that the log now has on the CN.
func (l *Conn) ringPlaced() {
	l.mu.Lock()
	var placed []log.UUID
	if len(l.unplaced) > 0 {
		l.s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
			for vmm, vm := range l.unplaced {
				if isOn(state, l.cn, vm) {
					placed = append(placed, vmm)
					delete(l.unplaced, vmm)
				}
			}
		})
	}
	l.mu.Unlock()
	for _, vmm := range placed {
		if err := l.s.Ring(vmm, l.cn); err != nil {
			l.s.logger.Warn("a VMM whose VM has come is not asked for: its compute node rings again", "vmm", vmm, "cn", l.cn, "error", err)
		}
	}
}
