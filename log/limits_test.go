package log

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestLimitsAreDocumented: the table in the documentation is that of the code.
func TestLimitsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/safety.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| limit | most | of what | why |\n|---|---|---|---|\n")
	for _, l := range Limits {
		fmt.Fprintf(&want, "| `%s` | %d | %s | %s |\n", l.Name, l.Value, l.Unit, l.Why)
	}
	if !strings.Contains(string(text), want.String()) {
		t.Errorf("docs/safety.md has not this table:\n%s", want.String())
	}
	names := map[string]bool{}
	for _, l := range Limits {
		if names[l.Name] || l.Value <= 0 || l.Unit == "" || l.Why == "" {
			t.Errorf("%+v: named twice, or not described", l)
		}
		names[l.Name] = true
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"":                        "",
		"plain text_1":            "plain text_1",
		`"a\b"`:                   `\"a\\b\"`,
		"a\x00\n\x7f\xff":         `a\x00\x0a\x7f\xff`,
		"Ü€😀":                     `\u00dc\u20ac\U0001f600`,
		"\u202e":                  `\u202e`,
		strings.Repeat("a", 128):  strings.Repeat("a", 128),
		strings.Repeat("a", 130):  strings.Repeat("a", 128) + "... (2 bytes more)",
		strings.Repeat("€", 43):   strings.Repeat(`\u20ac`, 42) + "... (3 bytes more)",
		strings.Repeat("\x80", 9): strings.Repeat(`\x80`, 9),
	} {
		if got := Quote(input); got != want {
			t.Errorf("%q: got %s, want %s", input, got, want)
		}
	}
}

// TestBoundedRefusal: whatever a refusal holds, what is left of it is within the
// limits, is text, says that something was left out, and is not cut again; one
// that is within them is left as it is.
func TestBoundedRefusal(t *testing.T) {
	t.Parallel()
	text := rapid.Custom(func(t *rapid.T) string {
		s := string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes"))
		return strings.Repeat(s, rapid.SampledFrom([]int{1, 1, 1, 10, 1000, 100_000}).Draw(t, "times"))
	})
	rapid.Check(t, func(t *rapid.T) {
		r := &Refusal{Code: text.Draw(t, "code"), Message: text.Draw(t, "message")}
		for range rapid.SampledFrom([]int{0, 1, 3, 70, 2000}).Draw(t, "elements") {
			r.Errors = append(r.Errors, FieldError{Field: "f", Message: "m"})
		}
		if len(r.Errors) > 0 {
			e := &r.Errors[0]
			for _, p := range [...]*string{&e.Field, &e.Code, &e.Message, &e.Remedy, &e.Type, &e.ID} {
				*p = text.Draw(t, "text")
			}
			value := text.Draw(t, "value")
			for range rapid.SampledFrom([]int{0, 1, 64, 65, 5000}).Draw(t, "values") {
				e.Invalid = append(e.Invalid, value)
			}
		}
		b := r.Bounded()
		encoded, err := NewEncoder().Result(&Result{Refusal: b})
		if err != nil || len(encoded) > MaxResultBytes {
			t.Fatalf("%d bytes, %v", len(encoded), err)
		}
		if n := len(r.Errors) - len(b.Errors); n > 0 && !strings.Contains(b.Message, fmt.Sprintf("; %d more are not shown", n)) {
			t.Fatalf("%d elements were left out, and it says %q", n, b.Message)
		}
		all := b.Message + b.Code
		for _, e := range b.Errors {
			all += e.Field + e.Code + e.Message + e.Remedy + e.Type + e.ID + strings.Join(e.Invalid, "")
		}
		if !utf8.ValidString(all) || strings.ContainsAny(all, "\x00\x1b\n\x7f") {
			t.Fatalf("it has bytes that are no text: %.300q", all)
		}
		if r.within() && b != r {
			t.Fatalf("one within the limits was altered: %+v", b)
		}
	})
	if got := (*Refusal)(nil).Bounded(); got != nil {
		t.Errorf("none became %v", got)
	}
}

// TestMeasure: an object takes no more than was measured, and not much less.
func TestMeasure(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := drawObject(t, rapid.SampledFrom(Kinds()).Draw(t, "kind"))
		b, err := NewEncoder().Object(o)
		if err != nil {
			t.Fatal(err)
		}
		if got := Measure(o, FeatureVersion); got.Bytes < len(b) || got.Bytes > 10*len(b)+400 {
			t.Fatalf("%s: measured %d bytes, it has %d", o.Kind(), got.Bytes, len(b))
		}
	})
}
