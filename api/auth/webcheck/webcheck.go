package webcheck

import (
	"fmt"
	"mime"
	"net/http"
	"strings"
)

// Codes of refusals.
const (
	CodePath        = "BadPath"              // 400
	CodeOrigin      = "CrossOrigin"          // 403
	CodeReadOnly    = "BrowserReadOnly"      // 403
	CodeHost        = "MisdirectedRequest"   // 421
	CodeContentType = "UnsupportedMediaType" // 415
)

// Refusal is why a request is not routed, with its status. It is an error.
type Refusal struct {
	Status                int
	Code, Message, Remedy string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Code + ": " + r.Message }

func refuse(status int, code, remedy, format string, args ...any) *Refusal {
	return &Refusal{status, code, fmt.Sprintf(format, args...), remedy}
}

// Request checks path, origin and host of a request, in this order. hosts may be nil:
// then the host is not checked.
func Request(r *http.Request, hosts *Hosts) *Refusal {
	if refusal := Path(r); refusal != nil {
		return refusal
	}
	if hosts != nil {
		if refusal := hosts.Check(r); refusal != nil {
			return refusal
		}
	}
	return Origin(r)
}

// Path refuses a path that two programs could read differently: with an empty segment,
// a dot segment, a backslash, a control character, or an escaped separator. One slash at
// the end is allowed.
func Path(r *http.Request) *Refusal {
	const remedy = "send the path with single slashes, without . and .. as segments, and without escaped slashes"
	path := r.URL.Path
	if !strings.HasPrefix(path, "/") {
		return refuse(http.StatusBadRequest, CodePath, remedy, "the path %q does not begin with a slash", path)
	}
	begin := 1 // of the segment
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			if c := path[i]; c == '\\' || c < ' ' || c == 0x7f {
				return refuse(http.StatusBadRequest, CodePath, remedy, "the path %q has the character %q", path, c)
			}
			continue
		}
		switch segment := path[begin:i]; {
		case segment == "" && i < len(path):
			return refuse(http.StatusBadRequest, CodePath, remedy, "the path %q has an empty segment", path)
		case segment == ".", segment == "..":
			return refuse(http.StatusBadRequest, CodePath, remedy, "the path %q has the segment %q", path, segment)
		}
		begin = i + 1
	}
	// An escaped slash is a plain one in URL.Path. Only RawPath shows it; net/http sets
	// RawPath if the path as sent is not the usual encoding of URL.Path.
	if raw := r.URL.RawPath; raw != "" && strings.Contains(strings.ToLower(raw), "%2f") {
		return refuse(http.StatusBadRequest, CodePath, remedy, "the path %q has an escaped slash", raw)
	}
	return nil
}

// Browser reports whether a browser made the request: it has a header that browsers add
// and that pages can neither set nor remove. Browsers send Sec-Fetch-Site to https and
// to loopback, and Origin with what may change something.
func Browser(r *http.Request) bool {
	return r.Header["Sec-Fetch-Site"] != nil || r.Header["Origin"] != nil || r.Header["Sec-Fetch-Mode"] != nil || r.Header["Sec-Fetch-Dest"] != nil
}

// protection is the standard library's rule.
var protection = http.NewCrossOriginProtection()

// pages is the path below which pages for people are. Links of other sites may lead
// there.
const pages = "/console"

// Origin refuses a browser's request that a page of another origin caused, whatever its
// method, and a browser's request that is not a read. A link to a page for people is
// allowed.
func Origin(r *http.Request) *Refusal {
	if !Browser(r) {
		return nil
	}
	// The rule does not look at reads. Here it does: an answer may be read by a page in
	// more ways than by the rules of CORS.
	asked := &http.Request{Method: http.MethodPost, Header: r.Header, Host: r.Host, URL: r.URL}
	if err := protection.Check(asked); err != nil && !link(r) {
		return refuse(http.StatusForbidden, CodeOrigin, "open "+pages+"/ of this server, or use rutter or curl", "a page of another site caused this request: %v", err)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return ReadOnly()
	}
	return nil
}

// ReadOnly is the refusal of a write by a browser.
func ReadOnly() *Refusal {
	return refuse(http.StatusForbidden, CodeReadOnly, "write with rutter or curl", "a browser may only read here")
}

// link reports whether the request opens a page for people in a window of its own.
func link(r *http.Request) bool {
	path, h := r.URL.Path, r.Header
	return r.Method == http.MethodGet && (path == pages || strings.HasPrefix(path, pages+"/")) &&
		h["Origin"] == nil && h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document"
}

// Kind is what clients a surface has.
type Kind bool

// The kinds of surfaces.
const (
	Ours   Kind = false // a body must be JSON by its Content-Type
	Triton Kind = true  // a body may have no type, or any that a page cannot send by itself
)

// Body refuses the body of a write by its media type. A request without a body passes.
func Body(r *http.Request, kind Kind) *Refusal {
	if r.ContentLength == 0 || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	text := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(text)
	switch {
	case err == nil && (media == "application/json" || strings.HasSuffix(media, "+json")):
		return nil
	case kind == Triton && (text == "" || err == nil && !simple(media)):
		return nil
	case text == "":
		return refuse(http.StatusUnsupportedMediaType, CodeContentType, remedyType, "the body has no content type: it must be application/json")
	}
	return refuse(http.StatusUnsupportedMediaType, CodeContentType, remedyType, "content type %q is not application/json", text)
}

const remedyType = "send JSON with the header Content-Type: application/json"

// simple reports whether a page of any site can send a body of that type without the
// browser asking the server first (the Fetch standard, CORS-safelisted).
func simple(media string) bool {
	return media == "text/plain" || media == "application/x-www-form-urlencoded" || media == "multipart/form-data"
}
