package rest

import (
	"net/http"
	"strings"

	"rutter/log"
)

// HasTag reports whether a list of tags in If-Match or If-None-Match contains tag or is
// *. Old clients leave out the quotes.
func HasTag(list, tag string) bool {
	return hasTag(list, func(text string) bool { return text == tag || `"`+text+`"` == tag })
}

// HasBareTag is HasTag as restify compares: without quotes, and strong and weak alike.
func HasBareTag(list, tag string) bool {
	bare := BareTag(tag)
	return hasTag(list, func(text string) bool { text = BareTag(text); return text == bare || text == "*" })
}

func hasTag(list string, same func(text string) bool) bool {
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "*" || same(text) {
			return true
		}
	}
	return false
}

// BareTag removes the quotes and the weak mark of a tag, which old clients never send.
func BareTag(tag string) string { return strings.ReplaceAll(strings.TrimPrefix(tag, "W/"), `"`, "") }

// NotModified answers 304 and returns true if the request is a read whose If-None-Match
// has the tag by same, which is HasTag or HasBareTag.
func NotModified(w http.ResponseWriter, r *http.Request, tag string, same func(list, tag string) bool) bool {
	if !IsRead(r) || !same(r.Header.Get("If-None-Match"), tag) {
		return false
	}
	w.WriteHeader(http.StatusNotModified)
	return true
}

// IfMatch reads the conditions of a write on its object; zeros mean any.
func IfMatch(r *http.Request) (op log.Op, err error) {
	if text := r.Header.Get("If-None-Match"); text != "" {
		return op, Fail(http.StatusBadRequest, CodeBadRequest, "leave it out; a create fails if the object exists", "if-none-match is for reads only")
	}
	text := strings.TrimSpace(r.Header.Get("If-Match"))
	if text == "" || text == "*" {
		return op, nil
	}
	if op.IfMatch, op.IfSeq, err = log.ParseETag(text); err != nil {
		return op, Fail(http.StatusPreconditionFailed, log.CodePreconditionFailed, "send the Etag of an earlier answer as it was", "if-match '%s' is no etag of ours", text)
	}
	return op, nil
}
