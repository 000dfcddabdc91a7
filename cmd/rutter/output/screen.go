package output

import (
	"errors"
	"io"
	"sync"
	"unicode/utf8"

	"rutter/cmd/rutter/term"
)

// A Screen is what all output of the program goes through, to a terminal or elsewhere.
// It writes newlines, tabs and visible text as they are, and escapes hidden characters
// in the way of JSON, so that JSON stays valid with the same data. Invalid UTF-8 is
// written as \x and two digits. It is the last of two guards: Printf escapes newlines
// and tabs of arguments too, which a Screen cannot tell from those of the program.
//
// Several goroutines may use a Screen at once; a call of Write is not parted by others.
type Screen struct {
	out io.Writer

	mu   sync.Mutex
	tail []byte // the begin of a character whose end has not come yet
	buf  []byte // reused
}

// NewScreen returns a screen that writes to out. The caller calls End at the end.
func NewScreen(out io.Writer) *Screen { return &Screen{out: out} }

// Write implements io.Writer. The error is that of the writer below.
func (s *Screen) Write(p []byte) (int, error) { return s.write(p, mayPass{}) }

// End writes what is left of an incomplete character.
func (s *Screen) End() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tail) == 0 {
		return nil
	}
	b := appendScreen(nil, s.tail, mayPass{})
	s.tail = nil
	_, err := s.out.Write(b)
	return err
}

// Under returns the writer below, for term.Terminal.
func (s *Screen) Under() io.Writer { return s.out }

// mayPass says which control characters pass a Screen besides newlines and tabs.
type mayPass struct {
	colours bool // sequences that choose a colour
	crlf    bool // the carriage return before a newline, as RFC 4180 wants it
}

func (s *Screen) write(p []byte, pass mayPass) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := p
	if len(s.tail) > 0 {
		b = append(s.tail, p...)
		s.tail = nil
	}
	if cut := incomplete(b); cut < len(b) {
		s.tail = append([]byte(nil), b[cut:]...)
		b = b[:cut]
	}
	if i := firstHidden(b); i < len(b) {
		s.buf = appendScreen(append(s.buf[:0], b[:i]...), b[i:], pass)
		b = s.buf
	}
	if len(b) == 0 {
		return len(p), nil
	}
	if _, err := s.out.Write(b); err != nil {
		return 0, err
	}
	if cap(s.buf) > maxKept {
		s.buf = nil
	}
	return len(p), nil
}

// maxKept bounds the bytes of the buffer that a screen keeps between writes.
const maxKept = 256 << 10

// incomplete returns where a character begins at the end of b that more bytes may
// complete, or len(b).
func incomplete(b []byte) int {
	for at := len(b) - 1; at >= 0 && at > len(b)-utf8.UTFMax; at-- {
		if utf8.RuneStart(b[at]) {
			if !utf8.FullRune(b[at:]) {
				return at
			}
			break
		}
	}
	return len(b)
}

// firstHidden returns where the first byte is that appendScreen looks at, or len(b).
func firstHidden(b []byte) int {
	for i, c := range b {
		if (c < ' ' || c >= 0x7f) && c != '\n' && c != '\t' {
			return i
		}
	}
	return len(b)
}

// appendScreen appends text with hidden characters escaped, except newlines, tabs and,
// with pass, what that names.
func appendScreen(b, text []byte, pass mayPass) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if pass.colours && r == '\x1b' {
			if length := colourLength(text); length > 0 {
				b = append(b, text[:length]...)
				text = text[length:]
				continue
			}
		}
		switch {
		case r == utf8.RuneError && n == 1:
			b = append(b, '\\', 'x', hexDigits[text[0]>>4], hexDigits[text[0]&15])
		case r == '\n', r == '\t', !Hidden(r), pass.crlf && r == '\r' && len(text) > 1 && text[1] == '\n':
			b = append(b, text[:n]...)
		default:
			b = appendEscaped(b, r)
		}
		text = text[n:]
	}
	return b
}

const hexDigits = "0123456789abcdef"

// colourLength returns the bytes of the sequence that chooses a colour (SGR, ECMA-48
// section 8.3.117) at the begin of text, or 0 if there is none.
func colourLength(text []byte) int {
	if len(text) < 3 || text[1] != '[' {
		return 0
	}
	for i, c := range text[2:] {
		if c == 'm' {
			return i + 3
		}
		if c != ';' && (c < '0' || c > '9') {
			return 0
		}
	}
	return 0
}

// Escaped writes text in which our own code has escaped what others chose, newlines too:
// lines of package log/line, lines of JSON, CSV. On a terminal with colours, sequences
// that choose a colour pass, and carriage returns before newlines do. Package integration/arch has a list of the callers.
func Escaped(w io.Writer, text []byte) error {
	var err error
	if s, ok := w.(*Screen); ok {
		_, err = s.write(text, mayPass{colours: term.Coloured(s), crlf: true})
	} else {
		_, err = w.Write(text)
	}
	return err
}

// Binary returns what is below w, for data that are no text. A terminal is refused.
func Binary(w io.Writer) (io.Writer, error) {
	if term.Terminal(w) {
		return nil, term.UsageError{Err: errors.New("the output is binary, and standard output is a terminal: name a file, or give it to a program with |")}
	}
	if s, ok := w.(*Screen); ok {
		return s.out, nil
	}
	return w, nil
}
