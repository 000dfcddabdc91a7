package napi

import (
	"net/http"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// poolForm is a network pool in an answer (spec/napi.md section 3.1).
type poolForm struct {
	UUID        log.UUID   `json:"uuid"`
	Name        string     `json:"name"`
	Description string     `json:"description,omitempty"`
	Family      string     `json:"family"`
	Networks    []log.UUID `json:"networks"`
	NICTag      string     `json:"nic_tag,omitempty"`
	TagsPresent []string   `json:"nic_tags_present"`
	OwnerUUIDs  []log.UUID `json:"owner_uuids,omitempty"`
}

func shapePool(state *projections.State, o log.Object) any {
	p := o.(*log.NetworkPool)
	f := poolForm{
		UUID: p.UUID, Name: p.Name, Description: p.Description, Family: p.Family, Networks: p.Networks,
		TagsPresent: poolTags(state, p), OwnerUUIDs: p.OwnerUUIDs,
	}
	if len(f.TagsPresent) > 0 {
		f.NICTag = f.TagsPresent[0]
	}
	return f
}

// poolTags are the NIC tags of a pool's networks, each once, in the order of the networks.
func poolTags(state *projections.State, p *log.NetworkPool) []string {
	tags := []string{}
	for _, uuid := range p.Networks {
		if n := state.Network(uuid); n != nil && !slices.Contains(tags, n.NICTag) {
			tags = append(tags, n.NICTag)
		}
	}
	return tags
}

const nounPool = "network pool"

// poolTarget is the pool of a path; a text that is not a UUID names none.
func poolTarget(r *http.Request) (target, error) {
	id, err := log.ParseUUID(r.PathValue("uuid"))
	if err != nil {
		return target{}, notFound(nounPool)
	}
	return target{kind: log.KindNetworkPool, id: id.String(), noun: nounPool}, nil
}

func (s *Service) listPools(w http.ResponseWriter, r *http.Request) error {
	in, err := readQuery(r, "family", "limit", "name", "networks", "offset", "provisionable_by", "uuid")
	if err != nil {
		return err
	}
	l := listing{walks: []projections.Walk{{Kind: log.KindNetworkPool}}, shape: shapePool}
	l.limit, l.offset = in.page()
	var family, name string
	var networks []log.UUID
	var provisioner log.UUID
	var named func(log.UUID) bool
	byFamily := take(in, "family", oneOf("ipv4", "ipv6"), &family)
	byName := take(in, "name", text, &name)
	byNetwork := take(in, "networks", uuids, &networks)
	byOwner := take(in, "provisionable_by", uuid, &provisioner)
	byID := take(in, "uuid", uuidPrefix, &named)
	if len(networks) > 1 {
		in.bad("networks", "Only one network UUID allowed")
	}
	l.match = func(_ *projections.State, o log.Object) bool {
		p := o.(*log.NetworkPool)
		return (!byFamily || p.Family == family) && (!byName || p.Name == name) &&
			(!byNetwork || slices.ContainsFunc(p.Networks, func(u log.UUID) bool { return slices.Contains(networks, u) })) &&
			(!byOwner || s.mayProvision(p.OwnerUUIDs, provisioner)) && (!byID || named(p.UUID))
	}
	if err := in.err(); err != nil {
		return err
	}
	return s.answerList(w, r, l)
}

// takePool reads the fields of a pool. NAPI keeps the networks sorted, each once, whatever
// order they are named in; the sorted order is that in which they are provisioned.
func takePool(in *input, p *log.NetworkPool) {
	take(in, "name", text, &p.Name)
	take(in, "description", anyText, &p.Description)
	take(in, "networks", uuids, &p.Networks)
	slices.SortFunc(p.Networks, log.UUID.Compare)
	p.Networks = slices.Compact(p.Networks)
	take(in, "owner_uuids", uuids, &p.OwnerUUIDs)
}

func (s *Service) createPool(w http.ResponseWriter, r *http.Request) error {
	in, err := s.readInput(r, poolForm{})
	if err != nil {
		return err
	}
	p := new(log.NetworkPool)
	in.require("name", "networks")
	takePool(in, p)
	take(in, "uuid", uuid, &p.UUID)
	if err := in.err(); err != nil {
		return err
	}
	result, err := s.propose(r, log.Op{Action: log.Create, Kind: log.KindNetworkPool, Set: in.names(), Object: p})
	if err != nil {
		return err
	}
	return s.answerOne(w, r, log.KindNetworkPool, result.IDs[0], nounPool, shapePool)
}

func (s *Service) getPool(w http.ResponseWriter, r *http.Request) error {
	t, err := poolTarget(r)
	if err != nil {
		return err
	}
	if err := s.fresh(r); err != nil {
		return err
	}
	id, _ := log.ParseUUID(t.id)
	if err := s.checkProvisionable(r, t.kind, id, nounPool); err != nil {
		return err
	}
	return s.answerOne(w, r, t.kind, t.id, t.noun, shapePool)
}

func (s *Service) updatePool(w http.ResponseWriter, r *http.Request) error {
	t, err := poolTarget(r)
	if err != nil {
		return err
	}
	in, err := s.readInput(r, poolForm{})
	if err != nil {
		return err
	}
	p := new(log.NetworkPool)
	takePool(in, p)
	if err := in.err(); err != nil {
		return err
	}
	if err := s.update(r, t, p, in.names()); err != nil {
		return err
	}
	return s.answerOne(w, r, t.kind, t.id, t.noun, shapePool)
}

func (s *Service) deletePool(w http.ResponseWriter, r *http.Request) error {
	t, err := poolTarget(r)
	if err != nil {
		return err
	}
	return s.remove(w, r, t)
}
