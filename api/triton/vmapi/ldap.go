package vmapi

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// parseLDAP reads an LDAP filter in text (RFC 4515), as VMAPI's parameter query has it:
// (&(state=running)(!(alias=*x*))). Of the RFC it has and, or, not, equality, presence,
// substrings, >= and <=, and moray's > and <; not approximate and extensible matches,
// which moray does not have either.
func parseLDAP(text string) (*term, error) {
	if len(text) > maxQuery {
		return nil, fmt.Errorf("%d bytes are over %d", len(text), maxQuery)
	}
	r := &ldapReader{text: strings.TrimSpace(text)}
	t, err := r.filter(1)
	if err == nil && r.at < len(r.text) {
		err = errors.New("text follows the filter")
	}
	if err != nil {
		return nil, fmt.Errorf("at byte %d: %w", r.at, err)
	}
	return t, nil
}

// ldapReader reads a filter from its place on.
type ldapReader struct {
	termReader
	text string
	at   int
}

// next returns the byte at the place; 0 at the end.
func (r *ldapReader) next() byte {
	if r.at < len(r.text) {
		return r.text[r.at]
	}
	return 0
}

func (r *ldapReader) take(c byte) error {
	if r.next() != c {
		return fmt.Errorf("%q is missing", c)
	}
	r.at++
	return nil
}

// filter reads a filter with its parentheses.
func (r *ldapReader) filter(depth int) (*term, error) {
	if err := r.enter(depth); err != nil {
		return nil, err
	}
	if err := r.take('('); err != nil {
		return nil, err
	}
	t, err := r.inside(depth)
	if err != nil {
		return nil, err
	}
	return t, r.take(')')
}

func (r *ldapReader) inside(depth int) (*term, error) {
	ops := map[byte]string{'&': "and", '|': "or", '!': "not"}
	op, is := ops[r.next()]
	if !is {
		return r.item()
	}
	r.at++
	t := &term{op: op}
	for r.next() == '(' && (op != "not" || len(t.terms) == 0) {
		one, err := r.filter(depth + 1)
		if err != nil {
			return nil, err
		}
		t.terms = append(t.terms, one)
	}
	if len(t.terms) == 0 {
		return nil, fmt.Errorf("%s has no filter", op)
	}
	return t, nil
}

// item reads FIELD OPERATOR VALUE.
func (r *ldapReader) item() (*term, error) {
	from := r.at
	for r.at < len(r.text) && !strings.ContainsRune("=<>()", rune(r.text[r.at])) {
		r.at++
	}
	field := strings.TrimSpace(r.text[from:r.at])
	op := map[byte]string{'=': "eq", '<': "lt", '>': "gt"}[r.next()]
	if op == "" || field == "" {
		return nil, errors.New("want a field, =, and a value")
	}
	if r.at++; op != "eq" && r.next() == '=' {
		r.at++
		op = map[string]string{"lt": "le", "gt": "ge"}[op]
	}
	from = r.at
	for r.at < len(r.text) && r.text[r.at] != '(' && r.text[r.at] != ')' {
		r.at++
	}
	raw := r.text[from:r.at]
	value, err := unescapeLDAP(raw)
	if err != nil {
		return nil, err
	}
	if op == "eq" && raw == "*" {
		op = "present"
	}
	t, err := relation(op, field, value)
	if err == nil {
		t.pattern = strings.Contains(raw, "*")
	}
	return t, err
}

// unescapeLDAP reads \XX, two hexadecimal digits of a byte.
func unescapeLDAP(text string) (string, error) {
	if !strings.Contains(text, `\`) {
		return text, nil
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			b.WriteByte(text[i])
			continue
		}
		if i+2 >= len(text) {
			return "", errors.New(`\ is not followed by two hexadecimal digits`)
		}
		one, err := hex.DecodeString(text[i+1 : i+3])
		if err != nil {
			return "", errors.New(`\ is not followed by two hexadecimal digits`)
		}
		b.Write(one)
		i += 2
	}
	return b.String(), nil
}
