package pki

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"

	"rutter/log"
)

// ErrMalformed: a certificate has an extension of this package that cannot be read.
var ErrMalformed = errors.New("pki: the certificate is malformed")

// After names a revocation of an identity: a certificate with it was granted after that
// revocation. Servers that do not have the newest list of log.Revocation.Good, because they
// were away, know by it that the certificate is good. Its values are compared with those of
// the log of the same cluster only, never with a clock. The zero value names none.
type After struct {
	// Cluster is whose log has the revocation. A restored cluster has another identity: the
	// times of two logs have no order.
	Cluster log.UUID
	// Created and IssuedBefore are those of log.Revocation. Deciding makes the latter greater
	// each time the identity is revoked again, also if the log's time is set back. A
	// revocation that was deleted and made again has a greater Created.
	Created, IssuedBefore log.Time
}

// afterOID is the extension of a certificate that has its After. Rutter has no registered arc
// of object identifiers. This one is that of the random UUID
// c945bdf4-bca0-460e-bdda-570be91f81cd under the arc for UUIDs that needs no registration,
// 1.2.840.113556.1.8000.2554: five numbers of 16 bits and two of 24. Under 2.25 a UUID is one
// number of 128 bits, which crypto/x509 does not read.
var afterOID = asn1.ObjectIdentifier{1, 2, 840, 113556, 1, 8000, 2554, 51525, 48628, 48288, 17934, 48602, 5704681, 2064845}

// maxAfter bounds the value of the extension, in bytes: a cluster and two times are 40 at
// most.
const maxAfter = 40

// afterDER is After as the extension has it, in DER.
type afterDER struct {
	Cluster               []byte
	Created, IssuedBefore int64
}

// IsZero reports whether a names no revocation.
func (a After) IsZero() bool { return a == After{} }

// isAtOrAfter reports whether a certificate with a was granted after the revocation r of its
// identity, or after a later one.
func (a After) isAtOrAfter(r After) bool {
	return !a.IsZero() && a.Cluster == r.Cluster && cmp.Or(cmp.Compare(a.Created, r.Created), cmp.Compare(a.IssuedBefore, r.IssuedBefore)) >= 0
}

func (a After) isWhole() bool { return !a.Cluster.IsZero() && a.Created > 0 && a.IssuedBefore > 0 }

// extension returns what a certificate has of a. It is not critical: programs that do not
// know it decide by the log alone.
func (a After) extension() (pkix.Extension, error) {
	if !a.isWhole() {
		return pkix.Extension{}, fmt.Errorf("pki: granted after a revocation without a cluster or a time: %+v", a)
	}
	value, err := asn1.Marshal(afterDER{a.Cluster[:], int64(a.Created), int64(a.IssuedBefore)})
	return pkix.Extension{Id: afterOID, Value: value}, err
}

// AfterOf returns after which revocation a certificate says that it was granted. Error:
// ErrMalformed.
func AfterOf(c *x509.Certificate) (After, error) {
	for _, e := range c.Extensions { // crypto/x509 refuses two with one id
		if e.Id.Equal(afterOID) {
			return parseAfter(e)
		}
	}
	return After{}, nil
}

// parseAfter accepts exactly what extension returns.
func parseAfter(e pkix.Extension) (After, error) {
	bad := func(why string) (After, error) {
		return After{}, fmt.Errorf("%w: its extension %s (after which revocation it was granted): %s: issue another (rutter cert issue)", ErrMalformed, afterOID, why)
	}
	if len(e.Value) > maxAfter {
		return bad(fmt.Sprintf("%d bytes, and %d are the most", len(e.Value), maxAfter))
	}
	if e.Critical {
		return bad("it is critical")
	}
	var d afterDER
	if _, err := asn1.Unmarshal(e.Value, &d); err != nil {
		return bad(err.Error())
	}
	if len(d.Cluster) != len(log.UUID{}) {
		return bad(fmt.Sprintf("a cluster of %d bytes", len(d.Cluster)))
	}
	a := After{log.UUID(d.Cluster), log.Time(d.Created), log.Time(d.IssuedBefore)}
	if !a.isWhole() {
		return bad("no cluster, or no time")
	}
	if again, err := a.extension(); err != nil || !bytes.Equal(again.Value, e.Value) {
		return bad("it is not DER, or has more than it must")
	}
	return a, nil
}

// In returns the revocations as those of the log of a cluster. Without it, what certificates
// say of when they were granted does not count.
func (r Revocations) In(cluster log.UUID) Revocations {
	r.cluster = cluster
	return r
}

// After returns what to write into a certificate that is granted now to an identity, named as
// Subject does: its newest revocation in this log. It is zero if there is none, if a time
// decides it and not the order of the log, and without In.
func (r Revocations) After(identity string) After {
	one := r.subjects[identity]
	if one == nil || !one.ByOrder {
		return After{}
	}
	if a := r.named(one); a.isWhole() {
		return a
	}
	return After{}
}

func (r Revocations) named(one *log.Revocation) After {
	return After{r.cluster, one.Created, one.IssuedBefore}
}

// Successor returns what to write into the certificate by which an identity replaces c
// without asking another: what c says, or the newest revocation that does not cover c by this
// log. So a certificate that is revoked has no successor that is good.
func (r Revocations) Successor(c *x509.Certificate, identity string) (After, error) {
	has, err := AfterOf(c)
	if err != nil {
		return After{}, err
	}
	newest := r.After(identity)
	if newest.IsZero() || has.isAtOrAfter(newest) || r.covers(c, identity) != "" {
		return has, nil
	}
	return newest, nil
}
