package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// File is a history as it is kept: of a failure that was found, or of one that must not come
// back.
type File struct {
	Why      string   `json:"why"`                // what it shows, for people; required
	Failures []string `json:"failures,omitempty"` // what failed when it was saved
	Removed  []string `json:"removed,omitempty"`  // what Shrink took out
	History  History  `json:"history"`
}

// maxFile bounds a file that is read: a history of mostFaults faults has 200 KB.
const maxFile = 1 << 20

// Encode returns the file's bytes: indented JSON with times such as "1.5s".
func (f File) Encode() ([]byte, error) {
	if err := f.validate(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	to.SetIndent("", "  ")
	if err := to.Encode(f); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return b.Bytes(), nil
}

// Decode reads a file's bytes. Unknown fields are errors, because a misspelt one would run
// another history.
func Decode(text []byte) (File, error) {
	var f File
	if len(text) > maxFile {
		return f, fmt.Errorf("history: the file has %d bytes, more than %d", len(text), maxFile)
	}
	from := json.NewDecoder(bytes.NewReader(text))
	from.DisallowUnknownFields()
	if err := from.Decode(&f); err != nil {
		return f, fmt.Errorf("history: %w", err)
	}
	if _, err := from.Token(); !errors.Is(err, io.EOF) {
		return f, errors.New("history: there is more after its end; keep one history in a file")
	}
	return f, f.validate()
}

func (f File) validate() error {
	if f.Why == "" {
		return errors.New(`history: no "why"; say what the history shows`)
	}
	if err := f.History.Validate(); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

// Read reads a file.
func Read(path string) (File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return File{}, fmt.Errorf("history: %w", err)
	}
	f, err := Decode(text)
	if err != nil {
		return f, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Write writes a file, and makes its folder if it is missing.
func Write(path string, f File) error {
	text, err := f.Encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return os.WriteFile(path, text, 0o644)
}

// span is a duration in a file: "1.5s".
type span time.Duration

func (s span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

func (s *span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf(`%q is no time; write it as "1.5s" or "200ms"`, text)
	}
	*s = span(d)
	return nil
}

// The forms of History and Fault in a file: the same fields with times as text.
type (
	plainHistory History
	plainFault   Fault

	historyText struct {
		plainHistory
		Duration span    `json:"duration"`
		Faults   []Fault `json:"faults"`
	}
	faultText struct {
		At   span `json:"at"`
		For  span `json:"for,omitzero"`
		Kind Kind `json:"kind"`
		plainFault
	}
)

// MarshalJSON writes times as text.
func (h History) MarshalJSON() ([]byte, error) {
	if h.Faults == nil {
		h.Faults = []Fault{}
	}
	return json.Marshal(historyText{plainHistory(h), span(h.Duration), h.Faults})
}

// UnmarshalJSON reads what MarshalJSON writes. A decoder's setting about unknown fields does
// not reach it, so that it refuses them by itself.
func (h *History) UnmarshalJSON(text []byte) error {
	var t historyText
	if err := strict(text, &t); err != nil {
		return err
	}
	*h = History(t.plainHistory)
	h.Duration, h.Faults = time.Duration(t.Duration), t.Faults
	if len(h.Faults) == 0 {
		h.Faults = nil
	}
	return nil
}

// MarshalJSON writes times as text.
func (f Fault) MarshalJSON() ([]byte, error) {
	return json.Marshal(faultText{span(f.At), span(f.For), f.Kind, plainFault(f)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (f *Fault) UnmarshalJSON(text []byte) error {
	var t faultText
	if err := strict(text, &t); err != nil {
		return err
	}
	*f = Fault(t.plainFault)
	f.At, f.For, f.Kind = time.Duration(t.At), time.Duration(t.For), t.Kind
	return nil
}

func strict(text []byte, to any) error {
	from := json.NewDecoder(bytes.NewReader(text))
	from.DisallowUnknownFields()
	return from.Decode(to)
}
