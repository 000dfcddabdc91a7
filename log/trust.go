package log

// Authority is a set of certificate authorities that the cluster trusts, under
// one of two names: clients (who may talk to the API, and servers there) or
// peers (servers among each other). Its keys are never in the log.
type Authority struct {
	Name string `json:"name"` // the id: clients or peers
	// Generation is 1 at first, and one more with each change.
	Generation uint64 `json:"generation"`
	// Issuing is the key id (hexadecimal SHA-256 of the public key's DER) of the
	// authority that signs from now on. Certificates of the others are renewed.
	Issuing string `json:"issuing"`
	// Certificates are all that are trusted: base64 of DER, no line breaks.
	Certificates []string `json:"certificates"`
	extra
}

// Kind implements Object.
func (*Authority) Kind() Kind { return KindAuthority }

// ID implements Object: the authority's name.
func (a *Authority) ID() string { return a.Name }

func (a *Authority) visit(v visitor) {
	v.str("name", &a.Name)
	v.u64("generation", &a.Generation)
	v.str("issuing", &a.Issuing)
	v.strs("certificates", &a.Certificates)
}

// Token lets one compute node get its first certificate, once.
type Token struct {
	UUID    UUID   `json:"uuid"`    // the id, which is the public half of the token
	Hash    string `json:"hash"`    // hexadecimal SHA-256 of the secret half, which nobody keeps
	CN      UUID   `json:"cn_uuid"` // whose certificate it buys
	Created Time   `json:"created,omitzero"`
	Expires Time   `json:"expires"`
	// UsedBy is the key id of the public key that redeemed the token, "" until
	// then. The same key may redeem it again: an answer can be lost.
	UsedBy string `json:"used_by,omitempty"`
	Used   Time   `json:"used,omitzero"`
	extra
}

// Kind implements Object.
func (*Token) Kind() Kind { return KindToken }

// ID implements Object: the token's UUID.
func (t *Token) ID() string { return t.UUID.String() }

func (t *Token) visit(v visitor) {
	v.uuid("uuid", &t.UUID)
	v.str("hash", &t.Hash)
	v.uuid("cn_uuid", &t.CN)
	v.time("created", &t.Created)
	v.time("expires", &t.Expires)
	v.str("used_by", &t.UsedBy)
	v.time("used", &t.Used)
}

// Revocation takes away what certificates grant, before they end by themselves.
type Revocation struct {
	// Subject is the id, and says which certificates are meant: serial:HEX one,
	// key:HEX those of a public key, cn:UUID, server:NAME, operator:NAME and
	// reader:NAME those of an identity that were issued before IssuedBefore.
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
	extra
}

// Kind implements Object.
func (*Revocation) Kind() Kind { return KindRevocation }

// ID implements Object: what is revoked.
func (r *Revocation) ID() string { return r.Subject }

func (r *Revocation) visit(v visitor) {
	v.str("subject", &r.Subject)
	v.str("identity", &r.Identity)
	v.time("issued_before", &r.IssuedBefore)
	v.time("until", &r.Until)
	v.str("reason", &r.Reason)
	v.time("created", &r.Created)
}

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

// Kind implements Object.
func (*Certificate) Kind() Kind { return KindCertificate }

// ID implements Object: the certificate's serial number.
func (c *Certificate) ID() string { return c.Serial }

func (c *Certificate) visit(v visitor) {
	v.str("serial", &c.Serial)
	v.str("identity", &c.Identity)
	v.str("authority", &c.Authority)
	v.str("issuer", &c.Issuer)
	v.str("key", &c.Key)
	v.time("not_before", &c.NotBefore)
	v.time("not_after", &c.NotAfter)
}

// Grant narrows what one who is let in may do, or lets in one who has no
// certificate.
type Grant struct {
	// Subject is the id: reader:NAME of a certificate, or foreign:ADDRESS or
	// foreign:CIDR of a program without one, on the listeners for those.
	Subject string `json:"subject"`
	// OwnerUUIDs, of a reader, are the tenants to whose objects it is limited.
	OwnerUUIDs []UUID `json:"owner_uuids,omitempty"`
	// Read and Write, of a foreign program, are the surfaces (napi, cnapi, vmapi)
	// that it may read, and those that it may write as well.
	Read    []string `json:"read,omitempty"`
	Write   []string `json:"write,omitempty"`
	Comment string   `json:"comment,omitempty"`
	extra
}

// Kind implements Object.
func (*Grant) Kind() Kind { return KindGrant }

// ID implements Object: whom it is about.
func (g *Grant) ID() string { return g.Subject }

func (g *Grant) visit(v visitor) {
	v.str("subject", &g.Subject)
	v.uuids("owner_uuids", &g.OwnerUUIDs)
	v.strs("read", &g.Read)
	v.strs("write", &g.Write)
	v.str("comment", &g.Comment)
}
