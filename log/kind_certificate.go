package log

const (
	// CertificateBackdate is in ns: how far before its issue a certificate begins to be
	// valid, so that clocks may differ.
	CertificateBackdate Time = 300 * 1_000_000_000
	// RenewalGrace is in ns: how long after its end a certificate that is not revoked
	// may still be renewed.
	RenewalGrace Time = 90 * 24 * 3600 * 1_000_000_000
)

// KindCertificate is the kind of certificates.
const KindCertificate Kind = 20

// Certificate records that one was issued. It grants nothing: it is there to be
// listed, says who still has one of an authority that is to go, and its place in the log
// says whether a revocation covers it.
type Certificate struct {
	Serial    string `json:"serial"`    // the id: hexadecimal, no leading zeros
	Identity  string `json:"identity"`  // cn:UUID, server:NAME, operator:NAME or reader:NAME
	Authority string `json:"authority"` // clients or peers
	Issuer    string `json:"issuer"`    // the key id of the authority that signed it
	Key       string `json:"key"`       // the key id of its public key
	NotBefore Time   `json:"not_before"`
	NotAfter  Time   `json:"not_after"`
	// Replaces is the serial of the certificate that asked for this one, and ReplacesKey
	// the key id of its key; Token is the token that bought it. A certificate with
	// neither was issued by hand.
	Replaces    string `json:"replaces,omitempty"`
	ReplacesKey string `json:"replaces_key,omitempty"`
	Token       UUID   `json:"token,omitzero"`
	extra
}

// certificateKind is the row of certificates in the table of kinds.
var certificateKind = kind{
	Description: Description{
		Name: "certificate", Noun: "certificate", Title: "Certificate",
		IDField: "serial", IDForm: IDText,
		Immutable: []string{
			"serial", "identity", "authority", "issuer", "key", "not_before", "not_after", "replaces", "replaces_key", "token",
		},
		Final:   "certificates are issued and revoked, never made again",
		Guarded: true,
	},
	docs: []FieldDoc{
		{Name: "serial", Text: "The serial number in hexadecimal, which is the id."},
		{Name: "identity", Text: "Whose it is: cn:UUID, server:NAME, operator:NAME or reader:NAME."},
		{Name: "authority", Text: "The set of authorities that it is of.", Values: []string{"clients", "peers"}},
		{Name: "issuer", Text: "The key id of the authority that signed it."},
		{Name: "key", Text: "The key id of its public key."},
		{Name: "not_before", Text: "When it begins to be valid."},
		{Name: "not_after", Text: "When it ends."},
		{Name: "replaces", Text: "The serial of the certificate that asked for this one.", Default: "none"},
		{Name: "replaces_key", Text: "The key id of that certificate.", Default: "none"},
		{Name: "token", Text: "The token that bought it.", Default: "none"},
	},
	fields: fields[Certificate](func(c *Certificate, v visitor) {
		v.str("serial", &c.Serial)
		v.str("identity", &c.Identity)
		v.str("authority", &c.Authority)
		v.str("issuer", &c.Issuer)
		v.str("key", &c.Key)
		v.time("not_before", &c.NotBefore)
		v.time("not_after", &c.NotAfter)
		if takes(v, FeatureConfined) {
			v.str("replaces", &c.Replaces)
			v.str("replaces_key", &c.ReplacesKey)
			v.uuid("token", &c.Token)
		}
	}),
	late: late[Certificate]{{3, FeatureConfined, func(c *Certificate) bool { return c.Replaces == "" && c.ReplacesKey == "" && c.Token.IsZero() }}},
}

// Kind implements Object.
func (*Certificate) Kind() Kind { return KindCertificate }

// ID implements Object: the certificate's serial number.
func (c *Certificate) ID() string { return c.Serial }
