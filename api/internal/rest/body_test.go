package rest

import (
	"strings"
	"testing"
)

func TestJSONDepth(t *testing.T) {
	if tooDeep([]byte(`{"a":"` + strings.Repeat("[", 100) + `\"[["}`)) {
		t.Error("brackets inside a text were counted")
	}
}
