package cnapi

import (
	"encoding/json"
	"net/http"

	"rutter/api/internal/rest"
	"rutter/log"
)

// rebootTask is the task of a CN that must restart, and rebooting the
// transitional_status of its server until it has, or has not.
const (
	rebootTask = "server_reboot"
	rebooting  = "rebooting"
)

// reboot restarts a CN: its server is rebooting, and its cn-agent asked to,
// in one change. It is over when a sysinfo tells of a later boot.
func (s *Service) reboot(w http.ResponseWriter, r *http.Request) error {
	fields, err := fieldsOf(r)
	if err != nil {
		return err
	}
	o, err := s.needServer(r)
	if err != nil {
		return err
	}
	if viaOf(o) == log.ViaFeed {
		return failure(http.StatusConflict, "UnsupportedTask", "server %s has no cn-agent, which would reboot it: stop its VMs and reboot the machine itself", o.UUID)
	}
	if o.TransitionalStatus == rebooting {
		return failure(http.StatusConflict, "ServerRebooting", "server %s is rebooting already", o.UUID)
	}
	t, err := s.taskOf(r, o, rebootTask, fields, without(fields, "timeout", "req_id", "server_uuid"))
	if err != nil {
		return err
	}
	result, err := s.propose(r.Context(), r,
		log.Op{Action: log.Update, Kind: log.KindServer, ID: o.ID(), Set: []string{"transitional_status"}, Object: &log.Server{TransitionalStatus: rebooting}},
		log.Op{Action: log.Create, Kind: log.KindTask, Object: t},
	)
	if err != nil {
		return err
	}
	rest.WriteJSON(w, r, http.StatusAccepted, map[string]any{"id": result.IDs[1]})
	return nil
}

// afterFailure is what else becomes of a server whose task has failed.
func afterFailure(t *log.Task) []log.Op {
	if t.Task != rebootTask {
		return nil
	}
	return []log.Op{{Action: log.Update, Kind: log.KindServer, ID: t.ServerUUID.String(), Set: []string{"transitional_status"}, Object: new(log.Server)}}
}

// taskOf is the task that a request asks of a server.
func (s *Service) taskOf(r *http.Request, o *log.Server, name string, fields, params map[string]json.RawMessage) (*log.Task, error) {
	if err := s.checkPrograms(r, name, params); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	text, err := canonical(raw)
	if err != nil {
		return nil, err
	}
	t := &log.Task{Task: name, Params: text, ServerUUID: o.UUID, Via: viaOf(o)}
	if t.Timeout, err = secondsField(fields, "timeout"); err != nil {
		return nil, err
	}
	if t.ReqID, err = textField(fields, "req_id"); err != nil {
		return nil, err
	}
	if t.ReqID == "" {
		t.ReqID = r.Header.Get("x-request-id")
	}
	return t, nil
}
