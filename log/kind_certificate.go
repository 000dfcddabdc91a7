package log

// KindCertificate is the kind of certificates.
const KindCertificate Kind = 20

// Certificate records that one was issued. It grants nothing: it is there to be
// listed, and says who still has one of an authority that is to go.
type Certificate struct {
	Serial    string `json:"serial"`    // the id: hexadecimal, no leading zeros
	Identity  string `json:"identity"`  // cn:UUID, server:NAME, operator:NAME or reader:NAME
	Authority string `json:"authority"` // clients or peers
	Issuer    string `json:"issuer"`    // the key id of the authority that signed it
	Key       string `json:"key"`       // the key id of its public key
	NotBefore Time   `json:"not_before"`
	NotAfter  Time   `json:"not_after"`
	extra
}

// certificateKind is the row of certificates in the table of kinds.
var certificateKind = kind{
	Description: Description{
		Name: "certificate", Noun: "certificate", Title: "Certificate",
		IDField: "serial", IDForm: IDText,
		Immutable: []string{"serial", "identity", "authority", "issuer", "key", "not_before", "not_after"},
		Guarded:   true,
	},
	fields: fields[Certificate](func(c *Certificate, v visitor) {
		v.str("serial", &c.Serial)
		v.str("identity", &c.Identity)
		v.str("authority", &c.Authority)
		v.str("issuer", &c.Issuer)
		v.str("key", &c.Key)
		v.time("not_before", &c.NotBefore)
		v.time("not_after", &c.NotAfter)
	}),
}

// Kind implements Object.
func (*Certificate) Kind() Kind { return KindCertificate }

// ID implements Object: the certificate's serial number.
func (c *Certificate) ID() string { return c.Serial }
