package support

import (
	"bytes"
	"regexp"
)

// gone stands where a secret was.
const gone = "(removed)"

// Patterns of what is secret, in the texts of any program.
var (
	// privateKeys are PEM blocks, also in one line of a log, with \n in place of newlines.
	privateKeys = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`)
	// tokens are those of package pki: ID.SECRET. The id may be shown.
	tokens = regexp.MustCompile(`([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})\.[A-Za-z0-9_-]{43}`)
	// userinfo is the name and the password in a URL.
	userinfo = regexp.MustCompile(`(://)[^\s/@"'?#]+@`)
	// named are values of things with a telling name: passphrase=…, "password":"…",
	// Authorization: Bearer ….
	named = regexp.MustCompile(`(?i)([a-z0-9_-]*(?:passphrase|password|passwd|secret|token|api[-_]?key|authorization|private[-_]?key))(\\*["']?\s*[:=]\s*)((?:bearer|basic)\s+)?(\\*"[^"\n]*"|\\*'[^'\n]*'|[^\s"'\\,;&})]+)`)
	// metadata begins the metadata of a VM, whose values are its owner's.
	metadata = regexp.MustCompile(`(?:customer|internal)_metadata(?:\\*["'])?\s*[:=]\s*`)
)

// Scrub returns text without what is secret: private keys, tokens, passwords in URLs, the
// values of things that are named as secrets are, VMs' metadata, and the given secrets
// wherever they stand. n is how many places were changed. text itself is not changed.
func Scrub(text []byte, secrets ...string) (clean []byte, n int) {
	replace := func(re *regexp.Regexp, with string) {
		if found := len(re.FindAllIndex(text, -1)); found > 0 {
			text, n = re.ReplaceAll(text, []byte(with)), n+found
		}
	}
	for _, secret := range secrets {
		if found := bytes.Count(text, []byte(secret)); secret != "" && found > 0 {
			text, n = bytes.ReplaceAll(text, []byte(secret), []byte(gone)), n+found
		}
	}
	replace(privateKeys, gone)
	replace(tokens, "${1}."+gone)
	replace(userinfo, "${1}"+gone+"@")
	text, found := scrubMetadata(text)
	n += found
	replace(named, "${1}${2}"+gone)
	return text, n
}

// goMap begins a map as Go prints it.
var goMap = []byte("map[")

// scrubMetadata takes out the values behind the names of metadata: a JSON object to its
// end, or a word.
func scrubMetadata(text []byte) (clean []byte, n int) {
	for {
		at := metadata.FindIndex(text)
		if at == nil {
			return append(clean, text...), n
		}
		clean = append(append(clean, text[:at[1]]...), gone...)
		text, n = text[at[1]+valueLength(text[at[1]:]):], n+1
	}
}

// valueLength is the length of the value at the beginning of text. An object whose end is
// not there takes the rest of the text: too much is removed rather than too little. The
// values in a map that Go printed are not quoted, so it takes the rest of its line.
func valueLength(text []byte) int {
	if bytes.HasPrefix(bytes.TrimPrefix(text, []byte("&")), goMap) {
		if end := bytes.IndexByte(text, '\n'); end >= 0 {
			return end
		}
		return len(text)
	}
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		if end := bytes.IndexAny(text, " \t\n,}"); end >= 0 {
			return end
		}
		return len(text)
	}
	if len(text) > 1 && text[1] == '\\' { // quoted once more, in a line of a log
		if end := bytes.IndexByte(text, '\n'); end >= 0 {
			return end
		}
		return len(text)
	}
	depth := 0
	quoted, escaped := false, false
	for i, c := range text {
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}
