package log

import (
	"slices"
	"strings"
)

// KindRevocation is the kind of revocations.
const KindRevocation Kind = 16

// Revocation takes away what certificates grant, before they end by themselves.
type Revocation struct {
	// Subject is the id, and says which certificates are meant: serial:HEX one,
	// key:HEX those of a public key, cn:UUID, server:NAME, operator:NAME and
	// reader:NAME those of an identity: all except Good if ByOrder, else those that
	// were issued before IssuedBefore.
	Subject string `json:"subject"`
	// Identity is whose certificates they are, in the form of Subject, where a
	// serial or a key does not say it. Compute nodes hear of those of servers.
	Identity     string `json:"identity,omitempty"`
	IssuedBefore Time   `json:"issued_before,omitzero"`
	// Until is when the last of the certificates has ended by itself and the
	// revocation may go; 0 is never.
	Until   Time   `json:"until,omitzero"`
	Reason  string `json:"reason,omitempty"`
	Created Time   `json:"created,omitzero"`
	// ByOrder: the order of the log decides, no clock. Revocations of an identity are so
	// from FeatureConfined on; those made before keep their meaning until they are made
	// again.
	ByOrder bool `json:"by_order,omitempty"`
	// Good are the serials of the certificates of the identity that were granted, or
	// recorded by an operator, after this revocation. Deciding keeps them.
	Good []string `json:"good,omitempty"`
	// Voters are the ids of the servers that voted when it was made. A change that is about
	// a server names them, so that deciding knows what a quorum is. They are not stored.
	Voters []string `json:"voters,omitempty"`
	extra
}

// revocationKind is the row of revocations in the table of kinds.
var revocationKind = kind{
	Description: Description{
		Name: "revocation", Noun: "revocation", Title: "Revocation",
		IDField: "subject", IDForm: IDText,
		Immutable: []string{"subject", "identity", "created"},
		Final:     "a revocation keeps a certificate out: rutter cert issues another",
		Guarded:   true,
		Options:   []Option{OptionLockOut},
	},
	docs: []FieldDoc{
		{Name: "subject", Text: "Which certificates are meant, as in cn:UUID or serial:HEX; it is the id."},
		{Name: "identity", Text: "Whose certificates they are, where the subject does not say it.", Default: "none"},
		{Name: "issued_before", Text: "Certificates that begin before are meant.", Default: "the time of the change"},
		{Name: "until", Text: "When the last of the certificates ends by itself.", Default: "never"},
		{Name: "reason", Text: "Why they were revoked.", Default: "none"},
		{Name: "created", Text: "When it was made.", By: SetByDeciding},
		{Name: "by_order", Text: "The order of the log decides which are meant, and no clock.", By: SetByDeciding},
		{Name: "good", Text: "The certificates that were granted afterwards.", By: SetByDeciding},
		{Name: "voters", Text: "The servers that voted when it was made.", By: SetByDeciding},
	},
	fields: fields[Revocation](func(r *Revocation, v visitor) {
		v.str("subject", &r.Subject)
		v.str("identity", &r.Identity)
		v.time("issued_before", &r.IssuedBefore)
		v.time("until", &r.Until)
		v.str("reason", &r.Reason)
		v.time("created", &r.Created)
		if takes(v, FeatureConfined) {
			v.boolean("by_order", &r.ByOrder)
			v.strs("good", &r.Good)
			v.strs("voters", &r.Voters)
		}
	}),
	late: late[Revocation]{{3, FeatureConfined, func(r *Revocation) bool { return !r.ByOrder && len(r.Good) == 0 && len(r.Voters) == 0 }}},
	// Every CN must know which servers it trusts no more.
	scope: scopes[Revocation](func(r *Revocation) (scope Scope) {
		if strings.HasPrefix(r.Identity, "server:") {
			scope = AllScope()
		}
		return scope
	}),
}

// Covers reports whether a revocation of an identity covers one of its certificates:
// that of a serial, with the beginning of its validity.
func (r *Revocation) Covers(serial string, notBefore Time) bool {
	if r.ByOrder {
		return !slices.Contains(r.Good, serial)
	}
	return notBefore+CertificateBackdate < r.IssuedBefore
}

// Kind implements Object.
func (*Revocation) Kind() Kind { return KindRevocation }

// ID implements Object: what is revoked.
func (r *Revocation) ID() string { return r.Subject }
