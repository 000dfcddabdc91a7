package vmm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"rutter/log"
	"rutter/log/feed"
)

// The versions of the CNs' VMM service that are requested, the newest first. The second
// has no reason of a failure and no VM.
const (
	versionNow = "2.0.0"
	versionOld = "1.0.0"
)

// State is a CN's report of a VMM (SledVMMState, spec/vmm-doorbell.md §7.1). An absent
// migration means no information.
type State struct {
	VMM          Runtime    `json:"vmm_state"`
	MigrationIn  *Migration `json:"migration_in,omitempty"`
	MigrationOut *Migration `json:"migration_out,omitempty"`
	InstanceID   log.UUID   `json:"instance_id,omitzero"` // the VM; from 2.0.0 on
}

// Runtime is a VMM's state with its generation.
type Runtime struct {
	State   string    `json:"state"`
	Gen     uint64    `json:"gen"`
	Updated time.Time `json:"time_updated"`
	Reason  string    `json:"reason,omitempty"` // of a failure; from 2.0.0 on
}

// Migration is one side of a migration.
type Migration struct {
	ID      log.UUID  `json:"migration_id"`
	State   string    `json:"state"`
	Gen     uint64    `json:"gen"`
	Updated time.Time `json:"time_updated"`
}

// sledStates are the states that a CN can report; the others are Rutter's.
var sledStates = []string{stateStarting, "running", "stopping", "stopped", "rebooting", "migrating", stateFailed, stateDestroyed}

const (
	stateCreating  = "creating"
	stateStarting  = "starting"
	stateFailed    = "failed"
	stateDestroyed = "destroyed"
	stateUnwound   = "saga_unwound"
)

// onCN reports whether a VMM in a state is on its CN, so that the CN can be asked for
// it and none of it is final yet.
func onCN(state string) bool {
	switch state {
	case stateCreating, stateUnwound, stateFailed, stateDestroyed:
		return false
	}
	return true
}

// Errors from a CN's answer.
var (
	// errGone: the CN certainly has no such VMM, and nothing to report of it.
	errGone = errors.New("vmm: the compute node has no such VMM")
	// errInconclusive: the answer says nothing about the VMM's state.
	errInconclusive = errors.New("vmm: inconclusive answer")
)

// AnswerError is an unsuccessful answer of a CN.
type AnswerError struct {
	Status  int
	Code    string `json:"error_code"`
	Message string `json:"message"`
}

// Error implements error.
func (e *AnswerError) Error() string {
	return fmt.Sprintf("the compute node answered %d %s: %s", e.Status, e.Code, e.Message)
}

// Unwrap returns errGone only for 404 with error_code NO_SUCH_INSTANCE: 410 with that
// code means a VMM that is ending, and any other answer may come from a proxy
// (spec/vmm-doorbell.md §7.2).
func (e *AnswerError) Unwrap() error {
	if e.Status == http.StatusNotFound && e.Code == "NO_SUCH_INSTANCE" {
		return errGone
	}
	return errInconclusive
}

// check converts an unsuccessful answer into an *AnswerError.
func check(m *feed.Response) error {
	if m.Status >= 200 && m.Status < 300 {
		return nil
	}
	e := &AnswerError{Status: int(m.Status)}
	_ = json.Unmarshal(m.Body, e) // a body that is not JSON has no code
	return e
}

// versioned asks a CN with the newest version and, if that is a bad request there, with
// the old one.
func (s *Service) versioned(ctx context.Context, cn log.UUID, method, path string, body []byte) (*feed.Response, error) {
	answer, err := s.ask(ctx, cn, request(method, path, versionNow, body))
	if err == nil && answer.Status == http.StatusBadRequest {
		answer, err = s.ask(ctx, cn, request(method, path, versionOld, body))
	}
	if err != nil {
		return nil, err
	}
	return answer, check(answer)
}

// fetch asks a CN for a VMM's state. Errors: ErrUnreachable, *AnswerError
// (errGone or errInconclusive), errInconclusive.
func (s *Service) fetch(ctx context.Context, cn, id log.UUID) (*State, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answer, err := s.versioned(ctx, cn, http.MethodGet, "/vmms/"+id.String()+"/state", nil)
	if err != nil {
		return nil, err
	}
	return parseState(answer.Body)
}

func parseState(body []byte) (*State, error) {
	st := new(State)
	if err := json.Unmarshal(body, st); err != nil {
		return nil, fmt.Errorf("%w: a state that is none: %w", errInconclusive, err)
	}
	return st, st.check()
}

// check refuses what would make a change that is refused.
func (st *State) check() error {
	if !slices.Contains(sledStates, st.VMM.State) || st.VMM.Gen == 0 {
		return fmt.Errorf("%w: state %q of generation %d", errInconclusive, st.VMM.State, st.VMM.Gen)
	}
	for _, m := range []*Migration{st.MigrationIn, st.MigrationOut} {
		if m != nil && (m.Gen == 0 || m.ID.IsZero()) {
			return fmt.Errorf("%w: migration %s of generation %d", errInconclusive, m.ID, m.Gen)
		}
	}
	if st.MigrationIn != nil && st.MigrationOut != nil && st.MigrationIn.ID == st.MigrationOut.ID {
		return fmt.Errorf("%w: migration %s goes in and out", errInconclusive, st.MigrationIn.ID)
	}
	const longest = 1024 // projections.MaxTextBytes, the text being UTF-8
	if len(st.VMM.Reason) > longest {
		st.VMM.Reason = toValid(st.VMM.Reason[:longest])
	}
	return nil
}
