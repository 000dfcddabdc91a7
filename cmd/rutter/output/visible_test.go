package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain": "plain", "Köln 東京 ❤": "Köln 東京 ❤", `C:\x "y"`: `C:\x "y"`,
		"a\nb\tc\r": `a\nb\tc\r`, "\x1b[2J\a\x00\x7f": `\u001b[2J\u0007\u0000\u007f`, "\u009b31m\u0085": `\u009b31m\u0085`, "\x9b\xff": `\x9b\xff`,
		"\u202e\u2066\u2028\u200b\u00ad\ufeff\u00a0\u3164\ufe0f\u2800": `\u202e\u2066\u2028\u200b\u00ad\ufeff\u00a0\u3164\ufe0f\u2800`, "\U000e0041\U0001f600": `\U000e0041` + "\U0001f600",
		`\u001b`: `\u001b`, "\\u001b\x1b": `\\u001b\u001b`,
	} {
		if got := Visible(in); got != want {
			t.Errorf("Visible(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestPrintf(t *testing.T) {
	var out bytes.Buffer
	if err := Printf(&out, "%-6s|%d|%v|%5.1f|%*s|%q|%s\n", "a\n", 7, time.Second, 1.25, 3, "x", "b\x1b", fmt.Errorf("c\td")); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), `a\n    |7|1s|  1.2|  x|"b\x1b"|c\td`+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What comes through a screen in whatever parts is the same, has nothing hidden, and
// JSON has the same data.
func TestScreen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune("a\n\x1b[0m\u009b\u202e\U000e0041\U0001f600\ufffd")))).Draw(t, "text")
		data := []byte(text)
		if rapid.Bool().Draw(t, "bytes") {
			data = rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		}
		written := func(parts [][]byte) string {
			var out bytes.Buffer
			s := NewScreen(&out)
			for _, part := range parts {
				if n, err := s.Write(part); n != len(part) || err != nil {
					t.Fatalf("wrote %d of %d: %v", n, len(part), err)
				}
			}
			if err := s.End(); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		whole := written([][]byte{data})
		cut := rapid.IntRange(0, len(data)).Draw(t, "cut")
		if parts := written([][]byte{data[:cut], data[cut:]}); parts != whole {
			t.Fatalf("%q in parts is %q, whole %q", data, parts, whole)
		}
		if at := strings.IndexFunc(whole, func(r rune) bool { return r != '\n' && r != '\t' && Hidden(r) }); at >= 0 {
			t.Fatalf("%q is written as %q, with something hidden at %d", data, whole, at)
		}
		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var back string
		if err := json.Unmarshal([]byte(written([][]byte{encoded})), &back); err != nil || back != strings.ToValidUTF8(text, "\ufffd") {
			t.Fatalf("JSON of %q reads as %q, %v", text, back, err)
		}
	})
}

func TestColoursPassOnly(t *testing.T) {
	const text = "\x1b[31mred\x1b[0m\x1b[2J\x1b]0;x\a\x1b[31"
	if got, want := string(appendScreen(nil, []byte(text), mayPass{colours: true})), "\x1b[31mred\x1b[0m"+`\u001b[2J\u001b]0;x\u0007\u001b[31`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := string(appendScreen(nil, []byte(text), mayPass{})); strings.Contains(got, "\x1b") {
		t.Errorf("without colours: %q", got)
	}
}

func TestJSONText(t *testing.T) {
	var out bytes.Buffer
	if err := JSONText(&out, []byte(" {\"a\": 1}\n")); err != nil || out.String() != "{\"a\": 1}\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	var shown bytes.Buffer
	if err := JSONText(NewScreen(&shown), []byte("{\"a\": \"\xff\"}")); err != nil || !json.Valid(shown.Bytes()) {
		t.Errorf("invalid UTF-8 in a string: %v, %q", err, shown.String())
	}
	if err := JSONText(&out, []byte("{}\nrutter: forged")); err == nil {
		t.Error("a line behind JSON was written")
	}
}

// An archive goes to a file or a pipe as it is, and to no terminal.
func TestBinary(t *testing.T) {
	var out bytes.Buffer
	if w, err := Binary(NewScreen(&out)); err != nil || w != &out {
		t.Errorf("to a pipe: %v, %v", w, err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, err := Binary(NewScreen(null)); err != nil {
		t.Errorf("to %s: %v", os.DevNull, err)
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal can be made here: %v", err)
	}
	defer terminal.Close()
	if _, err := Binary(NewScreen(terminal)); err == nil {
		t.Error("an archive is written to a terminal")
	}
}
