package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"rutter/api/auth/matrix"
	"rutter/api/auth/webcheck"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/vmrule"
)

// fields are what an old service takes from a request: restify gives its handlers the
// parameters of the query and the keys of the body in one object.
type fields map[string]json.RawMessage

// text returns a field that is a text; "" if it is none.
func (f fields) text(name string) (text string) {
	_ = json.Unmarshal(f[name], &text) // what is no text is refused by the service
	return text
}

// says reports whether a field is true, as a text or as JSON.
func (f fields) says(name string) bool {
	raw := strings.Trim(string(f[name]), `"`)
	return raw == "true" || raw == "1"
}

// prototype is a key by which JavaScript reaches other keys of an object: one service
// would see a field that this check does not.
const prototype = "__proto__"

// fieldsOf returns the fields of the query and the body, or refuses a request that the
// old service could read in another way than the check.
func fieldsOf(r *http.Request, body []byte) (fields, error) {
	if text := strings.Join(r.Header.Values("Content-Encoding"), ", "); len(body) > 0 && text != "" && !strings.EqualFold(text, "identity") {
		return nil, rest.Fail(http.StatusUnsupportedMediaType, webcheck.CodeContentType, "send the body as it is", "the body is encoded (%.40s): what is in it could not be looked at before it is handed on", text)
	}
	if text := r.Header.Get("Content-Type"); len(body) > 0 && text != "" {
		if media, _, err := mime.ParseMediaType(text); err != nil || media != "application/json" && !strings.HasSuffix(media, "+json") {
			return nil, rest.Fail(http.StatusUnsupportedMediaType, webcheck.CodeContentType, "send JSON with the header Content-Type: application/json", "content type %.80q is not handed on", text)
		}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, rest.Fail(http.StatusBadRequest, rest.CodeBadRequest, "encode it as name=value&name=value", "the query cannot be read: %v", err)
	}
	all := make(fields)
	for name, values := range query {
		if raw, err := json.Marshal(values[0]); err == nil {
			all[name] = raw
		}
		// qs makes objects of name[key] and, as it is set, of name.key; of [name] and, in
		// some versions, of name]key it makes name.
		if name == prototype || strings.ContainsAny(name, "[].") || len(values) > 1 {
			return nil, rest.BadParameter(name, log.ElementInvalid, "give it once, as name=value, and what is an object or a list in the body", "it could be read in two ways")
		}
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return all, nil
	}
	var of map[string]json.RawMessage
	if err := json.Unmarshal(body, &of); err != nil || of == nil {
		return nil, rest.Fail(http.StatusBadRequest, rest.CodeBadRequest, "send one JSON object", "the body is no JSON object, and is not handed on")
	}
	for name, raw := range of {
		if name == prototype {
			return nil, rest.BadParameter(name, log.ElementInvalid, "leave it out", "it could be read in two ways")
		}
		if given, both := all[name]; both && strings.Trim(string(given), `"`) != strings.Trim(string(raw), `"`) {
			return nil, rest.BadParameter(name, log.ElementInvalid, "give it once", "the query and the body have different ones")
		}
		all[name] = raw
	}
	return all, nil
}

// needFields reads the fields of a request, once.
func (a *asked) needFields() (err error) {
	if a.fields == nil {
		a.fields, err = fieldsOf(a.r, a.body)
	}
	return err
}

// vet refuses a request whose client may not have it handed on: what the own listeners
// refuse is not reached through the old services.
func (g *Gateway) vet(a *asked) error {
	if !rest.IsRead(a.r) {
		if err := a.needFields(); err != nil {
			return err
		}
	}
	who, known := matrix.From(a.r.Context())
	program := g.cfg.Programs == nil || g.cfg.Programs(a.r)
	const remedy = "use the certificate of an operator, or let this address in with --triton-allow CIDR=programs"
	switch {
	case a.call.right >= writing && known && who.Role == matrix.Foreign && !who.Write:
		return rest.Fail(http.StatusForbidden, log.CodeNotAuthorized, "", "this address may only read")
	case a.call.right == operating && g.cfg.Operator != nil && !g.cfg.Operator(a.r):
		return rest.Fail(http.StatusForbidden, log.CodeNotAuthorized, "ask "+g.name()+" itself", "%s %s is an operator's, and is not handed on for a program", a.r.Method, a.r.URL.Path)
	case a.call.right == programs && !program:
		return rest.Fail(http.StatusForbidden, log.CodeNotAuthorized, remedy, "%s %s may choose what runs on a compute node, which write access does not allow", a.r.Method, a.r.URL.Path)
	}
	if a.call.check != ofVM || program {
		return nil
	}
	id := a.r.PathValue("vm")
	if id == "" {
		id = a.fields.text("uuid")
	}
	if names := programsOf(id, a.fields); len(names) > 0 {
		return rest.Fail(http.StatusForbidden, log.CodeNotAuthorized, remedy, "%s: what runs on a compute node is not chosen with write access", strings.Join(names, ", "))
	}
	return nil
}

// programsOf are the fields that choose what runs on a compute node, in the fields of a
// VM or in an object of them in which the old services take such fields too.
func programsOf(id string, all fields) []string {
	names := vmrule.Programs(id, all)
	for _, name := range []string{"payload", "update", "vm"} {
		var inner map[string]json.RawMessage
		if json.Unmarshal(all[name], &inner) == nil {
			names = append(names, vmrule.Programs(id, inner)...)
		}
	}
	return names
}

func bodyOf(body []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(body)) }
