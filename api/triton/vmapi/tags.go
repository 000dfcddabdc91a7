package vmapi

import (
	"encoding/json"
	"net/http"
	"slices"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/vmobject"
	"rutter/log/vmrule"
)

// metadata are the objects of a VM whose members have paths of their own.
var metadata = []string{"tags", "customer_metadata", "internal_metadata"}

// invalidRoleTags is what VMAPI says of role tags that are none.
const invalidRoleTags = "Invalid Role Tags"

// maxRoleTags is how many role tags a VM may have.
const maxRoleTags = 1000

// members returns an object of a VM with texts or other plain values, never nil.
func (s *Service) members(r *http.Request, of string) (*log.VM, map[string]any, error) {
	vm, _, err := s.find1(r)
	if err != nil {
		return nil, nil, err
	}
	object, _ := vmobject.Show(vm)[of].(vmobject.Object)
	if object == nil {
		object = vmobject.Object{}
	}
	return vm, object, nil
}

// getMembers answers GET /vms/UUID/tags, and of the metadata.
func (s *Service) getMembers(of string) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		_, object, err := s.members(r, of)
		if err == nil {
			rest.WriteEscaped(w, http.StatusOK, object)
		}
		return err
	}
}

// getMember answers GET /vms/UUID/tags/KEY, and of the metadata.
func (s *Service) getMember(of string) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		_, object, err := s.members(r, of)
		if err != nil {
			return err
		}
		value, has := object[r.PathValue("key")]
		if !has {
			return fail(http.StatusNotFound, log.CodeResourceNotFound, "Metadata key not found")
		}
		rest.WriteEscaped(w, http.StatusOK, value)
		return nil
	}
}

// setMembers answers POST, which adds members, and PUT, which replaces all of them. The
// VM's compute node does it.
func (s *Service) setMembers(of string, all bool) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		sync, err := s.waits.flags(r, nil)
		if err != nil {
			return err
		}
		body, err := s.writeBody(r)
		if err != nil {
			return err
		}
		set, err := vmobject.Parse(body)
		if err == nil {
			for _, name := range []string{"uuid", "owner_uuid", "metadata", "context"} {
				delete(set, name) // of the request, as VMAPI has it
			}
		}
		if err != nil || len(set) == 0 || !plainMembers(set) {
			p := invalid(of, "send an object with one member at least, each a text, a number, true or false")
			p.Message = "Invalid Metadata parameters"
			return p
		}
		vm, before, err := s.members(r, of)
		if err != nil {
			return err
		}
		params := map[string]any{"set_" + of: set}
		if all {
			gone := slices.DeleteFunc(names(before), func(key string) bool { _, stays := set[key]; return stays })
			if len(gone) > 0 {
				params["remove_"+of] = gone
			}
		}
		return s.startTask(w, r, vm, "machine_update", params, sync)
	}
}

// plainMembers reports whether all members are texts, numbers or truth values.
func plainMembers(object map[string]any) bool {
	for _, value := range object {
		switch value.(type) {
		case string, bool, json.Number:
		default:
			return false
		}
	}
	return true
}

// removeMembers answers DELETE /vms/UUID/tags and /vms/UUID/tags/KEY, and of the metadata.
func (s *Service) removeMembers(of string) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		sync, err := s.waits.flags(r, nil)
		if err != nil {
			return err
		}
		vm, before, err := s.members(r, of)
		if err != nil {
			return err
		}
		gone := names(before)
		if key := r.PathValue("key"); key != "" {
			if !slices.Contains(gone, key) {
				return fail(http.StatusNotFound, log.CodeResourceNotFound, "Metadata key not found")
			}
			gone = []string{key}
		}
		return s.startTask(w, r, vm, "machine_update", map[string]any{"remove_" + of: gone}, sync)
	}
}

// setRoleTags answers POST, which adds role tags, and PUT, which replaces them.
func (s *Service) setRoleTags(all bool) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		body, err := s.writeBody(r)
		if err != nil {
			return err
		}
		var request struct {
			Tags []string `json:"role_tags"`
		}
		err = json.Unmarshal(body, &request)
		wrong := invalid("role_tags", "Must be an array of UUIDs")
		wrong.Message = invalidRoleTags
		if err != nil || len(request.Tags) == 0 {
			return wrong
		}
		for _, tag := range request.Tags {
			if _, err := log.ParseUUID(tag); err != nil {
				wrong.Errors = []log.FieldError{{Field: "role_tags", Code: vmrule.ElementInvalid, Message: tag + " is not a UUID"}}
				return wrong
			}
		}
		return s.editRoleTags(r, func(before []string) ([]string, error) {
			after := before
			if all {
				after = nil
			}
			for _, tag := range request.Tags {
				if !slices.Contains(after, tag) {
					after = append(after, tag)
				}
			}
			if len(after) > maxRoleTags {
				return nil, invalid("role_tags", "%d role tags are over %d", len(after), maxRoleTags)
			}
			return after, nil
		}, func(after []string) { rest.WriteEscaped(w, http.StatusOK, after) })
	}
}

// removeRoleTags answers DELETE /vms/UUID/role_tags and /vms/UUID/role_tags/TAG.
func (s *Service) removeRoleTags(w http.ResponseWriter, r *http.Request) error {
	if err := s.serves(); err != nil {
		return err
	}
	tag := r.PathValue("key")
	return s.editRoleTags(r, func(before []string) ([]string, error) {
		if tag == "" {
			return nil, nil
		}
		i := slices.Index(before, tag)
		if i < 0 {
			return nil, fail(http.StatusNotFound, log.CodeResourceNotFound, "Role Tag not found")
		}
		return slices.Delete(before, i, i+1), nil
	}, func(after []string) {
		if tag != "" {
			rest.WriteEscaped(w, http.StatusOK, after)
			return
		}
		w.WriteHeader(http.StatusOK) // VMAPI's: all are gone, and nothing is told
	})
}

// editRoleTags changes the role tags of a VM, which only the log has, and passes them to
// answer.
func (s *Service) editRoleTags(r *http.Request, change func([]string) ([]string, error), answer func([]string)) error {
	id, err := vmID(r)
	if err != nil {
		return err
	}
	var after []string
	err = s.edit(r, id, func(vm *log.VM) ([]string, error) {
		properties := vmobject.Properties(vm)
		before := vmobject.Tags(properties)
		var err error
		if after, err = change(slices.Clone(before)); err != nil || slices.Equal(before, after) {
			return nil, err
		}
		delete(properties, vmobject.RoleTags)
		if len(after) > 0 {
			properties[vmobject.RoleTags] = after
		}
		vm.Properties, err = vmobject.Text(properties)
		return []string{"properties"}, err
	})
	if err != nil {
		return err
	}
	if after == nil {
		after = []string{}
	}
	answer(after)
	return nil
}
