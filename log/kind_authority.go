package log

// KindAuthority is the kind of authorities.
const KindAuthority Kind = 19

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

// authorityKind is the row of authorities in the table of kinds.
var authorityKind = kind{
	Description: Description{
		Name: "authority", Noun: "authority", Title: "Authority",
		IDField: "name", IDForm: IDText,
		Immutable: []string{"name", "generation"},
		Final:     "authorities are rotated, with rutter cert rotate",
		Guarded:   true,
		Options:   []Option{OptionLockOut},
	},
	docs: []FieldDoc{
		{Name: "name", Text: "The name of the set of authorities, which is the id.", Values: []string{"clients", "peers"}},
		{Name: "generation", Text: "How often it changed.", By: SetByDeciding},
		{Name: "issuing", Text: "The key id of the authority that signs from now on."},
		{Name: "certificates", Text: "All authorities that are trusted, base64 of DER."},
	},
	fields: fields[Authority](func(a *Authority, v visitor) {
		v.str("name", &a.Name)
		v.u64("generation", &a.Generation)
		v.str("issuing", &a.Issuing)
		v.strs("certificates", &a.Certificates)
	}),
	scope: scopes[Authority](func(_ *Authority) Scope { return AllScope() }),
}

// Kind implements Object.
func (*Authority) Kind() Kind { return KindAuthority }

// ID implements Object: the authority's name.
func (a *Authority) ID() string { return a.Name }
