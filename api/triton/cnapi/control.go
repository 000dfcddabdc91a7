package cnapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"rutter/agent/sysinfo"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// Tasks of a compute node that are made here.
const (
	nicsTask    = "server_update_nics"
	refreshTask = "sysinfo"
)

// What is asked of a cn-agent beside tasks.
const (
	agentPause  = "/pause"
	agentResume = "/resume"
)

// Bounds of NICs and nic tags.
const (
	maxNICsUpdated = 64
	maxTagsOfNIC   = 32
	// MaxTagsMade bounds the nic tags that one sysinfo makes, maxTagsKnown those of the
	// log from which on a sysinfo makes none: a node chooses their names.
	MaxTagsMade  = 32
	maxTagsKnown = 1024
	maxTagName   = 31 // bytes
)

// Ours reports whether the tasks of a server are done by an agent of ours, which reads
// them from the log. A gateway hands on what concerns the VMs of the others.
func (s *Service) Ours(server log.UUID) bool {
	if s.cfg.Ours != nil {
		return s.cfg.Ours(server)
	}
	o := s.server(server)
	return o != nil && viaOf(o) == log.ViaFeed
}

// agentControl makes a cn-agent stop or begin again to take tasks.
func (s *Service) agentControl(path string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		o, err := s.needServer(r)
		if err != nil {
			return err
		}
		switch {
		case s.Ours(o.UUID):
			return failure(http.StatusConflict, "UnsupportedTask", "server %s has no cn-agent that could pause: its agent takes tasks from the log; stop asking for tasks, and wait until GET /servers/%s/task-history has none that is active", o.UUID, o.UUID)
		case s.cfg.HTTP == nil:
			return failure(http.StatusNotImplemented, rest.CodeNotHere, "this server posts nothing to compute nodes: name their network with --cn-network")
		}
		ctx, cancel := context.WithTimeout(r.Context(), proposeTime)
		defer cancel()
		if _, err := s.postTo(ctx, o, path, r.Header.Get("x-request-id"), nil); err != nil {
			return failure(http.StatusServiceUnavailable, rest.CodeUnavailable, "the cn-agent of server %s was not reached: %v", o.UUID, err)
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// setup takes a server into service. One that is set up stays as it is. A node with our
// agent is set up by its installation: it gets its name and nic tags, and VMs from then
// on. Others are set up by a workflow of CNAPI, which there is none of here.
func (s *Service) setup(w http.ResponseWriter, r *http.Request) error {
	fields, err := fieldsOf(r)
	if err != nil {
		return err
	}
	for name := range fields {
		if !slices.Contains([]string{"hostname", "nics", "postsetup_script", "disk_spares", "disk_width", "disk_cache", "disk_layout", "encryption_enabled", "origin", "creator_uuid"}, name) {
			return notDefined(name)
		}
	}
	o, err := s.needServer(r)
	if err != nil {
		return err
	}
	if o.Setup {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if !s.Ours(o.UUID) {
		return failure(http.StatusNotImplemented, rest.CodeNotHere, "server %s is set up by a workflow of CNAPI: name the old CNAPI with --cnapi-behind", o.UUID)
	}
	for _, name := range []string{"postsetup_script", "disk_spares", "disk_width", "disk_cache", "disk_layout", "encryption_enabled"} {
		if _, given := fields[name]; given {
			return failure(http.StatusNotImplemented, rest.CodeNotHere, "%s: the disks and scripts of server %s are its installation's: leave it out", name, o.UUID)
		}
	}
	hostname, err := textField(fields, "hostname")
	if err != nil {
		return err
	}
	set := []string{"setting_up", "setup"}
	if hostname != "" {
		set = append([]string{"hostname"}, set...)
	}
	ops := []log.Op{{Action: log.Update, Kind: log.KindServer, ID: o.ID(), Set: set, Object: &log.Server{Setup: true, Hostname: hostname}}}
	if raw, given := fields["nics"]; given {
		more, err := s.nicOps(o, "replace", raw)
		if err != nil {
			return err
		}
		ops = append(ops, more...)
	}
	return s.withJob(w, r, o, ops, refreshTask)
}

// withJob makes changes and, with them, a task of the node, whose id is the answer's
// job_uuid.
func (s *Service) withJob(w http.ResponseWriter, r *http.Request, o *log.Server, ops []log.Op, task string) error {
	params := map[string]json.RawMessage{}
	if task == nicsTask {
		params["nics"] = s.nicsOf(o, ops)
	}
	t, err := s.taskOf(r, o, task, nil, params)
	if err != nil {
		return err
	}
	result, err := s.propose(r.Context(), r, append(ops, log.Op{Action: log.Create, Kind: log.KindTask, Object: t})...)
	if err != nil {
		return err
	}
	rest.WriteJSON(w, r, http.StatusAccepted, map[string]any{"job_uuid": result.IDs[len(result.IDs)-1]})
	return nil
}

// updateNICs changes which nic tags the NICs of a server provide, by action: update adds
// some, replace replaces all, delete takes some away. CNAPI starts a workflow that writes
// NAPI and then starts a task of the node; here one change does both.
func (s *Service) updateNICs(w http.ResponseWriter, r *http.Request) error {
	fields, err := fieldsOf(r)
	if err != nil {
		return err
	}
	o, err := s.needServer(r)
	if err != nil {
		return err
	}
	action, err := textField(fields, "action")
	if err != nil || action == "" {
		return invalidParameters("action", "value was not a string")
	}
	if raw := fields["nics"]; len(raw) == 0 || raw[0] != '[' {
		return invalidParameters("nics", "value was not an array")
	}
	if !slices.Contains([]string{"update", "replace", "delete"}, action) {
		return invalidParameters("action", "action must be 'update', 'replace', or 'delete'")
	}
	if !o.Setup {
		return failure(http.StatusInternalServerError, rest.CodeInternal, "Server is not setup")
	}
	task := nicsTask
	if s.Ours(o.UUID) {
		task = refreshTask // it reads its NICs from the log
	}
	for range maxTries { // a NIC may be changed meanwhile
		var ops []log.Op
		if ops, err = s.nicOps(o, action, fields["nics"]); err != nil {
			return err
		}
		err = s.withJob(w, r, o, ops, task)
		var refusal *log.Refusal
		if !errors.As(err, &refusal) || refusal.Code != log.CodePreconditionFailed {
			return err
		}
	}
	return err
}

// nicOps are the changes of a server's NICs.
func (s *Service) nicOps(o *log.Server, action string, raw json.RawMessage) (ops []log.Op, err error) {
	var list []struct {
		MAC  string    `json:"mac"`
		Tags *[]string `json:"nic_tags_provided"`
	}
	if json.Unmarshal(raw, &list) != nil || len(list) > maxNICsUpdated {
		return nil, invalidParameters("nics", "it is no list of NICs, each with mac and nic_tags_provided")
	}
	s.store.View(func(state *projections.State, _ log.Cursor) {
		for _, one := range list {
			mac, bad := log.ParseMAC(one.MAC)
			if bad != nil || one.Tags == nil || len(*one.Tags) > maxTagsOfNIC {
				err = invalidParameters("nics", "each must have a mac, and nic_tags_provided, a list of names")
				return
			}
			rec, known := state.Get(log.KindNIC, mac.String())
			nic, _ := rec.Object.(*log.NIC)
			if !known || nic.BelongsToType != "server" || nic.BelongsToUUID != o.UUID {
				err = invalidParameters("nics", "server has no NIC "+mac.String())
				return
			}
			tags := provides(nic.NICTagsProvided, action, *one.Tags)
			if !slices.Equal(tags, nic.NICTagsProvided) {
				ops = append(ops, log.Op{
					Action: log.Update, Kind: log.KindNIC, ID: mac.String(), IfMatch: rec.Revision, IfSeq: rec.Seq,
					Set: []string{"nic_tags_provided"}, Object: &log.NIC{NICTagsProvided: tags},
				})
			}
		}
	})
	return ops, err
}

// provides is what a NIC provides after an action.
func provides(has []string, action string, tags []string) (after []string) {
	switch action {
	case "replace":
		has = nil
	case "delete":
		return slices.DeleteFunc(slices.Clone(has), func(tag string) bool { return slices.Contains(tags, tag) })
	}
	after = slices.Clone(has)
	for _, tag := range tags {
		if !slices.Contains(after, tag) {
			after = append(after, tag)
		}
	}
	return after
}

// nicsOf are the NICs of a server as its cn-agent takes them, after ops.
func (s *Service) nicsOf(o *log.Server, ops []log.Op) json.RawMessage {
	changed := map[string][]string{}
	for _, op := range ops {
		if nic, ok := op.Object.(*log.NIC); ok {
			changed[op.ID] = nic.NICTagsProvided
		}
	}
	list := []map[string]any{}
	s.store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.NICsOf(o.UUID) {
			nic := rec.Object.(*log.NIC)
			m := machineNIC(nic, state)
			tags, ok := changed[nic.MAC.String()]
			if !ok {
				tags = nic.NICTagsProvided
			}
			m["nic_tags_provided"] = append([]string{}, tags...)
			m["belongs_to_uuid"], m["belongs_to_type"] = nic.BelongsToUUID, nic.BelongsToType
			list = append(list, m)
		}
	})
	raw, err := json.Marshal(list)
	if err != nil {
		return json.RawMessage("[]")
	}
	return raw
}

// makeTags makes the nic tags that a sysinfo names and the log does not have, as this
// server's own word: at most MaxTagsMade of them, and none of a name that is not one. Two
// servers may make one at the same time.
func (s *Service) makeTags(ctx context.Context, cn log.UUID, info *sysinfo.Info) {
	var wanted []string
	for _, nic := range info.NICs {
		for _, tag := range nic.Tags {
			if isTagName(tag) && !slices.Contains(wanted, tag) {
				wanted = append(wanted, tag)
			}
		}
	}
	known := 0
	old := false
	s.store.View(func(state *projections.State, _ log.Cursor) {
		known, old = state.Count(log.KindNICTag), state.Feature() < log.FeatureTriton
		wanted = slices.DeleteFunc(wanted, func(tag string) bool {
			_, ok := state.Get(log.KindNICTag, tag)
			return ok
		})
	})
	if len(wanted) == 0 || old {
		return
	}
	slices.Sort(wanted)
	if left := max(0, min(MaxTagsMade, maxTagsKnown-known)); len(wanted) > left {
		s.logger.Warn("not every nic tag of a sysinfo is made", "cn", cn, "made", left, "wanted", len(wanted), "known", known)
		wanted = wanted[:left]
	}
	for _, tag := range wanted {
		_, err := s.propose(ownContext{ctx}, nil, log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: tag}})
		if err != nil && !isRefusal(err) { // refused: another server has made it
			s.logger.Warn("a nic tag of a sysinfo is not made: the node sends it again", "cn", cn, "tag", tag, "error", err)
			return
		}
	}
}

func isTagName(tag string) bool {
	return tag != "" && len(tag) <= maxTagName && strings.Trim(tag, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}
