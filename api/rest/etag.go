package rest

import (
	"net/http"
	"strings"

	"rutter/log"
)

// HasTag reports whether a list of tags, as If-Match and If-None-Match have it,
// names tag or is *. Old clients leave out the quotes.
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

// BareTag takes the quotes off a tag, and that it is weak; old clients never send them.
func BareTag(tag string) string { return strings.ReplaceAll(strings.TrimPrefix(tag, "W/"), `"`, "") }

// NotModified answers 304 and reports true if the request is a read, and same, which
// is HasTag or HasBareTag, finds the tag in its If-None-Match.
func NotModified(w http.ResponseWriter, r *http.Request, tag string, same func(list, tag string) bool) bool {
	if !IsRead(r) || !same(r.Header.Get("If-None-Match"), tag) {
		return false
	}
	w.WriteHeader(http.StatusNotModified)
	return true
}

// IfMatch reads what a write asks its object to be, as conditions of an operation;
// zeros mean any.
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
