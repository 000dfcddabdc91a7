package log

// KindToken is the kind of tokens.
const KindToken Kind = 15

// Token lets one compute node get its first certificate, once.
type Token struct {
	UUID    UUID   `json:"uuid"`    // the id, which is the public half of the token
	Hash    string `json:"hash"`    // hexadecimal SHA-256 of the secret half, which is not kept
	CN      UUID   `json:"cn_uuid"` // whose certificate it buys
	Created Time   `json:"created,omitzero"`
	Expires Time   `json:"expires"`
	// UsedBy is the key id of the public key that redeemed the token, "" until
	// then. The same key may redeem it again: an answer can be lost.
	UsedBy string `json:"used_by,omitempty"`
	Used   Time   `json:"used,omitzero"`
	// Voided is when a revocation made the token useless, used or not.
	Voided Time `json:"voided,omitzero"`
	extra
}

// tokenKind is the row of tokens in the table of kinds.
var tokenKind = kind{
	Description: Description{
		Name: "token", Noun: "token", Title: "Token",
		IDField: "uuid", IDForm: IDUUID,
		Immutable: []string{"uuid", "hash", "cn_uuid", "created", "expires", "used", "voided"},
		Final:     "a token is used once",
		Guarded:   true,
	},
	docs: []FieldDoc{
		{Name: "uuid", Text: "The id, which is the public half of the token.", Default: "one that the servers choose"},
		{Name: "hash", Text: "The SHA-256 of the secret half, which is not kept."},
		{Name: "cn_uuid", Text: "The compute node whose certificate it buys.", Refers: KindServer},
		{Name: "created", Text: "When it was made.", By: SetByDeciding},
		{Name: "expires", Text: "When it ends."},
		{Name: "used_by", Text: "The key id of the public key that redeemed it.", By: SetByDeciding},
		{Name: "used", Text: "When it was redeemed.", By: SetByDeciding},
		{Name: "voided", Text: "When a revocation made it useless.", By: SetByDeciding},
	},
	fields: fields[Token](func(t *Token, v visitor) {
		v.uuid("uuid", &t.UUID)
		v.str("hash", &t.Hash)
		v.uuid("cn_uuid", &t.CN)
		v.time("created", &t.Created)
		v.time("expires", &t.Expires)
		v.str("used_by", &t.UsedBy)
		v.time("used", &t.Used)
		if takes(v, FeatureConfined) {
			v.time("voided", &t.Voided)
		}
	}),
	late: late[Token]{{1, FeatureConfined, func(t *Token) bool { return t.Voided == 0 }}},
}

// Kind implements Object.
func (*Token) Kind() Kind { return KindToken }

// ID implements Object: the token's UUID.
func (t *Token) ID() string { return t.UUID.String() }
