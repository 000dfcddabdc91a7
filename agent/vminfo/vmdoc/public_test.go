package vmdoc

import "testing"

func TestPublicHasNoSecrets(t *testing.T) {
	for text, want := range map[string]string{
		`{"uuid":"u","alias":"web0","state":"running","pid":7,"customer_metadata":{"root_pw":"x"},"internal_metadata":{},"root_password":"x","nics":[{"mac":"m"}],"owner_uuid":"o","quota":10}`: `{"uuid":"u","alias":"web0","state":"running","pid":7,"quota":10}`,
		// A manifest may hide anything in a field that is public elsewhere.
		`{"uuid":"u","alias":{"root_pw":"x"},"quota":["x"]}`: `{"uuid":"u"}`,
		`{"unknown":"x"}`: `{}`,
		`[1]`:             `{}`,
	} {
		v, err := ParseValue([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(v.Public().AppendJSON(nil)); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestPublicChangesHaveNoSecrets(t *testing.T) {
	parse := func(text string) Value {
		v, err := ParseValue([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	changes := Diff(parse(`{"quota":1,"alias":"a","ram":{"x":1},"customer_metadata":{"pw":"a"},"gone":1}`),
		parse(`{"quota":2,"alias":{"pw":"b"},"ram":{"x":2},"customer_metadata":{"pw":"b"},"root_pw":"c"}`), Idents)
	if len(changes) != 6 {
		t.Fatalf("%d changes, want 6", len(changes))
	}
	public := PublicChanges(changes)
	if len(public) != 1 || public[0].PrettyPath() != "quota" {
		t.Errorf("got %v, want the change of quota", public)
	}
}
