package vmmstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"rutter/agent/vminfo/vmstore"
	"rutter/agent/vmsource"
	"rutter/log"
)

// maxVMMBody bounds the body of a request about a VMM.
const maxVMMBody = 64 << 10

// SledVMMState is the state of a VMM in the form of Omicron's sled agent
// (spec/vmm-doorbell.md, 7.1). An absent migration means no news of one.
type SledVMMState struct {
	VMMState     VMMRuntimeState `json:"vmm_state"`
	MigrationIn  *Migration      `json:"migration_in,omitempty"`
	MigrationOut *Migration      `json:"migration_out,omitempty"`
	InstanceID   log.UUID        `json:"instance_id,omitzero"` // the VM; from version 2.0.0 on
}

// VMMRuntimeState is the state with its generation.
type VMMRuntimeState struct {
	State       string    `json:"state"`
	Gen         uint64    `json:"gen"`
	TimeUpdated time.Time `json:"time_updated"`
	Reason      string    `json:"reason,omitempty"` // from version 2.0.0 on
}

// Sled returns the VMM in the form of version 1.0.0.
func (v VMM) Sled() *SledVMMState { return sledState(v, vmmV1) }

func sledState(vmm VMM, version apiVersion) *SledVMMState {
	s := &SledVMMState{VMMState: VMMRuntimeState{State: vmm.State, Gen: vmm.Gen, TimeUpdated: vmm.Updated}, MigrationIn: vmm.Migration}
	if version.compare(vmmV2) >= 0 {
		s.VMMState.Reason, s.InstanceID = vmm.Reason, vmm.VM
	}
	return s
}

// Handler serves the VMMs to servers, as Omicron's sled agent does; each request
// names its version in the header api-version:
//
//	GET    /vmms/{id}/state   SledVMMState
//	PUT    /vmms/{id}/state   {"state":{"type":"running"}} → {"updated_runtime":…}; null: nothing changed
//	PUT    /vmms/{id}         {"instance_id":VM} registers it
//	DELETE /vmms/{id}         ends it → {"updated_runtime":…}
//	PUT    /vmms/{id}/recorded  {"gen":N}: the log has it (an addition)
//	GET    /vmms[?vm=UUID]   the VMMs that the node knows, for its tools (an addition; no version)
//
// A VMM that is not here is 404 with error_code NO_SUCH_INSTANCE.
func (m *Table) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, serve func(id log.UUID, version apiVersion, body []byte) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			answer, err := m.respond(r, serve)
			if err != nil {
				writeVMMError(w, err)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer) // the client has gone
		})
	}
	handle("GET /vmms/{id}/state", func(id log.UUID, version apiVersion, _ []byte) (any, error) {
		vmm, err := m.Get(id)
		return sledState(vmm, version), err
	})
	handle("PUT /vmms/{id}/state", m.serveSetState)
	handle("PUT /vmms/{id}", func(id log.UUID, version apiVersion, body []byte) (any, error) {
		var in struct {
			VM log.UUID `json:"instance_id"`
		}
		if err := json.Unmarshal(body, &in); err != nil || in.VM.IsZero() {
			return nil, badRequest(`want {"instance_id":"UUID"} (%w)`, err)
		}
		vmm, err := m.Register(id, in.VM)
		return sledState(vmm, version), err
	})
	handle("DELETE /vmms/{id}", func(id log.UUID, version apiVersion, _ []byte) (any, error) {
		vmm, err := m.Unregister(id)
		return updatedRuntime{sledState(vmm, version)}, err
	})
	handle("PUT /vmms/{id}/recorded", func(id log.UUID, _ apiVersion, body []byte) (any, error) {
		var in struct{ Gen uint64 }
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, badRequest(`want {"gen":N} (%w)`, err)
		}
		return struct{}{}, m.Recorded(id, in.Gen)
	})
	mux.HandleFunc("GET /vmms", m.serveList)
	return mux
}

func (m *Table) serveList(w http.ResponseWriter, r *http.Request) {
	list := m.List()
	if text := r.URL.Query().Get("vm"); text != "" {
		vm, err := log.ParseUUID(text)
		if err != nil {
			writeVMMError(w, badRequest("vm: %w", err))
			return
		}
		list = slices.DeleteFunc(list, func(v VMM) bool { return v.VM != vm })
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // the client has gone
}

// updatedRuntime is the resulting state; null if nothing changed.
type updatedRuntime struct {
	Updated *SledVMMState `json:"updated_runtime"`
}

func (m *Table) serveSetState(id log.UUID, version apiVersion, body []byte) (any, error) {
	var in struct {
		State struct {
			Type  string
			Value struct {
				Migration log.UUID `json:"migration_id"`
			}
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, badRequest(`want {"state":{"type":"running"}} (%w)`, err)
	}
	switch in.State.Type {
	case "running", "stopped", "reboot", "migration_target":
	default:
		return nil, badRequest("state %q: want running, stopped, reboot or migration_target", in.State.Type)
	}
	vmm, changed, err := m.SetState(id, in.State.Type, in.State.Value.Migration)
	if err != nil || !changed {
		return updatedRuntime{}, err
	}
	return updatedRuntime{sledState(vmm, version)}, nil
}

// respond checks what every request needs.
func (m *Table) respond(r *http.Request, serve func(log.UUID, apiVersion, []byte) (any, error)) (any, error) {
	// As dropshot's ClientSpecifiesVersionInHeader: a missing header, an invalid
	// version, and a version that is too new are all 400.
	text := r.Header.Get("api-version")
	if text == "" {
		return nil, badRequest("the header api-version is missing: the newest version is 2.0.0")
	}
	version, err := parseVersion(text)
	if err != nil {
		return nil, badRequest("the header api-version: %w", err)
	}
	if version.compare(vmmV2) > 0 || version.compare(vmmV1) < 0 {
		return nil, badRequest("the header api-version: %s is not served: 1.0.0 to 2.0.0 are", text)
	}
	id, err := log.ParseUUID(r.PathValue("id"))
	if err != nil {
		return nil, badRequest("the VMM's id: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxVMMBody+1))
	if err != nil {
		return nil, badRequest("the body: %w", err)
	}
	if len(body) > maxVMMBody {
		return nil, badRequest("the body has more than %d bytes", maxVMMBody)
	}
	return serve(id, version, body)
}

// requestError is a mistake in the request.
type requestError struct{ error }

func badRequest(format string, args ...any) error {
	return requestError{fmt.Errorf(format, args...)}
}

// writeVMMError sends an error in dropshot's form.
func writeVMMError(w http.ResponseWriter, err error) {
	code, name := http.StatusInternalServerError, "Internal"
	var bad requestError
	switch {
	case errors.As(err, &bad):
		code, name = http.StatusBadRequest, "InvalidRequest"
	case errors.Is(err, ErrNoVMM):
		code, name = http.StatusNotFound, "NO_SUCH_INSTANCE"
	case errors.Is(err, ErrVMMFinal):
		code, name = http.StatusGone, "NO_SUCH_INSTANCE" // ended, and not yet recorded
	case errors.Is(err, ErrBusy):
		code, name = http.StatusServiceUnavailable, "ServiceUnavailable"
	case errors.Is(err, vmsource.ErrNoControl):
		code, name = http.StatusConflict, "InvalidRequest"
	case errors.Is(err, ErrVMMClash):
		code, name = http.StatusConflict, "ObjectAlreadyExists"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"request_id": vmstore.NewID(), "error_code": name, "message": err.Error()})
}
