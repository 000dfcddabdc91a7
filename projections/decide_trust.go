package projections

import (
	"fmt"
	"strings"

	"rutter/log"
)

// Bounds of what the log keeps of trust.
const (
	maxAuthorities = 4                             // certificates of authorities of one name: a rotation needs two
	maxAuthority   = 8 << 10                       // bytes of one of them, in base64
	maxTokenLife   = 7 * 24 * 3600 * 1_000_000_000 // ns: a token is for the machine that is being set up now
	idHexBytes     = 64                            // of a SHA-256
	maxSerial      = 40                            // hexadecimal digits: 20 bytes (RFC 5280, section 4.1.2.2)
)

// isHex accepts what hexadecimal digits in lower case make, up to most of them.
func isHex(text string, most int) bool {
	return text != "" && len(text) <= most && strings.Trim(text, "0123456789abcdef") == ""
}

func isKeyID(text string) bool { return len(text) == idHexBytes && isHex(text, idHexBytes) }

func (d *draft) checkAuthority(a *log.Authority) {
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

func (d *draft) fillToken(t *log.Token) {
	d.fillUUID(&t.UUID)
	t.Created = d.time
}

func (d *draft) checkToken(t *log.Token) {
	if !isKeyID(t.Hash) {
		d.bad("hash", "is not a SHA-256 in hexadecimal", "send the hash of the secret, never the secret")
	}
	if t.CN.IsZero() {
		d.missing("cn_uuid", "send the UUID of the compute node")
	}
	if t.Expires <= d.time || t.Expires-d.time > maxTokenLife {
		d.bad("expires", "a token lives for some time, at most 7 days", "send a time soon after now, as in 10 minutes")
	}
	if t.UsedBy != "" || t.Used != 0 {
		d.bad("used_by", "a new token was not used", "leave it out")
	}
}

// checkTokenUpdate lets one key redeem the token, once: of two servers that are
// asked at the same time, the log takes the first.
func (d *draft) checkTokenUpdate(before, t *log.Token) {
	switch {
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

// namedSubjects are those of an identity, which has certificates of before and after.
var namedSubjects = []string{"cn", "server", "operator", "reader"}

func (d *draft) fillRevocation(r *log.Revocation) {
	r.Created = d.time
	sort, _, _ := strings.Cut(r.Subject, ":")
	for _, named := range namedSubjects {
		if sort == named {
			r.Identity = r.Subject
			if r.IssuedBefore == 0 {
				r.IssuedBefore = d.time
			}
		}
	}
}

func (d *draft) checkRevocation(r *log.Revocation) {
	sort, rest, _ := strings.Cut(r.Subject, ":")
	ok := len(r.Subject) <= MaxNameBytes+16 && rest != ""
	switch sort {
	case "serial":
		ok = ok && isHex(rest, maxSerial) && rest[0] != '0'
	case "key":
		ok = ok && isKeyID(rest)
	case "cn":
		id, err := log.ParseUUID(rest)
		ok = ok && err == nil && id.String() == rest
	case "server", "operator", "reader":
	default:
		ok = false
	}
	if !ok {
		d.bad("subject", fmt.Sprintf("\"%s\" names no certificates", d.show(r.Subject)), "send serial:HEX, key:HEX, cn:UUID, server:NAME, operator:NAME or reader:NAME")
	}
	if len(r.Reason) > MaxTextBytes || len(r.Identity) > MaxNameBytes+16 {
		d.bad("reason", "too long", fmt.Sprintf("use at most %d bytes", MaxTextBytes))
	}
	if r.Until != 0 && r.Until <= d.time {
		d.bad("until", "it has passed: the certificates have ended by themselves", "leave it out, or send a later time")
	}
	if r.IssuedBefore > d.time {
		d.bad("issued_before", "it lies ahead", "leave it out: certificates that were issued until now are meant")
	}
}

// checkRevocationUpdate: a revocation takes in more as time goes by, never less.
func (d *draft) checkRevocationUpdate(before, r *log.Revocation) {
	if r.IssuedBefore < before.IssuedBefore {
		d.bad("issued_before", "a revocation cannot be taken back", "leave it out: certificates that are issued from now on are good")
	}
	if before.Until == 0 && r.Until != 0 || r.Until != 0 && r.Until < before.Until {
		d.bad("until", "a revocation cannot be shortened", "leave it out")
	}
}

// deleteRevocation: as long as a certificate that it is about may be valid, it stays.
func (d *draft) deleteRevocation(r *log.Revocation) {
	if r.Until == 0 || d.time < r.Until {
		d.refuse(log.CodeInUse, "a revocation stays until the certificates have ended", log.FieldError{
			Field: "subject", Code: log.ElementInvalid, Message: "the certificates that it is about may be valid still",
			Remedy: "issue another certificate: one of after the revocation is good",
		})
	}
}

func (d *draft) checkCertificate(c *log.Certificate) {
	if !isHex(c.Serial, maxSerial) || c.Serial[0] == '0' {
		d.bad("serial", "is not a number in hexadecimal", fmt.Sprintf("send at most %d digits, none of them a leading zero", maxSerial))
	}
	if c.Identity == "" || len(c.Identity) > MaxNameBytes+16 {
		d.bad("identity", "is not one", "send cn:UUID, server:NAME, operator:NAME or reader:NAME")
	}
	if c.Authority != "clients" && c.Authority != "peers" {
		d.bad("authority", fmt.Sprintf("there is no authority \"%s\"", d.show(c.Authority)), "send clients or peers")
	}
	if !isKeyID(c.Issuer) || !isKeyID(c.Key) {
		d.bad("key", "key and issuer are SHA-256s of public keys, in hexadecimal", "let rutter cert do it")
	}
	if c.NotAfter <= c.NotBefore {
		d.bad("not_after", "it ends before it begins", "send what the certificate says")
	}
}

// fillTrust, checkTrust and checkTrustUpdate are the parts of create and update
// for the kinds of this file.
func (d *draft) fillTrust(o log.Object) {
	switch o := o.(type) {
	case *log.Authority:
		o.Generation = 1
	case *log.Token:
		d.fillToken(o)
	case *log.Revocation:
		d.fillRevocation(o)
	}
	d.checkTrust(o)
}

func (d *draft) checkTrust(o log.Object) {
	switch o := o.(type) {
	case *log.Authority:
		d.checkAuthority(o)
	case *log.Token:
		d.checkToken(o)
	case *log.Revocation:
		d.checkRevocation(o)
	case *log.Certificate:
		d.checkCertificate(o)
	case *log.Grant:
		d.checkGrant(o)
	}
}

func (d *draft) checkTrustUpdate(before, after log.Object) {
	switch o := after.(type) {
	case *log.Authority:
		o.Generation = before.(*log.Authority).Generation + 1
		d.checkAuthority(o)
	case *log.Token:
		d.checkTokenUpdate(before.(*log.Token), o)
	case *log.Revocation:
		d.checkRevocation(o)
		d.checkRevocationUpdate(before.(*log.Revocation), o)
	case *log.Grant:
		d.checkGrant(o)
	}
}

// forAll reports whether every CN must know the object: whom it trusts, and
// which servers it trusts no more.
func forAll(o log.Object) bool {
	switch o := o.(type) {
	case *log.NICTag, *log.Authority:
		return true
	case *log.Revocation:
		return strings.HasPrefix(o.Identity, "server:")
	}
	return false
}
