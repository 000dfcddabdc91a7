package node

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"rutter/agent/vminfo"
	"rutter/agent/vminfo/vmrun"
	"rutter/agent/vmsource"
	"rutter/api/client"
	"rutter/log"
)

// maxForwarded bounds the body of a request that is passed on to a server, in bytes.
const maxForwarded = 1 << 20

// maxWaits bounds how long a server waits for one request, and forwardWithin what the way to it
// takes beside that.
const (
	maxWaits      = 10 * time.Minute
	forwardWithin = 35 * time.Second
)

// forward passes what `rutter vm` asks servers on to them, with the node's certificate: so a
// command of root on the node needs no certificate of its own, and has the rights of the
// node. It is for the socket.
func (n *Node) forward(mux *http.ServeMux) {
	pass := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForwarded))
		if err != nil {
			answerFailure(w, http.StatusRequestEntityTooLarge, &log.Refusal{Code: "TooLarge", Message: err.Error()})
			return
		}
		if within, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && r.URL.Query().Has("wait") {
			_ = allow(w, min(within, maxWaits)+forwardWithin) // without it, the answer comes late
		}
		path := r.URL.EscapedPath()
		if r.URL.RawQuery != "" {
			path += "?" + r.URL.RawQuery
		}
		raw, header, err := n.opts.Servers.API.Forward(r.Context(), r.Method, path, body)
		for name, values := range header {
			if strings.HasPrefix(name, "Rutter-") {
				w.Header()[name] = values
			}
		}
		if err != nil {
			forwardFailure(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(raw) // the client is gone
	}
	for _, pattern := range []string{"POST /changes", "GET /nics", "GET /nics/{mac}", "GET /networks/{uuid}", "GET /vms/{uuid}"} {
		mux.HandleFunc(pattern, pass)
	}
}

// forwardFailure answers with the error of a server, in the API's form.
func forwardFailure(w http.ResponseWriter, err error) {
	if refusal, is := errors.AsType[*log.Refusal](err); is {
		status := http.StatusConflict
		switch refusal.Code {
		case log.CodeResourceNotFound:
			status = http.StatusNotFound
		case log.CodeNotAuthorized:
			status = http.StatusForbidden
		}
		answerFailure(w, status, refusal)
		return
	}
	if pending, is := errors.AsType[*client.PendingError](err); is {
		answerFailure(w, http.StatusAccepted, map[string]any{"code": "FabricPending", "message": pending.Message, "fabric": pending.Verdict})
		return
	}
	answerFailure(w, http.StatusBadGateway, &log.Refusal{Code: "NoServer", Message: "the agent of this node got no answer of a server: " + err.Error()})
}

func answerFailure(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}

// controlWithin is how long a source may take to start or stop a VM.
const controlWithin = 2 * time.Minute

// allow gives a request more time than the server of the socket gives others.
func allow(w http.ResponseWriter, within time.Duration) error {
	control, until := http.NewResponseController(w), time.Now().Add(within)
	err := errors.Join(control.SetReadDeadline(until), control.SetWriteDeadline(until))
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// errNoReboot: the VM's source has no reboot of its own.
var errNoReboot = errors.New("the VM's source has no reboot: stop and start it")

// control serves what root asks about VMs that have no manifest: each request goes to the
// VM's own source.
func (n *vmSide) control(mux *http.ServeMux) {
	router := vminfo.Router{Service: n.service}
	act := func(do func(r *http.Request, vm log.UUID) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			vm, err := log.ParseUUID(r.PathValue("uuid"))
			if err == nil {
				err = allow(w, controlWithin)
			}
			if err == nil {
				err = do(r, vm)
			}
			switch {
			case err == nil:
				w.WriteHeader(http.StatusNoContent)
			case errors.Is(err, vmsource.ErrNoControl):
				answerFailure(w, http.StatusConflict, &log.Refusal{Code: "NoControl", Message: err.Error()})
			case errors.Is(err, errNoReboot):
				answerFailure(w, http.StatusNotImplemented, &log.Refusal{Code: "NoReboot", Message: err.Error()})
			case errors.Is(err, vmrun.ErrNoVM):
				answerFailure(w, http.StatusNotFound, &log.Refusal{Code: log.CodeResourceNotFound, Message: err.Error()})
			default:
				answerFailure(w, http.StatusInternalServerError, &log.Refusal{Code: "InternalError", Message: err.Error()})
			}
		}
	}
	mux.HandleFunc("POST /vms/{uuid}/start", act(func(r *http.Request, vm log.UUID) error { return router.Start(r.Context(), vm) }))
	mux.HandleFunc("POST /vms/{uuid}/stop", act(func(r *http.Request, vm log.UUID) error {
		return router.Stop(r.Context(), vm, r.URL.Query().Has("force"))
	}))
	mux.HandleFunc("POST /vms/{uuid}/reboot", act(func(r *http.Request, vm log.UUID) error {
		done, err := router.Reboot(r.Context(), vm)
		if err == nil && !done {
			err = errNoReboot
		}
		return err
	}))
	mux.HandleFunc("DELETE /vms/{uuid}", act(func(r *http.Request, vm log.UUID) error {
		holder := n.service.Store().Holder(vm)
		if n.registered == nil || n.registered.sources[holder] == nil {
			return vmsource.NoControl(holder, "it is removed there")
		}
		if control, err := n.registered.sources[holder].Control(); err == nil {
			if err := control.Stop(r.Context(), vm, true); err != nil && !errors.Is(err, vmrun.ErrNotRunning) {
				return err
			}
		}
		return n.registered.sources[holder].Delete(r.Context(), vm)
	}))
}
