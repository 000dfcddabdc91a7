package registered

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"rutter/log"
)

// Handler serves the registrations of sources by name (docs/vms.md). It is for a listener
// at which only root is let in.
//
//	PUT    /vmsource/{source}/vms/{uuid}?wait=none|node|fabric&within=SECONDS
//	DELETE /vmsource/{source}/vms/{uuid}
//	DELETE /vmsource/{source}/vms/{uuid}/nics/{key}
//	GET    /vmsource/{source}/vms
//	GET    /vmsource/{source}/vms/{uuid}
func Handler(sources map[string]*Source) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, serve func(w http.ResponseWriter, r *http.Request, s *Source, id log.UUID) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s, ok := sources[r.PathValue("source")]
			if !ok {
				reply(w, nil, failed(CodeUnknown, "this agent has no source %q: name it in --vm-sources", clip(r.PathValue("source"))))
				return
			}
			var id log.UUID
			if text := r.PathValue("uuid"); text != "" {
				var err error
				if id, err = log.ParseUUID(text); err != nil || id.IsZero() {
					reply(w, nil, failed(CodeInvalid, "%q is no UUID of a VM", clip(text)))
					return
				}
			}
			answer, err := serve(w, r, s, id)
			reply(w, answer, err)
		})
	}
	handle("PUT /vmsource/{source}/vms/{uuid}", servePut)
	handle("GET /vmsource/{source}/vms", func(_ http.ResponseWriter, _ *http.Request, s *Source, _ log.UUID) (any, error) { return s.List(), nil })
	handle("GET /vmsource/{source}/vms/{uuid}", func(_ http.ResponseWriter, _ *http.Request, s *Source, id log.UUID) (any, error) { return s.Get(id) })
	handle("DELETE /vmsource/{source}/vms/{uuid}", func(_ http.ResponseWriter, r *http.Request, s *Source, id log.UUID) (any, error) {
		return nil, s.Delete(r.Context(), id)
	})
	handle("DELETE /vmsource/{source}/vms/{uuid}/nics/{key}", func(_ http.ResponseWriter, r *http.Request, s *Source, id log.UUID) (any, error) {
		return nil, s.DeleteNIC(r.Context(), id, r.PathValue("key"))
	})
	return mux
}

func servePut(w http.ResponseWriter, r *http.Request, s *Source, id log.UUID) (any, error) {
	wait, err := waitOf(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		return nil, failed(CodeInvalid, "the body of the registration: %v; it may have %d bytes", err, MaxBody)
	}
	reg, err := decodeRegistration(body)
	if err != nil {
		return nil, failed(CodeInvalid, "the body of the registration: %v", err)
	}
	// The server of the socket gives other requests less time than this one may wait.
	until := time.Now().Add(min(cmp.Or(wait.Within, DefaultWithin), MaxWithin) + answerWithin)
	control := http.NewResponseController(w)
	if err := errors.Join(control.SetReadDeadline(until), control.SetWriteDeadline(until)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, failed(CodeInternal, "%v", err)
	}
	return s.Put(r.Context(), id, reg, wait)
}

// answerWithin is how long the answer of a PUT may take after its waiting.
const answerWithin = 5 * time.Second

// decodeRegistration reads a body. A field that this program does not know is an error: it
// would be one that is not done.
func decodeRegistration(body []byte) (reg Registration, err error) {
	if err = unmarshalKnown(body, &reg); err != nil {
		return reg, err
	}
	if len(reg.NICs) > MaxNICs {
		return reg, fmt.Errorf("nics: %d, want at most %d", len(reg.NICs), MaxNICs)
	}
	for i := range reg.NICs {
		if again := slices.IndexFunc(reg.NICs, func(n NIC) bool { return n.Key == reg.NICs[i].Key }); again != i {
			return reg, fmt.Errorf("nics: two have the key %q", clip(reg.NICs[i].Key))
		}
	}
	return reg, nil
}

// waitOf reads the parameters of a PUT.
func waitOf(r *http.Request) (Wait, error) {
	query := r.URL.Query()
	wait := Wait{For: query.Get("wait")}
	switch wait.For {
	case "", WaitNone, WaitNode, WaitFabric:
	default:
		return wait, failed(CodeInvalid, "wait=%q: want %s, %s or %s", clip(wait.For), WaitNone, WaitNode, WaitFabric)
	}
	if text := query.Get("within"); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || !(seconds > 0 && seconds <= MaxWithin.Seconds()) {
			return wait, failed(CodeInvalid, "within=%q: want a number of seconds up to %v", clip(text), MaxWithin.Seconds())
		}
		wait.Within = time.Duration(seconds * float64(time.Second))
	}
	return wait, nil
}

// Get returns a registered VM. The error is an *Error of CodeUnknown.
func (s *Source) Get(id log.UUID) (VM, error) {
	r := s.recordOf(id)
	if r == nil || r.Leaving {
		return VM{}, failed(CodeUnknown, "%s has registered no VM %s", s.cfg.Name, id)
	}
	return s.answer(r), nil
}

// List returns the registered VMs, by UUID.
func (s *Source) List() []VM {
	s.mu.Lock()
	list := make([]*record, 0, len(s.vms))
	for _, e := range s.vms {
		if !e.Leaving {
			list = append(list, e.record)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b *record) int { return a.UUID.Compare(b.UUID) })
	vms := make([]VM, len(list))
	for i, r := range list {
		vms[i] = s.answer(r)
	}
	return vms
}

// statusOf is the HTTP status of an error's code.
var statusOf = map[string]int{
	CodeInvalid: http.StatusBadRequest, CodeUnknown: http.StatusNotFound, CodeOther: http.StatusConflict, CodeRefused: http.StatusConflict,
	CodeTooMany: http.StatusInsufficientStorage, CodeDisk: http.StatusInsufficientStorage, CodeServers: http.StatusServiceUnavailable, CodeWaiting: http.StatusGatewayTimeout, CodeInternal: http.StatusInternalServerError,
}

// reply writes an answer: 204 without one. A failed write means that the client is gone.
func reply(w http.ResponseWriter, answer any, err error) {
	if err != nil {
		failure, ok := errors.AsType[*Error](err)
		if !ok {
			failure = failed(CodeInternal, "%v", err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(statusOf[failure.Code])
		_ = json.NewEncoder(w).Encode(failure)
		return
	}
	if answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}
