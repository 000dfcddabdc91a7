package napi

import (
	"net/http"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// vlanForm is a fabric VLAN in an answer (spec/napi.md section 3.1).
type vlanForm struct {
	Name        string   `json:"name,omitempty"`
	OwnerUUID   log.UUID `json:"owner_uuid"`
	VLANID      uint32   `json:"vlan_id"`
	VNetID      uint32   `json:"vnet_id"`
	Description string   `json:"description,omitempty"`
}

func shapeVLAN(_ *projections.State, o log.Object) any {
	v := o.(*log.FabricVLAN)
	return vlanForm{v.Name, v.OwnerUUID, v.VLANID, v.VNetID, v.Description}
}

const nounVLAN = "vlan"

// ownerOf reads the owner of a fabric from the path.
func ownerOf(r *http.Request) (log.UUID, error) {
	owner, err := log.ParseUUID(r.PathValue("owner_uuid"))
	if err != nil {
		return owner, invalid(bad("owner_uuid", "invalid UUID"))
	}
	return owner, nil
}

// vlanOf reads a VLAN's owner and number from the path.
func vlanOf(r *http.Request) (log.UUID, uint32, error) {
	owner, err := ownerOf(r)
	if err != nil {
		return owner, 0, err
	}
	id, wrong := vlan(r.PathValue("vlan_id"))
	if wrong != nil {
		wrong.Field = "vlan_id"
		return owner, 0, invalid(*wrong)
	}
	return owner, id, nil
}

// vlanTarget is the VLAN of a path.
func vlanTarget(r *http.Request) (target, error) {
	owner, id, err := vlanOf(r)
	return target{kind: log.KindFabricVLAN, id: log.FabricVLANID(owner, id), noun: nounVLAN}, err
}

func (s *Service) listVLANs(w http.ResponseWriter, r *http.Request) error {
	owner, err := ownerOf(r)
	if err != nil {
		return err
	}
	in, err := readQuery(r, "fields", "limit", "offset")
	if err != nil {
		return err
	}
	l := listing{walks: []projections.Walk{{Kind: log.KindFabricVLAN, FabricOf: owner}}, shape: takeFields(in, vlanFields, shapeVLAN)}
	l.limit, l.offset = in.page()
	if err := in.err(); err != nil {
		return err
	}
	return s.answerList(w, r, l)
}

func (s *Service) createVLAN(w http.ResponseWriter, r *http.Request) error {
	owner, err := ownerOf(r)
	if err != nil {
		return err
	}
	in, err := s.readInput(r, vlanForm{})
	if err != nil {
		return err
	}
	v := &log.FabricVLAN{OwnerUUID: owner}
	in.require("vlan_id")
	take(in, "name", text, &v.Name)
	take(in, "vlan_id", vlan, &v.VLANID)
	take(in, "description", anyText, &v.Description)
	shape := takeFields(in, vlanFields, shapeVLAN)
	if err := in.err(); err != nil {
		return err
	}
	op := log.Op{Action: log.Create, Kind: log.KindFabricVLAN, Set: in.names("owner_uuid"), Object: v}
	if _, err := s.propose(r, op); err != nil {
		return vlanTaken(err)
	}
	return s.answerOne(w, r, log.KindFabricVLAN, v.ID(), nounVLAN, shape)
}

// vlanTaken is NAPI's answer for a VLAN that already exists.
func vlanTaken(err error) error {
	p := problemOf(err)
	if len(p.Errors) != 1 || p.Errors[0].Code != log.ElementDuplicate {
		return err
	}
	const message = "VLAN ID is already in use"
	return &problem{status: http.StatusUnprocessableEntity, Code: log.CodeInUse, Message: message, Errors: []element{{
		Field: "vlan_id", Code: log.ElementDuplicate, Message: message,
	}}}
}

func (s *Service) getVLAN(w http.ResponseWriter, r *http.Request) error {
	t, err := vlanTarget(r)
	if err != nil {
		return err
	}
	shape, err := readFields(r, vlanFields, shapeVLAN)
	if err != nil {
		return err
	}
	if err := s.fresh(r); err != nil {
		return err
	}
	return s.answerOne(w, r, t.kind, t.id, t.noun, shape)
}

func (s *Service) updateVLAN(w http.ResponseWriter, r *http.Request) error {
	t, err := vlanTarget(r)
	if err != nil {
		return err
	}
	in, err := s.readInput(r, vlanForm{})
	if err != nil {
		return err
	}
	v := new(log.FabricVLAN)
	take(in, "name", text, &v.Name)
	take(in, "description", anyText, &v.Description)
	shape := takeFields(in, vlanFields, shapeVLAN)
	if err := in.err(); err != nil {
		return err
	}
	if err := s.update(r, t, v, in.names()); err != nil {
		return err
	}
	return s.answerOne(w, r, t.kind, t.id, t.noun, shape)
}

func (s *Service) deleteVLAN(w http.ResponseWriter, r *http.Request) error {
	t, err := vlanTarget(r)
	if err != nil {
		return err
	}
	return s.remove(w, r, t)
}

// parentVLAN returns the VLAN of the path of fabric networks.
func (s *Service) parentVLAN(r *http.Request) (*log.FabricVLAN, error) {
	t, err := vlanTarget(r)
	if err != nil {
		return nil, err
	}
	if err := s.fresh(r); err != nil {
		return nil, err
	}
	rec, _, err := s.find(t.kind, t.id, t.noun, shapeVLAN)
	if err != nil {
		return nil, err
	}
	return rec.Object.(*log.FabricVLAN), nil
}

// isOn reports whether a network is one of a fabric's VLAN.
func isOn(v *log.FabricVLAN, n *log.Network) bool {
	return n.Fabric && n.VNetID == v.VNetID && n.VLANID == v.VLANID && slices.Contains(n.OwnerUUIDs, v.OwnerUUID)
}

func (s *Service) listFabricNetworks(w http.ResponseWriter, r *http.Request) error {
	v, err := s.parentVLAN(r)
	if err != nil {
		return err
	}
	in, err := readQuery(r, "fields", "limit", "name", "offset")
	if err != nil {
		return err
	}
	l := listing{walks: []projections.Walk{{Kind: log.KindNetwork, FabricOf: v.OwnerUUID}}, shape: takeFields(in, networkFields, shapeFabricNetwork)}
	l.limit, l.offset = in.page()
	var names []string
	byName := take(in, "name", words, &names)
	l.match = func(_ *projections.State, o log.Object) bool {
		n := o.(*log.Network)
		return isOn(v, n) && (!byName || slices.Contains(names, n.Name))
	}
	if err := in.err(); err != nil {
		return err
	}
	return s.answerList(w, r, l)
}

// createFabricNetwork makes a network on a VLAN, with the VLAN's owner, vnet and
// number, on the overlay's NIC tag.
func (s *Service) createFabricNetwork(w http.ResponseWriter, r *http.Request) error {
	v, err := s.parentVLAN(r)
	if err != nil {
		return err
	}
	in, err := s.readInput(r, networkForm{})
	if err != nil {
		return err
	}
	n := &log.Network{
		Fabric: true, NICTag: s.cfg.OverlayTag, VNetID: v.VNetID, VLANID: v.VLANID, OwnerUUIDs: []log.UUID{v.OwnerUUID},
		InternetNAT: true, MTU: s.cfg.OverlayMTU,
	}
	in.require("name")
	takeNetwork(in, n)
	take(in, "uuid", uuid, &n.UUID)
	return s.makeNetwork(w, r, in, n, v, "fabric", "internet_nat", "mtu", "nic_tag", "owner_uuids", "vlan_id", "vnet_id")
}

// fabricNetwork returns the UUID of the network of a path, if it is on the VLAN
// of the path.
func (s *Service) fabricNetwork(r *http.Request) (v *log.FabricVLAN, id log.UUID, err error) {
	if v, err = s.parentVLAN(r); err != nil {
		return nil, id, err
	}
	if id, err = log.ParseUUID(r.PathValue("uuid")); err != nil {
		return nil, id, notFound(nounNetwork)
	}
	_, on, err := s.find(log.KindNetwork, id.String(), nounNetwork, func(_ *projections.State, o log.Object) any {
		return isOn(v, o.(*log.Network))
	})
	if err == nil && !on.(bool) {
		err = notFound(nounNetwork)
	}
	return v, id, err
}

func (s *Service) getFabricNetwork(w http.ResponseWriter, r *http.Request) error {
	_, id, err := s.fabricNetwork(r)
	if err != nil {
		return err
	}
	return s.answerNetwork(w, r, id, shapeFabricNetwork)
}

func (s *Service) updateFabricNetwork(w http.ResponseWriter, r *http.Request) error {
	v, id, err := s.fabricNetwork(r)
	if err != nil {
		return err
	}
	return s.putNetwork(w, r, id, shapeFabricNetwork, func(n *log.Network) bool { return isOn(v, n) })
}

func (s *Service) deleteFabricNetwork(w http.ResponseWriter, r *http.Request) error {
	_, id, err := s.fabricNetwork(r)
	if err != nil {
		return err
	}
	return s.remove(w, r, target{kind: log.KindNetwork, id: id.String(), noun: nounNetwork})
}
