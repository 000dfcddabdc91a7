package vmdoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseValuePrintsAsJavaScript(t *testing.T) {
	for in, want := range map[string]string{
		` { "b" : 1 , "a" : [ true , null ] } `: `{"b":1,"a":[true,null]}`,
		`{"x":1,"2":2,"10":3,"1":4}`:            `{"1":4,"2":2,"10":3,"x":1}`,
		`{"a":1,"b":2,"a":3}`:                   `{"a":3,"b":2}`,
		`[1.0,1e3,1e21,-0,0.000001,1e-7]`:       `[1,1000,1e+21,0,0.000001,1e-7]`,
		`9007199254740993`:                      `9007199254740992`,
		`"\u003c\u2028\u0001\/\u00e9"`:          "\"<\u2028\\u0001/é\"",
		`"\b\f\n\r\t\"\\"`:                      `"\b\f\n\r\t\"\\"`,
		`{}`:                                    `{}`,
		`{"01":1,"4294967295":2,"7":3}`:         `{"7":3,"01":1,"4294967295":2}`,
	} {
		v, err := ParseValue([]byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
		} else if got := string(v.AppendJSON(nil)); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestParseValueRefuses(t *testing.T) {
	for in, want := range map[string]string{
		``: "ends early", `{`: "ends early", `{"a"`: "ends early", `[1`: "ends early", `"a`: "ends early",
		`{"a":1,}`: "a name in quotes", `[1 2]`: "want , or ]", `{"a" 1}`: "want :", `{} x`: "follows",
		`nul`: "want a value", `01`: "want a value", `1e999`: "too large", "\"\x01\"": "control character", `"\x"`: "wrong escape",
		strings.Repeat("[", 100): "too deep",
	} {
		if _, err := ParseValue([]byte(in)); !errors.Is(err, ErrJSON) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: got %v, want ErrJSON with %q", in, err, want)
		}
	}
}

func TestValueRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := genValue(4).Draw(t, "value")
		text := v.AppendJSON(nil)
		if again := mustParse(t, text); !again.Equal(v) {
			t.Fatalf("%s read again is %s", text, again.AppendJSON(nil))
		}
	})
}

func TestWith(t *testing.T) {
	v := parse(t, `{"a":1,"b":2}`)
	w := v.With("a", IntValue(3)).With("c", StringValue("x")).Without("b").Without("none")
	if got, want := string(w.AppendJSON(nil)), `{"a":3,"c":"x"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := string(v.AppendJSON(nil)), `{"a":1,"b":2}`; got != want {
		t.Errorf("the original became %s, want %s", got, want)
	}
}

// FuzzParseValue: what is read is what encoding/json takes, and it is printed
// stably.
func FuzzParseValue(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x\u00e9"],"1":null}`, `"\ud800"`, `[[[]]]`, `-0.0e-1`, "\"\xff\"", `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := ParseValue(text)
		if err != nil {
			if json.Valid(text) && !bytes.Contains(text, []byte("e")) && !bytes.Contains(text, []byte("E")) && len(text) < 300 && bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) <= maxDepth {
				t.Fatalf("refused what is valid: %v", err)
			}
			return
		}
		if !json.Valid(text) {
			t.Fatalf("took what is not valid")
		}
		once := v.AppendJSON(nil)
		again, err := ParseValue(once)
		if err != nil || !again.Equal(v) {
			t.Fatalf("%s read again: %s, %v", once, again.AppendJSON(nil), err)
		}
	})
}
