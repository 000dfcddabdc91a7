package changefeed

import (
	"encoding/json"
	"fmt"
	"strings"

	"rutter/api/internal/rest"
	"rutter/log"
)

// Version is that of a listener's protocol: v1 asks for one resource, v2 for several.
type Version int

// The versions (spec/changefeed.md section 1.1).
const (
	V1 Version = 1
	V2 Version = 2
)

// Bounds of a registration.
const (
	maxRegistration = 64 << 10 // bytes
	maxInstance     = 256      // bytes of instance and of service
	maxInterests    = 32       // resources of one listener
	maxWanted       = 256      // subresources of one resource
	maxReason       = 123      // bytes of a close's reason (RFC 6455 section 5.5)
)

// registration is the first text of a listener.
type registration struct {
	Version  Version
	Instance string
	Service  string
	wants    []interest
	// withCursor: the listener wants the cursor with each item, and bookmarks.
	withCursor bool
	// from is where to continue; zero: at the head.
	from log.Cursor
}

// reject is why a registration is refused. Its text is the reason of the close, as
// sdc-changefeed's publisher gives it.
type reject struct{ reason string }

func (r *reject) Error() string { return r.reason }

func rejectf(format string, args ...any) *reject {
	reason := fmt.Sprintf(format, args...)
	for len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	return &reject{reason}
}

// parseRegistration reads a registration; the error is a *reject.
func parseRegistration(version Version, data []byte) (*registration, error) {
	var fields map[string]json.RawMessage
	if rest.Shallow(data) != nil {
		return nil, rejectf("the registration is nested deeper than %d", rest.MaxJSONDepth)
	}
	if !json.Valid(data) {
		return nil, rejectf("unparseable payload: send one JSON object")
	}
	if err := json.Unmarshal(data, &fields); err != nil || fields == nil {
		return nil, rejectf("registration is not an object")
	}
	r := &registration{Version: version}
	ok := false
	if r.Instance, ok = text(fields["instance"]); !ok {
		return nil, rejectf("registration has no instance: send a string")
	}
	if len(r.Instance) > maxInstance {
		return nil, rejectf("instance is over %d bytes", maxInstance)
	}
	if r.Service, _ = text(fields["service"]); len(r.Service) > maxInstance {
		return nil, rejectf("service is over %d bytes", maxInstance)
	}
	var err error
	if version == V1 {
		r.wants, err = parseOne(fields["changeKind"])
	} else {
		r.wants, err = parseSeveral(fields["resources"])
	}
	if err != nil {
		return nil, err
	}
	return r, r.readCursor(fields["cursor"])
}

// readCursor reads the extra field cursor: "" asks for cursors, a cursor also asks to
// continue there.
func (r *registration) readCursor(field json.RawMessage) error {
	if field == nil {
		return nil
	}
	cursor, ok := text(field)
	if !ok {
		return rejectf("cursor is not a string: send the newest that you got, or \"\"")
	}
	r.withCursor = true
	if cursor == "" {
		return nil
	}
	from, err := log.ParseCursor(cursor)
	if err != nil {
		return rejectf("cursor is none of ours: send the newest that you got, or \"\"")
	}
	r.from = from
	return nil
}

// parseOne reads the changeKind of v1.
func parseOne(field json.RawMessage) ([]interest, error) {
	if field == nil {
		return nil, rejectf("registration has no changeKind")
	}
	n, err := parseInterest("changeKind", field)
	if err != nil {
		return nil, err
	}
	return []interest{n}, nil
}

// parseSeveral reads the resources of v2.
func parseSeveral(field json.RawMessage) ([]interest, error) {
	var elements []json.RawMessage
	if err := json.Unmarshal(field, &elements); err != nil || elements == nil {
		return nil, rejectf("resources is not an array")
	}
	if len(elements) == 0 {
		return nil, rejectf("no resources specified")
	}
	if len(elements) > maxInterests {
		return nil, rejectf("over %d resources", maxInterests)
	}
	var all []interest
	for _, element := range elements {
		n, err := parseInterest("resources element", element)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// parseInterest reads {resource, subResources}.
func parseInterest(what string, data json.RawMessage) (interest, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil || fields == nil {
		return interest{}, rejectf("%s is not an object", what)
	}
	resource, ok := text(fields["resource"])
	if !ok || resource == "" {
		return interest{}, rejectf("%s has no resource: send a string", what)
	}
	var subs []json.RawMessage
	if err := json.Unmarshal(fields["subResources"], &subs); err != nil || subs == nil {
		return interest{}, rejectf("%s has no subResources: send an array", what)
	}
	if len(subs) > maxWanted {
		return interest{}, rejectf("%s has over %d subResources", what, maxWanted)
	}
	if resourceOf(resource) == nil {
		return interest{}, rejectf("unknown resource: %.60s", resource)
	}
	n := interest{Resource: resource, SubResources: []string{}}
	for _, sub := range subs {
		// A field that does not exist never changes. It is not an error: it may be of
		// another version.
		if name, ok := text(sub); ok {
			n.SubResources = append(n.SubResources, name)
		}
	}
	return n, nil
}

// text reads a JSON string.
func text(field json.RawMessage) (s string, ok bool) {
	if len(field) == 0 || field[0] != '"' {
		return "", false
	}
	return s, json.Unmarshal(field, &s) == nil
}

// replaces reports whether two registrations are of one instance and have a resource in
// common: then the later one replaces the earlier one.
func (r *registration) replaces(with *registration) bool {
	if r.Instance != with.Instance || r.Instance == "" {
		return false
	}
	for _, a := range r.wants {
		for _, b := range with.wants {
			if a.Resource == b.Resource {
				return true
			}
		}
	}
	return false
}

// bootstrap is a resource in the reply of v2. A listener passes each to its program
// separately, so each has the seq.
type bootstrap struct {
	*Resource
	Seq log.Seq `json:"seq"`
}

// reply is the first text to a listener: the resources that it asked for, whole. Later
// texts never have the keys bootstrapRoute and bootstrapRoutes, which a listener
// accepts only here.
type reply struct {
	*Resource                   // v1
	BootstrapRoutes []bootstrap `json:"bootstrapRoutes,omitempty"` // v2
	// Seq is the position after which items follow.
	Seq log.Seq `json:"seq"`
	// The fields below are for listeners that asked for cursors.
	Cursor *log.Cursor `json:"cursor,omitempty"`
	// Resumed: the next items continue at the listener's cursor, and its objects need
	// not be read again.
	Resumed *bool `json:"resumed,omitempty"`
	// Reason says why the feed was not resumed, although the listener asked.
	Reason string `json:"reason,omitempty"`
}

// reply returns a listener's first text, with the position at which it begins.
func (r *registration) reply(at log.Cursor, resumed bool, reason string) ([]byte, error) {
	m := reply{Seq: at.Seq}
	for _, n := range r.wants {
		resource := resourceOf(n.Resource)
		if r.Version == V1 {
			m.Resource = resource
			continue
		}
		m.BootstrapRoutes = append(m.BootstrapRoutes, bootstrap{resource, at.Seq})
	}
	if r.withCursor {
		m.Cursor, m.Resumed, m.Reason = &at, &resumed, reason
	}
	return json.Marshal(&m)
}
