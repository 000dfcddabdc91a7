package rules

import (
	"fmt"

	"rutter/log"
)

// maxTokenLife is in ns: a token is for the machine that is being set up now.
const maxTokenLife = 7 * 24 * 3600 * second

var tokenRules = hooks[*log.Token]{
	fill: func(d *draft, t *log.Token, _ *log.Op) { t.Created = d.time },
	check: func(d *draft, before, t *log.Token, _ *log.Op) {
		if before == nil {
			checkToken(d, t)
			return
		}
		checkTokenUpdate(d, before, t)
	},
}

func checkToken(d *draft, t *log.Token) {
	if !isKeyID(t.Hash) {
		d.bad("hash", "is not a SHA-256 in hexadecimal", "send the hash of the secret, never the secret")
	}
	if t.CN.IsZero() {
		d.missing("cn_uuid", "send the UUID of the compute node")
	}
	if t.Expires <= d.time || t.Expires-d.time > maxTokenLife {
		d.bad("expires", "a token lives for some time, at most 7 days", "send a time soon after now, as in 10 minutes")
	}
	if t.UsedBy != "" || t.Used != 0 || d.confined() && t.Voided != 0 {
		d.bad("used_by", "a new token was not used", "leave it out")
	}
}

// checkTokenUpdate lets one key redeem the token, once: of two servers that are
// asked at the same time, the log takes the first.
func checkTokenUpdate(d *draft, before, t *log.Token) {
	switch {
	case d.confined() && before.Voided != 0:
		d.refuse(log.CodeNotAuthorized, "the token was made useless by a revocation", log.FieldError{
			Field: "used_by", Code: log.ElementInvalid, Message: fmt.Sprintf("at %s", before.Voided), Remedy: "make another with rutter token create",
		})
	case before.UsedBy != "":
		d.refuse(log.CodeNotAuthorized, "the token was used already", log.FieldError{
			Field: "used_by", Code: log.ElementInvalid, Message: fmt.Sprintf("used at %s", before.Used),
			Remedy: "make another with rutter token create; if nobody of yours used it, revoke the compute node's certificates",
		})
	case d.time >= before.Expires:
		d.refuse(log.CodeNotAuthorized, "the token has expired", log.FieldError{
			Field: "expires", Code: log.ElementInvalid, Message: fmt.Sprintf("it did at %s", before.Expires), Remedy: "make another with rutter token create",
		})
	case !isKeyID(t.UsedBy):
		d.bad("used_by", "is not the SHA-256 of a public key, in hexadecimal", "let rutter agent join do it")
	}
	t.Used = d.time
}
