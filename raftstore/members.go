package raftstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// adminRequest is a request to the leader to change the cluster.
type adminRequest struct {
	Do     string `json:"do"` // add, add-nonvoter, promote, remove, transfer, retention, finalize; to one server: rebuild, consent
	Member Member `json:"member"`
	Passed bool   `json:"passed,omitempty"` // forwarded by a server that took the receiver for the leader

	Retention *Retention `json:"retention,omitempty"`
	Feature   uint32     `json:"feature_version,omitempty"` // of consent
}

// maxJoinPause bounds the time between two attempts to join.
const maxJoinPause = 2 * time.Second

// Membership changes the members of the cluster, from any server. All methods may be
// called concurrently.
type Membership struct {
	store *Store
	fresh bool // the folder held no cluster when Run began
}

// Members returns the part that changes the members of the cluster.
func (s *Store) Members() *Membership { return s.members }

// AddVoter lets the server id at address into the cluster, or gives it a new
// address. Any server takes the call. Errors: ErrNoLeader and raft's.
func (ms *Membership) AddVoter(ctx context.Context, id, address string) error {
	if id == "" || address == "" {
		return fmt.Errorf("raftstore: add member %q at %q: want an id and an address", id, address)
	}
	return ms.admin(ctx, adminRequest{Do: "add", Member: Member{ID: id, Address: address}})
}

// Remove takes the server id out of the cluster. Removing one that is not in it
// is success.
func (ms *Membership) Remove(ctx context.Context, id string) error {
	return ms.admin(ctx, adminRequest{Do: "remove", Member: Member{ID: id}})
}

// Transfer hands the leadership to the server id; if id is "", to the voter that has most
// of the log.
func (ms *Membership) Transfer(ctx context.Context, id string) error {
	return ms.admin(ctx, adminRequest{Do: "transfer", Member: Member{ID: id}})
}

// RebuildMember asks the server id, which may be this one, to rebuild its state from the
// others, and returns when the rebuild has begun. The server's status shows its end.
func (ms *Membership) RebuildMember(ctx context.Context, id string) error {
	if id == ms.store.cfg.ID {
		return ms.startRebuild()
	}
	for _, m := range ms.store.Status().Members {
		if m.ID != id {
			continue
		}
		payload, err := json.Marshal(adminRequest{Do: "rebuild", Member: m.Member})
		if err != nil {
			return err
		}
		_, err = ms.store.endpoint.callPeer(ctx, m.Address, askAdmin, payload)
		return err
	}
	return fmt.Errorf("rebuild: %q is no member of the cluster: see its status for their ids", id)
}

// startRebuild starts a rebuild in a task of its own.
func (ms *Membership) startRebuild() error {
	if ms.store.applier.rebuilding() {
		return errRebuilding
	}
	started := ms.store.tasks.Start(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			select {
			case <-ms.store.ending:
				cancel()
			case <-ctx.Done():
			}
		}()
		_ = ms.store.Rebuild(ctx) // Rebuild logs its error, and the comparison still reports the difference
	})
	if !started {
		return ErrStopped
	}
	return nil
}

// admin sends a request to the leader, and repeats it while there is no leader.
func (ms *Membership) admin(ctx context.Context, request adminRequest) error {
	ctx, cancel := ms.store.bounded(ctx)
	defer cancel()
	for {
		moved := ms.store.lead.leaderMoved()
		err := ms.adminOnce(ctx, request)
		// Nothing was done, and another leader will be elected: the caller need not
		// repeat the request. A request that was forwarded is not repeated here, because
		// the server that forwarded it repeats it.
		if request.Passed || !errors.Is(err, ErrNoLeader) && !errors.Is(err, errNotSent) || ms.store.pause(ctx, moved) != nil {
			return err
		}
	}
}

func (ms *Membership) adminOnce(ctx context.Context, request adminRequest) error {
	address := ms.store.lead.leaderAddress()
	if address == "" {
		return ErrNoLeader
	}
	if address == ms.store.Address() {
		return ms.adminLocal(ctx, request)
	}
	if request.Passed {
		return errNotLeader
	}
	request.Passed = true
	payload, err := json.Marshal(request)
	if err != nil {
		return err
	}
	_, err = ms.store.endpoint.callPeer(ctx, address, askAdmin, payload)
	return err
}

// answerAdmin executes the request of a peer. A server that is not the leader forwards
// it.
func (ms *Membership) answerAdmin(ctx context.Context, payload []byte) error {
	var request adminRequest
	if err := json.Unmarshal(payload, &request); err != nil {
		return fmt.Errorf("admin request: %w", err)
	}
	if request.Do == "rebuild" && request.Member.ID == ms.store.cfg.ID {
		return ms.startRebuild()
	}
	if request.Do == "consent" && request.Member.ID == ms.store.cfg.ID {
		return ms.store.keeper.giveConsent(request.Feature)
	}
	return ms.admin(ctx, request)
}

func (ms *Membership) adminLocal(ctx context.Context, request adminRequest) error {
	r := ms.store.raft.Load()
	if r == nil {
		return ErrStopped
	}
	m := request.Member
	var future raft.Future
	switch request.Do {
	case "add", "add-nonvoter":
		if err := ms.checkNewcomer(ctx, m); err != nil {
			return fmt.Errorf("%s member %s: %w", request.Do, m.ID, err)
		}
		if request.Do == "add-nonvoter" {
			future = r.AddNonvoter(raft.ServerID(m.ID), raft.ServerAddress(m.Address), 0, enqueueTimeout)
			break
		}
		future = r.AddVoter(raft.ServerID(m.ID), raft.ServerAddress(m.Address), 0, enqueueTimeout)
	case "promote":
		if err := ms.promoteLocal(ctx, r, m.ID); err != nil {
			return fmt.Errorf("promote %s: %w", m.ID, err)
		}
		ms.store.logger.Info("membership changed", "do", request.Do, "member", m.ID)
		return nil
	case "remove":
		if err := ms.checkRemoval(ctx, r, m.ID); err != nil {
			return fmt.Errorf("remove member %s: %w", m.ID, err)
		}
		future = r.RemoveServer(raft.ServerID(m.ID), 0, enqueueTimeout)
	case "retention":
		return ms.store.keeper.setRetentionLocal(ctx, r, request.Retention)
	case "finalize":
		return ms.finalizeLocal(ctx, r)
	case "transfer":
		return ms.transferLocal(ctx, r, m.ID)
	default:
		return fmt.Errorf("admin request %q is not known to this server", request.Do)
	}
	if err := awaitFuture(ctx, future); err != nil {
		return fmt.Errorf("%s member %s: %w", request.Do, m.ID, err)
	}
	ms.store.logger.Info("membership changed", "do", request.Do, "member", m.ID, "address", m.Address)
	return nil
}

func (ms *Membership) transferLocal(ctx context.Context, r *raft.Raft, id string) error {
	if id == "" {
		return ms.store.lead.handOverToBest(ctx, r)
	}
	for _, m := range ms.store.Status().Members {
		if m.ID == id {
			return ms.transferTo(ctx, r, m)
		}
	}
	return fmt.Errorf("transfer leadership: %q is no member of the cluster: see its status for their ids", id)
}

// transferTo hands the leadership to one server. An attempt ends after an election
// timeout. That may be too short for a server that has just come back, because raft
// pauses between two attempts to reach it. So transferTo repeats the attempt until ctx
// ends.
func (ms *Membership) transferTo(ctx context.Context, r *raft.Raft, m MemberStatus) error {
	if m.ID == ms.store.cfg.ID {
		return nil // it leads already
	}
	if !m.Voter {
		return fmt.Errorf("transfer leadership: %s has no vote: promote it first", m.ID)
	}
	if a := ms.store.times.clocks.Agreement.Load(); a.Wrong(m.ID) {
		return fmt.Errorf("transfer leadership: the clock of %s is %s: set it right first", m.ID, describeOffset(a.Differs[m.ID]))
	}
	for {
		moved := ms.store.lead.leaderMoved()
		err := ms.store.lead.handOverTo(ctx, r, Member{ID: m.ID, Address: m.Address})
		if err == nil || r.State() != raft.Leader {
			return err
		}
		if ms.store.pause(ctx, moved) != nil {
			return err
		}
	}
}

// join asks the members of a running cluster to add this server, until one does. The
// server first follows without a vote, and asks for one when it has caught up.
func (ms *Membership) join(ctx context.Context) error {
	payload, err := json.Marshal(adminRequest{Do: "add-nonvoter", Member: Member{ID: ms.store.cfg.ID, Address: ms.store.Address()}})
	if err != nil {
		return err
	}
	for pause := retryPause; ; pause = min(2*pause, maxJoinPause) {
		var failures error
		for _, address := range ms.store.cfg.Join {
			try, cancel := context.WithTimeout(ctx, ms.store.cfg.ProposeTimeout)
			_, err := ms.store.endpoint.callPeer(try, address, askAdmin, payload)
			cancel()
			if err == nil {
				ms.store.logger.Info("joined the cluster", "through", address)
				return nil
			}
			failures = errors.Join(failures, fmt.Errorf("%s: %w", address, err))
		}
		ms.store.logger.Warn("could not join yet, trying again", "error", failures)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}
