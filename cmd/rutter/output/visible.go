package output

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Hidden reports whether a character has no place in a text that a person reads: a
// control character (C0, DEL, C1), a line or paragraph separator, what changes the
// direction of text, a space other than U+0020, what is not assigned, and what shows
// nothing.
func Hidden(r rune) bool {
	return r < ' ' || r == unicode.ReplacementChar || r == blankPattern ||
		r >= 0x7f && (!unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector))
}

// blankPattern is U+2800, the Braille pattern without dots. Unicode counts it as a symbol,
// and it looks like a space.
const blankPattern = '\u2800'

// Visible returns a text that a client, a compute node or a server chose in the form
// in which a line may show it: hidden characters and invalid UTF-8 are escaped as in
// a string of Go, and so are newlines and tabs. In a text that needs escapes a
// backslash is escaped too. A text that needs none is not changed, also if it has
// backslashes: what looks like an escape may be the text itself.
func Visible(text string) string {
	if plain(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case r == utf8.RuneError && n == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(text[0]), 16))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r > 0xffff && Hidden(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		case Hidden(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		text = text[n:]
	}
	return b.String()
}

// plain reports whether nothing in a text is hidden.
func plain(text string) bool {
	for _, r := range text {
		if Hidden(r) { // invalid UTF-8 reads as utf8.RuneError, which is hidden
			return false
		}
	}
	return true
}

// Print writes a text of the program itself. The text is a literal in the call: package
// integration/arch checks that.
func Print(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

// Printf is fmt.Fprintf with a format of the program itself, which is a literal in the
// call, and arguments of anyone: their text is written as Visible gives it. So the
// newlines and tabs that are written are those of the format. The error is that of w.
func Printf(w io.Writer, format string, args ...any) error {
	if false {
		_ = fmt.Sprintf(format, args...) // by this go vet knows that a format is checked
	}
	shown := make([]any, len(args))
	for i, arg := range args {
		switch arg.(type) {
		case nil, bool, int, int64, uint16, uint32, uint64, float64:
			shown[i] = arg
		default:
			shown[i] = argument{arg}
		}
	}
	_, err := fmt.Fprintf(w, format, shown...)
	return err
}

// argument prints a value as Visible gives its text.
type argument struct{ value any }

// Format implements fmt.Formatter.
func (a argument) Format(state fmt.State, verb rune) {
	_, _ = io.WriteString(state, Visible(fmt.Sprintf(fmt.FormatString(state, verb), a.value))) // a state returns no error
}

// Lines writes a text of several lines that others chose, each behind indent, which is
// a literal in the call: no line of it passes for one of the program.
func Lines(w io.Writer, indent, text string) error {
	for line := range strings.Lines(text) {
		if _, err := io.WriteString(w, indent+Visible(strings.TrimRight(line, "\r\n"))+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// appendEscaped appends a hidden character as a string of JSON has it.
func appendEscaped(b []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		return fmt.Appendf(b, `\u%04x\u%04x`, high, low)
	}
	return fmt.Appendf(b, `\u%04x`, r)
}
