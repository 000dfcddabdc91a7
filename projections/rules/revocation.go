package rules

import (
	"fmt"
	"strings"

	"rutter/log"
	"rutter/projections"
)

var revocationRules = hooks[*log.Revocation]{
	fill:   fillRevocation,
	settle: settleRevocation,
	check: func(d *draft, before, r *log.Revocation, op *log.Op) {
		if checkRevocation(d, before, r); before != nil {
			checkRevocationUpdate(d, before, r)
		}
		if d.confined() && !d.refused() {
			checkOperatorLeft(d, r, op)
		}
	},
	remove: removeRevocation,
	follow: voidTokens,
}

// namedSubjects are those of an identity, which has certificates of before and after.
var namedSubjects = []string{"cn", "server", "operator", "reader"}

func fillRevocation(d *draft, r *log.Revocation, _ *log.Op) {
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

func checkRevocation(d *draft, before, r *log.Revocation) {
	sort, rest, _ := strings.Cut(r.Subject, ":")
	ok := len(r.Subject) <= projections.MaxNameBytes+16 && rest != ""
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
	if len(r.Reason) > projections.MaxTextBytes || len(r.Identity) > projections.MaxNameBytes+16 {
		d.bad("reason", "too long", fmt.Sprintf("use at most %d bytes", projections.MaxTextBytes))
	}
	if r.Until != 0 && r.Until <= d.time {
		d.bad("until", "it has passed: the certificates have ended by themselves", "leave it out, or send a later time")
	}
	if r.IssuedBefore > d.time && (before == nil || !d.confined() || !r.ByOrder) {
		d.bad("issued_before", "it lies ahead", "leave it out: certificates that were issued until now are meant")
	}
}

// checkRevocationUpdate: a revocation takes in more as time goes by, never less.
func checkRevocationUpdate(d *draft, before, r *log.Revocation) {
	if r.IssuedBefore < before.IssuedBefore {
		d.bad("issued_before", "a revocation cannot be taken back", "leave it out: certificates that are issued from now on are good")
	}
	if before.Until == 0 && r.Until != 0 || r.Until != 0 && r.Until < before.Until {
		d.bad("until", "a revocation cannot be shortened", "leave it out")
	}
}

// removeRevocation: as long as a certificate that it is about may be valid, it stays.
func removeRevocation(d *draft, r *log.Revocation) {
	until := r.Until
	if until != 0 && d.confined() {
		until += log.RenewalGrace // so long after its end a certificate may be renewed
	}
	if until == 0 || d.time < until {
		d.refuse(log.CodeInUse, "a revocation stays until the certificates have ended", log.FieldError{
			Field: "subject", Code: log.ElementInvalid, Message: "the certificates that it is about may be valid still",
			Remedy: "issue another certificate: one of after the revocation is good",
		})
	}
}
