package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"rutter/api/auth/webcheck"
	"rutter/log"
)

// body is the body of a write, which was read before its endpoint runs.
type body struct {
	*bytes.Reader // what the endpoint has not read yet
	all           []byte
	err           error // after all; nil: io.EOF
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) && b.err != nil {
		err = b.err
	}
	return n, err
}

// Close implements io.Closer.
func (*body) Close() error { return nil }

// bodied reads the body of a write before its endpoint runs, and refuses one of another
// type than the table's clients send, or nested too deep. Its length must be bounded
// before. The endpoint gets the error of reading it.
func (t *Table) bodied(serve Endpoint) Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		if r.ContentLength == 0 || IsRead(r) {
			return serve(w, r)
		}
		if r.ContentLength > 0 {
			if refusal := webcheck.Body(r, t.Clients); refusal != nil {
				return OfRefusal(refusal)
			}
		}
		all, err := io.ReadAll(r.Body)
		if r.ContentLength < 0 && len(all) > 0 {
			if refusal := webcheck.Body(r, t.Clients); refusal != nil {
				return OfRefusal(refusal)
			}
		}
		if err == nil {
			if deep := Shallow(all); deep != nil {
				return deep
			}
		}
		r.Body = &body{bytes.NewReader(all), all, err}
		return serve(w, r)
	}
}

// OfRefusal returns the answer to a request that webcheck refused.
func OfRefusal(r *webcheck.Refusal) *Error { return Fail(r.Status, r.Code, r.Remedy, "%s", r.Message) }

// ReadBody returns the body of a write. The error wraps that of the bound of its length.
func ReadBody(r *http.Request) ([]byte, error) {
	var all []byte
	var err error
	if read, ok := r.Body.(*body); ok {
		all, err = read.all, read.err
	} else {
		all, err = io.ReadAll(r.Body)
	}
	var tooLarge *http.MaxBytesError
	if err != nil && !errors.As(err, &tooLarge) {
		return nil, Fail(http.StatusBadRequest, CodeBadRequest, "send it again", "the body could not be read: %v", err)
	}
	return all, err
}

// DecodeStrict decodes JSON into v, and refuses a field that v does not have. It
// ignores what follows the value.
func DecodeStrict(body []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// MaxJSONDepth bounds the nesting of a body: Rutter's objects have 3 levels.
const MaxJSONDepth = 32

// Shallow returns the answer to JSON that is nested deeper than MaxJSONDepth, or nil.
// It does not parse the JSON.
func Shallow(text []byte) error {
	if tooDeep(text) {
		return BadParameter("body", log.ElementInvalid, "send an object as GET answers it", "the body is nested deeper than %d", MaxJSONDepth)
	}
	return nil
}

// tooDeep reports whether JSON is nested deeper than MaxJSONDepth, without parsing it.
func tooDeep(body []byte) bool {
	depth, text, escaped := 0, false, false
	for _, c := range body {
		switch {
		case escaped:
			escaped = false
		case text && c == '\\':
			escaped = true
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			if depth++; depth > MaxJSONDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
