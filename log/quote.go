package log

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Quote returns what a client sent in the form in which a message may show it: at
// most MaxQuoteBytes of it, and nothing but printable ASCII. What is cut off is
// counted. All refusals that quote input do it by this function, and it has no
// table of Unicode, so that every build gives the same bytes (SAFETY D2).
func Quote(input string) string {
	cut := input
	if len(cut) > MaxQuoteBytes {
		cut = cut[:runeStart(cut, MaxQuoteBytes)]
	}
	quoted := escape(cut, func(c byte) bool { return c >= ' ' && c < 0x7f && c != '"' && c != '\\' })
	if len(cut) < len(input) {
		quoted += fmt.Sprintf("... (%d bytes more)", len(input)-len(cut))
	}
	return quoted
}

// runeStart returns the last place at or before n at which a character begins.
func runeStart(s string, n int) int {
	for at := n; at > n-utf8.UTFMax && at > 0; at-- {
		if utf8.RuneStart(s[at]) {
			return at
		}
	}
	return n
}

// escape writes the bytes that are not plain as \u or \x with hexadecimal digits.
func escape(s string, plain func(byte) bool) string {
	i := 0
	for i < len(s) && plain(s[i]) {
		i++
	}
	if i == len(s) {
		return s
	}
	var b strings.Builder
	b.WriteString(s[:i])
	for i < len(s) {
		if c := s[i]; plain(c) {
			b.WriteByte(c)
			i++
			continue
		}
		switch r, n := utf8.DecodeRuneInString(s[i:]); {
		case s[i] == '"' || s[i] == '\\':
			b.WriteByte('\\')
			b.WriteByte(s[i])
			i++
		case r < utf8.RuneSelf || r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, "\\x%02x", s[i])
			i++
		case r > 0xffff:
			fmt.Fprintf(&b, "\\U%08x", r)
			i += n
		default:
			fmt.Fprintf(&b, "\\u%04x", r)
			i += n
		}
	}
	return b.String()
}

// FormError says that a text has not the form of an id.
type FormError struct {
	What string // such as uuid
	Text string
	Want string // the form, for people
}

// Error implements error.
func (e *FormError) Error() string { return fmt.Sprintf("%s %q: want %s", e.What, e.Text, e.Want) }

// Short is Error with no more of the text than a message may quote.
func (e *FormError) Short() string {
	return fmt.Sprintf("%s \"%s\": want %s", e.What, Quote(e.Text), e.Want)
}

// Bounded returns a refusal that is within the limits of one, and says of what it
// leaves out how much that was: the refusal itself, if it is within them.
func (r *Refusal) Bounded() *Refusal {
	if r == nil || r.within() {
		return r
	}
	b := &Refusal{Code: cutText(r.Code, MaxNameBytes), Message: cutText(r.Message, MaxMessageBytes)}
	room := MaxResultBytes - refusalRoom - len(b.Code) - len(b.Message)
	for i := range r.Errors {
		e := r.Errors[i].bounded()
		if room -= e.size(); room < 0 || i == MaxElements {
			b.Message += fmt.Sprintf("; %d more are not shown", len(r.Errors)-i)
			break
		}
		b.Errors = append(b.Errors, e)
	}
	return b
}

const (
	// refusalRoom is what a result takes besides its refusal's texts and elements, with
	// the sentence about those that are left out: 40 bytes of numbers, 60 of that.
	refusalRoom = 256
	// elementRoom is what the codec adds to an element's texts, and to each of its values.
	elementRoom, valueRoom = 40, 5
	// maxShortText bounds the texts of an element that are no sentences: its field,
	// its code, and the kind and id of an object.
	maxShortText = 2 * MaxIDBytes
)

// within reports whether a refusal needs no cut.
func (r *Refusal) within() bool {
	room := MaxResultBytes - refusalRoom - len(r.Code) - len(r.Message)
	if len(r.Errors) > MaxElements || !tidy(r.Code, MaxNameBytes) || !tidy(r.Message, MaxMessageBytes) {
		return false
	}
	for i := range r.Errors {
		e := &r.Errors[i]
		if room -= e.size(); room < 0 || len(e.Invalid) > MaxValues || !tidy(e.Message, MaxMessageBytes) || !tidy(e.Remedy, MaxMessageBytes) {
			return false
		}
		for _, text := range [...]string{e.Field, e.Code, e.Type, e.ID} {
			if !tidy(text, maxShortText) {
				return false
			}
		}
		for _, text := range e.Invalid {
			if !tidy(text, maxShortText) {
				return false
			}
		}
	}
	return true
}

// size is an upper bound of what the element takes in a result.
func (e *FieldError) size() int {
	n := elementRoom
	for _, text := range [...]string{e.Field, e.Code, e.Message, e.Remedy, e.Type, e.ID} {
		n += len(text)
	}
	for _, text := range e.Invalid {
		n += valueRoom + len(text)
	}
	return n
}

func (e FieldError) bounded() FieldError {
	for _, p := range [...]*string{&e.Field, &e.Code, &e.Type, &e.ID} {
		*p = cutText(*p, maxShortText)
	}
	e.Message, e.Remedy = cutText(e.Message, MaxMessageBytes), cutText(e.Remedy, MaxMessageBytes)
	values := e.Invalid
	e.Invalid = nil
	for _, text := range values[:min(len(values), MaxValues)] {
		e.Invalid = append(e.Invalid, cutText(text, maxShortText))
	}
	if n := len(values) - len(e.Invalid); n > 0 {
		e.Message += fmt.Sprintf(" (and %d more)", n)
	}
	return e
}

// plainText reports whether a byte may stand in a message as it is. What is not
// ASCII may be part of a character.
func plainText(c byte) bool { return c >= ' ' && c < 0x7f }

// tidy reports whether a text needs no cut.
func tidy(s string, most int) bool {
	if len(s) > most {
		return false
	}
	ascii := true
	for i := range len(s) {
		if !plainText(s[i]) && s[i] < utf8.RuneSelf {
			return false
		}
		ascii = ascii && s[i] < utf8.RuneSelf
	}
	return ascii || utf8.ValidString(s)
}

// cutText returns s with at most so many bytes, without control characters and
// what is no text, and says how much was cut off.
func cutText(s string, most int) string {
	if tidy(s, most) {
		return s
	}
	whole := len(s)
	cut := s[:min(most, whole)]
	if len(cut) < whole {
		cut = cut[:runeStart(s, most)]
	}
	kept := len(cut)
	cut = escape(cut, plainText)
	if len(cut) > most { // escapes are longer than what they stand for
		cut, kept = cut[:most], 0
	}
	switch {
	case kept == 0:
		cut += "..."
	case kept < whole:
		cut += fmt.Sprintf("... (%d bytes more)", whole-kept)
	}
	return cut
}
