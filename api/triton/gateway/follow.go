package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"rutter/api/triton/changefeed/listen"
	"rutter/log"
	"rutter/projections"
)

// vmPage is how many VMs one answer of the old VMAPI has.
const vmPage = 1000

// maxLooks bounds the VMs that one sweep asks for one by one.
const maxLooks = 1000

// wanted are the subresources of the old VMAPI's feed, all that it publishes.
var wanted = []string{"alias", "customer_metadata", "destroyed", "internal_metadata", "nics", "owner_uuid", "server_uuid", "state", "tags"}

// follow brings what the old VMAPI writes itself into the log while this server leads:
// by its change feed, and by a sweep at each start of the feed and at times, for
// what no feed says (role tags) and for what was said while nothing listened.
func (g *Gateway) follow(ctx context.Context) {
	g.whileLeading(ctx, func(ctx context.Context) {
		var parts sync.WaitGroup
		defer parts.Wait()
		again := make(chan struct{}, 1)
		parts.Go(func() { g.sweeping(ctx, again) })
		l, err := listen.New(listen.Config{
			Servers: []string{g.behind.base.String()}, Instance: "rutter-gateway-" + g.cfg.Self, Service: "rutter-gateway",
			Wants: []listen.Want{{Resource: "vm", SubResources: wanted}}, Logger: g.logger,
		})
		if err != nil {
			g.logger.Error("the change feed is not followed", "error", err)
			return
		}
		_ = l.Run(ctx, listen.Handler{ // it ends with ctx
			Bootstrap: func(b listen.Bootstrap) error {
				if !b.Resumed {
					wake(again)
				}
				return nil
			},
			Item: func(it listen.Item) error {
				if err := g.takeItem(ctx, it); err != nil && ctx.Err() == nil {
					g.logger.Warn("an item of the change feed is not in the log: the sweep repeats it", "vm", it.ChangedResourceID, "error", err)
				}
				return nil
			},
		})
	})
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// whileLeading calls fn with a context that ends when this server leads no more, each
// time that it begins to lead, until ctx ends. fn must end with its context.
func (g *Gateway) whileLeading(ctx context.Context, fn func(ctx context.Context)) {
	for ctx.Err() == nil {
		if !g.leading() || g.store.Ready() != nil {
			select {
			case <-ctx.Done():
			case <-time.After(leadEvery):
			}
			continue
		}
		term, end := context.WithCancel(ctx)
		var watching sync.WaitGroup
		watching.Go(func() {
			defer end()
			for g.leading() && term.Err() == nil {
				select {
				case <-term.Done():
				case <-time.After(leadEvery):
				}
			}
		})
		fn(term)
		end()
		watching.Wait()
		select {
		case <-ctx.Done():
		case <-time.After(leadEvery):
		}
	}
}

// leadEvery is how often it is looked whether this server leads.
const leadEvery = 100 * time.Millisecond

// takeItem has the log know the VM of an item. The item's own object is not used: the
// old VMAPI sends items late, and in any order, so that an older one would win.
func (g *Gateway) takeItem(ctx context.Context, it listen.Item) error {
	if it.ChangeKind.Resource != "vm" {
		return nil
	}
	id, err := log.ParseUUID(it.ChangedResourceID)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, proposeTime)
	defer cancel()
	if err := g.refresh(within, id, false, nil); !missing(err) {
		return err
	}
	return nil
}

// sweeping compares the VMs of the old VMAPI with the log's, when it is woken and once
// in each Config.Sweep.
func (g *Gateway) sweeping(ctx context.Context, again <-chan struct{}) {
	pause := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-time.After(pause):
		}
		err := g.sweep(ctx)
		switch {
		case err == nil:
			pause = g.cfg.Sweep
		case ctx.Err() == nil:
			g.logger.Debug("the VMs of "+g.name()+" were not all read", "error", err)
			pause = min(max(2*pause, firstPause), mostPause)
		}
	}
}

// sweep reads the active VMs of the old VMAPI, and asks for those that the log has as
// active on nodes without an agent of Rutter's and that were not among them.
func (g *Gateway) sweep(ctx context.Context) error {
	seen := make(map[string]bool)
	for offset := 0; offset < MaxSwept; offset += vmPage {
		var asOf log.Seq
		g.store.View(func(_ *projections.State, head log.Cursor) { asOf = head.Seq })
		body, _, err := g.behind.ask(ctx, http.MethodGet, "/vms?state=active&fields=*&limit="+strconv.Itoa(vmPage)+"&offset="+strconv.Itoa(offset), nil, nil)
		if err != nil {
			return err
		}
		var page []json.RawMessage
		if err := json.Unmarshal(body, &page); err != nil {
			return fmt.Errorf("GET /vms: %w", err)
		}
		for _, object := range page {
			one, err := g.take(object)
			if err != nil {
				g.logger.Warn("a VM of "+g.name()+" cannot be read", "object", cut(object), "error", err)
				continue
			}
			seen[one.vm.ID()] = true
			one.asOf = asOf
			within, cancel := context.WithTimeout(ctx, proposeTime)
			err = g.intake(within, one, fromVMAPI)
			if errors.Is(err, errPassed) {
				err = g.refresh(within, one.vm.UUID, false, nil)
			}
			cancel()
			if err != nil {
				g.logger.Warn("a VM of "+g.name()+" is not in the log as it is there", "vm", one.vm.UUID, "error", err)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if len(page) < vmPage {
			break
		}
	}
	return g.lookFor(ctx, seen)
}

// lookFor asks for the VMs that the old VMAPI did not list as active.
func (g *Gateway) lookFor(ctx context.Context, seen map[string]bool) error {
	var gone []log.UUID // those that the last round did not reach first
	g.store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.List(log.KindVM) {
			vm := rec.Object.(*log.VM)
			if vm.State == stateDestroyed || vm.State == stateFailed || seen[vm.ID()] || hasAgent(state, vm.ServerUUID) {
				continue
			}
			gone = append(gone, vm.UUID)
		}
	})
	slices.SortFunc(gone, log.UUID.Compare)
	from, _ := slices.BinarySearchFunc(gone, g.looked, func(id, last log.UUID) int { return cmp.Or(id.Compare(last), -1) })
	gone = append(gone[from:], gone[:from]...)
	for _, id := range gone[:min(len(gone), maxLooks)] {
		g.looked = id
		if err := g.refresh(ctx, id, false, nil); err != nil && !missing(err) {
			return err
		}
	}
	return nil
}
