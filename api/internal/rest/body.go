package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"rutter/log"
)

// ReadBody reads a JSON body. The caller must bound its length before
// (http.MaxBytesReader); the error wraps that of the bound.
func ReadBody(r *http.Request) ([]byte, error) {
	if text := r.Header.Get("Content-Type"); text != "" {
		media, _, err := mime.ParseMediaType(text)
		if err != nil || media != "application/json" && !strings.HasSuffix(media, "+json") {
			return nil, Fail(http.StatusUnsupportedMediaType, CodeContentType, "send JSON with the header Content-Type: application/json", "content type %q is not JSON", text)
		}
	}
	body, err := io.ReadAll(r.Body)
	if err == nil && tooDeep(body) {
		return nil, BadParameter("body", log.ElementInvalid, "send an object as GET answers it", "the body is nested deeper than %d", maxJSONDepth)
	}
	var tooLarge *http.MaxBytesError
	if err != nil && !errors.As(err, &tooLarge) {
		return nil, Fail(http.StatusBadRequest, CodeBadRequest, "send it again", "the body could not be read: %v", err)
	}
	return body, err
}

// DecodeStrict decodes JSON into v, and refuses a field that v does not have. It
// ignores what follows the value.
func DecodeStrict(body []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// maxJSONDepth bounds the nesting of a body: Rutter's objects have 3 levels.
const maxJSONDepth = 32

// tooDeep reports whether JSON is nested deeper than maxJSONDepth, without parsing it.
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
			if depth++; depth > maxJSONDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
