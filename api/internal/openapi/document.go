package openapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"rutter/api/internal/rest"
	"rutter/log"
)

// schema is a JSON Schema, or a part of an OpenAPI document.
type schema = map[string]any

// Version is that of the OpenAPI Specification.
const Version = "3.1.1"

// Document returns the OpenAPI document of the endpoints as JSON. version is that of the
// program. It returns an error if an endpoint has a parameter or a type that cannot be
// described; the tables are at fault then.
func Document(version string, endpoints []Endpoint) ([]byte, error) {
	b := builder{types: newTypes(), paths: schema{}}
	for _, e := range endpoints {
		if err := b.add(e); err != nil {
			return nil, fmt.Errorf("openapi: %s %s: %w", e.Method, e.Pattern, err)
		}
	}
	var tags []schema
	for _, section := range b.sections {
		tags = append(tags, schema{"name": section})
	}
	return json.MarshalIndent(schema{
		"openapi": Version,
		"info": schema{
			"title": "Rutter", "version": version, "license": schema{"name": "see the repository"},
			"description": "The API of a server: objects, changes, the log, compute nodes, lookups and the cluster. Every server accepts every request. The paths of NAPI, VMAPI and CNAPI, which programs of Triton use, are not in this document: docs/triton.md lists them.",
		},
		"servers": []schema{{"url": "/", "description": "the server that this document is from"}},
		"tags":    tags,
		"paths":   b.paths,
		"components": schema{
			"schemas":         b.types.components,
			"responses":       schema{"error": errorAnswer()},
			"securitySchemes": schema{"certificate": schema{"type": "mutualTLS", "description": "a certificate of the cluster's authority, whose role decides what it may do; none on a listener of loopback without TLS"}},
		},
		"security": []schema{{"certificate": []string{}}, {}},
	}, "", "  ")
}

// builder collects the parts of a document.
type builder struct {
	types    *types
	paths    schema
	sections []string
}

// add describes one endpoint.
func (b *builder) add(e Endpoint) error {
	if e.About.Answers == "" {
		return fmt.Errorf("nothing says what it answers")
	}
	if !slices.Contains(b.sections, e.About.Section) {
		b.sections = append(b.sections, e.About.Section)
	}
	path, names := plainPath(e.Pattern)
	item, _ := b.paths[path].(schema)
	if item == nil {
		item = schema{}
		b.paths[path] = item
	}
	method := strings.ToLower(e.Method)
	if item[method] != nil {
		return fmt.Errorf("there are two")
	}
	operation := schema{
		"operationId": method + strings.NewReplacer("/", "_", "{", "", "}", "").Replace(path), "tags": []string{e.About.Section},
		"summary": e.About.Answers, "description": "Who may: " + e.Who + ".",
	}
	parameters, err := b.parameters(e, names)
	if err != nil {
		return err
	}
	if parameters != nil {
		operation["parameters"] = parameters
	}
	if e.About.Body != nil {
		body, err := b.types.of(e.About.Body)
		if err != nil {
			return err
		}
		operation["requestBody"] = schema{"required": true, "content": schema{"application/json": schema{"schema": body}}}
	}
	if operation["responses"], err = b.answers(e); err != nil {
		return err
	}
	item[method] = operation
	return nil
}

// plainPath returns a pattern of net/http's ServeMux as a path of OpenAPI, and the names of
// its parameters.
func plainPath(pattern string) (path string, names []string) {
	segments := strings.Split(pattern, "/")
	for i, segment := range segments {
		if strings.HasPrefix(segment, "{") {
			if segment == "{$}" { // the path ends here
				segments[i] = ""
				continue
			}
			name := strings.TrimSuffix(strings.Trim(segment, "{}"), "...")
			names = append(names, name)
			segments[i] = "{" + name + "}"
		}
	}
	return strings.Join(segments, "/"), names
}

// parameters describes those of the path, of the query, and the headers of writes.
func (b *builder) parameters(e Endpoint, path []string) (all []schema, err error) {
	for _, name := range path {
		p, ok := pathParameters[name]
		if !ok {
			return nil, fmt.Errorf("parameter {%s} of the path is not described", name)
		}
		all = append(all, schema{"name": name, "in": "path", "required": true, "description": p.text, "schema": p.schema})
	}
	query := slices.Clone(e.About.Query)
	if e.Method == http.MethodGet && query != nil {
		query = append(query, rest.Freshness...)
	}
	for _, name := range query {
		p, ok := parameters[name]
		if kind, is := listed(e.About.Answer); !ok && is {
			p, ok = b.types.filter(kind, name)
		}
		if !ok {
			return nil, fmt.Errorf("parameter %s is not described", name)
		}
		all = append(all, schema{"name": name, "in": "query", "description": p.text, "schema": p.schema})
	}
	if slices.Contains(query, "wait") {
		all = append(all, schema{"name": rest.HeaderChangeID, "in": "header", "description": "the id of the change, a UUID of version 7: what is asked again with the same id is done once", "schema": schema{"type": "string", "format": "uuid"}})
	}
	return all, nil
}

// listed returns the kind of a list of objects.
func listed(answer any) (log.Kind, bool) {
	l, is := answer.(List)
	return log.Kind(l), is
}

// answers describes the success and the errors.
func (b *builder) answers(e Endpoint) (schema, error) {
	status := e.About.Status
	if status == 0 {
		status = http.StatusOK
	}
	done := schema{"description": http.StatusText(status)}
	media := e.About.Media
	if media == "" && e.About.Answer != nil {
		media = "application/json"
	}
	if media != "" {
		form := schema{"type": "string"}
		if e.About.Answer != nil {
			var err error
			if form, err = b.types.of(e.About.Answer); err != nil {
				return nil, err
			}
		}
		done["content"] = schema{media: schema{"schema": form}}
	}
	return schema{strconv.Itoa(status): done, "default": schema{"$ref": "#/components/responses/error"}}, nil
}

// errorAnswer is the form of every error (package rest).
func errorAnswer() schema {
	word := schema{"type": "string"}
	field := schema{"type": "object", "required": []string{"field", "code", "message"}, "properties": schema{"field": word, "code": word, "message": word, "remedy": word}}
	return schema{"description": "why not, and what to do", "content": schema{"application/json": schema{"schema": schema{
		"type": "object", "required": []string{"code", "message"},
		"properties": schema{"code": word, "message": word, "remedy": word, "errors": schema{"type": "array", "items": field}},
	}}}}
}
