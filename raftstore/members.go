package raftstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// adminRequest asks the leader to change the cluster.
type adminRequest struct {
	Do     string `json:"do"` // add, add-nonvoter, promote, remove, transfer
	Member Member `json:"member"`
	Passed bool   `json:"passed,omitempty"` // by a server that thought the receiver the leader

	Retention *Retention `json:"retention,omitempty"`
}

// maxJoinPause bounds the time between two tries to join.
const maxJoinPause = 2 * time.Second

// AddVoter lets the server id at address into the cluster, or gives it a new
// address. Any server takes the call. Errors: ErrNoLeader and raft's.
func (s *Store) AddVoter(ctx context.Context, id, address string) error {
	if id == "" || address == "" {
		return fmt.Errorf("raftstore: add member %q at %q: want an id and an address", id, address)
	}
	return s.admin(ctx, adminRequest{Do: "add", Member: Member{ID: id, Address: address}})
}

// Remove takes the server id out of the cluster. Removing one that is not in it
// is success.
func (s *Store) Remove(ctx context.Context, id string) error {
	return s.admin(ctx, adminRequest{Do: "remove", Member: Member{ID: id}})
}

// Transfer hands the leadership to the server id, or to the one that is
// furthest if id is "".
func (s *Store) Transfer(ctx context.Context, id string) error {
	return s.admin(ctx, adminRequest{Do: "transfer", Member: Member{ID: id}})
}

// RebuildMember asks the server id, which may be this one, to rebuild its state
// from the others, and returns when it has begun; its status tells of the end.
func (s *Store) RebuildMember(ctx context.Context, id string) error {
	if id == s.cfg.ID {
		return s.startRebuild()
	}
	for _, m := range s.Status().Members {
		if m.ID != id {
			continue
		}
		payload, err := json.Marshal(adminRequest{Do: "rebuild", Member: m.Member})
		if err != nil {
			return err
		}
		_, err = s.callPeer(ctx, m.Address, askAdmin, payload)
		return err
	}
	return fmt.Errorf("rebuild: %q is no member of the cluster: see its status for their ids", id)
}

// startRebuild rebuilds beside what else this server does.
func (s *Store) startRebuild() error {
	if s.rebuilding() {
		return errRebuilding
	}
	started := s.tasks.Start(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			select {
			case <-s.ending:
				cancel()
			case <-ctx.Done():
			}
		}()
		_ = s.Rebuild(ctx) // it was logged, and the comparison goes on to say it
	})
	if !started {
		return ErrStopped
	}
	return nil
}

// admin carries a request to the leader, and again while that one is gone.
func (s *Store) admin(ctx context.Context, request adminRequest) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	for {
		moved := s.leaderMoved()
		err := s.adminOnce(ctx, request)
		// Nothing was done, and another leader comes: nobody has to ask again for
		// that. Whoever passed a request on asks anew by itself.
		if request.Passed || !errors.Is(err, ErrNoLeader) && !errors.Is(err, errNotSent) || s.pause(ctx, moved) != nil {
			return err
		}
	}
}

func (s *Store) adminOnce(ctx context.Context, request adminRequest) error {
	address := s.leaderAddress()
	if address == "" {
		return ErrNoLeader
	}
	if address == s.Address() {
		return s.adminLocal(ctx, request)
	}
	if request.Passed {
		return errNotLeader
	}
	request.Passed = true
	payload, err := json.Marshal(request)
	if err != nil {
		return err
	}
	_, err = s.callPeer(ctx, address, askAdmin, payload)
	return err
}

// answerAdmin does what a peer asks; a server that is not the leader passes it on.
func (s *Store) answerAdmin(ctx context.Context, payload []byte) error {
	var request adminRequest
	if err := json.Unmarshal(payload, &request); err != nil {
		return fmt.Errorf("admin request: %w", err)
	}
	if request.Do == "rebuild" && request.Member.ID == s.cfg.ID {
		return s.startRebuild()
	}
	return s.admin(ctx, request)
}

func (s *Store) adminLocal(ctx context.Context, request adminRequest) error {
	r := s.raft.Load()
	if r == nil {
		return ErrStopped
	}
	m := request.Member
	var future raft.Future
	switch request.Do {
	case "add", "add-nonvoter":
		if err := s.checkNewcomer(ctx, m); err != nil {
			return fmt.Errorf("%s member %s: %w", request.Do, m.ID, err)
		}
		if request.Do == "add-nonvoter" {
			future = r.AddNonvoter(raft.ServerID(m.ID), raft.ServerAddress(m.Address), 0, enqueueTimeout)
			break
		}
		future = r.AddVoter(raft.ServerID(m.ID), raft.ServerAddress(m.Address), 0, enqueueTimeout)
	case "promote":
		if err := s.promoteLocal(ctx, r, m.ID); err != nil {
			return fmt.Errorf("promote %s: %w", m.ID, err)
		}
		s.logger.Info("membership changed", "do", request.Do, "member", m.ID)
		return nil
	case "remove":
		if err := s.checkRemoval(ctx, r, m.ID); err != nil {
			return fmt.Errorf("remove member %s: %w", m.ID, err)
		}
		future = r.RemoveServer(raft.ServerID(m.ID), 0, enqueueTimeout)
	case "retention":
		return s.setRetentionLocal(ctx, r, request.Retention)
	case "transfer":
		return s.transferLocal(ctx, r, m.ID)
	default:
		return fmt.Errorf("admin request %q is not known to this server", request.Do)
	}
	if err := awaitFuture(ctx, future); err != nil {
		return fmt.Errorf("%s member %s: %w", request.Do, m.ID, err)
	}
	s.logger.Info("membership changed", "do", request.Do, "member", m.ID, "address", m.Address)
	return nil
}

func (s *Store) transferLocal(ctx context.Context, r *raft.Raft, id string) error {
	if id == "" {
		return s.giveAway(ctx, r)
	}
	for _, m := range s.Status().Members {
		if m.ID == id {
			return s.transferTo(ctx, r, m)
		}
	}
	return fmt.Errorf("transfer leadership: %q is no member of the cluster: see its status for their ids", id)
}

// transferTo hands over to one server. That is given up after an election
// timeout, which one that came back just now may not keep: raft waits between two
// tries to reach it. It is tried again as long as ctx lasts.
func (s *Store) transferTo(ctx context.Context, r *raft.Raft, m MemberStatus) error {
	if m.ID == s.cfg.ID {
		return nil // it leads already
	}
	if !m.Voter {
		return fmt.Errorf("transfer leadership: %s has no vote: promote it first", m.ID)
	}
	if a := s.clocks.agreement.Load(); a.wrong(m.ID) {
		return fmt.Errorf("transfer leadership: the clock of %s is %s: set it right first", m.ID, aside(a.differs[m.ID]))
	}
	for {
		moved := s.leaderMoved()
		err := s.handTo(ctx, r, Member{ID: m.ID, Address: m.Address})
		if err == nil || r.State() != raft.Leader {
			return err
		}
		if s.pause(ctx, moved) != nil {
			return err
		}
	}
}

// join asks to be let into a running cluster until a member says yes. It
// follows without a vote first, and asks for one when it has caught up.
func (s *Store) join(ctx context.Context) error {
	payload, err := json.Marshal(adminRequest{Do: "add-nonvoter", Member: Member{ID: s.cfg.ID, Address: s.Address()}})
	if err != nil {
		return err
	}
	for pause := retryPause; ; pause = min(2*pause, maxJoinPause) {
		var failures error
		for _, address := range s.cfg.Join {
			try, cancel := context.WithTimeout(ctx, s.cfg.ProposeTimeout)
			_, err := s.callPeer(try, address, askAdmin, payload)
			cancel()
			if err == nil {
				s.logger.Info("joined the cluster", "through", address)
				return nil
			}
			failures = errors.Join(failures, fmt.Errorf("%s: %w", address, err))
		}
		s.logger.Warn("could not join yet, trying again", "error", failures)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}
