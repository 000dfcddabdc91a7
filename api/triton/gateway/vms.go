package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"rutter/api/internal/rest"
	"rutter/api/triton/vmapi"
	"rutter/log"
	"rutter/log/vmrule"
	"rutter/projections"
)

// vmCalls are the documented calls of VMAPI that are not simply handed on as reads.
func (g *Gateway) vmCalls() []call {
	own := g.own
	calls := []call{
		{name: "GET /ping", serve: own},
		{name: "GET /vms", serve: own},
		{name: "GET /statuses", serve: g.ownIfServed},
		{name: "GET /changefeeds", serve: g.ownIfServed},
		{name: "GET /changefeeds/stats", serve: g.ownIfServed},
		{name: "GET /vms/{vm}", serve: g.getVM},
		{name: "GET /jobs/{job}", serve: g.ofJob},
		{name: "GET /jobs/{job}/wait", serve: g.ofJob},
		{name: "POST /vms", right: writing, check: ofVM, serve: g.createVM},
		{name: "POST /vms/{vm}", right: writing, check: ofVM, serve: g.updateVM},
		{name: "PUT /vms/{vm}", right: writing, serve: g.putVM},
		{name: "PUT /vms", right: writing, serve: g.putVMs},
		{name: "DELETE /vms/{vm}", right: writing, serve: g.changeVM},
		{name: "POST /job_results", right: writing, serve: g.jobResults},
		{name: "DELETE /migrations/{vm}", right: writing, serve: g.changeVM},
		{name: "POST /migrations/{vm}/store", right: writing, serve: g.changeVM},
		{name: "POST /migrations/{vm}/progress", right: writing},
		{name: "POST /migrations/{vm}/updateVmServerUuid", right: writing, serve: g.changeVM},
	}
	for _, of := range []string{"tags", "customer_metadata", "internal_metadata", "role_tags"} {
		calls = append(calls, call{name: "GET /vms/{vm}/" + of, serve: g.ownIfServed}, call{name: "GET /vms/{vm}/" + of + "/{key}", serve: g.ownIfServed})
		for _, name := range []string{"POST /vms/{vm}/" + of, "PUT /vms/{vm}/" + of, "DELETE /vms/{vm}/" + of, "PUT /vms/{vm}/" + of + "/{key}", "POST /vms/{vm}/" + of + "/{key}", "DELETE /vms/{vm}/" + of + "/{key}"} {
			calls = append(calls, call{name: name, right: writing, serve: g.changeVM})
		}
	}
	return calls
}

// ownIfServed answers from the log if the surface has the route, else hands on.
func (g *Gateway) ownIfServed(a *asked) error {
	if a.ours != nil {
		return g.own(a)
	}
	return g.handOn(a, nil)
}

// ofJob answers about a job by its owner: one of the log is a task.
func (g *Gateway) ofJob(a *asked) error {
	known := false
	g.store.View(func(state *projections.State, _ log.Cursor) {
		_, known = state.Get(log.KindTask, strings.ToLower(a.r.PathValue("job")))
	})
	if known && a.ours != nil {
		return g.own(a)
	}
	return g.handOn(a, nil)
}

// vmOf returns a VM of the log, and whether its compute node has Rutter's agent.
func (g *Gateway) vmOf(id string) (vm *log.VM, agent bool) {
	g.store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(log.KindVM, id); ok {
			vm = rec.Object.(*log.VM)
			agent = hasAgent(state, vm.ServerUUID)
		}
	})
	return vm, agent
}

// getVM answers from the log. A VM that the log does not know, and one whose node the
// caller wants asked (sync=true), is read from the old VMAPI first.
func (g *Gateway) getVM(a *asked) error {
	id, err := log.ParseUUID(a.r.PathValue("vm"))
	if err != nil {
		return g.own(a) // which refuses it
	}
	query := a.r.URL.Query()
	vm, agent := g.vmOf(id.String())
	sync := query.Get("sync") == "true" && !agent
	if vm == nil || sync {
		limit := readTime
		if sync {
			limit = g.cfg.HeaderTime + readTime
		}
		ctx, cancel := context.WithTimeout(a.r.Context(), limit)
		defer cancel()
		leave, err := g.behind.slots.enter(a.r, g.name())
		if err != nil {
			return err
		}
		err = g.refresh(ctx, id, sync, a.r.Header)
		leave()
		// errPassed: what the log has is newer than the answer.
		if err != nil && !missing(err) && !errors.Is(err, errPassed) {
			return rest.Fail(http.StatusServiceUnavailable, rest.CodeUnavailable, "ask again when it answers", "whether VM %s exists cannot be said: the log has none, and %s (%s) was not heard: %v", id, g.name(), g.setting(), err)
		}
		query.Del("sync")
		a.r.URL.RawQuery = query.Encode()
	}
	return g.own(a)
}

// createVM hands a VM's creation on. The record that the old VMAPI made of it is in the
// log before the caller gets the answer.
func (g *Gateway) createVM(a *asked) error {
	return g.handOn(a, func(response *http.Response) error {
		if response.StatusCode != http.StatusAccepted && response.StatusCode != http.StatusOK {
			return nil
		}
		body, err := readAhead(response)
		if err != nil {
			return err
		}
		var made struct {
			VM log.UUID `json:"vm_uuid"`
		}
		if err := json.Unmarshal(body, &made); err != nil || made.VM.IsZero() {
			g.logger.Warn("a creation was answered without vm_uuid", "answer", cut(body))
			return nil
		}
		g.back(a, made.VM)
		return nil
	})
}

// back reads a VM from the old VMAPI into the log, while its caller waits. What fails
// is done by the follower.
func (g *Gateway) back(a *asked, id log.UUID) {
	ctx, cancel := context.WithTimeout(a.r.Context(), readTime)
	defer cancel()
	if err := g.refresh(ctx, id, false, a.r.Header); err != nil && !missing(err) {
		g.logger.Warn("a VM of "+g.name()+" is not in the log yet: the follower writes it", "vm", id, "error", err)
	}
}

// readAhead reads the body of an answer, up to MaxBody, so that it can be read again.
func readAhead(response *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, MaxBody+1))
	if err != nil {
		return nil, err
	}
	if len(body) > MaxBody {
		return nil, errors.New("its answer is too long")
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(body), response.Body}
	return body, nil
}

func cut(text []byte) string { return string(text[:min(len(text), 200)]) }

// changeVM hands a write on, and brings what the old VMAPI made of it to the log.
func (g *Gateway) changeVM(a *asked) error {
	id, err := log.ParseUUID(a.r.PathValue("vm"))
	if err != nil {
		return rest.BadParameter("uuid", log.ElementInvalid, "send a UUID", "%.60q is no UUID", a.r.PathValue("vm"))
	}
	return g.handOn(a, func(response *http.Response) error {
		if response.StatusCode < 300 {
			g.back(a, id)
		}
		return nil
	})
}

// jobResults hands on what a job of the old VMAPI ended with.
func (g *Gateway) jobResults(a *asked) error {
	if err := a.needFields(); err != nil {
		return err
	}
	id, err := log.ParseUUID(a.fields.text("vm_uuid"))
	return g.handOn(a, func(response *http.Response) error {
		if response.StatusCode < 300 && err == nil {
			g.back(a, id)
		}
		return nil
	})
}

// updateVM hands an action on, after the rule of network-wide fields. An update of NICs'
// addresses is the log's: the old VMAPI has none.
func (g *Gateway) updateVM(a *asked) error {
	if err := a.needFields(); err != nil {
		return err
	}
	id, err := log.ParseUUID(a.r.PathValue("vm"))
	if err != nil {
		return rest.BadParameter("uuid", log.ElementInvalid, "send a UUID", "%.60q is no UUID", a.r.PathValue("vm"))
	}
	if action := a.fields.text("action"); action == "update" || action == "update_nics" || action == "" {
		nics, err := g.ruled(id, a.fields)
		if err != nil {
			return err
		}
		if nics != nil {
			return g.moveNICs(a, nics)
		}
	}
	return g.changeVM(a)
}

// ofCaller are fields of an update that say who asks and how, and change nothing.
var ofCaller = []string{"action", "context", "creator_uuid", "idempotent", "last_modified", "origin", "owner_uuid", "sync", "task", "uuid", "vm_uuid"}

// ruled applies the rule of network-wide fields. nics is the body of an update of
// addresses alone.
func (g *Gateway) ruled(id log.UUID, all fields) (nics []byte, err error) {
	body, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	var u vmrule.Update
	known := false
	g.store.View(func(state *projections.State, _ log.Cursor) {
		rule := vmrule.VM{}
		if _, known = state.Get(log.KindVM, id.String()); known {
			rule = vmapi.RuleOf(state, id)
		}
		u, err = vmrule.Check(body, rule)
	})
	var refusal *log.Refusal
	if errors.As(err, &refusal) {
		return nil, &rest.Error{Status: vmrule.Status, Code: refusal.Code, Message: refusal.Message, Errors: refusal.Errors}
	}
	if err != nil {
		return nil, err
	}
	moved, others := 0, 0
	for i := range u.NICs {
		if slices.Contains(u.NICs[i].Set, "ip") {
			moved++
		}
		if len(u.NICs[i].Manifest) > 0 || len(u.NICs[i].Set) > 1 || !slices.Contains(u.NICs[i].Set, "ip") {
			others++
		}
	}
	for name := range u.Rest {
		if !slices.Contains(ofCaller, name) {
			others++
		}
	}
	switch {
	case moved == 0:
		return nil, nil
	case others > 0:
		p := &rest.Error{Status: vmrule.Status, Code: vmrule.Code, Message: vmrule.Message}
		p.Errors = []log.FieldError{{Field: "nics", Code: vmrule.ElementInvalid, Message: "addresses of NICs and other fields are two updates here: send the addresses (ip, ips) in one of their own"}}
		return nil, p
	}
	list := "nics"
	if all["nics"] == nil {
		list = "update_nics"
	}
	return json.Marshal(map[string]json.RawMessage{list: all[list]})
}

// moveNICs has the log change addresses of NICs.
func (g *Gateway) moveNICs(a *asked, body []byte) error {
	if err := g.vet(a); err != nil {
		return err
	}
	if a.ours == nil {
		return g.absent(a.r)
	}
	r := a.r.Clone(a.r.Context())
	r.URL.RawQuery, r.Body, r.ContentLength = "", bodyOf(body), int64(len(body))
	return a.ours(a.w, r)
}

// putVM takes what a vm-agent or a job says of one VM, to the old VMAPI and into the log.
// The old one is first, so that what is read there is never older than the log. If it
// fails, the log has it all the same, and the caller gets the error and puts it again:
// the same again is good for both.
func (g *Gateway) putVM(a *asked) error {
	if err := a.needFields(); err != nil {
		return err
	}
	id, err := log.ParseUUID(a.r.PathValue("vm"))
	if err != nil {
		return rest.BadParameter("uuid", log.ElementInvalid, "send a UUID", "%.60q is no UUID", a.r.PathValue("vm"))
	}
	if err := g.vet(a); err != nil {
		return err
	}
	one, moving, err := g.readPut(a, id, a.body)
	if err != nil {
		return err
	}
	if moving {
		rest.WriteJSON(a.w, a.r, http.StatusOK, map[string]any{})
		return nil
	}
	return g.putBoth(a, "put vm", a.body, []*said{one})
}

// putBoth sends a PUT on, and writes what it says into the log.
func (g *Gateway) putBoth(a *asked, name string, body []byte, all []*said) error {
	answer := newRecorder()
	err := g.behind.handOn(answer, a.r, body, g.patienceOf(a.r, a.fields), nil)
	if err != nil {
		return err // too many are under way
	}
	if answer.code > 299 {
		err = &errStatus{answer.code, answer.body.String()}
	}
	g.cfg.Metrics.tee(g.cfg.Surface, name, err)
	if err == nil || answer.code >= 500 {
		for _, one := range all {
			ctx, cancel := context.WithTimeout(a.r.Context(), proposeTime)
			err := g.intake(ctx, one, fromNode)
			cancel()
			if err != nil {
				return err
			}
		}
	}
	answer.replay(a.w)
	return nil
}

// readPut reads one VM that was put. moving: it is said to be destroyed while it moves
// between compute nodes, which neither side is told.
func (g *Gateway) readPut(a *asked, id log.UUID, object []byte) (one *said, moving bool, err error) {
	if one, err = g.take(object); err != nil {
		return nil, false, rest.BadParameter("body", log.ElementInvalid, "send the VM as VMAPI has it", "%v", err)
	}
	switch one.vm.UUID {
	case id:
	case log.UUID{}:
		one.vm.UUID = id
	default:
		return nil, false, rest.BadParameter("uuid", log.ElementInvalid, "put it to the path of its own VM", "it is of %s", one.vm.UUID)
	}
	if one.vm.State == stateDestroyed {
		moving, err = g.moves(a.r.Context(), one.vm)
	}
	return one, moving, err
}

// moves reports whether a VM that a node calls destroyed is one that moves: another node
// has it, or a migration of it is under way (rule 11: between the two flips of
// do_not_inventory neither node reports it).
func (g *Gateway) moves(ctx context.Context, said *log.VM) (bool, error) {
	known, _ := g.vmOf(said.ID())
	if known == nil {
		return false, nil
	}
	if !said.ServerUUID.IsZero() && !known.ServerUUID.IsZero() && said.ServerUUID != known.ServerUUID {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	body, _, err := g.behind.ask(ctx, http.MethodGet, "/migrations/"+said.ID(), nil, nil)
	var s *errStatus
	switch {
	case errors.As(err, &s) && s.status < 500:
		return false, nil // there is none
	case err != nil:
		return false, rest.Fail(http.StatusServiceUnavailable, rest.CodeUnavailable, "send it again", "whether VM %s is being migrated cannot be said: %s (%s) was not heard: %v", said.UUID, g.name(), g.setting(), err)
	}
	var m struct{ State, Phase string }
	if err := json.Unmarshal(body, &m); err != nil {
		return false, nil
	}
	return m.State == "running" && m.Phase == "switch" || m.State == "switching", nil
}

// putVMs takes what a vm-agent says of all VMs of its node.
func (g *Gateway) putVMs(a *asked) error {
	if err := a.needFields(); err != nil {
		return err
	}
	if err := g.vet(a); err != nil {
		return err
	}
	var vms map[string]json.RawMessage
	if err := json.Unmarshal(a.fields["vms"], &vms); err != nil || vms == nil {
		return rest.BadParameter("vms", log.ElementInvalid, `send {"vms": {UUID: VM}}`, "it is no object of VMs")
	}
	if len(vms) > MaxPut {
		return rest.BadParameter("vms", log.ElementInvalid, fmt.Sprintf("send at most %d at once", MaxPut), "%d VMs are over %d", len(vms), MaxPut)
	}
	var all []*said
	for _, name := range slices.Sorted(maps.Keys(vms)) {
		id, err := log.ParseUUID(name)
		if err != nil {
			return rest.BadParameter("vms", log.ElementInvalid, "name each VM by its UUID", "%.60q is no UUID", name)
		}
		one, moving, err := g.readPut(a, id, vms[name])
		if err != nil {
			return err
		}
		if moving {
			delete(vms, name)
			continue
		}
		all = append(all, one)
	}
	body, err := json.Marshal(map[string]any{"vms": vms})
	if err != nil {
		return err
	}
	return g.putBoth(a, "put vms", body, all)
}

// refresh reads a VM from the old VMAPI into the log.
func (g *Gateway) refresh(ctx context.Context, id log.UUID, sync bool, header http.Header) error {
	query := url.Values{"fields": {"*"}}
	if sync {
		query.Set("sync", "true")
	}
	err := errPassed
	for n := 0; n < tries && errors.Is(err, errPassed); n++ {
		var asOf log.Seq
		g.store.View(func(_ *projections.State, head log.Cursor) { asOf = head.Seq })
		ask := g.behind.ask
		if query.Has("sync") { // the old VMAPI asks the compute node
			ask = g.behind.askLong
		}
		body, _, failed := ask(ctx, http.MethodGet, "/vms/"+id.String()+"?"+query.Encode(), nil, header)
		if failed != nil {
			return failed
		}
		one, failed := g.take(body)
		if failed != nil {
			return failed
		}
		if one.vm.UUID != id {
			return errors.New("its answer is of another VM")
		}
		one.asOf = asOf
		err = g.intake(ctx, one, fromVMAPI)
		query.Del("sync")
	}
	return err
}
