package cnapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"rutter/api/internal/rest"
	"rutter/log"
)

// bootFields are the fields of a boot record and those of a server.
var bootFields = map[string]string{
	"platform": "boot_platform", "kernel_args": "boot_params", "kernel_flags": "kernel_flags", "boot_modules": "boot_modules",
	"default_console": "default_console", "serial": "serial",
}

// getBoot answers what a CN boots with; "default" is that of a CN that is not known.
func (s *Service) getBoot(w http.ResponseWriter, r *http.Request) error {
	o := &log.Server{BootPlatform: "latest", DefaultConsole: "serial", Serial: "ttyb"}
	if r.PathValue("server") != "default" {
		var err error
		if o, err = s.needServer(r); err != nil {
			return err
		}
	}
	args := map[string]any{"hostname": o.Hostname}
	if o.Hostname == "" {
		delete(args, "hostname")
	}
	_ = json.Unmarshal(asJSON(o.BootParams, "{}"), &args) // the log took it as an object
	rest.WriteJSON(w, r, http.StatusOK, map[string]any{
		"platform": o.BootPlatform, "kernel_args": args, "kernel_flags": asJSON(o.KernelFlags, "{}"),
		"boot_modules": asJSON(o.BootModules, "[]"), "default_console": o.DefaultConsole, "serial": o.Serial,
	})
	return nil
}

func (s *Service) setBoot(w http.ResponseWriter, r *http.Request) error {
	cn, err := serverOf(r)
	if err != nil {
		return err
	}
	fields, err := fieldsOf(r)
	if err != nil {
		return err
	}
	named := make(map[string]json.RawMessage, len(fields))
	for name, raw := range fields {
		to, ok := bootFields[name]
		if !ok {
			return badField(name, "leave it out", "a boot record has no field %q", name)
		}
		named[to] = raw
	}
	op, err := serverOp(cn, named)
	if err == nil {
		err = s.change(w, r, op)
	}
	return inBootWords(err)
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
