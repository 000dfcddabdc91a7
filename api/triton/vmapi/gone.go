package vmapi

import (
	"context"
	"errors"
	"net/http"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/vmobject"
	"rutter/projections"
)

// maxGone is how many VMs a list may name for which it looks in the history of the log.
const maxGone = 16

// gone returns those of some VMs that the log does not have any more, as destroyed: VMAPI
// keeps such VMs, and listeners of the change feed read the VM of each item. CMON ends with
// an error if a list by the VM's UUID has no element.
func (s *Service) gone(ctx context.Context, ids []log.UUID) (some []subject) {
	if s.cfg.Gone == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, freshWithin)
	defer cancel()
	for _, id := range ids {
		known := false
		s.cfg.Store.View(func(state *projections.State, _ log.Cursor) { _, known = state.Get(log.KindVM, id.String()) })
		if known {
			continue
		}
		event, err := s.cfg.Gone(ctx, id)
		if err == nil && event == nil {
			continue
		}
		vm, is := (*log.VM)(nil), false
		if err == nil {
			if vm, is = event.Object.(*log.VM); is {
				vm, err = vmobject.Destroyed(vm, event.Time)
			}
		}
		if err != nil || !is {
			s.cfg.Logger.Warn("whether a VM was destroyed cannot be read", "vm", id, "error", err)
			continue
		}
		some = append(some, subject{vm: vm})
	}
	return some
}

// goneOf returns the parts of the VM that a request names, if failed says that the log has
// no such VM and it had one; nil: it had not, or it was another owner's.
func (s *Service) goneOf(r *http.Request, failed error) *parts {
	var p *rest.Error
	id, err := vmID(r)
	if err != nil || !errors.As(failed, &p) || p.Status != http.StatusNotFound {
		return nil
	}
	some := s.gone(r.Context(), []log.UUID{id})
	if owner := r.URL.Query().Get("owner_uuid"); len(some) == 0 || owner != "" && !some[0].vm.OwnerUUID.Is(owner) {
		return nil
	}
	return &parts{vm: some[0].vm}
}
