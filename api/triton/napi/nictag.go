package napi

import (
	"net/http"

	"rutter/log"
	"rutter/projections"
)

// nicTagForm is a NIC tag in an answer (spec/napi.md section 3.1).
type nicTagForm struct {
	MTU  uint32   `json:"mtu"`
	Name string   `json:"name"`
	UUID log.UUID `json:"uuid"`
}

func shapeTag(_ *projections.State, o log.Object) any {
	t := o.(*log.NICTag)
	return nicTagForm{t.MTU, t.Name, t.UUID}
}

const nounTag = "nic tag"

func tagOf(r *http.Request) target {
	return target{kind: log.KindNICTag, id: r.PathValue("name"), noun: nounTag}
}

func (s *Service) listTags(w http.ResponseWriter, r *http.Request) error {
	in, err := readQuery(r, "limit", "offset")
	if err != nil {
		return err
	}
	l := listing{walks: []projections.Walk{{Kind: log.KindNICTag}}, shape: shapeTag}
	l.limit, l.offset = in.page()
	if err := in.err(); err != nil {
		return err
	}
	return s.answerList(w, r, l)
}

func (s *Service) createTag(w http.ResponseWriter, r *http.Request) error {
	in, err := s.readInput(r, nicTagForm{})
	if err != nil {
		return err
	}
	t := &log.NICTag{MTU: 1500}
	in.require("name")
	take(in, "name", text, &t.Name)
	take(in, "uuid", uuid, &t.UUID)
	take(in, "mtu", tagMTU, &t.MTU)
	if in.has("mtu") && t.Name == "admin" && t.MTU != 1500 {
		in.bad("mtu", "admin nic tag mtu must be 1500")
	}
	if err := in.err(); err != nil {
		return err
	}
	if _, err := s.propose(r, log.Op{Action: log.Create, Kind: log.KindNICTag, Set: in.names("mtu"), Object: t}); err != nil {
		return err
	}
	return s.answerOne(w, r, log.KindNICTag, t.Name, nounTag, shapeTag)
}

func (s *Service) getTag(w http.ResponseWriter, r *http.Request) error {
	if err := s.fresh(r); err != nil {
		return err
	}
	return s.answerOne(w, r, log.KindNICTag, r.PathValue("name"), nounTag, shapeTag)
}

// updateTag changes the MTU and the name, by which the tag is answered.
func (s *Service) updateTag(w http.ResponseWriter, r *http.Request) error {
	in, err := s.readInput(r, nicTagForm{})
	if err != nil {
		return err
	}
	t := new(log.NICTag)
	take(in, "name", text, &t.Name)
	take(in, "mtu", tagMTU, &t.MTU)
	old := r.PathValue("name")
	switch {
	case !in.has("name") && !in.has("mtu"):
		in.require("name")
	case old == "admin":
		in.bad("name", "admin nic tag cannot be updated")
	case old == "external" && in.has("name") && t.Name != old:
		in.bad("name", "external nic tag cannot be renamed")
	}
	if err := in.err(); err != nil {
		return err
	}
	if err := s.update(r, tagOf(r), t, in.names()); err != nil {
		return tagInUse(err)
	}
	if in.has("name") {
		old = t.Name
	}
	return s.answerOne(w, r, log.KindNICTag, old, nounTag, shapeTag)
}

func (s *Service) deleteTag(w http.ResponseWriter, r *http.Request) error {
	if err := s.remove(w, r, tagOf(r)); err != nil {
		return tagInUse(err)
	}
	return nil
}

// tagInUse is NAPI's answer for a tag that something lies on, which it calls a bad
// parameter.
func tagInUse(err error) error {
	p := problemOf(err)
	if p.Code != log.CodeInUse {
		return err
	}
	for i := range p.Errors {
		p.Errors[i].Field = "nic_tag"
	}
	return invalid(p.Errors...)
}
