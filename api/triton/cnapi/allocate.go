package cnapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/budget"
	"rutter/projections"
	"rutter/projections/designation"
)

// placing is what choosing servers needs of this server: one search at a time, because
// each looks at all servers and VMs, and accounts of what each client asked for.
type placing struct {
	turn  chan struct{}
	memo  designation.Memo // of the holder of the turn
	spent *budget.Meter
}

// CNAPI's refusals of POST /allocate.
const (
	codeNoServers = "NoAllocatableServersError"
	codeNoVolumes = "VolumeServerNoResourcesError"
)

// search calls fn with views of the state while it is this request's turn. fn returns how
// much it looked at, which the client's account pays.
func (s *Service) search(r *http.Request, fn func(view designation.View, d *designation.Defaults) int) error {
	who := r.RemoteAddr
	if s.cfg.Asker != nil {
		who, _ = s.cfg.Asker(r)
	}
	if err := s.places.spent.Admit(who); err != nil {
		answer := rest.Fail(http.StatusTooManyRequests, rest.CodeBudget, "", "no server was looked for: %v", err)
		answer.Budget = rest.ExceededOf(err)
		return answer
	}
	ctx, cancel := context.WithTimeout(r.Context(), proposeTime)
	defer cancel()
	// What another server has acknowledged, as a ticket, must count.
	if _, err := s.store.Consistent(ctx); err != nil {
		return failure(http.StatusServiceUnavailable, rest.CodeUnavailable, "what the servers have left cannot be said now: %v", err)
	}
	select {
	case s.places.turn <- struct{}{}:
		defer func() { <-s.places.turn }()
	case <-ctx.Done():
		return failure(http.StatusServiceUnavailable, rest.CodeOverloaded, "other searches for servers take too long: try again")
	}
	view := s.view()
	var d designation.Defaults
	view(func(state *projections.State) { d = defaultsOf(state) })
	s.places.spent.Charge(int64(fn(view, &d)), who)
	return nil
}

// view is the store's, as package designation takes it.
func (s *Service) view() designation.View {
	return func(fn func(*projections.State)) {
		s.store.View(func(state *projections.State, _ log.Cursor) { fn(state) })
	}
}

// defaultsOf are the operator's choices for placements, by the setting.
func defaultsOf(state *projections.State) designation.Defaults {
	if rec, ok := state.Get(log.KindSetting, designation.SettingAllocation); ok {
		if d, err := designation.ParseDefaults(rec.Object.(*log.Setting).Value); err == nil {
			return d
		}
	}
	return designation.Standard()
}

// invalidParameters answers as CNAPI does to parameters that are wrong: with 500.
func invalidParameters(field, message string) error {
	return &rest.Error{
		Status: http.StatusInternalServerError, Code: log.CodeInvalidParameters, Message: "Request parameters failed validation",
		Errors: []log.FieldError{{Field: field, Code: "Invalid", Message: message}},
	}
}

// notDefined refuses a parameter that CNAPI does not know, where it is strict.
func notDefined(name string) error {
	return failure(http.StatusConflict, "InvalidArgument", "%.255s is not an explicitly defined parameter", name)
}

// asInvalid is the answer to an error of package designation.
func asInvalid(err error) error {
	var wrong *designation.Invalid
	if errors.As(err, &wrong) {
		return invalidParameters(wrong.Field, wrong.Message)
	}
	return err
}

// allocate chooses a server for a new VM, and says by which steps.
func (s *Service) allocate(w http.ResponseWriter, r *http.Request) error {
	fields, err := fieldsOf(r)
	if err != nil {
		return err
	}
	req, err := designation.Parse(&designation.Body{
		VM: fields["vm"], Package: fields["package"], Image: fields["image"], NICTags: fields["nic_tags"],
		TagSets: fields["nic_tag_requirements"], Servers: fields["servers"],
	})
	if err != nil {
		return asInvalid(err)
	}
	var result *designation.Result
	var form map[string]any
	err = s.search(r, func(view designation.View, d *designation.Defaults) int {
		result = designation.Allocate(view, &s.places.memo, d, req)
		if result.Server != nil {
			view(func(state *projections.State) {
				form = s.looking(state, extras{"sysinfo": true, "memory": true, "disk": true, "agents": true}, nil, nil).form(result.Server)
			})
			form["unreserved_cpu"], form["unreserved_ram"], form["unreserved_disk"] = result.Left.CPU, result.Left.RAM, result.Left.Disk
			form["score"] = json.Number(designation.Decimal(result.Score))
		}
		return result.Looked
	})
	if err != nil {
		return err
	}
	if result.Server == nil {
		s.counts.unplaced.Add(1)
		return refusePlacement(w, r, result)
	}
	s.counts.placed.Add(1)
	rest.WriteJSON(w, r, http.StatusOK, map[string]any{"server": form, "steps": result.Steps, "imgapiPeers": []any{}})
	return nil
}

// Place chooses a server for a new VM, as allocate does. An error is an answer.
func (s *Service) Place(r *http.Request, req *designation.Request) (result *designation.Result, err error) {
	err = s.search(r, func(view designation.View, d *designation.Defaults) int {
		result = designation.Allocate(view, &s.places.memo, d, req)
		return result.Looked
	})
	switch {
	case err != nil:
	case result.Server == nil:
		s.counts.unplaced.Add(1)
	default:
		s.counts.placed.Add(1)
	}
	return result, err
}

func refusePlacement(w http.ResponseWriter, r *http.Request, result *designation.Result) error {
	code, message := codeNoServers, "No compute resources available"
	if result.ForVolumes {
		code, message = codeNoVolumes, "No compute resources available on the host containing the mounted volume"
	}
	rest.WriteJSON(w, r, http.StatusConflict, map[string]any{"code": code, "message": message, "steps": result.Steps})
	return nil
}

// capacity tells what servers have left.
func (s *Service) capacity(w http.ResponseWriter, r *http.Request) error {
	fields, err := fieldsOf(r)
	if err != nil {
		return err
	}
	named, err := designation.ParseServers(fields["servers"])
	if err != nil {
		return asInvalid(err)
	}
	var capacities map[string]designation.Capacity
	var why map[string]string
	err = s.search(r, func(view designation.View, d *designation.Defaults) (looked int) {
		capacities, why, looked = designation.Capacities(view, &s.places.memo, d, named)
		if named == nil {
			view(func(state *projections.State) { looked += state.Count(log.KindVM) / 16 })
		}
		return looked
	})
	if err != nil {
		return err
	}
	rest.WriteJSON(w, r, http.StatusOK, map[string]any{"capacities": capacities, "errors": why})
	return nil
}

// Meters are those of what clients ask for, for /metrics.
func (s *Service) Meters() []*budget.Meter { return []*budget.Meter{s.places.spent} }
