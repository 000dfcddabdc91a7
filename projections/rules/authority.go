package rules

import (
	"fmt"
	"strings"

	"rutter/log"
)

// Bounds of what the log keeps of trust.
const (
	maxAuthorities = 4       // certificates of authorities of one name: a rotation needs two
	maxAuthority   = 8 << 10 // bytes of one of them, in base64
	idHexBytes     = 64      // of a SHA-256
	maxSerial      = 40      // hexadecimal digits: 20 bytes (RFC 5280, section 4.1.2.2)
)

var authorityRules = hooks[*log.Authority]{
	fill: func(_ *draft, a *log.Authority, _ *log.Op) { a.Generation = 1 },
	check: func(d *draft, before, a *log.Authority, op *log.Op) {
		if before != nil {
			a.Generation = before.Generation + 1
		}
		checkAuthority(d, a)
		if !d.refused() {
			checkLastWay(d, before, a, op)
		}
	},
	remove: func(d *draft, _ *log.Authority) {
		d.refuse(log.CodeInUse, "an authority stays: without it nobody would be let in; update its certificates")
	},
}

// isHex accepts what hexadecimal digits in lower case make, up to most of them.
func isHex(text string, most int) bool {
	return text != "" && len(text) <= most && strings.Trim(text, "0123456789abcdef") == ""
}

func isKeyID(text string) bool { return len(text) == idHexBytes && isHex(text, idHexBytes) }

func checkAuthority(d *draft, a *log.Authority) {
	if a.Name != "clients" && a.Name != "peers" {
		d.bad("name", fmt.Sprintf("there is no authority \"%s\"", d.show(a.Name)), "send clients or peers")
	}
	if !isKeyID(a.Issuing) {
		d.bad("issuing", "is not the SHA-256 of a public key, in hexadecimal", "let rutter cert do it")
	}
	if len(a.Certificates) == 0 || len(a.Certificates) > maxAuthorities {
		d.bad("certificates", fmt.Sprintf("there must be 1 to %d, not %d", maxAuthorities, len(a.Certificates)), "take out those that are not used any more")
	}
	for _, c := range a.Certificates {
		if c == "" || len(c) > maxAuthority {
			d.bad("certificates", fmt.Sprintf("one has %d bytes", len(c)), fmt.Sprintf("send base64 of DER, at most %d bytes of it", maxAuthority))
		}
	}
}
