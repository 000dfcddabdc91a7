package rules

import (
	"fmt"
	"slices"
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
			checkServersLeft(d, r, op)
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
	if r.Identity == "" && d.confined() {
		r.Identity = holderOf(d, r)
	}
}

// holderOf returns whose recorded certificates a revocation covers, "" if there are none.
// Compute nodes receive revocations of servers only if this is known.
func holderOf(d *draft, r *log.Revocation) string {
	for o := range d.Objects(projections.All(log.KindCertificate)) {
		if c := o.(*log.Certificate); hits(r, c) {
			return c.Identity
		}
	}
	return ""
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

// From log.FeatureConfined on, revocations are decided by their place in the log. No clock
// of a machine takes part: what stands before a revocation is covered by it, what was
// granted or recorded by an operator after it is good.

// maxGood bounds the certificates of an identity that may be good after a revocation of
// it: a compute node that renews each 3.5 days, and keeps none for longer than
// log.RenewalGrace, has 27.
const maxGood = 64

// settleRevocation makes each change of a revocation of an identity a new revocation: it
// covers what was granted since the one before, too.
func settleRevocation(d *draft, before, r *log.Revocation, _ *log.Op) {
	if !d.confined() {
		return
	}
	if before == nil {
		r.ByOrder, r.Good = isNamed(r.Subject), nil
		return
	}
	if !isNamed(r.Subject) {
		r.ByOrder, r.Good = before.ByOrder, before.Good
		return
	}
	r.ByOrder, r.Good = true, nil
	if r.IssuedBefore >= before.IssuedBefore { // else it is refused
		r.IssuedBefore = max(d.time, before.IssuedBefore+1)
	}
}

// isNamed reports whether a subject is an identity.
func isNamed(subject string) bool {
	sort, _, _ := strings.Cut(subject, ":")
	return slices.Contains(namedSubjects, sort)
}

// revocation returns the one of a subject, or nil.
func (d *draft) revocation(subject string) *log.Revocation {
	if r, ok := d.ByName(log.KindRevocation, subject); ok {
		return r.Object.(*log.Revocation)
	}
	return nil
}

// revoked returns the subject of the revocation that covers a certificate, "" if none
// does.
func (d *draft) revoked(c *log.Certificate) string {
	for _, subject := range []string{"serial:" + c.Serial, "key:" + c.Key} {
		if d.revocation(subject) != nil {
			return subject
		}
	}
	if r := d.revocation(c.Identity); r != nil && r.Covers(c.Serial, c.NotBefore) {
		return r.Subject
	}
	return ""
}

// hits reports whether a revocation that is made now covers a certificate.
func hits(r *log.Revocation, c *log.Certificate) bool {
	return r.Subject == "serial:"+c.Serial || r.Subject == "key:"+c.Key || r.Subject == c.Identity
}

// certificates yields the recorded ones of a set of authorities that have not ended for
// longer than a time, and are not revoked.
func (d *draft) certificates(authority string, ended log.Time) func(yield func(*log.Certificate) bool) {
	return func(yield func(*log.Certificate) bool) {
		for o := range d.Objects(projections.All(log.KindCertificate)) {
			c := o.(*log.Certificate)
			if c.Authority == authority && d.time < c.NotAfter+ended && d.revoked(c) == "" && !yield(c) {
				return
			}
		}
	}
}

const operatorPrefix = "operator:"

// checkOperatorLeft refuses a revocation after which the log knows of no operator. The
// author of the change is one, unless the revocation, or one before it in the log, is
// about that author.
func checkOperatorLeft(d *draft, r *log.Revocation, op *log.Op) {
	actor := d.change.Actor
	if !strings.HasPrefix(actor, operatorPrefix) || asks(op, log.OptionLockOut) || !aboutOperators(d, r) {
		return
	}
	known := false // certificates of the author
	for o := range d.Objects(projections.All(log.KindCertificate)) {
		c := o.(*log.Certificate)
		if c.Authority != "clients" || !strings.HasPrefix(c.Identity, operatorPrefix) {
			continue
		}
		known = known || c.Identity == actor
		if d.time < c.NotAfter && d.revoked(c) == "" && !hits(r, c) {
			return
		}
	}
	if !known && r.Subject != actor && r.Identity != actor && !isRevokedFor(d, actor) {
		return
	}
	d.refuse(log.CodeInUse, "the revocation would leave no operator", log.FieldError{
		Field: "subject", Code: log.ElementInvalid, Message: "no other certificate of an operator is recorded and good",
		Remedy: "issue one and record it first (rutter cert issue operator NAME -s URL), or say that no operator is meant to be left (--yes)",
	})
}

// isRevokedFor reports whether a revocation is about an identity: of all its certificates
// or of one.
func isRevokedFor(d *draft, identity string) bool {
	for o := range d.Objects(projections.All(log.KindRevocation)) {
		if r := o.(*log.Revocation); r.Subject == identity || r.Identity == identity {
			return true
		}
	}
	return false
}

// aboutOperators reports whether a revocation covers certificates of operators.
func aboutOperators(d *draft, r *log.Revocation) bool {
	if strings.HasPrefix(r.Subject, operatorPrefix) || strings.HasPrefix(r.Identity, operatorPrefix) {
		return true
	}
	for o := range d.Objects(projections.All(log.KindCertificate)) {
		if c := o.(*log.Certificate); strings.HasPrefix(c.Identity, operatorPrefix) && hits(r, c) {
			return true
		}
	}
	return false
}

// voidTokens makes the tokens useless by which what is revoked could come back: of a
// compute node all, of a certificate or a key those that it has used.
func voidTokens(d *draft, _, r *log.Revocation, _ *log.Op) {
	if !d.confined() || r == nil {
		return
	}
	cn, isCN := strings.CutPrefix(r.Subject, "cn:")
	key, isKey := strings.CutPrefix(r.Subject, "key:")
	if serial, ok := strings.CutPrefix(r.Subject, "serial:"); ok {
		if rec, found := d.ByName(log.KindCertificate, serial); found {
			key, isKey = rec.Object.(*log.Certificate).Key, true
		}
	}
	for o := range d.Objects(projections.All(log.KindToken)) {
		t := o.(*log.Token)
		if t.Voided == 0 && (isCN && t.CN.Is(cn) || isKey && t.UsedBy == key) {
			before, _ := d.ByUUID(log.KindToken, t.UUID)
			after := log.Clone(t).(*log.Token)
			after.Voided = d.time
			d.emit(before, after)
		}
	}
}

// checkFollows decides what a certificate follows from: the token or the certificate by
// which it was asked for must be good at this place of the log.
func checkFollows(d *draft, c *log.Certificate) {
	switch {
	case !c.Token.IsZero() && c.Replaces != "":
		d.bad("token", "a certificate follows from a token or from another certificate", "send one of both")
	case !c.Token.IsZero():
		checkBought(d, c)
	case c.Replaces != "":
		checkReplaced(d, c)
	case strings.HasPrefix(d.change.Actor, "cn:"):
		d.refuse(log.CodeNotAuthorized, "the certificate of a compute node follows from a token or from the one before", log.FieldError{
			Field: "replaces", Code: log.ElementMissing, Message: "the server that was asked is behind the others", Remedy: "ask again, or another server",
		})
	}
	if r := d.revocation("key:" + c.Key); r != nil && !d.refused() && (c.Replaces != "" || !c.Token.IsZero()) {
		d.refuse(log.CodeNotAuthorized, "the key is revoked", log.FieldError{
			Field: "key", Code: log.ElementInvalid, Message: "its revocation is " + r.Subject, Remedy: "ask with a new key",
		})
	}
	if r := d.revocation(c.Identity); r != nil && r.ByOrder && d.vouched(c) && len(d.stillGood(r)) >= maxGood {
		d.bad("identity", fmt.Sprintf("%d of its certificates are good since its revocation, the most that there may be", maxGood), "revoke it again, and issue another")
	}
}

// checkBought: the token is that of the identity, was used by this key, and stands.
func checkBought(d *draft, c *log.Certificate) {
	rec, ok := d.ByUUID(log.KindToken, c.Token)
	var t *log.Token
	if ok {
		t = rec.Object.(*log.Token)
	}
	r := d.revocation(c.Identity)
	if t == nil || "cn:"+t.CN.String() != c.Identity || t.UsedBy != c.Key || t.Voided != 0 || d.time >= t.Expires ||
		r != nil && !r.ByOrder && t.Created < r.IssuedBefore {
		d.refuse(log.CodeNotAuthorized, "the token is not good", log.FieldError{
			Field: "token", Code: log.ElementInvalid, Message: "it is unknown, has expired, was used by another key, or a revocation has made it useless",
			Remedy: "make another with rutter token create",
		})
	}
}

// checkReplaced: the certificate by which another is asked for is not revoked. One that
// is not recorded is covered by each revocation of its identity.
func checkReplaced(d *draft, c *log.Certificate) {
	old := &log.Certificate{Serial: c.Replaces, Key: c.ReplacesKey, Identity: c.Identity}
	if rec, ok := d.ByName(log.KindCertificate, c.Replaces); ok {
		old = rec.Object.(*log.Certificate)
		if old.Identity != c.Identity {
			d.bad("replaces", "the certificate is of another identity", "ask with one of its own")
			return
		}
		if d.time >= old.NotAfter+log.RenewalGrace {
			d.refuse(log.CodeNotAuthorized, "the certificate has ended too long ago", log.FieldError{
				Field: "replaces", Code: log.ElementInvalid, Message: fmt.Sprintf("it ended at %s, and may be renewed for 90 days", old.NotAfter),
				Remedy: "join again: rutter token create, rutter agent join",
			})
		}
	}
	if why := d.revoked(old); why != "" {
		d.refuse(log.CodeNotAuthorized, "the certificate is revoked", log.FieldError{
			Field: "replaces", Code: log.ElementInvalid, Message: "its revocation is " + d.show(why),
			Remedy: "join again (rutter token create, rutter agent join); if it was issued by hand after the revocation, record it: rutter cert record",
		})
	}
}

// vouched reports whether a certificate is good after a revocation of its identity: a
// token or a good certificate bought it, or an operator recorded it. What a server records
// of itself is not.
func (d *draft) vouched(c *log.Certificate) bool {
	return c.Replaces != "" || !c.Token.IsZero() || !strings.HasPrefix(d.change.Actor, "server:")
}

// stillGood are the certificates that are good after a revocation and may still be used.
func (d *draft) stillGood(r *log.Revocation) []string {
	return slices.DeleteFunc(slices.Clone(r.Good), func(serial string) bool {
		rec, ok := d.ByName(log.KindCertificate, serial)
		return !ok || d.time >= rec.Object.(*log.Certificate).NotAfter+log.RenewalGrace
	})
}

// noteGood adds a new certificate to those that are good after a revocation.
func noteGood(d *draft, before, c *log.Certificate, _ *log.Op) {
	if !d.confined() || before != nil || c == nil {
		return
	}
	rec, ok := d.ByName(log.KindRevocation, c.Identity)
	if !ok || !d.vouched(c) {
		return
	}
	r := log.Clone(rec.Object).(*log.Revocation)
	if !r.ByOrder {
		return
	}
	r.Good = append(d.stillGood(r), c.Serial)
	d.emit(rec, r)
}

// keepRecord refuses the deletion of a record that is needed: recorded again, it would
// stand behind a revocation that it stood before.
func keepRecord(d *draft, c *log.Certificate) {
	if d.confined() && d.time < c.NotAfter {
		d.refuse(log.CodeInUse, "the record of a certificate stays until it has ended", log.FieldError{
			Field: "serial", Code: log.ElementInvalid, Message: fmt.Sprintf("it ends at %s", c.NotAfter), Remedy: "revoke it: rutter cert revoke serial:" + c.Serial,
		})
	}
}

// checkLastWay refuses a change that leaves out an authority while identities have
// certificates only of it, which may still be renewed.
func checkLastWay(d *draft, before, a *log.Authority, op *log.Op) {
	if !d.confined() || before == nil || asks(op, log.OptionLockOut) {
		return
	}
	if !slices.ContainsFunc(before.Certificates, func(c string) bool { return !slices.Contains(a.Certificates, c) }) {
		return // none is left out
	}
	if len(a.Certificates) > 1 {
		d.bad("certificates", "an authority is left out while several stay: deciding knows only of the issuing one who has a certificate of it", "leave only the issuing one, when all have certificates of it (rutter cert rotate finish)")
		return
	}
	in := make(map[string]bool)
	var out []string
	for c := range d.certificates(a.Name, log.RenewalGrace) {
		if c.Issuer == a.Issuing {
			in[c.Identity] = true
		} else {
			out = append(out, c.Identity)
		}
	}
	out = slices.DeleteFunc(out, func(id string) bool { return in[id] })
	slices.Sort(out)
	if out = slices.Compact(out); len(out) == 0 {
		return
	}
	d.refuse(log.CodeInUse, fmt.Sprintf("%d identities would have no way in: without a certificate of the new authority are yet: %s", len(out), firstOf(out)), log.FieldError{
		Field: "certificates", Code: log.ElementInvalid, Message: "they have certificates of the authorities that are left out",
		Remedy: "wait for servers and compute nodes; issue people's by hand (rutter cert issue -s URL), or revoke them; --yes locks all of them out",
	})
}

// maxNamed bounds the identities in a refusal.
const maxNamed = 10

// firstOf lists the first few of some texts.
func firstOf(list []string) string {
	text := strings.Join(list[:min(len(list), maxNamed)], ", ")
	if more := len(list) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
