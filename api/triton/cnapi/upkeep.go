package cnapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"rutter/api/triton/internal/provision"
	"rutter/log"
	"rutter/projections"
)

// upkeep delivers tasks and ends what is over while this server leads, until ctx ends.
// Each server ends the tasks that an earlier process of it had claimed.
func (s *Service) upkeep(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Every)
	defer tick.Stop()
	s.sweep(ctx)
	for {
		changed := s.store.Changed()
		s.deliver(ctx)
		select {
		case <-changed:
		case <-tick.C:
			s.sweep(ctx)
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(wakeGather):
		case <-ctx.Done():
			return
		}
	}
}

// over is an operation that ends or removes something, and why.
type over struct {
	op   log.Op
	why  string
	more []log.Op // what follows from it
}

// sweep ends and removes what is over. What fails is found again in the next sweep.
func (s *Service) sweep(ctx context.Context) {
	var list []over
	leads := s.leading()
	now := log.TimeOf(s.cfg.Now())
	s.store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.TasksBy(false) {
			if failure := s.failureOf(rec.Object.(*log.Task), now, leads); failure != "" {
				list = append(list, failing(rec, failure))
			}
		}
		if leads {
			list = append(list, s.oldTickets(state, now)...)
			list = append(list, s.oldTasks(state, now)...)
			for _, one := range provision.Freed(state, maxRemoved) {
				list = append(list, over{one.Ops[0], one.Why, one.Ops[1:]})
			}
		}
	})
	for _, one := range list {
		if ctx.Err() != nil {
			return
		}
		if _, err := s.propose(ctx, nil, append([]log.Op{one.op}, one.more...)...); err != nil {
			s.logger.Debug("not ended yet", "kind", one.op.Kind, "id", one.op.ID, "why", one.why, "error", err)
			continue
		}
		s.logger.Info("ended", "kind", one.op.Kind, "id", one.op.ID, "why", one.why)
	}
}

// failureOf returns why an open task cannot continue; "" if it can.
func (s *Service) failureOf(t *log.Task, now log.Time, leads bool) string {
	mine := t.Via == log.ViaHTTP && t.Claimant == s.cfg.Self
	switch {
	case mine && t.Status == log.TaskActive && t.ClaimedBy != s.cfg.Run:
		return "interrupted: server " + s.cfg.Self + ", which was delivering it, was started anew"
	case !leads || t.Deadline > now:
		return ""
	case t.Status == log.TaskQueued && t.Via == log.ViaFeed:
		return fmt.Sprintf("timed out: the agent of the compute node did not take it within %d s", t.Timeout)
	case t.Status == log.TaskQueued:
		return fmt.Sprintf("timed out: no server delivered it within %d s", t.Timeout)
	case t.Via == log.ViaHTTP:
		return fmt.Sprintf("timed out: server %s has told nothing of it within %d s", t.Claimant, t.Timeout)
	}
	return fmt.Sprintf("timed out: the compute node has told nothing of it within %d s; it may have been done", t.Timeout)
}

func failing(rec projections.Record, failure string) over {
	return over{log.Op{
		Action: log.Update, Kind: log.KindTask, ID: rec.Object.ID(), IfMatch: rec.Revision, IfSeq: rec.Seq,
		Set: []string{"failure", "status"}, Object: &log.Task{Status: log.TaskFailure, Failure: failure},
	}, failure, afterFailure(rec.Object.(*log.Task))}
}

func (s *Service) oldTickets(state *projections.State, now log.Time) (list []over) {
	for rec := range state.TicketsBy(true) {
		if t := rec.Object.(*log.Ticket); t.Expires <= now {
			list = append(list, over{log.Op{
				Action: log.Update, Kind: log.KindTicket, ID: t.ID(), IfMatch: rec.Revision, IfSeq: rec.Seq,
				Set: []string{"status"}, Object: &log.Ticket{Status: log.TicketExpired},
			}, "expired at " + t.Expires.String(), nil})
		}
	}
	for rec := range state.TicketsBy(false) {
		if t := rec.Object.(*log.Ticket); t.Updated+log.Time(s.cfg.KeepTickets) <= now && len(list) < maxRemoved {
			list = append(list, over{log.Op{Action: log.Delete, Kind: log.KindTicket, ID: t.ID(), IfMatch: rec.Revision, IfSeq: rec.Seq}, "ended long ago", nil})
		}
	}
	return list
}

// oldTasks are ended tasks that are too old, or the oldest of too many.
func (s *Service) oldTasks(state *projections.State, now log.Time) (list []over) {
	var ended []projections.Record
	for rec := range state.TasksBy(true) {
		ended = append(ended, rec)
	}
	slices.SortFunc(ended, func(a, b projections.Record) int {
		return cmp.Compare(a.Object.(*log.Task).Finished, b.Object.(*log.Task).Finished)
	})
	for i, rec := range ended {
		tooMany := len(ended)-i > s.cfg.MaxTasks
		if t := rec.Object.(*log.Task); !tooMany && t.Finished+log.Time(s.cfg.KeepTasks) > now || len(list) == maxRemoved {
			break
		}
		list = append(list, over{log.Op{Action: log.Delete, Kind: log.KindTask, ID: rec.Object.ID(), IfMatch: rec.Revision, IfSeq: rec.Seq}, "ended long ago", nil})
	}
	return list
}

// deliver starts to post the tasks that wait for CNs without a Rutter agent.
func (s *Service) deliver(ctx context.Context) {
	if s.cfg.HTTP == nil || !s.leading() {
		return
	}
	type due struct {
		rec projections.Record
		to  *log.Server
	}
	var list []due
	s.store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.TasksBy(false) {
			t := rec.Object.(*log.Task)
			server, ok := state.Get(log.KindServer, t.ServerUUID.String())
			if ok && t.Via == log.ViaHTTP && t.Status == log.TaskQueued {
				list = append(list, due{rec, server.Object.(*log.Server)})
			}
		}
	})
	for _, one := range list {
		t := one.rec.Object.(*log.Task)
		s.mu.Lock()
		_, posting := s.posting[t.UUID]
		full := len(s.posting) >= maxPosts
		if !posting && !full {
			s.posting[t.UUID] = struct{}{}
		}
		s.mu.Unlock()
		if posting || full {
			continue
		}
		s.returned.Go(func() {
			defer func() {
				s.mu.Lock()
				delete(s.posting, t.UUID)
				s.mu.Unlock()
			}()
			s.carry(ctx, one.rec, one.to)
		})
	}
}

// carry claims a task, posts it, and records the result.
func (s *Service) carry(ctx context.Context, rec projections.Record, to *log.Server) {
	t := rec.Object.(*log.Task)
	claim := log.Op{
		Action: log.Update, Kind: log.KindTask, ID: t.ID(), IfMatch: rec.Revision, IfSeq: rec.Seq, Set: []string{"claimant", "claimed_by", "status"},
		Object: &log.Task{Status: log.TaskActive, ClaimedBy: s.cfg.Run, Claimant: s.cfg.Self},
	}
	if _, err := s.propose(ctx, nil, claim); err != nil {
		return // another server has it; or unknown, then it is interrupted or stays queued
	}
	within, cancel := context.WithDeadline(ctx, t.Deadline.Std())
	defer cancel()
	result, err := s.post(within, t, to)
	done := &log.Task{Status: log.TaskComplete, ClaimedBy: s.cfg.Run, Claimant: s.cfg.Self, Result: result}
	name := "finish"
	if err != nil {
		done.Status, done.Failure, name = log.TaskFailure, short(err.Error()), "error"
		s.counts.postsFailed.Add(1)
	} else {
		s.counts.posted.Add(1)
	}
	done.History = []string{historyEntry(name, s.cfg.Now(), result, err)}
	op := log.Op{
		Action: log.Update, Kind: log.KindTask, ID: t.ID(), Object: done,
		Set: []string{"claimant", "claimed_by", "failure", "history", "result", "status"},
	}
	ops := []log.Op{op}
	if err != nil {
		ops = append(ops, afterFailure(t)...)
	}
	// The result is recorded also while this server stops, with retries.
	for ended := context.WithoutCancel(ctx); ; {
		_, err := s.propose(ended, nil, ops...)
		if isRefusal(err) && len(ops) > 1 {
			ops = ops[:1] // the server object is deleted: the task ends without it
			continue
		}
		if err == nil || isRefusal(err) || ctx.Err() != nil {
			return
		}
		select {
		case <-time.After(s.cfg.Every):
		case <-ctx.Done():
		}
	}
}

// maxFailure bounds the text of a failure (projections.MaxTextBytes).
const maxFailure = projections.MaxTextBytes

func short(text string) string {
	return text[:min(len(text), maxFailure)]
}

// historyEntry is CNAPI's {name, timestamp, event}.
func historyEntry(name string, at time.Time, result string, err error) string {
	event := map[string]any{}
	if err != nil {
		event["error"] = map[string]string{"message": short(err.Error())}
	} else if len(result) < projections.MaxFieldJSON/2 && result != "" {
		event["result"] = json.RawMessage(result)
	}
	b, failed := json.Marshal(map[string]any{"name": name, "timestamp": log.TimeOf(at.UTC()), "event": event})
	if failed != nil || len(b) > projections.MaxFieldJSON {
		return `{"name":"` + name + `"}`
	}
	return string(b)
}
