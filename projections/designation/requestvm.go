package designation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"rutter/log"
)

// imageSpare is beside what an image itself takes, in MiB.
const imageSpare = 10240

func (r *Request) readVM(vm *wireVM, pkg *wirePackage, img *wireImage, reqs *wireRequirements) (err error) {
	if pkg == nil {
		pkg = &wirePackage{}
	}
	if r.Owner, err = log.ParseUUID(strings.ToLower(vm.Owner)); err != nil {
		return invalid("vm", `VM "owner_uuid" is not a valid UUID`)
	}
	numbers := map[string]uint64{}
	for _, one := range []struct {
		name string
		v    any
	}{{"ram", vm.RAM}, {"quota", vm.Quota}, {"cpu_cap", vm.CPU}, {"vcpus", vm.VCPUs}} {
		n, ok := figure(one.v)
		if !ok {
			return invalid("vm", `VM "%s" is not a number`, one.name)
		}
		numbers[one.name] = n
	}
	for _, one := range []struct {
		name string
		v    any
	}{{"max_physical_memory", pkg.RAM}, {"quota", pkg.Quota}, {"cpu_cap", pkg.CPU}, {"vcpus", pkg.VCPUs}} {
		n, ok := figure(one.v)
		if !ok {
			return invalid("package", `"package.%s" has invalid type`, one.name)
		}
		numbers["package "+one.name] = n
	}
	r.Brand, _ = or(vm.Brand, pkg.Brand).(string)
	if r.ram = either(numbers["ram"], numbers["package max_physical_memory"]); r.ram == 0 {
		return invalid("vm", `VM "ram" is not a number`)
	}
	if r.VM, err = log.ParseUUID(strings.ToLower(vm.UUID)); err != nil {
		return invalid("vm", `"vm.vm_uuid" is an invalid UUID`)
	}
	if least, _ := figure(reqs.MinRAM); r.ram < least {
		return invalid("vm", `"vm.ram" is smaller than "image.requirements.min_ram"`)
	}
	if greatest, _ := figure(reqs.MaxRAM); greatest > 0 && r.ram > greatest {
		return invalid("vm", `"vm.ram" is larger than "image.requirements.max_ram"`)
	}
	r.cpu = either(numbers["cpu_cap"], numbers["package cpu_cap"])
	r.vcpus = either(numbers["vcpus"], numbers["package vcpus"])
	r.quota = either(min(numbers["quota"], most>>10)<<10, numbers["package quota"])
	r.sumDisks(vm, img)
	return nil
}

// sumDisks adds up what no ratio divides: the disks of a machine with virtual hardware,
// and room for the image.
func (r *Request) sumDisks(vm *wireVM, img *wireImage) {
	if r.quota == 0 && len(vm.Disks) == 0 {
		return
	}
	size, _ := figure(img.Size)
	switch {
	case isHVM(r.Brand) && len(vm.Disks) > 0:
		for i, d := range vm.Disks {
			if n := whole(d.Size); n > 0 || i > 0 {
				r.fixed += n
			} else {
				r.fixed += size
			}
		}
	case isHVM(r.Brand) || img.Type == "zvol":
		r.fixed = size
	}
	var files uint64
	for _, f := range img.Files {
		files += whole(f.Size)
	}
	r.fixed += (files+1<<20-1)>>20 + imageSpare
}

func either(a, b uint64) uint64 {
	if a != 0 {
		return a
	}
	return b
}

// readTraits merges the traits of package, VM and image: a later one counts.
func (r *Request) readTraits(vm *wireVM, pkg *wirePackage, img *wireImage) error {
	if pkg == nil {
		pkg = &wirePackage{}
	}
	r.traits = map[string]any{}
	for _, one := range []struct {
		field, words string
		v            any
	}{{"package", "", pkg.Traits}, {"vm", "VM ", vm.Traits}, {"image", "", img.Traits}} {
		if text, ok := one.v.(string); ok && one.field == "package" && text != "" {
			if json.Unmarshal([]byte(text), &one.v) != nil {
				return invalid(one.field, `"package.traits" has invalid type`)
			}
		}
		if one.v == nil || one.v == "" {
			continue
		}
		traits, ok := one.v.(map[string]any)
		if !ok || len(traits) > maxTraits {
			return invalid(one.field, `%sTraits are no object of at most %d`, one.words, maxTraits)
		}
		for name, v := range traits {
			if why := badTrait(name, v); why != "" {
				return invalid(one.field, "%s%s", one.words, why)
			}
			r.traits[name] = v
		}
	}
	return nil
}

// badTrait says what is wrong with a trait; "" if nothing is.
func badTrait(name string, v any) string {
	switch v := v.(type) {
	case bool, string:
		return ""
	case []any:
		if slices.ContainsFunc(v, func(e any) bool { _, ok := e.(string); return !ok }) {
			return fmt.Sprintf("Trait %.255q contains invalid type in array", name)
		}
		return ""
	}
	return fmt.Sprintf("Trait %.255q is an invalid type", name)
}

// readLocality reads {near, far, strict}; near and far are a UUID or a list of them.
func (r *Request) readLocality(raw json.RawMessage) (err error) {
	if absent(raw) {
		return nil
	}
	var w struct {
		Near   any  `json:"near"`
		Far    any  `json:"far"`
		Strict bool `json:"strict"`
	}
	if json.Unmarshal(raw, &w) != nil {
		return invalid("vm", `VM "locality" has wrong type`)
	}
	r.strict = w.Strict
	if r.near, err = uuidsOf("near", w.Near); err != nil {
		return err
	}
	r.far, err = uuidsOf("far", w.Far)
	return err
}

func uuidsOf(name string, v any) ([]log.UUID, error) {
	if text, ok := v.(string); ok && text != "" {
		v = []any{text}
	}
	if v == nil || v == "" {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok || len(list) > maxNear {
		return nil, invalid("vm", `VM "locality.%s" is neither string nor array of at most %d`, name, maxNear)
	}
	uuids := make([]log.UUID, 0, len(list))
	for _, one := range list {
		text, _ := one.(string)
		uuid, err := log.ParseUUID(strings.ToLower(text))
		if err != nil {
			return nil, invalid("vm", `VM "locality.%s" contains a malformed UUID`, name)
		}
		uuids = append(uuids, uuid)
	}
	return uuids, nil
}

// readVolumes reads the VMs whose volumes a Docker container needs: they stand as JSON
// in a text of its internal_metadata.
func (r *Request) readVolumes(vm *wireVM) (err error) {
	if vm.Docker != true && vm.Docker != "true" {
		return nil
	}
	v := vm.Internal["docker:volumesfrom"]
	if text, ok := v.(string); ok && text != "" {
		if json.Unmarshal([]byte(text), &v) != nil {
			return invalid("vm", `VM "internal_metadata.docker:volumesfrom" is not valid JSON`)
		}
	}
	r.volumes, err = uuidsOf("volumesfrom", v)
	return err
}
