package vmm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"rutter/log"
)

// Outcome is the result of a call that changes a VMM.
type Outcome struct {
	Updated *State   `json:"updated_runtime"` // null: nothing changed
	VMM     *log.VMM `json:"vmm"`             // as the log has it now
	Seq     log.Seq  `json:"-"`               // at which it can be read
}

// SetState makes a VMM's CN change its state: body is Omicron's, as in
// {"state":{"type":"running"}}. The outcome is recorded when it returns. It may be
// called on any server. Errors: ErrUnknown, ErrUnreachable (it may have been done),
// *AnswerError, and those of writing.
func (s *Service) SetState(ctx context.Context, id log.UUID, body []byte, actor string) (Outcome, error) {
	held, err := s.known(ctx, id)
	if err != nil {
		return Outcome{}, err
	}
	return s.call(ctx, held, http.MethodPut, "/vmms/"+id.String()+"/state", body, actor)
}

// Unregister makes a VMM's CN end it by force if it has not ended. Otherwise as
// SetState.
func (s *Service) Unregister(ctx context.Context, id log.UUID, actor string) (Outcome, error) {
	held, err := s.known(ctx, id)
	if err != nil {
		return Outcome{}, err
	}
	return s.call(ctx, held, http.MethodDelete, "/vmms/"+id.String(), nil, actor)
}

// Register makes a CN create a VMM of a VM. It is recorded after the CN has created it:
// if this server fails between, the CN rings for it. Otherwise as SetState.
func (s *Service) Register(ctx context.Context, id, vm, cn log.UUID, actor string) (Outcome, error) {
	body, err := json.Marshal(map[string]log.UUID{"instance_id": vm})
	if err != nil {
		return Outcome{}, err
	}
	asked, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	answer, err := s.versioned(asked, cn, http.MethodPut, "/vmms/"+id.String(), body)
	if err != nil {
		return Outcome{}, err
	}
	st, err := parseState(answer.Body)
	if err != nil {
		return Outcome{}, err
	}
	st.InstanceID = vm
	return s.settle(ctx, claim{vmm: id, cn: cn, actor: actor, state: *st}, st)
}

// known is a VMM of the log.
func (s *Service) known(ctx context.Context, id log.UUID) (*log.VMM, error) {
	held := s.vmmOf(id)
	if held == nil {
		if _, err := s.cfg.Store.Consistent(ctx); err != nil {
			return nil, err
		}
		held = s.vmmOf(id)
	}
	if held == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknown, id)
	}
	return held, nil
}

// call sends a change to the CN, and records the result.
func (s *Service) call(ctx context.Context, held *log.VMM, method, path string, body []byte, actor string) (Outcome, error) {
	asked, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	answer, err := s.versioned(asked, held.SledID, method, path, body)
	if errors.Is(err, errGone) {
		return Outcome{}, errors.Join(err, s.fail(ctx, held, reasonGone))
	}
	if err != nil {
		return Outcome{}, err
	}
	var out struct {
		Updated json.RawMessage `json:"updated_runtime"`
	}
	if err := json.Unmarshal(answer.Body, &out); err != nil {
		return Outcome{}, fmt.Errorf("%w: %w", errInconclusive, err)
	}
	c := claim{vmm: held.UUID, cn: held.SledID, actor: actor}
	if len(out.Updated) > 0 && string(out.Updated) != "null" {
		st, err := parseState(out.Updated)
		if err != nil {
			return Outcome{}, err
		}
		c.state = *st
		return s.settle(ctx, c, st)
	}
	// The CN changed nothing, but its state may still be newer than the log's.
	st, err := s.fetch(ctx, held.SledID, held.UUID)
	if err != nil {
		return Outcome{}, err
	}
	c.state, c.actor = *st, actorCN+held.SledID.String()
	return s.settle(ctx, c, nil)
}

// settle records an outcome, and waits until it can be read here.
func (s *Service) settle(ctx context.Context, c claim, updated *State) (Outcome, error) {
	seq, _, err := s.record(ctx, c)
	if err != nil {
		return Outcome{}, err
	}
	if err := s.cfg.Store.WaitSeq(ctx, seq); err != nil {
		return Outcome{}, err
	}
	return Outcome{Updated: updated, VMM: s.vmmOf(c.vmm), Seq: seq}, nil
}
