package cnapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/designation"
)

// bootFields are the fields of a boot record and those of a server.
var bootFields = map[string]string{
	"platform": "boot_platform", "kernel_args": "boot_params", "kernel_flags": "kernel_flags", "boot_modules": "boot_modules",
	"default_console": "default_console", "serial": "serial",
}

// bootRecord is what a compute node boots with.
type bootRecord struct {
	Platform       string          `json:"platform"`
	KernelArgs     json.RawMessage `json:"kernel_args"`
	KernelFlags    json.RawMessage `json:"kernel_flags"`
	BootModules    json.RawMessage `json:"boot_modules"`
	DefaultConsole string          `json:"default_console"`
	Serial         string          `json:"serial"`
}

// latest is the platform of a cloud without a choice: the newest that there is.
const latest = "latest"

// defaultBoot is the record of compute nodes that have none of their own.
func (s *Service) defaultBoot() bootRecord {
	boot := bootRecord{Platform: latest, DefaultConsole: "serial", Serial: "ttyb"}
	s.store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(log.KindSetting, designation.SettingBootDefault); ok {
			_ = json.Unmarshal([]byte(rec.Object.(*log.Setting).Value), &boot) // the log took it as one
		}
	})
	return boot.filled()
}

// filled has an empty object or list where there is nothing.
func (b bootRecord) filled() bootRecord {
	for _, one := range []struct {
		to   *json.RawMessage
		none string
	}{{&b.KernelArgs, "{}"}, {&b.KernelFlags, "{}"}, {&b.BootModules, "[]"}} {
		if len(*one.to) == 0 || string(*one.to) == "null" {
			*one.to = json.RawMessage(one.none)
		}
	}
	return b
}

// bootOf is what a server boots with: its own record, and the default one where it has
// nothing of its own.
func (s *Service) bootOf(o *log.Server) bootRecord {
	boot := s.defaultBoot()
	for _, one := range []struct {
		own string
		to  *string
	}{{o.BootPlatform, &boot.Platform}, {o.DefaultConsole, &boot.DefaultConsole}, {o.Serial, &boot.Serial}} {
		*one.to = cmp.Or(one.own, *one.to)
	}
	for _, one := range []struct {
		own string
		to  *json.RawMessage
	}{{o.BootParams, &boot.KernelArgs}, {o.KernelFlags, &boot.KernelFlags}, {o.BootModules, &boot.BootModules}} {
		if one.own != "" {
			*one.to = json.RawMessage(one.own)
		}
	}
	if o.Hostname != "" {
		args := map[string]any{"hostname": o.Hostname}
		_ = json.Unmarshal(boot.KernelArgs, &args) // the log took it as an object
		boot.KernelArgs, _ = json.Marshal(args)    // it was read just now
	}
	return boot
}

// getBoot answers what a CN boots with; "default" is that of a CN that is not known.
func (s *Service) getBoot(w http.ResponseWriter, r *http.Request) error {
	boot := s.defaultBoot()
	if r.PathValue("server") != defaultServer {
		o, err := s.needServer(r)
		if err != nil {
			return err
		}
		boot = s.bootOf(o)
	}
	rest.WriteJSON(w, r, http.StatusOK, boot)
	return nil
}

// getDefaultServer answers CNAPI's server of the name default.
func (s *Service) getDefaultServer(w http.ResponseWriter, r *http.Request) error {
	boot := s.defaultBoot()
	rest.WriteJSON(w, r, http.StatusOK, map[string]any{
		"uuid": defaultServer, "boot_platform": boot.Platform, "boot_params": boot.KernelArgs, "kernel_flags": boot.KernelFlags,
		"boot_modules": boot.BootModules, "default_console": boot.DefaultConsole, "serial": boot.Serial, "setup": false,
	})
	return nil
}

// setBoot writes a boot record: PUT the whole of it, POST what it names. In objects that
// POST names, null takes a key away, and keys that are not named stay.
func (s *Service) setBoot(w http.ResponseWriter, r *http.Request) error {
	fields, err := fieldsOf(r)
	if err != nil {
		return err
	}
	if args, given := fields["boot_params"]; given && fields["kernel_args"] == nil {
		fields["kernel_args"] = args // CNAPI's older name
	}
	delete(fields, "boot_params")
	for name := range fields {
		if _, ok := bootFields[name]; !ok {
			return badField(name, "leave it out", "a boot record has no field %q", name)
		}
	}
	whole := r.Method == http.MethodPut
	if r.PathValue("server") == defaultServer {
		return s.setDefaultBoot(w, r, fields, whole)
	}
	o, err := s.needServer(r)
	if err != nil {
		return err
	}
	own := bootRecord{KernelArgs: asJSON(o.BootParams, "{}"), KernelFlags: asJSON(o.KernelFlags, "{}")}
	if err := own.merge(fields, whole); err != nil {
		return err
	}
	named := make(map[string]json.RawMessage, len(bootFields))
	for name, to := range bootFields {
		raw, given := fields[name]
		switch {
		case given:
			named[to] = raw
		case whole:
			named[to] = json.RawMessage(cmp.Or(emptyForms[to], `""`))
		}
	}
	if len(named) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	op, err := serverOp(o.UUID, named)
	if err == nil {
		err = s.change(w, r, op)
	}
	return inBootWords(err)
}

// merge puts into fields, for POST, the keys of the objects that b has and that fields
// does not name, and takes away those that are null.
func (b *bootRecord) merge(fields map[string]json.RawMessage, whole bool) error {
	for name, has := range map[string]json.RawMessage{"kernel_args": b.KernelArgs, "kernel_flags": b.KernelFlags} {
		raw, given := fields[name]
		if !given {
			continue
		}
		merged := map[string]json.RawMessage{}
		var said map[string]json.RawMessage
		if !whole {
			_ = json.Unmarshal(has, &merged) // the log took it as an object
		}
		if err := json.Unmarshal(raw, &said); err != nil {
			return badField(name, "send an object", "%s", wrongKind(err, "object"))
		}
		for key, v := range said {
			if merged[key] = v; string(v) == "null" {
				delete(merged, key)
			}
		}
		text, err := json.Marshal(merged)
		if err != nil {
			return err
		}
		fields[name] = text
	}
	return nil
}

// setDefaultBoot writes the setting that has the default record. Who may write servers'
// records may write it (package projections/rules).
func (s *Service) setDefaultBoot(w http.ResponseWriter, r *http.Request, fields map[string]json.RawMessage, whole bool) error {
	boot := s.defaultBoot()
	if err := boot.merge(fields, whole); err != nil {
		return err
	}
	if whole {
		boot = bootRecord{Platform: latest, DefaultConsole: "serial", Serial: "ttyb"}.filled()
	}
	raw, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(raw, &boot)
	}
	if err != nil {
		return badField("body", "send the fields of a boot record", "%s", wrongKind(err, "boot record"))
	}
	if raw, err = json.Marshal(boot.filled()); err != nil {
		return err
	}
	text, err := canonical(raw)
	if err != nil {
		return badField("body", "send JSON", "%v", err)
	}
	op := log.Op{Action: log.Create, Kind: log.KindSetting, Set: []string{"name", "value"}, Object: &log.Setting{Name: designation.SettingBootDefault, Value: text}}
	s.store.View(func(state *projections.State, _ log.Cursor) {
		if _, ok := state.Get(log.KindSetting, designation.SettingBootDefault); ok {
			op = log.Op{Action: log.Update, Kind: log.KindSetting, ID: designation.SettingBootDefault, Set: []string{"value"}, Object: &log.Setting{Value: text}}
		}
	})
	if _, err := s.propose(r.Context(), r, op); err != nil {
		return inBootWords(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// listPlatforms answers the platforms that there are: those of the setting, and those
// that servers run or boot next.
func (s *Service) listPlatforms(w http.ResponseWriter, r *http.Request) error {
	for name, values := range r.URL.Query() {
		switch {
		case name != "os" && name != "full":
			return notDefined(name)
		case !slices.Contains([]string{"true", "false"}, strings.ToLower(values[0])):
			return badField(name, "send true or false", "Invalid value for param '%s'", name)
		}
	}
	withOS := strings.EqualFold(r.URL.Query().Get("os"), "true")
	all := map[string]map[string]any{}
	s.store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.List(log.KindServer) {
			o := rec.Object.(*log.Server)
			system := "smartos"
			if strings.Contains(o.Sysinfo, `"System Type":"Linux"`) {
				system = "linux"
			}
			for _, name := range []string{o.CurrentPlatform, o.BootPlatform} {
				if name != "" && name != latest {
					all[name] = map[string]any{"os": system}
				}
			}
		}
		if rec, ok := state.Get(log.KindSetting, designation.SettingPlatforms); ok {
			_ = json.Unmarshal([]byte(rec.Object.(*log.Setting).Value), &all) // the log took it as that
		}
	})
	newest := ""
	for name, one := range all {
		if one == nil || !withOS {
			all[name] = map[string]any{}
		}
		if isPlatform(name) {
			newest = max(newest, name)
		}
	}
	if newest != "" {
		all[newest]["latest"] = true
	}
	rest.WriteJSON(w, r, http.StatusOK, all)
	return nil
}

// isPlatform reports whether a name has the form of a time, by which platforms are
// compared.
func isPlatform(name string) bool {
	return len(name) == len("20260101T000000Z") && name[8] == 'T' && name[15] == 'Z' && strings.Trim(name[:8]+name[9:15], "0123456789") == ""
}

// inBootWords names the fields of a refusal as a boot record does; other errors,
// and nil, it returns as they are.
func inBootWords(err error) error {
	var refusal *log.Refusal
	if !errors.As(err, &refusal) {
		return err
	}
	named := *refusal
	named.Errors = slices.Clone(refusal.Errors)
	for i, e := range named.Errors {
		for to, from := range bootFields {
			if e.Field == from {
				named.Errors[i].Field = to
			}
		}
	}
	return &named
}
