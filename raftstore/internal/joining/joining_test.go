package joining

import "testing"

func TestNote(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []struct {
		name string
		do   func(string) error
		want bool
	}{{"begin", Forget, false}, {"note", Note, true}, {"note again", Note, true}, {"forget", Forget, false}} {
		if err := step.do(dir); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if noted, err := Noted(dir); noted != step.want || err != nil {
			t.Errorf("after %s: %t, %v; want %t", step.name, noted, err, step.want)
		}
	}
}
