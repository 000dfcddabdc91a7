package vmdoc

import (
	"encoding/json"
	"os"
	"testing"

	"pgregory.net/rapid"
)

// TestDiffVectors holds Diff to what the original program printed.
func TestDiffVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/diff-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vectors []struct {
			Name     string
			Old, New Value
			Map      map[string]string
			Changes  Value
			Throws   string
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if got := len(file.Vectors); got != 40 {
		t.Errorf("got %d vectors, want 40", got)
	}
	for _, v := range file.Vectors {
		t.Run(v.Name, func(t *testing.T) {
			got := Diff(v.Old, v.New, v.Map)
			if v.Throws != "" {
				// One field of the root in each of them.
				key := v.Old.keys[0]
				if len(got) != 1 || got[0].Action != Changed || got[0].PrettyPath() != key ||
					!got[0].Old.Equal(v.Old.items[0]) || !got[0].New.Equal(v.New.items[0]) {
					t.Errorf("got %s, want %s changed as a whole", changesJSON(got), key)
				}
				return
			}
			if got, want := changesJSON(got), string(v.Changes.AppendJSON(nil)); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func changesJSON(changes []Change) string {
	return string(AppendChanges(nil, changes))
}

func TestDiffWhereTheOriginalThrows(t *testing.T) {
	for name, test := range map[string][3]string{
		"null element":       {`{"nics":[{"mac":"a"}]}`, `{"nics":[null]}`, "nics"},
		"ident against none": {`{"nics":[{"x":1}]}`, `{"nics":["y"]}`, "nics"},
		"array to null":      {`{"a":[1]}`, `{"a":null}`, "a"},
		"deep null":          {`{"a":{"b":{"c":1}}}`, `{"a":{"b":null}}`, "a.b"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Diff(parse(t, test[0]), parse(t, test[1]), Idents)
			if len(got) != 1 || got[0].Action != Changed || got[0].PrettyPath() != test[2] {
				t.Errorf("got %s, want %s changed", changesJSON(got), test[2])
			}
		})
	}
}

func parse(t testing.TB, text string) Value {
	t.Helper()
	v, err := ParseValue([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// genValue draws a JSON value.
func genValue(depth int) *rapid.Generator[Value] {
	scalar := rapid.Custom(func(t *rapid.T) Value {
		text := rapid.SampledFrom([]string{"null", "true", "false", "0", "1", "1.5", "-7", `""`, `"a"`, `"a.b"`, `"ü\n"`}).Draw(t, "scalar")
		v, err := ParseValue([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return v
	})
	if depth == 0 {
		return scalar
	}
	inner := genValue(depth - 1)
	array := rapid.Custom(func(t *rapid.T) Value { return ArrayValue(rapid.SliceOfN(inner, 0, 3).Draw(t, "items")...) })
	object := rapid.Custom(func(t *rapid.T) Value {
		var o objectMaker
		for range rapid.IntRange(0, 4).Draw(t, "fields") {
			o.set(rapid.SampledFrom([]string{"a", "b", "nics", "mac", "disks", "path", "1", "0", "x.y"}).Draw(t, "key"), inner.Draw(t, "value"))
		}
		return o.value()
	})
	return rapid.OneOf(scalar, array, object)
}

func genObject() *rapid.Generator[Value] {
	return genValue(3).Filter(Value.IsObject)
}

// TestDiffProperties: nothing differs from itself, order of root keys is no
// difference, and what is listed is there.
func TestDiffProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := genObject().Draw(t, "from"), genObject().Draw(t, "to")
		if got := Diff(from, from, Idents); len(got) != 0 {
			t.Fatalf("Diff(v, v) = %s", changesJSON(got))
		}
		changes := Diff(from, to, Idents)
		for _, c := range changes {
			if (c.Old != nil) == (c.Action == Added) || (c.New != nil) == (c.Action == Removed) {
				t.Fatalf("%s has the wrong values", c.AppendJSON(nil))
			}
			if len(c.Path) == 1 && !c.Path[0].Any {
				checkField(t, from, c.Path[0].Name, c.Old)
				checkField(t, to, c.Path[0].Name, c.New)
			}
			again := ChangeOf(mustParse(t, c.AppendJSON(nil)))
			if got, want := string(again.AppendJSON(nil)), string(c.AppendJSON(nil)); got != want {
				t.Fatalf("a change read again: got %s, want %s", got, want)
			}
		}
		if back := Diff(to, from, Idents); (len(back) == 0) != (len(changes) == 0) {
			t.Fatalf("one way %s, the other %s", changesJSON(changes), changesJSON(back))
		}
	})
}

func mustParse(t *rapid.T, text []byte) Value {
	v, err := ParseValue(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func checkField(t *rapid.T, v Value, key string, want *Value) {
	got, ok := v.Get(key)
	if ok != (want != nil) || ok && !got.Equal(*want) {
		t.Fatalf("field %q is %s, the change has %v", key, got.AppendJSON(nil), want)
	}
}
