package napi

import (
	"reflect"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// tolerated are the names that Triton's own programs send beside those of NAPI
// (spec/triton-callers.md section 5.3): VMAPI's update_nics sends interface, and CloudAPI
// who provisions.
var tolerated = []string{"context", "creator_uuid", "interface", "origin"}

// strict reports whether bodies with names that NAPI does not know are refused: the
// setting projections.SettingNAPIStrict. NAPI ignores such names.
func (s *Service) strict() (on bool) {
	s.store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(log.KindSetting, projections.SettingNAPIStrict); ok {
			on = rec.Object.(*log.Setting).Value == "true"
		}
	})
	return on
}

// namesOf returns the names of a form's fields, with those of the structs inside: a
// client may send an object as it was answered.
func namesOf(form any) map[string]bool {
	names := make(map[string]bool)
	addNames(names, reflect.TypeOf(form))
	return names
}

func addNames(names map[string]bool, form reflect.Type) {
	for i := range form.NumField() {
		field := form.Field(i)
		if inner := field.Type; field.Anonymous && inner.Kind() == reflect.Pointer {
			addNames(names, inner.Elem())
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names[name] = true
	}
}
