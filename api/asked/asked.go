// Package asked notes what a request asks for, where a server makes a change of it
// and of what there is: a retry of the request finds something else, and is the same
// change all the same.
package asked

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"rutter/log"
)

// Header names the change of a request: one that is sent again with it is done once.
const Header = "Rutter-Change-Id"

// ofWaiting are the parameters that say how long the answer may take, and nothing of
// what is asked for.
var ofWaiting = []string{"wait", "timeout", "sync"}

type key struct{}

// Note returns the request with its content noted, if it names its change; then its
// body was read, and can be read again. The body must be bounded. The error is that
// of reading it.
func Note(r *http.Request) (*http.Request, error) {
	if r.Header.Get(Header) == "" {
		return r, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return r, err
	}
	query := r.URL.Query()
	for _, name := range ofWaiting {
		query.Del(name)
	}
	content := log.RequestContent(r.Method, r.URL.Path, query.Encode(), body)
	r = r.WithContext(context.WithValue(r.Context(), key{}, content))
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r, nil
}

// Of returns the content of a request that names its change; else it is zero, and
// the change's operations say what it asks for.
func Of(r *http.Request) log.Content {
	if r.Header.Get(Header) == "" {
		return log.Content{}
	}
	content, _ := r.Context().Value(key{}).(log.Content)
	return content
}
