package pki

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"rutter/log"
)

// ErrToken: a text that is not a token, or whose secret is wrong.
var ErrToken = errors.New("pki: not a token that is good")

// tokenSecret is the length of a token's secret half, in bytes.
const tokenSecret = 32

// Token is what a compute node shows once to get its first certificate. It must not be
// logged or stored; its Hash may.
type Token struct {
	ID     log.UUID
	secret [tokenSecret]byte
}

// NewToken draws a token.
func NewToken(random io.Reader) (Token, error) {
	var t Token
	if random == nil {
		random = rand.Reader
	}
	if _, err := io.ReadFull(random, t.ID[:]); err != nil {
		return t, fmt.Errorf("token: %w", err)
	}
	t.ID[6], t.ID[8] = t.ID[6]&0x0f|0x40, t.ID[8]&0x3f|0x80 // version 4 (RFC 9562, section 5.4)
	if _, err := io.ReadFull(random, t.secret[:]); err != nil {
		return t, fmt.Errorf("token: %w", err)
	}
	return t, nil
}

// Reveal returns the token as the operator passes it on: ID.SECRET. There is no String
// method, so that no formatting prints it by mistake.
func (t Token) Reveal() string {
	return t.ID.String() + "." + base64.RawURLEncoding.EncodeToString(t.secret[:])
}

// Format implements fmt.Formatter: the public half only, whatever the verb.
func (t Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.ID.String()+".(secret)") }

// ParseToken reads what Reveal gave. Its errors do not repeat the text.
func ParseToken(text string) (Token, error) {
	var t Token
	id, secret, ok := strings.Cut(strings.TrimSpace(text), ".")
	if !ok {
		return t, fmt.Errorf("%w: want ID.SECRET, as rutter token create printed it", ErrToken)
	}
	var err error
	if t.ID, err = log.ParseUUID(id); err != nil {
		return Token{}, fmt.Errorf("%w: its first half is no UUID", ErrToken)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(secret)
	if err != nil || len(b) != tokenSecret {
		return Token{}, fmt.Errorf("%w: its second half is not whole", ErrToken)
	}
	copy(t.secret[:], b)
	return t, nil
}

// Hash returns what log.Token keeps of the secret half. The secret is random, so a
// plain hash reveals nothing about it.
func (t Token) Hash() string {
	sum := sha256.Sum256(t.secret[:])
	return hex.EncodeToString(sum[:])
}

// Opens reports whether the hash is that of the token's secret.
func (t Token) Opens(hash string) bool {
	return subtle.ConstantTimeCompare([]byte(t.Hash()), []byte(hash)) == 1
}
