package log

// KindGrant is the kind of grants.
const KindGrant Kind = 17

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

// grantKind is the row of grants in the table of kinds.
var grantKind = kind{
	Description: Description{
		Name: "grant", Noun: "grant", Title: "Grant",
		IDField: "subject", IDForm: IDText,
		Immutable: []string{"subject"},
		Guarded:   true,
	},
	docs: []FieldDoc{
		{Name: "subject", Text: "Who is meant: reader:NAME, foreign:ADDRESS or foreign:CIDR; it is the id."},
		{Name: "owner_uuids", Text: "The tenants to whose objects a reader is limited.", Default: "none"},
		{Name: "read", Text: "The surfaces that a foreign program may read: napi, cnapi, vmapi.", Default: "none"},
		{Name: "write", Text: "The surfaces that it may write as well.", Default: "none"},
		{Name: "comment", Text: "What people want to remember.", Default: "none"},
	},
	fields: fields[Grant](func(g *Grant, v visitor) {
		v.str("subject", &g.Subject)
		v.uuids("owner_uuids", &g.OwnerUUIDs)
		v.strs("read", &g.Read)
		v.strs("write", &g.Write)
		v.str("comment", &g.Comment)
	}),
}

// Kind implements Object.
func (*Grant) Kind() Kind { return KindGrant }

// ID implements Object: whom it is about.
func (g *Grant) ID() string { return g.Subject }
