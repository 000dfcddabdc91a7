package output

import (
	"encoding/json"
	"testing"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		`4385813`: "4385813", `1500`: "1500", `0`: "0", `1.5`: "1.5", `9007199254740991`: "9007199254740991",
		`""`: "-", `null`: "-", `[]`: "-", `["a",2]`: "a,2", `true`: "true", `{"a":1}`: `{"a":1}`,
	} {
		var v any
		if err := json.Unmarshal([]byte(in), &v); err != nil {
			t.Fatal(err)
		}
		if got := Text(v); got != want {
			t.Errorf("%s is printed as %q, want %q", in, got, want)
		}
	}
}
