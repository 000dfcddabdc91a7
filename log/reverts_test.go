package log

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestRevertsOf: entries that are reverted are named by ranges in order; where there are
// more than fit, the ranges name all that was meant and the least beside it.
func TestRevertsOf(t *testing.T) {
	t.Parallel()
	if got := RevertsOf([]Seq{1060, 7, 1042, 8, 7, 9}).String(); got != "#7-#9,#1042,#1060" {
		t.Errorf("got %s", got)
	}
	var many []Seq
	for i := range 100 {
		many = append(many, Seq(10+20*i), Seq(12+20*i))
	}
	joined := RevertsOf(many)
	if len(joined) != MaxReverts || joined.Check() != nil {
		t.Errorf("%d ranges: %s, %v", len(joined), joined, joined.Check())
	}
	rapid.Check(t, func(t *rapid.T) {
		seqs := rapid.SliceOfN(rapid.Map(rapid.Uint64Range(1, 400), func(n uint64) Seq { return Seq(n) }), 0, 150).Draw(t, "seqs")
		r := RevertsOf(seqs)
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		for _, seq := range seqs {
			if !r.Has(seq) {
				t.Fatalf("%s has not #%s", r, seq)
			}
		}
		if len(r) < MaxReverts { // nothing was joined
			for seq := Seq(1); seq <= 400; seq++ {
				if r.Has(seq) != slices.Contains(seqs, seq) {
					t.Fatalf("%s of %v: #%s", r, seqs, seq)
				}
			}
		}
		back, err := ParseReverts(r.String())
		if err != nil || !reflect.DeepEqual(back, r) {
			t.Fatalf("%s read as %s, %v", r, back, err)
		}
	})
}

// TestReadReverts: what a client sends is read strictly.
func TestReadReverts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                     "",
		"12":                                   "#12",
		"#12,14-#15":                           "#12,#14-#15",
		"x":                                    "names no entries",
		"#":                                    "names no entries",
		"5-":                                   "names no entries",
		",":                                    "names no entries",
		"0":                                    "begins at 1",
		"9-8":                                  "begins at 1",
		"9,8":                                  "must be in order",
		"8,8":                                  "must be in order",
		strings.Repeat("1,", MaxReverts) + "2": "over 32",
	} {
		r, err := ParseReverts(text)
		if err == nil && r.String() != want || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %s, %v, want %s", text, r, err, want)
		}
	}
}

// TestRevertsInJSON: an entry prints what it reverts, and one that reverts nothing is as
// programs of before print it.
func TestRevertsInJSON(t *testing.T) {
	t.Parallel()
	e := &Event{Kind: KindNICTag, Action: Create, ID: "a", Revision: 1, Time: 5e9, Object: &NICTag{Name: "a"}}
	b, err := json.Marshal(Line{Seq: 3, Event: e})
	if err != nil || strings.Contains(string(b), "reverts") {
		t.Errorf("%s, %v", b, err)
	}
	e.Reverts = Reverts{{1, 1}, {3, 5}}
	if b, err = json.Marshal(Line{Seq: 3, Event: e}); err != nil || !strings.Contains(string(b), `"reverts":"#1,#3-#5"`) {
		t.Fatalf("%s, %v", b, err)
	}
	var back Line
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back.Event, e) {
		t.Errorf("read as %+v, %v", back.Event, err)
	}
}

// TestRevertsBelowTheirVersion: a program reads past what stands in their place below the
// feature version that brought them, as programs of that version do, and refuses what is no
// list of ranges from there on.
func TestRevertsBelowTheirVersion(t *testing.T) {
	t.Parallel()
	c := exampleChange()
	c.Reverts = Reverts{{2, 3}}
	b := must(NewEncoder().Change(c))
	old, err := new(ChangeDecoder).ChangeAt(FeatureDeclared-1, b)
	if err != nil || old.Reverts != nil {
		t.Errorf("below: %s, %v", old.Reverts, err)
	}
	now, err := new(ChangeDecoder).ChangeAt(FeatureDeclared, b)
	if err != nil || !reflect.DeepEqual(now.Reverts, c.Reverts) {
		t.Errorf("from it on: %s, %v", now.Reverts, err)
	}
	c.Reverts = nil
	if without := must(NewEncoder().Change(c)); len(without) >= len(b) || without[1] != codeFixArray+changeFields {
		t.Errorf("a change without them has %d bytes and begins %x", len(without), without[:2])
	}
	for _, place := range [][]byte{{codeTrue}, {codeFixArray + 1, 2}, {codeFixArray + 2, 2, codeFixStr}} {
		bad := append(b[:len(b)-3:len(b)-3], place...)
		if _, err := new(ChangeDecoder).ChangeAt(FeatureDeclared, bad); err == nil {
			t.Errorf("%x in their place is read", place)
		}
		if _, err := new(ChangeDecoder).ChangeAt(FeatureDeclared-1, bad); err != nil {
			t.Errorf("%x in their place, below their version: %v", place, err)
		}
	}
}

// TestLabelsAreChecked: a label is a short key and a short value, each key once.
func TestLabelsAreChecked(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", MaxLabelKeyBytes)
	many := make([]string, MaxLabels)
	for i := range many {
		many[i] = string(rune('a'+i)) + "=1"
	}
	for _, c := range []struct {
		labels []string
		want   string
	}{
		{[]string{"a=", "a.b/c_d-9=x y~!", "set=a=b"}, ""},
		{[]string{long + "=" + strings.Repeat("v", MaxLabelValueBytes)}, ""},
		{many, ""},
		{append([]string{"0=1"}, many...), "17 labels are over 16"},
		{[]string{"a"}, "is no label"},
		{[]string{"=a"}, "the key of label"},
		{[]string{"A=a"}, "the key of label"},
		{[]string{"a b=a"}, "the key of label"},
		{[]string{long + "k=a"}, "the key of label"},
		{[]string{"a=" + strings.Repeat("v", MaxLabelValueBytes+1)}, "the value of label"},
		{[]string{"a=\x1b[31m"}, "the value of label"},
		{[]string{"a=1,2"}, "the value of label"},
		{[]string{"a=é"}, "the value of label"},
		{[]string{"a=2", "a=1"}, "twice"},
	} {
		problem, remedy := CheckLabels(c.labels)
		if c.want == "" && problem != "" || !strings.Contains(problem, c.want) || (problem == "") != (remedy == "") {
			t.Errorf("%q: %q, %q, want %q", c.labels, problem, remedy, c.want)
		}
	}
}
