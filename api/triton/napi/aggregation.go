package napi

import (
	"net/http"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// aggregationForm is an aggregation in an answer (spec/napi.md section 3.1).
type aggregationForm struct {
	BelongsToUUID   log.UUID  `json:"belongs_to_uuid"`
	ID              string    `json:"id"`
	LACPMode        string    `json:"lacp_mode"`
	Name            string    `json:"name"`
	MACs            []log.MAC `json:"macs"`
	NICTagsProvided []string  `json:"nic_tags_provided,omitempty"`
}

func shapeAggregation(_ *projections.State, o log.Object) any {
	a := o.(*log.Aggregation)
	return aggregationForm{a.BelongsToUUID, a.ID(), a.LACPMode, a.Name, a.MACs, a.NICTagsProvided}
}

const nounAggregation = "aggregation"

func aggregationTarget(r *http.Request) target {
	return target{kind: log.KindAggregation, id: r.PathValue("id"), noun: nounAggregation}
}

func (s *Service) listAggregations(w http.ResponseWriter, r *http.Request) error {
	in, err := readQuery(r, "belongs_to_uuid", "limit", "macs", "nic_tags_provided", "offset")
	if err != nil {
		return err
	}
	l := listing{walks: []projections.Walk{{Kind: log.KindAggregation}}, shape: shapeAggregation}
	l.limit, l.offset = in.page()
	var servers []log.UUID
	var addresses []log.MAC
	var tags []string
	byServer := take(in, "belongs_to_uuid", uuids, &servers)
	byMAC := take(in, "macs", macs, &addresses)
	byTag := take(in, "nic_tags_provided", words, &tags)
	l.match = func(_ *projections.State, o log.Object) bool {
		a := o.(*log.Aggregation)
		return (!byServer || slices.Contains(servers, a.BelongsToUUID)) &&
			(!byMAC || slices.ContainsFunc(a.MACs, func(m log.MAC) bool { return slices.Contains(addresses, m) })) &&
			(!byTag || slices.ContainsFunc(a.NICTagsProvided, func(t string) bool { return slices.Contains(tags, t) }))
	}
	if err := in.err(); err != nil {
		return err
	}
	return s.answerList(w, r, l)
}

func takeAggregation(in *input, a *log.Aggregation) {
	take(in, "macs", macs, &a.MACs)
	take(in, "lacp_mode", lacpMode, &a.LACPMode)
	take(in, "nic_tags_provided", words, &a.NICTagsProvided)
	if in.has("macs") && len(a.MACs) == 0 && !slices.ContainsFunc(in.errs, func(e element) bool { return e.Field == "macs" }) {
		in.bad("macs", "must specify at least one MAC address")
	}
}

func lacpMode(v any) (string, *element) {
	mode, _ := v.(string)
	if !slices.Contains([]string{"off", "active", "passive"}, mode) {
		return "", wrong("Invalid LACP mode. Supported modes: off, active, passive")
	}
	return mode, nil
}

func (s *Service) createAggregation(w http.ResponseWriter, r *http.Request) error {
	in, err := s.readInput(r, aggregationForm{})
	if err != nil {
		return err
	}
	a := &log.Aggregation{LACPMode: "off"}
	in.require("macs", "name")
	take(in, "name", text, &a.Name)
	takeAggregation(in, a)
	if err := in.err(); err != nil {
		return err
	}
	result, err := s.propose(r, log.Op{Action: log.Create, Kind: log.KindAggregation, Set: in.names("lacp_mode"), Object: a})
	if err != nil {
		return aggregationTaken(err)
	}
	return s.answerOne(w, r, log.KindAggregation, result.IDs[0], nounAggregation, shapeAggregation)
}

// aggregationTaken is NAPI's answer to a name that another has.
func aggregationTaken(err error) error {
	p := problemOf(err)
	for i := range p.Errors {
		if p.Errors[i].Code == log.ElementDuplicate {
			p.Errors[i] = element{Field: "name", Code: log.ElementDuplicate, Message: "aggregation with same belongs_to_uuid and name already exists"}
		}
	}
	return p
}

func (s *Service) getAggregation(w http.ResponseWriter, r *http.Request) error {
	if err := s.fresh(r); err != nil {
		return err
	}
	t := aggregationTarget(r)
	return s.answerOne(w, r, t.kind, t.id, t.noun, shapeAggregation)
}

func (s *Service) updateAggregation(w http.ResponseWriter, r *http.Request) error {
	in, err := s.readInput(r, aggregationForm{})
	if err != nil {
		return err
	}
	a := new(log.Aggregation)
	takeAggregation(in, a)
	if err := in.err(); err != nil {
		return err
	}
	t := aggregationTarget(r)
	if err := s.update(r, t, a, in.names()); err != nil {
		return err
	}
	return s.answerOne(w, r, t.kind, t.id, t.noun, shapeAggregation)
}

func (s *Service) deleteAggregation(w http.ResponseWriter, r *http.Request) error {
	return s.remove(w, r, aggregationTarget(r))
}
